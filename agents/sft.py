"""Cloning demonstrations: cross-entropy on what the teacher wrote, and on nothing else."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from headway.agents.checkpoint import Checkpoints, held, put
from headway.agents.demos import Demonstration, demonstrations
from headway.agents.evaluate import make
from headway.agents.log import Log
from headway.agents.policy import Policy
from headway.arguments import number, whole
from headway.envs.rng import Rng

WARMUP = 0.05
"""Share of the steps in which the rate rises; then it falls to nothing, both in straight lines."""

LONGEST_GRADIENT = 1.0
"""A longer one is shortened to this."""

HELD = 32
"""Demonstrations that nothing is learnt from, by which the end result is measured."""

RUN = "sft.json"
"""What a folder was made by."""

Told = Callable[[Mapping[str, Any]], None]
"""``told(row)`` hears the log line of every step."""


class Cloner:
    """AdamW on the mean cross-entropy of the cloned tokens of a batch.

    What is drawn for step ``n`` depends on the seed and on ``n`` alone, so a run that is taken up
    again goes on as one that was never stopped.

    Args:
        policy: Its trainable weights are changed.
        demos: What to clone.
        steps: Of the whole run, at least 1; the learning rate ends at 0 there.
        batch: Demonstrations of a step, at least 1; all of them where there are not so many.
        rate: Highest learning rate, in (0, 1].
        seed: Of the batches, at least 0.
        batch_tokens: Most tokens of a micro-batch, padding included; a longer demonstration is one
            alone.

    Attributes:
        done: Steps that were taken.

    Raises:
        ValueError: An argument is outside its range, or a demonstration is longer than the contexts
            of the policy.
    """

    def __init__(
        self,
        policy: Policy,
        demos: Sequence[Demonstration],
        *,
        steps: int,
        batch: int,
        rate: float,
        seed: int,
        batch_tokens: int = 16_384,
    ) -> None:
        self.policy = policy
        self.demos = list(demos)
        self.steps = whole("steps", steps, 1)
        self.batch = min(whole("batch", batch, 1), len(self.demos))
        self.rate = number("rate", rate, "(0, 1]")
        self.batch_tokens = whole("batch_tokens", batch_tokens, 1)
        self._stream = Rng("sft", whole("seed", seed, 0))
        if not any(demo.mask.any() for demo in self.demos):
            raise ValueError(f"demos must hold something to clone, got {len(self.demos)} of them")
        longest = max(self.demos, key=lambda demo: len(demo.ids))
        if len(longest.ids) > policy.context:
            raise ValueError(
                f"demos must fit into the policy's context of {policy.context} tokens, got "
                f"{len(longest.ids)} in {longest.task_id}; tell less in the first observation "
                "(manual=False), or choose easier tasks"
            )
        self.weights = policy.learns
        self.optimiser = torch.optim.AdamW(
            self.weights, lr=self.rate, betas=(0.9, 0.99), weight_decay=0.0
        )
        self.done = 0

    def step(self) -> dict[str, Any]:
        """Takes one step.

        Returns:
            ``update`` (its number), ``loss`` (nats per cloned token, before the step), ``rate``,
            ``norm`` (of the gradient, before it was shortened) and ``tokens`` (cloned).
        """
        rng = self._stream.sub(self.done)
        chosen = rng.sample(self.demos, self.batch)
        count = sum(int(demo.mask.sum()) for demo in chosen)
        rate = self._rate_now()
        self.optimiser.zero_grad(set_to_none=True)
        loss = 0.0
        for ids, mask in batches(chosen, self.batch_tokens, self.policy.device):
            part = -self.policy.logp(ids, mask).sum() / max(1, count)
            part.backward()  # type: ignore[no-untyped-call]
            loss += float(part.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(self.weights, LONGEST_GRADIENT))
        if not math.isfinite(norm):
            raise FloatingPointError(f"the gradient of step {self.done} is not finite: {norm}")
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        row = {"update": self.done, "loss": loss, "rate": rate, "norm": norm, "tokens": count}
        self.done += 1
        return row

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on, but for the weights."""
        return {"optimiser": self.optimiser.state_dict(), "done": self.done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state_dict` returned."""
        self.optimiser.load_state_dict(state["optimiser"])
        self.done = state["done"]

    def _rate_now(self) -> float:
        rising = max(1, round(WARMUP * self.steps))
        if self.done < rising:
            return self.rate * (self.done + 1) / rising
        return self.rate * (self.steps - self.done) / max(1, self.steps - rising)


def batches(
    demos: Sequence[Demonstration], batch_tokens: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Micro-batches of about equal length each, as :meth:`Policy.logp` takes them.

    Yields:
        ``ids``, (rows, length) int64, padded on the right; ``mask``, (rows, length - 1) bool.
    """
    rest = sorted(demos, key=lambda demo: len(demo.ids))
    while rest:
        length = len(rest[-1].ids)
        count = max(1, batch_tokens // length)
        chosen, rest = rest[-count:], rest[:-count]
        ids = np.zeros((len(chosen), length), np.int64)
        mask = np.zeros((len(chosen), length), np.bool_)
        for row, demo in enumerate(chosen):
            ids[row, : len(demo.ids)] = demo.ids
            mask[row, : len(demo.ids)] = demo.mask
        yield torch.from_numpy(ids).to(device), torch.from_numpy(mask[:, 1:]).to(device)


def cross_entropy(
    policy: Policy, demos: Sequence[Demonstration], *, batch_tokens: int = 16_384
) -> float:
    """Mean over the cloned tokens, in nats; NaN where there are none."""
    total, count = 0.0, 0
    with torch.no_grad():
        for ids, mask in batches(demos, batch_tokens, policy.device):
            total -= float(policy.logp(ids, mask).sum())
            count += int(mask.sum())
    return total / count if count else math.nan


def sft(
    env: str,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    episodes: int,
    steps: int,
    batch: int = 32,
    rate: float = 1e-4,
    noise: float = 0.1,
    clone_noise: bool = False,
    lora: int | None = None,
    seed: int = 0,
    batch_tokens: int = 16_384,
    save: int = 100,
    device: str = "auto",
    dtype: str | None = None,
    told: Told = lambda row: None,
    **settings: Any,
) -> dict[str, Any]:
    """Clones demonstrations of an environment into a policy, or goes on where it was killed.

    Args:
        env: Id of the environment, or ``"module:attribute"`` for a function that makes one.
        source: The policy to begin with, see :meth:`Policy.load`.
        out: Folder of the policy that comes of it, which also keeps ``log.jsonl``.
        episodes: Demonstrations, at least 1.
        steps: At least 1.
        batch: Demonstrations of a step.
        rate: Highest learning rate.
        noise: Chance that a turn is a stray one, in [0, 1), see :func:`demonstrations`.
        clone_noise: Whether those are cloned, too.
        lora: Rank of adapters, which then alone learn; None trains all weights.
        seed: Of tasks, noise, batches and adapters.
        batch_tokens: Most tokens of a micro-batch, padding included.
        save: Steps between two checkpoints, at least 1.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        dtype: To compute in, see :meth:`Policy.load`.
        told: Hears the log line of every step.
        **settings: Keywords of the environment; ``split`` is always ``"train"``.

    Returns:
        The last line of the log, with ``held``: nats per token on demonstrations without noise that
        nothing was learnt from.

    Raises:
        ValueError: ``out`` holds something else, or an argument is outside its range.
    """
    whole("save", save, 1)
    folder = Path(out)
    run = {
        "env": env,
        "source": str(Path(source).resolve()),
        "settings": settings,
        **{"episodes": episodes, "steps": steps, "batch": batch, "rate": rate, "noise": noise},
        **{"clone_noise": clone_noise, "lora": lora, "seed": seed, "batch_tokens": batch_tokens},
        "dtype": dtype,
    }
    text = json.dumps(run, sort_keys=True, indent=1) + "\n"
    _check(folder, text)
    with held(folder):
        _check(folder, text)  # another may have been quicker
        checkpoints = Checkpoints(folder)
        resumed = checkpoints.newest()
        load = partial(Policy.load, device=device, dtype=dtype, trained=True)
        policy = load(resumed[0]) if resumed else load(source, lora=lora, seed=seed)
        new: Callable[[], gym.Env[Any, Any]] = partial(make, env, **settings)
        demos = demonstrations(
            new, policy.template, episodes=episodes, seed=seed, noise=noise, clone_noise=clone_noise
        )
        cloner = Cloner(
            policy, demos, steps=steps, batch=batch, rate=rate, seed=seed, batch_tokens=batch_tokens
        )
        if resumed:
            try:
                cloner.load_state_dict(resumed[1])
            except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
                raise ValueError(
                    f"{folder} must hold the state of a run of this version, got {error!r}"
                ) from error
        if not (folder / RUN).exists():
            put(folder / RUN, text)
        log = Log(folder, cloner.done)
        row: dict[str, Any] = {"update": steps - 1}
        try:
            while cloner.done < steps:
                row = cloner.step()
                if cloner.done == steps:
                    row["held"] = _held(policy, new, seed, batch_tokens)
                log.write(row)
                told(row)
                if cloner.done % save == 0 or cloner.done == steps:
                    checkpoints.save(
                        policy, cloner.state_dict(), {"update": cloner.done}, best=False
                    )
        finally:
            log.close()
        if "held" not in row:  # killed after the last step, before all was in its place
            row["held"] = _held(policy, new, seed, batch_tokens)
        _publish(policy, folder)
        return row


def _held(
    policy: Policy, new: Callable[[], gym.Env[Any, Any]], seed: int, batch_tokens: int
) -> float:
    # Demonstrations are named by their seed, so the next one's are others.
    demos = demonstrations(new, policy.template, episodes=HELD, seed=seed + 1)
    return cross_entropy(policy, demos, batch_tokens=batch_tokens)


def _check(folder: Path, run: str) -> None:
    """Makes sure that ``folder`` is of this run, or empty.

    Raises:
        ValueError: It is that of another, or of something else.
    """
    file = folder / RUN
    if file.exists():
        before, now = json.loads(file.read_text(encoding="utf-8")), json.loads(run)
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                raise ValueError(
                    f"out must be a new folder or that of the same run, got {str(folder)!r} with "
                    f"{name} {before.get(name)!r} instead of {now.get(name)!r}"
                )
    elif folder.exists() and any(folder.iterdir()):
        raise ValueError(f"out must be a new folder, got {str(folder)!r}, which is not empty")


def _publish(policy: Policy, folder: Path) -> None:
    """Makes the folder of the run that of its policy; a second call completes a first one."""
    made = folder / "policy"
    policy.save(made)
    for file in sorted(made.iterdir()):
        os.replace(file, folder / file.name)
    shutil.rmtree(made)
