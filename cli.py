"""The command line: list, play, verify, eval, bench, demo.

Answers go to stdout, progress bars and complaints to stderr. Exit status: 0 fine, 1 a check
failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from headway.envs import DOMAINS
from headway.envs.domain import Domain, load
from headway.envs.task import DIFFICULTIES, RENDERINGS, SPLITS

Told = Callable[[str, int, int], None]
"""``told(what, done, of)`` moves a progress bar."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status.

    Raises:
        SystemExit: The usage is wrong (2), or help was asked for (0).
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a character that a terminal lacks ends nothing
            stream.reconfigure(errors="replace" if stream is sys.stdin else "backslashreplace")
    try:
        args = _arguments(list(sys.argv[1:] if argv is None else argv))
        status: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("headway: interrupted", file=sys.stderr)
        return 130
    return status


# The commands.


def _list(args: argparse.Namespace) -> int:
    rows = [_row(id, load(where)) for id, where in DOMAINS.items()]
    if args.json:
        return _print_json({"environments": rows})
    table = _table("id", "templates", "tools", "sandbox", "views", "extras")
    for row in rows:
        lists = (", ".join(row[name]) or "-" for name in ("templates", "tools"))
        rest = (", ".join(row[name]) or "-" for name in ("views", "extras"))
        table.add_row(row["id"], *lists, row["sandbox"], *rest)
    _out().print(table)
    return 0


def _row(id: str, domain: Domain) -> dict[str, Any]:
    return {
        "id": id,
        "domain": domain.name,
        "templates": [template.name for template in domain.templates],
        "tools": [*domain.toolbox, "submit"],
        "sandbox": "none",
        "views": [],
        "extras": [],
    }


def _play(args: argparse.Namespace) -> int:
    from headway.agents.person import HELP, Left, Person, told

    env = gym.make(args.id, **_settings(args))
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
        print(f"Left after {info['turn']} turns.")
        return 0
    finally:
        env.close()
    ended = "Success" if info["headway"]["base"] else "No success"
    peeked = f" (peeked {person.peeked} times)" if person.peeked else ""
    print(obs, f"{ended}{peeked} after {info['turn']} turns.", sep="\n")
    print(told(info["headway"]["verdict"]))
    return 0


def _verify(args: argparse.Namespace) -> int:
    from headway.envs.verify import verify

    with _bars() as told:
        report = verify(DOMAINS[args.domain], seeds=args.seeds, told=told)
    status = 0 if report.sound else 1
    if args.json:
        return _print_json(report.as_json(), status)
    out = _out()
    table = _table("what", "found", "allowed", title=f"{report.domain}, {report.tasks} tasks")
    table.add_row("failures", str(len(report.failures)), "0")
    table.add_row("resampled", str(report.resampled), f"at most {report.tasks // 10}")
    table.add_row("planted faults", f"{report.faults.caught} of {report.faults.planted}", ">= 12")
    table.add_row("mutants caught", f"{report.mutants.caught} of {report.mutants.tried}", ">= 95 %")
    table.add_row("variants refused", f"{report.variants.refused} of {report.variants.tried}", "0")
    table.add_row("contract, median", f"{report.median_ms:.1f} ms", "")
    out.print(table)
    faults = _table("planted fault", "caught", title="in 20 worlds each, 18 are enough")
    for kind, caught in report.faults.by_kind.items():
        faults.add_row(kind, "not applicable" if caught is None else f"{caught} of 20")
    out.print(faults)
    for failure in report.failures:
        out.print(f"{failure.task_id or '-'}: {failure.check}: {failure.detail}", markup=False)
    out.print(f"{report.domain} is {'sound' if report.sound else 'NOT sound'}.")
    return status


def _eval(args: argparse.Namespace) -> int:
    from headway.agents import evaluate

    if args.episodes % args.samples:
        args.parser.error(
            f"argument --episodes: must be a multiple of --samples {args.samples}, "
            f"got {args.episodes}"
        )
    with _bars() as told:
        result = evaluate(
            args.id,
            args.agent,
            episodes=args.episodes,
            samples=args.samples,
            seed0=args.seed,
            jobs=args.jobs,
            told=partial(told, args.agent),
            **_settings(args),
        )
    for episode in result.played:
        if episode.status != "ok":
            what = f"{episode.task_id or 'a task'}: {episode.status}: {episode.reason}"
            print(f"headway: {what}", file=sys.stderr)
    status = 1 if result.no_verdict or result.died else 0
    if args.json:
        return _print_json(result.as_json(), status)
    _print_evaluation(_out(), result)
    return status


def _print_evaluation(out: Console, result: Evaluation) -> None:
    table = _table("template", "episodes", "success", "95 %", "progress", "turns")
    for name, part in {**result.by_template, "all": result}.items():
        low, high = map(_share, part.interval)
        table.add_row(
            name,
            str(part.episodes),
            _share(part.success),
            f"{low} to {high}",
            f"{part.progress:.3f}",
            f"{part.turns:.1f}",
        )
    curve = _table("turn", "mean progress", "")
    for turn in range(0, len(result.curve), 1 + len(result.curve) // CURVE_ROWS):
        curve.add_row(str(turn), f"{result.curve[turn]:.3f}", bar(result.curve[turn]))
    checks = _table("family of checks", "counts in")
    for family, share in result.by_check.items():
        checks.add_row(family, _share(share))
    out.print(f"{result.agent} on {result.id}", table, curve, checks, sep="\n", markup=False)
    for k, chance in result.pass_at_k.items():
        out.print(f"pass@{k}: {_share(chance)}")
    out.print(f"no verdict: {result.no_verdict}, machine died: {result.died}")


def _bench(args: argparse.Namespace) -> int:
    from headway.bench import speed

    with _bars() as told:
        rows = speed.run(quick=args.quick, against=args.against, told=told)
    if args.json:
        return _print_json({"rows": [asdict(row) for row in rows]})
    table = _table("what", "unit", "median", "min", "n", "ratio", "versus")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
        times = (f"{row.median:.3g}", f"{row.min:.3g}")
        table.add_row(row.name, row.unit, *times, str(row.n), ratio, row.versus or "")
    _out().print(table)
    return 0


def _demo(args: argparse.Namespace) -> int:
    from headway.agents import demo

    path = args.out / demo.FILE if args.out.is_dir() else args.out
    if not path.parent.is_dir():
        args.parser.error(f"argument --out: no folder {str(path.parent)!r} to write into")
    with _bars() as told:
        show = demo.play_one()
        compared = demo.compare(args.episodes, told)
    demo.show(show, compared, _out())
    try:
        path.write_text(demo.page(show, compared), encoding="utf-8")
    except OSError as error:
        args.parser.error(f"argument --out: cannot write {str(path)!r}: {error.strerror}")
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
        "verify", _verify, "prove a domain sound", "Apps --seeds 500", "Apps --seeds 50 --json"
    )
    score = command(
        "eval",
        _eval,
        "let an agent play many tasks",
        "Apps --agent oracle --episodes 50",
        "Apps --agent random --difficulty 3 --samples 4 --jobs 2",
        "Apps --agent reader --template bills --rendering 4 --json",
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

    for sub in (play, score):
        sub.add_argument("id", type=_id, help="for example Apps, Apps-v0 or headway/Apps-v0")
        sub.add_argument("--difficulty", type=_one_of(DIFFICULTIES), default=1, metavar="1-5")
        sub.add_argument(
            "--rendering",
            type=_one_of(RENDERINGS),
            default=2,
            metavar="0-4",
            help="how the task is told: 0 a checklist of calls, 4 a vague request (default: 2)",
        )
        sub.add_argument("--template", help="a family of tasks (default: all)")
    play.add_argument("--split", type=_one_of(SPLITS), default="train", help="default: train")
    play.add_argument("--seed", type=_whole(0), default=0, help="which task (default: 0)")

    score.add_argument("--agent", type=_one_of(AGENT_NAMES), default="oracle", metavar="NAME")
