"""Stored episodes played again: is what was seen, judged and paid still the same?

The actions of each trajectory are played in its task once more, with the tools, graders and reward
layers of today, or with another stack. Whatever comes out otherwise is named.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from headway.agents.evaluate import make, mean_returns, paid
from headway.envs.tool_env import ToolEnv
from headway.wrappers.channel import RewardLayer, layers_of
from headway.wrappers.lines import encode
from headway.wrappers.record import Recorder, action_of, episodes
from headway.wrappers.stack import build
from headway.wrappers.transforms import AtEnd

Told = Callable[[int, int], None]
"""``told(done, of)`` hears how many lines are through."""

ABSENT = "absent"
"""Stands where one of the two has nothing of the kind."""

ROUNDING = 1e-9
"""Returns that differ by less are the same."""

PAY = frozenset({"reward", "credit", "unmeasured"})
"""What a turn has of the reward layers; under another stack only returns are compared."""

PAID = ("channel ", "raw ", "phi ", "gate ")
"""Likewise, with a name behind each."""

INSIDE = ("headway.envs.", "headway.wrappers.")
"""Where a file may name environments and layers without being trusted."""

_BEGIN = re.compile(rb'\s*\{\s*"headway"')

_GROUPS = {"channels": "channel", "channels_raw": "raw", "phi": "phi", "gate": "gate"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that came out otherwise.

    Attributes:
        episode: Line of the trajectory in its file, from 1.
        task_id: Of the task; empty where it has none.
        turn: From 1; 0 for the reset, None for what is said of the whole episode.
        what: ``"grader"`` (its version), ``"task"`` (its digest), ``"observation of TOOLS"``,
            ``"calls"``, ``"ended"``, ``"seed"`` (the task that it leads to), ``"check ID"``,
            ``"channel NAME"``, ``"return of NAME"`` or another name from the record of the turn.
        was: As it was recorded.
        now: As it came out.
    """

    episode: int
    task_id: str
    turn: int | None
    what: str
    was: Any
    now: Any


@dataclass(frozen=True, slots=True)
class Lost:
    """An episode that has no result, then or now.

    Attributes:
        episode: Line of the trajectory in its file, from 1.
        task_id: Of the task; empty where it has none, or the line is no trajectory.
        reason: What went wrong.
    """

    episode: int
    task_id: str
    reason: str


@dataclass(frozen=True)
class Rescored:
    """What became of the episodes of a file.

    Attributes:
        file: Its name.
        episodes: How many it holds.
        identical: How many came out the same in everything.
        same_verdicts: How many came out the same in every verdict, whatever else changed.
        differences: What came out otherwise, in the order of the file.
        failed: Episodes that could not be played again, and lines that are no trajectories.
        died: Episodes whose machine had died when they were recorded; the turns before that are
            compared like any others.
        torn: ``(line, bytes)`` of every line whose writer was killed in the middle of it.
        was: Mean discounted return of ``base`` and each channel as it was recorded.
        now: The same as it came out; both over the episodes that had a verdict both times.
        gammas: ``(was, now)``: the discounts of these; None where episodes differ in theirs.
    """

    file: str
    episodes: int
    identical: int
    same_verdicts: int
    differences: tuple[Difference, ...]
    failed: tuple[Lost, ...]
    died: tuple[Lost, ...]
    torn: tuple[tuple[int, int], ...]
    was: Mapping[str, float]
    now: Mapping[str, float]
    gammas: tuple[float | None, float | None]

    @property
    def same(self) -> bool:
        """Whether every episode was played again and came out the same."""
        return not self.differences and not self.failed

    def as_json(self) -> dict[str, Any]:
        """Plain data; NaN and its like as :mod:`headway.wrappers.lines` writes them."""
        names = dict.fromkeys((*self.was, *self.now))
        found: dict[str, Any] = encode(
            {
                "file": self.file,
                "episodes": self.episodes,
                "identical": self.identical,
                "same_verdicts": self.same_verdicts,
                "differences": [asdict(one) for one in self.differences],
                "failed": [asdict(one) for one in self.failed],
                "died": [asdict(one) for one in self.died],
                "torn": [{"line": line, "bytes": size} for line, size in self.torn],
                "returns": {
                    name: {"was": self.was.get(name), "now": self.now.get(name)} for name in names
                },
                "gamma": dict(zip(("was", "now"), self.gammas, strict=True)),
            }
        )
        return found


def rescore(
    file: str,
    *,
    env: str | None = None,
    stack: str | None = None,
    gamma: float | None = None,
    on_truncation: AtEnd = "zero",
    trust: bool = False,
    told: Told = lambda done, of: None,
) -> Rescored:
    """Plays every episode of a file again and compares turn by turn.

    With the stack that was recorded, everything is compared, and the layers begin with the memory
    that they had: a schedule is where it was. Another ``stack`` begins anew, and pays otherwise by
    intention: then the returns of each episode are compared instead of what its turns paid.

    A file says how its environment is made. Of what it names, only environments and layers of
    headway, wrappers of Gymnasium and ids that are registered here are made; anything else, such
    as ``"module:attribute"`` of one's own, would be imported and run, and needs ``trust``.
    Recorders in it are passed over, and what else writes files is refused.

    Args:
        file: What a :class:`Recorder` wrote.
        env: Where to play instead of in the recorded environment, with its settings: an id, or
            ``"module:ATTRIBUTE"`` for a Domain.
        stack: Reward layers instead of the recorded ones, see ``headway.wrappers.stack.build``.
        gamma: The learner's discount, in (0, 1]; needed with ``stack`` and no use without.
        on_truncation: Given to every layer of ``stack`` that takes it.
        trust: Whether the file may name modules to import and run. Only for a file from somebody
            who may run programs as you. ``env`` and ``stack`` are yours and need no trust.
        told: Hears how far it has come.

    Raises:
        OSError: The file cannot be read.
        ValueError: It does not begin like a file of trajectories; or an argument is outside its
            range.
    """
    if (stack is None) is not (gamma is None):
        raise ValueError(
            "gamma must be given with stack, where it must equal the learner's discount, and only "
            f"there; got stack {stack!r} and gamma {gamma!r}"
        )

    with Path(file).open("rb") as stream:
        begin = stream.readline(100)
        stream.seek(0)
        lines = sum(1 for _ in stream)

    def remade(made: Mapping[str, Any] | None) -> Recorder:
        inner = _remade(made, env, layered=stack is None, trust=trust)
        if stack is not None and gamma is not None:
            inner = build(
                inner, stack, gamma=gamma, on_truncation=on_truncation, allow_dominance=True
            )
        return Recorder(inner)

    worlds: dict[str, Recorder] = {}
    torn: list[tuple[int, int]] = []
    played: list[_Played] = []
    failed: list[Lost] = []
    died: list[Lost] = []

    def lose(line: int, reason: str) -> None:
        if not _BEGIN.match(begin):
            raise ValueError(f"{file}:{line}: {reason}")
        failed.append(Lost(line, "", reason))
        told(line, lines)

    try:
        for line, was in episodes(file, torn=lambda *tear: torn.append(tear), lost=lose):
            task_id = was["task_id"] or ""
            if was["ended"] == "died":
                died.append(Lost(line, task_id, was["reason"]))
            world = repr(was["env"])
            try:
                if world not in worlds:
                    worlds[world] = remade(was["env"])
                now, news = _again(worlds[world], was, remember=stack is None, seeded=env is None)
                now["gamma"] = was["gamma"] if gamma is None else gamma
                played.append(_Played(line, was, now, news, other=stack is not None))
            except Exception as error:  # a world, a grader or a layer of one's own raises anything
                failed.append(Lost(line, task_id, f"{type(error).__name__}: {error}"))
                if world in worlds:
                    with suppress(Exception):  # that it is broken is told already
                        worlds.pop(world).close()
            told(line, lines)
    finally:
        for recorder in worlds.values():
            recorder.close()
    judged = [one for one in played if one.judged]
    return Rescored(
        file=file,
        episodes=len(played) + len(failed),
        identical=sum(not one.differences for one in played),
        same_verdicts=sum(one.same_verdicts for one in played),
        differences=tuple(found for one in played for found in one.differences),
        failed=tuple(failed),
        died=tuple(died),
        torn=tuple(torn),
        was=_means([one.returns[0] for one in judged]),
        now=_means([one.returns[1] for one in judged]),
        gammas=(_only(one.gammas[0] for one in judged), _only(one.gammas[1] for one in judged)),
    )


_Found = tuple[int | None, str, Any, Any]
"""Turn, what, was, now."""


class _Played:
    """What the comparison of one episode leaves: not its texts.

    Args:
        line: Of the trajectory.
        was: As it was recorded.
        now: As it came out.
        news: How task and grader differ.
        other: Whether the stack is meant to be another.
    """

    def __init__(
        self,
        line: int,
        was: Mapping[str, Any],
        now: Mapping[str, Any],
        news: list[_Found],
        *,
        other: bool,
    ) -> None:
        self.gammas = (was["gamma"] or 1.0, now["gamma"] or 1.0)
        records = [[turn["record"] for turn in one["turns"]] for one in (was, now)]
        self.returns = (paid(records[0], self.gammas[0]), paid(records[1], self.gammas[1]))
        ends = [one["turns"][-1] if one["turns"] else one["start"] for one in (was, now)]
        self.judged = all(
            end["record"]["status"] == "ok" and (end.get("terminated") or end.get("truncated"))
            for end in ends
        )
        then, again = ([one["start"], *one["turns"]] for one in (was, now))
        self.same_verdicts = encode([turn["record"]["verdict"] for turn in then]) == encode(
            [turn["record"]["verdict"] for turn in again]
        )
        found = [*news, *_differences(then, again)]
        if other:
            found = [one for one in found if one[1] not in PAY and not one[1].startswith(PAID)]
            found += [
                (None, f"return of {name}", a, b)
                for name, a, b in _changed(*self.returns)
                if ABSENT in (a, b) or not abs(a - b) <= ROUNDING  # NaN differs
            ]
        self.differences = [Difference(line, was["task_id"] or "", *one) for one in found]


def _again(
    env: Recorder, was: Mapping[str, Any], *, remember: bool, seeded: bool
) -> tuple[dict[str, Any], list[_Found]]:
    """The episode as it comes out now, and how its task, grader and end differ from the recorded.

    Args:
        env: Where it is played.
        was: As it was recorded.
        remember: Whether layers begin with the memory that they had.
        seeded: Whether seed and options have to lead to the task.
    """
    task_id, news = was["task_id"], list[_Found]()
    if task_id is None and was["seed"] is None:
        raise ValueError("neither a task id nor a seed was recorded, so nothing says what to reset")

    def reset(options: dict[str, Any] | None) -> str | None:
        if remember:
            _remind(env, was["layers"])
        env.reset(seed=was["seed"], options=options)
        found: str | None = env.episode["task_id"]
        return found

    if task_id is None or (seeded and was["seed"] is not None):
        found = reset(was["options"])
        if found != task_id:
            news.append((None, "seed", task_id, found))
            if task_id is not None:
                reset({"task_id": task_id})
    else:
        reset({"task_id": task_id})
    for turn in was["turns"]:
        _, _, terminated, truncated, _ = env.step(action_of(env.action_space, turn["action"]))
        if terminated or truncated:
            break
    now = env.episode
    world = env.unwrapped
    if isinstance(world, ToolEnv) and was["digest"] is not None:
        # The digest covers the grader's version: a new one alone is no new task.
        task = replace(world.instance.task, grader=was["grader"])
        now["digest"] = task.digest
    # What it died of is the machine's and need not come again: until then it went on.
    then = {**was, "ended": "left" if was["ended"] == "died" else was["ended"]}
    news += [
        (None, what, was[key], now[key])
        for what, key in (("grader", "grader"), ("task", "digest"), ("ended", "ended"))
        if then[key] != now[key]
    ]
    return now, news


def _remind(env: Recorder, memories: list[Any]) -> None:
    """Gives the layers the memory that they had before the recorded reset."""
    layers = list(layers_of(env.env))
    if len(layers) != len(memories):
        raise ValueError(
            f"the stack must have the {len(memories)} layers that were recorded, "
            f"got {len(layers)}; name a stack"
        )
    for wrapper, memory in zip(layers, memories, strict=True):
        wrapper.layer.load_state_dict(memory)


def _differences(then: list[Any], again: list[Any]) -> Iterator[_Found]:
    """What turns differ in, the reset being turn 0."""
    for turn, (old, new) in enumerate(zip(then, again, strict=False)):
        tools = ", ".join(dict.fromkeys(call["tool"] or "no tool" for call in old["calls"]))
        facts = (dict(_facts(one, tools)) for one in (old, new))
        for what, a, b in _changed(*facts):
            yield turn, what, a, b
    if len(again) < len(then):
        yield len(again), "turn", "played", ABSENT


def _facts(turn: Mapping[str, Any], tools: str) -> Iterator[tuple[str, Any]]:
    """Everything that a turn says, each under a name of its own."""
    yield f"observation of {tools}" if tools else "observation", turn["observation"]
    yield "calls", turn["calls"]
    if "action" in turn:
        yield "reward", turn["reward"]
        yield "ended", [name for name in ("terminated", "truncated") if turn[name]]
    for key, value in turn["record"].items():
        if key in _GROUPS:
            yield from ((f"{_GROUPS[key]} {name}", item) for name, item in value.items())
        elif key == "verdict":
            for name, item in value.items():
                if name == "ok":
                    yield from ((f"check {check}", counts) for check, counts in item.items())
                else:
                    yield "verdict's status" if name == "status" else name, item
        else:
            yield key, value


def _changed(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """``(name, was, now)`` of all that differs; NaN does not differ from NaN."""
    for name in dict.fromkeys((*was, *now)):
        a, b = was.get(name, ABSENT), now.get(name, ABSENT)
        if encode(a) != encode(b):
            yield name, a, b


def _remade(
    made: Mapping[str, Any] | None, env: str | None, *, layered: bool, trust: bool
) -> gym.Env[Any, Any]:
    """The recorded environment, or another with its settings, with or without its reward layers.

    Everything that the file names is looked at before anything of it is imported or made.

    Raises:
        ValueError: It cannot be made from what was recorded, or not without trust.
    """
    if made is None:
        if env is None:
            raise ValueError("the file does not say how the environment is made; name one as env")
        return make(env)
    spec = EnvSpec.from_json(json.dumps(made))
    settings = dict(spec.kwargs)
    if env is not None:
        settings.pop("domain", None)
    if not trust:
        if env is None:
            _refuse_env(spec)
        _refuse_names(settings, f"argument of {spec.id}", known=_registered(spec.id))
        for wrapper in spec.additional_wrappers:
            if not str(wrapper.entry_point).startswith((*INSIDE, "gymnasium.wrappers.")):
                raise _untrusted(wrapper.entry_point, "a wrapper")
    wraps = []
    for wrapper in spec.additional_wrappers:
        wrap = _class(wrapper.entry_point, gym.Wrapper)
        if wrapper.kwargs is None:
            raise ValueError(f"the arguments of the wrapper {wrapper.name} were not recorded")
        if issubclass(wrap, gym.wrappers.RecordVideo):
            raise ValueError(f"a wrapper that writes files is not made again, got {wrapper.name}")
        if not issubclass(wrap, Recorder) and (layered or not issubclass(wrap, RewardLayer)):
            if not trust:
                _refuse_names(wrapper.kwargs, f"argument of {wrapper.name}")
            wraps.append((wrap, wrapper.kwargs))
    if env is None:
        _class(spec.entry_point, gym.Env)
        world = gym.make(replace(spec, additional_wrappers=()))
    else:
        world = make(env, **settings)
    for wrap, kwargs in wraps:
        world = wrap(env=world, **kwargs)
    return world


def _registered(id: str) -> Mapping[str, Any]:
    """The arguments with which an id is registered here; none where it is not."""
    known = gym.registry.get(id)
    return known.kwargs if known else {}


def _refuse_env(spec: EnvSpec) -> None:
    """Raises ValueError where an environment is neither headway's nor registered as it is."""
    known = gym.registry.get(spec.id)
    if not str(spec.entry_point).startswith(INSIDE) and (
        known is None or known.entry_point != spec.entry_point
    ):
        raise _untrusted(spec.entry_point, f"the environment {spec.id}")


def _refuse_names(value: Any, where: str, known: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Raises ValueError where a text in an argument could name what is to be imported.

    Args:
        value: Arguments.
        where: Whose, for the message.
        known: Arguments that are registered, which may be the same again.
    """
    if isinstance(value, Mapping):
        rest = {k: v for k, v in value.items() if k not in known or v != known[k]}
        value = [*rest, *rest.values()]
    if isinstance(value, list | tuple):
        for item in value:
            _refuse_names(item, where)
    elif isinstance(value, str) and ":" in value:
        raise _untrusted(value, where)


def _untrusted(name: object, where: str) -> ValueError:
    return ValueError(
        f"the file names {name!r:.200} as {where}, which would be imported and run; if you trust "
        "who wrote it, give trust=True (--trust), else name env (--env) or stack (--stack)"
    )


def _means(paid: list[dict[str, float]]) -> dict[str, float]:
    """Mean returns; NaN where the amounts are so large that they have none."""
    try:
        return mean_returns(paid)
    except (ValueError, OverflowError):
        return {name: math.nan for sums in paid for name in sums}


def _class(where: object, kind: type) -> Any:
    """The class that a file names; functions are refused, for it could name any."""
    found: Any = load_env_creator(where) if isinstance(where, str) else where
    if not isinstance(found, type) or not issubclass(found, kind):
        raise ValueError(
            f"a file may name classes of gymnasium.{kind.__name__} only, got {where!r}; name the "
            "environment as env"
        )
    return found


def _only(values: Iterable[float]) -> float | None:
    """The one value that all are; None where they differ or there is none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
