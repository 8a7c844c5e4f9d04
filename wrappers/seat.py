"""Channels and filters on one seat of a PettingZoo game; needs ``headway[multi]``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from headway.arguments import one_of
from headway.verifiers import blank
from headway.wrappers.channel import (
    Channel,
    Ended,
    Filter,
    measure,
    note,
    refuse_misfits,
)

try:
    from pettingzoo import AECEnv  # type: ignore[import-untyped]
    from pettingzoo.utils.wrappers import BaseWrapper  # type: ignore[import-untyped]
except ImportError as error:
    raise ImportError(
        "SeatChannels needs pettingzoo, the extra headway[multi]: pip install pettingzoo"
    ) from error


class SeatChannels(BaseWrapper[Any, Any, Any]):  # type: ignore[misc]  # it has no types
    """Pays reward layers to one seat of an AEC environment; for the others nothing changes.

    A turn of the seat goes from its action to its next one, or to its end. What the other seats
    do in between belongs to it, and it is graded and paid once, when the seat is up again. So the
    discount counts the seat's own turns, ``last()`` returns ``base + sum(channels)``, and
    ``infos[seat]["headway"]`` is the record that a single environment would have.

    Args:
        env: An AEC environment whose ``unwrapped`` offers ``grade() -> Verdict``.
        layers: From the inside out; copied.
        seat: The seat that is paid, one of ``env.possible_agents``.

    Raises:
        TypeError: ``env.unwrapped`` offers no ``grade()``.
        ValueError: There is no such seat, two layers have one name, one suffers no filter around
            it, or one has to hear of turns: the turn of a seat is that of several.
    """

    def __init__(
        self, env: AECEnv[Any, Any, Any], layers: Sequence[Channel | Filter], *, seat: str
    ) -> None:
        super().__init__(env)
        if not callable(getattr(env.unwrapped, "grade", None)):
            raise TypeError(f"env.unwrapped must offer grade() -> Verdict, got {env.unwrapped!r}")
        self.seat = one_of("seat", seat, env.possible_agents)
        refuse_misfits(layers)
        if deaf := [type(layer).__name__ for layer in layers if layer.hears]:
            raise ValueError(f"layers must read verdicts only, got {deaf}; leave those out")
        self.layers = copy.deepcopy(tuple(layers))

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Starts a game and pays nothing."""
        self.env.reset(seed=seed, options=options)
        self._acted = False  # the seat has played, and was not graded since
        self._total = 0.0  # what the seat got since its last action
        self._record = blank(0.0)
        self._before = measure(self._record, self.env.unwrapped.grade)
        for layer in self.layers:
            if isinstance(layer, Channel):
                layer.begin(self._before)
                note(self._record, layer, 0.0)
            else:
                layer.begin(self._record)
        self._publish(0.0)

    def step(self, action: Any) -> None:
        """Plays the move of the seat that is up."""
        if self.env.agent_selection == self.seat:
            self._acted, self._total = self._ended() == "no", 0.0
        self.env.step(action)
        paid = 0.0
        if self._acted and (self.env.agent_selection == self.seat or self._ended() != "no"):
            self._acted = False
            paid = self._pay()
        self._publish(paid)

    def set_progress(self, k: int) -> None:
        """Sets every schedule among the layers from the next reset on.

        Raises:
            ValueError: ``k`` is no int of at least 0.
        """
        scheduled: list[Any] = [one for one in self.layers if hasattr(type(one), "set_progress")]
        for layer in scheduled:
            layer.set_progress(k)

    def _ended(self) -> Ended:
        if self.env.terminations[self.seat]:
            return "terminated"
        return "truncated" if self.env.truncations[self.seat] else "no"

    def _pay(self) -> float:
        """Grades the seat's turn; returns what its channels pay for it."""
        self._record = blank(float(self.env._cumulative_rewards[self.seat]))
        after = measure(self._record, self.env.unwrapped.grade)
        ended = self._ended()
        for layer in self.layers:
            if isinstance(layer, Channel):
                note(self._record, layer, layer.step(self._before, after, ended))
            else:
                layer.step(self._record, ended)
        self._before = after
        return sum(self._record["channels"].values(), 0.0)

    def _publish(self, paid: float) -> None:
        """Shows the game's tables with the seat's part in them; the game's own stay as they are."""
        seat = self.seat
        self.rewards, self.infos = dict(self.env.rewards), dict(self.env.infos)
        self._cumulative_rewards = dict(self.env._cumulative_rewards)
        if seat in self.infos:
            self.rewards[seat] += paid
            self._total += self.rewards[seat]
            self._cumulative_rewards[seat] = self._total
            fresh = {k: dict(v) if isinstance(v, dict) else v for k, v in self._record.items()}
            self.infos[seat] = {**self.infos[seat], "headway": fresh}
