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


# The oracle's episodes, one a template, so that the state changes as it does in real work. The
# submission is left out: it ends the episode, and grades whether asked to or not.


@dataclass(frozen=True, slots=True)
class _Episode:
    options: dict[str, Any]
    actions: list[str]


def _episodes() -> list[_Episode]:
    env, out = _make(), []
    for template in _templates():
        options = {"template": template}
        env.reset(seed=0, options=options)
        out.append(_Episode(options, env.unwrapped.solution()[:-1]))
    return out


def _turns() -> Iterator[_Subject]:
    """A turn and its parts, beside a step that does nothing."""
    episodes = _episodes()
    actions = [episode.actions for episode in episodes]
    trivial, env, stack = gym.make(_TRIVIAL), _make(), ProgressReward(_make(), gamma=1.0)
    grade = env.unwrapped.grade

    def call_and_grade(action: str) -> None:
        env.step(action)
        grade()
    ...
