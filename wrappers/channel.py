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
    credit        {channel: amounts}, at the end, of a placebo that moves pay between turns
    unmeasured    {channel: why}, where a channel's own scorer or judge failed: mask the episode

The last two are there only where there is something to tell. ``base + sum(channels.values())`` is
the reward, to 1e-9. A state is graded once a turn, by the innermost layer; the others read its
verdict. Layers write into the record that came with the turn, as Gymnasium's own wrappers write
into ``info``: copying it would be most of a layer's cost. So a recorder belongs outside the layers
that it records.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from headway.verifiers import Ear, Record, Verdict, blank

Ended = Literal["no", "terminated", "truncated"]
"""How a turn ended the episode; one that is both terminated and truncated is terminated."""


class Bound(NamedTuple):
    """What a channel can pay, whatever is done; infinities where nothing limits it.

    Attributes:
        low: Least sum of ``gamma**t * amount`` over an episode.
        high: Greatest sum of the same.
        least: Least amount of one turn.
        most: Greatest amount of one turn.
    """

    low: float
    high: float
    least: float
    most: float


class Layer(Ear):
    """What channels and filters share: the memory of an episode, as data.

    Attributes:
        key: What a stack may hold only once; None for any number of it.
        outermost: Whether no filter may stand around it, as it tells amounts that would not be
            those that are paid.
        lasting: Whether its memory outlasts episodes, so that siblings that are forked and thrown
            away would take it with them.
    """

    key: str | None = None
    outermost: bool = False
    lasting: bool = False

    def keeps_optimum(self, gamma: float) -> bool:
        """Whether the policies that are best with it are best without it.

        Of a channel by itself, of a filter around channels that keep it.

        Args:
            gamma: The learner's discount per turn, in (0, 1]; what is maximised is the return of an
                episode under it.
        """
        return False


OUTSIDE = "(no channel)"
"""Name under which an audit shows what comes from no channel."""

RESERVED = ("base", OUTSIDE)
"""What no channel may be called: the outcome, and what comes from none."""


class Channel(Layer, ABC):
    """One named dense reward, a function of verdicts.

    Attributes:
        name: Its key in ``info["headway"]["channels"]``.
        potential: Name of the potential that it reads; None where it reads none.
        phi: Last measured value of that; None before the first measurement.
        failed: Why it could not measure on the last turn, beside the verdict; empty if it could.
            It paid as for standing still then: no reward of that turn, so the episode is masked.
    """

    potential: str | None = None
    phi: float | None = None
    failed: str = ""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"name must be a text of at least one character, got {name!r}")
        if name in RESERVED:
            raise ValueError(f"name must be none of {RESERVED}, which mean something else")
        self.name = name
        self.key = f"channel {name!r}"

    @abstractmethod
    def begin(self, before: Verdict) -> None:
        """Starts an episode, whose first state has the verdict ``before``. Pays nothing."""

    @abstractmethod
    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """What the turn from one verdict to the next is worth; finite.

        Without a verdict (``status`` is ``"no_verdict"``) the last measurement stands.
        """

    @abstractmethod
    def bound(self, gamma: float) -> Bound:
        """What it can pay under the learner's discount ``gamma`` per turn, in (0, 1]."""


class Filter(Layer, ABC):
    """Changes what the channels inside it pay; never ``base``, never ``channels_raw``."""

    @abstractmethod
    def begin(self, record: Record) -> None:
        """Starts an episode; may write to ``record``, the one of the reset."""

    @abstractmethod
    def step(self, record: Record, ended: Ended) -> None:
        """Changes amounts in ``record["channels"]``, a dict of its own, in place."""

    @abstractmethod
    def bound(self, inner: Bound, gamma: float) -> Bound:
        """What is left of a channel that can pay ``inner`` under the learner's discount."""


L = TypeVar("L", bound=Layer)


class RewardLayer(
    gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs, ABC, Generic[L]
):
    """What both wrappers share: who grades, what is base, the memory of the episode.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        layer: The pure object; copied, so one object may serve many environments.

    Raises:
        TypeError: Nothing in ``env`` offers ``grade()``.
        ValueError: ``env`` holds a layer of the same key already, or one that suffers no filter
            around it.
    """

    def __init__(self, env: gym.Env[Any, Any], layer: L) -> None:
        gym.Wrapper.__init__(self, env)
        refuse_misfits([*(inner.layer for inner in reversed(list(layers_of(env)))), layer])
        self.layer: L = copy.deepcopy(layer)
        self._grade = grader_of(env)
        self._hears = self.layer.hears
        self._mixed = _mixed(env)
        self._adopts = self._mixed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode and pays nothing.

        Raises:
            TypeError: ``grade()`` returned no Verdict.
        """
        obs, info = self.env.reset(seed=seed, options=options)
        self._grade = grader_of(self.env)
        self._adopts = self._mixed or "headway" not in info
        if self._adopts:
            info = self._adopt(0.0, info)
        record = info["headway"]
        measure(record, self._grade)
        if self._hears:
            self.layer.hear(None, obs, info, self.env.get_wrapper_attr)
        self._begin(record)
        return obs, info

    def get_state(self) -> dict[str, Any]:
        """This layer's memory of the episode as plain data; what is inside it has its own."""
        return {"layer": self.layer.state_dict(), "adopts": self._adopts}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`get_state` returned.

        Raises:
            ValueError: ``state`` is of another kind of layer.
        """
        if not {"layer", "adopts"} <= set(state):
            raise ValueError(f"state must have keys 'layer' and 'adopts', got {sorted(state)}")
        self.layer.load_state_dict(state["layer"])
        self._adopts = state["adopts"]

    @abstractmethod
    def _begin(self, record: Record) -> None: ...

    def _adopt(self, reward: float, info: dict[str, Any]) -> dict[str, Any]:
        """Makes the sum right in foreign environments and behind wrappers that change rewards.

        Whatever those added or took is base. A foreign ``info`` is left as it was: some
        environments hand out the same dict every turn.
        """
        record = info.get("headway")
        if record is None:
            return {**info, "headway": blank(reward)}
        gap = reward - record["base"] - sum(record["channels"].values())
        if abs(gap) > 1e-9:
            record["base"] += gap
        return info


class ChannelWrapper(RewardLayer[Channel]):
    """Adds one channel to the reward of an environment.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        channel: What to pay.

    Raises:
        TypeError: Nothing in ``env`` offers ``grade()``.
        ValueError: ``env`` has a channel of that name already.
    """

    def __init__(self, env: gym.Env[Any, Any], channel: Channel) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, channel=channel)
        super().__init__(env, channel)
        self._before = Verdict(math.nan, False, {}, status="no_verdict", reason="no reset yet")

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays one turn and adds what the channel pays for it."""
        reward: Any
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self._adopts:
            reward, terminated, truncated = float(reward), bool(terminated), bool(truncated)
            info = self._adopt(reward, info)
        # From here on measure() and note(), written out: this runs at every layer of every turn.
        record = info["headway"]
        after = record["verdict"]
        if after is None:
            after = record["verdict"] = self._grade()
            record["status"] = after.status
        channel = self.layer
        if self._hears:
            channel.hear(action, obs, info, self.env.get_wrapper_attr)
        ended: Ended = "terminated" if terminated else "truncated" if truncated else "no"
        amount = channel.step(self._before, after, ended)
        self._before = after
        name = channel.name
        record["channels"][name] = record["channels_raw"][name] = amount
        if channel.phi is not None:
            phi = record["phi"]
            if channel.potential not in phi:
                phi[channel.potential] = channel.phi
        if channel.failed:
            record.setdefault("unmeasured", {})[name] = channel.failed
        return obs, reward + amount, terminated, truncated, info

    def get_state(self) -> dict[str, Any]:
        """This layer's memory of the episode as plain data; what is inside it has its own."""
        return {**super().get_state(), "before": self._before.plain()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`get_state` returned.

        Raises:
            ValueError: ``state`` is of another kind of layer.
        """
        super().set_state(state)
        before = state["before"]
        self._before = Verdict(**{**before, "violations": tuple(before["violations"])})

    def _begin(self, record: Record) -> None:
        self._before = record["verdict"]
        self.layer.begin(record["verdict"])
        note(record, self.layer, 0.0)


class FilterWrapper(RewardLayer[Filter]):
    """Puts one filter around the channels of an environment.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        filter: What to do with the channels inside.

    Raises:
        TypeError: Nothing in ``env`` offers ``grade()``.
        ValueError: ``env`` has that gate already, or a layer that suffers no filter around it.
    """

    def __init__(self, env: gym.Env[Any, Any], filter: Filter) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, filter=filter)
        super().__init__(env, filter)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays one turn and pays what the filter leaves of it."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self._adopts:
            terminated, truncated = bool(terminated), bool(truncated)
            info = self._adopt(float(reward), info)
        record = info["headway"]
        if record["verdict"] is None:
            measure(record, self._grade)
        if self._hears:
            self.layer.hear(action, obs, info, self.env.get_wrapper_attr)
        self.layer.step(record, "terminated" if terminated else "truncated" if truncated else "no")
        reward = record["base"]
        for amount in record["channels"].values():
            reward += amount
        return obs, reward, terminated, truncated, info

    def _begin(self, record: Record) -> None:
        self.layer.begin(record)


def measure(record: Record, grade: Callable[[], Verdict]) -> Verdict:
    """The verdict of the turn, graded now unless it was before.

    Raises:
        TypeError: ``grade()`` returned no Verdict.
    """
    verdict: Verdict | None = record["verdict"]
    if verdict is None:
        verdict = record["verdict"] = grade()
        if not isinstance(verdict, Verdict):
            raise TypeError(f"grade() must return a Verdict, got {verdict!r}")
        record["status"] = verdict.status
    return verdict


def note(record: Record, channel: Channel, amount: float) -> None:
    """Writes what a channel paid, and the potential it used, into the record of the turn."""
    name = channel.name
    record["channels"][name] = record["channels_raw"][name] = amount
    if channel.phi is not None and channel.potential not in record["phi"]:
        record["phi"][channel.potential] = channel.phi
    if channel.failed:
        record.setdefault("unmeasured", {})[name] = channel.failed


def refuse_misfits(layers: Sequence[Layer]) -> None:
    """Makes sure that no two layers write to one place, and that none makes another tell lies.

    Args:
        layers: From the inside out.

    Raises:
        ValueError: Two of them have the same key, or a filter is around an outermost one.
    """
    seen: set[str] = set()
    whole: Layer | None = None
    for layer in layers:
        if whole is not None and isinstance(layer, Filter):
            raise ValueError(
                f"a {type(whole).__name__} that tells what it pays must have no filter around it, "
                f"got a {type(layer).__name__} there; put it outermost, and only one"
            )
        whole = layer if layer.outermost else whole
        if layer.key in seen:
            remedy = "give one of them another name=" if isinstance(layer, Channel) else "drop one"
            raise ValueError(f"a stack may hold {layer.key} only once; {remedy}")
        if layer.key is not None:
            seen.add(layer.key)


def layers_of(env: gym.Env[Any, Any]) -> Iterator[RewardLayer[Any]]:
    """The reward layers of a stack, from the outside in."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, RewardLayer):
            yield env
        env = env.env


def _mixed(env: gym.Env[Any, Any]) -> bool:
    """Whether a wrapper that may change rewards stands between ``env`` and the record's author."""
    while isinstance(env, OrderEnforcing | PassiveEnvChecker | TimeLimit):
        env = env.env
    return isinstance(env, gym.Wrapper) and not isinstance(env, RewardLayer)


def grader_of(env: gym.Env[Any, Any]) -> Callable[[], Verdict]:
    """What grades the present state of an environment.

    Raises:
        TypeError: Nothing in ``env`` offers ``grade()``.
    """
    try:
        grade: Callable[[], Verdict] = env.get_wrapper_attr("grade")
    except AttributeError:
        raise TypeError(
            f"env must offer grade() -> Verdict, got {env}; wrap a foreign environment in a "
            "subclass of headway.wrappers.Graded first"
        ) from None
    return grade
