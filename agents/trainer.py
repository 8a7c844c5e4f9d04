"""The learner's loop: collect, credit, update, log, save."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, cast

import gymnasium as gym
import numpy as np

import headway
from headway.agents.checkpoint import Checkpoints, held, put
from headway.agents.config import Config
from headway.agents.credit import (
    DERIVED,
    ESTIMATORS,
    Estimator,
    advantages,
    contributions,
    rule_of,
    tokens,
)
from headway.agents.engine import Engine
from headway.agents.evaluate import make, wilson
from headway.agents.learner import TRIES, Learner
from headway.agents.ledger import Ledger
from headway.agents.log import Log
from headway.agents.monitor import Goodhart, Monitor
from headway.agents.placebo import placebo
from headway.agents.policy import Policy
from headway.agents.probe import Probe
from headway.agents.rollout import Rollout, collect
from headway.agents.routing import Array
from headway.agents.trajectory import Trajectory
from headway.arguments import find, named
from headway.envs.domain import Domain
from headway.envs.rng import Rng
from headway.verifiers.likelihood import Control
from headway.wrappers.channel import layers_of
from headway.wrappers.stack import build, channels_of

Told = Callable[[Mapping[str, Any]], None]
"""``told(row)`` hears the log line of every update."""

HELD_OUT = 2**30
"""Seeds below it are for training, from it on for evaluations."""

SHOWN = 4
"""Episodes of an update that are kept to look at, one a group."""

CONFIG = "config.json"
"""What a run was started with."""

PILOT = 2
"""Trajectories by which a task's success is foreseen."""


def train(
    config: Config,
    folder: Path,
    *,
    told: Told = lambda row: None,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, Any]:
    """Trains a policy, or goes on where a killed run of the same configuration was.

    All that is random in update ``n`` is drawn from streams named by the seed and by ``n``, so a
    run that was killed and taken up again ends with the weights of one that was not.

    Args:
        config: What to do.
        folder: Of the run: ``config.json``, ``log.jsonl``, ``episodes.jsonl``, and checkpoints, of
            which ``state.json`` names the newest and the best.
        told: Hears the log line of every update.
        clock: What seconds are counted by.

    Returns:
        The last line of the log. Its ``"test"`` is what the policy does in the end with tasks that
        nothing was chosen by: those of evaluations on the way choose the best policy, and stop.

    Raises:
        ValueError: ``folder`` holds a run of another configuration, or the configuration names
            what is not there, or layers that do not fit.
        FloatingPointError: The policy's logits are no numbers.
    """
    _check(config, folder)
    with held(folder):
        _check(config, folder)  # another may have been quicker
        return _trained(config, folder, told, clock)


def _trained(
    config: Config, folder: Path, told: Told, clock: Callable[[], float]
) -> dict[str, Any]:
    """Trains in a folder that nobody else is in."""
    resumed = Checkpoints(folder).newest()
    source = resumed[0] if resumed else config.policy
    lora = None if resumed else config.lora
    policy = Policy.load(
        source,
        device=config.device,
        dtype=config.dtype,
        lora=lora,
        seed=config.seed,
        trained=True,
    )
    engine = Engine(policy, lanes=config.lanes, context=config.context)
    _fitting(config)
    # From here on what can be wrong with the configuration has been: the folder is the run's.
    checkpoints = Checkpoints(folder)
    if not (folder / CONFIG).exists():
        put(folder / CONFIG, json.dumps(asdict(config), indent=1) + "\n")
    learner = Learner(
        policy,
        rate=config.rate,
        batch_tokens=config.batch_tokens,
        kl_limit=config.kl_limit,
        temperature=config.temperature,
        turn_tokens=config.turn_tokens,
        auxiliary=config.auxiliary,
    )
    ledger, monitor, goodhart = Ledger(clock), Monitor(), Goodhart()
    state: dict[str, Any] = {"update": 0, "best": -1.0}
    state |= dict.fromkeys(("evaluation", "test", "proxy"))
    if resumed:
        state |= resumed[2]
        try:
            learner.load_state_dict(resumed[1])
            ledger.load_state_dict(state["ledger"])
            monitor.load_state_dict(state["monitor"])
            goodhart.load_state_dict(state["goodhart"])
        except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{folder} must hold the state of a run of this version, got {error!r}"
            ) from error
    log = Log(folder, state["update"])

    def save(best: bool) -> None:
        state["ledger"], state["monitor"] = ledger.state_dict(), monitor.state_dict()
        state["goodhart"] = goodhart.state_dict()
        checkpoints.save(policy, learner.state_dict(), state, best=best)

    try:
        while True:
            update = state["update"]
            spent = ledger.generated >= config.tokens
            spent = spent or (config.seconds is not None and ledger.trained >= config.seconds)
            engine.sync()
            due = spent or update == 0 or (config.evaluate and update % config.evaluate == 0)
            if due and state["evaluation"] is None:
                with ledger.timed("evaluation"):
                    found = state["evaluation"] = evaluation(engine, config, update, "dev")
                success = -1.0 if found["success"] is None else found["success"]
                if success >= 0.0 and state["proxy"] is not None:
                    goodhart.observe(state["proxy"], success)
                best = success > state["best"] and not goodhart.stopped
                state["best"] = max(state["best"], success)
                save(best)
            row = {"update": update, "tokens": ledger.generated, "seconds": ledger.trained}
            if state["evaluation"] is not None:
                row["evaluation"] = state["evaluation"]
            if spent or goodhart.stopped:
                if state["test"] is None:
                    with ledger.timed("evaluation"):
                        state["test"] = evaluation(engine, config, update, "test")
                    save(False)
                row["test"] = state["test"]
                if goodhart.stopped:
                    row["alarms"] = ["goodhart: rewards rise and evaluations fall, so it ends here"]
                log.write(row)
                told(row)
                return row
            row |= _updated(config, engine, learner, ledger, monitor, log, update)
            log.write(row)
            told(row)
            state |= {"update": update + 1, "evaluation": None}
            if row["returns"]:
                state["proxy"] = sum(row["returns"].values())
            if (update + 1) % config.save == 0:
                save(False)
    finally:
        log.close()


def _updated(
    config: Config,
    engine: Engine,
    learner: Learner,
    ledger: Ledger,
    monitor: Monitor,
    log: Log,
    update: int,
) -> dict[str, Any]:
    """One update: its part of the log line."""
    batch = _sampled(config, engine, ledger, update)
    groups = grouped(batch.trajectories)
    if config.placebo is not None:
        stream = np.random.Generator(np.random.Philox(key=[config.seed, update]))
        groups = placebo(groups, config.placebo, stream)
    std = config.allow_std_on_dense
    rule = estimator(config.credit)
    worth = advantages(groups, rule, gamma=config.gamma, allow_std_on_dense=std)
    parts = contributions(groups, rule, gamma=config.gamma, allow_std_on_dense=std)
    flat = [trajectory for group in groups for trajectory in group]
    credit = [one for group in worth for one in group]
    with ledger.timed("learner"):
        done = learner.step(flat, [tokens(t, a) for t, a in zip(flat, credit, strict=True)])
    watched = monitor.observe(groups, worth, parts, done.moved)
    if done.rejected == TRIES:
        watched["alarms"].append("guard: every try of the update went too far; it was left out")
    if done.norm is not None and not math.isfinite(done.norm):
        watched["alarms"].append("gradient: it is not finite, so the update was left out")
    if update % config.save == 0:
        first = [i for i in range(0, len(flat), config.size)][:SHOWN]
        log.show(update, [flat[i] for i in first], [credit[i] for i in first])
    return {
        "tokens": ledger.generated,
        "seconds": ledger.trained,
        **_told_of(batch.trajectories),
        "silent": watched["zero"],
        **{"norm": done.norm, "kl": done.kl, "moved": done.moved, "rate": done.rate},
        **{"rolled_back": done.rejected, "gap": done.gap},
        **{name: watched[name] for name in ("share", "variance", "length", "alarms")},
        "ledger": ledger.state_dict(),
    }


def _fitting(config: Config) -> None:
    """Makes sure that rewards, credit and placebo fit together.

    Raises:
        ValueError: They do not.
    """
    rule = rule_of(estimator(config.credit), config.allow_std_on_dense)
    env = environment(config)
    paid = [channel.name for channel, _ in channels_of(env)]
    env.close()
    paid += ["information"] * (config.information > 0.0) + ["value"] * (config.continuations > 0)
    read = {name for term in rule.terms for name in term.channels}
    for name in sorted(read - {"base", "*", *DERIVED, *paid}):
        raise ValueError(
            f"credit={config.credit!r} needs the channel {name!r}, which nothing pays: put its "
            f"layer into stack (for 'information' set information, for 'value' continuations); "
            f"got {paid}"
        )
    if config.placebo is None:
        return
    if read & DERIVED.keys() or not read & {"*", *paid}:
        raise ValueError(
            f"placebo must be None with credit={config.credit!r}, which reads nothing that a "
            f"placebo changes, got {config.placebo!r}"
        )
    if config.placebo == "mismatch" and config.groups < 2:
        raise ValueError(f"groups must be at least 2 with placebo='mismatch', got {config.groups}")


def estimator(credit: str) -> Estimator:
    """How trajectories become advantages.

    Args:
        credit: A name in ``ESTIMATORS``, or ``"module:function"`` for one that makes an estimator.

    Raises:
        ValueError: There is no such thing.
    """
    makers = {name: partial(ESTIMATORS.__getitem__, name) for name in ESTIMATORS}
    return named("credit", credit, makers)()


def _sampled(config: Config, engine: Engine, ledger: Ledger, update: int) -> Rollout:
    """The trajectories of an update, those of one task side by side."""
    rng = Rng("train", config.seed, update)
    seeds = [rng.below(HELD_OUT) for _ in range(config.groups * (2 if config.edge else 1))]
    new = partial(environment, config, step=ledger.generated)
    play = partial(
        collect,
        engine,
        make=new,
        turn_tokens=config.turn_tokens,
        temperature=config.temperature,
        clock=ledger.clock,
    )
    if config.edge:
        pilot = play(seeds, key=("pilot", config.seed, update), group=PILOT)
        ledger.charge(pilot.tokens, pilot.seconds)
        chances = [_foreseen(group) for group in grouped(pilot.trajectories)]
        order = sorted(range(len(seeds)), key=lambda i: abs(chances[i] - 0.5))
        seeds = [seeds[i] for i in sorted(order[: config.groups])]
    probe = None
    if config.information:
        own = config.control == "mismatch"
        probe = Probe(
            gamma=config.gamma,
            c=config.information,
            control=None if own else cast(Control | None, config.control),
            mismatch=own,
        )
    batch = play(
        seeds,
        key=("train", config.seed, update),
        group=config.size,
        probe=probe,
        continuations=config.continuations,
    )
    ledger.charge(batch.tokens, batch.seconds)
    if config.continuations:
        for trajectory, values in zip(batch.trajectories, batch.values, strict=True):
            _value(trajectory, values)
    return batch


def _foreseen(group: Sequence[Trajectory]) -> float:
    """Chance of success of a task, from a uniform prior."""
    scored = [trajectory.success for trajectory in group if trajectory.scored]
    return (sum(scored) + 1) / (len(scored) + 2)


def _value(trajectory: Trajectory, values: Array) -> None:
    """Adds what each turn changed in the value of the state, as the channel ``"value"``."""
    for at, turn in enumerate(trajectory.turns):
        gain = float(values[at + 1] - values[at])
        lost = "" if math.isfinite(gain) else "value: no outcome of another was measured"
        trajectory.turns[at] = replace(
            turn,
            channels={**turn.channels, "value": 0.0 if lost else gain},
            unmeasured="; ".join(filter(None, (turn.unmeasured, lost))),
        )


def grouped(trajectories: Sequence[Trajectory]) -> list[list[Trajectory]]:
    """Trajectories by their group, in order."""
    groups: dict[int, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.group, []).append(trajectory)
    return list(groups.values())


def evaluation(engine: Engine, config: Config, update: int, split: str) -> dict[str, Any]:
    """What a policy does with tasks that are kept for this, sampling as in training.

    Args:
        engine: Of the policy.
        config: Of the run.
        update: Names the streams that tokens are drawn from; the tasks of a run are always the
            same.
        split: ``"dev"`` or ``"test"``: tasks of their own, also where there are no splits.

    Returns:
        ``success`` and ``progress``, means over the scored episodes, None without any; ``low`` and
        ``high``, the 95 % interval of success; ``episodes``, ``unscored``.
    """
    rng = Rng("held out", config.seed, split)
    played = collect(
        engine,
        [HELD_OUT + rng.below(HELD_OUT) for _ in range(config.episodes)],
        partial(environment, config, split=split),
        key=("evaluation", config.seed, update, split),
        turn_tokens=config.turn_tokens,
        temperature=config.temperature,
    )
    scored = [t for t in played.trajectories if t.scored]
    wins = sum(t.success for t in scored)
    low, high = wilson(wins, len(scored))
    return {
        "success": wins / len(scored) if scored else None,
        "progress": fmean(t.curve[-1] for t in scored) if scored else None,
        **{"low": low, "high": high},
        **{"episodes": config.episodes, "unscored": config.episodes - len(scored)},
    }


def environment(config: Config, *, step: int = 0, split: str | None = None) -> gym.Env[Any, Any]:
    """A new environment of a run.

    Args:
        config: Of the run.
        step: Of the learner, in generated tokens, which schedules go by.
        split: Of an evaluation: then it has no reward layers, and is of this split where it has
            splits and the configuration names none. None for training.

    Raises:
        ValueError: The configuration names what is not there, or does not fit.
    """
    settings = dict(config.environment)
    if split is not None and _has_splits(config.env):
        settings.setdefault("split", split)
    env = make(config.env, **settings)
    if split is not None:
        return env
    env = build(env, config.stack, gamma=config.gamma, allow_dominance=config.allow_dominance)
    lasting = [type(one.layer).__name__ for one in layers_of(env) if one.layer.lasting]
    if lasting:
        raise ValueError(
            "stack must hold no layer that remembers other episodes, as each is played in a copy "
            f"that is thrown away, got {lasting}; for placebos set placebo= of the configuration"
        )
    headway.set_progress(env, step)
    return env


def _has_splits(env: str) -> bool:
    """Whether it is an id or a Domain, and not a function of whose settings nothing is known."""
    name = env.partition(":")[2]
    return not name.isidentifier() or isinstance(find("env", env), Domain)


def _told_of(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """What a log line says of what was sampled; None where nothing was measured."""
    scored = [t for t in trajectories if t.scored]
    turns = [turn for t in trajectories for turn in t.turns]
    calls = sum(turn.calls for turn in turns)
    sampled = sum(t.sampled for t in trajectories)
    sums: dict[str, list[float]] = {}
    for trajectory in scored:
        for name, amounts in trajectory.rewards().items():
            sums.setdefault(name, []).append(float(amounts.sum()))
    return {
        "success": fmean(t.success for t in scored) if scored else None,
        "progress": fmean(t.curve[-1] for t in scored) if scored else None,
        "turns": len(turns) / len(trajectories),
        "refused": sum(turn.refused for turn in turns) / calls if calls else None,
        "cut": sum(turn.cut for turn in turns) / len(turns) if turns else None,
        "unscored": len(trajectories) - len(scored),
        "entropy": -sum(float(t.logp.sum()) for t in trajectories) / sampled if sampled else None,
        "returns": {name: sum(found) / len(scored) for name, found in sums.items()},
    }


def _check(config: Config, folder: Path) -> None:
    """Makes sure that ``folder`` is new or that of this run.

    Raises:
        ValueError: It is that of another, or of something else.
    """
    file = folder / CONFIG
    if not file.exists():
        if folder.exists() and {path.name for path in folder.iterdir()} - {CONFIG + ".new"}:
            raise ValueError(
                f"out must be a new folder or that of the same run, got {str(folder)!r}, which "
                "holds something else"
            )
        return
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} must be JSON: {error}") from error
    if not isinstance(before, dict):
        raise ValueError(f"{file} must hold a configuration, got {before!r:.100}")
    now = json.loads(json.dumps(asdict(config)))
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            raise ValueError(
                f"out must be a new folder or that of the same run, got {str(folder)!r} with "
                f"{name} {before.get(name)!r} instead of {now.get(name)!r}"
            )
