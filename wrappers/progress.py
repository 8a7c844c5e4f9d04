"""Dense rewards from verified progress: credit that is kept, and shaping that is given back."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from headway.arguments import number
from headway.verifiers import potential_named
from headway.wrappers.channel import ChannelWrapper
from headway.wrappers.transforms import AtEnd, Diff


class ProgressReward(ChannelWrapper):
    """Pays ``c * (gamma * phi' - phi)`` each turn, and lets the agent keep it at the end.

    An episode of T turns sums to ``c * (gamma**T * phi_T - phi_0)`` under the same discount. It
    is part of what is optimised, so it also teaches where no episode succeeds; in return the best
    policy may change. Under ``gamma < 1`` standing still at ``phi`` costs ``c * (1 - gamma) * phi``
    a turn.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        gamma: Discount per turn in (0, 1]; must equal the learner's.
        c: Worth of the whole task's progress beside the outcome of 1.0, in (0, 1).
        potential: What counts as progress: one of ``POTENTIALS``, or ``"module:function"``. A task
            that has nothing of the kind pays nothing.
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: ProCredit (2026), with differences under the learner's discount: undiscounted ones can
    be farmed by gaining progress early and losing it late.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        gamma: float,
        c: float = 0.5,
        potential: str = "checks",
        name: str = "progress",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self, gamma=gamma, c=c, potential=potential, name=name
        )
        channel = Diff(
            name,
            gamma=gamma,
            scale=number("c", c, "(0, 1)"),
            terminal="keep",
            on_truncation="keep",
            potential=potential_named(potential),
        )
        super().__init__(env, channel)


class PotentialShaping(ChannelWrapper):
    """Pays ``beta * (gamma * phi' - phi)`` each turn, and takes it all back at the end.

    With the defaults and ``on_truncation="zero"`` an episode sums to ``-beta * phi_0`` under the
    same discount, whatever is done, so the best policies stay the best. It helps a learner that
    bootstraps; one that compares whole episodes sees a constant.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        gamma: Discount per turn in (0, 1]; must equal the learner's.
        on_truncation: ``"zero"`` if the learner takes a cut episode as ended (Monte-Carlo),
            ``"keep"`` if it bootstraps from the last state. With ``"keep"`` and no bootstrap it
            pays not to submit.
        terminal: ``"zero"``, or ``"keep"`` for progress credit with its own weight.
        beta: Weight in (0, 1e6]; beyond that the outcome would be lost in rounding.
        potential: What is shaped with: one of ``POTENTIALS``, or ``"module:function"``.
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: Ng, Harada and Russell (1999); Grzes (2017) for the ends.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        gamma: float,
        on_truncation: AtEnd,
        terminal: AtEnd = "zero",
        beta: float = 1.0,
        potential: str = "checks",
        name: str = "potential",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self,
            gamma=gamma,
            on_truncation=on_truncation,
            terminal=terminal,
            beta=beta,
            potential=potential,
            name=name,
        )
        channel = Diff(
            name,
            gamma=gamma,
            scale=number("beta", beta, "(0, 1e6]"),
            terminal=terminal,
            on_truncation=on_truncation,
            potential=potential_named(potential),
        )
        super().__init__(env, channel)
