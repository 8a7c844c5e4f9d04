"""Gates: progress that is paid only if something else is true."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import gymnasium as gym

from headway.arguments import named, one_of
from headway.verifiers import Record, Verdict
from headway.wrappers.channel import Bound, Ended, Filter, FilterWrapper

Predicate = Callable[[Verdict], bool]


def attempted(verdict: Verdict) -> bool:
    """Something was changed by the time it was handed in, or the episode ended; right or wrong."""
    return verdict.success or verdict.attempted


def success(verdict: Verdict) -> bool:
    """The task is done."""
    return verdict.success


def clean(verdict: Verdict) -> bool:
    """Nothing is damaged: no violation stands."""
    return not verdict.violations


GATES: Mapping[str, Predicate] = MappingProxyType(
    {"attempted": attempted, "success": success, "clean": clean}
)
"""Predicates by the names that ``GatedReward`` takes."""


def predicate(gate: str) -> Predicate:
    """The predicate of a name.

    Args:
        gate: A name in ``GATES``, or ``"module:function"`` for one of your own.

    Raises:
        ValueError: There is no such name, module or function.
    """
    return named("gate", gate, GATES)


class Gate(Filter):
    """Withholds what channels pay; what they charge always passes.

    Args:
        gate: A name in ``GATES``, or ``"module:function"``.
        scope: ``"step"`` opens and closes with each turn. ``"episode"`` collects, and pays each
            channel's sum on the last turn if the gate is open there.

    Raises:
        ValueError: ``gate`` or ``scope`` is unknown.
    """

    memory: ClassVar[tuple[str, ...]] = ("withheld",)

    def __init__(self, gate: str, scope: Literal["episode", "step"]) -> None:
        self.gate = gate
        self.holds = predicate(gate)
        self.scope = one_of("scope", scope, ("episode", "step"))
        self.key = f"gate {gate!r}"
        self.withheld: dict[str, float] = {}

    def begin(self, record: Record) -> None:
        """Forgets the last episode."""
        self.withheld = {}
        record["gate"][self.gate] = None

    def step(self, record: Record, ended: Ended) -> None:
        """Gates the amounts of one turn. Without a verdict the gate is closed."""
        paid = record["channels"]
        if self.scope == "step":
            opened = record["gate"][self.gate] = self._opens(record["verdict"])
            for name, amount in paid.items():
                if amount > 0.0 and not opened:
                    paid[name] = 0.0
            return
        withheld = self.withheld
        for name, amount in paid.items():
            if amount > 0.0:
                withheld[name] = withheld.get(name, 0.0) + amount
                paid[name] = 0.0
        if ended == "no":
            record["gate"][self.gate] = None
            return
        opened = record["gate"][self.gate] = self._opens(record["verdict"])
        if opened:
            for name, amount in withheld.items():
                paid[name] += amount

    def bound(self, inner: Bound, gamma: float) -> Bound:
        """Never more than without it: what is withheld is paid later or not at all.

        Losses pass while gains are withheld, so nothing limits what can be lost where there is
        anything to gain.
        """
        least, most = min(0.0, inner.least), max(0.0, inner.most)
        low = -math.inf if least < 0.0 < most else min(0.0, inner.low)
        if self.scope == "episode" and most > 0.0:  # what is collected is not discounted
            most = inner.high if gamma == 1.0 and least == 0.0 else math.inf
        return Bound(low, max(0.0, inner.high), least, most)

    def _opens(self, verdict: Verdict) -> bool:
        return verdict.status == "ok" and bool(self.holds(verdict))


class GatedReward(FilterWrapper):
    """Pays the channels inside it only where something else is true; never touches ``base``.

    ``"episode"`` (gated accumulation): positive amounts are withheld, and each channel's sum is
    paid on the last turn if the gate is open there. ``"step"``: a turn's positive amounts are paid
    if the gate is open after it. Negative amounts pass at once in both, or failing on purpose
    would erase a penalty. So put ``PotentialShaping`` outside: inside, a closed gate keeps what it
    takes back at the end and withholds what it had paid.

    ``info["headway"]["gate"][gate]`` is True or False once that is decided, None before. Without a
    verdict the gate is closed, and ``status`` says why. Gates read verdicts, so no schedule closes
    them.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        scope: ``"episode"`` or ``"step"``.
        gate: ``"attempted"`` (something was changed when the episode ended, right or wrong),
            ``"success"``, ``"clean"`` (no violation stands), or a function ``Verdict -> bool`` of
            your own as ``"module:function"``.

    Raises:
        ValueError: An argument is outside its range, or ``env`` has this gate already.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: G-RA; that penalties bypass the gate is our own.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        scope: Literal["episode", "step"] = "episode",
        gate: str = "attempted",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, scope=scope, gate=gate)
        super().__init__(env, Gate(gate, scope))
