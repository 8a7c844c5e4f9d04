"""The smallest text environment, in a file of its own so that spawned workers can import it."""

from typing import Any

import gymnasium as gym

from headway.envs.spaces import CUT, Cut, TextSpace


class Echo(gym.Env[str, str | Cut]):
    """Says the action back; a cut ends the episode."""

    def __init__(self) -> None:
        self.action_space = TextSpace(cut=True)  # type: ignore[assignment]  # texts and the cut
        self.observation_space = TextSpace()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return f"début {self.np_random.integers(1000)}", {}

    def step(self, action: str | Cut) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action is CUT:
            return "cut", 0.0, False, True, {}
        return f"<{action}>", 0.0, False, False, {}
