"""First times: pay only for what was not done before, or for being where one has not been."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from headway.arguments import named, number
from headway.verifiers import Look, Record, Verdict
from headway.wrappers.channel import Bound, Channel, ChannelWrapper, Ended, Filter, FilterWrapper
from headway.wrappers.transforms import endless

Key = Callable[[Any, Any, Mapping[str, Any], Look], Any]
"""``key(action, observation, info, look)`` is what makes a turn the same as another; None: nothing.

Called at reset too, with None as the action.
"""

SHORT = 64
"""Texts of up to so many characters are remembered as they are, longer ones by a digest."""

ROOM = 10_000
"""How many anchors are counted; the one that was not met for longest is forgotten first."""


def action(action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> Any:
    """The action as it was given."""
    return action


def calls(action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> Any:
    """The tools that were called, and with what; however it was written and whatever came of it.

    Raises:
        TypeError: The environment does not tell.
    """
    if "calls" not in info:
        raise TypeError("env must tell info['calls'] to be paid by calls; use key='action'")
    made = [[call["tool"], call["args"]] for call in info["calls"]]
    return None if action is None else json.dumps(made, sort_keys=True, default=repr)


def anchor(action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> Any:
    """The state, as the environment tells states apart; the first one is met at reset.

    Raises:
        TypeError: The environment does not tell.
    """
    try:
        return look("anchor")()
    except AttributeError:
        raise TypeError(
            "env must offer anchor() -> str, equal in equal states, to tell states apart; "
            "give it that method, or use key='observation'"
        ) from None


def observation(action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> Any:
    """What the agent was shown; that of the reset counts as seen."""
    return observation


KEYS: Mapping[str, Key] = MappingProxyType(
    {"action": action, "calls": calls, "anchor": anchor, "observation": observation}
)
"""What makes turns the same, by the names that ``DedupReward`` takes."""


def digest(value: Any) -> str:
    """A text of bounded length that differs where ``value`` does.

    Of a text, of an array, or of what ``repr`` shows. Up to ``SHORT`` characters are themselves,
    which no digest of more can be.
    """
    if isinstance(value, str):
        if len(value) <= SHORT:
            return value
        data = value.encode(errors="surrogatepass")
    elif isinstance(value, np.ndarray):
        data = f"{value.dtype} {value.shape} ".encode() + value.tobytes()
    else:
        data = repr(value).encode(errors="surrogatepass")
    return f"sha256 {hashlib.sha256(data).hexdigest()}"


class Dedup(Filter):
    """Lets gains pass the first time that a turn's key comes up in an episode; losses always.

    Args:
        key: A name in ``KEYS``, or ``"module:function"`` for a ``Key`` of your own.

    Raises:
        ValueError: There is no such key.
    """

    memory: ClassVar[tuple[str, ...]] = ("seen",)
    hears = True

    def __init__(self, key: str) -> None:
        self.of: Key = named("key", key, KEYS)
        self.seen: dict[str, int] = {}
        self.now: str | None = None

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Takes the key of the turn."""
        found = self.of(action, observation, info, look)
        self.now = None if found is None else digest(found)

    def begin(self, record: Record) -> None:
        """Forgets the last episode."""
        self.seen = {}
        self._first()

    def step(self, record: Record, ended: Ended) -> None:
        """Withholds the gains of a turn whose key came up before."""
        if self._first():
            return
        paid = record["channels"]
        for name, amount in paid.items():
            if amount > 0.0:
                paid[name] = 0.0

    def bound(self, inner: Bound, gamma: float) -> Bound:
        """Never more than without it; losses add up where gains are withheld."""
        least, most = min(0.0, inner.least), max(0.0, inner.most)
        low = -math.inf if least < 0.0 < most else min(0.0, inner.low)
        return Bound(low, max(0.0, inner.high), least, most)

    def _first(self) -> bool:
        if self.now is None:
            return True
        times = self.seen[self.now] = self.seen.get(self.now, 0) + 1
        return times == 1


class DedupReward(FilterWrapper):
    """Pays the channels inside it once for each kind of turn in an episode.

    A turn whose key came up before in the episode earns nothing, whether it was paid then or not;
    what it is charged always passes. So repeating what once paid does not pay again, for channels
    that would. An episode never gets more than without it.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        key: ``"action"`` (the text), ``"calls"`` (tools and arguments, from ``info["calls"]``),
            ``"anchor"`` (the state, from ``env.anchor()``), ``"observation"``, or a function
            ``(action, observation, info, look) -> Any`` of your own as ``"module:function"``.

    Raises:
        ValueError: There is no such key.
        TypeError: Nothing in ``env`` offers ``grade()``; at reset: it does not tell what the key
            is made of.
    """

    def __init__(self, env: gym.Env[Any, Any], *, key: str = "calls") -> None:
        gym.utils.RecordConstructorArgs.__init__(self, key=key)
        super().__init__(env, Dedup(key))


class Novelty(Channel):
    """Pays ``b / sqrt(N)`` for a state first met in this episode, the N-th that met it.

    N is kept over all episodes, for the ``ROOM`` states met last; one that was forgotten counts as
    new again. The first state of an episode is met at reset, where nothing is paid. No episode
    is paid more than ``cap``: an environment where junk makes new states has no end of them.

    Args:
        name: Name of the channel.
        b: What a state that no episode has met is worth, in (0, inf).
        cap: Most that an episode is paid, in (0, inf).

    Raises:
        ValueError: An argument is outside its range.
    """

    memory: ClassVar[tuple[str, ...]] = ("met", "paid", "counts")
    hears = True
    lasting = True

    def __init__(self, name: str, *, b: float, cap: float) -> None:
        super().__init__(name)
        self.b = number("b", b, "(0, inf)")
        self.cap = number("cap", cap, "(0, inf)")
        self.met: dict[str, int] = {}
        self.paid = 0.0
        self.counts: dict[str, int] = {}
        self.now = ""

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Takes the state that the turn led to."""
        self.now = digest(anchor(action, observation, info, look))

    def begin(self, before: Verdict) -> None:
        """Forgets the last episode, but not how often states were met."""
        self.met, self.paid = {}, 0.0
        self._meet()

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """What the state is worth; 0.0 where this episode has been."""
        if self.now in self.met:
            return 0.0
        amount = min(self.b / math.sqrt(self._meet()), self.cap - self.paid)
        self.paid += amount
        return amount

    def bound(self, gamma: float) -> Bound:
        """At most ``cap``, and no more than a new state every turn."""
        most = min(self.b, self.cap)
        return Bound(0.0, min(self.cap, endless(most, gamma)), 0.0, most)

    def _meet(self) -> int:
        """How many episodes have met the state of the turn, with this one."""
        self.met[self.now] = 1
        times = self.counts.pop(self.now, 0) + 1
        self.counts[self.now] = times  # to the end, so that the first is the one to forget
        if len(self.counts) > ROOM:
            del self.counts[next(iter(self.counts))]
        return times


class NoveltyReward(ChannelWrapper):
    """Pays for states that few episodes have met: ``b / sqrt(N)``, once an episode.

    N counts the episodes that met the state, this one included, so the pay of a place that every
    episode passes falls like ``N**-0.5``. Going back pays nothing. At most ``cap`` an episode. The
    counts outlast episodes: they are part of the layer's state, and each lane of a vector has
    its own; the ``ROOM`` states met last are remembered.

    Args:
        env: An environment that offers ``grade() -> Verdict`` and ``anchor() -> str``, which is
            equal in equal states.
        b: What a state that no episode has met is worth, in (0, inf).
        cap: Most that an episode is paid beside the outcome of 1.0, in (0, 1).
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
        TypeError: Nothing in ``env`` offers ``grade()``; at reset: nothing offers ``anchor()``.

    Source: counts as in MBIE-EB (Strehl and Littman, 2008), times a term of the episode; the cap
    is our own.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        b: float = 0.01,
        cap: float = 0.25,
        name: str = "novelty",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, b=b, cap=cap, name=name)
        super().__init__(env, Novelty(name, b=b, cap=number("cap", cap, "(0, 1)")))
