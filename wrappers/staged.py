"""A reward for the whole episode: stages below success, economy above it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import gymnasium as gym

from headway.arguments import number, one_of
from headway.verifiers import Look, Milestones, Verdict, staged
from headway.verifiers.reference import wanted_calls
from headway.wrappers.channel import Bound, ChannelWrapper, Ended
from headway.wrappers.transforms import PotentialChannel

Unit = Literal["turns", "calls"]
"""What an episode's cost is counted in."""


class Performance(PotentialChannel):
    """Pays once, at the end: a failure for its stages, a success for its economy.

    The amount is ``scale * staged(...)``, see :func:`headway.verifiers.staged`. A stage is a
    milestone of the task that is reached whole and in order. An end without a verdict is no
    success, and is paid for the stages that were measured last.

    Args:
        name: Name of the channel.
        scale: In (0, inf).
        unit: ``"turns"`` or ``"calls"``.
        ref: Cost that earns all, in [0, inf); None for that of the task's reference, handing in
            included, one call a turn.
        base: Cost that earns nothing extra, in [0, inf); None for twice ``ref``.

    Raises:
        ValueError: An argument is outside its range.
    """

    memory: ClassVar[tuple[str, ...]] = ("phi", "cost", "length")

    def __init__(
        self, name: str, *, scale: float, unit: Unit, ref: float | None, base: float | None
    ) -> None:
        super().__init__(name, Milestones(partial=False))
        self.hears = True
        self.potential = "stages"
        self.scale = number("scale", scale, "(0, inf)")
        self.unit: Unit = one_of("unit", unit, ("turns", "calls"))
        self.ref = None if ref is None else number("ref", ref, "[0, inf)")
        self.base = None if base is None else number("base", base, "[0, inf)")
        self.cost = 0
        self.length: int | None = None

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Counts what a turn cost; at reset takes the length of the reference."""
        super().hear(action, observation, info, look)
        if action is None:
            calls = wanted_calls(look)
            self.cost, self.length = 0, len(calls) + 1 if calls else None
        else:
            self.cost += 1 if self.unit == "turns" else len(info.get("calls", ()))

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """0.0 until the end; then in [0, scale]."""
        self.moved(after)
        if ended == "no":
            return 0.0
        ref = float(self.length or 0) if self.ref is None else self.ref
        base = 2.0 * ref if self.base is None else self.base
        passed = after.status == "ok" and after.success
        return self.scale * staged(
            self.phi or 0.0, 1, passed, cost=float(self.cost), base=base, ref=ref
        )

    def bound(self, gamma: float) -> Bound:
        """One amount in [0, scale], whatever the discount."""
        return Bound(0.0, self.scale, 0.0, self.scale)


class StagedReward(ChannelWrapper):
    """Pays at the end: at most ``c / 2`` to a failure for its stages, at least that to a success.

    A failure gets ``c * 0.5 * n / m`` for n of m milestones reached whole and in order, less for
    damage; a success ``c * (0.5 + 0.5 * clip((base - t) / (base - ref), 0, 1))``, with t what it
    cost. So a success on a given turn outranks any failure on it, and a faster one a slower one.
    The best policy may change: among those that succeed, to a faster one. ``phi["stages"]`` is
    ``n / m``.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        c: Worth of a success at the reference's cost beside the outcome of 1.0, in (0, 1).
        unit: Whether ``"turns"`` or ``"calls"`` are the cost; calls do not get cheaper by being
            made in one turn.
        ref: Cost that earns all, in [0, inf); None for that of the task's ``reference()``, handing
            in included, one call a turn. A task without one, and no ``ref``, pays a success 0.5.
        base: Cost that earns nothing extra, in [0, inf); None for twice ``ref``.
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: RLPF (2026), with milestones for its stages and turns for its seconds.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        c: float = 0.5,
        unit: Unit = "turns",
        ref: float | None = None,
        base: float | None = None,
        name: str = "staged",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self, c=c, unit=unit, ref=ref, base=base, name=name
        )
        scale = number("c", c, "(0, 1)")
        super().__init__(env, Performance(name, scale=scale, unit=unit, ref=ref, base=base))
