"""Where learners begin: between policies that can and cannot, or with a few demonstrations."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from headway.agents.evaluate import make
from headway.agents.policy import Policy
from headway.agents.sft import sft
from headway.agents.tiny import bpe, tiny
from headway.arguments import number
from headway.bench.depot import WORDS

WEIGHTS = Path(__file__).with_name("depot.safetensors")
"""Both policies in float16, made by ``scripts/depot_checkpoint.py``."""

SPELT = 200
"""Episodes whose texts a tokenizer is made of."""


def start(
    share: float, *, device: str = "cpu", weights: Mapping[str, Tensor] | None = None
) -> Policy:
    """A policy for the depot that can do the more of it the larger ``share`` is.

    Its weights lie on the straight line between two policies: ``clean`` nearly always succeeds, and
    ``spoilt`` started as a copy of it and then learnt to act at random and to leave out the last
    steps. On the way from one to the other success rises smoothly, and copying an argument from
    what was told is never lost, so what has to be learnt is what to do when.

    Args:
        share: Of ``clean``, in [0, 1].
        device: Of the weights.
        weights: Of both, named ``clean.*`` and ``spoilt.*``; None for those that ship.

    Raises:
        ValueError: ``share`` is outside its range, or the weights are not those of this policy.
    """
    share = number("share", share, "[0, 1]")
    both = load_file(WEIGHTS) if weights is None else weights
    policy = tiny(WORDS, seed=0, device=device)
    names = {name for name, _ in policy.model.named_parameters()}
    wanted = {f"{kind}.{name}" for kind in ("clean", "spoilt") for name in names}
    if both.keys() != wanted:
        odd = sorted(both.keys() ^ wanted)[:3]
        raise ValueError(f"weights must be those of this policy, twice; wrong or missing: {odd}")
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            clean, spoilt = (both[f"{kind}.{name}"].float() for kind in ("clean", "spoilt"))
            weight.copy_(share * clean + (1.0 - share) * spoilt)
    return policy


def cloned(
    folder: Path,
    env: str,
    settings: Mapping[str, Any],
    *,
    vocabulary: int,
    sizes: Mapping[str, Any],
    **cloning: Any,
) -> None:
    """Writes a small policy that has cloned some demonstrations of a world's train split.

    Its tokenizer is made of the texts of other demonstrations of that split, so the names of the
    test split are new to it and have to be spelt from pieces.

    Args:
        folder: Of the policy.
        env: Id of the world.
        settings: Of the environment.
        vocabulary: Most tokens.
        sizes: ``layers``, ``width``, ``heads``, ``ffn`` and ``context`` of the model.
        **cloning: As of :func:`taught`.
    """
    untrained = folder.with_name(f".{folder.name}.untrained")
    if not untrained.exists():
        tokenizer = bpe(list(_texts(env, settings)), vocabulary=vocabulary)
        tiny(tokenizer, seed=0, **sizes).save(untrained)
    taught(folder, env, settings, source=untrained, **cloning)
    shutil.rmtree(untrained)


def taught(
    folder: Path,
    env: str,
    settings: Mapping[str, Any],
    *,
    source: str | Path,
    **cloning: Any,
) -> None:
    """Writes a policy that has cloned some demonstrations of a world's train split.

    A call that was killed goes on where it was.

    Args:
        folder: Of the policy; there is none before it is whole.
        env: Id of the world.
        settings: Of the environment.
        source: The policy that learns.
        **cloning: Further arguments of :func:`headway.agents.sft.sft`.
    """
    made = folder.with_name(f".{folder.name}.made")
    sft(env, source, made, device="cpu", **cloning, **settings)
    Policy.load(made, device="cpu").save(folder)
    shutil.rmtree(made)


def _texts(env: str, settings: Mapping[str, Any]) -> Iterator[str]:
    """What is read and written in some episodes that no policy is taught by."""
    made = make(env, **settings)
    for seed in range(SPELT):
        obs, _ = made.reset(seed=2**31 + seed, options={"split": "train"})
        yield obs
        for action in made.get_wrapper_attr("solution")():
            obs, *_ = made.step(action)
            yield action
            yield obs
    made.close()
