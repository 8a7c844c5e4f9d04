"""The base of every reward layer, and the ``info["headway"]`` contract.

A *channel* looks at two verdicts and pays a number. A *filter* changes what the channels inside
it pay. Both are pure objects that know nothing of Gymnasium; the two wrappers here put them
around one environment, and :mod:`headway.wrappers.seat` around one seat of a PettingZoo game.

``info["headway"]``, at every step and reset::

    base          reward from everything that is no channel
    channels      {channel: what it paid this turn}
    channels_raw  {channel: the same before gates and schedules}
    phi           {potential: its value now}, once it was measured
    gate          {gate: open}, None while that is not decided
    status        "ok", "no_verdict" or "ungraded"; the last one of an episode is the episode's
    verdict       the Verdict behind it, for trainers and evaluators only

and ``base + sum(channels.values())`` is the reward, to 1e-9. A state is graded once a turn, by
the innermost layer; the others read its verdict. Layers write into the record that came with the
turn, as Gymnasium's own wrappers write into ``info``: copies at every layer would cost three
times ``RecordEpisodeStatistics``. So a recorder belongs outside the layers that it records.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from headway.verifiers import Checks, Verdict

Ended = Literal["no", "terminated", "truncated"]
"""How a turn ended the episode; one that is both terminated and truncated is terminated."""

Record = dict[str, Any]
"""The value of ``info["headway"]``."""


class Layer:
    """What channels and filters share: the memory of an episode, as data.

    Attributes:
        memory: Names of the attributes that change during an episode.
    """

    memory: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict[str, Any]:
        """The memory as a copy."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self.memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state_dict` returned.

        Raises:
            ValueError: ``state`` is of another kind of layer.
        """
        if set(state) != set(self.memory):
            raise ValueError(f"state must have keys {sorted(self.memory)}, got {sorted(state)}")
        for name in self.memory:
            setattr(self, name, copy.deepcopy(state[name]))


class Channel(Layer, ABC):
    """One named dense reward, a function of verdicts.

    Attributes:
        name: Its key in ``info["headway"]["channels"]``.
        keeps_optimum: Whether the policies that are best with it are best without it, episode
            returns being what is maximised.
        phi: Last measured value of the verdict's progress; None before the first measurement, and
            in channels that use no potential.
    """

    keeps_optimum: bool = False
    phi: float | None = None

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"name must be a text of at least one character, got {name!r}")
        self.name = name

    @abstractmethod
    def begin(self, before: Verdict) -> None:
        """Starts an episode, whose first state has the verdict ``before``. Pays nothing."""

    @abstractmethod
    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """What the turn from one verdict to the next is worth; finite.

        Without a verdict (``status`` is ``"no_verdict"``) the last measurement stands.
        """

    @abstractmethod
    def bound(self, gamma: float) -> tuple[float, float]:
        """Lowest and highest sum of ``gamma**t * step`` over an episode, whatever is done.

        Args:
            gamma: The learner's discount per turn, in (0, 1].
        """


class Filter(Layer, ABC):
    """Changes what the channels inside it pay; never ``base``, never ``channels_raw``.

    Attributes:
        key: What may stand only once in a stack; None for what may be stacked.
    """

    key: str | None = None

    @abstractmethod
    def begin(self, record: Record) -> None:
        """Starts an episode; may write to ``record``, the one of the reset."""

    @abstractmethod
    def step(self, record: Record, ended: Ended) -> None:
        """Puts a new dict in the place of ``record["channels"]``."""


def blank(base: float) -> Record:
    """The record of a turn that nobody has graded."""
    return {
        "base": base,
        "channels": {},
        "channels_raw": {},
        "phi": {},
        "gate": {},
        "status": "ungraded",
        "verdict": None,
    }


class RewardLayer(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """What both wrappers share: who grades, what the base is, episode memory.

    Raises:
        TypeError: No layer of ``env`` offers ``grade()``, or it returns no verdict.
        ValueError: The stack has a layer of that ``key`` already.
    """

    def __init__(self, env: gym.Env[Any, Any], layer: Layer, key: str | None) -> None:
        gym.Wrapper.__init__(self, env)
        for inner in inner_layers(env):
            if key is not None and inner.key == key:
                raise ValueError(f"a stack holds each name once and has {key} already; {_remedy(key)}")
        self.layer = layer
        self.key = key
        self._grade = _grader(env)
        self._plain = _plain(env)
        self._adopts = not self._plain

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; pays nothing."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._grade = _grader(self.env)
        foreign = "headway" not in info
        self._adopts = foreign or not self._plain
        if foreign:
            info = {**info, "headway": blank(0.0)}
        record = info["headway"]
        if record["verdict"] is None:
            self._measure(record)
        if not isinstance(record["verdict"], Verdict):
            raise TypeError(f"grade() must return a Verdict, got {record['verdict']!r}")
        self._begin(record)
        return obs, info

    def get_state(self) -> dict[str, Any]:
        """This layer's memory of the episode; the environment's own is not in it."""
        return {"layer": self.layer.state_dict(), "adopts": self._adopts}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`get_state` returned.

        Raises:
            ValueError: ``state`` is of another kind of layer.
        """
        self.layer.load_state_dict(state["layer"])
        self._adopts = state["adopts"]

    def _begin(self, record: Record) -> None:
        raise NotImplementedError

    def _measure(self, record: Record) -> Verdict:
        verdict: Verdict = self._grade()
        record["verdict"], record["status"] = verdict, verdict.status
        return verdict

    def _adopt(self, reward: Any, info: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """Makes the sum right behind wrappers that change rewards, and in foreign environments.

        Whatever they added or took is base. Their ``info`` stays as it was: some hand out the
        same dict every turn.
        """
        reward = float(reward)
        record = blank(reward)
        if self._plain or "headway" not in info:
            return reward, {**info, "headway": record}
        record = {**info["headway"]}
        gap = reward - record["base"] - sum(record["channels"].values())
        if abs(gap) > 1e-9:
            record["base"] += gap
        return reward, {**info, "headway": record}
