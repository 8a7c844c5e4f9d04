"""What an action is made of: calls, and the JSON values in them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headway.envs.wording import whole

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


class Broken(Exception):
    """JSON that cannot be read, and where."""

    def __init__(self, why: str, text: str, at: int) -> None:
        around = text[max(0, at - 20) : at + 20]
        super().__init__(f"not valid JSON at character {at}, near {around!r}: {why}")


BLANK = r"[ \t\n\r]*+"
STRING = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'  # line breaks too: agents forget to escape them
_BRACKET = re.compile(rf"{STRING}|[{{}}\[\]]", re.DOTALL)
STEPS = {"{": 1, "[": 1, "}": -1, "]": -1}


def decode(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at ``start``, and where it ends.

    Raises:
        Broken: There is none, or it is beyond the limits of this module.
    """
    if _is_deep(text, start):
        raise Broken(f"nested more than {MAX_DEPTH} levels deep", text, start)
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise Broken(error.msg, text, error.pos) from None
    except ValueError as error:
        raise Broken(str(error), text, start) from None
    plain = text.isascii() and "\\u" not in text
    return value if plain else _cleaned(value), end


def _is_deep(text: str, start: int) -> bool:
    if text.count("{", start) + text.count("[", start) <= MAX_DEPTH:
        return False  # as nearly always: this costs nothing
    depth = 0
    for token in _BRACKET.finditer(text, start):
        depth += STEPS.get(token[0], 0)
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
