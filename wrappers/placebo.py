"""Controls: rewards that look like the real ones and know nothing."""

from __future__ import annotations

import copy
import math
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np

from headway.arguments import number, one_of, whole
from headway.verifiers import Record
from headway.wrappers.channel import Bound, Ended, Filter, FilterWrapper
from headway.wrappers.transforms import endless, remember

Kind = Literal["random", "flip", "shuffle_turns"]


class Placebo(Filter):
    """Takes from what channels pay the part that a method claims to live on.

    Args:
        kind: ``"random"``, ``"flip"`` or ``"shuffle_turns"``.
        p: Chance of a flip, in [0, 1]; None for the other kinds.
        seed: Of its own random stream, which goes on over all episodes; an int of at least 0.

    Raises:
        ValueError: An argument is outside its range.
    """

    memory: ClassVar[tuple[str, ...]] = ("stream", "ahead", "seen", "held")
    lasting = True

    def __init__(self, kind: Kind, p: float | None, seed: int) -> None:
        self.kind = one_of("kind", kind, ("random", "flip", "shuffle_turns"))
        if (p is None) == (kind == "flip"):
            raise ValueError(f"p belongs to kind 'flip' and to no other, got {p!r} for {kind!r}")
        self.p = 0.0 if p is None else number("p", p, "[0, 1]")
        self.outermost = kind == "shuffle_turns"
        self._rng = np.random.Generator(np.random.PCG64(whole("seed", seed, 0)))
        self.ahead: list[float] = []  # drawn in blocks: one by one would be most of the cost
        self.seen: dict[str, list[float]] = {}
        self.held: dict[str, list[float]] = {}

    @property
    def stream(self) -> dict[str, Any]:
        """Where the random stream stands, as plain data."""
        return copy.deepcopy(dict(self._rng.bit_generator.state))

    @stream.setter
    def stream(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state

    def begin(self, record: Record) -> None:
        """Forgets the amounts of the last episode, not those that are drawn from."""
        self.held = {}

    def step(self, record: Record, ended: Ended) -> None:
        """Changes the amounts of one turn."""
        paid: dict[str, float] = record["channels"]
        if self.kind == "flip":
            for name, amount in paid.items():
                if self._chance() < self.p:
                    paid[name] = 0.0 - amount
        elif self.kind == "random":
            for name, amount in paid.items():
                amounts = self.seen.setdefault(name, [])
                paid[name] = amounts[int(self._chance() * len(amounts))] if amounts else 0.0
                remember(amounts, amount)
        else:
            for name, amount in paid.items():
                self.held.setdefault(name, []).append(amount)
                paid[name] = 0.0 if ended == "no" else sum(self.held[name], 0.0)
            if ended != "no":
                record["credit"] = {
                    name: self._shuffled(amounts) for name, amounts in self.held.items()
                }

    def keeps_optimum(self, gamma: float) -> bool:
        """Where it changes nothing."""
        return self.kind == "flip" and self.p == 0.0

    def bound(self, inner: Bound, gamma: float) -> Bound:
        """What chance could make of it at worst and at best."""
        low, high, least, most = inner
        if self.kind == "random":
            least, most = min(0.0, least), max(0.0, most)
            return Bound(endless(least, gamma), endless(most, gamma), least, most)
        if self.kind == "flip":
            if self.p in (0.0, 1.0):
                return inner if self.p == 0.0 else Bound(-high, -low, -most, -least)
            size = max(abs(least), abs(most))
            return Bound(-endless(size, gamma), endless(size, gamma), -size, size)
        if gamma == 1.0:
            return Bound(low, high, min(0.0, low), max(0.0, high))
        # T turns' sum is at most T * most, and counts gamma**(T - 1).
        turns = max(1, round(-1.0 / math.log(gamma)))
        weight = max(t * gamma ** (t - 1) for t in (turns, turns + 1, max(1, turns - 1)))
        least, most = min(0.0, least), max(0.0, most)
        return Bound(weight * least, weight * most, endless(least, 1.0), endless(most, 1.0))

    def _chance(self) -> float:
        """In [0, 1)."""
        if not self.ahead:
            self.ahead = self._rng.random(64).tolist()
        return self.ahead.pop()

    def _shuffled(self, amounts: list[float]) -> list[float]:
        """In random order."""
        found, rest = [], list(amounts)
        while rest:
            found.append(rest.pop(int(self._chance() * len(rest))))
        return found


class PlaceboReward(FilterWrapper):
    """A control arm: a method works if it beats its own placebo on tasks that are new to both.

    ``"random"`` pays each channel an amount drawn from what it was paid in the last ``WINDOW``
    turns before this one: as often as much, whatever the agent just did; 0 on the first of all.
    ``"flip"`` turns the sign of an amount with chance ``p``, and with ``p=0`` changes nothing.
    ``"shuffle_turns"`` pays the undiscounted sum of the episode on its last turn, and hands a
    trainer the turns' amounts in random order as ``info["headway"]["credit"][channel]``: the same
    sum, the wrong turns. It has to be the outermost filter: one around it would change what is
    paid, and not the credit.

    Random pay for every turn is pay for making turns: use it to compare, never to train for good.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        kind: ``"random"``, ``"flip"`` or ``"shuffle_turns"``.
        p: Chance of a flip, in [0, 1]; left out for the other kinds.
        seed: Of its own random stream, which goes on over all episodes; an int of at least 0.
            Lanes of a vector need one each.

    Raises:
        ValueError: An argument is outside its range, or ``env`` holds a placebo that shuffles.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: placebo arms as in Spurious Rewards (2025); up to ``p = 0.4`` is reported to be
    tolerated.
    """

    def __init__(
        self, env: gym.Env[Any, Any], *, kind: Kind, p: float | None = None, seed: int = 0
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, kind=kind, p=p, seed=seed)
        super().__init__(env, Placebo(kind, p, seed))
