"""Demonstrations: what an expert writes, as the tokens that a policy would have sampled."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from headway.arguments import number, whole
from headway.envs.rng import Rng
from headway.envs.tool_env import ToolEnv
from headway.envs.world import Action


class Template(Protocol):
    """What is needed of :class:`headway.agents.policy.Template`; torch is not."""

    def head(self, obs: str) -> list[int]:
        """All that stands before the first token of the policy."""
        ...

    def turn(self, text: str) -> list[int]:
        """A turn as a policy would write it, its end included."""
        ...

    def reply(self, obs: str, stopped: bool) -> list[int]:
        """All that stands between the last token of one turn and the first of the next."""
        ...


class Teacher(Protocol):
    """Who shows how one episode is played."""

    def right(self) -> str:
        """The best action in the state that was reached."""
        ...

    def stray(self, rng: Rng) -> str:
        """An action that a learner may take for want of a better one."""
        ...

    def took(self, action: str, meant: bool) -> None:
        """Hears what was played, and whether it was :meth:`right`."""
        ...

    def finishes(self, twin: gym.Env[Any, Any]) -> bool:
        """Whether it would still succeed from where a sibling of the environment stands."""
        ...


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One episode to be cloned.

    Attributes:
        task_id: Of the task.
        ids: int32, the whole context in order, as a rollout of these actions would have fed it.
        mask: bool, True on tokens to be cloned; all of them belong to actions.
        turns: Played.
        strays: Turns of them that were not the teacher's best.
        success: Whether it ended well.
    """

    task_id: str
    ids: NDArray[np.int32]
    mask: NDArray[np.bool_]
    turns: int
    strays: int
    success: bool


def demonstrations(
    make: Callable[[], gym.Env[Any, Any]],
    template: Template,
    *,
    episodes: int,
    seed: int,
    noise: float = 0.0,
    clone_noise: bool = False,
    recover: bool = True,
    teacher: Callable[[gym.Env[Any, Any]], Teacher] | None = None,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> list[Demonstration]:
    """Episodes of tasks of the train split, each with a task and a random stream of its own.

    With chance ``noise`` a turn is no best action but a stray one, and the teacher goes on from the
    state that it leads to; so a policy that errs has seen the way back. Episode ``n`` is the same
    whatever ``episodes`` is.

    Args:
        make: A new environment: a headway one, whatever layers are around it, or one that offers
            ``expert() -> str`` and ``chance(rng) -> str`` as the depot does.
        template: Of the policy that is to learn.
        episodes: At least 1.
        seed: At least 0.
        noise: In [0, 1).
        clone_noise: Whether stray actions are to be cloned, too. If not, they are only context.
        recover: Whether a stray action is left out where the teacher would not succeed after it.
        teacher: Makes one at the start of each episode; None for the one that the environment has.
        told: Hears how many episodes are over.

    Raises:
        ValueError: An argument is outside its range, or a demonstration fails that should not.
        TypeError: The environment has no teacher.
    """
    whole("episodes", episodes, 1)
    number("noise", noise, "[0, 1)")
    stream = Rng("demonstrations", whole("seed", seed, 0))
    env = make()
    found = []
    try:
        for episode in range(episodes):
            rng = stream.sub(episode)
            obs, info = env.reset(seed=rng.below(2**31), options=_train(env))
            shown = _shown(
                env,
                obs,
                (teacher or teacher_of)(env),
                template,
                rng,
                noise=noise,
                clone_noise=clone_noise,
                recover=recover,
            )
            if recover and not shown.success:
                raise ValueError(f"teacher must succeed, but failed in {info['task_id']}")
            found.append(shown)
            told(episode + 1, episodes)
    finally:
        env.close()
    return found


def teacher_of(env: gym.Env[Any, Any]) -> Teacher:
    """The teacher that an environment has: its solution, or its expert.

    Raises:
        TypeError: It has neither.
    """
    base = env.unwrapped
    if isinstance(base, ToolEnv):
        return Plan(base)
    if hasattr(base, "expert") and hasattr(base, "chance"):
        return Expert(base)
    raise TypeError(
        "env must be a headway environment, or offer expert() -> str and chance(rng) -> str, "
        f"got {base!r}"
    )


class Expert:
    """The expert that an environment offers, which knows what to do in every state.

    Args:
        env: Offers ``expert() -> str`` and ``chance(rng) -> str``.
    """

    def __init__(self, env: Any) -> None:
        self._env = env

    def right(self) -> str:
        """The expert's action."""
        return str(self._env.expert())

    def stray(self, rng: Rng) -> str:
        """Any well-formed action."""
        return str(self._env.chance(rng))

    def took(self, action: str, meant: bool) -> None:
        """Nothing to remember."""

    def finishes(self, twin: gym.Env[Any, Any]) -> bool:
        """Plays it out."""
        ended = success = False
        while not ended:
            _, success, ended = _played(twin, twin.expert())  # type: ignore[attr-defined]
        return success


class Plan:
    """The solution that ships with a headway task; it goes on where it was after a stray call.

    Args:
        env: In its first state.
    """

    def __init__(self, env: ToolEnv) -> None:
        self._env = env
        self._rest = env.instance.solution()
        self._last: str | None = None

    def right(self) -> str:
        """The next call of the solution.

        Raises:
            ValueError: There is none left, though the episode goes on.
        """
        if not self._rest:
            raise ValueError(f"the solution of {self._env.instance.task.id} does not end it")
        return self._text(self._rest[0])

    def stray(self, rng: Rng) -> str:
        """A valid call, a look at something, the last call again, or the next one gone wrong."""
        env, kind = self._env, rng.below(4)
        if kind == 0 and self._last is not None:
            return self._last
        if kind == 1 and (looks := env.instance.look(env.box)):
            return self._text(rng.choice(looks))
        if kind == 2 and (args := self._rest[0].args):
            lost = rng.choice(sorted(args))
            kept = {name: value for name, value in args.items() if name != lost}
            return self._text(Action(self._rest[0].tool, kept))
        call = env.domain.guess(env.box, rng)
        return env.format(call.tool, call.args)

    def took(self, action: str, meant: bool) -> None:
        """Goes on with the next call if this one was it."""
        self._last = action
        if meant:
            del self._rest[0]

    def finishes(self, twin: gym.Env[Any, Any]) -> bool:
        """Plays the rest."""
        for call in self._rest:
            _, success, ended = _played(twin, self._text(call))
            if ended:
                return success
        return False

    def _text(self, call: Action) -> str:
        return self._env.format(call.tool, call.args)


def _shown(
    env: gym.Env[Any, Any],
    obs: str,
    teacher: Teacher,
    template: Template,
    rng: Rng,
    *,
    noise: float,
    clone_noise: bool,
    recover: bool,
) -> Demonstration:
    """One episode, from its first observation on."""
    ids = template.head(obs)
    mask = [False] * len(ids)
    turns = strays = 0
    ended = success = False
    task_id = ""
    while not ended:
        action, meant = teacher.right(), True
        if rng.random() < noise:
            stray = teacher.stray(rng)
            if not recover or _recovers(env.unwrapped, stray, teacher):
                action, meant = stray, False
        obs, _, terminated, truncated, info = env.step(action)
        teacher.took(action, meant)
        ended, success = terminated or truncated, info["headway"]["base"] == 1.0
        task_id = info["task_id"]
        turns, strays = turns + 1, strays + (not meant)
        written = template.turn(action)
        ids += written
        mask += [meant or clone_noise] * len(written)
        if not ended:
            between = template.reply(obs, True)
            ids += between
            mask += [False] * len(between)
    return Demonstration(
        task_id, np.array(ids, np.int32), np.array(mask, np.bool_), turns, strays, success
    )


def _recovers(base: gym.Env[Any, Any], stray: str, teacher: Teacher) -> bool:
    twin = copy.deepcopy(base)
    _, success, ended = _played(twin, stray)
    return success if ended else teacher.finishes(twin)


def _played(env: gym.Env[Any, Any], action: str) -> tuple[str, bool, bool]:
    """Observation, success, end."""
    obs, _, terminated, truncated, info = env.step(action)
    return obs, info["headway"]["base"] == 1.0, bool(terminated or truncated)


def _train(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """Demonstrations of the other splits would spoil what is measured there."""
    return {"split": "train"} if isinstance(env.unwrapped, ToolEnv) else None
