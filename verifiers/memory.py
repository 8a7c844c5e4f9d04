"""What changes during an episode, as data."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker


class Memory:
    """An object that can be put away in mid-episode and taken up again.

    Attributes:
        memory: Names of the attributes that change; their values are plain data.
    """

    memory: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict[str, Any]:
        """The memory as a copy."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self.memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state_dict` returned.

        Raises:
            ValueError: ``state`` is of another kind of object.
        """
        if set(state) != set(self.memory):
            raise ValueError(f"state must have keys {sorted(self.memory)}, got {sorted(state)}")
        for name in self.memory:
            setattr(self, name, copy.deepcopy(state[name]))


def with_state(env: Any) -> Iterator[Any]:
    """The layers of a stack that have a state, from the outside in, the environment last.

    What Gymnasium itself puts around an environment remembers nothing that counts.

    Raises:
        TypeError: Another layer has none; its memory would be lost in silence.
    """
    while True:
        if hasattr(type(env), "get_state"):
            yield env
        elif not isinstance(env, OrderEnforcing | PassiveEnvChecker):
            raise TypeError(
                f"every layer must offer get_state and set_state, got {type(env).__name__}, whose "
                "memory would be lost; write it as a Channel or a Filter, which have them, or put "
                "it around the stack"
            )
        if not isinstance(env, gym.Wrapper):
            return
        env = env.env
