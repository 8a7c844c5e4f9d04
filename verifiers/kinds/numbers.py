"""When a number is the wanted one: as precisely as the wanted one was printed, and no less."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from headway.verifiers.kinds.text import read_number

MAX_DIGITS = 60
"""Whole numbers and decimals with more digits are no measurement and equal nothing."""

MAX_EXPONENT = 999
"""Numbers above ``10**999`` or below ``10**-999`` equal nothing."""


def same_number(gold: str | int | float | Decimal, got: Any) -> bool:
    """Whether ``got`` is ``gold`` within the tolerance of :func:`near`; never raises.

    NaN, infinities, booleans, texts that are not one number as a whole, and values beyond the
    caps above equal nothing, on either side.
    """
    try:
        return near(gold)(got)
    except ValueError:
        return False


def near(gold: str | int | float | Decimal) -> Callable[[Any], bool]:
    """The test of :func:`same_number` for one ``gold``.

    The distance must be strictly less than half a unit of the last decimal with which ``gold`` is
    printed: ``"12.50"`` is met between 12.495 and 12.505, both excluded. Without decimals it is
    less than 1e-9. A float was computed, not printed: to it the distance is less than 1e-12,
    or that share of its size, so that 0.3 is 0.1 + 0.2 but not 0.34.

    Raises:
        ValueError: ``gold`` is not a finite number within the caps.
    """
    value = _read(gold)
    if value is None:
        raise ValueError(
            f"a wanted number must be finite, of at most {MAX_DIGITS} digits, got {gold!r:.80}"
        )
    if isinstance(gold, float):
        reach = max(_NOISE, _EXACT.multiply(abs(value), _NOISE))
    else:
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)  # finite
        reach = Decimal((0, (5,), exponent - 1)) if exponent < 0 else _WHOLE
    low, high = _EXACT.subtract(value, reach), _EXACT.add(value, reach)

    def test(got: Any) -> bool:
        found = _read(got)
        return found is not None and low < found < high

    return test


def _read(value: Any) -> Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return read_number(value)
    if isinstance(value, float):
        return Decimal(float.__repr__(value)) if math.isfinite(value) else None
    if isinstance(value, int):
        return Decimal(value) if value.bit_length() <= 3 * MAX_DIGITS else None
    if isinstance(value, Decimal) and value.is_finite():
        small = len(value.as_tuple().digits) <= MAX_DIGITS and abs(value.adjusted()) <= MAX_EXPONENT
        return value if small else None
    return None


_NOISE = Decimal("1e-12")
_WHOLE = Decimal("1e-9")
_EXACT = Context(prec=3 * MAX_EXPONENT)
"""Wide enough that no sum of two numbers within the caps is rounded."""
