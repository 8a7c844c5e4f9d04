"""How fast headway is, beside a trivial environment and its neighbours in the same run.

A figure of one machine says little about another, and on shared cores little about the same one
ten minutes later. So all subjects are measured in turn, round by round, and a row compares its
subject with another of the same rounds.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from types import MappingProxyType
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import RecordEpisodeStatistics

import headway
from headway.bench.clock import Sample, of_calls, of_turns
from headway.bench.neighbours import measurements
from headway.bench.trivial import TRIVIAL, Ladder
from headway.envs.contract import certify
from headway.envs.domain import Domain
from headway.envs.task import TaskKey
from headway.envs.tools import parse_action
from headway.wrappers import GatedReward, PotentialShaping, ProgressReward

ENV = "headway/Apps-v0"
DIFFICULTY = 3
TURN = "tool call and grade"
ROUNDS = 100
QUICK_ROUNDS = 15
RARELY = 5
"""Rounds from one fresh process to the next: they take longest and vary least."""

STEPS = 5000
"""Steps of a trivial environment in one measurement."""

LANES = 8
WORKERS = 2
"""Processes of the asynchronous vectors."""

TARGETS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        TURN: {"median": 60.0, "ratio": 100.0},
        "ProgressReward layer": {"ratio": 2.0},
        "PotentialShaping layer": {"ratio": 2.0},
        "GatedReward layer": {"ratio": 2.0},
        "contract": {"median": 25.0},
        "import headway": {"ratio": 1.5},
    }
)
"""Upper bounds on fields of a row, by its name. Only those on ``ratio`` hold on any machine."""

Told = Callable[[str, int, int], None]
"""``told(what, done, of)`` hears how far the measurement has come."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one subject took.

    Attributes:
        name: The subject.
        unit: Of ``median`` and ``min``, for one item: ``"us"`` or ``"ms"`` of CPU time, or
            ``"us wall"`` where other processes do the work.
        median: Over all measurements.
        min: Over all measurements.
        n: Measurements.
        versus: Name of the row it is compared with; None where it is compared with nothing.
        ratio: ``min`` over the ``min`` of ``versus``, both in seconds; None without ``versus``,
            NaN if that took no measurable time. Of minima, because load from outside only ever
            adds: one quiet round for each of the two is enough, where a median needs most rounds
            to be quiet.
    """

    name: str
    unit: str
    median: float
    min: float
    n: int
    versus: str | None
    ratio: float | None


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is measured, round by round.

    Attributes:
        name: As in the row.
        unit: As in the row.
        sample: Measures.
        versus: As in the row.
        over: Name of the subject whose time is taken off: the stack that a layer lies on.
        every: Rounds from one measurement to the next.
    """

    name: str
    unit: str
    sample: Sample
    versus: str | None = None
    over: str | None = None
    every: int = 1


@dataclass(frozen=True, slots=True)
class _Episode:
    """What the oracle does in one task, so that the state changes as it does in real work.

    The submission is left out: it ends the episode, and grades whether asked to or not.
    """

    options: dict[str, Any]
    actions: list[str]

    def begin(self, env: gym.Env[Any, Any]) -> None:
        env.reset(options=self.options)


def run(
    *,
    quick: bool = False,
    against: Sequence[str] = (),
    told: Told = lambda what, done, of: None,
) -> list[Row]:
    """Measures all subjects round by round, always in the same order.

    Starts fresh processes, so a script that calls it needs ``if __name__ == "__main__":``.

    Args:
        quick: Few rounds, in under 15 s, for ratios with wide bounds; else about a minute.
        against: Names in ``headway.bench.neighbours.NEIGHBOURS``, measured as well.
        told: Hears how far it has come.

    Raises:
        ValueError: ``against`` has an unknown name.
        ImportError: A neighbour's package is not installed.
    """
    neighbours = measurements(against)
    episodes = _episodes()
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with ExitStack() as opened:
        subjects = [
            *_turns(episodes),
            *_layers(),
            *_tasks(),
            *_vectors(episodes, opened),
            *_imports(),
            *(_Subject(f"{name} turn", "us", take, TURN) for name, take in neighbours.items()),
        ]
        times: dict[str, list[float]] = {subject.name: [] for subject in subjects}
        for done in range(1, rounds + 1):
            for subject in subjects:
                if done % subject.every == 0:
                    times[subject.name].append(subject.sample())
            told("rounds", done, rounds)
    return _rows(subjects, times)


def target(row: Row) -> str:
    """The bounds of a row in words, ``"median 60 us, ratio 100"``; empty where it has none."""
    return ", ".join(
        f"{field} {bound:g}" + ("" if field == "ratio" else f" {row.unit}")
        for field, bound in TARGETS.get(row.name, {}).items()
    )


def _rows(subjects: Sequence[_Subject], times: Mapping[str, Sequence[float]]) -> list[Row]:
    """What the measurements come to."""

    def taken(subject: _Subject, of: Callable[[Sequence[float]], float]) -> float:
        return of(times[subject.name]) - (of(times[subject.over]) if subject.over else 0.0)

    least = {subject.name: taken(subject, min) for subject in subjects}
    rows = []
    for subject in subjects:
        name, versus, ratio = subject.name, subject.versus, None
        if versus is not None:
            ratio = least[name] / least[versus] if least[versus] > 0 else math.nan
        scale = 1e3 if subject.unit == "ms" else 1e6
        median = scale * taken(subject, statistics.median)
        n = len(times[name])
        rows.append(Row(name, subject.unit, median, scale * least[name], n, versus, ratio))
    return rows


def _make() -> gym.Env[Any, Any]:
    return gym.make(ENV, difficulty=DIFFICULTY)


def _episodes() -> list[_Episode]:
    """One of every template."""
    env, episodes = _make(), []
    for template in _domain(env).template_names("train"):
        _, info = env.reset(seed=0, options={"template": template})
        actions = env.get_wrapper_attr("solution")()[:-1]
        episodes.append(_Episode({"task_id": info["task_id"]}, actions))
    return episodes


def _domain(env: gym.Env[Any, Any]) -> Domain:
    domain: Domain = env.get_wrapper_attr("domain")
    return domain


def _turns(episodes: Sequence[_Episode]) -> Iterator[_Subject]:
    """A turn and its parts."""
    trivial, env, paid = gym.make(TRIVIAL), _make(), ProgressReward(_make(), gamma=1.0)
    grade = env.get_wrapper_attr("grade")
    actions = [episode.actions for episode in episodes]

    def played(env: gym.Env[Any, Any], turn: Callable[[str], object]) -> Sample:
        return partial(of_turns, actions, lambda number: episodes[number].begin(env), turn)

    def begin_and_grade(number: int) -> None:
        """What a reward layer does at reset: the first grade reads every table, later ones few."""
        episodes[number].begin(env)
        grade()

    def call_and_grade(action: str) -> None:
        env.step(action)
        grade()

    steps = partial(of_turns, [[""] * STEPS], lambda number: trivial.reset(), trivial.step)
    states, stacks = list(_states(env, episodes)), list(_states(paid, episodes))
    texts = list(chain.from_iterable(actions))
    forks = partial(of_calls, [partial(headway.fork, stack) for stack in stacks])
    decoded = partial(of_calls, [partial(json.loads, text) for text in texts])
    parsed = partial(of_calls, [partial(parse_action, text, "json") for text in texts])

    yield _Subject("trivial step", "us", steps)
    graded = partial(of_turns, actions, begin_and_grade, call_and_grade)
    yield _Subject(TURN, "us", graded, "trivial step")
    yield _Subject("tool call", "us", played(env, env.step), "trivial step")
    yield _Subject("grade, new state", "us", lambda: _grades(states), "trivial step")
    yield _Subject("grade, known state", "us", lambda: _grades(states, again=True), "trivial step")
    yield _Subject("step with ProgressReward", "us", played(paid, paid.step), TURN)
    yield _Subject("fork of that stack", "us", forks, TURN)
    yield _Subject("json.loads of an action", "us", decoded)
    yield _Subject("parse_action", "us", parsed, "json.loads of an action")


def _states(env: gym.Env[Any, Any], episodes: Sequence[_Episode]) -> Iterator[gym.Env[Any, Any]]:
    """The stack after every turn, with the state before it graded and the present one not."""
    for episode in episodes:
        episode.begin(env)
        for action in episode.actions:
            env.get_wrapper_attr("grade")()
            env.step(action)
            yield headway.fork(env)


def _grades(states: Sequence[gym.Env[Any, Any]], *, again: bool = False) -> float:
    """Copies are graded, because a state is new only once."""
    calls = [headway.fork(state).get_wrapper_attr("grade") for state in states]
    first = of_calls(calls)
    return of_calls(calls) if again else first


def _layers() -> Iterator[_Subject]:
    """What one wrapper adds, where the grade itself costs nothing."""
    episodes = [[""] * Ladder.turns] * (STEPS // Ladder.turns)

    def layer(env: gym.Env[Any, Any], over: str, versus: str | None = None) -> _Subject:
        sample = partial(of_turns, episodes, lambda number: env.reset(), env.step)
        return _Subject(f"{type(env).__name__} layer", "us", sample, versus, over)

    under = Ladder()
    bare, stock = "trivial graded step", "RecordEpisodeStatistics layer"
    progress = ProgressReward(Ladder(), gamma=1.0)
    shaping = PotentialShaping(Ladder(), gamma=1.0, on_truncation="zero")
    gated = GatedReward(ProgressReward(Ladder(), gamma=1.0))
    steps = partial(of_turns, episodes, lambda number: under.reset(), under.step)
    yield _Subject(bare, "us", steps)
    yield layer(RecordEpisodeStatistics(Ladder()), bare)
    yield layer(progress, bare, stock)
    yield layer(shaping, bare, stock)
    yield layer(gated, "ProgressReward layer", stock)


def _tasks() -> Iterator[_Subject]:
    """The proof of a task, the reset that makes it, and the reset that makes it again."""
    domain = _domain(_make())
    names = domain.template_names("train")

    def contract(seed: int) -> float:
        template = names[seed % len(names)]
        key = TaskKey(domain.name, domain.version, template, DIFFICULTY, 2, "train", seed)
        return of_calls([partial(certify, domain, key)])

    def reset(seed: int, *, again: bool) -> float:
        options = {"template": names[seed % len(names)]}
        calls = [partial(_make().reset, seed=seed, options=options)]
        first = of_calls(calls)
        return of_calls(calls) if again else first

    seeds = [count(1) for _ in range(3)]
    yield _Subject("contract", "ms", lambda: contract(next(seeds[0])))
    yield _Subject("reset, new task", "ms", lambda: reset(next(seeds[1]), again=False), "contract")
    yield _Subject(
        "reset, known task", "ms", lambda: reset(next(seeds[2]), again=True), "reset, new task"
    )


def _vectors(episodes: Sequence[_Episode], opened: ExitStack) -> Iterator[_Subject]:
    """One step of one environment among many."""
    proved = _make()  # copies of it need not prove the tasks once more
    for episode in episodes:
        episode.begin(proved)
    copies = partial(headway.fork, proved)
    lanes = headway.TextVec(copies, LANES)
    sync = gym.vector.SyncVectorEnv([copies] * LANES)
    # Started afresh, because a process that may have threads should not be forked.
    spawned = {"context": "spawn", "shared_memory": False}
    several = partial(gym.make_vec, num_envs=WORKERS, vectorization_mode="async")
    workers = several(ENV, difficulty=DIFFICULTY, vector_kwargs=spawned)
    trivial = several(TRIVIAL, vector_kwargs=spawned)
    for vector in (lanes, sync, workers, trivial):
        opened.callback(vector.close)

    def played(vector: Any, size: int, clock: Callable[[], float] = time.process_time) -> Sample:
        actions = [[[action] * size for action in episode.actions] for episode in episodes]

        def begin(number: int) -> None:
            options = episodes[number].options
            vector.reset(options=[options] * size if vector is lanes else options)

        return lambda: of_turns(actions, begin, vector.step, clock=clock) / size

    stock, wall = f"AsyncVectorEnv of {WORKERS} trivial", time.perf_counter
    yield _Subject(f"TextVec of {LANES}", "us", played(lanes, LANES), "tool call")
    yield _Subject(f"SyncVectorEnv of {LANES}", "us", played(sync, LANES), "tool call")
    yield _Subject(stock, "us wall", played(trivial, WORKERS, wall))
    yield _Subject(f"AsyncVectorEnv of {WORKERS}", "us wall", played(workers, WORKERS, wall), stock)


def _imports() -> Iterator[_Subject]:
    for module, versus in (("gymnasium", None), ("headway", "import gymnasium")):
        take = partial(_import, module)
        yield _Subject(f"import {module}", "ms", take, versus, every=RARELY)


def _import(module: str) -> float:
    """In a fresh interpreter, whose own start does not count."""
    code = f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
    command = [sys.executable, "-P", "-c", code]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
