"""Makes the weights from which learners in the depot begin, and measures them.

    python scripts/depot_checkpoint.py                # two minutes on one core
    python scripts/depot_checkpoint.py --measure      # only measures the weights that ship

First a policy is taught the whole task by demonstrations with few stray actions. A copy of it is
then spoilt by demonstrations in which most actions are stray, all of them are cloned, and what
comes after labelling is hardly ever shown. Taught by such demonstrations alone a policy does not
learn to copy arguments out of what it was told, and no reward teaches it that afterwards.

Everything is drawn from fixed seeds, and one thread computes. Other processors and other versions
of PyTorch round otherwise, so there the weights come out a little different.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import gymnasium as gym
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headway.agents.demos import Expert, demonstrations
from headway.agents.engine import Engine
from headway.agents.policy import Policy
from headway.agents.rollout import collect
from headway.agents.sft import Cloner
from headway.agents.tiny import tiny
from headway.bench.depot import WORDS, Depot
from headway.bench.starts import WEIGHTS, start
from headway.envs.rng import Rng

TURNS = 10
"""Of the demonstrations: room for stray actions."""

SHARES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
"""Of the clean policy, at which it is measured."""

FIRST = 10**9
"""Seeds from here on are for measuring; learners draw theirs below."""


class Forgetful(Expert):
    """An expert that, once the parcel is labelled, mostly does something else.

    Args:
        env: The depot.
        shown: Chance that it does not, in [0, 1].
    """

    def __init__(self, env: gym.Env[Any, Any], shown: float) -> None:
        depot = env.unwrapped
        super().__init__(depot)
        self._depot, self._shown = depot, shown
        self._rng = Rng("forgetful", depot.task_id)  # type: ignore[attr-defined]

    def right(self) -> str:
        """The expert's action, or any other."""
        late = self._depot.grade().ok["label"]  # type: ignore[attr-defined]
        if late and self._rng.random() >= self._shown:
            return self.stray(self._rng)
        return super().right()


def teach(
    policy: Policy, *, noise: float, shown: float, steps: int, rate: float, seed: int
) -> None:
    """One phase: clones fresh demonstrations of a forgetful expert, stray actions and all."""
    demos = demonstrations(
        lambda: Depot(TURNS),
        policy.template,
        episodes=max(1000, 8 * steps),
        seed=seed,
        noise=noise,
        clone_noise=True,
        recover=False,
        teacher=lambda env: Forgetful(env, shown),
    )
    cloner = Cloner(policy, demos, steps=steps, batch=32, rate=rate, seed=seed)
    rows = [cloner.step() for _ in range(steps)]
    print(f"{steps} steps, {noise:.0%} stray: {rows[0]['loss']:.2f} -> {rows[-1]['loss']:.2f} nats")


def weights_of(policy: Policy, name: str) -> dict[str, Tensor]:
    """The weights in float16, with a name in front."""
    return {
        f"{name}.{key}": weight.detach().to(torch.float16).contiguous()
        for key, weight in policy.model.named_parameters()
    }


def made() -> dict[str, Tensor]:
    """Both policies."""
    policy = tiny(WORDS, seed=0)
    teach(policy, noise=0.1, shown=1.0, steps=400, rate=2e-3, seed=0)
    clean = weights_of(policy, "clean")
    teach(policy, noise=0.55, shown=0.15, steps=70, rate=1e-3, seed=1)
    teach(policy, noise=0.6, shown=0.03, steps=45, rate=1e-3, seed=2)
    return clean | weights_of(policy, "spoilt")


def measured(policy: Policy, *, horizon: int, episodes: int, greedy: bool) -> tuple[float, float]:
    """Success and progress on tasks that nothing was learnt from."""
    found = collect(
        Engine(policy, lanes=min(64, episodes)),
        range(FIRST, FIRST + episodes),
        lambda: Depot(horizon),
        key=("depot", horizon),
        turn_tokens=5,
        greedy=greedy,
    ).trajectories
    return fmean(t.success for t in found), fmean(float(t.curve[-1]) for t in found)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(description="make the weights that learners begin with")
    parser.add_argument(
        "--out", type=Path, default=WEIGHTS, help="file to write (the one that ships)"
    )
    parser.add_argument("--measure", action="store_true", help="make nothing, read that file")
    parser.add_argument("--episodes", type=int, default=512, help="episodes of a measurement (512)")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    if not args.measure:
        both = made()
        save_file(both, args.out)
        args.out.chmod(0o644)  # the library writes for its owner only
        print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB")
    both = load_file(args.out)
    print("share of clean   sampled, 8 turns    sampled, 10 turns   greedy, 8 turns")
    for share in SHARES:
        policy = start(share, weights=both)
        cells = [
            measured(policy, horizon=horizon, episodes=args.episodes, greedy=greedy)
            for horizon, greedy in ((8, False), (10, False), (8, True))
        ]
        row = "   ".join(f"{success:6.1%}  phi {phi:.3f}" for success, phi in cells)
        print(f"{share:14.2f}   {row}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
