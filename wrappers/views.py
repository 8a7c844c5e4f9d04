"""Numeric views for classic RL: numbered actions, and observations in a box.

They ask the environment for ``actions()``, ``mask()`` and ``features()`` and change nothing else:
rewards and ``info`` pass through, so they work inside or outside reward layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray


class _View(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """What both views share: no memory of their own."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)

    def get_state(self) -> dict[str, Any]:
        """Nothing: a view remembers nothing; what is inside it has its own state."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`get_state` returned.

        Raises:
            ValueError: ``state`` is of another kind of layer.
        """
        if state:
            raise ValueError(f"state of a view must be empty, got keys {sorted(state)}")

    def _ask(self, name: str) -> Callable[[], Any]:
        """A method of the environment.

        Raises:
            TypeError: It has none of that name.
        """
        try:
            method: Callable[[], Any] = self.env.get_wrapper_attr(name)
        except AttributeError:
            raise TypeError(
                f"env must offer {name}() for {type(self).__name__}, got {self.env}; "
                "`headway list` names environments with views"
            ) from None
        return method


class DiscreteActions(_View):
    """Numbered actions: ``Discrete(n)``, with ``action_masks()`` for agents that use masks.

    An action that is not possible now is the agent's mistake: it is answered in the observation
    and costs the turn. So is a number outside the space, however large. An array of shape () or
    (1,) counts as what it holds; True and False are no numbers. Texts and ``headway.CUT`` pass
    through.

    Args:
        env: An environment with ``actions() -> list[str]`` and ``mask()``, of one length n always.

    Raises:
        TypeError: ``env`` has no such method, or no numeric view.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._actions = self._ask("actions")
        self._mask = self._ask("mask")
        self.action_space = gym.spaces.Discrete(len(self._mask()))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Plays the action of that number.

        Raises:
            TypeError: ``action`` is neither a number nor something that the environment takes.
        """
        if isinstance(action, np.ndarray) and action.shape in ((), (1,)):
            action = action.item()
        if isinstance(action, Integral) and not isinstance(action, bool):
            texts = self._actions()
            number = int(action)
            action = texts[number] if 0 <= number < len(texts) else "no action of this number"
        return self.env.step(action)

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are possible now, shape (n,), by the name that ``MaskablePPO`` asks for."""
        mask: NDArray[np.bool_] = self._mask()
        return mask


class Features(_View):
    """Observations as numbers: ``Box(0, 1, (m,), float32)`` instead of text.

    Args:
        env: An environment with ``features()``, of one length m always.

    Raises:
        TypeError: ``env`` has no such method, or no numeric view.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._features = self._ask("features")
        self.observation_space = gym.spaces.Box(0, 1, self._features().shape, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Starts an episode."""
        _, info = self.env.reset(seed=seed, options=options)
        return self._features(), info

    def step(self, action: Any) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        """Plays one turn."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._features(), reward, terminated, truncated, info
