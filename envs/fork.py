"""Siblings: a whole stack copied in mid-episode, or put away and taken up again."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from headway.verifiers.memory import with_state


def fork(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """A sibling of a whole stack: box, streams, counters, wrapper memory.

    Both go on from the same state and neither sees what the other does.

    Raises:
        TypeError: Some part of the stack holds what cannot be copied.
    """
    try:
        return copy.deepcopy(env)
    except TypeError as error:
        raise TypeError(f"env must be copyable in every layer, got {env}: {error}") from error


def get_state(env: gym.Env[Any, Any]) -> list[Any]:
    """The state of every layer, outermost first, as plain data.

    Raises:
        TypeError: A layer has none to give; its memory would be lost in silence.
    """
    return [layer.get_state() for layer in with_state(env)]


def set_state(env: gym.Env[Any, Any], state: Sequence[Any]) -> None:
    """Puts a stack of the same layers, reset once, into a state of :func:`get_state`.

    Raises:
        TypeError: A layer cannot take up a state.
        ValueError: The stack has other layers than the one that was put away.
    """
    layers = list(with_state(env))
    if len(layers) != len(state):
        raise ValueError(f"state must have one entry a layer, {len(layers)}, got {len(state)}")
    for layer, part in reversed(list(zip(layers, state, strict=True))):
        layer.set_state(part)
