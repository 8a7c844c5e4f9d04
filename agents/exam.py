"""What a policy does with many tasks, its episodes sampled side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import gymnasium as gym

from headway.agents.engine import Engine
from headway.agents.evaluate import UNKNOWN, Episode, Evaluation, Told, layered, make
from headway.agents.policy import Policy
from headway.agents.rollout import collect
from headway.agents.trajectory import Trajectory
from headway.arguments import whole
from headway.envs.task import TaskKey
from headway.verifiers import Verdict
from headway.wrappers.channel import grader_of, measure
from headway.wrappers.transforms import AtEnd


class _Graded(gym.Wrapper[Any, Any, Any, Any]):
    """Grades every turn: a bare environment grades its end only."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._grade: Callable[[], Verdict] = grader_of(env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._grade = grader_of(self.env)
        measure(info["headway"], self._grade)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        measure(info["headway"], self._grade)
        return obs, reward, terminated, truncated, info


def examine(
    policy: Policy,
    env: str | Callable[..., gym.Env[Any, Any]],
    *,
    episodes: int = 100,
    samples: int = 1,
    split: str = "test",
    seed0: int = 0,
    stack: str | None = None,
    gamma: float = 1.0,
    on_truncation: AtEnd = "zero",
    turn_tokens: int = 256,
    temperature: float = 1.0,
    greedy: bool = False,
    lanes: int = 32,
    context: int | None = None,
    told: Told = lambda done, of: None,
    **env_kwargs: Any,
) -> Evaluation:
    """Plays as :func:`headway.agents.evaluate.evaluate` does, with a policy in place of an agent.

    The tasks are the same, and what is sampled does not depend on ``lanes``, up to the rounding of
    matrix products.

    Args:
        policy: Who plays.
        env: As there.
        episodes: How many in all, at least 1 and a multiple of ``samples``.
        samples: Tries at each task.
        split: ``"train"``, ``"dev"`` or ``"test"``.
        seed0: First seed, at least 0; also names the streams that tokens are drawn from.
        stack: Reward layers, whose returns are reported; None for none.
        gamma: Discount per turn of the returns and the layers.
        on_truncation: Given to every layer that takes it.
        turn_tokens: Most tokens of a turn.
        temperature: Of sampling, in [0.001, 1000].
        greedy: Take the likeliest token always.
        lanes: Episodes at once.
        context: Tokens of the longest episode; None for what the model was made for.
        told: Hears how far it has come.
        **env_kwargs: For the environment.

    Returns:
        Without :attr:`Evaluation.by_check`: trajectories keep the checks that count only.

    Raises:
        ValueError: An argument is outside its range.
    """
    whole("samples", samples, 1)
    if whole("episodes", episodes, 1) % samples:
        raise ValueError(f"episodes must be a multiple of samples={samples}, got {episodes}")
    new = partial(make, env, split=split, **env_kwargs)
    played = collect(
        Engine(policy, lanes=lanes, context=context),
        range(seed0, seed0 + episodes // samples),
        partial(_graded, new, stack, gamma, on_truncation, None),
        key=("exam", seed0),
        group=samples,
        turn_tokens=turn_tokens,
        temperature=temperature,
        greedy=greedy,
        observe=told,
    )
    return Evaluation(
        id=env if isinstance(env, str) else getattr(env, "__name__", repr(env)),
        agent=policy.source or "policy",
        played=tuple(_episode(one, gamma) for one in played.trajectories),
        samples=samples,
        stack=stack,
        gamma=gamma,
    )


def _graded(*layers: Any) -> gym.Env[Any, Any]:
    return _Graded(layered(*layers))


def _episode(trajectory: Trajectory, gamma: float) -> Episode:
    status: Literal["ok", "no_verdict", "died"] = "ok"
    if trajectory.ended == "died":
        status = "died"
    elif not trajectory.turns or trajectory.turns[-1].status != "ok":
        status = "no_verdict"
    reason = trajectory.turns[-1].unmeasured if trajectory.turns and status != "ok" else ""
    discounts = [gamma**turn for turn in range(len(trajectory.turns))]
    return Episode(
        task_id=trajectory.task_id,
        template=_template(trajectory.task_id),
        status=status,
        reason=reason,
        success=trajectory.success,
        curve=tuple(trajectory.curve.tolist()),
        returns={
            name: float(amounts @ discounts) for name, amounts in trajectory.rewards().items()
        },
    )


def _template(task_id: str) -> str:
    """That of a headway task; other environments have none."""
    try:
        return TaskKey.parse(task_id).template
    except ValueError:
        return UNKNOWN
