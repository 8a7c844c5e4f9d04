"""The command line: list, play, verify, eval, rescore, audit, bench, demo.

Answers go to stdout, progress bars and complaints to stderr. Exit status: 0 fine, 1 a check or
the machine failed, 2 wrong usage, 130 interrupted. A shell starts background jobs with Ctrl-C
ignored, and so they stay: it is meant for what stands in front.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from importlib.metadata import version
from pathlib import Path

from headway.agents import AGENTS
from headway.agents.endpoint import EndpointFailed
from headway.cli.learn import (
    add_format,
    add_report,
    add_sft,
    add_train,
    add_world,
    run_report,
    run_sft,
    run_train,
)
from headway.cli.rewards import run_audit, run_eval, run_rescore
from headway.cli.terms import (
    MOST,
    MOST_JOBS,
    OWN,
    agent,
    check,
    environment_id,
    gamma,
    nearest_of,
    one_of,
    temperature,
    where,
    whole,
)
from headway.cli.worlds import run_bench, run_demo, run_list, run_play, run_verify
from headway.envs.box import SandboxDied
from headway.envs.domain import load
from headway.envs.task import DIFFICULTIES, RENDERINGS, SPLITS


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
            args = arguments(list(sys.argv[1:] if argv is None else argv))
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
    except EndpointFailed as failure:
        return _failed(f"the server failed: {failure}")
    except ModuleNotFoundError as error:  # an extra that is not installed
        _failed(error)
        return 2
    except FloatingPointError as error:
        return _failed(error)
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


def arguments(argv: list[str]) -> argparse.Namespace:
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

    listing = command("list", run_list, "print every environment", "", "--json")
    play = command(
        "play", run_play, "play an environment yourself", "Apps", "Apps --difficulty 3 --seed 7"
    )
    proof = command(
        "verify",
        run_verify,
        "prove a domain sound",
        "Apps --seeds 500",
        "Apps --seeds 50 --json",
        "library:LIBRARY --seeds 60",
    )
    score = command(
        "eval",
        run_eval,
        "let an agent play many tasks",
        "Apps --agent oracle --episodes 50",
        "Apps --agent random --difficulty 3 --samples 4 --jobs 2",
        "Apps --agent reader --template bills --rendering 4 --json",
        "Apps --agent mine:make_agent --episodes 20",
        "Apps --stack 'progress(c=0.3),gate' --gamma 1.0 --record runs.jsonl",
    )
    again = command(
        "rescore",
        run_rescore,
        "play recorded episodes again and name what differs",
        "runs.jsonl",
        "runs.jsonl --stack potential --gamma 0.95 --json",
        "runs.jsonl --env mine:WORLD",
        "runs.jsonl --trust",
    )
    farm = command(
        "audit",
        run_audit,
        "look for farms, broken bounds and changed optima in a reward stack",
        "Apps --stack progress,gate --gamma 0.99",
        "Apps --stack 'progress(c=0.3),gate(gate=clean),potential' --gamma 1.0 --tasks 20",
        "Apps --stack potential --on-truncation keep --gamma 0.9 --json",
        "Apps --stack mine:reward --gamma 0.95",
    )
    bench = command(
        "bench",
        run_bench,
        "measure speed beside a trivial environment",
        "",
        "--quick --json",
        "--against NAME",
    )
    demo = command(
        "demo",
        run_demo,
        "show progress, rewards and agents in a minute",
        "",
        "--learn",
        "--out /tmp/demo.html",
    )

    clone = command(
        "sft",
        run_sft,
        "clone demonstrations of the oracle into a policy",
        "Apps --policy MODEL --out warm --episodes 500 --steps 200 --lora 16",
        "Apps --policy MODEL --out warm --action-format command --no-manual",
    )
    learn = command(
        "train",
        run_train,
        "train a policy by what its turns earn",
        "Apps --policy warm --out run --gamma 0.95 --credit turn --stack progress",
        "Apps --policy warm --out run --gamma 0.95 --budget-tokens 200000 --set lora=16",
        "Apps --config run.toml --out run",
    )
    show = command(
        "report",
        run_report,
        "draw training runs: curves, and episodes turn by turn",
        "run",
        "run-1 run-2 other-1 other-2 --out compared.html",
    )
    add_world(clone)
    add_sft(clone)
    add_world(learn)
    add_train(learn)
    add_report(show)

    for sub in (play, score, farm):
        sub.add_argument(
            "id", type=environment_id, metavar="ID", help=f"Apps or headway/Apps-v0; {OWN}"
        )
        sub.add_argument(
            "--difficulty",
            type=one_of(DIFFICULTIES),
            default=1,
            metavar="1-5",
            help="size of the world and its traps (default: 1)",
        )
        sub.add_argument(
            "--rendering",
            type=one_of(RENDERINGS),
            default=2,
            metavar="0-4",
            help="how the task is told: 0 a list of calls, 4 a vague request, if there is one "
            "(default: 2)",
        )
        sub.add_argument("--template", metavar="NAME", help="a family of tasks (default: any)")
    for sub, split in ((play, "train"), (score, "test"), (farm, "train")):
        sub.add_argument(
            "--split",
            type=one_of(SPLITS),
            default=split,
            metavar="NAME",
            help=f"{', '.join(SPLITS)} (default: {split})",
        )
        sub.add_argument(
            "--seed", type=whole(0), default=0, metavar="N", help="of the first task (default: 0)"
        )
    score.add_argument(
        "--agent",
        type=agent,
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
            type=gamma,
            required=sub is farm,
            metavar="X",
            help="the learner's discount per turn, in (0, 1], for --stack and the returns",
        )
        sub.add_argument(
            "--on-truncation",
            type=one_of(("zero", "keep")),
            default="zero" if sub is farm else None,  # elsewhere it is told when it is of no use
            metavar="zero|keep",
            help="what shaping in --stack takes a cut episode for: ended, or bootstrapped "
            "(default: zero)",
        )
    score.add_argument(
        "--policy",
        metavar="PATH|URL",
        help="a language model in place of an agent: a folder or GGUF file, or the base URL of an "
        "OpenAI-compatible server",
    )
    score.add_argument("--model", metavar="NAME", help="of the server's models")
    score.add_argument(
        "--mode",
        type=one_of(("text", "tools")),
        metavar="text|tools",
        help="how a server's model calls tools: in the text it writes, or in the protocol's own "
        "way (default: text)",
    )
    score.add_argument(
        "--temperature",
        type=temperature,
        default=1.0,
        metavar="X",
        help="of a language model; 0 takes the likeliest token (default: 1)",
    )
    score.add_argument(
        "--turn-tokens",
        type=whole(1),
        default=256,
        metavar="N",
        help="most tokens of a turn of a language model (default: 256)",
    )
    score.add_argument(
        "--lanes",
        type=whole(1),
        default=32,
        metavar="N",
        help="episodes that a local policy plays at once (default: 32)",
    )
    add_format(score)
    score.add_argument("--record", metavar="FILE", help="add every episode to a file, as JSON")
    again.add_argument("file", metavar="FILE", help="what --record wrote")
    again.add_argument(
        "--env",
        type=environment_id,
        metavar="ID",
        help=f"play there instead: a registered id; {OWN}",
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
            type=whole(1, most),
            default=default,
            metavar="N",
            help=f"{says} (default: {default})",
        )
    proof.add_argument(
        "domain", type=environment_id, metavar="DOMAIN", help=f"for example Apps; {OWN}"
    )
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
    demo.add_argument(
        "--learn",
        action="store_true",
        help="train two small language models instead, one with turn credit and one with the "
        "outcome alone, and draw how they learn (needs headway[agents])",
    )
    for name, default, says in (
        ("--tokens", 75_000, "budget of each"),
        ("--seed", 0, "of tasks and sampling"),
        ("--jobs", 2, "processes"),
    ):
        demo.add_argument(
            name,
            type=whole(int(name != "--seed")),
            default=default,
            metavar="N",
            help=f"with --learn: {says} (default: {default:,})",
        )
    for sub in (listing, proof, score, again, farm, bench):
        sub.add_argument("--json", action="store_true", help="print one JSON object")

    first = next((a for a in argv if not a.startswith("-")), None)
    if first is not None and first not in commands.choices:
        parser.error(f"no command {first!r}; {nearest_of(first, commands.choices)}")
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        known = dict.fromkeys(re.findall(r"--[a-z-]+", args.parser.format_help()))
        args.parser.error(f"no argument {unknown[0]!r}; {nearest_of(unknown[0], known)}")
    if args.command in ("play", "eval", "audit"):
        domain = load(where(args.id))
        if args.template is not None:
            names = domain.template_names(args.split)
            check(args, f"--template (split {args.split})", args.template, names)
        if args.rendering not in domain.renderings:
            told = ", ".join(map(str, domain.renderings))
            said = f"argument --rendering: {domain.name} is told at {told}, got {args.rendering}"
            args.parser.error(said)
    return args
