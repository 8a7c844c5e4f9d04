"""Weights that change while a policy learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium as gym

from headway.arguments import number, one_of, whole
from headway.verifiers import Record
from headway.wrappers.channel import Ended, Filter, FilterWrapper


def const(k: int, start: float, steps: None = None) -> float:
    """``start``, always."""
    return start


def linear(k: int, start: float, steps: int) -> float:
    """``start`` at 0, falling evenly to exactly 0.0 at ``steps``, and 0.0 from there on."""
    return start * max(0.0, 1.0 - k / steps)


SCHEDULES: Mapping[str, Callable[..., float]] = MappingProxyType({"const": const, "linear": linear})
"""``weight(k, start, steps)`` by the names that ``ScheduledReward`` takes; k >= 0."""


class Schedule(Filter):
    """Multiplies what channels pay by a weight that is fixed within an episode.

    Args:
        schedule: A name in ``SCHEDULES``.
        start: Weight at k = 0, in [0, inf).
        steps: Where ``"linear"`` reaches 0, at least 1; None for ``"const"``.

    Raises:
        ValueError: An argument is outside its range.
    """

    memory: ClassVar[tuple[str, ...]] = ("k", "weight")

    def __init__(self, schedule: str, start: float, steps: int | None) -> None:
        self.schedule = one_of("schedule", schedule, SCHEDULES)
        self.start = number("start", start, "[0, inf)")
        if schedule == "const" and steps is not None:
            raise ValueError(f"steps must be None for schedule 'const', got {steps!r}")
        self.steps = steps if schedule == "const" else whole("steps", steps, 1)
        self.k = 0
        self.weight = self.start

    def set_progress(self, k: int) -> None:
        """Sets the weight from the next episode on.

        Args:
            k: The learner's step, an int of at least 0.

        Raises:
            ValueError: ``k`` is none.
        """
        self.k = whole("k", k, 0)

    def begin(self, record: Record) -> None:
        """Fixes the weight of the episode."""
        self.weight = SCHEDULES[self.schedule](self.k, self.start, self.steps)

    def step(self, record: Record, ended: Ended) -> None:
        """Scales the amounts of one turn."""
        paid, weight = record["channels"], self.weight
        for name, amount in paid.items():
            paid[name] = weight * amount + 0.0  # at weight 0 nothing is left, not even a sign


class ScheduledReward(FilterWrapper):
    """Scales the channels inside it by ``w(k)``, and leaves ``base`` alone.

    At weight 0.0 rewards are those of the environment without the channels, bit for bit.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        schedule: ``"linear"`` falls from ``start`` to exactly 0.0 at ``steps``; ``"const"`` stays.
        steps: Where ``"linear"`` reaches 0, at least 1; left out for ``"const"``.
        start: Weight at k = 0, in [0, inf).

    Raises:
        ValueError: An argument is outside its range.
        TypeError: Nothing in ``env`` offers ``grade()``.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        schedule: str = "linear",
        steps: int | None = None,
        start: float = 1.0,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, schedule=schedule, steps=steps, start=start)
        super().__init__(env, Schedule(schedule, start, steps))

    def set_progress(self, k: int) -> None:
        """Sets the weight from the next reset on.

        Args:
            k: The learner's step, an int of at least 0; never wall time.

        Raises:
            ValueError: ``k`` is none.
        """
        schedule = self.layer
        assert isinstance(schedule, Schedule)
        schedule.set_progress(k)


def set_progress(env: Any, k: int) -> int:
    """Sets every schedule of a stack, or of all stacks in a vector, from its next reset on.

    Args:
        env: A Gymnasium or PettingZoo environment, wrapped any number of times, or what holds a
            list of such in ``envs``: ``TextVec``, ``SyncVectorEnv``.
        k: The learner's step, an int of at least 0.

    Returns:
        How many layers it reached; 0 when there is no schedule.

    Raises:
        ValueError: ``k`` is out of range, whether there is a schedule or not.
        TypeError: The environments are in other processes.
    """
    whole("k", k, 0)
    lanes = getattr(env, "envs", None)
    if lanes is not None:
        return sum(set_progress(lane, k) for lane in lanes)
    if isinstance(env, gym.vector.VectorEnv):
        raise TypeError(
            f"env must live in this process, got {type(env).__name__}; "
            "env.call('set_progress', k) reaches the outermost schedule of each of its workers"
        )
    reached = 0
    while env is not None:
        # Of the type: PettingZoo wrappers pass an unknown attribute on to what they wrap.
        if hasattr(type(env), "set_progress"):
            env.set_progress(k)
            reached += 1
        env = getattr(env, "env", None)
    return reached
