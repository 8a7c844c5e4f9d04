"""What constructors and functions accept, and what they say when they do not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from importlib import import_module
from numbers import Integral, Real
from typing import Any, TypeVar

T = TypeVar("T")


def number(name: str, value: float, allowed: str) -> float:
    """``value`` as a float.

    Args:
        name: The parameter, for the message.
        value: What was passed.
        allowed: The interval as one writes it, for example ``"(0, 1]"``. NaN is in none.

    Raises:
        ValueError: ``value`` is no number in ``allowed``.
    """
    low, high = (float(end) for end in allowed[1:-1].split(","))
    if isinstance(value, Real) and not isinstance(value, bool):
        closed = (allowed[0] == "[" and value == low) or (allowed[-1] == "]" and value == high)
        if low < value < high or closed:
            return float(value)
    raise ValueError(f"{name} must be a number in {allowed}, got {value!r}")


def whole(name: str, value: int | None, least: int) -> int:
    """``value`` as an int of at least ``least``.

    Raises:
        ValueError: It is none.
    """
    if isinstance(value, Integral) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise ValueError(f"{name} must be an int of at least {least}, got {value!r}")


def one_of(name: str, value: Any, allowed: Iterable[T]) -> T:
    """``value`` if it is allowed, integers of other kinds as ``int``.

    Raises:
        ValueError: It is not; the message names the nearest that is.
    """
    names = list(allowed)
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    plain = int(value) if whole else value
    for item in names:
        if type(plain) is type(item) and plain == item:
            return item
    raise ValueError(f"{name} must be one of {names}, got {value!r}{nearest(value, names)}")


def nearest(value: object, names: Iterable[object]) -> str:
    """``; did you mean 'x'?``, or nothing where no name is near."""
    if not isinstance(value, str):
        return ""
    near = difflib.get_close_matches(value, [n for n in names if isinstance(n, str)], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def named(name: str, value: str, known: Mapping[str, T]) -> T:
    """What a registered name stands for.

    Args:
        name: The parameter, for the message.
        value: A key of ``known``, or ``"module:attribute"`` for one of your own, which must be
            callable.
        known: What is registered.

    Raises:
        ValueError: There is no such name, module or attribute.
    """
    if isinstance(value, str) and value in known:
        return known[value]
    if not isinstance(value, str) or ":" not in value:
        choice = f"one of {list(known)} or " if known else ""
        raise ValueError(
            f"{name} must be {choice}'module:attribute', got {value!r}{nearest(value, known)}"
        )
    found: T = find(name, value)
    if not callable(found):
        raise ValueError(f"{name} must name something that can be called, got {value!r}")
    return found


def find(name: str, value: str) -> Any:
    """What ``"module:attribute"`` names.

    Raises:
        ValueError: There is no such module or attribute.
    """
    module, _, attribute = value.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{name} must name something as 'module:attribute', got {value!r}: {error}"
        ) from error
