"""Which credit makes a language model learn: reward and credit methods side by side, with placebos.

    python -m headway.bench.learning                       # every arm in the depot, tuned
    python -m headway.bench.learning --world apps --arms outcome,turn --rates 1
    python -m headway.bench.learning --quick               # minutes; proves that it runs

Every arm of a world begins with the same weights, seed by seed with the same tasks, and has the
same budget of generated tokens, in which scored answers and continuations count. Success and
progress are measured at the end, on tasks of the test split, and in the depot, which has no
splits, on draws of their own from its 4,608 tasks. Learning rates are picked for each arm from one
grid, in the depot, with half of the tokens and with seeds and tasks that are used for nothing
else, and carried over to the other worlds; an arm that the depot has not takes that of
``outcome``. Beside equal tokens a table compares at equal
time, that of the one thread of a run: the success of training episodes when the fastest arm was
done.

Every run that is finished is a line of ``runs.jsonl`` in the folder ``--out``; a second call takes
up those of the same ``--commit``. Needs ``headway[agents]``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.agents.config import Config
from headway.agents.workers import mapped
from headway.bench.arms import ARMS, PLACEBOS, PROGRESS, WORLDS, World
from headway.bench.experiment import (
    checked,
    commit_of_tree,
    holm,
    interval,
    listed,
    made,
    seeds,
    shown,
    spread,
    store,
    stored,
)

RATES = (0.25, 0.5, 1.0, 2.0)
"""Learning rates, as multiples of that of the world."""

QUICK = 0.12
"""Share of the budget that a quick run has."""


@dataclass(frozen=True, slots=True)
class Job:
    """One training.

    Attributes:
        world: A name in ``WORLDS``.
        arm: A name in ``ARMS``.
        seed: Of tasks and sampling.
        rate: Multiple of the world's learning rate.
        tokens: Budget.
    """

    world: str
    arm: str
    seed: int
    rate: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Run:
    """What came of it.

    Attributes:
        job: The training.
        success: Of tasks that were kept for this, in the end.
        progress: Likewise.
        tokens: Generated, with scored answers and continuations.
        seconds: Of training, on one processor.
        curve: Per update ``(tokens, seconds, success, progress)`` of the episodes in training.
        alarms: Kinds of alarms that were raised, each once.
    """

    job: Job
    success: float
    progress: float
    tokens: int
    seconds: float
    curve: tuple[tuple[float, ...], ...]
    alarms: tuple[str, ...] = ()

    def at(self, seconds: float) -> float:
        """Success in training at that time: mean of the last three updates up to then."""
        done = [point[2] for point in self.curve if point[1] <= seconds]
        return statistics.fmean(done[-3:]) if done else self.curve[0][2]


def folder_of(out: Path, job: Job) -> Path:
    """Where the log of a run is."""
    return out / f"{job.world}-{job.arm}-{job.rate:g}-{job.tokens}-{job.seed}"


def configuration(out: Path, job: Job) -> Config:
    """What a run does."""
    world = WORLDS[job.world]
    settings = {"stack": PROGRESS, "device": "cpu", **world.settings, **ARMS[job.arm].settings}
    settings["stack"] = settings["stack"].replace("TOKENS*0.6", str(int(job.tokens * 0.6)))
    return Config(
        policy=str(out / f"start-{job.world}"),
        seed=job.seed,
        tokens=job.tokens,
        **{**settings, "rate": settings["rate"] * job.rate},
    )


def run(out: Path, job: Job) -> Run:
    """Trains one policy from the start of its world; its log stays in ``out``."""
    import torch

    from headway.agents.trainer import train

    torch.set_num_threads(1)  # jobs share the machine, and equal threads round equally
    folder = folder_of(out, job)
    rows: list[Mapping[str, Any]] = []
    shutil.rmtree(folder, ignore_errors=True)  # half a run, whose points would be missing
    last = train(configuration(out, job), folder, told=rows.append, clock=time.process_time)
    for part in (*folder.glob("update-*"), folder / "tensorboard", folder / "state.json"):
        shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)
    if last["test"]["success"] is None:
        raise RuntimeError(f"{folder} has no measurement: every episode of it failed")
    points = [row for row in rows if row.get("success") is not None]
    return Run(
        job,
        last["test"]["success"],
        last["test"]["progress"],
        last["tokens"],
        last["seconds"],
        tuple((r["tokens"], r["seconds"], r["success"], r["progress"]) for r in points),
        tuple(sorted({text.partition(":")[0] for r in rows for text in r.get("alarms", ())})),
    )


# The experiment.


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is missing, prints the tables, draws the curves."""
    args = _arguments(argv)
    file = args.out / "runs.jsonl"
    done = {found.job: found for found in map(_read, stored(file, args.commit))}
    rates = _tuned(args, done)
    tables: dict[str, Any] = {}
    every: list[Run] = []
    for name in args.world:
        world = WORLDS[name]
        arms = [arm for arm in args.arms if name in ARMS[arm].worlds]
        used = args.seeds or seeds(args.count or world.count, "final", args.commit)
        tokens = _budget(args, world)
        jobs = [Job(name, arm, seed, rates[arm], tokens) for seed in used for arm in arms]
        _complete(args, done, jobs, name)
        runs = {arm: [done[job] for job in jobs if job.arm == arm] for arm in arms}
        every += [one for found in runs.values() for one in found]
        tables[name] = table(runs)
        if not args.json:
            _print(args, name, used, tables[name])
        plot(runs, args.out / f"learning-{name}.png", name)
    if args.json:
        print(json.dumps({"runs": [_row(found) for found in every]}))
    else:
        print(f"Commit of the seeds: {args.commit}")
        print(f"Curves: {args.out}/learning-*.png; runs: {file}; logs: folders in {args.out}")
    return 0


def table(runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """What the runs of one world amount to, by arm.

    Means with 95 % intervals over seeds, and differences to the arm that each is compared with,
    seed by seed. Those of placebos are corrected for being several.
    """
    shortest = min(found.seconds for arm in runs.values() for found in arm)
    gaps = {
        arm: [a.success - b.success for a, b in zip(found, runs[ARMS[arm].against], strict=True)]
        for arm, found in runs.items()
        if arm != "outcome" and ARMS[arm].against in runs and len(found) > 1
    }
    corrected = holm({arm: gaps[arm] for arm in gaps if arm in PLACEBOS})
    out: dict[str, Any] = {}
    for arm, found in runs.items():
        row: dict[str, Any] = {"rate": found[0].job.rate, "alarms": _alarms(found)}
        columns = {
            "success": [one.success for one in found],
            "progress": [one.progress for one in found],
            "timed": [one.at(shortest) for one in found],
            "tokens": [float(one.tokens) for one in found],
            "seconds": [one.seconds for one in found],
        }
        for name, values in columns.items():
            row[name] = statistics.fmean(values)
            row[f"{name}_95"] = interval(values) if len(values) > 1 else None
        if arm in gaps:
            row["gap"] = statistics.fmean(gaps[arm])
            row["gap_95"] = corrected[arm] if arm in corrected else interval(gaps[arm])
        out[arm] = row
    if {"turn", "shuffledturns"} <= set(runs) and len(runs["turn"]) > 1:
        pairs = zip(runs["turn"], runs["shuffledturns"], strict=True)
        beats = [a.success - b.success for a, b in pairs]
        out["turn"]["over_shuffledturns"] = statistics.fmean(beats)
        out["turn"]["over_shuffledturns_95"] = interval(beats)
    return out


def _alarms(runs: Sequence[Run]) -> dict[str, int]:
    """In how many runs each kind of alarm was raised."""
    kinds = sorted({kind for found in runs for kind in found.alarms})
    return {kind: sum(kind in found.alarms for found in runs) for kind in kinds}


def _tuned(args: argparse.Namespace, done: dict[Job, Run]) -> dict[str, float]:
    """The best rate of each arm in the depot; of arms that are not there that of ``outcome``."""
    if len(args.rates) == 1:
        return {arm: args.rates[0] * (ARMS[arm].faster or 1.0) for arm in args.arms}
    here = [arm for arm in args.arms if "depot" in ARMS[arm].worlds and not ARMS[arm].faster]
    here = list(dict.fromkeys(["outcome", *here]))
    tokens = _budget(args, WORLDS["depot"]) // 2
    grid = {
        (arm, rate): [Job("depot", arm, seed, rate, tokens) for seed in args.tuning]
        for arm in here
        for rate in args.rates
    }
    _complete(args, done, [job for jobs in grid.values() for job in jobs], "rates")

    def worth(arm: str, rate: float) -> tuple[float, float]:
        found = [done[job] for job in grid[arm, rate]]
        return (
            statistics.fmean(one.success for one in found),
            statistics.fmean(one.progress for one in found),
        )

    best = {arm: max(args.rates, key=partial(worth, arm)) for arm in here}
    return {arm: best.get(arm, best["outcome"]) * (ARMS[arm].faster or 1.0) for arm in args.arms}


def _budget(args: argparse.Namespace, world: World) -> int:
    tokens: int = args.tokens or int(world.tokens * (QUICK if args.quick else 1.0))
    return tokens


def _complete(
    args: argparse.Namespace, done: dict[Job, Run], jobs: Sequence[Job], what: str
) -> None:
    """Runs those of ``jobs`` that are not done, and stores each as it ends."""
    missing = [job for job in dict.fromkeys(jobs) if job not in done]
    for name in dict.fromkeys(job.world for job in missing):
        start = args.out / f"start-{name}"
        if not start.exists():
            WORLDS[name].start(start)
    with mapped(partial(run, args.out), missing, args.jobs, ordered=False) as runs:
        for count, found in enumerate(runs, 1):
            done[found.job] = found
            store(args.out / "runs.jsonl", args.commit, asdict(found))
            job = found.job
            print(
                f"{what}: {count}/{len(missing)}: {job.world} {job.arm} at {job.rate:g}, seed "
                f"{job.seed}: success {found.success:.3f}, progress {found.progress:.3f}, "
                f"{found.seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )


def _read(entry: Mapping[str, Any]) -> Run:
    curve = tuple(tuple(point) for point in entry["curve"])
    return Run(
        **{**entry, "job": Job(**entry["job"]), "curve": curve, "alarms": tuple(entry["alarms"])}
    )


def _row(found: Run) -> dict[str, Any]:
    job = found.job
    return {
        **{"world": job.world, "arm": job.arm, "seed": job.seed},
        **{"success": found.success, "progress": found.progress},
        **{"tokens": found.tokens, "seconds": found.seconds},
    }


def _print(args: argparse.Namespace, name: str, used: Sequence[int], rows: Any) -> None:
    share, gap = partial(spread, share=True), partial(spread, share=False)
    tokens = f"{_budget(args, WORLDS[name]):,} tokens"
    columns = ("arm", "rate", "success", "minus outcome", "progress", "at equal time")
    shown(
        f"{WORLDS[name].about}; {tokens}, seeds {list(used)}, 95 %",
        (*columns, "tokens", "seconds", "alarms"),
        [
            (
                arm + " *" * (arm in PLACEBOS),
                f"{row['rate']:g}",
                share(row, "success"),
                gap(row, "gap"),
                share(row, "progress"),
                share(row, "timed"),
                f"{row['tokens']:,.0f}",
                f"{row['seconds']:.0f}",
                ", ".join(f"{kind} {count}" for kind, count in row["alarms"].items()),
            )
            for arm, row in rows.items()
        ],
        markdown=args.markdown,
    )
    if any(arm in PLACEBOS for arm in rows):
        print("A star marks placebos; their intervals leave 0 out where Holm's test rejects it.")
    if "over_shuffledturns" in rows.get("turn", {}):
        print(f"turn minus shuffledturns: {gap(rows['turn'], 'over_shuffledturns')}")


def plot(runs: Mapping[str, Sequence[Run]], path: Path, name: str) -> None:
    """Success in training against tokens and against time, with bands of the 95 % interval."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(13, 5.5), layout="constrained", sharey=True)
    for which, (axis, label) in enumerate(zip(axes, ("generated tokens", "seconds"), strict=True)):
        for number, (arm, found) in enumerate(runs.items()):
            most = min(one.curve[-1][which] for one in found)
            at = np.linspace(0.0, most, 40)
            curves = np.array([_smooth(one, which, at) for one in found])
            style = "-" if number < 10 else "--" if number < 20 else ":"
            (line,) = axis.plot(at, curves.mean(axis=0), style, label=arm)
            if len(found) > 1:
                bands = [interval(list(column)) for column in curves.T]
                low, high = np.array(bands).T.clip(0.0, 1.0)
                axis.fill_between(at, low, high, color=line.get_color(), alpha=0.1, linewidth=0)
        axis.set(xlabel=label, ylim=(0.0, 1.0), xlim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="success of training episodes", title=WORLDS[name].about[:60])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _smooth(found: Run, which: int, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Success at the points, each the mean of three updates."""
    points = np.array(found.curve)
    width = min(3, len(points))
    success = np.convolve(points[:, 2], np.ones(width) / width, mode="valid")
    return np.interp(at, points[width - 1 :, which], success).astype(np.float64)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m headway.bench.learning",
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--world", type=listed(str), default=["depot"], help=f"some of {', '.join(WORLDS)}")
    add("--arms", type=listed(str), default=list(ARMS), help="some of the arms")
    add("--rates", type=listed(float), help=f"multiples of the world's rate; None: {RATES}")
    add("--commit", default=commit_of_tree(), help="what all seeds are drawn from")
    add("--seeds", type=listed(int), help="instead of those of the commit")
    add("--count", type=int, help="seeds drawn from the commit; None: as many as the world has")
    add("--tuning", type=int, default=2, help="seeds of their own for the rates")
    add("--tokens", type=int, help="budget of a run; None: that of the world")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    add("--out", type=Path, help="folder of the results; None: learning-COMMIT")
    add("--quick", action="store_true", help="a part of the tokens, one rate, two seeds")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    add("--markdown", action="store_true", help="print tables as documents have them")
    add("--list", action="store_true", help="print what the arms are")
    args = parser.parse_args(argv)
    if args.list:
        for name, arm in ARMS.items():
            print(f"{name:14} {arm.about}")
        parser.exit()
    checked(
        parser,
        args,
        names={"arms": ARMS, "world": WORLDS},
        least={"count": 1, "tuning": 1, "jobs": 1, "tokens": 1},
        modules=("torch", "transformers", "matplotlib", "scipy"),
        extra="agents",
    )
    if args.quick:
        args.rates = args.rates or [1.0]
        args.count = args.count or 2
    args.rates = args.rates or list(RATES)
    if not all(0.0 < rate < math.inf for rate in args.rates):
        parser.error(f"argument --rates: must be numbers above 0, got {args.rates}")
    if args.seeds and len(set(args.seeds)) < len(args.seeds):
        parser.error(f"argument --seeds: must differ, got {args.seeds}")
    args.out = made(parser, args.out or Path(f"learning-{args.commit[:8]}"))
    args.tuning = seeds(args.tuning, "tuning", args.commit)
    return args


if __name__ == "__main__":
    sys.exit(main())
