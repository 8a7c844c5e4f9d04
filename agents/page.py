"""What pages are made of: one file without anything from outside, safe text, bars, charts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

WIDTH, HEIGHT = 480, 300
"""Of a chart, in its own units."""

LEFT, RIGHT, TOP, BOTTOM = 60, 12, 12, 46
"""Its margins."""

_HIDDEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)


def fill(name: str, **parts: str) -> str:
    """A page from a template of this package and the parts that are put in as they stand.

    Args:
        name: File of the template, with ``$part`` where a part goes. The common style and script
            are ``$style`` and ``$script``.
        **parts: HTML.
    """
    folder = files(__package__)
    text = Template(folder.joinpath(name).read_text(encoding="utf-8"))
    style = folder.joinpath("page.css").read_text(encoding="utf-8")
    script = folder.joinpath("page.js").read_text(encoding="utf-8")
    return text.substitute(style=style, script=script, **parts)


def plain(text: str) -> str:
    r"""Text as HTML that shows all of it.

    What has no shape of its own, or would change how the rest reads (control characters, marks of
    direction, lone surrogates), is written as an escape such as ``\u202e``. Line ends and tabs
    stay, and so do the joiners that scripts and emoji need.
    """
    return escape(_HIDDEN.sub(_named, text))


def _named(found: re.Match[str]) -> str:
    code = ord(found[0])
    return (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )


def broken(name: str) -> str:
    """A name as HTML that may be broken where its words end."""
    return re.sub(r"([_/]|\.(?!\d))", r"\1<wbr>", plain(name))


def bars(name: str, values: Sequence[float | None], what: str = "") -> str:
    """A row of a timeline: bars on a common zero line, as high as the row's largest value.

    Args:
        name: What is measured.
        values: One a turn, at least one; None where nothing was measured, which shows no bar.
        what: A class of the row.
    """
    known = [value for value in values if value is not None]
    top, low = max(0.0, *known, 0.0), min(0.0, *known, 0.0)
    span = top - low or 1.0

    def bar(value: float | None) -> str:
        if value is None:
            return '<td title="not measured" class="unknown"></td>'
        bottom, height = (min(value, 0.0) - low) / span, abs(value) / span
        side = "below" if value < 0 else "above"
        style = f"bottom:{bottom:.1%};height:{height:.1%}"
        return f'<td title="{value:+.3f}"><i class="{side}" style="{style}"></i></td>'

    row = f"<th>{broken(name)}</th>{''.join(map(bar, values))}"
    return f'<tr class="bars {what}" style="--zero:{-low / span:.1%}">{row}</tr>'


def checked(name: str, holds: Sequence[bool]) -> str:
    """A row of a timeline: whether a check counts after each turn."""
    row = "".join(f'<td class="{"on" if on else "off"}"></td>' for on in holds)
    return f'<tr class="check"><th>{broken(name)}</th>{row}</tr>'


# Charts.


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        points: (x, y) in the order of x.
        look: Classes of the line.
        dots: (x, y) of single points.
        band: (x, low, high) of an area around it.
        whiskers: (x, low, high) of intervals at single points.
        marks: (x, y) of what happened on the way.
    """

    points: Sequence[tuple[float, float]]
    look: str
    dots: Sequence[tuple[float, float]] = ()
    band: Sequence[tuple[float, float, float]] = ()
    whiskers: Sequence[tuple[float, float, float]] = ()
    marks: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    Attributes:
        name: What it shows.
        low: Its first value.
        high: Its last, above the first.
        log: Whether equal lengths are equal factors; then the values are above 0.
        whole: Whether there is nothing between whole numbers.
        unit: What values are divided by where they are written.
    """

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False
    unit: float = 1.0

    def __call__(self, value: float) -> float:
        """Where a value lies, in [0, 1] if it is on the axis."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        """At most so many round values on it."""
        if self.log:
            first, last = math.ceil(_log(self.low)), math.floor(_log(self.high))
            every = max(1, math.ceil((last - first + 1) / most))
            return [10.0**power for power in range(first, last + 1, every)]
        low, high = self.low / self.unit, self.high / self.unit
        span = high - low
        size = 10.0 ** math.floor(math.log10(span / most))
        steps = [size, 2 * size, 2.5 * size, 5 * size, 10 * size, 20 * size]
        step = next(
            s for s in steps if span / s < most and (not self.whole or (s >= 1 and s % 1 == 0))
        )
        begin, end = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [n * step * self.unit for n in range(begin, end + 1)]

    def label(self, value: float) -> str:
        """A value as it is written."""
        return short(value / self.unit)


def _log(value: float) -> float:
    return round(math.log10(value), 9)


def around(name: str, values: Sequence[float], *, zero: bool = True) -> Axis:
    """An axis that holds all values.

    Args:
        name: What it shows.
        values: Finite, at least one. Where they are positive and span more than a factor of 100,
            the axis is logarithmic.
        zero: Whether a linear axis has to hold 0.
    """
    low, high = min(values), max(values)
    if low > 0.0 and high > 100.0 * low:
        return Axis(name, 10.0 ** math.floor(_log(low)), 10.0 ** math.ceil(_log(high)), log=True)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
        low = max(low, 0.0) if min(values) >= 0.0 else low
    room = 0.05 * (high - low)
    return Axis(name, low if low == 0.0 else low - room, high if high == 0.0 else high + room)


def chart(lines: Sequence[Line], x: Axis, y: Axis, about: str, look: str = "") -> str:
    """Lines as an SVG with axes.

    Args:
        lines: The later lie above the earlier.
        x: Axis to the right.
        y: Axis upwards.
        about: What it shows, for who cannot see it.
        look: More classes of the whole.
    """
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT

    def at(x_value: float, y_value: float) -> tuple[float, float]:
        return LEFT + x(x_value) * (right - LEFT), bottom - y(y_value) * (bottom - TOP)

    def place(x_value: float, y_value: float, between: str = " ") -> str:
        across, up = at(x_value, y_value)
        return f"{across:.1f}{between}{up:.1f}"

    parts = []
    for tick in y.ticks(6):
        _, up = at(x.low, tick)
        parts.append(f'<path class="grid" d="M{LEFT} {up:.1f}H{right}"/>')
        parts.append(f'<text class="y" x="{LEFT - 6}" y="{up + 5:.1f}">{y.label(tick)}</text>')
    for tick in x.ticks(8):
        across, _ = at(tick, y.low)
        # The last one would pass the edge if it were centred there.
        across = min(across, right - 4.5 * len(x.label(tick)) + RIGHT)
        parts.append(f'<text class="x" x="{across:.1f}" y="{bottom + 19}">{x.label(tick)}</text>')
    middle = (LEFT + right) / 2
    parts.append(f'<text class="x" x="{middle:.1f}" y="{HEIGHT - 6}">{plain(x.name)}</text>')
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text class="x" x="14" y="{middle}" transform="rotate(-90 14 {middle})">'
        f"{plain(y.name)}</text>"
    )
    for line in lines:
        if line.band:
            there = [place(a, high) for a, _, high in line.band]
            back = [place(a, low) for a, low, _ in reversed(line.band)]
            parts.append(f'<path class="band {line.look}" d="M{"L".join(there + back)}Z"/>')
    for line in lines:
        for a, low, high in line.whiskers:
            ends = f"M{place(a, low)}L{place(a, high)}"
            parts.append(f'<path class="whisker {line.look}" d="{ends}"/>')
        if line.points:
            points = " ".join(place(a, b, ",") for a, b in line.points)
            parts.append(f'<polyline class="line {line.look}" points="{points}"/>')
        if line.dots:
            spots = "".join(f"M{place(a, b)}h0" for a, b in line.dots)
            parts.append(f'<path class="dots {line.look}" d="{spots}"/>')
        if line.marks:
            spots = "".join(f"M{place(a, b)}m-6 -9h12l-6 9z" for a, b in line.marks)
            parts.append(f'<path class="marks {line.look}" d="{spots}"/>')
    return (
        f'<svg class="chart {look}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{plain(about)}">{"".join(parts)}</svg>'
    )


_SIZES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def short(value: float) -> str:
    """A number in at most seven characters or so."""
    for size, letter in _SIZES:
        if abs(value) >= size * 0.99999:
            return f"{value / size:.4g}{letter}"
    if value and abs(value) < 1e-3:
        digits, _, power = f"{value:.2e}".partition("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{value:.4g}"
