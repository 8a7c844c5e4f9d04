"""What changes during an episode, as data."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar


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
