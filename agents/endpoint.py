"""A language model behind an OpenAI-compatible server, as agents.

vLLM, SGLang, llama.cpp, Ollama and most providers speak this protocol. What the model writes is an
action, however odd; what goes wrong with the server is an exception, and never an action.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import gymnasium as gym

from headway.agents.scripted import own
from headway.arguments import number, one_of, whole
from headway.envs.spaces import CUT, Cut
from headway.envs.tool_env import ToolEnv
from headway.envs.wording import cut
from headway.envs.wording import whole as joined

KEY = "OPENAI_API_KEY"
"""Environment variable with the key."""

MODES = ("text", "tools")

WRITABLE = ("json", "hermes")
"""Formats of actions that can say everything a model may ask for in the protocol's own way."""

SAID = 300
"""Characters that a message repeats of what a server said."""

LONGEST = 2**23
"""Bytes of the longest answer that is read."""

UNREADABLE = "not_json"
"""Stands for all arguments of a call whose arguments are no JSON object, with their text."""

_FULL = re.compile(
    r"context[_ ]?(length|size|window)|maximum (context|input)|(prompt|input) is too long"
    r"|too many (input )?tokens",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"^\[(\d+)\] ", re.MULTILINE)


class EndpointFailed(RuntimeError):
    """A server gave no answer: the episode has no result.

    Attributes:
        lasting: Whether every other request would fail alike (a wrong key, model or address).
    """

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting

    def __reduce__(self) -> tuple[Any, ...]:
        """Crosses process boundaries with ``lasting`` intact."""
        return _revive, (str(self), self.lasting)


def _revive(message: str, lasting: bool) -> EndpointFailed:
    return EndpointFailed(message, lasting=lasting)


class _ContextFull(EndpointFailed):
    """A conversation has become too long for the model."""


@dataclass(frozen=True)
class Usage:
    """What was asked of a server.

    Attributes:
        answers: How many it gave.
        prompt: Tokens that the model read, as the server counts them.
        completion: Tokens that it wrote.
        uncounted: Answers without a count, which are not in the two sums.
        full: Episodes that were cut because the model's context was full.
    """

    answers: int = 0
    prompt: int = 0
    completion: int = 0
    uncounted: int = 0
    full: int = 0


class Endpoint:
    """One model of one server. ``endpoint(seed)`` is an agent for one episode after another.

    So an endpoint stands wherever an agent is made from a seed::

        evaluate("headway/Apps-v0", Endpoint("http://localhost:8000/v1", "my-model"), episodes=20)

    Any number of threads may use it and its agents at once, each agent by one of them. A copy in
    another process has connections and counts of its own.

    The key is that of the parameter or of the environment variable ``OPENAI_API_KEY``, and goes to
    this server only. No message and no ``repr`` shows it.

    Args:
        url: Base of the API, such as ``http://localhost:8000/v1``.
        model: Name of the model there.
        api_key: None for that of the environment; a server that asks for none gets a blank one.
        mode: ``"text"``: the model writes actions in the environment's format. ``"tools"``: it is
            given the environment's tools and calls them in the protocol's own way; make the
            environment with ``manual=False``, so that nothing explains another way.
        temperature: Of sampling, at least 0; None for what the server takes.
        max_tokens: Most tokens of a turn; None for what the server takes.
        timeout_s: Seconds that the server may be silent, and that a whole answer may take.
        retries: How often a request is repeated after a lost connection, a timeout, and the states
            408, 409, 429 and 5xx; after a pause that grows, or as long as the server asks for.
        extra: More fields of every request, such as ``{"top_p": 0.9}``; None for one that is sent
            otherwise (``seed`` is the agent's) leaves it out.

    Raises:
        ModuleNotFoundError: The package openai is missing.
        ValueError: An argument is outside its range.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        mode: str = "text",
        temperature: float | None = 1.0,
        max_tokens: int | None = 1024,
        timeout_s: float = 120.0,
        retries: int = 4,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if find_spec("openai") is None:
            raise ModuleNotFoundError(
                'an endpoint needs openai, which is missing; pip install "headway[api]"',
                name="openai",
            )
        self.url, hidden = _address(url)
        if not isinstance(model, str) or not model:
            raise ValueError(f"model must be a name, got {model!r}")
        self.model = self.__name__ = model
        self.mode = one_of("mode", mode, MODES)
        self.temperature = (
            None if temperature is None else number("temperature", temperature, "[0, inf)")
        )
        self.max_tokens = None if max_tokens is None else whole("max_tokens", max_tokens, 1)
        self.timeout_s = number("timeout_s", timeout_s, "(0, inf)")
        self.retries = whole("retries", retries, 0)
        self.extra = dict(extra or {})
        self._base = url
        self._key = _secret(api_key)
        secrets = [text for text in (self._key, *hidden) if text]
        # A message may spell a text as Python or JSON does, with its quotes escaped.
        spelt = {way for s in secrets for way in (s, repr(s)[1:-1], json.dumps(s)[1:-1])}
        self._hidden = sorted(spelt, key=len, reverse=True)
        self._limit = "max_tokens"
        self._usage = Usage()
        self._client: Any = None
        self._lock = threading.Lock()

    def __call__(self, seed: int) -> Conversation:
        """An agent; ``seed`` goes to the server, which may or may not heed it."""
        return Conversation(self, seed)

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r}, {self.model!r}, mode={self.mode!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Everything but connections and counts."""
        return {**self.__dict__, "_client": None, "_lock": None, "_usage": Usage()}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @property
    def usage(self) -> Usage:
        """What all agents of this endpoint have asked of the server so far."""
        return self._usage

    def close(self) -> None:
        """Closes the connections; a later request opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def ask(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], seed: int
    ) -> Mapping[str, Any]:
        """The message that the model answers with, as the server sent it.

        Args:
            messages: What was said so far.
            tools: Schemas; empty for none.
            seed: Of sampling.

        Raises:
            EndpointFailed: There is none.
        """
        openai: Any = import_module("openai")
        limit = self._limit
        try:
            answer = self._send(openai, messages, tools, seed, limit)
        except openai.BadRequestError as error:
            # Newer models of one provider know the limit by another name only. Another thread may
            # have learnt it by now, so what counts is the name in this request.
            if limit != "max_tokens" or "max_completion_tokens" not in str(error):
                raise self._failure(openai, error) from None
            self._limit = "max_completion_tokens"
            return self.ask(messages, tools, seed)
        except openai.OpenAIError as error:
            # Not from the error, whose request holds the key.
            raise self._failure(openai, error) from None
        return self._read(answer)

    def _send(
        self,
        openai: Any,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        seed: int,
        limit: str,
    ) -> str:
        with self._lock:
            if self._client is None:
                self._client = openai.OpenAI(
                    base_url=self._base,
                    api_key=self._key or "none",
                    timeout=self.timeout_s,
                    max_retries=self.retries,
                    http_client=openai.DefaultHttpxClient(
                        event_hooks={"response": [partial(_limited, self.timeout_s)]}
                    ),
                )
            client = self._client
        fields: dict[str, Any] = {
            "temperature": self.temperature,
            limit: self.max_tokens,
            "seed": seed,
            "tools": list(tools) or None,
            **self.extra,
        }
        # The client reads an answer into classes of its own, whatever it says. A server's words
        # are better judged as they came.
        raw = client.chat.completions.with_raw_response.create(
            model=self.model,
            messages=list(messages),
            extra_body={name: value for name, value in fields.items() if value is not None},
        )
        text: str = raw.http_response.text
        return text

    def _read(self, answer: str) -> Mapping[str, Any]:
        try:
            found = json.loads(answer)
        except (ValueError, RecursionError):
            raise self._failed(
                f"answered what is not JSON: {self._hid(answer)[:SAID]!r}",
                "url must be the base of an OpenAI-compatible API; it usually ends in /v1",
            ) from None
        try:
            message = found["choices"][0]["message"]
            message.get("content")
        except (LookupError, TypeError, AttributeError):
            raise self._failed(
                f"answered without a message: {self._hid(answer)[:SAID]!r}",
                "look at the server's log",
            ) from None
        usage = found.get("usage")
        self._count(usage if isinstance(usage, dict) else {})
        said: Mapping[str, Any] = message
        return said

    def _count(self, usage: Mapping[str, Any]) -> None:
        tokens = [usage.get(f"{kind}_tokens") for kind in ("prompt", "completion")]
        known = all(type(count) is int and count >= 0 for count in tokens)
        read, wrote = tokens if known else (0, 0)
        with self._lock:
            so_far = self._usage
            self._usage = replace(
                so_far,
                answers=so_far.answers + 1,
                prompt=so_far.prompt + (read or 0),
                completion=so_far.completion + (wrote or 0),
                uncounted=so_far.uncounted + (not known),
            )

    def count_full(self) -> None:
        """Counts an episode that was cut because the context was full."""
        with self._lock:
            self._usage = replace(self._usage, full=self._usage.full + 1)

    def _failure(self, openai: Any, error: Any) -> EndpointFailed:
        """What went wrong, and what can be done about it."""
        tries = "1 try" if not self.retries else f"at most {self.retries + 1} tries"
        if isinstance(error, openai.APITimeoutError):
            return self._failed(
                f"gave no whole answer within {self.timeout_s:g} s in {tries}",
                "raise timeout_s or lower max_tokens",
            )
        if isinstance(error, openai.APIConnectionError):
            cause = error.__cause__
            refused = type(cause).__name__ == "ConnectError"
            return self._failed(
                f"could not be reached in {tries}: {cause or error}",
                "see that the server is running and that url is its address",
                lasting=refused,
            )
        if not isinstance(error, openai.APIStatusError):
            return self._failed(f"could not be asked: {error}", "see the documentation of openai")
        status, said = error.status_code, f"answered {error.status_code}: {error.message}"
        if status in (401, 403):
            return self._failed(said, f"set {KEY} to a key of this server", lasting=True)
        if status == 404:
            remedy = f"url usually ends in /v1, and {self.url}/models lists the models"
            return self._failed(said, remedy, lasting=True)
        if status in (400, 413, 422):
            full = error.code == "context_length_exceeded" or _FULL.search(error.message)
            kind = _ContextFull if full else EndpointFailed
            remedy = "serve the model with a longer context or lower max_tokens"
            if not full:
                remedy = "mode='text' needs no support for tools" if self.mode == "tools" else ""
            return self._failed(said, remedy, kind=kind)
        if status == 429:
            return self._failed(f"{said} ({tries})", "wait, or ask less at a time")
        return self._failed(f"{said} ({tries})", "look at the server's log")

    def _failed(
        self,
        what: str,
        remedy: str,
        *,
        lasting: bool = False,
        kind: type[EndpointFailed] = EndpointFailed,
    ) -> EndpointFailed:
        said = cut(self._hid(what), 2 * SAID)
        # A server's words may not move the cursor of whoever reads them.
        said = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in said)
        text = f"{self.model!r} at {self.url} {said}"
        return kind(f"{text}; {remedy}" if remedy else text, lasting=lasting)

    def _hid(self, text: str) -> str:
        """The text without secrets; before it is cut, or a part of one would not be found."""
        for secret in self._hidden:
            text = text.replace(secret, "***")
        return text


class Conversation:
    """An agent that shows a model all that was said and does what it answers.

    Args:
        endpoint: The model.
        seed: Of sampling.
    """

    def __init__(self, endpoint: Endpoint, seed: int) -> None:
        self.endpoint = endpoint
        self.seed = seed
        self.messages: list[dict[str, Any]] = []
        self._env: ToolEnv | None = None
        self._tools: list[dict[str, Any]] = []
        self._open: list[str] = []
        self._begun = False

    def reset(self, env: gym.Env[Any, Any], obs: str) -> None:
        """Forgets what was said.

        Raises:
            TypeError: In mode ``"tools"``, ``env`` is not a headway environment.
            ValueError: In that mode, its action format cannot write every call.
        """
        if self.endpoint.mode == "tools":
            self._env = own(env)
            one_of("action_format (in mode 'tools')", self._env.action_format, WRITABLE)
            self._tools = self._env.tools
        self.messages, self._open, self._begun = [], [], True

    def act(self, obs: str) -> str | Cut:
        """What the model does; ``headway.CUT`` when its context has become too short for it.

        Raises:
            EndpointFailed: The server did not answer, or the first observation is too long.
            ResetNeeded: No episode has begun.
        """
        if not self._begun:
            raise gym.error.ResetNeeded("no episode has begun; call reset(env, obs) before act()")
        first = not self.messages
        self._hear(joined(obs))
        try:
            message = self.endpoint.ask(self.messages, self._tools, self.seed)
        except _ContextFull:
            if first:
                raise
            self.endpoint.count_full()
            return CUT
        calls = message.get("tool_calls")
        if self._env is not None and isinstance(calls, list) and calls:
            return self._call(self._env, _text(message), calls)
        text = _text(message)
        self.messages.append({"role": "assistant", "content": text})
        return text

    def _hear(self, obs: str) -> None:
        """Adds an observation: as replies to the calls that are open, or as the user's words."""
        for id, reply in zip(self._open, _replies(obs, len(self._open)), strict=True):
            self.messages.append({"role": "tool", "tool_call_id": id, "content": reply})
        if not self._open:
            self.messages.append({"role": "user", "content": obs})
        self._open = []

    def _call(self, env: ToolEnv, text: str, calls: Sequence[Any]) -> str:
        """Writes calls of the protocol in the format of the environment."""
        actions, spoken = [], []
        for at, call in enumerate(calls):
            found = call if isinstance(call, dict) else {}
            function = found.get("function")
            function = function if isinstance(function, dict) else {}
            name = joined(str(function.get("name") or ""))
            args = _arguments(function.get("arguments"))
            id = found.get("id")
            if not isinstance(id, str) or not id or id in self._open:
                id = f"call{len(self.messages)}x{at}"
            self._open.append(id)
            # What it wrote itself might be no JSON, which no template can render again.
            said = {"name": name, "arguments": json.dumps(args, ensure_ascii=False)}
            spoken.append({"id": id, "type": "function", "function": said})
            actions.append(env.format(name, args))
        self.messages.append({"role": "assistant", "content": text, "tool_calls": spoken})
        return "\n".join(actions)


def _limited(seconds: float, response: Any) -> None:
    """Ends the reading of an answer that drips, or never ends.

    The time limits of the client are for silence only, and it has none for size. What is raised is
    what it raises itself, so it tries again where it would.

    Args:
        seconds: From now on.
        response: Whose body has not been read.
    """
    library: Any = import_module(type(response).__module__.partition(".")[0])
    stream, until, request = response.stream, monotonic() + seconds, response.request

    class Limited(library.SyncByteStream):  # type: ignore[misc]  # of whichever library it is
        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for piece in stream:
                size += len(piece)
                if size > LONGEST:
                    raise library.ReadError(f"more than {LONGEST} bytes", request=request)
                if monotonic() > until:
                    raise library.ReadTimeout("it drips", request=request)
                yield piece

        def close(self) -> None:
            stream.close()

    response.stream = Limited()


def _address(url: str) -> tuple[str, list[str]]:
    """A URL without the secrets in it, and these.

    Raises:
        ValueError: It is no address of a server.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname and parts.netloc.rpartition("@")[2]
        if any(sign.isspace() or not sign.isprintable() for sign in url):
            raise ValueError
        if parts.scheme in ("http", "https") and host and (parts.port or 1):
            shown = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
            asked = [value for _, value in parse_qsl(parts.query)]
            return shown, [text for text in (parts.password, *asked) if text]
    except (AttributeError, TypeError, ValueError):
        pass
    # Not the value: it may hold a password.
    raise ValueError("url must be an address such as http://localhost:8000/v1, got something else")


def _secret(api_key: str | None) -> str:
    """The key, of the parameter or of the environment; empty for none.

    Raises:
        ValueError: It cannot be sent.
    """
    key = (os.environ.get(KEY, "") if api_key is None else api_key).strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("api_key must be printable ASCII without blanks, got something else")
    return key


def _text(message: Mapping[str, Any]) -> str:
    """What a message says, in whatever form."""
    content = message.get("content")
    if content is None:
        content = message.get("refusal") or ""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        content = "".join(part for part in parts if isinstance(part, str))
    return joined(content if isinstance(content, str) else json.dumps(content))


def _arguments(written: Any) -> dict[str, Any]:
    """The arguments of a call; where they are no JSON object, their text under ``UNREADABLE``."""
    if written is None or written == "":
        return {}
    try:
        found = json.loads(written) if isinstance(written, str) else written
        json.dumps(found, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return {UNREADABLE: joined(written if isinstance(written, str) else repr(written))}
    args: dict[str, Any] = json.loads(joined(json.dumps(found, ensure_ascii=False)))
    return args


def _replies(obs: str, calls: int) -> list[str]:
    """An observation as one text for each of several calls.

    The environment numbers the replies of a turn. Where a reply holds such a number itself, or
    there are other numbers of replies and of calls, nothing says where one ends: then the last
    text is the whole observation and the others say so.
    """
    if calls < 2:
        return [obs] * calls
    starts = list(_NUMBERED.finditer(obs))
    if [int(found[1]) for found in starts] != list(range(1, calls + 1)) or starts[0].start():
        return [*["The reply stands with those to the calls below."] * (calls - 1), obs]
    ends = [found.start() - 1 for found in starts[1:]] + [len(obs)]
    return [obs[a.end() : b] for a, b in zip(starts, ends, strict=True)]
