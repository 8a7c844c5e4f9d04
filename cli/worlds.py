"""Commands about worlds: list, play, verify, bench, demo."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from headway.agents import demo
from headway.agents.evaluate import make
from headway.agents.person import HELP, Left, Person, told_of
from headway.cli.output import bars, columns, print_json, screen
from headway.cli.terms import check, settings, where
from headway.envs import DOMAINS
from headway.envs.domain import Domain, load
from headway.envs.verify import WORLDS_PER_FAULT, Report, verify


def run_list(args: argparse.Namespace) -> int:
    rows = [_row(id, load(where)) for id, where in DOMAINS.items()]
    if args.json:
        print_json({"environments": rows})
        return 0
    for row in rows:
        table = Table.grid(padding=(0, 2))
        for name, value in row.items():
            table.add_row(name, value if isinstance(value, str) else ", ".join(value) or "-")
        screen().print(table, "")
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


def run_play(args: argparse.Namespace) -> int:
    env = make(args.id, **settings(args))
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


def run_verify(args: argparse.Namespace) -> int:
    with bars() as told:
        report = verify(where(args.domain), seeds=args.seeds, told=told)
    status = 0 if report.sound else 1
    if args.json:
        print_json(report.as_json())
    else:
        _print_report(screen(), report)
    return status


def _print_report(out: Console, report: Report) -> None:
    table = columns("what", "found", "allowed")
    table.add_row("tasks", str(report.tasks), "")
    table.add_row("failures", str(len(report.failures)), "0")
    table.add_row("resampled", str(report.resampled), f"at most {max(1, report.tasks // 10)}")
    planted = report.faults.planted
    found = f"{report.faults.caught} of {planted}"
    table.add_row("planted faults", found, f">= {min(12, planted)}")
    table.add_row("mutants caught", f"{report.mutants.caught} of {report.mutants.tried}", ">= 95 %")
    table.add_row("variants refused", f"{report.variants.refused} of {report.variants.tried}", "0")
    table.add_row("contract, median", f"{report.median_ms:.1f} ms", "")
    faults = columns("planted fault", f"caught in {WORLDS_PER_FAULT} worlds")
    for kind, caught in report.faults.by_kind.items():
        faults.add_row(kind, "not applicable" if caught is None else str(caught))
    out.print(table, faults, sep="\n")
    for failure in report.failures:
        out.print(f"{failure.task_id or '-'}: {failure.check}: {failure.detail}", markup=False)
    out.print(f"{report.domain} is {'sound' if report.sound else 'NOT sound'}.")


def run_bench(args: argparse.Namespace) -> int:
    from headway.bench import neighbours, speed  # brings asyncio and more, which only it needs

    for name in args.against:
        check(args, "--against", name, tuple(neighbours.NEIGHBOURS))
    try:
        with bars() as told:
            rows = speed.run(quick=args.quick, against=args.against, told=told)
    except ImportError as error:
        args.parser.error(f"argument --against: {error}")
    if args.json:
        print_json({"rows": [asdict(row) for row in rows]})
        return 0
    table = columns("what", "unit", "median", "min", "n", "ratio", "target")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.3g} x {row.versus}"
        times = (f"{row.median:.3g}", f"{row.min:.3g}")
        table.add_row(row.name, row.unit, *times, str(row.n), ratio, speed.target(row))
    screen().print(table)
    return 0


def run_demo(args: argparse.Namespace) -> int:
    path = args.out / demo.FILE if args.out.is_dir() else args.out
    if not path.parent.is_dir():
        args.parser.error(f"argument --out: no folder {str(path.parent)!r} to write into")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        args.parser.error(f"argument --out: may not write {str(path)!r}")
    if args.learn:
        return _learn(args, path)
    with bars() as told:
        played = demo.play_one()
        compared = demo.compare(args.episodes, told)
    demo.print_out(screen(), played, compared)
    path.write_text(demo.page(played, compared), encoding="utf-8")
    print(f"Wrote {path}")
    return 0


def _learn(args: argparse.Namespace, path: Path) -> int:
    """Two trainings side by side, and their report."""
    from headway.agents.report import write
    from headway.bench.learning import folder_of
    from headway.bench.live import race

    with TemporaryDirectory(prefix="headway-") as folder:
        runs = race(Path(folder), screen(), seed=args.seed, tokens=args.tokens, jobs=args.jobs)
        write([folder_of(Path(folder), run.job) for run in runs], path)
    table = columns("credit", "success", "progress", "tokens", "seconds")
    for run in runs:
        figures = (f"{run.success:.0%}", f"{run.progress:.3f}", f"{run.tokens:,}")
        table.add_row(run.job.arm, *figures, f"{run.seconds:.0f}")
    screen().print("Tasks that neither has seen:", table, sep="\n")
    print(f"Wrote {path}")
    return 0
