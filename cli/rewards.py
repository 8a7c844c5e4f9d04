"""Commands about what is paid: eval, rescore, audit."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.text import Text

from headway.agents import Evaluation, evaluate
from headway.agents.audit import Audit, audit
from headway.agents.evaluate import make
from headway.agents.rescore import Rescored, rescore
from headway.cli.output import amount, bars, brief, columns, figure, print_json, screen, shown
from headway.cli.terms import refuse, settings, theirs
from headway.envs import DOMAINS
from headway.wrappers.audit import staged
from headway.wrappers.record import Recorder
from headway.wrappers.stack import build
from headway.wrappers.transforms import AtEnd

CURVE_ROWS = 12
"""About so many turns of a progress curve are printed."""


def run_eval(args: argparse.Namespace) -> int:
    if args.episodes % args.samples:
        args.parser.error(
            f"argument --episodes: must be a multiple of --samples {args.samples}, "
            f"got {args.episodes}"
        )
    _check_stack(args, args.id, **settings(args))
    with bars() as told:
        result = _played(args, partial(told, args.policy or args.agent))
    for episode in result.played:
        if episode.status != "ok":
            what = f"{episode.task_id or 'a task'}: {episode.status}: {episode.reason}"
            print(f"headway: {what}", file=sys.stderr)
    status = 1 if result.no_verdict or result.died else 0
    if args.json:
        print_json(result.as_json())
    else:
        _print_evaluation(screen(), result)
    return status


def _played(args: argparse.Namespace, told: Callable[[int, int], None]) -> Evaluation:
    """What an agent, a policy or a server does."""
    asked: dict[str, Any] = {
        "episodes": args.episodes,
        "samples": args.samples,
        "seed0": args.seed,
        "stack": args.stack,
        "on_truncation": args.on_truncation or "zero",
        "told": told,
        **settings(args),
    }
    served = args.policy is not None and args.policy.startswith(("http://", "https://"))
    for name, value in (("--model", args.model), ("--mode", args.mode)):
        if value is not None and not served:
            args.parser.error(f"argument {name}: is for a --policy that is a URL")
    if args.policy is None or served:
        player: Any = args.agent
        if served:
            from headway.agents.endpoint import Endpoint

            if args.model is None:
                args.parser.error("argument --policy: a URL needs --model")
            try:
                player = Endpoint(
                    args.policy,
                    args.model,
                    mode=args.mode or "text",
                    temperature=args.temperature,
                    max_tokens=args.turn_tokens,
                )
            except ValueError as error:
                args.parser.error(str(error))
            if args.mode == "tools":
                asked["manual"] = False
        found = evaluate(
            args.id, player, jobs=args.jobs, gamma=args.gamma, record=args.record, **asked
        )
        if served:
            used = player.usage
            if used.answers:  # with several jobs each worker has counts of its own
                said = (
                    f"{used.answers} answers, {used.prompt} tokens read, {used.completion} written"
                )
                print(f"headway: {args.policy}: {said}", file=sys.stderr)
            player.close()
        return found
    if args.record is not None:
        args.parser.error("argument --record: is for agents; headway train keeps episodes")
    from headway.agents.exam import examine
    from headway.agents.policy import Policy

    try:
        policy = Policy.load(args.policy)
        return examine(
            policy,
            args.id,
            gamma=1.0 if args.gamma is None else args.gamma,
            temperature=args.temperature or 1.0,
            greedy=args.temperature == 0.0,
            turn_tokens=args.turn_tokens,
            lanes=args.lanes,
            **asked,
        )
    except (OSError, ValueError) as error:
        refuse(args, f"argument --policy: {error}")


def _print_evaluation(out: Console, result: Evaluation) -> None:
    table = columns("template", "episodes", "success", "95 %", "progress", "turns")
    for name, part in {**result.by_template, "all": result}.items():
        low, high = (figure(end, ".0%") for end in part.interval)
        table.add_row(
            name,
            str(part.episodes),
            figure(part.success, ".0%"),
            f"{low} to {high}",
            figure(part.progress, ".3f"),
            figure(part.turns, ".1f"),
        )
    curve = columns("turn", "mean progress", "")
    length = len(result.curve)
    for turn in reversed(range(length - 1, -1, -(1 + length // CURVE_ROWS))):
        progress = result.curve[turn]
        curve.add_row(str(turn), f"{progress:.3f}", ProgressBar(1.0, progress, width=20))
    out.print(f"{result.agent} on {result.id}", table, curve, sep="\n", markup=False)
    if result.by_check:
        checks = columns("family of checks", "counts in")
        for family, share in result.by_check.items():
            checks.add_row(family, figure(share, ".0%"))
        out.print(checks)
    if result.stack is not None:
        returns = columns("channel", f"mean return (gamma {result.gamma:g})")
        for name, value in result.returns.items():
            returns.add_row(name, amount(value))
        out.print(returns)
    for k, chance in result.pass_at_k.items():
        out.print(f"pass@{k}: {figure(chance, '.0%')}")
    out.print(f"no verdict: {result.no_verdict}, machine died: {result.died}")


def _check_stack(args: argparse.Namespace, id: str, **settings: Any) -> None:
    """Ends with wrong usage where layers or a file of trajectories cannot be what is asked for."""
    for name, value in (("--gamma", args.gamma), ("--on-truncation", args.on_truncation)):
        if args.stack is None and value is not None:
            args.parser.error(f"argument {name}: is for the layers of --stack, which is missing")
    if args.stack is not None and args.gamma is None:
        args.parser.error("argument --stack: needs --gamma, which must equal the learner's")
    env = make(id, **settings)
    try:
        if args.stack is not None:
            with theirs(args.stack):
                ends: AtEnd = args.on_truncation or "zero"
                env = build(
                    env, args.stack, gamma=args.gamma, on_truncation=ends, allow_dominance=True
                )
    except argparse.ArgumentTypeError as error:
        args.parser.error(f"argument --stack: {error}")
    try:
        if args.command == "eval" and args.record is not None:
            Recorder(env, args.record)
    except (OSError, ValueError) as error:
        args.parser.error(f"argument --record: {error}")


def run_rescore(args: argparse.Namespace) -> int:
    if not Path(args.file).is_file():
        args.parser.error(f"argument FILE: no file {args.file!r}")
    if args.trust:
        with theirs(args.file):  # what was recorded may be in the current folder
            pass
    if args.stack is not None or args.gamma is not None or args.on_truncation is not None:
        _check_stack(args, args.env or next(iter(DOMAINS)))
    try:
        with bars() as told:
            found = rescore(
                args.file,
                env=args.env,
                stack=args.stack,
                gamma=args.gamma,
                on_truncation=args.on_truncation or "zero",
                trust=args.trust,
                told=partial(told, "episodes"),
            )
    except ValueError as error:
        args.parser.error(f"argument FILE: {error}")
    if not found.episodes:
        args.parser.error(f"argument FILE: no episode in {args.file!r}")
    for line, size in found.torn:
        what = f"torn after {size} bytes and dropped: its writer was killed, or the disk full"
        print(f"headway: {args.file}:{line}: {what}", file=sys.stderr)
    for why, lost in (("cannot be played again", found.failed), ("had died", found.died)):
        for one in lost:
            what = f"{shown(one.task_id) or 'an episode'} {why}: {shown(one.reason)}"
            print(f"headway: {args.file}:{one.episode}: {what}", file=sys.stderr)
    if args.json:
        print_json(found.as_json())
    else:
        _print_rescored(screen(), found)
    return 0 if found.same else 1


def _print_rescored(out: Console, found: Rescored) -> None:
    seen: dict[str, list[Any]] = {}
    for one in found.differences:
        seen.setdefault(one.what, []).append(one)
    if seen:
        table = columns("what", "episodes", "times", "line", "turn", "was", "now")
        for what, ones in seen.items():
            first = ones[0]
            turn = "" if first.turn is None else str(first.turn)
            places = (
                str(len({one.episode for one in ones})),
                str(len(ones)),
                str(first.episode),
                turn,
            )
            row = (brief(what, 60), *places, brief(first.was), brief(first.now))
            table.add_row(*(Text(cell) for cell in row))
        out.print(table)
    returns = columns("channel", "mean return was", "now")
    for name in dict.fromkeys((*found.was, *found.now)):
        sides = (side.get(name, math.nan) for side in (found.was, found.now))
        returns.add_row(Text(brief(name, 60)), *map(amount, sides))
    out.print(returns)
    out.print(
        f"{found.identical} of {found.episodes} episodes are identical, {found.same_verdicts} have "
        f"the same verdicts; {len(found.failed)} cannot be played again, {len(found.died)} had "
        f"died, {len(found.torn)} torn lines",
        markup=False,
    )


def run_audit(args: argparse.Namespace) -> int:
    ends: AtEnd = args.on_truncation
    try:
        with theirs(args.stack):
            world = make(args.id, **settings(args))
            staged(world, args.stack, gamma=args.gamma, on_truncation=ends).close()
    except argparse.ArgumentTypeError as error:
        args.parser.error(f"argument --stack: {error}")
    try:
        with bars() as told:
            found = audit(
                args.id,
                args.stack,
                gamma=args.gamma,
                on_truncation=ends,
                tasks=args.tasks,
                seed0=args.seed,
                told=partial(told, "audit"),
                **settings(args),
            )
    except (TypeError, ValueError) as error:  # a layer that cannot be played, or copied
        args.parser.error(f"argument --stack: cannot use {args.stack!r}: {error}")
    if args.json:
        print_json(found.as_json())
    else:
        _print_audit(screen(), found)
    return 0 if found.sound else 1


def _print_audit(out: Console, found: Audit) -> None:
    table = columns("channel", "bound", "seen", "verdict")
    for one in found.channels:
        table.add_row(*map(Text, (one.name, _range(one.bound), _range(one.seen), one.verdict)))
    out.print(f"{found.stack or 'no layers'} on {found.id}, gamma {found.gamma:g}", markup=False)
    out.print(table)
    for one in found.channels:
        if one.counterexample is not None:
            who = one.counterexample["farmer"]
            _print_play(out, f"{one.name}: {one.verdict} ({who})", one.counterexample)
    proof = found.proof
    if found.preserved:
        claim = "as" if proof.claimed else "and that is more than"
        out.print(f"What is best with the stack is best without it, {claim} its layers claim.")
    else:
        claim = "though its layers claim so" if proof.claimed else "nor do its layers claim so"
        out.print(f"What is best with the stack is NOT always best without it, {claim}.")
    if found.counterexample is not None:
        for play in (found.counterexample, found.counterexample["instead"]):
            _print_play(out, play["farmer"], play)
        out.print(
            f"The first is worth {amount(found.counterexample['gap'])} more with the stack, luck "
            "averaged"
            + ("." if found.counterexample["outcome"] else ", if the second is paid for, but less.")
        )
        if found.on_truncation == "keep" and "submit" not in found.counterexample["actions"]:
            out.print(
                "It pays not to submit: a cut episode keeps its potential, which is right only for "
                "a learner that bootstraps there."
            )
    if proof.distance is not None:
        out.print(f"STARC distance from the bare reward, in a miniature: {proof.distance:.3f}")
    ahead = found.dominance
    out.print(
        f"Success {'comes' if ahead.holds else 'does NOT come'} first: at the nearest, in "
        f"{ahead.task_id}, the worst success returned {amount(ahead.worst_success)} and the best "
        f"failure {amount(ahead.best_failure)}.",
        markup=False,
    )
    limit = "any number of" if ahead.turns is None else str(ahead.turns)
    out.print(
        f"A success within {limit} turns is ahead of all that the channels can pay together, "
        f"{ahead.dense:.3f}; episodes take up to {ahead.longest} turns."
    )
    if found.no_verdict:
        out.print(f"Farmers made the grader fail in {found.no_verdict} episodes.")
    out.print(f"The stack is {'sound' if found.sound else 'NOT sound'}.")


def _print_play(out: Console, title: str, play: Mapping[str, Any]) -> None:
    """One counter-example; a loop stands once, after the way to it."""
    out.print(f"{title}; pays {amount(play['pays'])} in {play['task_id']}:", markup=False)
    actions, loop = play["actions"], play["loop"]
    begins = (n for n in range(len(actions)) if loop and actions[n : n + len(loop)] == loop)
    way = actions[: next(begins, len(actions))]
    lines = [(sum(1 for _ in same), action) for action, same in groupby(way)]
    for count, action in lines:
        times = f"{count} times " if count > 1 else ""
        out.print(f"  {times}{action}", markup=False, no_wrap=True, overflow="ellipsis")
    for action in loop:
        out.print(f"  again and again {action}", markup=False, no_wrap=True, overflow="ellipsis")


def _range(ends: tuple[float, float]) -> str:
    return " to ".join(amount(end) if math.isfinite(end) else "any" for end in ends)
