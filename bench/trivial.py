"""Environments that do next to nothing: what is measured around them is all there is."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from headway.envs.spaces import TextSpace
from headway.verifiers import Verdict, blank


class Trivial(gym.Env[str, str]):
    """Counts turns and says so: the least that a text environment can do."""

    action_space = TextSpace()
    observation_space = TextSpace()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Counts from 0."""
        super().reset(seed=seed)
        self._turn = 0
        return "Turn 0.", {"turn": 0}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Counts on."""
        self._turn += 1
        return f"Turn {self._turn}.", 0.0, False, False, {"turn": self._turn}


TRIVIAL = EnvSpec("Trivial-v0", entry_point=f"{__name__}:Trivial", max_episode_steps=10**6)
"""For ``gym.make``, so that it gets the wrappers that Gymnasium's own environments get."""


class Ladder(gym.Env[str, str]):
    """Ends after ten turns, each a tenth of progress. Its grades are ready, as cached ones are."""

    action_space = TextSpace()
    observation_space = TextSpace()
    turns = 10

    def __init__(self) -> None:
        self._verdicts = [
            Verdict(progress=turn / self.turns, success=turn == self.turns, ok={})
            for turn in range(self.turns + 1)
        ]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts at the foot."""
        super().reset(seed=seed)
        self._turn = 0
        return "", {"headway": blank(0.0)}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Climbs."""
        self._turn += 1
        ended = self._turn == self.turns
        reward = 1.0 if ended else 0.0
        return "", reward, ended, False, {"headway": blank(reward)}

    def grade(self) -> Verdict:
        """The verdict of this rung."""
        return self._verdicts[self._turn]
