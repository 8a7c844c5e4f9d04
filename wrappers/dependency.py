"""Rewards that follow a graph of dependencies, and pay later than it moves."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import gymnasium as gym

from headway.arguments import number, one_of
from headway.verifiers import Graph, Potential, Record, Verdict
from headway.verifiers.graph import Decay
from headway.wrappers.channel import Bound, ChannelWrapper, Ended, Filter, FilterWrapper
from headway.wrappers.transforms import Diff

Clipping = Literal["carry", "lose"]
"""What becomes of a change past the limit of a turn: paid on later turns, or never."""


class Paced(Diff):
    """Pays for a potential as it is followed by a level that moves at most ``kappa`` a turn.

    The level ``L`` begins at the first potential and goes ``clip(phi' - L, -kappa, kappa)`` nearer
    to it each turn, all the way on the last one; a turn pays ``scale * (gamma * L' - L)``. So an
    episode sums to what :class:`Diff` pays, and with ``kappa >= 1`` each turn does.

    With ``clipping="lose"`` a turn pays ``scale * clip(phi' - phi, -kappa, kappa)``, as in the
    paper, and an agent can farm it: lose everything in one turn, at the price of ``kappa``, and
    gain it again in several.

    Args:
        name: Name of the channel.
        gamma: The learner's discount per turn, in (0, 1].
        scale: In (0, inf).
        kappa: In (0, inf).
        clipping: ``"carry"`` or ``"lose"``.
        potential: What is followed; None for the verdict's progress.

    Raises:
        ValueError: An argument is outside its range.

    Source: DARS (2026); that what is clipped off is carried on is our own.
    """

    memory: ClassVar[tuple[str, ...]] = ("phi", "level")

    def __init__(
        self,
        name: str,
        *,
        gamma: float,
        scale: float,
        kappa: float,
        clipping: Clipping = "carry",
        potential: Potential | None = None,
    ) -> None:
        super().__init__(
            name,
            gamma=gamma,
            scale=scale,
            terminal="keep",
            on_truncation="keep",
            potential=potential,
        )
        self.kappa = number("kappa", kappa, "(0, inf)")
        self.clipping: Clipping = one_of("clipping", clipping, ("carry", "lose"))
        self.level: float | None = None

    def begin(self, before: Verdict) -> None:
        """The level starts at the potential of the first state."""
        super().begin(before)
        self.level = self.phi

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """What the level moved; 0.0 as long as nothing was ever measured."""
        was, now = self.moved(after)
        level = self.level
        if was is None or now is None or level is None:
            self.level = now
            return 0.0
        if self.clipping == "lose":
            return self.scale * self._clip(now - was)
        self.level = level + self._clip(now - level) if ended == "no" else now
        return self.scale * (self.gamma * self.level - level)

    def bound(self, gamma: float) -> Bound:
        """That of a difference; with ``"lose"`` nothing but the number of turns limits a sum."""
        if self.clipping == "carry":
            return super().bound(gamma)
        gamma = number("gamma", gamma, "(0, 1]")
        most = self.scale * min(1.0, self.kappa)
        every = most / (1.0 - gamma) if gamma < 1.0 else math.inf
        return Bound(-every, every, -most, most)

    def _clip(self, change: float) -> float:
        return max(-self.kappa, min(self.kappa, change))


class DependencyReward(ChannelWrapper):
    """Pays for progress through the graph of checks, at most ``kappa`` of it a turn.

    phi is :class:`headway.verifiers.Graph`: the mean of what the acting checks are worth, which is
    less for those that rest on something broken. What a turn moves past ``kappa`` is paid on the
    next ones, and the rest on the last, so under the same discount an episode of T turns sums to
    ``rho * (gamma**T * phi_T - phi_0)``. It is kept at the end, so the best policy may change.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        gamma: Discount per turn in (0, 1]; must equal the learner's.
        rho: Worth of the whole graph beside the outcome of 1.0, in (0, 1).
        lam: How much a break costs what rests on it, in (0, inf): ``exp(-lam / d)`` is left at
            distance d.
        kappa: In (0, inf); 1 or more sets no limit.
        decay: ``"near"``, or ``"far"`` for ``exp(-lam * d)``.
        clipping: ``"carry"``, or ``"lose"`` for the paper's ``rho * clip(phi' - phi)``, which can
            be farmed: to reproduce, not to train on.
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: DARS (2026), with differences under the learner's discount and nothing lost to the
    limit.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        gamma: float,
        rho: float = 0.5,
        lam: float = 0.5,
        kappa: float = 0.3,
        decay: Decay = "near",
        clipping: Clipping = "carry",
        name: str = "dependency",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self,
            gamma=gamma,
            rho=rho,
            lam=lam,
            kappa=kappa,
            decay=decay,
            clipping=clipping,
            name=name,
        )
        channel = Paced(
            name,
            gamma=gamma,
            scale=number("rho", rho, "(0, 1)"),
            kappa=kappa,
            clipping=clipping,
            potential=Graph(lam=lam, decay=decay),
        )
        super().__init__(env, channel)


class Later(Filter):
    """Pays ``alpha`` of each gain at once, and on the last turn whatever is still owed.

    What is owed grows by ``1 / gamma`` a turn, so the sum of an episode under that discount stays
    what it was, and with it the order of all policies.

    Args:
        gamma: The learner's discount per turn, in (0, 1].
        alpha: In [0, 1]; 1 pays gains at once and charges losses at the end.

    Raises:
        ValueError: An argument is outside its range.
    """

    memory: ClassVar[tuple[str, ...]] = ("owed",)

    def __init__(self, gamma: float, alpha: float) -> None:
        self.gamma = number("gamma", gamma, "(0, 1]")
        self.alpha = number("alpha", alpha, "[0, 1]")
        self.owed: dict[str, float] = {}

    def begin(self, record: Record) -> None:
        """Nothing is owed."""
        self.owed = {}

    def step(self, record: Record, ended: Ended) -> None:
        """Moves what each channel pays."""
        paid = record["channels"]
        for name, amount in paid.items():
            due = self.owed.get(name, 0.0) / self.gamma + amount
            paid[name] = self.alpha * max(0.0, amount) if ended == "no" else due
            self.owed[name] = due - paid[name]

    def keeps_optimum(self, gamma: float) -> bool:
        """For a learner with the filter's own discount, under which no sum changes."""
        return self.gamma == gamma

    def bound(self, inner: Bound, gamma: float) -> Bound:
        """The same sums under the filter's own discount; no bound under another one."""
        never = inner.least == inner.most == 0.0
        least, most = (0.0, 0.0) if never else (-math.inf, math.inf)
        if number("gamma", gamma, "(0, 1]") == self.gamma:
            return Bound(inner.low, inner.high, least, most)
        return Bound(least, most, least, most)


class Redistribute(FilterWrapper):
    """Moves what the channels inside it pay towards the end, at the same return.

    A turn pays ``alpha * max(x, 0)`` of each channel's ``x``; the last one the rest, which grew
    by ``1 / gamma`` a turn. The discounted sum of an episode is what it was, so nothing that is
    best changes; a learner that looks at single turns is told less by them.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        gamma: Discount per turn in (0, 1]; must equal the learner's.
        alpha: Share of a gain that is paid at once, in [0, 1].

    Raises:
        ValueError: An argument is outside its range.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: DARS (2026).
    """

    def __init__(self, env: gym.Env[Any, Any], *, gamma: float, alpha: float = 0.25) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, gamma=gamma, alpha=alpha)
        super().__init__(env, Later(gamma, alpha))
