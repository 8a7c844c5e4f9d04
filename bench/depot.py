"""The miniature on which learners are compared: a depot, six checks deep.

    order cup north gold        the first observation: what, where to, paid by which card
    find cup yes                an action: a tool, its argument, and whether the call will succeed
    ok at s3                    what came of it

It is small enough that a policy of half a million weights learns it on one core, and has what makes
a long task hard: an order of steps, facts that are told once they are asked for and have to be
copied, a step that no other needs, and a tool that always succeeds and helps nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium as gym

from headway.arguments import number, whole
from headway.envs.rng import Rng
from headway.envs.spaces import CUT, Cut, TextSpace
from headway.verifiers import KINDS, Acceptance, Allow, Check, Grader, Look, Table, Verdict, blank
from headway.wrappers.channel import Bound, Channel, ChannelWrapper, Ended

ITEMS = tuple("cup lamp book fork vase rope drum kite sock coin bell mask".split())
SHELVES = tuple(f"s{n}" for n in range(1, 9))
SIZES = ("small", "mid", "big")
ZONES = ("north", "south", "east", "west")
CARDS = ("gold", "blue", "grey", "pink")

TOOLS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "find": ITEMS,
        "pick": SHELVES,
        "pack": SIZES,
        "label": ZONES,
        "pay": CARDS,
        "ship": ZONES,
        "note": ITEMS,
        "quit": ZONES,
    }
)
"""Every tool with the words that its argument may be."""

GUESSES = ("yes", "nah")
"""The last word of an action: the call will succeed, or not."""

WORDS = (
    *("order", "ok", "no", "at", "got", "done", "bad"),
    *(*GUESSES, *TOOLS),
    *(*ITEMS, *SHELVES, *SIZES, *ZONES, *CARDS),
)
"""Every word of observations and actions."""

STEPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "find": (),
        "pick": ("find",),
        "pack": ("pick",),
        "label": ("pack",),
        "pay": (),
        "ship": ("label", "pay"),
    }
)
"""The tools that a task needs, in the order of the expert, with those that come before each."""

DEPOT = "Depot-v0"
"""How the ids of its tasks begin."""

_BITS = {tool: 1 << place for place, tool in enumerate(STEPS)}
_NEEDS = {tool: sum(_BITS[name] for name in needs) for tool, needs in STEPS.items()}
_ALL = sum(_BITS.values())


class Depot(gym.Env[str, str | Cut]):
    """Find, pick, pack and label what was ordered, pay it, and ship it.

    Action: ``TOOL ARGUMENT GUESS``, each one word, or ``headway.CUT``. ``find`` tells the shelf
    that ``pick`` takes, ``pick`` the size that ``pack`` takes; the other arguments are words of the
    order. Observation: the order at reset; then ``ok`` with what was asked for, ``no`` where the
    argument is wrong or something has to be done first, ``bad`` for any other text. ``note`` is
    always ``ok`` and does nothing; ``quit`` ends the episode.
    Reward: 1.0 when all of ``STEPS`` is done, else 0.0.
    Ends: terminated when all is done and by ``quit``; else truncated on the last turn or a cut.
    What is done stays done, and every turn is graded. ``info["guess"]`` is whether the guess of an
    action was right, None where it had none.

    Args:
        horizon: Turns of an episode, at least 1. Six are needed; with two more a learner has room
            to err.

    Raises:
        ValueError: ``horizon`` is outside its range.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # Gymnasium's own annotation

    def __init__(self, horizon: int = 8) -> None:
        self.horizon = whole("horizon", horizon, 1)
        self.action_space = TextSpace(cut=True)
        self.observation_space = TextSpace()
        self._right: Mapping[str, str] = {}
        self._seed, self._done, self._turn, self._ended = 0, 0, 0, True

    @property
    def task_id(self) -> str:
        """``Depot-v0/<horizon>/<seed>``."""
        return f"{DEPOT}/{self.horizon}/{self._seed}"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts the task that ``seed`` names, or the one of ``options["task_id"]``.

        Args:
            seed: At least 0. None draws one from ``np_random``.
            options: Nothing, or ``task_id``, which also sets the horizon.

        Raises:
            ValueError: An option is unknown, or the task's id is none of this world.
        """
        asked = options or {}
        if asked.keys() - {"task_id"}:
            raise ValueError(f"options may hold task_id, got {sorted(asked)}")
        named = _parsed(asked["task_id"]) if asked else None
        super().reset(seed=seed)
        if named is not None:
            self.horizon, self._seed = named
        else:
            self._seed = int(self.np_random.integers(2**31)) if seed is None else int(seed)
        self._right = _arguments(self._seed)
        self._done, self._turn, self._ended = 0, 0, False
        asked_for = " ".join(self._right[tool] for tool in ("find", "label", "pay"))
        return f"order {asked_for}", self._info(0.0, [], None)

    def step(self, action: str | Cut) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Plays one turn.

        Raises:
            ResetNeeded: The episode is over.
            TypeError: ``action`` is neither text nor ``CUT``.
        """
        if self._ended:
            raise gym.error.ResetNeeded("no episode is running; call reset() before step()")
        if action is not CUT and not isinstance(action, str):
            raise TypeError(f"action must be str or headway.CUT, got {type(action).__name__}")
        self._turn += 1
        calls: list[dict[str, Any]] = []
        guess, quits = None, False
        if isinstance(action, Cut):
            reply = "no"
        elif (call := _read(action)) is None:
            reply = "bad"
            calls.append({"tool": None, "args": {}, "error": True})
        else:
            tool, argument, guessed = call
            reply, quits = self._answer(tool, argument), tool == "quit"
            good = reply.startswith("ok")
            guess = (guessed == "yes") is good
            calls.append({"tool": tool, "args": {"argument": argument}, "error": not good})
        success = self._done == _ALL
        terminated = success or quits
        self._ended = terminated or action is CUT or self._turn >= self.horizon
        outcome = 1.0 if success else 0.0
        info = self._info(outcome, calls, guess)
        return reply, outcome, terminated, self._ended and not terminated, info

    def grade(self) -> Verdict:
        """The verdict on the state as it stands."""
        return _verdict(self._done, self._ended)

    def anchor(self) -> str:
        """What is done, which is all that can differ within a task, apart from the turn."""
        return " ".join(tool for tool, bit in _BITS.items() if self._done & bit)

    def gold(self) -> tuple[str, ...]:
        """What the order leaves unsaid: shelf and size."""
        return (f"{self._right['pick']} {self._right['pack']}",)

    def reference(self) -> list[dict[str, Any]]:
        """One right sequence of calls from the start."""
        return [
            {"tool": tool, "args": {"argument": argument}} for tool, argument in self._right.items()
        ]

    def solution(self) -> list[str]:
        """Actions that solve the task from its start, with right guesses."""
        return [f"{tool} {argument} yes" for tool, argument in self._right.items()]

    def expert(self) -> str:
        """The action that does the first thing that is still to be done, whatever went before.

        Raises:
            ResetNeeded: The episode is over.
        """
        if self._ended:
            raise gym.error.ResetNeeded("nothing is left to do; call reset() before expert()")
        tool = next(tool for tool, bit in _BITS.items() if not self._done & bit)
        return f"{tool} {self._right[tool]} yes"

    def chance(self, rng: Rng) -> str:
        """A well-formed action that knows nothing: any tool, an argument of its kind, any guess."""
        tool = rng.choice(tuple(TOOLS))
        return f"{tool} {rng.choice(TOOLS[tool])} {rng.choice(GUESSES)}"

    def get_state(self) -> dict[str, Any]:
        """The episode as plain data."""
        return {
            "task_id": self.task_id,
            "done": self._done,
            "turn": self._turn,
            "ended": self._ended,
            "np_random": copy.deepcopy(self.np_random.bit_generator.state),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`get_state` returned.

        Raises:
            ValueError: ``state`` is no such state.
        """
        keys = ["task_id", "done", "turn", "ended", "np_random"]
        if sorted(state) != sorted(keys):
            raise ValueError(f"state must have the keys {keys}, got {sorted(state)}")
        self.horizon, self._seed = _parsed(state["task_id"])
        self._right = _arguments(self._seed)
        self._done, self._turn, self._ended = state["done"], state["turn"], state["ended"]
        self.np_random.bit_generator.state = copy.deepcopy(state["np_random"])

    def __deepcopy__(self, memo: dict[int, Any]) -> Depot:
        """A sibling in mid-episode with a stream of its own; all else are values."""
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__ = dict(self.__dict__)
        twin._np_random = copy.deepcopy(self._np_random)
        return twin

    def _answer(self, tool: str, argument: str) -> str:
        """Does what a call asks for and says what came of it."""
        if tool not in STEPS:
            return "ok" if tool == "note" else "no"
        if argument != self._right[tool] or _NEEDS[tool] & ~self._done:
            return "no"
        self._done |= _BITS[tool]
        if tool == "find":
            return f"ok at {self._right['pick']}"
        if tool == "pick":
            return f"ok got {self._right['pack']}"
        return "ok done" if tool == "ship" else "ok"

    def _info(
        self, outcome: float, calls: list[dict[str, Any]], guess: bool | None
    ) -> dict[str, Any]:
        record = blank(outcome)
        verdict = record["verdict"] = self.grade()
        record["status"] = verdict.status
        record["phi"]["checks"] = verdict.progress
        return {
            "task_id": self.task_id,
            "turn": self._turn,
            "calls": calls,
            "guess": guess,
            "headway": record,
        }


class GuessReward(ChannelWrapper):
    """Pays, on the last turn, ``weight`` times the share of turns whose guess was right.

    A guess that fails is as easy to foresee as one that succeeds, so a policy can be paid in full
    without doing anything of the order: the dark room.

    Args:
        env: A depot.
        weight: Most that an episode is paid, in (0, inf).
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
    """

    def __init__(self, env: gym.Env[Any, Any], *, weight: float = 0.3, name: str = "guess") -> None:
        gym.utils.RecordConstructorArgs.__init__(self, weight=weight, name=name)
        super().__init__(env, Guesses(name, number("weight", weight, "(0, inf)")))


class Guesses(Channel):
    """See :class:`GuessReward`."""

    memory: ClassVar[tuple[str, ...]] = ("right", "turns")
    hears = True

    def __init__(self, name: str, weight: float) -> None:
        super().__init__(name)
        self.weight = weight
        self.right = self.turns = 0

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Counts the turn and its guess."""
        if action is not None:
            self.turns += 1
            self.right += info["guess"] is True

    def begin(self, before: Verdict) -> None:
        """Forgets the last episode."""
        self.right = self.turns = 0

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """The share, when the episode is over."""
        return 0.0 if ended == "no" else self.weight * self.right / self.turns

    def bound(self, gamma: float) -> Bound:
        """At most the weight."""
        return Bound(0.0, self.weight, 0.0, self.weight)


class CallReward(ChannelWrapper):
    """Pays ``weight`` for each call that is answered with ok, without end: ``note`` farms it.

    Args:
        env: A depot.
        weight: Pay for a call, in (0, inf).
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
    """

    def __init__(self, env: gym.Env[Any, Any], *, weight: float = 0.1, name: str = "calls") -> None:
        gym.utils.RecordConstructorArgs.__init__(self, weight=weight, name=name)
        turns = env.get_wrapper_attr("horizon")
        super().__init__(env, Calls(name, number("weight", weight, "(0, inf)"), turns))


class Calls(Channel):
    """See :class:`CallReward`."""

    memory: ClassVar[tuple[str, ...]] = ("good",)
    hears = True

    def __init__(self, name: str, weight: float, turns: int) -> None:
        super().__init__(name)
        self.weight, self.turns = weight, turns
        self.good = 0

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Counts the calls of the turn that were answered with ok."""
        self.good = sum(not call["error"] for call in info["calls"])

    def begin(self, before: Verdict) -> None:
        """Nothing was called yet."""
        self.good = 0

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """What the turn's calls are paid."""
        return self.weight * self.good

    def bound(self, gamma: float) -> Bound:
        """One call a turn."""
        most = sum(self.weight * gamma**turn for turn in range(self.turns))
        return Bound(0.0, most, 0.0, self.weight)


def _arguments(seed: int) -> Mapping[str, str]:
    """The right argument of every tool in ``STEPS``, in their order."""
    rng = Rng(DEPOT, seed)
    item, shelf, size = rng.choice(ITEMS), rng.choice(SHELVES), rng.choice(SIZES)
    zone, card = rng.choice(ZONES), rng.choice(CARDS)
    return MappingProxyType(
        {"find": item, "pick": shelf, "pack": size, "label": zone, "pay": card, "ship": zone}
    )


def _read(text: str) -> tuple[str, str, str] | None:
    """Tool, argument and guess; None if the text is no action."""
    words = text.split(None, 3)
    if len(words) != 3 or words[0] not in TOOLS or words[2] not in GUESSES:
        return None
    return words[0], words[1], words[2]


def _parsed(task_id: Any) -> tuple[int, int]:
    """Horizon and seed of a task's id.

    Raises:
        ValueError: It is none of this world.
    """
    world, *rest = str(task_id).split("/")
    if world != DEPOT or len(rest) != 2 or not all(map(str.isdecimal, rest)) or rest[0] == "0":
        raise ValueError(f"task_id must be like {DEPOT}/8/123, got {task_id!r}")
    return int(rest[0]), int(rest[1])


class _Still:
    """One state as the table that a grader reads."""

    def __init__(self, done: int, ended: bool) -> None:
        self.rows: Mapping[str, Table] = {
            "order": {"1": {tool: bool(done & bit) for tool, bit in _BITS.items()}},
            "submission": {"end": {}} if ended else {},
        }

    @property
    def start(self) -> _Still:
        return _Still(0, False)

    def table(self, name: str) -> Table:
        return self.rows.get(name, {})

    def names(self) -> tuple[str, ...]:
        return ("order",)

    def stamp(self) -> int:
        return 0


_ACCEPTANCE = Acceptance(
    checks=tuple(
        Check(tool, "rows", {"table": "order", "key": "1", "where": {tool: True}}, needs=needs)
        for tool, needs in STEPS.items()
    ),
    writes=(Allow("order", keys=("1",), fields=tuple(STEPS)),),
)


@cache
def _verdict(done: int, ended: bool) -> Verdict:
    """Verdicts are values, and there are few of them: each is computed once."""
    return Grader(_ACCEPTANCE, KINDS)(_Still(done, ended))
