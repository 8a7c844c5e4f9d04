"""Commands about learning: sft, train, report."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.arguments import find
from headway.cli.output import Counter, counter, figure, print_json, screen
from headway.cli.terms import environment_id, one_of, theirs, whole
from headway.envs.actions import FORMATS
from headway.envs.domain import Domain

WORLD = ("difficulty", "template", "rendering", "action_format")
"""Settings of an environment that have options of their own."""


def world_id(text: str) -> str:
    """The id that a person means, or a function of their own that makes an environment."""
    if text.partition(":")[2].isidentifier():
        with theirs(text):
            found = find("ID", text)
            if not isinstance(found, Domain) and callable(found):
                return text
    return environment_id(text)


def world(args: argparse.Namespace) -> dict[str, Any]:
    """What was said about the environment, and nothing that was not."""
    found = {name: getattr(args, name) for name in WORLD if getattr(args, name) is not None}
    return {**found, **({"manual": False} if args.no_manual else {})}


def run_sft(args: argparse.Namespace) -> int:
    """Clones demonstrations into a policy."""
    from headway.agents.sft import sft

    with counter(args.steps, "steps") as told:
        with _usage(args, told):
            last = sft(
                args.id,
                args.policy,
                args.out,
                episodes=args.episodes,
                steps=args.steps,
                batch=args.batch,
                rate=args.rate,
                noise=args.noise,
                clone_noise=args.clone_noise,
                lora=args.lora,
                seed=args.seed or 0,
                batch_tokens=args.batch_tokens,
                save=args.save,
                device=args.device,
                dtype=args.dtype,
                told=lambda row: told(row["update"] + 1, {"loss": row["loss"]}),
                **world(args),
            )
    if args.json:
        print_json(last)
    else:
        held = figure(last["held"], ".3f")
        print(f"Nats per cloned token of demonstrations that were not learnt from: {held}")
        print(f"Wrote {args.out}")
    return 0


def run_train(args: argparse.Namespace) -> int:
    """Trains a policy by what its turns earn."""
    from headway.agents.checkpoint import Checkpoints
    from headway.agents.config import config, load
    from headway.agents.trainer import train

    given = {
        "env": args.id,
        "policy": args.policy,
        "gamma": args.gamma,
        "stack": args.stack,
        "credit": args.credit,
        "tokens": args.budget_tokens,
        "seconds": args.budget_seconds,
        "seed": args.seed,
        "device": args.device,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    try:
        changes |= dict(_assigned(text) for text in args.set)
        made = config(changes) if args.config is None else load(args.config, changes)
        if found := world(args):
            environment = {**made.environment, **found}
            made = replace(made, environment=environment)
    except (OSError, ValueError) as error:
        args.parser.error(str(error))
    alarms: dict[str, list[str]] = {}
    with counter(made.tokens, "tokens") as told:

        def hear(row: Mapping[str, Any]) -> None:
            for text in row.get("alarms", ()):
                alarms.setdefault(text.partition(":")[0], []).append(text)
            shown = {name: row.get(name) for name in ("success", "progress")}
            spent = row["seconds"] or 1.0
            told(row["tokens"], {**shown, "tokens/s": row["tokens"] / spent})

        with _usage(args, told):
            last = train(made, args.out, told=hear)
    if args.json:
        print_json(last)
        return 0
    found = last["test"]
    low, high = (figure(found[end], ".0%") for end in ("low", "high"))
    out = screen()
    success = "-" if found["success"] is None else f"{found['success']:.0%}"
    progress = "-" if found["progress"] is None else f"{found['progress']:.3f}"
    out.print(
        f"{last['update']} updates, {last['tokens']:,} tokens, {last['seconds']:.0f} s of training",
        f"Held-out tasks: success {success} ({low} to {high}), progress {progress}",
        *(f"Alarm in {len(texts)} updates; the last: {texts[-1]}" for texts in alarms.values()),
        f"Best policy: {Checkpoints(args.out).best()}",
        f"Wrote {args.out}; look at it with: headway report {args.out}",
        sep="\n",
        markup=False,
        soft_wrap=True,
    )
    return 0


def run_report(args: argparse.Namespace) -> int:
    """Writes the report of training runs."""
    from headway.agents.report import write

    try:
        write(args.runs, args.out)
    except (ImportError, OSError, ValueError) as error:
        args.parser.error(str(error))
    print(f"Wrote {args.out}")
    return 0


@contextmanager
def _usage(args: argparse.Namespace, told: Counter) -> Iterator[None]:
    """Ends with wrong usage if it fails before anything was done; what fails later is a fault."""
    try:
        yield
    except (OSError, ValueError) as error:
        if told.done:
            raise
        args.parser.error(str(error))


def _assigned(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``, the value as TOML has it, or a text.

    Raises:
        ValueError: There is no ``=``.
    """
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"--set must be KEY=VALUE, got {text!r}")
    try:
        return name.strip(), tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value


def add_format(sub: argparse.ArgumentParser) -> None:
    """The options that choose how an agent is told of tools, and calls them."""
    sub.add_argument(
        "--action-format",
        type=one_of(FORMATS),
        metavar="NAME",
        help="json, hermes, or command for small models (json)",
    )
    sub.add_argument(
        "--no-manual", action="store_true", help="leave the tools out of the first observation"
    )


def add_world(sub: argparse.ArgumentParser) -> None:
    """The options that choose an environment."""
    sub.add_argument(
        "id",
        type=world_id,
        metavar="ID",
        help="Apps or headway/Apps-v0; module:ATTRIBUTE for a world, or a function that makes an "
        "environment",
    )
    sub.add_argument("--difficulty", type=whole(1, 5), metavar="1-5", help="size of the world (1)")
    sub.add_argument(
        "--rendering", type=whole(0, 4), metavar="0-4", help="how the task is told (2)"
    )
    sub.add_argument("--template", metavar="NAME", help="a family of tasks (any)")
    add_format(sub)
    sub.add_argument("--seed", type=whole(0), metavar="N", help="names all streams (0)")
    sub.add_argument("--json", action="store_true", help="print one JSON object")


def add_sft(sub: argparse.ArgumentParser) -> None:
    """The options of ``headway sft``, beside those that choose the environment."""
    add = sub.add_argument
    add("--policy", required=True, metavar="PATH", help="folder or GGUF file of the policy")
    add("--out", required=True, metavar="PATH", help="folder of the policy that comes of it")
    add("--episodes", type=whole(1), default=1000, metavar="N", help="demonstrations (1000)")
    add("--steps", type=whole(1), default=300, metavar="N", help="optimiser steps (300)")
    add("--batch", type=whole(1), default=32, metavar="N", help="demonstrations of a step (32)")
    add("--rate", type=float, default=1e-4, metavar="X", help="highest learning rate (1e-4)")
    add("--noise", type=float, default=0.1, metavar="X", help="chance of a stray action (0.1)")
    add("--clone-noise", action="store_true", help="clone the stray actions, too")
    add(
        "--lora", type=whole(1), metavar="RANK", help="train adapters of this rank, not all weights"
    )
    add(
        "--batch-tokens",
        type=whole(1),
        default=16_384,
        metavar="N",
        help="of a micro-batch (16384)",
    )
    add("--save", type=whole(1), default=100, metavar="N", help="steps between checkpoints (100)")
    add("--device", default="auto", metavar="NAME", help="auto, cpu or cuda (auto)")
    add(
        "--dtype",
        choices=["float32", "bfloat16"],
        help="to compute in; what learns is float32 (bfloat16 on a GPU, else float32)",
    )


def add_train(sub: argparse.ArgumentParser) -> None:
    """The options of ``headway train``."""
    add = sub.add_argument
    add("--policy", metavar="PATH", help="folder of a causal language model, or a GGUF file")
    add("--out", type=Path, required=True, metavar="PATH", help="folder of the run; goes on there")
    add("--gamma", type=float, metavar="X", help="discount per turn, in (0, 1]")
    add("--stack", metavar="LAYERS", help="reward layers (progress)")
    add("--credit", metavar="NAME", help="how turns are credited, see docs/credit.md (turn)")
    add("--budget-tokens", type=whole(1), metavar="N", help="generated tokens (1,000,000)")
    add("--budget-seconds", type=float, metavar="X", help="of training (no limit)")
    add("--device", metavar="NAME", help="auto, cpu or cuda (auto)")
    add("--config", type=Path, metavar="FILE", help="TOML with any of these and the rest")
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any key of the configuration, see docs/training.md; may be given again",
    )


def add_report(sub: argparse.ArgumentParser) -> None:
    """The options of ``headway report``."""
    sub.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of headway train")
    sub.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="(report.html)"
    )
