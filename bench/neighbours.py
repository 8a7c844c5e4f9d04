"""Other people's environments, each entered by its own front door, for ``--against``.

An adapter imports its package only when it is asked for. It returns a measurement of one turn;
what a turn is there stands in its docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import gymnasium as gym

from headway.bench.clock import Sample, of_turns
from headway.envs.tool_env import chosen

TURNS = 10
"""Of an episode."""

EPISODES = 20
"""Of one measurement."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A package to measure beside headway.

    Attributes:
        install: What pip installs.
        prepare: Imports it and returns its measurement.
    """

    install: str
    prepare: Callable[[], Sample]


def measurements(names: Sequence[str]) -> dict[str, Sample]:
    """The measurement of each neighbour.

    Raises:
        ValueError: A name is unknown; the message names the nearest.
        ImportError: A package is not there; the message says how to install it.
    """
    for name in names:
        chosen("against", name, tuple(NEIGHBOURS))
    return {name: _prepared(name) for name in names}


def _prepared(name: str) -> Sample:
    try:
        return NEIGHBOURS[name].prepare()
    except ImportError as error:
        raise ImportError(
            f"against {name!r} needs what is not installed ({error}); "
            f"run pip install {NEIGHBOURS[name].install!r}"
        ) from error


def _gymnasium() -> Sample:
    """A step of Taxi, in the stack that ``gym.make`` builds."""
    env = gym.make("Taxi-v3")
    env.action_space.seed(0)
    episodes = [[env.action_space.sample() for _ in range(TURNS)] for _ in range(EPISODES)]
    return partial(of_turns, episodes, lambda number: env.reset(seed=number), env.step)


def _textarena() -> Sample:
    """An observation and a move of Tower of Hanoi, in the stack that ``textarena.make`` builds."""
    import textarena

    env = textarena.make("TowerOfHanoi-v0")

    def move(action: str) -> None:
        env.get_observation()
        env.step(action)

    there_and_back = [["[A C]", "[C A]"] * (TURNS // 2)] * EPISODES
    return partial(
        of_turns, there_and_back, lambda number: env.reset(num_players=1, seed=number), move
    )


NEIGHBOURS: Mapping[str, Neighbour] = MappingProxyType(
    {
        "gymnasium": Neighbour("gymnasium", _gymnasium),
        "textarena": Neighbour("textarena", _textarena),
    }
)
"""What ``against`` may name."""
