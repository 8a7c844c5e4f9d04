"""Training runs as they were logged: what each was, how it learnt, and which belong together."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

import numpy as np

POINTS = 120
"""Points of a line; more are averaged to so many."""

SMOOTH = 25
"""Training curves are running means over the 25th part of the updates."""

AXES = {"tokens": "generated tokens", "seconds": "seconds of training"}
"""What curves are drawn against, and what it is called."""

OFF = (None, "", "null", "false", "[]", "{}")
"""Settings that say that there is nothing."""

Point = tuple[float, float]
T = TypeVar("T")


@dataclass(frozen=True)
class Turn:
    """One turn as it is shown; None is what was not measured."""

    action: str
    observation: str
    paid: Mapping[str, float | None]
    ok: tuple[str, ...]
    advantage: float | None
    cut: bool


@dataclass(frozen=True)
class Episode:
    """One episode as it is shown.

    Attributes:
        update: In which it was played.
        task_id: Of its task.
        success: Whether it ended well.
        ended: How.
        prompt: The first observation.
        progress: At reset and after each turn; None where it was not measured.
        turns: In order.
    """

    update: int
    task_id: str
    success: bool
    ended: str
    prompt: str
    progress: tuple[float | None, ...]
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Run:
    """What the folder of one run holds.

    Attributes:
        name: Of the folder.
        config: Flat, each value as JSON.
        rows: The lines of the log, one an update, in order.
        episodes: Those that were kept.
        notes: What could not be read.
    """

    name: str
    config: Mapping[str, str]
    rows: tuple[Mapping[str, Any], ...]
    episodes: tuple[Episode, ...]
    notes: tuple[str, ...]

    @property
    def updates(self) -> int:
        """How many updates are logged; the last line of a finished run is an evaluation alone."""
        return sum(
            bool(set(row) - {"update", *AXES, "evaluation", "test", "alarms"}) for row in self.rows
        )

    def series(self, axis: str, *path: str) -> list[Point]:
        """What was measured under a key, against tokens or seconds.

        A line of the log is written after its update, and what it says of an evaluation was
        measured before: that stands where the line before it stands.
        """
        points, before = [], 0.0
        for row in self.rows:
            value = number_in(row, *path)
            early = path[0] == "evaluation" and (before or row["update"] == 0)
            if value is not None:
                points.append((before if early else row[axis], value))
            before = row[axis]
        return points


@dataclass(frozen=True)
class Arm:
    """Runs that differ in their seed alone.

    Attributes:
        name: What sets it apart from the other arms.
        number: Its place, from 0.
        runs: One a seed.
    """

    name: str
    number: int
    runs: tuple[Run, ...]

    def curves(self, axis: str, *path: str, smooth: bool = False) -> list[list[Point]]:
        """What was measured under a key, one curve a run.

        Args:
            axis: A key of ``AXES``.
            *path: As in :meth:`Run.series`.
            smooth: Whether they are running means.
        """
        found = [run.series(axis, *path) for run in self.runs]
        if smooth:
            found = [smoothed(points, max(1, len(points) // SMOOTH)) for points in found]
        return [thinned(points, POINTS) for points in found]


# Reading.


def read(folder: Path) -> Run:
    """A run from its folder.

    Lines that cannot be read, such as the last one of a run that was killed, are left out and
    counted in the notes.

    Raises:
        ValueError: It is not the folder of a run.
    """
    for name in ("config.json", "log.jsonl"):
        if not (folder / name).is_file():
            raise ValueError(f"folders must each hold a training run, but {folder} has no {name}")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{folder / 'config.json'} must be JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{folder / 'config.json'} must be an object, got {config!r:.100}")
    notes: list[str] = []
    rows = {row["update"]: row for row in _lines(folder / "log.jsonl", _row, notes)}
    episodes: list[Episode] = []
    if (folder / "episodes.jsonl").is_file():
        episodes = list(_lines(folder / "episodes.jsonl", _episode, notes))
    else:
        notes.append("episodes.jsonl is missing")
    return Run(
        name=folder.name,
        config=dict(_flat("", config)),
        rows=tuple(rows[update] for update in sorted(rows)),
        episodes=tuple(episodes),
        notes=tuple(notes),
    )


NONSENSE = (ValueError, TypeError, KeyError, OverflowError, AttributeError, RecursionError)
"""What reading a line raises that is not what a run writes."""


def _lines(file: Path, parse: Callable[[Any], T], notes: list[str]) -> Iterator[T]:
    """What the lines of a file say; those that say nothing are counted in the notes."""
    unreadable = []
    with file.open(encoding="utf-8", errors="replace", newline="\n") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield parse(json.loads(line))
            except NONSENSE:
                unreadable.append(number)
    if unreadable:
        where = ", ".join(map(str, unreadable[:5])) + (", ..." if len(unreadable) > 5 else "")
        lines = "1 line" if len(unreadable) == 1 else f"{len(unreadable)} lines"
        notes.append(f"{lines} of {file.name} could not be read and were left out ({where})")


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)


def _count(found: Any) -> int:
    count = int(found)
    if not 0 <= count < 2**53:
        raise ValueError(f"update must be from 0 to 2**53, got {found!r:.50}")
    return count


def _row(found: Any) -> dict[str, Any]:
    row = {**found, "update": _count(found["update"])}
    for axis in AXES:
        row[axis] = _number(found[axis])
        if row[axis] is None or row[axis] < 0.0:
            raise ValueError(f"{axis} must be a number of at least 0, got {found[axis]!r}")
    return row


def _episode(found: Any) -> Episode:
    turns = tuple(
        Turn(
            action=str(turn["action"]),
            observation=str(turn["observation"]),
            paid={
                "outcome": _number(turn["base"]),
                **{str(name): _number(amount) for name, amount in turn["channels"].items()},
            },
            ok=tuple(map(str, turn["ok"])),
            advantage=_number(turn["advantage"]),
            cut=bool(turn["cut"]),
        )
        for turn in found["turns"]
    )
    progress = tuple(map(_number, found["progress"]))
    if len(progress) != len(turns) + 1:
        raise ValueError(f"progress must have {len(turns) + 1} values, got {len(progress)}")
    return Episode(
        update=_count(found["update"]),
        task_id=str(found["task_id"]),
        success=bool(found["success"]),
        ended=str(found["ended"]),
        prompt=str(found["prompt"]),
        progress=progress,
        turns=turns,
    )


def number_in(row: Mapping[str, Any], *path: str) -> float | None:
    """The number under keys of keys; None where there is none."""
    return _number(table_in(row, *path[:-1]).get(path[-1]))


def table_in(row: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The table under keys of keys; an empty one where there is none."""
    for key in path:
        found = row.get(key)
        row = found if isinstance(found, dict) else {}
    return row


def _number(value: Any) -> float | None:
    """A finite number; None for everything else, which was not measured."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        # What is far beyond any measure would leave no room on an axis for what is not.
        return float(value) if abs(value) < 1e100 else None
    except OverflowError:  # an integer of hundreds of digits
        return None


# Arms and curves.


def arms(runs: Sequence[Run]) -> list[Arm]:
    """Runs by configuration, the seed left out; a second run of the same seed is an arm apart."""
    grouped: dict[tuple[Any, ...], list[Run]] = {}
    seen: dict[tuple[Any, ...], int] = {}
    for run in runs:
        settings = tuple(sorted((k, v) for k, v in run.config.items() if k != "seed"))
        key = (settings, run.config.get("seed"))
        seen[key] = seen.get(key, 0) + 1
        grouped.setdefault((settings, seen[key]), []).append(run)
    firsts = [found[0] for found in grouped.values()]
    apart = differing(firsts)
    # What is off in an arm need not be said, unless that leaves two arms without a difference.
    brief = [_said(run, [key for key in apart if run.config.get(key) not in OFF]) for run in firsts]
    full = [_said(run, apart) for run in firsts]
    told = brief if len(set(brief)) == len(set(full)) and all(brief) else full
    named = []
    for number, ((_, copy), found) in enumerate(grouped.items()):
        again = f"run {copy} of this seed" if copy > 1 else ""
        name = ", ".join(filter(None, (told[number], again)))
        alone = found[0].name if len(found) == 1 else f"{len(found)} seeds"
        named.append(Arm(name or alone, number, tuple(found)))
    return named


def _said(run: Run, keys: Sequence[str]) -> str:
    """Settings of a run as its arm's name."""
    return ", ".join(f"{key} {run.config.get(key, 'absent') or 'empty'}" for key in keys)


def differing(runs: Sequence[Run]) -> list[str]:
    """Keys, the seed left out, whose values differ between configurations."""
    keys = dict.fromkeys(key for run in runs for key in run.config if key != "seed")
    return [key for key in keys if len({run.config.get(key) for run in runs}) > 1]


def smoothed(points: Sequence[Point], window: int) -> list[Point]:
    """Running mean of y, centred; at both ends over as many as there are on the shorter side.

    Args:
        points: (x, y) in order.
        window: Points in the mean, at least 1; an even number counts as the next odd one.
    """
    half, values = window // 2, [y for _, y in points]
    out = []
    for at, (x, _) in enumerate(points):
        side = min(half, at, len(points) - 1 - at)
        out.append((x, fmean(values[at - side : at + side + 1])))
    return out


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many points, each the mean of neighbours."""
    parts = min(most, len(points))
    edges = [len(points) * n // parts for n in range(parts + 1)] if parts else []
    return [
        (fmean(x for x, _ in points[a:b]), fmean(y for _, y in points[a:b]))
        for a, b in pairwise(edges)
    ]


def mean_curve(curves: Sequence[Sequence[Point]]) -> tuple[list[Point], list[float]]:
    """Mean of curves where all of them are, and half the width of its 95 % interval.

    Between its points a curve is taken as straight. The mean of one curve is itself, and has no
    interval; curves without a common range have no mean.

    Args:
        curves: Each (x, y) in the order of x.

    Returns:
        The mean, and a half width at each of its points, which are none for one curve.

    Raises:
        ImportError: There are several curves and scipy is missing.
    """
    if not all(curves) or not curves:
        return [], []
    if len(curves) == 1:
        return list(curves[0]), []
    low, high = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    grid = sorted({x for curve in curves for x, _ in curve if low <= x <= high})
    if len(grid) > POINTS:
        grid = np.linspace(low, high, POINTS).tolist()
    values = np.array([np.interp(grid, *np.transpose(curve)) for curve in curves])
    half = [half_width(column) for column in values.T.tolist()]
    return list(zip(grid, values.mean(0).tolist(), strict=True)), half


def half_width(values: Sequence[float]) -> float:
    """Half the 95 % interval of the mean of at least two independent values, by Student's t.

    Raises:
        ImportError: scipy is missing.
    """
    try:
        from scipy.special import stdtrit  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(
            'intervals over several seeds need scipy: pip install "headway[agents]"'
        ) from error
    return float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))
