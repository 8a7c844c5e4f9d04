"""Many episodes at once: lanes for a trainer, Gymnasium's vectors with flags that carry text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.vector import VectorEnv

from headway.envs.box import SandboxDied
from headway.envs.fork import fork
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
        make = partial(gym.make, env, **kwargs) if isinstance(env, str) else env
        self.envs = [make() for _ in range(lanes)]
        self._dead: dict[int, SandboxDied] = {}
        self._over = [True] * lanes

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

        Raises:
            ValueError: There is not one a lane.
        """
        none = [None] * len(self)
        seeds = self._per_lane("seeds", none if seeds is None else seeds)
        options = self._per_lane("options", none if options is None else options)
        return [
            self._alive(partial(self.reset_lane, lane, seed=seed, options=option))
            for lane, (seed, option) in enumerate(zip(seeds, options, strict=True))
        ]

    def reset_lane(
        self, lane: int, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Resets one lane.

        Raises:
            SandboxDied: The lane's machine failed.
        """
        self._dead.pop(lane, None)
        obs, info = self._try(lane, partial(self.envs[lane].reset, seed=seed, options=options))
        self._over[lane] = False
        return obs, info

    def step(self, actions: Sequence[str | Cut | None]) -> list[Turn | SandboxDied | None]:
        """Steps every lane whose action is not None.

        Raises:
            ValueError: There is not one action a lane.
            ResetNeeded: A lane whose episode is over has an action; no lane was stepped.
        """
        over = [
            lane
            for lane, action in enumerate(self._per_lane("actions", actions))
            if action is not None and self._over[lane] and lane not in self._dead
        ]
        if over:
            raise gym.error.ResetNeeded(f"lanes {over} are over; reset them or pass None for them")
        return [
            None if action is None else self._alive(partial(self.step_lane, lane, action))
            for lane, action in enumerate(actions)
        ]

    def step_lane(self, lane: int, action: str | Cut) -> Turn:
        """Steps one lane.

        Raises:
            SandboxDied: The lane's machine failed, now or before.
        """
        obs, reward, terminated, truncated, info = self._try(
            lane, partial(self.envs[lane].step, action)
        )
        self._over[lane] = terminated or truncated
        return Turn(obs, float(reward), terminated, truncated, info)

    def fork_lane(self, source: int, target: int) -> None:
        """Makes lane ``target`` a sibling of lane ``source`` in mid-episode."""
        old, self.envs[target] = self.envs[target], fork(self.envs[source])
        self._over[target] = self._over[source]
        self._dead.pop(target, None)
        if source in self._dead:
            self._dead[target] = self._dead[source]
        old.close()

    def close(self) -> None:
        """Closes every lane."""
        for env in self.envs:
            env.close()

    def _per_lane(self, name: str, values: Sequence[Any]) -> Sequence[Any]:
        if len(values) != len(self):
            raise ValueError(f"{name} must be one a lane, {len(self)}, got {len(values)}")
        return values

    def _try(self, lane: int, act: Callable[[], Any]) -> Any:
        """What ``act`` returns; the death of a lane lasts until its reset."""
        if lane in self._dead:
            raise self._dead[lane]
        try:
            return act()
        except SandboxDied as death:
            self._dead[lane] = death
            raise

    def _alive(self, act: Callable[[], Any]) -> Any:
        """What ``act`` returns, or the death that it raises."""
        try:
            return act()
        except SandboxDied as death:
            return death


def make_vec(
    id: str,
    num_envs: int = 1,
    *,
    vectorization_mode: str = "sync",
    vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Callable[[gym.Env[Any, Any]], gym.Wrapper[Any, Any, Any, Any]]]
    | None = None,
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
