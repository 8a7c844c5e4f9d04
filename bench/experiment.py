"""What experiments share: seeds that nobody chose, intervals, runs that are not run twice."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headway.arguments import one_of


def commit_of_tree() -> str:
    """The commit that is checked out, or the version of a package that is no checkout."""
    where = Path(__file__).resolve().parent.parent
    if (where / ".git").exists() and shutil.which("git"):
        command = ["git", "rev-parse", "HEAD"]
        found = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    return version("headway")


def seeds(count: int, purpose: str, commit: str) -> list[int]:
    """``count`` seeds drawn from the commit, so that nobody chose them."""
    digest = [hashlib.sha256(f"{commit}/{purpose}/{n}".encode()).digest() for n in range(count)]
    return [int.from_bytes(found[:4], "big") % 2**31 for found in digest]


def interval(values: Sequence[float], outside: float = 0.05) -> tuple[float, float]:
    """Interval of the mean of at least two independent values, by Student's t.

    That of a share may pass 0 or 1, where printed and drawn ones are cut.

    Args:
        values: One a seed.
        outside: Chance, in (0, 1), that the mean lies outside.
    """
    from scipy.stats import t  # type: ignore[import-untyped]

    quantile = t.ppf(1.0 - outside / 2.0, len(values) - 1)
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half


def holm(differences: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """Intervals of several mean differences, by which at most 5 % of true zeros are called another.

    An interval leaves 0 out where the test of Holm (1979) rejects it, which errs on any of them in
    at most one of twenty experiments. That all of them hold the true differences is less likely.

    The difference that stands out most gets the widest interval, of 1 - 0.05 / m, the next that of
    1 - 0.05 / (m - 1) and so on, as long as intervals leave 0 out; from the first on that holds 0
    all get the width of that.

    Args:
        differences: Per comparison one value a seed, at least two.

    Source: Holm (1979), with Student's t.
    """

    def size(name: str) -> float:
        values = differences[name]
        spread = statistics.stdev(values)
        mean = abs(statistics.fmean(values))
        return mean / spread if spread > 0.0 else math.inf if mean > 0.0 else 0.0

    found, left = {}, len(differences)
    for name in sorted(differences, key=size, reverse=True):
        low, high = found[name] = interval(differences[name], 0.05 / left)
        left -= not low <= 0.0 <= high
    return {name: found[name] for name in differences}


def stored(file: Path, commit: str) -> list[dict[str, Any]]:
    """The runs of an earlier call for that commit; a last line that was cut short is removed."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    entries = [json.loads(line) for line in lines if line.endswith("\n")]
    if len(entries) < len(lines):
        file.write_text("".join(lines[:-1]), encoding="utf-8")
    return [entry for entry in entries if entry.pop("commit") == commit]


def store(file: Path, commit: str, run: Mapping[str, Any]) -> None:
    """Adds a run that is finished."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"commit": commit, **run}) + "\n")


def listed(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Reads an argument of values with commas between them."""

    def read(text: str) -> list[Any]:
        return [kind(part) for part in text.split(",")]

    read.__name__ = f"{kind.__name__} list"  # argparse names it when a value does not fit
    return read


def checked(
    parser: argparse.ArgumentParser,
    args: argparse.Namespace,
    *,
    names: Mapping[str, Iterable[Any]],
    least: Mapping[str, int],
    modules: Iterable[str],
    extra: str,
) -> None:
    """Ends with wrong usage where arguments are outside their range or packages are missing.

    Args:
        parser: Says so.
        args: Where the names of arms and the like are replaced by those they stand for.
        names: Per argument what each of its values may be.
        least: Per argument the least that it may be, unless it is None.
        modules: What has to be installed.
        extra: Of headway, which brings them.
    """
    for name, allowed in names.items():
        try:
            found = [one_of(f"--{name}", value, tuple(allowed)) for value in getattr(args, name)]
        except ValueError as error:
            parser.error(str(error))
        setattr(args, name, found)
    for name, bound in least.items():
        if (value := getattr(args, name)) is not None and value < bound:
            parser.error(f"argument --{name}: must be at least {bound}, got {value}")
    for module in modules:
        if find_spec(module) is None:
            parser.error(f'needs {module}, which is missing; pip install "headway[{extra}]"')


def shown(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, markdown: bool
) -> None:
    """Prints a table, for a terminal or as documents have it."""
    if markdown:
        ruled = (columns, ["---"] * len(columns), *rows)
        lines = ("| " + " | ".join(cells) + " |" for cells in ruled)
        print(title, "", *lines, "", sep="\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left")
    for cells in rows:
        table.add_row(*cells)
    Console(width=None if sys.stdout.isatty() else 170).print(table)


def spread(row: Mapping[str, Any], column: str, *, share: bool) -> str:
    """A figure with its 95 % interval, as far as there is one; empty where there is no figure.

    Args:
        row: Holds both, the interval as ``f"{column}_95"``.
        column: Name of the figure.
        share: Whether it lies in [0, 1], as its interval is shown to.
    """
    if column not in row:
        return ""
    if row[f"{column}_95"] is None:
        return f"{row[column]:.3f}"
    low, high = row[f"{column}_95"]
    if share:
        low, high = max(0.0, low), min(1.0, high)
    return f"{row[column]:.3f} ({low:.3f} to {high:.3f})"


def made(parser: argparse.ArgumentParser, folder: Path) -> Path:
    """The folder of the results, which is there now."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"argument --out: {error}")
    return folder
