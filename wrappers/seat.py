"""Channels and filters on one seat of a PettingZoo game; needs ``headway[multi]``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from headway.verifiers import Verdict
from headway.wrappers.arguments import one_of
from headway.wrappers.channel import Channel, Ended, Filter, Record, blank, note
from headway.wrappers.schedule import Schedule

try:
    from pettingzoo import AECEnv
    from pettingzoo.utils.wrappers import BaseWrapper
except ImportError as error:
    raise ImportError("SeatChannels needs pettingzoo: pip install 'headway[multi]'") from error


class SeatChannels(BaseWrapper[Any, Any, Any]):
    """Pays reward layers to one seat of an AEC environment; the other seats see no change.

    A turn of the seat goes from its action to its next one, or to its end: whatever the other
    seats do in between belongs to it, and it is graded once, when the seat is up again. So the
    discount counts the seat's own turns, and ``last()`` returns ``base + sum(channels)``, with
    ``infos[seat]["headway"]`` as around a single environment.

    Args:
        env: An AEC environment whose ``unwrapped`` offers ``grade() -> Verdict``.
        layers: From the inside out; each is copied.
        seat: The seat that is paid, one of ``env.possible_agents``.

    Raises:
        TypeError: ``env.unwrapped`` offers no ``grade()``.
        ValueError: There is no such seat, or two layers have one name.
    """

    def __init__(
        self, env: AECEnv[Any, Any, Any], layers: Sequence[Channel | Filter], *, seat: str
    ) -> None:
        super().__init__(env)
        if not callable(getattr(env.unwrapped, "grade", None)):
            raise TypeError(f"env must offer grade() -> Verdict, got {env}")
        self.seat = one_of("seat", seat, env.possible_agents)
        self.layers = copy.deepcopy(tuple(layers))
        keys = [layer.key for layer in self.layers if layer.key is not None]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"a stack may hold {key} only once, got it {keys.count(key)} times")

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Starts a game and pays nothing."""
        super().reset(seed=seed, options=options)
        self._before = self._grade()
        self._open = False  # whether the seat has acted and was not yet paid for it
        self._owed = 0.0  # paid, and not yet collected by the seat's next action
        record = self._record = self._fresh()
        for layer in self.layers: ...
