"""What is settled on the last turn: a price for the turns, a bonus for going on making progress."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym

from headway.arguments import number
from headway.verifiers import Potential, Verdict, potential_named
from headway.wrappers.bounds import Watermark
from headway.wrappers.channel import Bound, Channel, ChannelWrapper, Ended
from headway.wrappers.gate import predicate

LONG = 8
"""Turns from which on an episode has a later stage."""


class TurnCost(Channel):
    """Charges ``min(cost * T, cap)`` at the end of a successful episode of T turns.

    Args:
        name: Name of the channel.
        cost: Price of a turn, in (0, 1).
        cap: Most that an episode is charged, in (0, 1).

    Raises:
        ValueError: An argument is outside its range.
    """

    memory: ClassVar[tuple[str, ...]] = ("turns",)

    def __init__(self, name: str, *, cost: float, cap: float) -> None:
        super().__init__(name)
        self.cost = number("cost", cost, "(0, 1)")
        self.cap = number("cap", cap, "(0, 1)")
        self.turns = 0

    def begin(self, before: Verdict) -> None:
        """Counts from 0."""
        self.turns = 0

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """The price where this turn ends the episode in success, else 0.0."""
        self.turns += 1
        if ended == "no" or not after.success:
            return 0.0
        return -min(self.cost * self.turns, self.cap)

    def bound(self, gamma: float) -> Bound:
        """At most the cap is charged."""
        return Bound(-self.cap, 0.0, -self.cap, 0.0)


class TurnCostReward(ChannelWrapper):
    """Makes short successes better than long ones: ``-min(cost * T, cap)`` at the end of one.

    A failure costs nothing, so giving up early is no way to save. The price falls due on the turn
    that pays the outcome of 1.0, so a success of T turns is worth at least
    ``gamma**(T - 1) * (1 - cap)``, more than any failure's 0, under every discount, with this layer
    alone: beside one that pays failures the cap is to be counted with what that pays. The best
    policy may change: a short way that sometimes fails can beat a long one that never does.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        cost: Price of a turn, in (0, 1).
        cap: Most that an episode is charged, in (0, 1).
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: length penalties on success only, as in GRPO-lambda, where a group decides.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        cost: float = 0.01,
        cap: float = 0.5,
        name: str = "turncost",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, cost=cost, cap=cap, name=name)
        super().__init__(env, TurnCost(name, cost=cost, cap=cap))


class LateBonus(Watermark):
    """Pays ``bonus`` at the end of an episode that went beyond its best in its second half.

    Args:
        name: Name of the channel.
        bonus: In (0, inf).
        gate: What has to hold at the end; a name in ``GATES``, or ``"module:function"``.
        potential: What it reads; None for the verdict's progress. Copied.

    Raises:
        ValueError: An argument is outside its range, or the gate is unknown.
    """

    memory: ClassVar[tuple[str, ...]] = ("phi", "high", "turns", "rose")

    def __init__(
        self, name: str, *, bonus: float, gate: str, potential: Potential | None = None
    ) -> None:
        super().__init__(name, scale=number("bonus", bonus, "(0, inf)"), potential=potential)
        self.holds = predicate(gate)
        self.turns = 0
        self.rose = -1

    def begin(self, before: Verdict) -> None:
        """Takes the potential of the first state, and counts from 0."""
        super().begin(before)
        self.turns, self.rose = 0, -1

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """The bonus or 0.0; without a verdict at the end the gate is closed."""
        if super().step(before, after, ended) > 0.0:
            self.rose = self.turns
        self.turns += 1
        if ended == "no" or self.turns < LONG or self.rose < self.turns / 2:
            return 0.0
        return self.scale if after.status == "ok" and self.holds(after) else 0.0

    def bound(self, gamma: float) -> Bound:
        """The bonus, on turn ``LONG`` at the earliest."""
        return Bound(0.0, self.scale * gamma ** (LONG - 1), 0.0, self.scale)


class LateReward(ChannelWrapper):
    """Pays a bonus at the end if the second half of a long episode made progress of its own.

    ``bonus`` or nothing. Turn t of T is late if ``t >= T / 2``, counted from 0, and T is at least
    ``LONG``. Progress is what goes beyond the best so far, so undoing something early to redo it
    late earns nothing. The best policy may change: it can pay to wait.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        bonus: Worth beside the outcome of 1.0, in (0, 1).
        gate: What has to hold at the end: ``"attempted"``, ``"success"``, ``"clean"``, or a
            function ``Verdict -> bool`` of your own as ``"module:function"``.
        potential: What it reads: a name in ``headway.verifiers.POTENTIALS``, or
            ``"module:function"`` for one of your own.
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: the later stage bonus of Marathoner (2026), a judge's and 0.5 there.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        bonus: float = 0.25,
        gate: str = "attempted",
        potential: str = "checks",
        name: str = "late",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self, bonus=bonus, gate=gate, potential=potential, name=name
        )
        bonus = number("bonus", bonus, "(0, 1)")
        reads = potential_named(potential)
        super().__init__(env, LateBonus(name, bonus=bonus, gate=gate, potential=reads))
