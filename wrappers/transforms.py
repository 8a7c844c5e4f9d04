"""Bounded channels over a potential: pure classes, no Gymnasium.

The potential is ``Verdict.progress``, in [0, 1]. A turn without a verdict keeps the last
measurement; nothing is paid until there is a first one, from which all sums then start.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from headway.arguments import number, one_of
from headway.verifiers import Verdict
from headway.wrappers.channel import Channel, Ended

AtEnd = Literal["zero", "keep"]
"""What the potential counts as at the end of an episode: nothing, or what it is."""


class Diff(Channel):
    """Pays ``scale * (gamma * phi' - phi)`` for a turn from potential ``phi`` to ``phi'``.

    Discounted by the same ``gamma`` an episode of T turns sums to
    ``scale * (gamma**T * phi_T - phi_0)``, phi_T being 0 at an end that counts as ``"zero"``. So
    loops, and doing and undoing, pay at most nothing: 0 under ``gamma=1``, less than 0 below it.

    Args:
        name: Name of the channel.
        gamma: The learner's discount per turn, in (0, 1]. Under another one a policy can farm.
        scale: In (0, inf).
        terminal: What phi' counts as on a turn that terminates.
        on_truncation: The same on a turn that truncates and does not terminate.

    Raises:
        ValueError: An argument is outside its range.

    Source: Ng, Harada and Russell (1999); Grzes (2017) for the ends.
    """

    memory: ClassVar[tuple[str, ...]] = ("phi",)

    def __init__(
        self, name: str, *, gamma: float, scale: float, terminal: AtEnd, on_truncation: AtEnd
    ) -> None:
        super().__init__(name)
        self.gamma = number("gamma", gamma, "(0, 1]")
        self.scale = number("scale", scale, "(0, inf)")
        ends = {
            "terminated": one_of("terminal", terminal, ("zero", "keep")),
            "truncated": one_of("on_truncation", on_truncation, ("zero", "keep")),
        }
        self.zero_at = tuple(ended for ended, rule in ends.items() if rule == "zero")
        self.keeps_optimum = terminal == on_truncation == "zero"
        self.phi = None

    def begin(self, before: Verdict) -> None:
        """Takes the potential of the first state."""
        self.phi = before.progress if before.status == "ok" else None

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """The scaled difference; 0.0 as long as nothing was ever measured."""
        was = now = self.phi
        if after.status == "ok":
            now = self.phi = after.progress
        if was is None or now is None:
            return 0.0
        if ended != "no" and ended in self.zero_at:
            now = 0.0
        return self.scale * (self.gamma * now - was)

    def bound(self, gamma: float) -> tuple[float, float]:
        """Lowest and highest sum of ``gamma**t * step`` over an episode, whatever is done.

        ``gamma`` is the learner's; where it is not the channel's own, standing still has a price
        (the channel's is lower) or a pay (it is higher), which the bound includes.

        Raises:
            ValueError: ``gamma`` is outside (0, 1].
        """
        gamma = number("gamma", gamma, "(0, 1]")
        gap = self.gamma - gamma
        stay = gap / (1.0 - gamma) if gamma < 1.0 else math.copysign(math.inf, gap) if gap else 0.0
        low, high = 1.0 + max(0.0, -stay), max(0.0, stay)
        if len(self.zero_at) < 2:
            high = self.gamma
        return -self.scale * low, self.scale * high
