"""Controls: what trajectories were paid, changed so that it says nothing about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headway.agents.credit import measured
from headway.agents.routing import Array, Groups
from headway.agents.trajectory import Trajectory
from headway.arguments import one_of

Amounts = dict[str, Array]
"""What each channel paid in each turn."""

PLACEBOS = ("shuffle_traj", "shuffle_turns", "random", "mismatch")
"""Kinds of :func:`placebo`."""


def placebo(groups: Groups, kind: str, rng: np.random.Generator) -> list[list[Trajectory]]:
    """The same trajectories, their channels paying what says nothing about them.

    The outcome stays. ``"shuffle_traj"`` deals the episodes' amounts out anew within each group,
    each way equally likely: as a trajectory may be dealt its own, and is compared with others that
    may hold it, the two cancel on average. They do where whole trajectories are compared; where
    turns are, some of the signal is left (``python -m headway.bench.unbiased`` prints how much).
    ``"shuffle_turns"`` does it within each trajectory, so sums stay and turns are wrong.
    ``"random"`` draws every amount from all of the batch, less their mean, or it would be pay for
    making turns. ``"mismatch"`` deals the amounts of a trajectory of another task; where none of
    those was scored a group is left out. Amounts of a longer episode are paid on the last turn of
    the shorter.

    Args:
        groups: As :func:`advantages` takes them; they are left as they are.
        kind: One of :data:`PLACEBOS`.
        rng: What chance is drawn from.

    Raises:
        ValueError: ``kind`` is unknown, or there is no other task.

    Source: placebo arms as in Spurious Rewards (2025).
    """
    one_of("kind", kind, PLACEBOS)
    paid = [[_channels(t) for t in group] for group in groups]
    found = []
    for group, row in zip(groups, paid, strict=True):
        own = [amounts for amounts in row if amounts is not None]
        if kind == "shuffle_traj":
            dealt = [own[i] for i in rng.permutation(len(own))]
        elif kind == "shuffle_turns":
            dealt = [_reordered(amounts, rng) for amounts in own]
        elif kind == "random":
            dealt = [_drawn(amounts, paid, rng) for amounts in own]
        else:
            others = _of_others(groups, paid, group[0].task_id) if own else []
            if own and not others:
                found.append([_lost(t) for t in group])
                continue
            dealt = [others[rng.integers(len(others))] for _ in own]
        left = iter(dealt)
        pairs = zip(group, row, strict=True)
        found.append([t if old is None else paying(t, next(left)) for t, old in pairs])
    return found


def _channels(trajectory: Trajectory) -> Amounts | None:
    """What each channel paid in each turn, without the outcome; None if that is not known."""
    found = measured(trajectory)
    return None if found is None else {n: x for n, x in found.items() if n != "base"}


def _reordered(amounts: Amounts, rng: np.random.Generator) -> Amounts:
    """The turns in random order, the same for all channels."""
    length = max(map(len, amounts.values()), default=0)
    order = rng.permutation(length)
    return {name: x[order] for name, x in amounts.items()}


def _drawn(
    amounts: Amounts, paid: Sequence[Sequence[Amounts | None]], rng: np.random.Generator
) -> Amounts:
    """As many amounts of each channel, drawn from all that it paid, less their mean."""
    found = {}
    for name, x in amounts.items():
        pool = np.concatenate([one[name] for row in paid for one in row if one and name in one])
        found[name] = rng.choice(pool, len(x)) - pool.mean()
    return found


def _of_others(
    groups: Groups, paid: Sequence[Sequence[Amounts | None]], task_id: str
) -> list[Amounts]:
    """What trajectories of other tasks were paid."""
    found = [
        amounts
        for group, row in zip(groups, paid, strict=True)
        for amounts in row
        if amounts is not None and group[0].task_id != task_id
    ]
    if not found and all(group[0].task_id == task_id for group in groups):
        raise ValueError(f"kind 'mismatch' needs trajectories of a task beside {task_id!r}")
    return found


def _lost(trajectory: Trajectory) -> Trajectory:
    """A copy that is learnt nothing from."""
    if not trajectory.turns:
        return trajectory
    last = replace(trajectory.turns[-1], unmeasured="placebo: no trajectory of another task")
    return replace(trajectory, turns=[*trajectory.turns[:-1], last])


def paying(trajectory: Trajectory, amounts: Amounts) -> Trajectory:
    """A copy that was paid these amounts, the surplus on its last turn.

    Args:
        trajectory: Has a turn.
        amounts: By channel, one a turn of any number of turns.
    """
    length = len(trajectory.turns)
    fitted = {}
    for name, x in amounts.items():
        fitted[name] = np.zeros(length)
        fitted[name][: len(x)] = x[:length]
        fitted[name][-1] += x[length:].sum()
    turns = [
        replace(turn, channels={name: float(x[t]) for name, x in fitted.items()})
        for t, turn in enumerate(trajectory.turns)
    ]
    return replace(trajectory, turns=turns)
