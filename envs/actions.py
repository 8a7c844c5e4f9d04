"""The text by which an agent calls tools, read and written.

Whatever an agent writes becomes a :class:`ToolCall` or a :class:`BadCall`, one for each call it
tried to make, in order; nothing it can write raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headway.envs.calls import (
    BLANK,
    MAX_DEPTH,
    MAX_DIGITS,
    STEPS,
    STRING,
    BadCall,
    Broken,
    ToolCall,
    decode,
)
from headway.envs.command import read_command, write_command
from headway.envs.wording import brief, near, quoted

if TYPE_CHECKING:
    from headway.envs.tools import Tool

__all__ = [
    "FORMATS",
    "MAX_ACTION",
    "MAX_CALLS",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "NO_TOOLS",
    "BadCall",
    "ToolCall",
    "format_calls",
    "how_to_call",
    "parse_action",
]

FORMATS = ("json", "hermes", "command")

MAX_ACTION = 100_000
"""Characters of one action."""

MAX_CALLS = 16
"""Calls in one action."""

NO_TOOLS: Mapping[str, Tool] = MappingProxyType({})
"""Where no tools are known by name, or none have to be."""


def parse_action(
    text: str, format: str, tools: Mapping[str, Tool] = NO_TOOLS
) -> tuple[ToolCall | BadCall, ...]:
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
    nothing else was found.

    ``command``: every line that begins with the name of a tool is a call, see
    :mod:`headway.envs.command`. The arguments that the tool needs stand in their order, optional
    ones as ``name=value`` (``name:=JSON`` for what no word can say). Blanks end a word, text with
    blanks stands in double quotes as in JSON, lists are ``a,b`` or JSON, and a text that is the
    last to be needed takes the rest of the line. Prose is ignored.

    After ``MAX_CALLS`` calls one BadCall stands for all the rest.

    Surrogate pairs become the character they stand for and lone halves U+FFFD, so every string
    here can be encoded. NaN and infinity are not JSON.

    Args:
        text: The action.
        format: One of ``FORMATS``.
        tools: By their names; without them ``command`` finds no call.

    Raises:
        ValueError: ``format`` is unknown.
    """
    dialect = _dialect(format)
    if len(text) > MAX_ACTION:
        return (BadCall(f"the action has {len(text)} characters; at most {MAX_ACTION} are read"),)
    found = list(islice(dialect.read(text, tools), MAX_CALLS + 1))
    if len(found) > MAX_CALLS:
        found[MAX_CALLS] = BadCall(
            f"only {MAX_CALLS} calls a turn are read; this and later ones were not"
        )
    if not found:
        found = [BadCall(f"no tool call found{dialect.why(text, tools)}; {dialect.remedy}")]
    return tuple(found)


def format_calls(
    calls: Sequence[ToolCall], format: str, tools: Mapping[str, Tool] = NO_TOOLS
) -> str:
    """The canonical text of ``calls``, which :func:`parse_action` reads back to the same calls.

    Args:
        calls: At least one.
        format: One of ``FORMATS``.
        tools: By their names; ``command`` is read back only with them, and of those that are there.

    Raises:
        ValueError: There is no call, an argument is NaN or infinite, or ``format`` is unknown.
    """
    if not calls:
        raise ValueError("calls must hold at least one call, got none")
    write = _dialect(format).write
    return "\n".join([write(call, tools) for call in calls])


def how_to_call(example: ToolCall, format: str, tools: Mapping[str, Tool] = NO_TOOLS) -> str:
    """What an agent has to know of ``format``, with one call as an example.

    Raises:
        ValueError: ``format`` is unknown.
    """
    return (
        f"Call a tool by writing {_dialect(format).how}, for example:\n"
        f"{format_calls([example], format, tools)}\n"
        f"Other text is ignored. Up to {MAX_CALLS} calls may follow one another in one turn: "
        "they run in order, and each gets its own reply."
    )


_TRY = re.compile(rf"""\{{{BLANK}(?:"|'(?:tool|name)'|\Z)""")
_BRACE_OR_CALL = re.compile(rf'{STRING}|[{{}}]|\n(?=[ \t\r]*+\{{{BLANK}"(?:tool|name)")', re.DOTALL)
_OPEN = re.compile(f"<tool_call>{BLANK}")
_CLOSE = re.compile(rf"{BLANK}(?:</tool_call>|(?=<tool_call>)|\Z)")
_STRING_OR_TAG = re.compile(rf"{STRING}|</tool_call>|(?=<tool_call>)", re.DOTALL)


def _read_json(text: str, tools: Mapping[str, Tool]) -> Iterator[ToolCall | BadCall]:
    at = 0
    while (start := _TRY.search(text, at)) is not None:
        try:
            value, at = decode(text, start.start())
            yield _call(value)
        except Broken as broken:
            yield BadCall(str(broken))
            at = _end_of_object(text, start.start())


def _read_hermes(text: str, tools: Mapping[str, Tool]) -> Iterator[ToolCall | BadCall]:
    at = 0
    while (opened := _OPEN.search(text, at)) is not None:
        try:
            value, end = decode(text, opened.end())
            closed = _CLOSE.match(text, end)
            if closed is None:
                raise Broken("expected </tool_call>", text, end)
            yield _call(value)
            at = closed.end()
        except Broken as broken:
            yield BadCall(str(broken))
            at = _end_of_block(text, opened.end())


def _end_of_object(text: str, start: int) -> int:
    depth = 0
    for token in _BRACE_OR_CALL.finditer(text, start):
        depth += STEPS.get(token[0], 0)
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


def _brace(text: str, tools: Mapping[str, Tool]) -> str:
    """Why the first brace of a text without a call begins none."""
    brace = text.find("{")
    try:
        if brace >= 0:
            decode(text, brace)
    except Broken as broken:
        return f" ({broken})"
    return ""


def _first_word(text: str, tools: Mapping[str, Tool]) -> str:
    """What a line must begin with."""
    return f": no line begins with the name of a tool, {', '.join(tools)}" if tools else ""


def _write_json(call: ToolCall, tools: Mapping[str, Tool]) -> str:
    return json.dumps({"tool": call.tool, "args": call.args}, ensure_ascii=False, allow_nan=False)


def _write_hermes(call: ToolCall, tools: Mapping[str, Tool]) -> str:
    body = {"name": call.tool, "arguments": call.args}
    text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    return f"<tool_call>\n{text}\n</tool_call>"


_EXAMPLE = ToolCall("NAME", {"PARAMETER": "VALUE"})


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How one format is read, written and explained.

    Attributes:
        read: The calls in a text.
        write: One call.
        how: Ends "Call a tool by writing".
        why: What is wrong with a text without a call.
        remedy: What to do then.
    """

    read: Callable[[str, Mapping[str, Tool]], Iterator[ToolCall | BadCall]]
    write: Callable[[ToolCall, Mapping[str, Tool]], str]
    how: str
    why: Callable[[str, Mapping[str, Tool]], str]
    remedy: str


_DIALECTS = {
    "json": _Dialect(
        _read_json,
        _write_json,
        "a JSON object",
        _brace,
        f"write one like this: {_write_json(_EXAMPLE, NO_TOOLS)}",
    ),
    "hermes": _Dialect(
        _read_hermes,
        _write_hermes,
        "a JSON object between tags",
        _brace,
        f"write one like this: {_write_hermes(_EXAMPLE, NO_TOOLS)}",
    ),
    "command": _Dialect(
        read_command,
        write_command,
        "a line with its name and arguments (text with blanks in double quotes, but the last needs "
        "none; [optional] ones as name=value; lists as a,b)",
        _first_word,
        "write one a line: NAME VALUE VALUE",
    ),
}


def _dialect(format: str) -> _Dialect:
    if format not in _DIALECTS:
        hint = near(format, FORMATS)
        raise ValueError(f"format must be one of {FORMATS}, got {format!r}{hint}")
    return _DIALECTS[format]
