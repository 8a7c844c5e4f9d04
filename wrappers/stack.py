"""Stacks of reward layers by name, from the inside out: ``"progress(c=0.3),gate"``."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import gymnasium as gym

from headway.arguments import named, nearest, number, one_of
from headway.wrappers.bounds import ClippedReward, DeltaReward, WatermarkReward
from headway.wrappers.channel import Bound, Channel, Filter, FilterWrapper, layers_of
from headway.wrappers.dependency import DependencyReward, Redistribute
from headway.wrappers.ends import LateReward, TurnCostReward
from headway.wrappers.gate import GatedReward
from headway.wrappers.information import InfoGain
from headway.wrappers.match import MatchReward
from headway.wrappers.novelty import DedupReward, NoveltyReward
from headway.wrappers.placebo import PlaceboReward
from headway.wrappers.progress import PotentialShaping, ProgressReward
from headway.wrappers.rubric import RubricReward
from headway.wrappers.schedule import S2D, Anneal, ScheduledReward
from headway.wrappers.staged import StagedReward
from headway.wrappers.transforms import AtEnd, endless

Wrap = Callable[..., gym.Env[Any, Any]]

LAYERS: Mapping[str, Wrap] = MappingProxyType(
    {
        "progress": ProgressReward,
        "potential": PotentialShaping,
        "gate": GatedReward,
        "schedule": ScheduledReward,
        "anneal": Anneal,
        "s2d": S2D,
        "watermark": WatermarkReward,
        "clip": ClippedReward,
        "delta": DeltaReward,
        "dedup": DedupReward,
        "novelty": NoveltyReward,
        "late": LateReward,
        "turncost": TurnCostReward,
        "placebo": PlaceboReward,
        "information": InfoGain,
        "dependency": DependencyReward,
        "redistribute": Redistribute,
        "match": MatchReward,
        "staged": StagedReward,
        "rubric": RubricReward,
    }
)
"""Reward layers by the names that a stack is written with."""

_PART = re.compile(r"(?P<name>[\w.]+(?::\w+)?)\s*(?:\((?P<arguments>.*)\))?", re.DOTALL)


def build(
    env: gym.Env[Any, Any],
    stack: str,
    *,
    gamma: float,
    on_truncation: AtEnd = "zero",
    allow_dominance: bool = False,
) -> gym.Env[Any, Any]:
    """Wraps ``env`` in the layers that ``stack`` names.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        stack: Names of ``LAYERS``, or ``module:function`` for layers of your own, with commas
            between them, from the inside out; empty for none. Arguments stand in brackets, as in
            Python, where a bare word is a text.
        gamma: The learner's discount per turn, in (0, 1]; given to every layer that takes one.
        on_truncation: Given to every layer that takes it and says nothing else.
        allow_dominance: True lets the channels together come to as much as success does, or more.

    Raises:
        ValueError: ``stack`` does not name layers, or their arguments do not fit; or
            ``allow_dominance`` is False and what the channels come to together, as :func:`dense`
            counts it, could outweigh success. Wrapping by hand is not checked.
    """
    if not isinstance(stack, str):
        raise ValueError(f"stack must be a text like 'progress(c=0.3),gate', got {stack!r}")
    shared = {
        "gamma": number("gamma", gamma, "(0, 1]"),
        "on_truncation": one_of("on_truncation", on_truncation, ("zero", "keep")),
    }
    for text in _parts(stack):
        wrap, given = _layer(text)
        env = _wrapped(env, text, wrap, given, shared)
    if not allow_dominance and (most := dense(env, gamma)) >= 1.0:
        raise ValueError(
            "stack must pay, and charge a success, less than the 1.0 of success, got up to "
            f"{most:g} from {stack!r}; lower the weights, or in Python say allow_dominance=True"
        )
    return env


def _wrapped(
    env: gym.Env[Any, Any],
    text: str,
    wrap: Wrap,
    given: Mapping[str, Any],
    shared: Mapping[str, Any],
) -> gym.Env[Any, Any]:
    """``env`` in one layer more; ``text`` is how the stack has it."""
    failed = f"stack has a layer {text!r} that cannot be made:"
    _, *takes = inspect.signature(wrap).parameters.values()
    names = [parameter.name for parameter in takes]
    kwargs = {**{name: value for name, value in shared.items() if name in names}, **given}
    if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in takes):
        for name in given:
            if name not in names:
                hint = nearest(name, names)
                raise ValueError(f"{failed} its arguments are {names}, got {name!r}{hint}")
        needed = [p.name for p in takes if p.default is p.empty and p.name not in kwargs]
        if needed:
            raise ValueError(f"{failed} it needs {needed}; write {text}({needed[0]}=...)")
    try:
        made = wrap(env, **kwargs)
    except TypeError as error:
        raise ValueError(f"{failed} {error}") from error
    if not isinstance(made, gym.Env):
        raise ValueError(f"{failed} it must return an environment, got {made!r}")
    if isinstance(made, FilterWrapper) and not any(channels_of(made)):
        raise ValueError(f"{failed} no channel is inside it; write layers from the inside out")
    return made


def dense(env: gym.Env[Any, Any], gamma: float) -> float:
    """By how much the channels of a stack can set a failure above a success, together.

    That is the most that each can pay, infinite where nothing limits one, and what those can
    charge that only charge: they may charge a success. Of one that does both what it pays counts,
    as a difference of potentials begins alike in all episodes of a task. As long as the sum is
    below 1.0, the worth of success, an undiscounted success returns more than any failure.

    Two things are left out. What keeps the optimum is given back. And a charge that goes on for as
    long as an episode does (``clip``; losses that pass where gains are withheld) has no limit at
    all: a success that costs too much of it can return less than a failure.
    """
    return sum(_outweighs(*layers, gamma) for layers in channels_of(env))


def _outweighs(channel: Channel, filters: Sequence[Filter], gamma: float) -> float:
    """What one channel adds to :func:`dense`."""
    if keeps_optimum(channel, filters, gamma):
        return 0.0
    low, high, least, _ = bounded(channel, filters, gamma)
    goes_on = low <= (1.0 - 1e-9) * endless(least, gamma)
    return high if high > 0.0 else 0.0 if goes_on else -low


def bounded(channel: Channel, filters: Iterable[Filter], gamma: float) -> Bound:
    """What a channel can pay through the filters around it, as they declare.

    Args:
        channel: One of a stack.
        filters: Those around it, from the inside out.
        gamma: The learner's discount per turn, in (0, 1].
    """
    bound = channel.bound(gamma)
    for layer in filters:
        bound = layer.bound(bound, gamma)
    return bound


def keeps_optimum(channel: Channel, filters: Iterable[Filter], gamma: float) -> bool:
    """Whether a channel and the filters around it all claim to keep the best policies the best.

    Args:
        channel: One of a stack.
        filters: Those around it.
        gamma: The learner's discount per turn, in (0, 1].
    """
    return all(layer.keeps_optimum(gamma) for layer in (channel, *filters))


def channels_of(env: gym.Env[Any, Any]) -> Iterator[tuple[Channel, list[Filter]]]:
    """Each channel of a stack with the filters around it, both from the inside out."""
    layers = [wrapper.layer for wrapper in reversed(list(layers_of(env)))]
    for place, layer in enumerate(layers):
        if isinstance(layer, Channel):
            yield layer, [one for one in layers[place:] if not isinstance(one, Channel)]


DEEP = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)
"""What Python's reader raises of a text, however deep, long or odd it is."""


def _parts(stack: str) -> Iterator[str]:
    """The texts between the commas that stand in no bracket."""
    depth, start, quote = 0, 0, ""
    for place, letter in enumerate(stack):
        if quote or letter in "'\"":  # a text may hold brackets and commas
            closes = letter == quote and stack[place - 1] != "\\"
            quote = "" if closes else quote or letter
            continue
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield stack[start:place].strip()
            start = place + 1
    if stack[start:].strip() or start:
        yield stack[start:].strip()


def _layer(text: str) -> tuple[Wrap, dict[str, Any]]:
    """The wrapper that a part names, and the arguments it is given."""
    match = _PART.fullmatch(text)
    if match is None:
        raise ValueError(f"stack must be names like 'progress(c=0.3),gate', got {text!r} in it")
    name, given = match["name"], list(_arguments(text, match["arguments"] or ""))
    if len(dict(given)) < len(given):
        raise ValueError(f"stack has a layer with an argument given twice: {text!r}")
    return named("layer of stack", name, LAYERS), dict(given)


def _arguments(text: str, arguments: str) -> Iterator[tuple[str, Any]]:
    unread = f"stack has a layer whose arguments cannot be read: {text[:200]!r}"
    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
    except DEEP as error:
        raise ValueError(unread) from error
    # Brackets that do not match hold two layers together, or make a call of what is called.
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(unread)
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise ValueError(f"stack takes arguments by name only, as in 'gate(gate=clean)': {text!r}")
    for keyword in call.keywords:
        assert keyword.arg is not None
        if isinstance(keyword.value, ast.Name):
            yield keyword.arg, keyword.value.id
            continue
        try:
            yield keyword.arg, ast.literal_eval(keyword.value)
        except DEEP as error:
            raise ValueError(
                f"stack takes plain values as arguments, got {keyword.arg} in {text[:200]!r}"
            ) from error
