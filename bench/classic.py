"""Which reward stack helps classic RL: PPO of stable-baselines3 on House, one goal and two.

    python -m headway.bench.classic                     # every arm, tuned, and the plot
    python -m headway.bench.classic --goals 1 --arms sparse,potential --rates 7e-4
    python -m headway.bench.classic --quick             # a few minutes; proves that it runs

Every arm has the same learner, the same number of steps, the same worlds and, seed by seed, the
same initial weights. Its learning rate is the best of one grid for all, with one goal, half of the
steps and seeds that are used for nothing else. With two goals the first 40 % of the training have
one (the curriculum), or none would ever be met. Success is that of the training episodes as the
policy samples; at the end it is measured once more in worlds of the test split.

Every run that is finished is a line of ``runs.jsonl`` in the folder ``--out``; a second call
takes up those of the same ``--commit``. Needs ``headway[sb3]``.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np

import headway
from headway.agents.workers import mapped
from headway.bench.experiment import (
    checked,
    commit_of_tree,
    interval,
    listed,
    made,
    seeds,
    shown,
    spread,
    store,
    stored,
)
from headway.wrappers import DiscreteActions, Features
from headway.wrappers.stack import build

TEMPLATE = "chores"
"""Bring something somewhere; at difficulty d so treated, and d of them."""

GAMMA = 0.99
LANES = 16
WORLDS = 64
"""Worlds of each lane and number of goals; proving more would take longer than playing them."""

WINDOWS = 20
"""Points of a success curve, of 5,000 steps each at least: every lane ends some in each."""

TESTS = 200
"""Episodes of the final measurement."""

ARMS: Mapping[str, str] = MappingProxyType(
    {
        "sparse": "",
        "potential": "potential",
        "progress": "progress",
        "watermark": "watermark",
        "annealed": "progress,anneal(steps={steps})",
        "placebo": "progress,placebo(kind=random,seed={seed})",
    }
)
"""Reward stacks by the names of the arms; ``annealed`` reaches 0 at 60 % of the training."""

ANNEALED = 0.6
RATES = (3e-4, 7e-4, 1.5e-3)
STEPS: Mapping[int, int] = MappingProxyType({1: 200_000, 2: 300_000})
"""Steps of a run by the number of goals."""

FIRST = 0.4
"""Share of the steps with one goal only, where the aim is two; after it every other world has."""


@dataclass(frozen=True, slots=True)
class Job:
    """One training.

    Attributes:
        arm: A name in ``ARMS``.
        goals: 1 or 2.
        rate: Learning rate.
        seed: Of weights, worlds and sampling.
        steps: Environment steps in all.
    """

    arm: str
    goals: int
    rate: float
    seed: int
    steps: int


@dataclass(frozen=True, slots=True)
class Run:
    """What came of it.

    Attributes:
        job: The training.
        curve: Share of successes among the episodes that ended in each of equal parts.
        tested: Success in worlds of the test split at the end, with as many goals as were aimed at.
        seconds: It took.
    """

    job: Job
    curve: tuple[float, ...]
    tested: float
    seconds: float

    @property
    def area(self) -> float:
        """Area under the success curve, in [0, 1]."""
        return statistics.fmean(self.curve)


class _Goals(gym.Wrapper[Any, Any, Any, Any]):
    """Chooses the number of goals of each episode; the learner says how far it has come."""

    def __init__(self, env: gym.Env[Any, Any], goals: int) -> None:
        super().__init__(env)
        self.goals, self.share, self.episodes = goals, 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.episodes += 1
        easy = self.share < FIRST or self.episodes % 2 == 0
        difficulty = 1 if easy else self.goals
        obs, info = self.env.reset(seed=seed, options={"difficulty": difficulty, **(options or {})})
        return obs, {"task_id": info["task_id"]}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Only what is asked for goes on in ``info``: the vector copies it every step."""
        *turn, info = self.env.step(action)
        obs, reward, terminated, truncated = turn
        record = info["headway"]
        kept = {"base": record["base"], "channels": dict(record["channels"])}
        return obs, reward, terminated, truncated, kept


@cache
def house(lane: int | None, goals: int) -> gym.Env[Any, Any]:
    """The house of a lane before any wrapper, every world of it proved; to be copied.

    Args:
        lane: Of the training; None for the test split.
        goals: The most that its worlds have.
    """
    env: gym.Env[Any, Any] = gym.make(
        "headway/House-v0",
        template=TEMPLATE,
        split="test" if lane is None else "train",
        seeds=(0, TESTS) if lane is None else (WORLDS * lane, WORLDS),
        ends_on="success",
        disable_env_checker=True,
    )
    for difficulty in (goals,) if lane is None else range(1, goals + 1):
        for seed in range(TESTS) if lane is None else range(WORLDS * lane, WORLDS * (lane + 1)):
            env.reset(seed=seed, options={"difficulty": difficulty})
    return env


def world(job: Job, lane: int | None) -> _Goals:
    """House as classic RL sees it: numbers in, a number out, ended by the first success.

    Args:
        job: What it is for.
        lane: Of the training; None for the test split, where nothing but the outcome is paid.
    """
    env = copy.deepcopy(house(lane, job.goals))
    if lane is not None:
        seed = LANES * job.seed + lane  # a stream of its own for each lane
        stack = ARMS[job.arm].format(steps=round(ANNEALED * job.steps), seed=seed)
        # PPO bootstraps from the last state of a cut episode, so its potential stands there. A
        # placebo's random pay has no bound below that of success.
        env = build(env, stack, gamma=GAMMA, on_truncation="keep", allow_dominance=True)
    return _Goals(Features(DiscreteActions(env)), job.goals)


def train(job: Job) -> Run:
    """Trains one policy and measures it."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

    torch.set_num_threads(1)
    started = time.perf_counter()
    lanes = [world(job, lane) for lane in range(LANES)]
    windows = max(1, min(WINDOWS, job.steps // 5000))
    ended: list[list[bool]] = [[] for _ in range(windows)]

    class Progress(BaseCallback):
        """Hands the learner's step to schedules and goals, and notes how episodes end."""

        def _on_rollout_start(self) -> None:
            for lane in lanes:
                headway.set_progress(lane, self.num_timesteps)
                lane.share = self.num_timesteps / job.steps

        def _on_step(self) -> bool:
            window = min(windows - 1, self.num_timesteps * windows // job.steps)
            for info, done in zip(self.locals["infos"], self.locals["dones"], strict=True):
                if done:
                    ended[window].append(info["base"] > 0.0)
            return True

    vector = VecMonitor(DummyVecEnv([partial(_same, lane) for lane in lanes]))
    learner = PPO(
        "MlpPolicy",
        vector,
        n_steps=128,
        batch_size=512,
        n_epochs=8,
        learning_rate=job.rate,
        ent_coef=0.02,
        gamma=GAMMA,
        gae_lambda=0.95,
        seed=job.seed,
        device="cpu",
        policy_kwargs={"net_arch": [128, 128]},
    )
    learner.learn(job.steps, callback=Progress())
    curve = tuple(statistics.fmean(part) for part in ended)
    tested = _tested(learner, job)
    return Run(job, curve, tested, time.perf_counter() - started)


def _same(lane: _Goals) -> _Goals:
    return lane


def _tested(learner: Any, job: Job) -> float:
    """Success in worlds of the test split, the policy sampling as in training."""
    env = world(job, None)
    wins = 0
    for seed in range(TESTS):
        obs, _ = env.env.reset(seed=seed, options={"difficulty": job.goals})
        over = False
        while not over:
            action, _ = learner.predict(obs, deterministic=False)
            obs, reward, terminated, truncated, _ = env.step(int(action))
            over = terminated or truncated
        wins += float(reward) > 0.0
    return wins / TESTS


# The experiment.


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is missing, prints the tables, draws the curves."""
    args = _arguments(argv)
    done = _stored(args.out / "runs.jsonl", args.commit)
    rates = _tuned(args, done)
    results: dict[str, Any] = {"commit": args.commit, "gamma": GAMMA, "goals": {}}
    for goals in args.goals:
        steps = _steps(args, goals)
        chosen = [
            Job(arm, goals, rates[arm], seed, steps) for arm in args.arms for seed in args.seeds
        ]
        _complete(args, done, chosen, f"{goals} goal{'s' * (goals > 1)}")
        runs = {arm: [done[job] for job in chosen if job.arm == arm] for arm in args.arms}
        results["goals"][goals] = table(runs, rates)
        if not args.json:
            _print(args, goals, results["goals"][goals])
        plot(runs, args.out / f"classic-{goals}.png", goals, steps)
    if args.json:
        print(json.dumps(results))
    else:
        print(f"Curves: {args.out}/classic-*.png; runs: {args.out}/runs.jsonl")
    return 0


def table(runs: Mapping[str, Sequence[Run]], rates: Mapping[str, float]) -> dict[str, Any]:
    """What the runs amount to, by arm: means with 95 % intervals, and differences seed by seed."""
    out: dict[str, Any] = {}
    for arm, found in runs.items():
        areas = [run.area for run in found]
        row: dict[str, Any] = {
            "rate": rates[arm],
            "area": statistics.fmean(areas),
            "area_95": interval(areas),
            "tested": statistics.fmean(run.tested for run in found),
            "tested_95": interval([run.tested for run in found]),
            "seconds": statistics.fmean(run.seconds for run in found),
        }
        if arm != "sparse" and "sparse" in runs:
            gaps = [run.area - plain.area for run, plain in zip(found, runs["sparse"], strict=True)]
            row |= {"minus_sparse": statistics.fmean(gaps), "minus_sparse_95": interval(gaps)}
        out[arm] = row
    return out


def _tuned(args: argparse.Namespace, done: dict[Job, Run]) -> dict[str, float]:
    """The best rate of each arm, by the mean area over the tuning seeds; the same grid for all."""
    if len(args.rates) == 1:
        return dict.fromkeys(args.arms, args.rates[0])
    steps = _steps(args, 1) // 2
    grid = {
        (arm, rate): [Job(arm, 1, rate, seed, steps) for seed in args.tuning]
        for arm in args.arms
        for rate in args.rates
    }
    _complete(args, done, [job for jobs in grid.values() for job in jobs], "rates")

    def area(arm: str, rate: float) -> float:
        return statistics.fmean(done[job].area for job in grid[arm, rate])

    return {arm: max(args.rates, key=lambda rate: area(arm, rate)) for arm in args.arms}


def _steps(args: argparse.Namespace, goals: int) -> int:
    steps: int = args.steps or STEPS[goals] // (20 if args.quick else 1)
    return steps


def _complete(
    args: argparse.Namespace, done: dict[Job, Run], jobs: Sequence[Job], what: str
) -> None:
    """Runs those of ``jobs`` that are not done, and stores each as it ends."""
    missing = [job for job in jobs if job not in done]
    with mapped(train, missing, args.jobs, ordered=False) as runs:
        for count, run in enumerate(runs, 1):
            done[run.job] = run
            store(args.out / "runs.jsonl", args.commit, asdict(run))
            job = run.job
            print(
                f"{what}: {count}/{len(missing)}: {job.arm} at {job.rate:g}, seed {job.seed}: "
                f"area {run.area:.3f}, tested {run.tested:.2f}, {run.seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )


def _stored(file: Path, commit: str) -> dict[Job, Run]:
    """The runs of an earlier call for that commit."""
    runs = [
        Run(Job(**entry["job"]), tuple(entry["curve"]), entry["tested"], entry["seconds"])
        for entry in stored(file, commit)
    ]
    return {run.job: run for run in runs}


def _print(args: argparse.Namespace, goals: int, rows: Mapping[str, Any]) -> None:
    share, gap = partial(spread, share=True), partial(spread, share=False)
    steps = f"{_steps(args, goals):,} steps"
    shown(
        f"House, {goals} goal{'s' * (goals > 1)}: {steps}, seeds {args.seeds}, 95 %",
        ("arm", "rate", "area under success", "minus sparse", "success on test", "seconds"),
        [
            (
                arm,
                f"{row['rate']:g}",
                share(row, "area"),
                gap(row, "minus_sparse"),
                share(row, "tested"),
                f"{row['seconds']:.0f}",
            )
            for arm, row in rows.items()
        ],
        markdown=args.markdown,
    )


def plot(runs: Mapping[str, Sequence[Run]], path: Path, goals: int, steps: int) -> None:
    """Success curves of the arms with bands of the 95 % interval of the mean."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for arm, found in runs.items():
        curves = np.array([run.curve for run in found])
        at = (np.arange(curves.shape[1]) + 0.5) * steps / curves.shape[1]
        (line,) = axes.plot(at, curves.mean(axis=0), label=arm)
        low, high = np.array([interval(list(column)) for column in curves.T]).T.clip(0.0, 1.0)
        axes.fill_between(at, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(
        xlabel="environment steps",
        ylabel="success of training episodes",
        title=f"PPO on House, {goals} goal{'s' * (goals > 1)}: mean and 95 % interval over seeds",
        ylim=(0.0, 1.0),
        xlim=(0, steps),
    )
    axes.legend(loc="upper left")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m headway.bench.classic",
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--goals", type=listed(int), default=[1, 2], help="1, 2 or both")
    parser.add_argument("--arms", type=listed(str), default=list(ARMS), help="some of the arms")
    parser.add_argument("--rates", type=listed(float), default=list(RATES), help="above 0")
    parser.add_argument("--commit", default=commit_of_tree(), help="what all seeds are drawn from")
    parser.add_argument("--seeds", type=listed(int), help="instead of those of the commit")
    parser.add_argument("--count", type=int, default=5, help="seeds drawn from the commit")
    parser.add_argument("--tuning", type=int, default=3, help="seeds of their own for the rates")
    parser.add_argument(
        "--steps", type=int, help="of a run; None: 200,000 with one goal, 300,000 with two"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--out", type=Path, help="folder of the results; None: classic-COMMIT")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the steps, one rate")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    parser.add_argument(
        "--markdown", action="store_true", help="print tables as documents have them"
    )
    args = parser.parse_args(argv)
    checked(
        parser,
        args,
        names={"arms": ARMS, "goals": STEPS},
        least={"count": 2, "tuning": 1, "jobs": 1, "steps": 5000},
        modules=("stable_baselines3", "torch", "matplotlib", "scipy"),
        extra="sb3",
    )
    if not all(0.0 < rate < 1.0 for rate in args.rates):
        parser.error(f"argument --rates: must be numbers in (0, 1), got {args.rates}")
    if args.quick:
        args.rates, args.count = args.rates[:1] if len(args.rates) == 1 else [RATES[1]], 2
    args.out = made(parser, args.out or Path(f"classic-{args.commit[:8]}"))
    args.seeds = args.seeds or seeds(args.count, "final", args.commit)
    if len(set(args.seeds)) < max(2, len(args.seeds)):
        parser.error(f"argument --seeds: must be 2 or more that differ, got {args.seeds}")
    args.tuning = seeds(args.tuning, "tuning", args.commit)
    return args


if __name__ == "__main__":
    sys.exit(main())
