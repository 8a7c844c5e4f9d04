"""Tools made of typed functions: their schema, and the check of the arguments an agent gives.

What an argument may be is one rule for every tool, see :meth:`Tool.bind`. How an agent writes a
call is the matter of :mod:`headway.envs.actions`, whose names stand here too.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, overload

from headway.envs.actions import (
    FORMATS,
    BadCall,
    ToolCall,
    format_calls,
    how_to_call,
    parse_action,
)
from headway.envs.command import usage
from headway.envs.wording import brief, cut, listed, near, quoted, reply_text

__all__ = [
    "FORMATS",
    "BadCall",
    "Tool",
    "ToolCall",
    "ToolError",
    "cut",
    "describe",
    "format_calls",
    "parse_action",
    "reply_text",
    "tool",
    "unknown_tool",
]

MAX_STRING = 10_000
"""Characters of one string argument."""

MAX_ITEMS = 100
"""Items of one list argument."""

MAX_INT = 2**53
"""Largest size of an integer argument: up to here a float holds every integer exactly."""


class ToolError(Exception):
    """The agent's mistake in a tool call. Its text becomes the observation."""


@dataclass(frozen=True)
class Tool:
    """A function that an agent can call.

    Attributes:
        name: 1 to 64 ASCII letters, digits and underscores.
        description: What it does, in one line.
        parameters: JSON schema of the arguments, as :meth:`from_function` makes it.
        function: ``function(state, **arguments)``, where ``state`` is the live state.
        writes: It may change the state.
        idempotent: Calling it twice in a row leaves the same state as calling it once.

    Raises:
        ValueError: The name does not fit.
        TypeError: The schema of a parameter is of another kind.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]
    writes: bool = False
    idempotent: bool = True
    _fits: dict[str, Callable[[Any], Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_]{1,64}", self.name):
            raise ValueError(
                f"name must be 1 to 64 ASCII letters, digits and underscores, got {self.name!r}"
            )
        fits = {}
        for name, schema in self.parameters["properties"].items():
            try:
                fits[name] = _fit(schema)
            except (KeyError, TypeError) as error:
                raise TypeError(
                    f"tool {self.name}: parameter {name} has an unsupported schema {schema!r}"
                ) from error
        object.__setattr__(self, "_fits", fits)

    @classmethod
    def from_function(
        cls, fn: Callable[..., Any], *, writes: bool = False, idempotent: bool = True
    ) -> Tool:
        """The tool that ``fn`` is, by its signature and its Google docstring.

        The first parameter takes the live state and is not the agent's. The others may be ``str``,
        ``int``, ``float``, ``bool``, ``list[str]``, ``list[int]``, ``list[float]`` or a
        ``Literal`` of strings or integers, and any of these ``| None`` if it has a default. The
        text before the first section describes the tool, the ``Args:`` lines its parameters.

        Raises:
            TypeError: An annotation is none of these, or the docstring or one of its lines is
                missing; the message names the tool and the parameter.
        """
        try:
            _, *parameters = inspect.signature(fn, eval_str=True).parameters.values()
        except ValueError:
            raise TypeError(f"tool {fn.__name__}: no first parameter for the state") from None
        except NameError as error:
            raise TypeError(f"tool {fn.__name__}: annotation not found: {error}") from error
        description, lines = _docstring(fn)
        if not description:
            raise TypeError(f"tool {fn.__name__}: the docstring is missing")
        stale = [name for name in lines if name not in inspect.signature(fn).parameters]
        if stale:
            raise TypeError(f"tool {fn.__name__}: Args describes {stale[0]}, no parameter")
        properties = {}
        for parameter in parameters:
            try:
                properties[parameter.name] = _property(parameter, lines.get(parameter.name, ""))
            except TypeError as error:
                raise TypeError(
                    f"tool {fn.__name__}: parameter {parameter.name} {error}"
                ) from error
        schema = {
            "type": "object",
            "properties": properties,
            "required": [name for name, part in properties.items() if "default" not in part],
            "additionalProperties": False,
        }
        return cls(fn.__name__, description, schema, fn, writes=writes, idempotent=idempotent)

    def schema(self) -> dict[str, Any]:
        """The tool in the format of OpenAI's function calling, fresh at each call."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": copy.deepcopy(dict(self.parameters)),
            },
        }

    def bind(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them, by one strict rule for every tool.

        ``"100"`` is no number, ``"true"`` no boolean, a boolean no integer, and null fits only
        where the schema says so. An integer is taken for a number and 3.0 for an integer; NaN and
        infinity are refused. Strings hold at most ``MAX_STRING`` characters, lists ``MAX_ITEMS``
        items, and integers are at most ``MAX_INT`` in size. What was left out stays out.

        Raises:
            ToolError: Something does not fit; the text names each field, what it must be and
                what came.
        """
        bound: dict[str, Any] = {}
        for name, value in args.items():
            fit = self._fits.get(name)
            fitted = _MISFIT if fit is None else fit(value)
            if fitted is _MISFIT:
                raise ToolError(self._complaint(args))
            bound[name] = fitted
        for name in self.parameters["required"]:
            if name not in bound:
                raise ToolError(self._complaint(args))
        return bound

    def _complaint(self, args: Mapping[str, Any]) -> str:
        schemas, wrong = self.parameters["properties"], []
        for name, value in args.items():
            if name not in schemas:
                wrong.append(f"unknown argument {quoted(name)}{near(name, schemas)}")
            elif self._fits[name](value) is _MISFIT:
                wrong.append(_misfit(name, schemas[name], value))
        for name in self.parameters["required"]:
            if name not in args:
                wrong.append(f"missing argument {quoted(name)}, {_expected(schemas[name])}")
        return f"{self.name}: {listed(wrong, '; ')}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Tool:
        """Itself: a tool is a value, and forks copy whole environments."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Names its function where it can: pickle cannot, as ``@tool`` has taken its place."""
        fields = (self.name, self.description, self.parameters, self.writes, self.idempotent)
        home = (self.function.__module__, self.function.__qualname__)
        named = home[0] != "__main__" and _function(*home) is self.function
        return _rebuilt, (home if named else self.function, *fields)


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *, writes: bool = False, idempotent: bool = True
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    fn: Callable[..., Any] | None = None, /, *, writes: bool = False, idempotent: bool = True
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """:meth:`Tool.from_function` as a decorator, with or without arguments."""
    make = partial(Tool.from_function, writes=writes, idempotent=idempotent)
    return make if fn is None else make(fn)


def unknown_tool(name: str, names: Iterable[str]) -> str:
    """The reply to a call of a tool that is not there: bounded, with the tools that are."""
    names = list(names)
    return f"unknown tool {quoted(name)}{near(name, names)}; the tools are {', '.join(names)}"


def describe(tools: Sequence[Tool], format: str) -> str:
    """The tools, one a line, and how to call them, as the first observation says it.

    Raises:
        ValueError: There is no tool, or ``format`` is unknown.
    """
    if not tools:
        raise ValueError("tools must hold at least one tool, got none")
    parameters = tools[0].parameters
    args = {name: _sample(parameters["properties"][name]) for name in parameters["required"]}
    example = ToolCall(tools[0].name, args)
    line = _command_line if format == "command" else _line
    known = {tool.name: tool for tool in tools}
    return "\n".join(["Tools:", *map(line, tools), how_to_call(example, format, known)])


def _line(tool: Tool) -> str:
    """``- name(parameter: type = default): description (parameter: its description)``."""
    properties = tool.parameters["properties"]
    signature = ", ".join(
        f"{name}: {_type(part)}" + (f" = {_json(part['default'])}" if "default" in part else "")
        for name, part in properties.items()
    )
    return f"- {tool.name}({signature}): {tool.description}{_notes(tool)}"


def _command_line(tool: Tool) -> str:
    """``name PARAMETER [parameter=default]: description (parameter: its description)``."""
    return f"{usage(tool)}: {tool.description}{_notes(tool)}"


def _notes(tool: Tool) -> str:
    """`` (parameter: its description; ...)``, or nothing."""
    notes = "; ".join(
        f"{name}: {part['description'].rstrip('.')}"
        for name, part in tool.parameters["properties"].items()
        if "description" in part
    )
    return f" ({notes})" if notes else ""


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(_json, schema["enum"]))
    kind, nullable = _kind(schema)
    text = f"list of {schema['items']['type']}" if kind == "array" else kind
    return text + nullable * " | null"


def _sample(schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind, _ = _kind(schema)
    if kind == "array":
        return [_sample(schema["items"])]
    return {"string": "...", "integer": 1, "number": 1.5, "boolean": True}[kind]


_json = partial(json.dumps, ensure_ascii=False)
_KEYS = frozenset({"type", "enum", "items", "default", "description"})
_NAMES: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _kind(schema: Mapping[str, Any]) -> tuple[str, bool]:
    """The type in a schema, and whether null fits too."""
    match schema["type"]:
        case str(kind):
            return kind, False
        case [str(kind), "null"]:
            return kind, True
    raise TypeError(f"type must be a name or [name, 'null'], got {schema['type']!r}")


def _property(parameter: inspect.Parameter, line: str) -> dict[str, Any]:
    """The schema of one parameter.

    Raises:
        TypeError: It has none; the text goes on from "parameter x".
    """
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError("must be one that is passed by name")
    if parameter.annotation is parameter.empty:
        raise TypeError("has no annotation")
    if not line:
        raise TypeError("has no line under Args")
    schema = _schema(parameter.annotation) | {"description": line}
    if parameter.default is not parameter.empty:
        if _fit(schema)(parameter.default) is _MISFIT:
            raise TypeError(f"must be {_expected(schema)}, got the default {parameter.default!r}")
        schema["default"] = parameter.default
    elif _kind(schema)[1]:
        raise TypeError("may be None, so it must have a default")
    return schema


def _schema(hint: Any) -> dict[str, Any]:
    for kind, name in _NAMES.items():
        if hint is kind:
            return {"type": name}
    origin, inner = get_origin(hint), get_args(hint)
    if origin is list and inner in ((str,), (int,), (float,)):
        return {"type": "array", "items": {"type": _NAMES[inner[0]]}}
    if origin is Literal and {type(value) for value in inner} in ({str}, {int}):
        return {"type": _NAMES[type(inner[0])], "enum": list(inner)}
    if origin in (Union, UnionType) and len(inner) == 2 and inner[1] is NoneType:
        schema = _schema(inner[0])
        nullable = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
        return {**schema, "type": [schema["type"], "null"], **nullable}
    raise TypeError(
        f"is annotated {hint!r}; it must be str, int, float, bool, list[str], list[int], "
        "list[float], a Literal of str or int, or one of these | None"
    )


def _docstring(fn: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """What a Google docstring says of the function, and of each parameter."""
    text, *sections = re.split(r"^([A-Z]\w*):[ ]*$", inspect.getdoc(fn) or "", flags=re.MULTILINE)
    bodies = dict(zip(sections[::2], sections[1::2], strict=True))
    lines: dict[str, str] = {}
    name = ""
    for line in textwrap.dedent(bodies.get("Args", "").strip("\n")).splitlines():
        entry = re.match(r"(\w+)(?: \([^)]*\))?:(.*)", line)
        if entry:
            name, lines[entry[1]] = entry[1], entry[2].strip()
        elif name:
            lines[name] = f"{lines[name]} {line.strip()}".strip()
    return " ".join(text.split()), lines


_MISFIT: Any = object()


def _string(value: Any) -> Any:
    return value if type(value) is str and len(value) <= MAX_STRING else _MISFIT


def _integer(value: Any) -> Any:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and -MAX_INT <= value <= MAX_INT else _MISFIT


def _number(value: Any) -> Any:
    if type(value) is int and -MAX_INT <= value <= MAX_INT:
        return float(value)
    return value if type(value) is float and math.isfinite(value) else _MISFIT


def _boolean(value: Any) -> Any:
    return value if type(value) is bool else _MISFIT


_SCALARS = {"string": _string, "integer": _integer, "number": _number, "boolean": _boolean}


def _fit(schema: Mapping[str, Any]) -> Callable[[Any], Any]:
    """A function that gives a value as the tool takes it, or ``_MISFIT``.

    Raises:
        KeyError, TypeError: ``schema`` is not one that a parameter may have.
    """
    if schema.keys() - _KEYS or schema.get("items", {}).keys() - {"type"}:
        raise TypeError(f"a schema has only {sorted(_KEYS)}, its items only a type")
    kind, nullable = _kind(schema)
    if nullable:
        present = _fit({**schema, "type": kind})
        return lambda value: None if value is None else present(value)
    if kind == "array":
        item = _SCALARS[schema["items"]["type"]]

        def fit_list(value: Any) -> Any:
            if type(value) is not list or len(value) > MAX_ITEMS:
                return _MISFIT
            fitted = [item(entry) for entry in value]
            return _MISFIT if any(entry is _MISFIT for entry in fitted) else fitted

        return fit_list
    scalar = _SCALARS[kind]
    if "enum" not in schema:
        return scalar

    def fit_option(value: Any) -> Any:
        fitted = scalar(value)
        return fitted if fitted in schema["enum"] else _MISFIT

    return fit_option


def _misfit(name: str, schema: Mapping[str, Any], value: Any) -> str:
    """Why ``value`` does not fit; of a list, why its first bad item does not."""
    if type(value) is list and len(value) > MAX_ITEMS:
        return f"{name} must have at most {MAX_ITEMS} items, got {len(value)}"
    if type(value) is str and len(value) > MAX_STRING:
        return f"{name} must have at most {MAX_STRING} characters, got {len(value)}"
    if type(value) is int and abs(value) > MAX_INT:
        return f"{name} must be at most {MAX_INT} in size, got {brief(value)}"
    if type(value) is list and "items" in schema:
        fit = _fit(schema["items"])
        index = next(i for i, entry in enumerate(value) if fit(entry) is _MISFIT)
        return _misfit(f"{name}[{index}]", schema["items"], value[index])
    hint = ""
    if type(value) is str and "enum" in schema:
        hint = near(value, [option for option in schema["enum"] if isinstance(option, str)])
    return f"{name} must be {_expected(schema)}, got {brief(value)}{hint}"


def _expected(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(_json, schema["enum"]))
    kind, nullable = _kind(schema)
    if kind == "array":
        text = f"a list of {schema['items']['type']}s"
    else:
        text = {
            "string": "a string",
            "integer": "an integer",
            "number": "a number",
            "boolean": "true or false",
        }[kind]
    return text + nullable * " or null"


def _function(module: str, name: str) -> Any:
    """What stands at the top of a module, without the ``@tool`` around it."""
    found = getattr(import_module(module), name, None)
    return found.function if isinstance(found, Tool) else found


def _rebuilt(
    function: Callable[..., Any] | tuple[str, str],
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    writes: bool,
    idempotent: bool,
) -> Tool:
    """A tool from its pickle."""
    fn = _function(*function) if isinstance(function, tuple) else function
    return Tool(name, description, parameters, fn, writes=writes, idempotent=idempotent)
