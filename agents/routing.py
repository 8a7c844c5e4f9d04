"""Weights of turns in an advantage: gates, trust in a judge, discounts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headway.agents.trajectory import Trajectory
from headway.arguments import number

Array = NDArray[np.float64]
Groups = Sequence[Sequence[Trajectory]]

Routing = Callable[[Groups, float], list[list[Array]]]
"""``routing(groups, gamma)``: a weight for every turn of every trajectory. It is given the scored
trajectories only. Reading the *others* of a group, or the past of a turn, keeps an estimator
unbiased; reading what came of the turn itself does not."""

ROUNDING = 1e-12
"""Rates that differ by no more than this are one rate."""


def gate_group(low: float = 0.0, high: float = 1.0, *, closed: float = 0.0) -> Routing:
    """Opens for a trajectory where the success rate of the *others* in its group is in a range.

    A gate that read the trajectory's own outcome too would pay for opening it, and the gradient of
    that would be missing. Read from the others it is a weight: with w the chance that it is open,
    the expected update is the gradient of ``E[outcome] + w * E[what is gated]`` at constant w.

    Args:
        low: Lowest rate at which it is open, in [0, 1].
        high: Highest, in [low, 1].
        closed: The weight where it is closed, in [0, 1].

    Raises:
        ValueError: An argument is outside its range.

    Source: GRPO-lambda (2025) with ``low=0.5`` for costs; RLAnything (2026) with 1/8 and 7/8.
    """
    low, closed = number("low", low, "[0, 1]"), number("closed", closed, "[0, 1]")
    high = number("high", high, f"[{low}, 1]")

    def weights(group: Sequence[Trajectory]) -> Iterator[float]:
        wins = sum(t.success for t in group)
        for one in group:
            rate = (wins - one.success) / max(1, len(group) - 1)
            opens = len(group) > 1 and low - ROUNDING <= rate <= high + ROUNDING
            yield 1.0 if opens else closed

    return _by_group(weights)


def trust(channel: str = "rubric") -> Routing:
    """How far a judge is to be trusted with a trajectory, by what it said of the *others*.

    1 where the successes among them were scored at least as high as the failures, else
    ``exp(mean of successes - mean of failures)``; 0 where there are not both.

    Args:
        channel: What the judge's score was paid as.

    Source: Trust-GRPO (2025), whose weight reads the trajectory itself as well.
    """

    def weights(group: Sequence[Trajectory]) -> Iterator[float]:
        scores = [sum(turn.channels.get(channel, 0.0) for turn in t.turns) for t in group]
        for place, _ in enumerate(group):
            others = [i for i in range(len(group)) if i != place]
            right = [scores[i] for i in others if group[i].success]
            wrong = [scores[i] for i in others if not group[i].success]
            if not right or not wrong:
                yield 0.0
            else:
                yield min(1.0, math.exp(sum(right) / len(right) - sum(wrong) / len(wrong)))

    return _by_group(weights)


def discounted(groups: Groups, gamma: float) -> list[list[Array]]:
    """``gamma**t`` for turn t: with it, return-to-go gives the gradient of the discounted return.

    Usual, and the default here, is to leave it out, which weighs late turns as if they were first.

    Source: Nota and Thomas (2020).
    """
    return [[gamma ** np.arange(len(t.turns), dtype=np.float64) for t in g] for g in groups]


def saturation(alpha: float = 0.5, level: float = 0.9) -> Routing:
    """Less for each turn after the task was all but done: ``1 - alpha * (1 - exp(-n))``.

    n counts the earlier turns that ended above ``level`` in progress.

    Args:
        alpha: In [0, 1].
        level: In [0, 1].

    Raises:
        ValueError: An argument is outside its range.

    Source: SPAE (2026), with verified progress for its probes.
    """
    alpha, level = number("alpha", alpha, "[0, 1]"), number("level", level, "[0, 1]")

    def weight(trajectory: Trajectory) -> Array:
        above = np.cumsum([0.0, *(turn.progress > level for turn in trajectory.turns[:-1])])
        found: Array = 1.0 - alpha * (1.0 - np.exp(-above))
        return found

    return lambda groups, gamma: [[weight(t) for t in group] for group in groups]


def _by_group(weights: Callable[[Sequence[Trajectory]], Iterable[float]]) -> Routing:
    """A routing that gives all turns of a trajectory one weight."""
    return lambda groups, gamma: [
        [np.full(len(t.turns), w) for t, w in zip(group, weights(group), strict=True)]
        for group in groups
    ]
