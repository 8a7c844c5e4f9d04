"""Calls as command lines, in few tokens: ``mail_send ann@corp.example "launch review" See you``.

What a word means is said by the schema of its parameter: the same letters are a number for one tool
and a text for another. Every call of a tool that is there can be written, and is read back as it
was. Arguments that do not fit their schema stay as they are, for :meth:`Tool.bind` to complain.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.envs.calls import STRING, BadCall, Broken, ToolCall, decode
from headway.envs.wording import quoted, whole

if TYPE_CHECKING:
    from headway.envs.tools import Tool

MAX_ARGS = 64
"""Arguments of one call."""

LOOKED_AT = 100
"""So many first words that name no tool are looked at; whoever writes more of them writes prose."""

NEAR = 0.8
"""Similarity in [0, 1] from which on such a word is taken for a tool's name, misspelt."""


def read_command(text: str, tools: Mapping[str, Tool]) -> Iterator[ToolCall | BadCall]:
    """The calls in a text, one a line.

    A line is a call if its first word is the name of a tool, or is meant to be one: it is near to
    such a name, or has an underscore. All other lines are prose. A quote that is not closed on its
    line goes on to where it is, so that what was meant as data is not run.
    """
    text, start, looked_at = whole(text), 0, 0
    while start <= len(text):
        end = text.find("\n", start)
        line = text[start:] if end < 0 else text[start:end]
        after = start + len(line) + 1
        named = _NAME.match(line)
        tool = tools.get(named[1]) if named else None
        if named is not None and tool is not None:
            try:
                yield ToolCall(tool.name, _read(line, named.end(), tool.parameters))
            except _Open as broken:
                string = _STRING.match(text, start + broken.at)
                closed = string.end() if string else len(text)
                after = text.find("\n", closed) + 1 or len(text) + 1
                yield BadCall(f"{tool.name}: {broken}; write {usage(tool)}")
            except (Broken, _Wrong) as broken:
                yield BadCall(f"{tool.name}: {broken}; write {usage(tool)}")
        elif named is not None and looked_at < LOOKED_AT:
            looked_at += 1
            if _meant(named[1], tools):
                yield ToolCall(named[1], {})
        start = after


def write_command(call: ToolCall, tools: Mapping[str, Tool]) -> str:
    """One call as a line.

    Raises:
        ValueError: The name is none that a tool can have, or an argument is NaN or infinite.
    """
    named = _NAME.match(call.tool)
    if named is None or named[1] != call.tool:
        raise ValueError(f"tool must be letters, digits and underscores, got {call.tool!r}")
    parameters = tools[call.tool].parameters if call.tool in tools else _NONE
    properties, takers = parameters["properties"], _takers(parameters)
    ahead, words, behind = [], [], []
    gap = False
    for name in _order(parameters):
        if name not in call.args:
            gap = True
            continue
        value, schema = call.args[name], properties[name]
        word = _written(value, schema)
        by_place = name in parameters["required"] and not gap
        if word is None or not (by_place or _IDENTIFIER.fullmatch(name)):
            ahead.append(_as_json(name, value))
        elif not by_place:
            behind.append(f"{name}={word}")
        elif name in takers and _is_rest(value, schema, properties):
            words.append(value)
        else:
            words.append(word)
    ahead += [_as_json(name, value) for name, value in call.args.items() if name not in properties]
    return " ".join([call.tool, *ahead, *words, *behind])


def usage(tool: Tool) -> str:
    """How a call of ``tool`` looks: ``search QUERY [k=5]``."""
    properties, required = tool.parameters["properties"], tool.parameters["required"]
    places = [_place(n, properties[n], n in required) for n in _order(tool.parameters)]
    return " ".join([tool.name, *places])


class _Wrong(Exception):
    """What is not as a line must be."""


class _Open(_Wrong):
    """A quote without an end on its line, and where it begins."""

    def __init__(self, at: int) -> None:
        super().__init__(
            'a text that begins with " must end with " on the same line, with \\n in '
            "place of line breaks"
        )
        self.at = at


_BLANKS = " \t\r"
_NAME = re.compile(r"[ \t\r]*+([A-Za-z0-9_]{1,64})(?=[ \t\r(]|\Z)")
_STRING = re.compile(STRING, re.DOTALL)
_CLOSED = re.compile(r'"(?:[^"\\]|\\.)*+"')
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_NAMED = re.compile(rf"({_IDENTIFIER.pattern})(:?=)|({_CLOSED.pattern})(:=)")
_SKIP = re.compile(r"[ \t\r]*+")
_WORD = re.compile(r"[^ \t\r\n]*+")
_ITEM = re.compile(r'[^", \t\r\n][^, \t\r\n]*+')
_COMMA = re.compile(r",[ \t\r]*+")
_STOP = re.compile(rf"(?<![ \t\r])[ \t\r]++(?=({_IDENTIFIER.pattern}):?=)")
_BARE = re.compile(r'[^" \t\r\n][^ \t\r\n]*+')
_LINE = re.compile(r'[^" \t\r\n][^\r\n]*+(?<![ \t])')
_NONE: Mapping[str, Any] = {"properties": {}, "required": []}
_json = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _meant(name: str, tools: Mapping[str, Tool]) -> bool:
    """Whether a word that names no tool looks as if it should."""
    if "_" in name.strip("_"):
        return True
    return bool(difflib.get_close_matches(name.lower(), tools, n=1, cutoff=NEAR))


def _order(parameters: Mapping[str, Any]) -> list[str]:
    """Names in the order of their places: those that are needed, then the others."""
    required = parameters["required"]
    return [*required, *(name for name in parameters["properties"] if name not in required)]


def _takers(parameters: Mapping[str, Any]) -> list[str]:
    """The texts that may stand bare to the end of the line: the last needed and the last."""
    last = [*parameters["required"][-1:], *_order(parameters)[-1:]]
    return [name for name in last if _kind(parameters["properties"][name])[0] == "string"]


def _kind(schema: Mapping[str, Any]) -> tuple[str, bool]:
    """The type in a schema, and whether null fits too."""
    kind = schema["type"]
    return (kind, False) if isinstance(kind, str) else (kind[0], True)


# Reading.


def _read(line: str, at: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that stand in ``line`` from ``at`` on."""
    properties, args = parameters["properties"], dict[str, Any]()
    if line.startswith("(", at):
        raise _Wrong("after the name comes a blank and no bracket")
    while (at := _end(_SKIP, line, at)) < len(line):
        if len(args) == MAX_ARGS:
            raise _Wrong(f"only {MAX_ARGS} arguments are read")
        named = _NAMED.match(line, at)
        rest = False
        if named is None:
            left = [name for name in _order(parameters) if name not in args]
            if not left:
                raise _Wrong(f"nothing is left to be given, got {quoted(line[at:])}")
            name = left[0]
            rest = name in _takers(parameters) and line[at] != '"'
        else:
            name, at = named[1] or decode(named[3], 0)[0], named.end()
        if name in args:
            raise _Wrong(f"{name} is given twice")
        if rest:
            args[name], at = _rest(line, at, properties)
            if args[name] == "null" and _kind(properties[name])[1]:
                args[name] = None
        elif named is not None and (named[2] or named[4]) == ":=":
            args[name], at = decode(line, at)
        else:
            args[name], at = _value(line, at, properties.get(name, {"type": "string"}))
        if at < len(line) and line[at] not in _BLANKS:
            raise _Wrong(f"a blank must follow {name}, got {quoted(line[at:])}")
    return args


def _rest(line: str, at: int, properties: Mapping[str, Any]) -> tuple[str, int]:
    """Text to the end of the line, or to where another argument is named."""
    stops = (stop.start() for stop in _STOP.finditer(line, at) if stop[1] in properties)
    end = next(stops, len(line))
    return line[at:end].rstrip(_BLANKS), end


def _value(line: str, at: int, schema: Mapping[str, Any]) -> tuple[Any, int]:
    """The value of one word, or of one list, and where it ends."""
    kind, nullable = _kind(schema)
    if kind == "array":
        end = _end(_WORD, line, at)
        if nullable and line[at:end] == "null":
            return None, end
        return decode(line, at) if line.startswith("[", at) else _items(line, at, schema["items"])
    if line.startswith('"', at):
        return _text(line, at)
    end = _end(_WORD, line, at)
    word = line[at:end]
    if nullable and word == "null":
        return None, end
    return (word if kind == "string" else _scalar(word)), end


def _items(line: str, at: int, schema: Mapping[str, Any]) -> tuple[list[Any], int]:
    found: list[Any] = []
    while True:
        if line.startswith('"', at):
            item, at = _text(line, at)
        elif (bare := _ITEM.match(line, at)) is not None:
            item = bare[0] if schema["type"] == "string" else _scalar(bare[0])
            at = bare.end()
        else:
            raise _Wrong("a list is written a,b or [] with no empty place in it")
        found.append(item)
        comma = _COMMA.match(line, at)
        if comma is None:
            return found, at
        at = comma.end()


def _text(line: str, at: int) -> tuple[str, int]:
    """The text in the quotes that begin at ``at``."""
    closed = _CLOSED.match(line, at)
    if closed is None:
        raise _Open(at)
    return decode(closed[0], 0)[0], closed.end()


def _scalar(word: str) -> Any:
    """A number, true, false or null; the word itself if it is none."""
    try:
        value, end = decode(word, 0)
    except Broken:
        return word
    return word if end < len(word) or isinstance(value, str | list | dict) else value


def _end(pattern: re.Pattern[str], line: str, at: int) -> int:
    """Where what matches at ``at`` ends; for patterns that match everywhere."""
    match = pattern.match(line, at)
    return at if match is None else match.end()


# Writing.


def _written(value: Any, schema: Mapping[str, Any]) -> str | None:
    """A value as one word; None where no word would be read back as it."""
    kind, nullable = _kind(schema)
    if value is None:
        return "null" if nullable or kind not in ("string", "array") else None
    if kind == "array":
        return _listed(value, schema) if isinstance(value, list) else None
    if isinstance(value, str):
        bare = _BARE.fullmatch(value) and not _NAMED.match(value) and kind == "string"
        return value if bare and not (nullable and value == "null") else _json(value)
    return _json(value) if kind != "string" and isinstance(value, bool | int | float) else None


def _listed(value: list[Any], schema: Mapping[str, Any]) -> str:
    kind = schema["items"]["type"]
    items = []
    for item in value:
        if isinstance(item, str) and kind == "string":
            bare = _ITEM.fullmatch(item) and item[0] != "[" and not _NAMED.match(item)
            items.append(item if bare else _json(item))
        elif isinstance(item, bool | int | float) and kind != "string":
            items.append(_json(item))
        else:
            return _json(value)
    word = ",".join(items)
    return _json(value) if not items or (word == "null" and _kind(schema)[1]) else word


def _is_rest(value: Any, schema: Mapping[str, Any], properties: Mapping[str, Any]) -> bool:
    """Whether a text can stand bare up to the end of the line."""
    if not isinstance(value, str) or not _LINE.fullmatch(value) or _NAMED.match(value):
        return False
    if value == "null" and _kind(schema)[1]:
        return False
    return all(stop[1] not in properties for stop in _STOP.finditer(value))


def _place(name: str, schema: Mapping[str, Any], needed: bool) -> str:
    """What stands for an argument where a call is explained."""
    default = schema.get("default")
    if "enum" in schema:
        shape = "|".join(_written(option, schema) or "" for option in schema["enum"])
    elif needed or default is None:
        shape = name.upper() + ",..." * (_kind(schema)[0] == "array")
    else:
        shape = _written(default, schema) or ""
    return shape if needed else f"[{name}={shape}]"


def _as_json(name: str, value: Any) -> str:
    """An argument by its name, whatever its value is."""
    return f"{name if _IDENTIFIER.fullmatch(name) else _json(name)}:={_json(value)}"
