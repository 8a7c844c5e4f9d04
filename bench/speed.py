"""How fast headway is, beside a trivial environment and its neighbours in the same run.

A figure of one machine says little about another, and on shared cores little about the same one
ten minutes later. So all subjects are measured in turn, round by round, and every row compares its
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
from itertools import count
from types import MappingProxyType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import RecordEpisodeStatistics

import headway
from headway.bench.clock import Sample, of_calls, of_turns
from headway.bench.neighbours import measurements
from headway.envs.contract import certify
from headway.envs.spaces import TextSpace
from headway.envs.task import TaskKey
from headway.envs.tools import parse_action
from headway.verifiers import Verdict
from headway.wrappers import GatedReward, PotentialShaping, ProgressReward

ROUNDS = 30
QUICK_ROUNDS = 5
LANES = 8
WORKERS = 2
"""Processes of the asynchronous vector."""

TARGETS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "tool call and grade": {"median": 60.0, "ratio": 100.0},
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

_make = partial(gym.make, "headway/Apps-v0", difficulty=3)
_SCALES = {"us": 1e6, "us wall": 1e6, "ms": 1e3}


@dataclass(frozen=True, slots=True)
class Row:
    """What one subject took.

    Attributes:
        name: The subject.
        unit: Of ``median`` and ``min``, for one item: ``"us"`` or ``"ms"`` of this process's CPU
            time, or ``"us wall"`` where other processes do the work.
        median: Over the rounds.
        min: Over the rounds.
        n: Rounds.
        versus: Name of the row it is compared with; None where there is nothing to compare.
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
    """What is measured in every round; ``over`` names the subject whose time is taken off."""

    name: str
    unit: str
    sample: Sample
    versus: str | None = None
    over: str | None = None


def run(
    *,
    quick: bool = False,
    against: Sequence[str] = (),
    told: Told = lambda what, done, of: None,
) -> list[Row]:
    """Measures every subject once a round, always in the same order.

    Args:
        quick: Few rounds, under 15 s, enough for ratios with wide bounds.
        against: Names in ``headway.bench.neighbours.NEIGHBOURS``, measured as well.
        told: Hears how far it has come.

    Raises:
        ValueError: ``against`` has an unknown name.
        ImportError: A neighbour's package is not installed.
    """
    neighbours = measurements(against)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with ExitStack() as open_vectors:
        subjects = [
            *_turns(),
            *_layers(),
            *_tasks(),
            *_vectors(open_vectors),
            *_imports(),
            *(_Subject(f"{n} turn", "us", s, "tool call and grade") for n, s in neighbours.items()),
        ]
        times: dict[str, list[float]] = {subject.name: [] for subject in subjects}
        for done in range(1, rounds + 1):
            for subject in subjects:
                times[subject.name].append(subject.sample())
            told("rounds", done, rounds)
    return _rows(subjects, times)


def target(row: Row) -> str:
    """The bounds of a row in words, ``"median 60 us, ratio 100"``; empty where it has none."""
    bounds = TARGETS.get(row.name, {})
    return ", ".join(
        f"{field} {bound:g}" + (f" {row.unit}" if field != "ratio" else "")
        for field, bound in bounds.items()
    )


def _rows(subjects: Sequence[_Subject], times: Mapping[str, Sequence[float]]) -> list[Row]:
    """Medians, minima and ratios; a layer's are those of its stack less those of what is under it."""

    def taken(subject: _Subject, of: Callable[[Sequence[float]], float]) -> float:
        under = of(times[subject.over]) if subject.over else 0.0
        return of(times[subject.name]) - under

    least = {subject.name: taken(subject, min) for subject in subjects}
    rows = []
    for subject in subjects:
        scale = _SCALES[subject.unit]
        ratio = None
        if subject.versus is not None:
            base = least[subject.versus]
            ratio = least[subject.name] / base if base > 0 else math.nan
        rows.append(
            Row(
                name=subject.name,
                unit=subject.unit,
                median=scale * taken(subject, statistics.median),
                min=scale * least[subject.name],
                n=len(times[subject.name]),
                versus=subject.versus,
                ratio=ratio,
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class _Episode:
    """What the oracle does in one task, so that the state changes as it does in real work.

    The submission is left out: it ends the episode and grades, whether asked to or not.
    """

    options: dict[str, Any]
    actions: list[str]


def _episodes() -> list[_Episode]:
    """One of every template."""
    env, episodes = _make(), []
    for template in env.unwrapped.domain.template_names("train"):
        options = {"template": template}
        env.reset(seed=0, options=options)
        episodes.append(_Episode(options, env.unwrapped.solution()[:-1]))
    return episodes


def _oracle_turns(
    env: gym.Env[Any, Any],
    episodes: Sequence[_Episode],
    turn: Callable[[str], object],
) -> Sample:
    def begin(number: int) -> None:
        env.reset(seed=0, options=episodes[number].options)

    return partial(of_turns, [episode.actions for episode in episodes], begin, turn)


def _turns() -> Iterator[_Subject]:
    """A turn and its parts."""
    episodes = _episodes()
    trivial = _trivial_turns(gym.make(_TRIVIAL))
    env, paid = _make(), ProgressReward(_make(), gamma=1.0)

    def call_and_grade(action: str) -> None:
        env.step(action)
        env.unwrapped.grade()

    states = list(_states(env, episodes))
    texts = [action for episode in episodes for action in episode.actions]
    parse = [partial(parse_action, text, "json") for text in texts]
    decode = [partial(json.loads, text) for text in texts]
    base = "trivial step"
    yield _Subject(base, "us", trivial)
    yield _Subject("tool call and grade", "us", _oracle_turns(env, episodes, call_and_grade), base)
    yield _Subject("tool call", "us", _oracle_turns(env, episodes, env.step), base)
    yield _Subject("grade, new state", "us", partial(_grades, states, known=False), base)
    yield _Subject("grade, known state", "us", partial(_grades, states, known=True), base)
    yield _Subject(
        "step with ProgressReward",
        "us",
        _oracle_turns(paid, episodes, paid.step),
        "tool call and grade",
    )
    yield _Subject("json.loads of an action", "us", partial(of_calls, decode))
    yield _Subject(
        "parse_action", "us", partial(of_calls, parse), "json.loads of an action"
    )
    forks = [partial(headway.fork, state) for state in _states(paid, episodes)]
    yield _Subject("fork of a stack", "us", partial(of_calls, forks), "tool call and grade")


def _states(
    env: gym.Env[Any, Any], episodes: Sequence[_Episode]
) -> Iterator[gym.Env[Any, Any]]:
    """The environment after each turn, its last state graded and the present one not yet."""
    for episode in episodes:
        env.reset(seed=0, options=episode.options)
        for action in episode.actions:
            env.step(action)
            yield headway.fork(env)
            env.unwrapped.grade()


def _grades(states: Sequence[gym.Env[Any, Any]], *, known: bool) -> float:
    calls = [headway.fork(state).unwrapped.grade for state in states]
    if known:
        of_calls(calls)
    return of_calls(calls)


class _Trivial(gym.Env[int, int]):
    """Returns the five values."""

    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 0, 0.0, False, False, {}
