"""Bounded channels over a potential: pure classes, no Gymnasium.

A potential is in [0, 1]; the verdict's progress unless another one is given. A turn without a
verdict keeps the last measurement; nothing is paid until there is a first one, from which all sums
then start. Where strict shaping begins without a verdict, that first one is paid for instead: what
nobody has measured counts as 0, as at the end.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from headway.arguments import number, one_of
from headway.verifiers import Checks, Look, Potential, Verdict
from headway.wrappers.channel import Bound, Channel, Ended

AtEnd = Literal["zero", "keep"]
"""What the potential counts as at the end of an episode: nothing, or what it is."""


class PotentialChannel(Channel):
    """A channel that pays for how a potential moves.

    Args:
        name: Name of the channel.
        potential: What it reads; None for the verdict's progress. Copied.
    """

    memory: ClassVar[tuple[str, ...]] = ("phi",)

    def __init__(self, name: str, potential: Potential | None) -> None:
        super().__init__(name)
        self.signal = Checks() if potential is None else copy.deepcopy(potential)
        self.direct = type(self.signal) is Checks  # then the value is at hand: no call for it
        self.potential = self.signal.name
        self.hears = self.signal.hears
        self.phi = None

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Passes on to the potential what a turn looked like."""
        self.failed = ""
        self.signal.hear(action, observation, info, look)

    def begin(self, before: Verdict) -> None:
        """Takes the potential of the first state."""
        self.signal.begin(before)
        self.phi = self._measured(before) if before.status == "ok" else None

    def moved(self, after: Verdict) -> tuple[float | None, float | None]:
        """The last measurement and this one; the same one twice where there is no verdict."""
        was = self.phi
        if after.status == "ok":
            self.phi = after.progress if self.direct else self._measured(after)
        return was, self.phi

    def _measured(self, verdict: Verdict) -> float | None:
        value = self.signal.value(verdict)
        self.failed = self.signal.failed
        return value

    def state_dict(self) -> dict[str, Any]:
        """The memory as a copy, that of the potential in it."""
        return {**super().state_dict(), "signal": self.signal.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state_dict` returned.

        Raises:
            ValueError: ``state`` is of another kind of channel.
        """
        rest = {name: value for name, value in state.items() if name != "signal"}
        super().load_state_dict(rest)
        self.signal.load_state_dict(state.get("signal", {}))
        self.failed = self.signal.failed


class Diff(PotentialChannel):
    """Pays ``scale * (gamma * phi' - phi)`` for a turn from potential ``phi`` to ``phi'``.

    Discounted by the same ``gamma`` an episode of T turns sums to
    ``scale * (gamma**T * phi_T - phi_0)``, phi_T being 0 at an end that counts as ``"zero"``. So
    loops, and doing and undoing, pay at most nothing: 0 under ``gamma=1``, less than 0 below it.
    With both ends ``"zero"`` (strict shaping) that is ``-scale * phi_0`` whatever is done, and 0
    where the first state had no verdict.

    Args:
        name: Name of the channel.
        gamma: The learner's discount per turn, in (0, 1]. Under another one a policy can farm.
        scale: In (0, inf).
        terminal: What phi' counts as on a turn that terminates.
        on_truncation: The same on a turn that truncates and does not terminate.
        potential: What it reads; None for the verdict's progress.

    Raises:
        ValueError: An argument is outside its range.

    Source: Ng, Harada and Russell (1999); Grzes (2017) for the ends.
    """

    def __init__(
        self,
        name: str,
        *,
        gamma: float,
        scale: float,
        terminal: AtEnd,
        on_truncation: AtEnd,
        potential: Potential | None = None,
    ) -> None:
        super().__init__(name, potential)
        self.gamma = number("gamma", gamma, "(0, 1]")
        self.scale = number("scale", scale, "(0, inf)")
        ends = {
            "terminated": one_of("terminal", terminal, ("zero", "keep")),
            "truncated": one_of("on_truncation", on_truncation, ("zero", "keep")),
        }
        self.zero_at = tuple(ended for ended, rule in ends.items() if rule == "zero")
        self.strict = len(self.zero_at) == len(ends)

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """The scaled difference; 0.0 as long as nothing was ever measured."""
        # moved(), written out: this runs every turn.
        was = now = self.phi
        if after.status == "ok":
            now = self.phi = after.progress if self.direct else self._measured(after)
        if was is None or now is None:
            if now is None or not self.strict:
                return 0.0
            was = 0.0  # a sum that began with the first measurement would depend on what was done
        if ended != "no" and ended in self.zero_at:
            now = 0.0
        return self.scale * (self.gamma * now - was)

    def keeps_optimum(self, gamma: float) -> bool:
        """With both ends ``"zero"``, for a learner with the channel's own discount."""
        return self.strict and self.gamma == gamma

    def bound(self, gamma: float) -> Bound:
        """What it can pay; ``gamma`` is the learner's.

        Where that is not the channel's own, standing still has a price (the channel's is lower) or
        a pay (it is higher), which the bound includes.

        Raises:
            ValueError: ``gamma`` is outside (0, 1].
        """
        gamma = number("gamma", gamma, "(0, 1]")
        gap = self.gamma - gamma
        stay = gap / (1.0 - gamma) if gamma < 1.0 else math.copysign(math.inf, gap) if gap else 0.0
        low, high = 1.0 + max(0.0, -stay), max(0.0, stay)
        if not self.strict:
            high = self.gamma
        return Bound(-self.scale * low, self.scale * high, -self.scale, self.scale * self.gamma)


WINDOW = 1000
"""How many amounts of a channel a filter remembers: the policy that made older ones is gone."""


def remember(amounts: list[float], amount: float) -> None:
    """Adds an amount to the last ``WINDOW`` of a channel."""
    amounts.append(amount)
    if len(amounts) > WINDOW:
        del amounts[0]


def endless(amount: float, gamma: float) -> float:
    """The discounted sum of ``amount`` in every turn of an episode without end."""
    if gamma < 1.0:
        return amount / (1.0 - gamma)
    return math.copysign(math.inf, amount) if amount else 0.0
