"""Many episodes at once: lanes for a trainer, Gymnasium's vectors with flags that carry text."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.vector import VectorEnv

from headway.envs.box import SandboxDied
from headway.envs.spaces import Cut


class Turn(NamedTuple):
    """What a step returned."""

    obs: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class TextVec:
    """Lanes of one environment stack, stepped singly or together, without autoreset.

    A lane whose machine failed holds the :class:`SandboxDied` as its result until it is reset; the
    other lanes go on.

    Args:
        env: A registered id, or a function without arguments that makes the stack of one lane.
        lanes: How many, at least 1.
        **kwargs: For ``gym.make`` when ``env`` is an id.

    Raises:
        ValueError: ``lanes`` is below 1.
    """

    def __init__(
        self, env: str | Callable[[], gym.Env[Any, Any]], lanes: int, **kwargs: Any
    ) -> None:
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, got {lanes!r}")
        make = env if callable(env) else lambda: gym.make(env, **kwargs)
        self.envs = [make() for _ in range(lanes)]

    def __len__(self) -> int:
        return len(self.envs)

    def reset(
        self,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[dict[str, Any] | None] | None = None,
    ) -> list[tuple[str, dict[str, Any]] | SandboxDied]:
        """Resets every lane.

        Args:
            seeds: One a lane.
            options: One a lane.
        """
        none = [None] * len(self)
        pairs = zip(seeds or none, options or none, strict=True)
        return [self._alive(i, lambda e, s=s, o=o: e.reset(seed=s, options=o))
                for i, (s, o) in enumerate(pairs)]

    def reset_lane(
        self, lane: int, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Resets one lane."""
        return self.envs[lane].reset(seed=seed, options=options)

    def step(self, actions: Sequence[str | Cut | None]) -> list[Turn | SandboxDied | None]:
        """Steps every lane whose action is not None."""
        return [
            None if action is None else self._alive(i, lambda e, a=action: Turn(*e.step(a)))
            for i, action in enumerate(self._per_lane(actions))
        ]

    def step_lane(self, lane: int, action: str | Cut) -> Turn:
        """Steps one lane."""
        return Turn(*self.envs[lane].step(action))

    def fork_lane(self, source: int, target: int) -> None:
        """Makes lane ``target`` a sibling of lane ``source`` in mid-episode."""
        old, self.envs[target] = self.envs[target], copy.deepcopy(self.envs[source])
        old.close()

    def close(self) -> None:
        """Closes every lane."""
        for env in self.envs:
            env.close()

    def _per_lane(self, values: Sequence[Any]) -> Sequence[Any]:
        if len(values) != len(self):
            raise ValueError(f"actions must be one a lane, {len(self)}, got {len(values)}")
        return values

    def _alive(self, lane: int, act: Callable[[gym.Env[Any, Any]], Any]) -> Any:
        try:
            return act(self.envs[lane])
        except SandboxDied as death:
            return death


def make_vec(
    id: str,
    num_envs: int = 1,
    *,
    vectorization_mode: str = "sync",
    vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]] | None = None,
    **kwargs: Any,
) -> VectorEnv[Any, Any, Any]:
    """``gym.make_vec`` with the flags that text needs.

    The stock shared memory cannot carry text, so the asynchronous vector gets
    ``shared_memory=False``.

    Args:
        id: A registered id.
        num_envs: How many.
        vectorization_mode: ``"sync"`` or ``"async"``.
        vector_kwargs: For the vector class, for example ``{"context": "spawn"}``.
        wrappers: Applied to each environment, innermost first.
        **kwargs: For the environment.

    Raises:
        ValueError: An argument is outside its range, or shared memory is asked for.
    """
    if vectorization_mode not in ("sync", "async"):
        raise ValueError(
            f"vectorization_mode must be 'sync' or 'async', got {vectorization_mode!r}"
        )
    flags = dict(vector_kwargs or {})
    if vectorization_mode == "async":
        if flags.setdefault("shared_memory", False):
            raise ValueError("shared_memory must be False: shared memory cannot carry text")
    return gym.make_vec(
        id,
        num_envs=num_envs,
        vectorization_mode=vectorization_mode,
        vector_kwargs=flags,
        wrappers=wrappers,
        **kwargs,
    )
