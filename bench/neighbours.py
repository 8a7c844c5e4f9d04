"""Other people's environments, each entered by its own front door, for ``--against``.

An adapter imports its package only when it is asked for. It returns a measurement of one turn;
what a turn is there stands in its docstring.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import gymnasium as gym

from headway.arguments import one_of
from headway.bench.clock import Sample, of_calls, of_turns

TURNS = 10
"""Of an episode."""

EPISODES = 20
"""Of one measurement."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A package to measure beside headway.

    Attributes:
        install: What pip installs.
        prepare: Imports it and returns its measurement.
    """

    install: str
    prepare: Callable[[], Sample]


def measurements(names: Sequence[str]) -> dict[str, Sample]:
    """The measurement of each neighbour.

    Raises:
        ValueError: A name is unknown; the message names the nearest.
        ImportError: A package is not there; the message says how to install it.
    """
    for name in names:
        one_of("against", name, tuple(NEIGHBOURS))
    return {name: _prepared(name) for name in names}


def _prepared(name: str) -> Sample:
    try:
        return NEIGHBOURS[name].prepare()
    except ImportError as error:
        raise ImportError(
            f"against {name!r} needs what is not installed ({error}); "
            f"run pip install {NEIGHBOURS[name].install!r}"
        ) from error


def _gymnasium() -> Sample:
    """A step of FrozenLake, in the stack that ``gym.make`` builds."""
    env = gym.make("FrozenLake-v1", is_slippery=False)
    there_and_back = [[2, 0] * (TURNS // 2)] * EPISODES
    return partial(of_turns, there_and_back, lambda number: env.reset(seed=number), env.step)


def _textarena() -> Sample:
    """An observation and a move of Tower of Hanoi, in the stack that ``textarena.make`` builds."""
    make = import_module("textarena").make
    env: Any = None

    def begin(number: int) -> None:
        nonlocal env
        env = make("TowerOfHanoi-v0")  # its observations go on growing over a reset
        env.reset(num_players=1, seed=number)

    def move(action: str) -> None:
        env.get_observation()
        env.step(action)

    return partial(of_turns, [["[A C]", "[C A]"] * (TURNS // 2)] * EPISODES, begin, move)


def _verifiers() -> Sample:
    """A turn of a ``ToolEnv`` rollout: an answer at once instead of a model's, one call of a tool.

    Versions from 0.4 on run the environment behind a server and have no such class.
    """
    version("verifiers")  # raises first, because our own folder of that name may be importable
    vf = import_module("verifiers")
    if not hasattr(vf, "ToolEnv"):
        raise ImportError(f"no ToolEnv in {vf.__file__}")
    types = import_module("verifiers.types")
    call = types.ToolCall(id="call", name="add", arguments='{"a": 1, "b": 2}')
    message = types.ResponseMessage(
        content="", tool_calls=[call], finish_reason="tool_calls", is_truncated=False
    )
    answer = types.Response(id="answer", created=0, model="none", message=message)

    class Instant(import_module("verifiers.clients").Client):  # type: ignore[misc]
        """A client whose model always makes the same call."""

        def setup_client(self, config: Any) -> Any:
            return config

        async def to_native_tool(self, tool: Any) -> Any:
            return tool

        async def to_native_prompt(self, messages: Any) -> Any:
            return messages, {}

        async def get_native_response(self, *args: Any, **kwargs: Any) -> Any:
            return answer

        async def raise_from_native_response(self, response: Any) -> None:
            pass

        async def from_native_response(self, response: Any) -> Any:
            return response

        async def close(self) -> None:
            pass

    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    prompt = [{"role": "user", "content": "Add 1 and 2."}]
    tasks = import_module("datasets").Dataset.from_list([{"prompt": prompt, "answer": "3"}])
    env = vf.ToolEnv(tools=[add], max_turns=TURNS, dataset=tasks)
    task = env.get_dataset()[0]

    async def rollouts() -> None:
        for _ in range(EPISODES):
            await env.rollout(task, Instant(None), "none")

    return lambda: of_calls([lambda: asyncio.run(rollouts())]) / (EPISODES * TURNS)


NEIGHBOURS: Mapping[str, Neighbour] = MappingProxyType(
    {
        "gymnasium": Neighbour("gymnasium", _gymnasium),
        "textarena": Neighbour("textarena", _textarena),
        "verifiers": Neighbour("verifiers<0.4", _verifiers),
    }
)
"""What ``against`` may name.

Of the other packages that users compare with, ``gem-llm`` does not import without its whole
training stack, ``openenv`` and newer ``verifiers`` run behind servers of their own, ``tau2`` on the
package index is something else, and ``swe-rex`` and ``inspect_ai`` measure sandboxes, of which
there is none yet.
"""
