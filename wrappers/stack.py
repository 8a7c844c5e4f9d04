"""Stacks of reward layers by name, from the inside out: ``"progress(c=0.3),gate"``."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import gymnasium as gym

from headway.arguments import named, number
from headway.wrappers.bounds import ClippedReward, DeltaReward, WatermarkReward
from headway.wrappers.channel import Channel, layers_of
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
from headway.wrappers.transforms import AtEnd

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
        allow_dominance: True lets the channels together pay as much as success does, or more.

    Raises:
        ValueError: ``stack`` does not name layers, or their arguments do not fit; or what the
            channels can pay together could outweigh success and ``allow_dominance`` is False.
    """
    shared = {"gamma": number("gamma", gamma, "(0, 1]"), "on_truncation": on_truncation}
    for text in _parts(stack):
        wrap, given = _layer(text)
        takes = inspect.signature(wrap).parameters
        kwargs = {name: value for name, value in shared.items() if name in takes} | given
        try:
            env = wrap(env, **kwargs)
        except TypeError as error:
            raise ValueError(f"stack has a layer {text!r} that cannot be made: {error}") from error
    if not allow_dominance and (most := dense(env, gamma)) >= 1.0:
        raise ValueError(
            f"stack must pay less than the 1.0 of success, got up to {most:g} from {stack!r}; "
            "lower the weights, or say allow_dominance=True"
        )
    return env


def dense(env: gym.Env[Any, Any], gamma: float) -> float:
    """The most that the bounded channels of a stack can pay together, shaping left out.

    Shaping that keeps the optimum is no part of it, as it is given back; nor are channels without
    any bound, whose farms :mod:`headway.wrappers.audit` looks for.
    """
    total = 0.0
    for channel, filters in channels_of(env):
        if channel.keeps_optimum and all(layer.keeps_optimum for layer in filters):
            continue
        bound = channel.bound(gamma)
        for layer in filters:
            bound = layer.bound(bound, gamma)
        total += bound.high if bound.high < float("inf") else 0.0
    return total


def channels_of(env: gym.Env[Any, Any]) -> Iterator[tuple[Channel, list[Any]]]:
    """Each channel of a stack with the filters around it, both from the inside out."""
    layers = [wrapper.layer for wrapper in reversed(list(layers_of(env)))]
    for place, layer in enumerate(layers):
        if isinstance(layer, Channel):
            yield layer, [one for one in layers[place:] if not isinstance(one, Channel)]


def _parts(stack: str) -> Iterator[str]:
    """The texts between the commas that stand in no bracket."""
    depth, start = 0, 0
    for place, letter in enumerate(stack):
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
    name, arguments = match["name"], match["arguments"] or ""
    return named("layer of stack", name, LAYERS), dict(_arguments(text, arguments))


def _arguments(text: str, arguments: str) -> Iterator[tuple[str, Any]]:
    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"stack has a layer whose arguments cannot be read: {text!r}") from error
    if not isinstance(call, ast.Call):  # brackets that do not match hold two layers together
        raise ValueError(f"stack has a layer whose arguments cannot be read: {text!r}")
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise ValueError(f"stack takes arguments by name only, as in 'gate(gate=clean)': {text!r}")
    for keyword in call.keywords:
        assert keyword.arg is not None
        if isinstance(keyword.value, ast.Name):
            yield keyword.arg, keyword.value.id
            continue
        try:
            yield keyword.arg, ast.literal_eval(keyword.value)
        except ValueError as error:
            raise ValueError(
                f"stack takes plain values as arguments, got {keyword.arg} in {text!r}"
            ) from error
