"""Two policies that learn the same task side by side, drawn while they do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from headway.agents.log import LOG, lines
from headway.agents.workers import mapped
from headway.bench.arms import WORLDS
from headway.bench.learning import Job, Run, folder_of, run

SHOWN = ("outcome", "turn")
"""Arms that are compared."""

WIDTH = 36
"""Characters of a curve."""

_BARS = " ▁▂▃▄▅▆▇█"


def race(out: Path, console: Console, *, seed: int, tokens: int, jobs: int) -> list[Run]:
    """Trains each arm of ``SHOWN`` in the depot and draws how far it is.

    Args:
        out: Folder of the logs.
        console: Where to draw; one that is no terminal gets the last picture only.
        seed: Of tasks and sampling.
        tokens: Budget of each.
        jobs: Processes.
    """
    start = out / "start-depot"
    if not start.exists():
        WORLDS["depot"].start(start)
    asked = [Job("depot", arm, seed, 1.0, tokens) for arm in SHOWN]
    draw = partial(picture, out, asked)
    with Live(get_renderable=draw, console=console, refresh_per_second=2):
        with mapped(partial(run, out), asked, jobs) as runs:
            return list(runs)


def picture(out: Path, jobs: Sequence[Job]) -> Table:
    """The curves up to now."""
    table = Table(title="Success of training episodes against generated tokens", box=None)
    for name in ("credit", "", "success", "progress", "tokens", "seconds"):
        table.add_column(name, justify="left" if name in ("credit", "") else "right")
    for job in jobs:
        rows = _rows(folder_of(out, job) / LOG)
        last: dict[str, Any] = rows[-1] if rows else {"success": 0.0, "progress": 0.0}
        table.add_row(
            job.arm,
            curve([(row["tokens"], row["success"]) for row in rows], job.tokens),
            f"{last['success']:.0%}",
            f"{last['progress']:.2f}",
            f"{last.get('tokens', 0):,}",
            f"{last.get('seconds', 0):.0f}",
        )
    return table


def curve(points: Sequence[tuple[int, float]], most: int) -> str:
    """Values in [0, 1] at places from 0 to ``most``, as a line of blocks; blank where none is."""
    columns: list[list[float]] = [[] for _ in range(WIDTH)]
    for at, value in points:
        columns[min(WIDTH - 1, at * WIDTH // most)].append(value)
    marks, known = [], -1
    for number, found in enumerate(columns):
        if found:
            known = number
    level = 0.0
    for number, found in enumerate(columns):
        level = sum(found) / len(found) if found else level
        marks.append(" " if number > known else _BARS[max(1, round(level * (len(_BARS) - 1)))])
    return "".join(marks)


def _rows(file: Path) -> list[dict[str, Any]]:
    """What an update has written so far."""
    if not file.exists():
        return []
    return [row for _, row in lines(file) if row.get("success") is not None]
