"""PPO of Stable-Baselines3 learns one errand in a house, from a sparse or a shaped reward.

    pip install "headway[sb3]"
    python examples/house_ppo.py --steps 100000 --shaping potential --seed 0

Prints the success rate in houses that it was not trained in, before and after.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

from headway.wrappers import DiscreteActions, Features, PotentialShaping

GAMMA, LANES, HOUSES, TRIALS = 0.99, 16, 64, 200
TUNED: dict[str, Any] = {"n_steps": 128, "batch_size": 512, "n_epochs": 8, "learning_rate": 7e-4}
TUNED |= {"gamma": GAMMA, "ent_coef": 0.02, "policy_kwargs": {"net_arch": [128, 128]}}


def make(first: int, count: int, shaping: str) -> gym.Env[Any, Any]:
    """Numbered actions and numeric observations, in the houses of a range of seeds."""
    task = {"template": "chores", "difficulty": 1, "ends_on": "success"}
    env: gym.Env[Any, Any] = gym.make("headway:headway/House-v0", seeds=(first, count), **task)
    if shaping == "potential":
        env = PotentialShaping(env, gamma=GAMMA, on_truncation="keep")
    return DiscreteActions(Features(env))


def success(model: PPO, env: gym.Env[Any, Any]) -> float:
    """Share of unseen houses in which the errand is done."""
    done = 0
    for seed in range(10**6, 10**6 + TRIALS):
        (obs, _), ended, truncated = env.reset(seed=seed), False, False
        while not (ended or truncated):
            obs, _, ended, truncated, _ = env.step(model.predict(obs)[0])
        done += ended
    return done / TRIALS


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--shaping", choices=("none", "potential"), default="potential")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lanes = [partial(make, lane * HOUSES, HOUSES, args.shaping) for lane in range(LANES)]
    model = PPO("MlpPolicy", DummyVecEnv(lanes), seed=args.seed, device="cpu", **TUNED)
    unseen = make(10**6, TRIALS, "none")
    print(f"before: {success(model, unseen):.2f}")
    model.learn(args.steps)
    print(f"after {args.steps} steps, shaping {args.shaping}: {success(model, unseen):.2f}")
