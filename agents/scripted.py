"""Agents without a model: the ceiling, the floor, chance, and one that only looks.

What a model earns means little alone; these four say what the same tasks pay for knowing the
answer, for doing nothing, for acting blindly and for reading without acting.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Protocol

import gymnasium as gym

from headway.envs.rng import Rng
from headway.envs.spaces import Cut
from headway.envs.tool_env import ToolEnv
from headway.envs.world import Action


class Agent(Protocol):
    """Who plays. An agent is told observations only; what it does with ``env`` is its own rule."""

    def reset(self, env: gym.Env[Any, Any], obs: str) -> None:
        """Hears that an episode of ``env`` begins, with its first observation."""
        ...

    def act(self, obs: str) -> str | Cut:
        """The next action, given the latest observation; ``headway.CUT`` hands in what there is."""
        ...


class _Script(ABC):
    """Plays a list of actions that is known when the episode begins."""

    def __init__(self) -> None:
        self._rest: list[str] = []

    def reset(self, env: gym.Env[Any, Any], obs: str) -> None:
        """Writes the list.

        Raises:
            TypeError: ``env`` is not a headway environment.
        """
        self._rest = self._actions(own(env))[::-1]

    def act(self, obs: str) -> str:
        """The next action of the list; the last is repeated if the episode outlives it.

        Raises:
            ResetNeeded: No episode has begun.
        """
        if not self._rest:
            raise gym.error.ResetNeeded("no episode has begun; call reset(env, obs) before act()")
        return self._rest.pop() if len(self._rest) > 1 else self._rest[0]

    @abstractmethod
    def _actions(self, env: ToolEnv) -> list[str]: ...


class Oracle(_Script):
    """Plays the solution that ships with every task: the ceiling."""

    def _actions(self, env: ToolEnv) -> list[str]:
        return env.solution()


class NoOp(_Script):
    """Submits at once, having done nothing: the floor, which must be exactly 0."""

    def _actions(self, env: ToolEnv) -> list[str]:
        return [hand_in(env)]


class Reader(_Script):
    """Reads everything there is, one call a turn, and submits on the last turn at the latest.

    Tools take turns, so an episode too short for everything still shows some of each kind. What
    it earns is the price of looking, which the cap on evidence keeps low.
    """

    def _actions(self, env: ToolEnv) -> list[str]:
        ranked: list[tuple[int, Action]] = []
        calls: Counter[str] = Counter()
        for look in env.instance.look(env.box):
            ranked.append((calls[look.tool], look))
            calls[look.tool] += 1
        ranked.sort(key=itemgetter(0))
        reads = [env.format(look.tool, look.args) for _, look in ranked]
        return [*reads[: env.instance.task.max_turns - 1], hand_in(env)]


class Random:
    """Makes valid random calls on whatever is there, and never submits.

    Args:
        seed: Names the stream. Each episode has a stream of its own, by its task and by how many
            episodes this object has played, so equal seeds repeat a whole run.

    Raises:
        TypeError: ``seed`` is not an int.
    """

    def __init__(self, seed: int = 0) -> None:
        self._stream = Rng("agents.random", seed)
        self._played = 0
        self._env: ToolEnv | None = None

    def reset(self, env: gym.Env[Any, Any], obs: str) -> None:
        """Begins the stream of this episode.

        Raises:
            TypeError: ``env`` is not a headway environment.
        """
        self._env = own(env)
        self._rng = self._stream.sub(self._played, self._env.instance.task.id)
        self._played += 1

    def act(self, obs: str) -> str:
        """One valid call.

        Raises:
            ResetNeeded: No episode has begun.
        """
        if self._env is None:
            raise gym.error.ResetNeeded("no episode has begun; call reset(env, obs) before act()")
        call = self._env.domain.guess(self._env.box, self._rng)
        return self._env.format(call.tool, call.args)


AGENTS: Mapping[str, Callable[[int], Agent]] = MappingProxyType(
    {
        "oracle": lambda seed: Oracle(),
        "reader": lambda seed: Reader(),
        "random": Random,
        "noop": lambda seed: NoOp(),
    }
)
"""``AGENTS[name](seed)`` is a new agent; those that leave nothing to chance ignore the seed."""


def own(env: gym.Env[Any, Any]) -> ToolEnv:
    """The headway environment inside a stack.

    Raises:
        TypeError: There is none.
    """
    base = getattr(env, "unwrapped", env)
    if not isinstance(base, ToolEnv):
        raise TypeError(
            "env must be a headway environment, for example gym.make('headway/Apps-v0'), "
            f"got {base!r}; other environments have no solution and no tools to call"
        )
    return base


def hand_in(env: ToolEnv) -> str:
    """The call that submits; where the task asks a question, with an empty answer."""
    asked = env.instance.toolbox["submit"].parameters["required"]
    return env.format("submit", dict.fromkeys(asked, ""))
