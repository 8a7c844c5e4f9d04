"""The command line: list, play, verify, eval, rescore, audit, bench, demo.

Answers go to stdout, progress bars and complaints to stderr. Exit status: 0 fine, 1 a check or
the machine failed, 2 wrong usage, 130 interrupted. A shell starts background jobs with Ctrl-C
ignored, and so they stay: it is meant for what stands in front.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headway.agents import AGENTS, Evaluation, demo, evaluate
from headway.agents.audit import Audit, audit
from headway.agents.evaluate import make, maker
from headway.agents.person import HELP, Left, Person, told_of
from headway.agents.rescore import Rescored, rescore
from headway.arguments import nearest, number
from headway.envs import DOMAINS
from headway.envs.box import SandboxDied
from headway.envs.domain import Domain, load
from headway.envs.task import DIFFICULTIES, RENDERINGS, SPLITS
from headway.envs.verify import WORLDS_PER_FAULT, Report, verify
from headway.wrappers.audit import staged
from headway.wrappers.record import Recorder
from headway.wrappers.stack import build
from headway.wrappers.transforms import AtEnd

Told = Callable[[str, int, int], None]
"""``told(what, done, of)`` moves a progress bar."""

MOST = 10**9
"""No count and no seed is above it; processes are fewer."""

MOST_JOBS = 1024

CURVE_ROWS = 12
"""About so many turns of a progress curve are printed."""

BRIEF = 24
"""Characters of a value in a table of differences."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status.

    Raises:
        SystemExit: The usage is wrong (2), or help was asked for (0).
    """
    if sys.stdout is None:  # >&-
        return _failed("stdout is closed; there is nowhere to answer")
    sys.stdin, sys.stderr = sys.stdin or open(os.devnull), sys.stderr or open(os.devnull, "w")
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a character that a terminal lacks ends nothing
            stream.reconfigure(errors="replace" if stream is sys.stdin else "backslashreplace")
    try:
        try:
            args = _arguments(list(sys.argv[1:] if argv is None else argv))
            status: int = args.run(args)
        finally:
            sys.stdout.flush()
    except BrokenPipeError as error:
        if not _nobody_reads():
            return _failed(error)
        _drop_stdout()  # | head
        return 0
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:  # a full disk; the interpreter would try again on its way out
            _drop_stdout()
        return _failed(error)
    except SandboxDied as death:
        return _failed(f"the machine failed: {death}")
    except ModuleNotFoundError as error:  # an extra that is not installed
        _failed(error)
        return 2
    except BrokenExecutor:
        return _failed("a worker process was killed from outside, for memory perhaps")
    except KeyboardInterrupt:
        print("headway: interrupted", file=sys.stderr)
        return 130
    return status


def _failed(why: object) -> int:
    if sys.stderr is not None:  # print would take stdout
        print(f"headway: {why}", file=sys.stderr)
    return 1


def _nobody_reads() -> bool:
    """Whether the reader of stdout is gone; not every broken pipe is that one."""
    if not hasattr(select, "poll"):  # Windows cannot tell
        return True
    poll = select.poll()
    poll.register(sys.stdout, 0)  # errors and hang-ups are always told
    return bool(poll.poll(0))


def _drop_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# The commands.


def _list(args: argparse.Namespace) -> int:
    rows = [_row(id, load(where)) for id, where in DOMAINS.items()]
    if args.json:
        _print_json({"environments": rows})
        return 0
    for row in rows:
        table = Table.grid(padding=(0, 2))
        for name, value in row.items():
            table.add_row(name, value if isinstance(value, str) else ", ".join(value) or "-")
        _out().print(table, "")
    return 0


def _row(id: str, domain: Domain) -> dict[str, Any]:
    return {
        "id": id,
        "domain": domain.name,
        "templates": [template.name for template in domain.templates],
        "tools": [*domain.toolbox, *(["ask_user"] if 4 in domain.renderings else []), "submit"],
        "sandbox": domain.sandbox,
        "views": list(domain.views),
        "extras": list(domain.extras),
    }


def _play(args: argparse.Namespace) -> int:
    env = make(args.id, **_settings(args))
    obs, info = env.reset(seed=args.seed)
    person = Person()
    person.reset(env, obs)
    print(f"Task {info['task_id']}\n\n{HELP}\n")
    over = False
    try:
        while not over:
            obs, _, terminated, truncated, info = env.step(person.act(obs))
            over = terminated or truncated
    except Left:
        print(f"Left after turn {info['turn']}.")
        return 0
    finally:
        env.close()
    ended = "Success" if info["headway"]["base"] else "No success"
    peeked = f" (peeked {person.peeked} times)" if person.peeked else ""
    print(obs, f"{ended}{peeked} after turn {info['turn']}.", sep="\n")
    print(told_of(info["headway"]["verdict"]))
    return 0


def _verify(args: argparse.Namespace) -> int:
    with _bars() as told:
        report = verify(_where(args.domain), seeds=args.seeds, told=told)
    status = 0 if report.sound else 1
    if args.json:
        _print_json(report.as_json())
    else:
        _print_report(_out(), report)
    return status


def _print_report(out: Console, report: Report) -> None:
    table = _table("what", "found", "allowed")
    table.add_row("tasks", str(report.tasks), "")
    table.add_row("failures", str(len(report.failures)), "0")
    table.add_row("resampled", str(report.resampled), f"at most {max(1, report.tasks // 10)}")
    planted = report.faults.planted
    found = f"{report.faults.caught} of {planted}"
    table.add_row("planted faults", found, f">= {min(12, planted)}")
    table.add_row("mutants caught", f"{report.mutants.caught} of {report.mutants.tried}", ">= 95 %")
    table.add_row("variants refused", f"{report.variants.refused} of {report.variants.tried}", "0")
    table.add_row("contract, median", f"{report.median_ms:.1f} ms", "")
    faults = _table("planted fault", f"caught in {WORLDS_PER_FAULT} worlds")
    for kind, caught in report.faults.by_kind.items():
        faults.add_row(kind, "not applicable" if caught is None else str(caught))
    out.print(table, faults, sep="\n")
    for failure in report.failures:
        out.print(f"{failure.task_id or '-'}: {failure.check}: {failure.detail}", markup=False)
    out.print(f"{report.domain} is {'sound' if report.sound else 'NOT sound'}.")


def _eval(args: argparse.Namespace) -> int:
    if args.episodes % args.samples:
        args.parser.error(
            f"argument --episodes: must be a multiple of --samples {args.samples}, "
            f"got {args.episodes}"
        )
    _check_stack(args, args.id, **_settings(args))
    with _bars() as told:
        result = evaluate(
            args.id,
            args.agent,
            episodes=args.episodes,
            samples=args.samples,
            seed0=args.seed,
            jobs=args.jobs,
            stack=args.stack,
            gamma=args.gamma,
            on_truncation=args.on_truncation or "zero",
            record=args.record,
            told=partial(told, args.agent),
            **_settings(args),
        )
    for episode in result.played:
        if episode.status != "ok":
            what = f"{episode.task_id or 'a task'}: {episode.status}: {episode.reason}"
            print(f"headway: {what}", file=sys.stderr)
    status = 1 if result.no_verdict or result.died else 0
    if args.json:
        _print_json(result.as_json())
    else:
        _print_evaluation(_out(), result)
    return status


def _print_evaluation(out: Console, result: Evaluation) -> None:
    table = _table("template", "episodes", "success", "95 %", "progress", "turns")
    for name, part in {**result.by_template, "all": result}.items():
        low, high = (_number(end, ".0%") for end in part.interval)
        table.add_row(
            name,
            str(part.episodes),
            _number(part.success, ".0%"),
            f"{low} to {high}",
            _number(part.progress, ".3f"),
            _number(part.turns, ".1f"),
        )
    curve = _table("turn", "mean progress", "")
    length = len(result.curve)
    for turn in reversed(range(length - 1, -1, -(1 + length // CURVE_ROWS))):
        progress = result.curve[turn]
        curve.add_row(str(turn), f"{progress:.3f}", ProgressBar(1.0, progress, width=20))
    checks = _table("family of checks", "counts in")
    for family, share in result.by_check.items():
        checks.add_row(family, _number(share, ".0%"))
    out.print(f"{result.agent} on {result.id}", table, curve, checks, sep="\n", markup=False)
    if result.stack is not None:
        returns = _table("channel", f"mean return (gamma {result.gamma:g})")
        for name, value in result.returns.items():
            returns.add_row(name, _amount(value))
        out.print(returns)
    for k, chance in result.pass_at_k.items():
        out.print(f"pass@{k}: {_number(chance, '.0%')}")
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
            with _theirs(args.stack):
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


def _rescore(args: argparse.Namespace) -> int:
    if not Path(args.file).is_file():
        args.parser.error(f"argument FILE: no file {args.file!r}")
    if args.trust:
        with _theirs(args.file):  # what was recorded may be in the current folder
            pass
    if args.stack is not None or args.gamma is not None or args.on_truncation is not None:
        _check_stack(args, args.env or next(iter(DOMAINS)))
    try:
        with _bars() as told:
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
            what = f"{_shown(one.task_id) or 'an episode'} {why}: {_shown(one.reason)}"
            print(f"headway: {args.file}:{one.episode}: {what}", file=sys.stderr)
    if args.json:
        _print_json(found.as_json())
    else:
        _print_rescored(_out(), found)
    return 0 if found.same else 1


def _print_rescored(out: Console, found: Rescored) -> None:
    seen: dict[str, list[Any]] = {}
    for one in found.differences:
        seen.setdefault(one.what, []).append(one)
    if seen:
        table = _table("what", "episodes", "times", "line", "turn", "was", "now")
        for what, ones in seen.items():
            first = ones[0]
            turn = "" if first.turn is None else str(first.turn)
            places = (
                str(len({one.episode for one in ones})),
                str(len(ones)),
                str(first.episode),
                turn,
            )
            row = (_brief(what, 60), *places, _brief(first.was), _brief(first.now))
            table.add_row(*(Text(cell) for cell in row))
        out.print(table)
    returns = _table("channel", "mean return was", "now")
    for name in dict.fromkeys((*found.was, *found.now)):
        sides = (side.get(name, math.nan) for side in (found.was, found.now))
        returns.add_row(Text(_brief(name, 60)), *map(_amount, sides))
    out.print(returns)
    out.print(
        f"{found.identical} of {found.episodes} episodes are identical, {found.same_verdicts} have "
        f"the same verdicts; {len(found.failed)} cannot be played again, {len(found.died)} had "
        f"died, {len(found.torn)} torn lines",
        markup=False,
    )


def _shown(text: str) -> str:
    """A text of a file as a terminal may have it: what would move its cursor is written out."""
    return text if text.isprintable() else repr(text)


def _brief(value: Any, most: int = BRIEF) -> str:
    """A value of any size and content in a cell of a table."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most and text.isprintable() else f"{text[:most]!r}..."


def _audit(args: argparse.Namespace) -> int:
    ends: AtEnd = args.on_truncation
    try:
        with _theirs(args.stack):
            world = make(args.id, **_settings(args))
            staged(world, args.stack, gamma=args.gamma, on_truncation=ends).close()
    except argparse.ArgumentTypeError as error:
        args.parser.error(f"argument --stack: {error}")
    try:
        with _bars() as told:
            found = audit(
                args.id,
                args.stack,
                gamma=args.gamma,
                on_truncation=ends,
                tasks=args.tasks,
                seed0=args.seed,
                told=partial(told, "audit"),
                **_settings(args),
            )
    except (TypeError, ValueError) as error:  # a layer that cannot be played, or copied
        args.parser.error(f"argument --stack: cannot use {args.stack!r}: {error}")
    if args.json:
        _print_json(found.as_json())
    else:
        _print_audit(_out(), found)
    return 0 if found.sound else 1


def _print_audit(out: Console, found: Audit) -> None:
    table = _table("channel", "bound", "seen", "verdict")
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
            f"The first is worth {_amount(found.counterexample['gap'])} more with the stack, luck "
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
        f"{ahead.task_id}, the worst success returned {_amount(ahead.worst_success)} and the best "
        f"failure {_amount(ahead.best_failure)}.",
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
    out.print(f"{title}; pays {_amount(play['pays'])} in {play['task_id']}:", markup=False)
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
    return " to ".join(_amount(end) if math.isfinite(end) else "any" for end in ends)


def _bench(args: argparse.Namespace) -> int:
    from headway.bench import neighbours, speed  # brings asyncio and more, which only it needs

    for name in args.against:
        _check(args, "--against", name, tuple(neighbours.NEIGHBOURS))
    try:
        with _bars() as told:
            rows = speed.run(quick=args.quick, against=args.against, told=told)
    except ImportError as error:
        args.parser.error(f"argument --against: {error}")
    if args.json:
        _print_json({"rows": [asdict(row) for row in rows]})
        return 0
    table = _table("what", "unit", "median", "min", "n", "ratio", "target")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.3g} x {row.versus}"
        times = (f"{row.median:.3g}", f"{row.min:.3g}")
        table.add_row(row.name, row.unit, *times, str(row.n), ratio, speed.target(row))
    _out().print(table)
    return 0


def _demo(args: argparse.Namespace) -> int:
    path = args.out / demo.FILE if args.out.is_dir() else args.out
    if not path.parent.is_dir():
        args.parser.error(f"argument --out: no folder {str(path.parent)!r} to write into")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        args.parser.error(f"argument --out: may not write {str(path)!r}")
    with _bars() as told:
        played = demo.play_one()
        compared = demo.compare(args.episodes, told)
    demo.print_out(_out(), played, compared)
    path.write_text(demo.page(played, compared), encoding="utf-8")
    print(f"Wrote {path}")
    return 0


# The arguments.


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="headway",
        description="Gymnasium environments for tool-using language agents, paying progress.",
        epilog="Each command explains itself: headway eval --help",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"headway {version('headway')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], says: str, *examples: str
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=says,
            description=f"{says[0].upper()}{says[1:]}.",
            epilog="\n  ".join(["examples:", *(f"headway {name} {e}".rstrip() for e in examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        sub.set_defaults(run=run, parser=sub)
        return sub

    listing = command("list", _list, "print every environment", "", "--json")
    play = command(
        "play", _play, "play an environment yourself", "Apps", "Apps --difficulty 3 --seed 7"
    )
    proof = command(
        "verify",
        _verify,
        "prove a domain sound",
        "Apps --seeds 500",
        "Apps --seeds 50 --json",
        "library:LIBRARY --seeds 60",
    )
    score = command(
        "eval",
        _eval,
        "let an agent play many tasks",
        "Apps --agent oracle --episodes 50",
        "Apps --agent random --difficulty 3 --samples 4 --jobs 2",
        "Apps --agent reader --template bills --rendering 4 --json",
        "Apps --agent mine:make_agent --episodes 20",
        "Apps --stack 'progress(c=0.3),gate' --gamma 1.0 --record runs.jsonl",
    )
    again = command(
        "rescore",
        _rescore,
        "play recorded episodes again and name what differs",
        "runs.jsonl",
        "runs.jsonl --stack potential --gamma 0.95 --json",
        "runs.jsonl --env mine:WORLD",
        "runs.jsonl --trust",
    )
    farm = command(
        "audit",
        _audit,
        "look for farms, broken bounds and changed optima in a reward stack",
        "Apps --stack progress,gate --gamma 0.99",
        "Apps --stack 'progress(c=0.3),gate(gate=clean),potential' --gamma 1.0 --tasks 20",
        "Apps --stack potential --on-truncation keep --gamma 0.9 --json",
        "Apps --stack mine:reward --gamma 0.95",
    )
    bench = command(
        "bench",
        _bench,
        "measure speed beside a trivial environment",
        "",
        "--quick --json",
        "--against NAME",
    )
    demo = command(
        "demo", _demo, "show progress, rewards and agents in a minute", "", "--out /tmp/demo.html"
    )

    for sub in (play, score, farm):
        sub.add_argument("id", type=_id, metavar="ID", help=f"Apps or headway/Apps-v0; {OWN}")
        sub.add_argument(
            "--difficulty",
            type=_one_of(DIFFICULTIES),
            default=1,
            metavar="1-5",
            help="size of the world and its traps (default: 1)",
        )
        sub.add_argument(
            "--rendering",
            type=_one_of(RENDERINGS),
            default=2,
            metavar="0-4",
            help="how the task is told: 0 a list of calls, 4 a vague request, if there is one "
            "(default: 2)",
        )
        sub.add_argument("--template", metavar="NAME", help="a family of tasks (default: any)")
    for sub, split in ((play, "train"), (score, "test"), (farm, "train")):
        sub.add_argument(
            "--split",
            type=_one_of(SPLITS),
            default=split,
            metavar="NAME",
            help=f"{', '.join(SPLITS)} (default: {split})",
        )
        sub.add_argument(
            "--seed", type=_whole(0), default=0, metavar="N", help="of the first task (default: 0)"
        )
    score.add_argument(
        "--agent",
        type=_agent,
        default="oracle",
        metavar="NAME",
        help=f"{', '.join(AGENTS)} (default: oracle); module:ATTRIBUTE for a function of your own "
        "that makes an agent from a seed",
    )
    for sub in (score, again, farm):
        sub.add_argument(
            "--stack",
            required=sub is farm,
            metavar="LAYERS",
            help="reward layers, from the inside out, for example 'progress(c=0.3),gate'"
            + ("; without it those that were recorded" if sub is again else ""),
        )
        sub.add_argument(
            "--gamma",
            type=_gamma,
            required=sub is farm,
            metavar="X",
            help="the learner's discount per turn, in (0, 1], for --stack and the returns",
        )
        sub.add_argument(
            "--on-truncation",
            type=_one_of(("zero", "keep")),
            default="zero" if sub is farm else None,  # elsewhere it is told when it is of no use
            metavar="zero|keep",
            help="what shaping in --stack takes a cut episode for: ended, or bootstrapped "
            "(default: zero)",
        )
    score.add_argument("--record", metavar="FILE", help="add every episode to a file, as JSON")
    again.add_argument("file", metavar="FILE", help="what --record wrote")
    again.add_argument(
        "--env", type=_id, metavar="ID", help=f"play there instead: a registered id; {OWN}"
    )
    again.add_argument(
        "--trust",
        action="store_true",
        help="import and run what FILE names, a world of your own for example: only for files from "
        "somebody who may run programs as you",
    )
    for sub, name, most, default, says in (
        (score, "--episodes", MOST, 100, "episodes in all"),
        (score, "--samples", MOST, 1, "episodes of each task, for pass@k"),
        (farm, "--tasks", MOST, 4, "tasks to farm"),
        (score, "--jobs", MOST_JOBS, 1, "processes; the result does not depend on it"),
        (proof, "--seeds", MOST, 100, "tasks in all"),
        (demo, "--episodes", MOST, 24, "episodes of each agent"),
    ):
        sub.add_argument(
            name,
            type=_whole(1, most),
            default=default,
            metavar="N",
            help=f"{says} (default: {default})",
        )
    proof.add_argument("domain", type=_id, metavar="DOMAIN", help=f"for example Apps; {OWN}")
    bench.add_argument("--quick", action="store_true", help="fewer rounds")
    bench.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="NAME",
        help="an installed package to measure as well; may be given again",
    )
    demo.add_argument(
        "--out", type=Path, default=Path(), metavar="PATH", help="file or folder (default: here)"
    )
    for sub in (listing, proof, score, again, farm, bench):
        sub.add_argument("--json", action="store_true", help="print one JSON object")

    first = next((a for a in argv if not a.startswith("-")), None)
    if first is not None and first not in commands.choices:
        parser.error(f"no command {first!r}; {_nearest(first, commands.choices)}")
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        known = dict.fromkeys(re.findall(r"--[a-z-]+", args.parser.format_help()))
        args.parser.error(f"no argument {unknown[0]!r}; {_nearest(unknown[0], known)}")
    if args.command in ("play", "eval", "audit"):
        domain = load(_where(args.id))
        if args.template is not None:
            names = domain.template_names(args.split)
            _check(args, f"--template (split {args.split})", args.template, names)
        if args.rendering not in domain.renderings:
            told = ", ".join(map(str, domain.renderings))
            said = f"argument --rendering: {domain.name} is told at {told}, got {args.rendering}"
            args.parser.error(said)
    return args


OWN = "module:ATTRIBUTE for a Domain, module:ID for a registered id of your own"


def _id(text: str) -> str:
    """The id that a person means: the newest version where none is named."""
    if ":" in text:
        with _theirs(text):
            load(_where(text))
        return text
    ids = {}
    for id in DOMAINS:
        short = id.removeprefix("headway/")
        ids.update({short.rpartition("-v")[0]: id, short: id, id: id})
    if text not in ids:
        raise argparse.ArgumentTypeError(f"no environment {text!r}; {_nearest(text, ids)}")
    return ids[text]


def _where(id: str) -> str | Domain:
    """Where the domain of an id is to be found."""
    if id in DOMAINS:
        return DOMAINS[id]
    module, _, name = id.partition(":")
    if name.isidentifier():
        return id
    import_module(module)
    domain: str | Domain | None = gym.spec(name).kwargs.get("domain")
    if domain is None:
        raise ValueError(
            f"{name!r} is no headway environment: register it with the entry point "
            "'headway.envs.tool_env:ToolEnv' and kwargs={'domain': ...}"
        )
    return domain


def _agent(text: str) -> str:
    if ":" not in text:
        return str(_one_of(tuple(AGENTS))(text))
    with _theirs(text):
        maker(text)
    return text


@contextmanager
def _theirs(text: str) -> Iterator[None]:
    """Looks for what the user wrote, in the current folder too; what goes wrong is wrong usage."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        yield
    except Exception as error:  # their module may raise anything
        said = f"cannot use {text!r}: {type(error).__name__}: {error}"
        raise argparse.ArgumentTypeError(said) from error


def _nearest(text: str, names: Iterable[str]) -> str:
    names = list(names)
    return nearest(text, names).removeprefix("; ") or f"choose from {', '.join(names)}"


def _whole(least: int, most: int = MOST) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:  # no number, or one of thousands of digits
            value = least - 1
        if not least <= value <= most:
            said = f"must be an int from {least} to {most}, got {text[:40]!r}"
            raise argparse.ArgumentTypeError(said)
        return value

    return read


def _gamma(text: str) -> float:
    try:
        return number("gamma", float(text), "(0, 1]")
    except ValueError:
        said = f"must be a number in (0, 1], got {text[:40]!r}"
        raise argparse.ArgumentTypeError(said) from None


def _one_of(allowed: Sequence[Any]) -> Callable[[str], Any]:
    names = {str(value): value for value in allowed}

    def read(text: str) -> Any:
        if text not in names:
            said = f"must be one of {', '.join(names)}, got {text!r}{nearest(text, names)}"
            raise argparse.ArgumentTypeError(said)
        return names[text]

    return read


def _check(args: argparse.Namespace, name: str, value: str, allowed: Sequence[str]) -> None:
    """Ends with wrong usage where a value depends on what only the command knows."""
    try:
        _one_of(allowed)(value)
    except argparse.ArgumentTypeError as error:
        args.parser.error(f"argument {name}: {error}")


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """What ``play``, ``eval`` and ``audit`` pass on to the environment."""
    return {name: getattr(args, name) for name in ("difficulty", "rendering", "template", "split")}


# Output.


def _out() -> Console:
    return _Console(highlight=False)


class _Console(Console):
    """Leaves a closed pipe to :func:`main`, which knows the exit status."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column)
    return table


@contextmanager
def _bars() -> Iterator[Told]:
    """Progress bars on stderr, one for each thing that is told of; none where nobody looks."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=not console.is_terminal,
    ) as progress:
        bars: dict[str, TaskID] = {}

        def told(what: str, done: int, of: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what)
            progress.update(bars[what], completed=done, total=of)

        yield told


def _print_json(value: Mapping[str, Any]) -> None:
    print(json.dumps(_plain(value), allow_nan=False))


def _plain(value: Any) -> Any:
    """``value`` as JSON has it: what was not measured is null, not NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _amount(value: float) -> str:
    return _number(round(value, 9) + 0.0, ".3f")  # what rounding left of 0 has no sign


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)


if __name__ == "__main__":
    sys.exit(main())
