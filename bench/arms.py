"""What :mod:`headway.bench.learning` compares: worlds, and ways to reward and to credit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class World:
    """Where arms are compared.

    Attributes:
        about: What it is, in a line.
        start: ``start(folder)`` writes the policy that all arms begin with.
        settings: Of :class:`headway.agents.config.Config`, for all arms.
        tokens: Budget of a run.
        count: Seeds, unless another number is asked for.
    """

    about: str
    start: Callable[[Path], None]
    settings: Mapping[str, Any]
    tokens: int
    count: int


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to reward and to credit.

    Attributes:
        about: What it is, in a line.
        settings: Of :class:`headway.agents.config.Config`, beside those of the world; ``TOKENS`` in
            a stack is the budget.
        faster: Factor on the learning rate of the arm ``outcome``, which is then not tuned.
        worlds: Where it can be had.
        against: The arm that it is compared with.
    """

    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    faster: float | None = None
    worlds: tuple[str, ...] = ("depot", "easy", "apps", "hopsearch", "smollm2")
    against: str = "outcome"


def _between(folder: Path, share: float) -> None:
    from headway.bench.starts import start

    start(share).save(folder)


_SMALL = {"action_format": "command", "manual": False}
"""Settings that make few tokens: a policy that was taught by demonstrations knows the tools."""

_FIRST = {**_SMALL, "difficulty": 1}


def _cloned(folder: Path, env: str, context: int) -> None:
    from headway.bench.starts import cloned

    cloned(
        folder,
        env,
        _FIRST,
        vocabulary=1024,
        sizes={"layers": 4, "width": 192, "heads": 6, "ffn": 576, "context": context},
        episodes=2000,
        steps=500,
        rate=2e-3,
        noise=0.05,
    )


def _smollm2(folder: Path) -> None:
    from headway.bench.rollout import packaged
    from headway.bench.starts import taught

    taught(
        folder,
        "headway/Apps-v0",
        _FIRST,
        source=packaged(),
        episodes=400,
        steps=100,
        batch=8,
        rate=2e-4,
        noise=0.05,
        lora=16,
        save=10,
    )


_HERE = {
    "env": "headway.bench.depot:Depot",
    "environment": {"horizon": 8},
    "gamma": 0.9,
    "turn_tokens": 4,
    "context": 96,
    "rate": 1e-3,
    "episodes": 256,
}

_TOOLS = {"environment": _FIRST, "gamma": 0.95, "rate": 1e-4}

WORLDS: Mapping[str, World] = MappingProxyType(
    {
        "depot": World(
            about="the depot: six checks, eight turns, a policy that hardly ever succeeds",
            start=partial(_between, share=0.1),
            settings=_HERE,
            tokens=75_000,
            count=10,
        ),
        "easy": World(
            about="the depot, and a policy that succeeds in one of twenty",
            start=partial(_between, share=0.5),
            settings=_HERE,
            tokens=40_000,
            count=5,
        ),
        "apps": World(
            about="Apps, difficulty 1: a small Llama that has cloned demonstrations",
            start=partial(_cloned, env="headway/Apps-v0", context=1024),
            settings={
                **_TOOLS,
                "env": "headway/Apps-v0",
                "turn_tokens": 96,
                "context": 1024,
                "episodes": 200,
            },
            tokens=200_000,
            count=5,
        ),
        "hopsearch": World(
            about="HopSearch, difficulty 1: a small Llama that has cloned demonstrations",
            start=partial(_cloned, env="headway/HopSearch-v0", context=2048),
            settings={
                **_TOOLS,
                "env": "headway/HopSearch-v0",
                "turn_tokens": 64,
                "context": 2048,
                "episodes": 200,
            },
            tokens=150_000,
            count=5,
        ),
        "smollm2": World(
            about="Apps, difficulty 1: adapters of SmolLM2-135M that have cloned demonstrations",
            start=_smollm2,
            settings={
                **_TOOLS,
                "env": "headway/Apps-v0",
                "turn_tokens": 96,
                "context": 1024,
                "groups": 4,
                "size": 4,
                "lanes": 16,
                "episodes": 64,
            },
            tokens=30_000,
            count=3,
        ),
    }
)

PROGRESS = "progress(c=0.5)"
"""The stack of arms that name none."""

_CALLS = "headway.bench.depot:CallReward(weight=0.12)"
_GUESS = "headway.bench.depot:GuessReward(weight=0.3)"
_LITTLE = "headway.bench.depot:GuessReward(weight=0.02)"
_DEPOT = ("depot", "easy")

ARMS: Mapping[str, Arm] = MappingProxyType(
    {
        "outcome": Arm("the outcome alone", {"stack": "", "credit": "outcome"}),
        "outcome2x": Arm(
            "the same at twice the rate", {"stack": "", "credit": "outcome"}, faster=2.0
        ),
        "final": Arm("outcome and final progress, for the whole trajectory", {"credit": "final"}),
        "turn": Arm("progress by turns, compared where the same checks hold", {"credit": "turn"}),
        "pooled": Arm("the same, compared with all turns", {"credit": "turn_pooled"}),
        "index": Arm("the same, compared with turns of one index", {"credit": "turn_index"}),
        "shrunk": Arm(
            "the same, compared with both, few turns counting little", {"credit": "turn_shrunk"}
        ),
        "keep": Arm("potential shaping that keeps the last potential", {"credit": "pprs_keep"}),
        "zero": Arm("strict potential shaping", {"credit": "pprs_zero"}),
        "annealed": Arm(
            "progress by turns, faded out over 60 % of the tokens",
            {"stack": f"{PROGRESS},anneal(steps=TOKENS*0.6)", "credit": "turn"},
        ),
        "igpo": Arm(
            "information gain, returns first",
            {"stack": "", "credit": "igpo", "information": 0.5},
            worlds=("hopsearch",),
        ),
        "igpopaper": Arm(
            "information gain as published, normalised first",
            {
                "stack": "",
                "credit": "igpo_paper",
                "information": 0.5,
                "allow_std_on_dense": True,
            },
            worlds=("hopsearch",),
        ),
        "mismatched": Arm(
            "information gain of another task's answer",
            {"stack": "", "credit": "igpo", "information": 0.5, "control": "mismatch"},
            worlds=("hopsearch",),
        ),
        "calls": Arm(
            "pay for every call that works, which a call that does nothing farms",
            {"stack": _CALLS, "credit": "final"},
            worlds=_DEPOT,
        ),
        "gated": Arm(
            "the same, paid only with a success",
            {"stack": f"{_CALLS},gate(gate=success)", "credit": "final"},
            worlds=_DEPOT,
        ),
        "dark": Arm(
            "pay for foreseeing what a call does, divided by the deviation",
            {"stack": _GUESS, "credit": "headway.bench.arms:Z", "allow_std_on_dense": True},
            worlds=_DEPOT,
        ),
        "darkplain": Arm(
            "the same, not divided", {"stack": _GUESS, "credit": "final"}, worlds=_DEPOT
        ),
        "darkfixed": Arm(
            "the outcome divided by its deviation, and so little pay that a success outweighs it",
            {"stack": _LITTLE, "credit": "headway.bench.arms:Beside"},
            worlds=_DEPOT,
        ),
        "darkloss": Arm(
            "foreseeing as a second loss, and no pay for it",
            {"stack": "", "credit": "outcome", "auxiliary": 0.1},
        ),
        "values": Arm(
            "the outcome, and values of states by one continuation a turn",
            {"stack": "", "credit": "values", "continuations": 1},
        ),
        "edge": Arm(
            "the outcome, tasks chosen by a pilot to be neither easy nor hopeless",
            {"stack": "", "credit": "outcome", "edge": True},
        ),
        "shuffledturns": Arm(
            "placebo: the progress of a trajectory on other turns of it",
            {"credit": "turn", "placebo": "shuffle_turns"},
        ),
        "shuffled": Arm(
            "placebo: the progress of another trajectory of the task, for the whole of it",
            {"credit": "final", "placebo": "shuffle_traj"},
        ),
        "random": Arm(
            "placebo: amounts drawn from the batch", {"credit": "turn", "placebo": "random"}
        ),
        "mismatch": Arm(
            "placebo: the progress of a trajectory of another task",
            {"credit": "turn", "placebo": "mismatch"},
        ),
    }
)
"""Arms by name; those that name no stack have ``progress(c=0.5)``."""

PLACEBOS = ("shuffled", "random", "mismatch", "mismatched")
"""Arms that must not help."""


def Z() -> Any:  # named like the statistic
    """Outcome and channels of a whole trajectory, divided by the deviation of the group."""
    from headway.agents.credit import Estimator, Term

    summed = Term(
        ("base", "*"), "episode", centre="mean", scale="group_std", members="trajectories"
    )
    return Estimator("z", (summed,), "GRPO (2024) on a sum of rewards")


def Beside() -> Any:
    """The outcome divided by its deviation in the group, and channels as they are beside it."""
    from headway.agents.credit import Estimator, Term

    outcome = Term(("base",), "episode", centre="mean", scale="group_std", members="trajectories")
    channels = Term(("*",), "episode", centre="mean", members="trajectories")
    return Estimator("beside", (outcome, channels), "GRPO (2024), and a sum of rewards")
