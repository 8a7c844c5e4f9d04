"""Weights that change while a policy learns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import gymnasium as gym

from headway.arguments import number, one_of, whole
from headway.verifiers import Record, Verdict
from headway.wrappers.channel import Bound, ChannelWrapper, Ended, Filter, FilterWrapper
from headway.wrappers.transforms import AtEnd, Diff


def const(k: int, start: float, steps: None = None) -> float:
    """``start``, always."""
    return start


def linear(k: int, start: float, steps: int) -> float:
    """``start`` at 0, falling evenly to exactly 0.0 at ``steps``, and 0.0 from there on."""
    return start * max(0.0, 1.0 - k / steps)


def cosine(k: int, start: float, steps: int) -> float:
    """``start`` at 0, falling in half a wave to exactly 0.0 at ``steps``, and 0.0 from there on."""
    return start * (0.5 + 0.5 * math.cos(math.pi * k / steps)) if k < steps else 0.0


def exp(k: int, start: float, steps: int) -> float:
    """``start`` at 0, falling by 1/e every ``steps``; never quite 0.0."""
    return start * math.exp(-k / steps)


def step(k: int, start: float, steps: int) -> float:
    """0.0 below ``steps``, and ``start`` from there on."""
    return start if k >= steps else 0.0


def until(k: int, start: float, steps: int) -> float:
    """``start`` below ``steps``, and 0.0 from there on."""
    return start if k < steps else 0.0


SCHEDULES: Mapping[str, Callable[..., float]] = MappingProxyType(
    {
        "const": const,
        "linear": linear,
        "cosine": cosine,
        "exp": exp,
        "step": step,
        "until": until,
    }
)
"""``weight(k, start, steps)`` by the names that ``ScheduledReward`` takes; k >= 0."""


class Schedule(Filter):
    """Multiplies what channels pay by a weight that is fixed within an episode.

    Args:
        schedule: A name in ``SCHEDULES``.
        start: The greatest weight, in [0, inf).
        steps: The scale of the schedule, at least 1; None for ``"const"``.

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

    def keeps_optimum(self, gamma: float) -> bool:
        """Always: within an episode it only scales."""
        return True

    def bound(self, inner: Bound, gamma: float) -> Bound:
        """Scaled by the greatest weight, and by 0 where that is reached."""
        # Not a product alone: 0 times infinity is no number.
        low, high, least, most = (self.start * x if x and self.start else 0.0 for x in inner)
        return Bound(min(0.0, low), max(0.0, high), min(0.0, least), max(0.0, most))

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
        schedule: ``"linear"`` and ``"cosine"`` fall from ``start`` to exactly 0.0 at ``steps``;
            ``"exp"`` falls by 1/e every ``steps``, never to 0; ``"step"`` is 0.0 below ``steps``
            and ``start`` from there on; ``"until"`` the other way round; ``"const"`` stays.
        steps: As ``schedule`` says, at least 1; left out for ``"const"``.
        start: The greatest weight, in [0, inf).

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


class Anneal(ScheduledReward):
    """Fades the channels inside it out: ``w(k)`` from ``start`` to exactly 0.0 at ``steps``.

    From there on rewards are those of the environment without them, bit for bit. A weight that
    stays lets a policy go on raising what is dense while outcomes fall. It is no protection where
    a learner divides by the spread of its returns, which takes the weight out again.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        steps: The learner's step at which nothing is left, at least 1; 60 % of training is a
            start.
        schedule: ``"linear"`` or ``"cosine"``.
        start: Weight at k = 0, in [0, inf).

    Raises:
        ValueError: An argument is outside its range.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: annealed process rewards; methods that fade them agree on ending at zero.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        steps: int,
        schedule: Literal["linear", "cosine"] = "linear",
        start: float = 1.0,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, steps=steps, schedule=schedule, start=start)
        schedule = one_of("schedule", schedule, ("linear", "cosine"))
        super().__init__(env, schedule=schedule, steps=steps, start=start)


class SparseToDense(Diff):
    """Strict shaping that begins at a step of the learner's: 0 below ``start_at``, then ``Diff``.

    Args:
        name: Name of the channel.
        start_at: The learner's step, at least 0.
        **rules: Those of ``Diff``.

    Raises:
        ValueError: An argument is outside its range.
    """

    memory: ClassVar[tuple[str, ...]] = ("phi", "k", "weight")

    def __init__(self, name: str, *, start_at: int, **rules: Any) -> None:
        super().__init__(name, **rules)
        self.start_at = whole("start_at", start_at, 0)
        self.k = 0
        self.weight = 0.0

    def set_progress(self, k: int) -> None:
        """Sets the weight from the next episode on.

        Raises:
            ValueError: ``k`` is no int of at least 0.
        """
        self.k = whole("k", k, 0)

    def begin(self, before: Verdict) -> None:
        """Takes the potential of the first state, and fixes the weight of the episode."""
        super().begin(before)
        self.weight = step(self.k, 1.0, self.start_at)

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """The shaping, or 0.0 in an episode that came too early."""
        amount = super().step(before, after, ended)
        return amount if self.weight else 0.0

    def bound(self, gamma: float) -> Bound:
        """That of the shaping, and nothing before it begins."""
        low, high, least, most = super().bound(gamma)
        return Bound(min(0.0, low), max(0.0, high), min(0.0, least), max(0.0, most))


class S2D(ChannelWrapper):
    """The toddler transition: the bare outcome first, strict shaping from ``start_at`` on.

    Pays what ``PotentialShaping`` pays in episodes that begin at ``k >= start_at`` and 0.0 before,
    where rewards are those of the environment bit for bit. Neither changes the best policies, with
    the ends as ``on_truncation`` says.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        gamma: Discount per turn in (0, 1]; must equal the learner's.
        on_truncation: ``"zero"`` if the learner takes a cut episode as ended (Monte-Carlo),
            ``"keep"`` if it bootstraps from the last state.
        start_at: The learner's step from which shaping is paid, at least 0; 20 % of training is a
            start.
        beta: Weight in (0, 1e6].
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: sparse-to-dense reward transitions (S2D).
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        gamma: float,
        on_truncation: AtEnd,
        start_at: int,
        beta: float = 1.0,
        name: str = "s2d",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self, gamma=gamma, on_truncation=on_truncation, start_at=start_at, beta=beta, name=name
        )
        beta = number("beta", beta, "(0, 1e6]")
        rules = {"gamma": gamma, "scale": beta, "terminal": "zero", "on_truncation": on_truncation}
        super().__init__(env, SparseToDense(name, start_at=start_at, **rules))

    def set_progress(self, k: int) -> None:
        """Sets the learner's step, which counts from the next reset on.

        Args:
            k: An int of at least 0; never wall time.

        Raises:
            ValueError: ``k`` is none.
        """
        layer = self.layer
        assert isinstance(layer, SparseToDense)
        layer.set_progress(k)


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
