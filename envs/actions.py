"""The text by which an agent calls tools, read and written.

Whatever an agent writes becomes a :class:`ToolCall` or a :class:`BadCall`, one for each call it
tried to make, in order; nothing it can write raises.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from headway.envs.wording import brief, near, quoted, whole

FORMATS = ("json", "hermes")

MAX_ACTION = 100_000
"""Characters of one action."""

MAX_CALLS = 16
"""Calls in one action."""

MAX_DEPTH = 64
"""Levels of nesting in one call. What the interpreter's stack allows depends on who calls."""

MAX_DIGITS = 400
"""Digits of one integer, below the least limit that an interpreter can be set to."""


class ToolCall(NamedTuple):
    """One well-formed call, whose tool and arguments are still to be checked."""

    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BadCall:
    """A call that could not be read; ``error`` tells the agent why."""

    error: str


def parse_action(text: str, format: str) -> tuple[ToolCall | BadCall, ...]:
    r"""The calls that an action makes, in order; at least one, and never an exception on text.

    ``json``: every JSON object in the text is a call, ``{"tool": name, "args": {...}}`` or
    ``{"name": ..., "arguments": {...}}``. Text around them is ignored, and so are code fences and
    the brackets of an array of calls. ``hermes``: the same, each between ``<tool_call>`` and
    ``</tool_call>``; a closing tag before the next opening one or at the end may be missing.
    Arguments may be left out where there are none.

    Braces, fences and tags inside a JSON string are data. A call that cannot be read gets a
    :class:`BadCall` in its place, and the others stand. A broken object ends where its braces
    close, or in front of a line that begins a call (json), or at the next tag (hermes), always
    outside strings; failing these it takes the rest of the text, so that what was meant as data
    is not run. Braces that do not look like a call (``{x}`` in prose) are reported only when
    nothing else was found. After ``MAX_CALLS`` calls one BadCall stands for all the rest.

    Surrogate pairs become the character they stand for and lone halves U+FFFD, so every string
    here can be encoded. NaN and infinity are not JSON.

    Args:
        text: The action.
        format: One of ``FORMATS``.

    Raises:
        ValueError: ``format`` is unknown.
    """
    read = _dialect(format).read
    if len(text) > MAX_ACTION:
        return (BadCall(f"the action has {len(text)} characters; at most {MAX_ACTION} are read"),)
    found = list(islice(read(text), MAX_CALLS + 1))
    if len(found) > MAX_CALLS:
        found[MAX_CALLS] = BadCall(
            f"only {MAX_CALLS} calls a turn are read; this and later ones were not"
        )
    if not found:
        example = format_calls([ToolCall("NAME", {"PARAMETER": "VALUE"})], format)
        found = [BadCall(f"no tool call found{_reason(text)}; write one like this: {example}")]
    return tuple(found)


def format_calls(calls: Sequence[ToolCall], format: str) -> str:
    """The canonical text of ``calls``, which :func:`parse_action` reads back to the same calls.

    Raises:
        ValueError: There is no call, an argument is NaN or infinite, or ``format`` is unknown.
    """
    if not calls:
        raise ValueError("calls must hold at least one call, got none")
    return "\n".join(map(_dialect(format).write, calls))


def how_to_call(example: ToolCall, format: str) -> str:
    """What an agent has to know of ``format``, with one call as an example.

    Raises:
        ValueError: ``format`` is unknown.
    """
    return (
        f"Call a tool by writing {_dialect(format).how}, for example:\n"
        f"{format_calls([example], format)}\n"
        f"Other text is ignored. Up to {MAX_CALLS} calls may follow one another in one turn: "
        "they run in order, and each gets its own reply."
    )


class _Broken(Exception):
    """JSON that cannot be read, and where."""

    def __init__(self, why: str, text: str, at: int) -> None:
        around = text[max(0, at - 20) : at + 20]
        super().__init__(f"not valid JSON at character {at}, near {around!r}: {why}")


_BLANK = r"[ \t\n\r]*+"
_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'  # line breaks too: agents forget to escape them
_TRY = re.compile(rf"""\{{{_BLANK}(?:"|'(?:tool|name)'|\Z)""")
_BRACKET = re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)
_BRACE_OR_CALL = re.compile(
    rf'{_STRING}|[{{}}]|\n(?=[ \t\r]*+\{{{_BLANK}"(?:tool|name)")', re.DOTALL
)
_STEPS = {"{": 1, "[": 1, "}": -1, "]": -1}
_OPEN = re.compile(f"<tool_call>{_BLANK}")
_CLOSE = re.compile(rf"{_BLANK}(?:</tool_call>|(?=<tool_call>)|\Z)")
_STRING_OR_TAG = re.compile(rf"{_STRING}|</tool_call>|(?=<tool_call>)", re.DOTALL)


def _read_json(text: str) -> Iterator[ToolCall | BadCall]:
    at = 0
    while (start := _TRY.search(text, at)) is not None:
        try:
            value, at = _decode(text, start.start())
            yield _call(value)
        except _Broken as broken:
            yield BadCall(str(broken))
            at = _end_of_object(text, start.start())


def _read_hermes(text: str) -> Iterator[ToolCall | BadCall]:
    at = 0
    while (opened := _OPEN.search(text, at)) is not None:
        try:
            value, end = _decode(text, opened.end())
            closed = _CLOSE.match(text, end)
            if closed is None:
                raise _Broken("expected </tool_call>", text, end)
            yield _call(value)
            at = closed.end()
        except _Broken as broken:
            yield BadCall(str(broken))
            at = _end_of_block(text, opened.end())


def _end_of_object(text: str, start: int) -> int:
    depth = 0
    for token in _BRACE_OR_CALL.finditer(text, start):
        depth += _STEPS.get(token[0], 0)
        if depth == 0 or token[0] == "\n":
            return token.end()
    return len(text)


def _end_of_block(text: str, start: int) -> int:
    for token in _STRING_OR_TAG.finditer(text, start):
        if not token[0].startswith('"'):
            return token.end()
    return len(text)


def _call(value: Any) -> ToolCall | BadCall:
    if not isinstance(value, dict):
        return BadCall(f"a call must be a JSON object, got {brief(value)}")
    name = "tool" if "tool" in value else "name"
    args = "args" if "args" in value else "arguments"
    if name not in value:
        keys = quoted(*value) or "no keys"
        return BadCall(f'a call must be an object with "tool" and "args", got one with {keys}')
    if stray := [key for key in value if key not in (name, args)]:
        return BadCall(f'unexpected {quoted(*stray)} beside "{name}"; arguments go inside "args"')
    if not isinstance(value[name], str):
        return BadCall(f'"{name}" must be a string, got {brief(value[name])}')
    given = value.get(args, {})
    if not isinstance(given, dict):
        return BadCall(f'"{args}" must be a JSON object, got {brief(given)}')
    return ToolCall(value[name], given)


def _reason(text: str) -> str:
    """Why the first brace of a text without a call begins none."""
    brace = text.find("{")
    try:
        if brace >= 0:
            _decode(text, brace)
    except _Broken as broken:
        return f" ({broken})"
    return ""


def _decode(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at ``start``, and where it ends.

    Raises:
        _Broken: There is none, or it is beyond the limits of this module.
    """
    if _is_deep(text, start):
        raise _Broken(f"nested more than {MAX_DEPTH} levels deep", text, start)
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise _Broken(error.msg, text, error.pos) from None
    except ValueError as error:
        raise _Broken(str(error), text, start) from None
    plain = text.isascii() and "\\u" not in text
    return value if plain else _cleaned(value), end


def _is_deep(text: str, start: int) -> bool:
    if text.count("{", start) + text.count("[", start) <= MAX_DEPTH:
        return False  # as nearly always: this costs nothing
    depth = 0
    for token in _BRACKET.finditer(text, start):
        depth += _STEPS.get(token[0], 0)
        if not 0 < depth <= MAX_DEPTH:
            return depth > 0
    return False


def _cleaned(value: Any) -> Any:
    """A decoded value whose strings can be encoded."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, dict):
        return {whole(key): _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list) else value


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is too large")
    return value


def _int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer has more than {MAX_DIGITS} digits")
    return int(text)


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON value")


_DECODER = json.JSONDecoder(parse_float=_float, parse_int=_int, parse_constant=_constant)


def _write_json(call: ToolCall) -> str:
    return json.dumps({"tool": call.tool, "args": call.args}, ensure_ascii=False, allow_nan=False)


def _write_hermes(call: ToolCall) -> str:
    body = {"name": call.tool, "arguments": call.args}
    text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    return f"<tool_call>\n{text}\n</tool_call>"


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How one format is read, written and explained."""

    read: Callable[[str], Iterator[ToolCall | BadCall]]
    write: Callable[[ToolCall], str]
    how: str


_DIALECTS = {
    "json": _Dialect(_read_json, _write_json, "a JSON object"),
    "hermes": _Dialect(_read_hermes, _write_hermes, "a JSON object between tags"),
}


def _dialect(format: str) -> _Dialect:
    if format not in _DIALECTS:
        hint = near(format, FORMATS)
        raise ValueError(f"format must be one of {FORMATS}, got {format!r}{hint}")
    return _DIALECTS[format]
