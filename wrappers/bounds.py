"""Rewards that repeating cannot raise: the best so far, losses only, differences that telescope."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import gymnasium as gym

from headway.arguments import number
from headway.verifiers import Potential, Record, Verdict, potential_named
from headway.wrappers.channel import Bound, ChannelWrapper, Ended, Filter, FilterWrapper
from headway.wrappers.transforms import PotentialChannel, endless, remember


class Watermark(PotentialChannel):
    """Pays ``scale * max(0, phi' - h)``, h being the highest potential of the episode so far.

    An episode pays ``scale * (max phi - phi_0)`` in all, in any order that has the same running
    maximum. Under the learner's ``gamma`` a rise at turn t counts ``gamma**t``: never more than
    ``scale``, which is reached by rising from 0 to 1 on the first turn, and a rise that is put
    off is worth less. What was paid is kept when the potential falls again.

    Args:
        name: Name of the channel.
        scale: In (0, inf).
        potential: What it reads; None for the verdict's progress. Copied.

    Raises:
        ValueError: ``scale`` is outside its range.

    Source: the watermark of MIG, there over answer likelihoods.
    """

    memory: ClassVar[tuple[str, ...]] = ("phi", "high")

    def __init__(self, name: str, *, scale: float, potential: Potential | None = None) -> None:
        super().__init__(name, potential)
        self.scale = number("scale", scale, "(0, inf)")
        self.high: float | None = None

    def begin(self, before: Verdict) -> None:
        """Starts from the potential of the first state."""
        super().begin(before)
        self.high = self.phi

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """The scaled rise beyond all before; 0.0 as long as nothing was ever measured."""
        _, now = self.moved(after)
        high = self.high
        if now is None or (high is not None and now <= high):
            return 0.0
        self.high = now
        return 0.0 if high is None else self.scale * (now - high)

    def bound(self, gamma: float) -> Bound:
        """Nothing is charged, and the whole rise is paid once."""
        return Bound(0.0, self.scale, 0.0, self.scale)


class WatermarkReward(ChannelWrapper):
    """Pays ``c`` times what a turn adds to the best potential of the episode so far.

    ``c * (max phi - phi_0)`` over an episode, at most ``c`` under any discount; doing and undoing
    pays once. Other than with ``ProgressReward`` nothing is charged for losing it again, so the
    best policy may touch the goal and drop it.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        c: Worth of the whole task's progress beside the outcome of 1.0, in (0, 1).
        potential: What it reads: a name in ``headway.verifiers.POTENTIALS``, or
            ``"module:function"`` for one of your own.
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: MIG (2026).
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        c: float = 0.5,
        potential: str = "checks",
        name: str = "watermark",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, c=c, potential=potential, name=name)
        c = number("c", c, "(0, 1)")
        super().__init__(env, Watermark(name, scale=c, potential=potential_named(potential)))


class Clip(Filter):
    """Leaves ``alpha * min(x - eta, 0)`` of an amount x: bad turns cost, good ones pay nothing.

    Args:
        alpha: Weight in (0, inf).
        eta: What a turn has to earn so as not to cost anything; None for the q-quantile of what
            each channel paid in earlier episodes, the last ``WINDOW`` turns of them. A channel
            without any past has no bad turns yet.
        q: In [0, 1].

    Raises:
        ValueError: An argument is outside its range.
    """

    memory: ClassVar[tuple[str, ...]] = ("seen", "etas")

    def __init__(self, alpha: float, eta: float | None, q: float) -> None:
        self.alpha = number("alpha", alpha, "(0, inf)")
        self.eta = None if eta is None else number("eta", eta, "(-inf, inf)")
        self.lasting = eta is None
        self.q = number("q", q, "[0, 1]")
        self.seen: dict[str, list[float]] = {}
        self.etas: dict[str, float] = {}

    def begin(self, record: Record) -> None:
        """Fixes each channel's eta for the episode, so that siblings are paid alike."""
        self.etas = {
            name: sorted(amounts)[max(0, math.ceil(self.q * len(amounts)) - 1)]
            for name, amounts in self.seen.items()
        }

    def step(self, record: Record, ended: Ended) -> None:
        """Clips the amounts of one turn."""
        paid, eta = record["channels"], self.eta
        for name, amount in paid.items():
            if self.eta is None:
                remember(self.seen.setdefault(name, []), amount)
                eta = self.etas.get(name, amount)
            paid[name] = self.alpha * (amount - eta) if amount < eta else 0.0

    def bound(self, inner: Bound, gamma: float) -> Bound:
        """At most 0 however long an episode is; each turn may cost, so at least nothing finite."""
        if self.eta is None:
            least, most = (inner.least - inner.most if inner.least < inner.most else 0.0), 0.0
        else:
            least, most = min(inner.least - self.eta, 0.0), min(inner.most - self.eta, 0.0)
        least, most = self.alpha * least, self.alpha * most
        return Bound(endless(least, gamma), most, least, most)


class ClippedReward(FilterWrapper):
    """Takes from the channels inside it all that they pay; what is below ``eta`` costs.

    ``alpha * min(x - eta, 0)`` for an amount x, so no repetition of good turns pays, and an
    episode never returns more than its outcome. Bad turns cost as often as there are any, so it
    also teaches to end early. The quantile's statistics outlast episodes: they are part of the
    layer's state, and each lane of a vector has its own.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        alpha: Weight in (0, inf).
        eta: What a turn has to earn so as not to cost anything; None for the q-quantile of what
            each channel paid in the last ``WINDOW`` turns of earlier episodes.
        q: In [0, 1], read where ``eta`` is None.

    Raises:
        ValueError: An argument is outside its range.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: Gao et al. (2024), arXiv 2410.15115; the running quantile is our own.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        alpha: float = 0.1,
        eta: float | None = None,
        q: float = 0.1,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, alpha=alpha, eta=eta, q=q)
        super().__init__(env, Clip(alpha, eta, q))


class Delta(Filter):
    """Pays ``alpha * (p - gamma * p')`` for amounts p and p' of successive turns, one turn late.

    The turn that follows must be known first. Of an episode of T turns, whose scores are
    ``p_0 ... p_{T-1}``, turn 0 pays nothing, the last one ``alpha * p_{T-2}`` and the others
    ``alpha * (p_{t-1} - gamma * p_t)``. Discounted, that sums to ``alpha * gamma * p_0`` whatever T
    is, and to 0 if T = 1; what is paid after turn t sums to ``alpha * p_t``, counted from turn
    t + 1. The last score has no part in it: that turn belongs to the outcome.

    Args:
        gamma: The learner's discount per turn, in (0, 1].
        alpha: Weight in (0, inf).

    Raises:
        ValueError: An argument is outside its range.
    """

    memory: ClassVar[tuple[str, ...]] = ("last",)

    def __init__(self, gamma: float, alpha: float) -> None:
        self.gamma = number("gamma", gamma, "(0, 1]")
        self.alpha = number("alpha", alpha, "(0, inf)")
        self.last: dict[str, float] = {}

    def begin(self, record: Record) -> None:
        """Forgets the last episode."""
        self.last = {}

    def step(self, record: Record, ended: Ended) -> None:
        """Pays each channel for the turn before this one."""
        paid, last = record["channels"], self.last
        for name, now in paid.items():
            was = last.get(name)
            last[name] = now
            if was is None:
                paid[name] = 0.0
            else:
                paid[name] = self.alpha * (was - (self.gamma * now if ended == "no" else 0.0))

    def bound(self, inner: Bound, gamma: float) -> Bound:
        """One score's worth, if ``gamma`` is the filter's own; else each turn leaves a gap."""
        least, most = min(0.0, inner.least), max(0.0, inner.most)
        gap = gamma - self.gamma
        gaps = sorted((gap * least, gap * most)) if gap else (0.0, 0.0)
        low, high = (
            self.alpha * (gamma * score + endless(gamma * rest, gamma))
            for score, rest in zip((least, most), gaps, strict=True)
        )
        return Bound(
            low,
            high,
            self.alpha * (least - self.gamma * most),
            self.alpha * (most - self.gamma * least),
        )


class DeltaReward(FilterWrapper):
    """Pays the channels inside it by differences, so that their sum cannot grow with the turns.

    Turn t pays ``alpha * (p_{t-1} - gamma * p_t)`` for scores p of the channel inside, the last
    ``alpha * p_{T-2}`` and the first nothing: discounted, ``alpha * gamma * p_0`` in all, 0 in an
    episode of one turn. The published form pays each turn its own difference, which needs the next
    score; here it is paid when that is known, one turn late, and is a reward like any other. A
    trainer that moves the amounts back to the turns they are for credits turn t with the score
    ``alpha * p_t``.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        gamma: Discount per turn in (0, 1]; must equal the learner's.
        alpha: Weight in (0, inf).

    Raises:
        ValueError: An argument is outside its range.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: Gao et al. (2024), arXiv 2410.15115, where nothing is discounted.
    """

    def __init__(self, env: gym.Env[Any, Any], *, gamma: float, alpha: float = 0.1) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, gamma=gamma, alpha=alpha)
        super().__init__(env, Delta(gamma, alpha))
