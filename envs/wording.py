"""How observations show text and values: whole, bounded, in their own characters."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any

SHOWN = 60
"""Characters of one string, or digits of one number, that a message repeats."""

LISTED = 5
"""Names or complaints that a message lists before it only counts them."""


def whole(text: str) -> str:
    """``text`` with surrogate pairs joined and halves replaced, so that it can be encoded."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def reply_text(value: Any) -> str:
    """A tool's result as an agent reads it: text as it is, bytes decoded, the rest as JSON.

    Raises:
        TypeError: ``value`` is not JSON.
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str):
        value = _ENCODER.encode(value)
    return whole(value)


def cut(text: str, limit: int) -> str:
    """``text``, or as much of its beginning as fits ``limit`` characters with a visible mark.

    Raises:
        ValueError: ``limit`` is negative.
    """
    if limit < 0:
        raise ValueError(f"limit must be at least 0, got {limit!r}")
    if len(text) <= limit:
        return text
    kept = limit - len(f"… [{len(text)} characters cut]")
    if kept < 0:  # no room for words
        return text[: limit - 1] + "…" if limit else ""
    return f"{text[:kept]}… [{len(text) - kept} characters cut]"


def brief(value: Any) -> str:
    """A JSON value by its type and, as far as it is short, itself."""
    match value:
        case None:
            return "null"
        case bool():
            return f"{json.dumps(value)} (boolean)"
        case str():
            return f"{quoted(value)} (string)"
        case int():
            return f"{value} (integer)" if abs(value) < 10**SHOWN else "a huge integer"
        case float():
            return f"{value!r} (number)"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "an object"
    return f"a {type(value).__name__}"


def quoted(*names: str) -> str:
    """Names as JSON strings."""
    return listed([json.dumps(cut(name, SHOWN), ensure_ascii=False) for name in names], ", ")


def listed(items: list[str], separator: str) -> str:
    """The first ``LISTED`` of ``items``, and how many more there are."""
    more = [f"{len(items) - LISTED} more"] if len(items) > LISTED else []
    return separator.join(items[:LISTED] + more)


def near(name: str, names: Iterable[str]) -> str:
    """`` (did you mean x?)``, or nothing when no name is near."""
    close = difflib.get_close_matches(name[:SHOWN], list(names), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
