"""Channels that measure something beside the verdict, which can fail beside it."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym

from headway.wrappers.channel import Channel, ChannelWrapper


class Fallible(Protocol):
    """What such a channel has."""

    @property
    def failed(self) -> str:
        """Why it could not measure on the last turn; empty if it could."""
        ...


class FallibleWrapper(ChannelWrapper):
    """Adds a channel to the reward, and says in the record when that could not measure.

    Then ``info["headway"]["unmeasured"]`` is there, ``{channel: reason}``, beside what was paid for
    standing still: the reward of such a turn is not what it would have been, so mask the episode.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        channel: A channel that has ``failed``.

    Raises:
        TypeError: Nothing in ``env`` offers ``grade()``.
        ValueError: ``env`` has a channel of that name already.
    """

    def __init__(self, env: gym.Env[Any, Any], channel: Channel) -> None:
        super().__init__(env, channel)
        self._fallible: Fallible = self.layer  # type: ignore[assignment]  # as promised

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays one turn and adds what the channel pays for it."""
        played = super().step(action)
        if reason := self._fallible.failed:
            played[4]["headway"].setdefault("unmeasured", {})[self.layer.name] = reason
        return played
