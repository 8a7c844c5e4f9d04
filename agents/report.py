"""The report of training runs: how they learnt, what went wrong, and episodes turn by turn.

One page that needs no network. Every value comes from the folders of the runs, and everything that
is left out is named on the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from statistics import fmean

from headway.agents.page import Axis, Line, around, broken, chart, fill, plain, short
from headway.agents.runs import (
    AXES,
    POINTS,
    SMOOTH,
    Arm,
    Point,
    Run,
    arms,
    differing,
    half_width,
    mean_curve,
    number_in,
    read,
    table_in,
    thinned,
)
from headway.agents.viewer import TEXT, options, pick, sections
from headway.envs.wording import cut

ALARMS = 100
"""Alarms on a page."""

COLOURS = 8
"""Looks of arms; the next arm looks like the first."""

DETAILS = (
    ("kl", "divergence, nats a token"),
    ("norm", "length of the gradient"),
    ("moved", "length of the update"),
    ("rate", "learning rate"),
    ("entropy", "entropy, nats a token"),
    ("turns", "turns an episode"),
    ("refused", "share of calls refused"),
    ("cut", "share of turns cut"),
    ("silent", "groups without a signal"),
    ("unscored", "episodes not measured"),
    ("gap", "log-probability, sampled against recomputed"),
)
"""Keys of a log line that get a small chart each, and what they are called."""

BY_CHANNEL = (
    ("returns", "return of"),
    ("share", "share of the advantages:"),
    ("variance", "variance without a success:"),
    ("length", "correlation with length:"),
)
"""The same for keys whose values are tables with a number for each channel."""


def write(folders: Sequence[str | Path], file: str | Path) -> None:
    """Writes the report of one or several runs.

    Runs whose configurations differ in the seed alone are drawn as one arm, with the mean and its
    95 % interval.

    Args:
        folders: Of the runs, as the trainer wrote them.
        file: The page; what was there is replaced.

    Raises:
        ValueError: There is no folder, or one does not hold a run.
        OSError: Something cannot be read or written.
        ImportError: Several seeds are given and scipy is missing.
    """
    apart = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    if not apart:
        raise ValueError("folders must name at least one run, got none")
    Path(file).write_text(page([read(folder) for folder in apart]), encoding="utf-8")


def page(runs: Sequence[Run]) -> str:
    """The report of runs as one HTML file without anything from outside."""
    compared = arms(runs)
    shown, left = pick(compared)
    return fill(
        "report.html",
        title=plain(", ".join(dict.fromkeys(run.config.get("env", "?") for run in runs))),
        version=plain(version("headway")),
        notes=_items([*_notes(compared), *left]),
        arms="\n".join(map(_card, compared)),
        config=_config(compared),
        legend="\n".join(map(_legend, compared)),
        curves=_curves(compared),
        details=_details(compared),
        spent=_spent(compared),
        alarms=_alarms(compared),
        options=options(shown),
        episodes=sections(shown),
        points=str(POINTS),
        smooth=str(SMOOTH),
    )


def _items(texts: Sequence[str]) -> str:
    return "\n".join(f"<li>{plain(text)}</li>" for text in texts)


def _notes(compared: Sequence[Arm]) -> list[str]:
    notes = []
    for arm in compared:
        for run in arm.runs:
            notes += [f"{run.name}: {note}" for note in run.notes]
            if not run.rows:
                notes.append(f"{run.name}: no update is logged yet")
            elif run.updates > POINTS:
                notes.append(
                    f"{run.name}: {run.updates} updates, averaged to {POINTS} points a line"
                )
    return notes


# What was run.


def _swatch(arm: Arm) -> str:
    return (
        f'<svg class="swatch" viewBox="0 0 28 8"><path class="line arm-{arm.number % COLOURS}" '
        'd="M0 4H28"/></svg>'
    )


def _legend(arm: Arm) -> str:
    return (
        f'<li><label><input type="checkbox" checked data-arm="n{arm.number}">'
        f"{_swatch(arm)}{broken(arm.name)}</label></li>"
    )


def _card(arm: Arm) -> str:
    """An arm in numbers."""
    ends = [run.rows[-1] for run in arm.runs if run.rows]
    facts = {
        "runs" if len(arm.runs) > 1 else "run": ", ".join(run.name for run in arm.runs),
        "seed" if len(arm.runs) == 1 else "seeds": ", ".join(
            run.config.get("seed", "?") for run in arm.runs
        ),
        "updates": _span([float(run.updates) for run in arm.runs]),
        "tokens": _span([row["tokens"] for row in ends]),
        "time": " to ".join(dict.fromkeys(map(duration, _ends([row["seconds"] for row in ends])))),
        "held-out success": _last(arm, "success"),
        "held-out progress": _last(arm, "progress"),
        "steps taken back": _total(arm, "rolled_back"),
        "episodes not measured": _total(arm, "unscored"),
        "alarms": str(sum(len(texts) for _, _, texts in _alarmed(arm))),
    }
    pairs = "".join(
        f"<div><dt>{name}</dt><dd>{broken(said) or 'nothing'}</dd></div>"
        for name, said in facts.items()
    )
    return f'<li class="card"><h3>{_swatch(arm)}{broken(arm.name)}</h3><dl>{pairs}</dl></li>'


def _ends(values: Sequence[float]) -> list[float]:
    return [min(values), max(values)] if values else []


def _span(values: Sequence[float]) -> str:
    """The least and the largest, or the one that all are."""
    return " to ".join(dict.fromkeys(short(value) for value in _ends(values)))


def _total(arm: Arm, key: str) -> str:
    found = [number_in(row, key) for run in arm.runs for row in run.rows]
    known = [value for value in found if value is not None]
    return short(sum(known)) if known else "not measured"


def _last(arm: Arm, key: str) -> str:
    """The last measurement of an arm: of one run as it was, of several their mean.

    That is the one at the end of a run; of a run that goes on, the last evaluation.
    """
    found = []
    for run in arm.runs:
        known = [
            table_in(row, name)
            for name in ("evaluation", "test")
            for row in run.rows
            if number_in(row, name, key) is not None
        ]
        found += known[-1:]
    if not found:
        return "not measured"
    values = [float(one[key]) for one in found]
    mean = fmean(values)
    if len(found) < len(arm.runs):
        return f"{mean:.1%} ({len(found)} of {len(arm.runs)} runs were evaluated)"
    if len(found) > 1:
        half = half_width(values)
        return f"{mean:.1%} ({max(0.0, mean - half):.1%} to {min(1.0, mean + half):.1%})"
    low, high = (number_in(found[0], end) for end in ("low", "high"))
    if key == "success" and low is not None and high is not None:
        return f"{mean:.1%} ({low:.1%} to {high:.1%})"
    return f"{mean:.1%}"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"


def _config(compared: Sequence[Arm]) -> str:
    """What all arms have in common; the rest is in their names."""
    first = compared[0].runs[0].config
    apart = differing([arm.runs[0] for arm in compared])
    pairs = [
        f"<div><dt>{broken(key)}</dt><dd>{broken(value)}</dd></div>"
        for key, value in first.items()
        if key != "seed" and key not in apart
    ]
    return "\n".join(pairs)


# Curves.


def _horizontal(compared: Sequence[Arm], axis: str) -> Axis:
    """The axis that all charts share."""
    rows = (row for arm in compared for run in arm.runs for row in run.rows)
    last = max((row[axis] for row in rows), default=0.0) or 1.0
    if axis == "seconds" and last >= 600.0:
        unit, name = (60.0, "minutes") if last < 6000.0 else (3600.0, "hours")
        return Axis(f"{name} of training", 0.0, last, unit=unit)
    return Axis(AXES[axis], 0.0, last)


def _figure(
    compared: Sequence[Arm], title: str, draw: Callable[[Arm, str], list[Line]], y: Axis | None
) -> str:
    """A chart for each horizontal axis, of which one is shown; empty where nothing was measured.

    Args:
        compared: All arms.
        title: Of the figure.
        draw: The lines of an arm against a key of ``AXES``.
        y: The vertical axis; None for one that holds what was measured.
    """
    charts = ""
    for axis in AXES:
        x = _horizontal(compared, axis)
        lines = [line for arm in compared for line in draw(arm, axis)]
        values = [value for line in lines for _, value in (*line.points, *line.dots, *line.marks)]
        if values:
            about = f"{title} against {x.name}"
            charts += chart(lines, x, y or around("", values), about, f"by-{axis}")
    return charts and f'<figure class="card"><h3>{plain(title)}</h3>{charts}</figure>'


def _curves(compared: Sequence[Arm]) -> str:
    figures = []
    for key in ("success", "progress"):
        y = Axis(key, 0.0, 1.0)
        found = _figure(compared, f"{key}, held out", partial(_held_out, key), y)
        figures.append(found or _empty(f"{key}, held out", "No evaluation is logged."))
    for key in ("success", "progress"):
        y = Axis(key, 0.0, 1.0)
        found = _figure(compared, f"{key} in training", partial(_training, key), y)
        figures.append(found or _empty(f"{key} in training", "No update is logged."))
    return "\n".join(figures)


def _empty(title: str, why: str) -> str:
    return f'<figure class="card"><h3>{title}</h3><p class="soft">{why}</p></figure>'


def _training(key: str, arm: Arm, axis: str) -> list[Line]:
    lines = _lines(arm, arm.curves(axis, key, smooth=True))
    if len(arm.runs) > 1:  # the points of several runs would hide the lines
        return lines
    return [Line([], f"faint {_look(arm)}", thinned(arm.runs[0].series(axis, key), POINTS)), *lines]


def _held_out(key: str, arm: Arm, axis: str) -> list[Line]:
    curves = arm.curves(axis, "evaluation", key)
    dots = [dot for run in arm.runs for dot in run.series(axis, "evaluation", key)]
    whiskers = []
    if len(arm.runs) == 1 and key == "success":
        lows, highs = (arm.runs[0].series(axis, "evaluation", end) for end in ("low", "high"))
        whiskers = [(x, low, high) for (x, low), (_, high) in zip(lows, highs, strict=False)]
    return [*_lines(arm, curves), Line([], _look(arm), dots, whiskers=whiskers)]


def _lines(arm: Arm, curves: Sequence[Sequence[Point]], *, band: bool = True) -> list[Line]:
    """The mean over the runs of an arm with its interval, and each run where others have ended."""
    points, half = mean_curve(curves)
    area = [(x, max(0.0, y - h), min(1.0, y + h)) for (x, y), h in zip(points, half, strict=False)]
    end = points[-1][0] if points else -math.inf
    tails = [[point for point in curve if point[0] >= end] for curve in curves]
    return [
        *(Line(tail, f"tail {_look(arm)}") for tail in tails if len(tail) > 1),
        Line(points, _look(arm), band=area if band else ()),
    ]


def _look(arm: Arm) -> str:
    """Classes of an arm's lines."""
    return f"arm-{arm.number % COLOURS} n{arm.number}"


def _details(compared: Sequence[Arm]) -> str:
    rows = [row for arm in compared for run in arm.runs for row in run.rows]
    wanted: list[tuple[tuple[str, ...], str]] = [((key,), title) for key, title in DETAILS]
    for key, title in BY_CHANNEL:
        channels = dict.fromkeys(name for row in rows for name in table_in(row, key))
        wanted += [((key, name), f"{title} {cut(name, 60)}") for name in channels]
    figures, missing = [], []
    for path, title in wanted:
        figures.append(_figure(compared, title, partial(_detail, path), None))
        missing += [] if figures[-1] else [title]
    if missing:
        figures.append(f'<p class="soft missing">Not measured: {plain("; ".join(missing))}.</p>')
    return "\n".join(filter(None, figures))


def _detail(path: tuple[str, ...], arm: Arm, axis: str) -> list[Line]:
    marks = []
    for row in (row for run in arm.runs for row in run.rows):
        rate = number_in(row, "rate")
        if path == ("rate",) and number_in(row, "rolled_back") and rate is not None:
            marks.append((row[axis], rate))
    lines = _lines(arm, arm.curves(axis, *path), band=False)
    return [*lines, Line([], _look(arm), marks=marks)]


# What was spent, and what went wrong.


def _spent(compared: Sequence[Arm]) -> str:
    """What tokens and seconds went into, as shares of all."""
    figures = []
    for kind in AXES:
        sums = [_sums(arm, kind) for arm in compared]
        kinds = list(dict.fromkeys(name for one in sums for name in one))
        keys = "".join(
            f'<li><i class="kind-{n % COLOURS}"></i>{broken(name)}</li>'
            for n, name in enumerate(kinds)
        )
        stacks = "".join(
            _stack(arm, kind, [one.get(name, 0.0) for name in kinds], kinds)
            for arm, one in zip(compared, sums, strict=True)
            if sum(one.values()) > 0.0
        )
        if stacks:
            figures.append(
                f'<figure class="card"><h3>{kind}</h3><ul class="kinds">{keys}</ul>'
                f'<ul class="stacks">{stacks}</ul></figure>'
            )
    return "\n".join(figures) or '<p class="soft">No ledger is logged.</p>'


def _sums(arm: Arm, kind: str) -> dict[str, float]:
    """What the runs of an arm have spent so far, together."""
    sums: dict[str, float] = {}
    for run in arm.runs:
        ledgers = [table for row in run.rows if (table := table_in(row, "ledger", kind))]
        for name in ledgers[-1] if ledgers else ():
            sums[name] = sums.get(name, 0.0) + max(0.0, number_in(ledgers[-1], name) or 0.0)
    return sums


def _stack(arm: Arm, kind: str, amounts: Sequence[float], kinds: Sequence[str]) -> str:
    total = sum(amounts)
    parts = "".join(
        f'<i class="kind-{n % COLOURS}" style="width:{amount / total:.2%}"></i>'
        for n, amount in enumerate(amounts)
    )
    shares = ", ".join(
        f"{name} {amount / total:.1%}"
        for name, amount in zip(kinds, amounts, strict=True)
        if amount
    )
    return (
        f"<li><span>{_swatch(arm)}{broken(arm.name)}</span>"
        f"<b>{duration(total) if kind == 'seconds' else short(total)}</b>"
        f'<div class="stack">{parts}</div><p class="soft">{broken(shares)}</p></li>'
    )


def _alarmed(arm: Arm) -> Iterator[tuple[Run, int, list[str]]]:
    """The updates with an alarm, and what it said."""
    for run in arm.runs:
        for row in run.rows:
            found = row.get("alarms")
            if isinstance(found, list) and found:
                yield run, row["update"], [str(text) for text in found]


def _alarms(compared: Sequence[Arm]) -> str:
    """Alarms by arm and text, each with the runs and updates that raised it."""
    raised: dict[tuple[str, str], dict[str, list[int]]] = {}
    for arm in compared:
        for run, update, texts in _alarmed(arm):
            for text in texts:
                raised.setdefault((arm.name, text), {}).setdefault(run.name, []).append(update)
    if not raised:
        return '<p class="soft">No update raised an alarm.</p>'
    items = []
    for (arm_name, text), found in list(raised.items())[:ALARMS]:
        where = "; ".join(f"{run}, {_updates(updates)}" for run, updates in found.items())
        items.append(
            f"<li><b>{broken(arm_name)}</b> {plain(cut(text, TEXT))}"
            f'<p class="soft">{broken(cut(where, TEXT))}</p></li>'
        )
    if len(raised) > ALARMS:
        items.append(f'<li class="soft">and {len(raised) - ALARMS} more</li>')
    return f'<ul class="alarms">{"".join(items)}</ul>'


def _updates(updates: Sequence[int]) -> str:
    """``updates 3 to 5, 9``, at most five stretches of them."""
    stretches = []
    for _, group in groupby(enumerate(updates), lambda pair: pair[1] - pair[0]):
        found = [update for _, update in group]
        stretches.append(str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}")
    said = ", ".join(stretches[:5])
    if len(stretches) > 5:
        said += f" and {len(updates)} in all"
    return f"update{'s' if len(updates) > 1 else ''} {said}"
