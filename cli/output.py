"""What the command line prints: tables, progress bars, JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

Told = Callable[[str, int, int], None]
"""``told(what, done, of)`` moves a progress bar."""


BRIEF = 24
"""Characters of a value in a table of differences."""


def screen() -> Console:
    return _Console(highlight=False)


class _Console(Console):
    """Leaves a closed pipe to :func:`main`, which knows the exit status."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def columns(*names: str) -> Table:
    """An empty table."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in names:
        table.add_column(column)
    return table


@contextmanager
def bars() -> Iterator[Told]:
    """Progress bars on stderr, one for each thing that is told of; none where nobody looks."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=not console.is_terminal,
    ) as progress:
        bars: dict[str, TaskID] = {}

        def told(what: str, done: int, of: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what)
            progress.update(bars[what], completed=done, total=of)

        yield told


class Counter:
    """``counter(done, figures)`` moves one bar, with figures beside it.

    Attributes:
        done: What it was told last.
    """

    def __init__(self, progress: Progress, of: int, what: str) -> None:
        self._progress, self._of = progress, of
        self._task = progress.add_task(what, total=of, figures="")
        self.done = 0

    def __call__(self, done: int, figures: Mapping[str, float | None]) -> None:
        self.done = done
        shown = (f"{n} {figure(v, '.3g')}" for n, v in figures.items() if v is not None)
        text = " ".join(shown)
        self._progress.update(self._task, completed=min(done, self._of), figures=text)


@contextmanager
def counter(of: int, what: str) -> Iterator[Counter]:
    """One bar on stderr; nothing is drawn where nobody looks."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} {task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=not console.is_terminal,
    ) as progress:
        yield Counter(progress, of, what)


def print_json(value: Mapping[str, Any]) -> None:
    print(json.dumps(_plain(value), allow_nan=False))


def _plain(value: Any) -> Any:
    """``value`` as JSON has it: what was not measured is null, not NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def amount(value: float) -> str:
    return figure(round(value, 9) + 0.0, ".3f")  # what rounding left of 0 has no sign


def figure(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)


def shown(text: str) -> str:
    """A text of a file as a terminal may have it: what would move its cursor is written out."""
    return text if text.isprintable() else repr(text)


def brief(value: Any, most: int = BRIEF) -> str:
    """A value of any size and content in a cell of a table."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most and text.isprintable() else f"{text[:most]!r}..."
