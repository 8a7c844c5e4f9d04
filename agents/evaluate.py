"""How well an agent plays: many episodes graded at every turn, and what they amount to.

An episode without a verdict is counted and left out of every mean: it is neither a 0 nor a pass.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from statistics import fmean
from typing import Any, Literal

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from headway.agents.endpoint import EndpointFailed
from headway.agents.scripted import AGENTS, Agent, own
from headway.agents.workers import mapped
from headway.arguments import find, one_of
from headway.envs.box import SandboxDied
from headway.envs.domain import Domain
from headway.envs.task import TaskKey
from headway.envs.tool_env import ToolEnv
from headway.verifiers import Record, Verdict
from headway.wrappers.record import Recorder
from headway.wrappers.stack import build
from headway.wrappers.transforms import AtEnd

Told = Callable[[int, int], None]
"""``told(done, of)`` hears how many episodes are over."""

Z95 = 1.959963984540054
"""Standard deviations either side that hold 95 % of a normal distribution."""

UNKNOWN = "unknown"
"""Template of an episode whose machine died before the task was there."""


@dataclass(frozen=True)
class Episode:
    """One episode as it was graded.

    Attributes:
        task_id: Of the task; empty when the machine died before it was there.
        template: Of the task.
        status: ``"ok"``; ``"no_verdict"``, the grader failed on the final state; ``"died"``, the
            machine failed.
        reason: Why there is no verdict; empty otherwise.
        success: Whether it ended well.
        curve: Progress at reset and after every turn. Where a grade failed the last one is
            carried; NaN before the first.
        families: Per family of checks (the id up to its first dot) whether all of it counts at
            the end.
        returns: Discounted sum of ``base`` and of what each channel paid, see :func:`paid`.
    """

    task_id: str = ""
    template: str = UNKNOWN
    status: Literal["ok", "no_verdict", "died"] = "ok"
    reason: str = ""
    success: bool = False
    curve: tuple[float, ...] = ()
    families: Mapping[str, bool] | None = None
    returns: Mapping[str, float] | None = None

    @property
    def turns(self) -> int:
        """Turns played."""
        return max(0, len(self.curve) - 1)


@dataclass(frozen=True)
class Evaluation:
    """Episodes and what they amount to; a mean over nothing is NaN.

    Attributes:
        id: Of the environment.
        agent: Name of the agent.
        played: The episodes in the order of their seeds, samples of one task side by side.
        samples: How many episodes each task was played.
        stack: The reward layers; None for the bare environment, or what a function made.
        gamma: The discount of :attr:`returns`.
    """

    id: str
    agent: str
    played: tuple[Episode, ...]
    samples: int = 1
    stack: str | None = None
    gamma: float = 1.0

    @cached_property
    def scored(self) -> tuple[Episode, ...]:
        """The episodes with a verdict, which alone enter the means."""
        return tuple(e for e in self.played if e.status == "ok")

    @property
    def episodes(self) -> int:
        """How many were played, with or without a verdict."""
        return len(self.played)

    @property
    def no_verdict(self) -> int:
        """Episodes whose grader failed."""
        return sum(e.status == "no_verdict" for e in self.played)

    @property
    def died(self) -> int:
        """Episodes whose machine failed."""
        return sum(e.status == "died" for e in self.played)

    @property
    def success(self) -> float:
        """Share of episodes that ended well."""
        return _mean(e.success for e in self.scored)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of :attr:`success`, taking episodes as independent."""
        return wilson(sum(e.success for e in self.scored), len(self.scored))

    @property
    def progress(self) -> float:
        """Mean progress at the end."""
        return _mean(e.curve[-1] for e in self.scored)

    @property
    def curve(self) -> tuple[float, ...]:
        """Mean progress at reset and after each turn; an episode that is over keeps its last."""
        length = max((len(e.curve) for e in self.scored), default=0)
        return tuple(
            _mean(e.curve[min(turn, len(e.curve) - 1)] for e in self.scored)
            for turn in range(length)
        )

    @property
    def turns(self) -> float:
        """Mean number of turns."""
        return _mean(e.turns for e in self.scored)

    @property
    def pass_at_k(self) -> dict[int, float]:
        """Chance that one of k tries at a task succeeds, k = 1, 2, 4, ... up to :attr:`samples`.

        A mean over tasks; one with fewer than k verdicts says nothing about k.
        """
        wins: dict[str, list[bool]] = {}
        for episode in self.scored:
            wins.setdefault(episode.task_id, []).append(episode.success)
        return {
            k: _mean(pass_at_k(len(won), sum(won), k) for won in wins.values() if len(won) >= k)
            for k in (2**n for n in range(self.samples.bit_length()))
        }

    @property
    def by_template(self) -> dict[str, Evaluation]:
        """The same for the episodes of each template, by name."""
        names = sorted({e.template for e in self.played})
        return {
            name: replace(self, played=tuple(e for e in self.played if e.template == name))
            for name in names
        }

    @property
    def by_check(self) -> dict[str, float]:
        """Per family of checks the share of the episodes having it in which all of it counts."""
        found: dict[str, list[bool]] = {}
        for episode in self.scored:
            for family, counts in (episode.families or {}).items():
                found.setdefault(family, []).append(counts)
        return {family: _mean(found[family]) for family in sorted(found)}

    @property
    def returns(self) -> dict[str, float]:
        """Mean discounted return of ``base`` and of each channel."""
        return mean_returns(e.returns or {} for e in self.scored)

    def as_json(self) -> dict[str, Any]:
        """Plain data; intervals, curves and machines that died stand in the rows by template.

        ``stack``, ``gamma`` and ``returns`` are there where a stack was asked for.
        """
        found = {
            "id": self.id,
            "agent": self.agent,
            "episodes": self.episodes,
            "success": self.success,
            "progress": self.progress,
            "turns": self.turns,
            "pass_at_k": {str(k): chance for k, chance in self.pass_at_k.items()},
            "by_template": {name: part._row() for name, part in self.by_template.items()},
            "by_check": self.by_check,
            "no_verdict": self.no_verdict,
        }
        if self.stack is None:
            return found
        return {**found, "stack": self.stack, "gamma": self.gamma, "returns": self.returns}

    def _row(self) -> dict[str, Any]:
        return {
            "episodes": self.episodes,
            "success": self.success,
            "interval": list(self.interval),
            "progress": self.progress,
            "curve": list(self.curve),
            "turns": self.turns,
            "no_verdict": self.no_verdict,
            "died": self.died,
        }


def evaluate(
    env: str | Callable[..., gym.Env[Any, Any]],
    agent: str | Callable[[int], Agent],
    *,
    episodes: int = 100,
    samples: int = 1,
    split: str = "test",
    seed0: int = 0,
    jobs: int = 1,
    stack: str | None = None,
    gamma: float | None = None,
    on_truncation: AtEnd = "zero",
    record: str | None = None,
    told: Told = lambda done, of: None,
    **env_kwargs: Any,
) -> Evaluation:
    """Plays ``episodes / samples`` tasks, each ``samples`` times, and grades every turn.

    The tasks are those of the seeds ``seed0``, ``seed0 + 1`` and so on; try number ``n`` at a
    task is played by a new agent with seed ``n``. So the result is the same for every ``jobs``.

    Args:
        env: A registered id, with or without ``"module:"`` before it; ``"module:ATTRIBUTE"``
            for a :class:`Domain` of your own or for a function; or a function that takes ``split``
            and ``env_kwargs`` and makes a headway environment with any wrappers around it.
        agent: A name in ``AGENTS``, or a function that makes an agent from a seed, itself or as
            ``"module:ATTRIBUTE"``. A class is such a function if its constructor takes the seed;
            for one that takes nothing write ``lambda seed: Mine()``, so that nothing is guessed.
        episodes: How many in all, at least 1 and a multiple of ``samples``.
        samples: Tries at each task, at least 1; more are for pass@k.
        split: ``"train"``, ``"dev"`` or ``"test"``.
        seed0: First seed, at least 0.
        jobs: Processes, at least 1. Above 1, ``env`` and ``agent`` must be picklable and a
            script needs its ``if __name__ == "__main__"``.
        stack: Reward layers to put around it, as in :func:`headway.wrappers.stack.build`.
        gamma: The learner's discount per turn, in (0, 1]; needed with ``stack``, and no use
            without.
        on_truncation: Given to every layer of ``stack`` that takes it.
        record: File to which every episode is added, see :class:`Recorder`; episodes of several
            jobs stand there in the order in which they ended.
        told: Hears how far it has come.
        **env_kwargs: For the environment.

    Raises:
        ValueError: An argument is outside its range, or names what is not there.
        TypeError: ``env`` makes no headway environment, or ``agent`` no agent from a seed.
        BrokenExecutor: A process was killed from outside.
    """
    for name, value, least in (
        ("episodes", episodes, 1),
        ("samples", samples, 1),
        ("seed0", seed0, 0),
        ("jobs", jobs, 1),
    ):
        if type(value) is not int or value < least:
            raise ValueError(f"{name} must be an int of at least {least}, got {value!r}")
    if episodes % samples:
        raise ValueError(f"episodes must be a multiple of samples={samples}, got {episodes}")
    if (stack is None) is not (gamma is None):
        raise ValueError(
            "gamma must be given with stack, where it must equal the learner's discount, and only "
            f"there; got stack {stack!r} and gamma {gamma!r}"
        )
    maker(agent)
    if isinstance(env, gym.Env) or not (isinstance(env, str) or callable(env)):
        raise TypeError(
            "env must be an id or a function that makes an environment, so that every task has "
            f"one of its own, got {env!r}"
        )
    new = partial(make, env, split=split, **env_kwargs)
    layers = partial(layered, new, stack, gamma, on_truncation, record)
    probe = layers()
    own(probe)
    probe.close()
    tries = partial(_tries, layers, agent, samples, 1.0 if gamma is None else gamma)
    seeds = range(seed0, seed0 + episodes // samples)
    played: list[Episode] = []
    with mapped(tries, seeds, min(jobs, len(seeds))) as results:
        for result in results:
            played += result
            told(len(played), episodes)
    return Evaluation(
        id=env if isinstance(env, str) else getattr(env, "__name__", repr(env)),
        agent=agent if isinstance(agent, str) else getattr(agent, "__name__", repr(agent)),
        played=tuple(played),
        samples=samples,
        stack=stack,
        gamma=1.0 if gamma is None else gamma,
    )


def make(env: str | Callable[..., gym.Env[Any, Any]], **settings: Any) -> gym.Env[Any, Any]:
    """A new environment.

    Args:
        env: As in :func:`evaluate`.
        **settings: For the environment.

    Raises:
        ValueError: It does not take the settings.
        ValueError: A setting is outside its range, or ``env`` names no Domain.
        Error: Of Gymnasium, where nothing is registered under the id.
    """
    try:
        if not isinstance(env, str):
            return env(**settings)
        _, _, name = env.partition(":")
        if not name.isidentifier():
            return gym.make(env, **settings)
        found: Any = find("env", env)
        if not isinstance(found, Domain) and callable(found):
            own: gym.Env[Any, Any] = found(**settings)
            return own
        made = ToolEnv(env, **settings)
        made.spec = EnvSpec(
            id=f"{made.domain.name}-v{made.domain.version}",
            entry_point=f"{ToolEnv.__module__}:{ToolEnv.__qualname__}",
            order_enforce=False,
            disable_env_checker=True,
            kwargs={"domain": env, **settings},
        )
        return made
    except TypeError as error:
        raise ValueError(
            f"env must take the settings {', '.join(settings)} of a headway environment, "
            f"which {env!r} does not: {error}"
        ) from error


def maker(agent: str | Callable[[int], Agent]) -> Callable[[int], Agent]:
    """The function that makes an agent from a seed.

    Args:
        agent: As in :func:`evaluate`.

    Raises:
        ValueError: A name stands for nothing.
        TypeError: It is no function that takes a seed.
    """
    new: Any = agent
    if isinstance(agent, str):
        module, colon, name = agent.partition(":")
        if not colon:
            return AGENTS[one_of("agent", agent, AGENTS)]
        try:
            new = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(
                f"agent must name what is there as 'module:ATTRIBUTE', got {agent!r}: {error}"
            ) from error
    if not callable(new):
        hint = "; write lambda seed: Mine()" if hasattr(new, "act") else ""
        raise TypeError(f"agent must be a name or a function seed -> agent, got {new!r}{hint}")
    try:
        inspect.signature(new).bind(0)
    except TypeError:
        name = getattr(new, "__name__", repr(new))
        raise TypeError(
            f"agent must take a seed and nothing else, which {name} does not; "
            f"write lambda seed: {name}(...)"
        ) from None
    except ValueError:  # what is built in may not tell
        pass
    made: Callable[[int], Agent] = new
    return made


def play(env: gym.Env[Any, Any], agent: Agent, *, seed: int, gamma: float = 1.0) -> Episode:
    """One episode of a headway environment, graded at every turn.

    Args:
        env: The environment, with or without wrappers.
        agent: Who plays.
        seed: Of the task.
        gamma: Discount per turn of the returns.
    """
    task_id, template, curve, records = "", UNKNOWN, [], []
    try:
        obs, info = env.reset(seed=seed)
        task_id, template = info["task_id"], TaskKey.parse(info["task_id"]).template
        agent.reset(env, obs)
        grade = env.get_wrapper_attr("grade")
        curve.append(grade().progress)
        over = False
        while not over:
            obs, _, terminated, truncated, info = env.step(agent.act(obs))
            over = terminated or truncated
            records.append(info["headway"])
            # At the end the environment's own verdict stands: the box may be gone. It has none
            # where something around it ended the episode, such as a time limit.
            verdict = (info["headway"]["verdict"] if over else None) or grade()
            curve.append(verdict.progress if verdict.status == "ok" else curve[-1])
    except SandboxDied as death:
        return Episode(task_id, template, "died", str(death), curve=tuple(curve))
    except EndpointFailed as failure:
        if failure.lasting:  # no other episode would fare better
            raise
        return Episode(task_id, template, "died", str(failure), curve=tuple(curve))
    return Episode(
        task_id,
        template,
        verdict.status,
        verdict.reason,
        success=verdict.success,
        curve=tuple(curve),
        families=_families(verdict),
        returns=paid(records, gamma),
    )


def paid(records: Iterable[Record], gamma: float) -> dict[str, float]:
    """What an episode paid: ``sum(gamma**t * amount)`` of ``base`` and of each channel.

    Args:
        records: ``info["headway"]`` of each turn, the reset left out.
        gamma: Discount per turn, in (0, 1].
    """
    sums = {"base": 0.0}
    for turn, record in enumerate(records):
        for name, amount in {"base": record["base"], **record["channels"]}.items():
            sums[name] = sums.get(name, 0.0) + gamma**turn * amount
    return sums


def mean_returns(paid: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Mean over episodes of what :func:`paid` found; what an episode lacks paid it nothing."""
    found = list(paid)
    names = dict.fromkeys(name for sums in found for name in sums)
    return {name: fmean(sums.get(name, 0.0) for sums in found) for name in names}


def wilson(successes: int, episodes: int) -> tuple[float, float]:
    """95 % interval of a share, sensible near 0 and 1 too; NaN where nothing was tried.

    Raises:
        ValueError: ``successes`` is outside [0, episodes].

    Source: Wilson (1927), the score interval.
    """
    if not 0 <= successes <= episodes:
        raise ValueError(f"successes must be in [0, {episodes}], got {successes!r}")
    if not episodes:
        return math.nan, math.nan
    share, z2 = successes / episodes, Z95**2 / episodes
    middle = share + z2 / 2
    spread = Z95 * math.sqrt(share * (1 - share) / episodes + z2 / episodes / 4)
    low, high = (middle - spread) / (1 + z2), (middle + spread) / (1 + z2)
    # Rounding leaves 6e-18 where the formula says 0.
    return (low if successes else 0.0), (high if successes < episodes else 1.0)


def pass_at_k(tries: int, successes: int, k: int) -> float:
    """Chance that k of the tries, drawn without replacement, hold a success: in [0, 1].

    Unbiased for the chance that one of k fresh tries succeeds.

    Raises:
        ValueError: ``k`` is outside [1, tries] or ``successes`` outside [0, tries].

    Source: Chen et al. (2021), section 2.1.
    """
    if not 1 <= k <= tries:
        raise ValueError(f"k must be in [1, {tries}], got {k!r}")
    if not 0 <= successes <= tries:
        raise ValueError(f"successes must be in [0, {tries}], got {successes!r}")
    return 1.0 - math.comb(tries - successes, k) / math.comb(tries, k)


def _mean(values: Iterable[float]) -> float:
    """Mean of what was measured; NaN where nothing was."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan


def _families(verdict: Verdict) -> dict[str, bool]:
    families: dict[str, bool] = {}
    for name, counts in verdict.ok.items():
        family = name.partition(".")[0]
        families[family] = families.get(family, True) and counts
    return families


def layered(
    make: Callable[[], gym.Env[Any, Any]],
    stack: str | None,
    gamma: float | None,
    on_truncation: AtEnd,
    record: str | None,
) -> gym.Env[Any, Any]:
    """A new environment with its reward layers, and around them what records it."""
    env = make()
    if stack is not None and gamma is not None:
        # Measuring what a stack pays is harmless, whatever it pays.
        env = build(env, stack, gamma=gamma, on_truncation=on_truncation, allow_dominance=True)
    return env if record is None else Recorder(env, record, gamma=gamma)


def _tries(
    make: Callable[[], gym.Env[Any, Any]],
    agent: str | Callable[[int], Agent],
    samples: int,
    gamma: float,
    seed: int,
) -> list[Episode]:
    """All tries at one task, in an environment of their own: no job sees what another did."""
    new, env = maker(agent), make()
    try:
        return [play(env, _new(new, sample), seed=seed, gamma=gamma) for sample in range(samples)]
    finally:
        env.close()


def _new(new: Callable[[int], Agent], seed: int) -> Agent:
    agent = new(seed)
    if not (hasattr(agent, "reset") and hasattr(agent, "act")) or isinstance(agent, type):
        raise TypeError(f"agent must make agents with reset() and act(), made {agent!r}")
    return agent
