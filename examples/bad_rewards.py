"""A gallery of rewards that can be farmed or claim what is not so; none of them is for use.

Each looks sensible, and ``headway audit`` says what is wrong with it, with a play that shows it:

    cd examples
    headway audit Apps --stack bad_rewards:every_turn --gamma 0.99
    headway audit Apps --stack "progress,bad_rewards:forgiving_gate" --gamma 1.0
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym

from headway.verifiers import Look, Record, Verdict
from headway.wrappers import Channel, ChannelWrapper, Diff, Ended, Filter, FilterWrapper
from headway.wrappers.channel import Bound
from headway.wrappers.transforms import PotentialChannel

SCALE = 0.3


def every_turn(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Progress itself, paid every turn: who has some hovers there."""
    return ChannelWrapper(env, _EveryTurn("every turn", None))


class _EveryTurn(PotentialChannel):
    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        _, now = self.moved(after)
        return SCALE * (now or 0.0)

    def bound(self, gamma: float) -> Bound:
        high = SCALE / (1.0 - gamma) if gamma < 1.0 else math.inf
        return Bound(0.0, high, 0.0, SCALE)


def gains_only(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Progress gained, with losses clipped to nothing: who does and undoes gains again."""
    return ChannelWrapper(env, _GainsOnly("gains only", None))


class _GainsOnly(PotentialChannel):
    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        was, now = self.moved(after)
        return SCALE * max(0.0, (now or 0.0) - (was or 0.0))

    def bound(self, gamma: float) -> Bound:
        high = SCALE / (1.0 - gamma) if gamma < 1.0 else math.inf
        return Bound(0.0, high, 0.0, SCALE)


def undiscounted(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """``phi' - phi`` under a learner that discounts: what is lost later weighs less."""
    channel = Diff("undiscounted", gamma=1.0, scale=SCALE, terminal="keep", on_truncation="keep")
    return ChannelWrapper(env, channel)


def good_calls(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """A little for every call that succeeds: any harmless call, for ever."""
    return ChannelWrapper(env, _GoodCalls("good calls"))


class _GoodCalls(Channel):
    hears = True
    good = 0

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        self.good = sum(not call["error"] for call in info.get("calls", ()))

    def begin(self, before: Verdict) -> None:
        self.good = 0

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        return 0.01 * self.good

    def bound(self, gamma: float) -> Bound:
        return Bound(0.0, math.inf, 0.0, math.inf)


def every_visit(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Novelty by counts without a limit to first visits: 1/sqrt(n) never runs out."""
    return ChannelWrapper(env, _EveryVisit("every visit"))


class _EveryVisit(Channel):
    memory: ClassVar[tuple[str, ...]] = ("counts", "place")
    hears = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.counts: dict[str, int] = {}
        self.place = ""

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        self.place = look("anchor")()

    def begin(self, before: Verdict) -> None:
        pass

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        self.counts[self.place] = self.counts.get(self.place, 0) + 1
        return 0.05 / math.sqrt(self.counts[self.place])

    def bound(self, gamma: float) -> Bound:
        return Bound(0.0, 0.05 / (1.0 - gamma) if gamma < 1.0 else math.inf, 0.0, 0.05)


def kept_shaping(env: gym.Env[Any, Any], *, gamma: float) -> gym.Env[Any, Any]:
    """Shaping whose last potential is kept, and which claims to change no best policy."""
    channel = _Kept("kept shaping", gamma=gamma, scale=SCALE, terminal="keep", on_truncation="keep")
    return ChannelWrapper(env, channel)


class _Kept(Diff):
    def keeps_optimum(self, gamma: float) -> bool:
        return True


def forgiving_gate(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """A gate that withholds losses as well: damage, while it stands, makes losing free."""
    return FilterWrapper(env, _Forgiving())


class _Forgiving(Filter):
    def begin(self, record: Record) -> None:
        pass

    def step(self, record: Record, ended: Ended) -> None:
        if record["verdict"].violations:
            record["channels"].update(dict.fromkeys(record["channels"], 0.0))

    def bound(self, inner: Bound, gamma: float) -> Bound:
        return inner


def too_modest(env: gym.Env[Any, Any], *, gamma: float) -> gym.Env[Any, Any]:
    """Honest progress that declares half of what it can pay."""
    return ChannelWrapper(
        env,
        _Modest("modest", gamma=gamma, scale=SCALE, terminal="keep", on_truncation="keep"),
    )


class _Modest(Diff):
    def bound(self, gamma: float) -> Bound:
        return Bound(*(amount / 2.0 for amount in super().bound(gamma)))
