"""Where learners begin: the two policies that ship, and the way between them."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch
from safetensors.torch import load_file

from headway.agents.engine import Engine
from headway.agents.rollout import collect
from headway.bench.depot import Depot
from headway.bench.starts import WEIGHTS, start

torch.set_num_threads(1)


def played(share, *, episodes=48, greedy=False):
    """Success and progress."""
    found = collect(
        Engine(start(share), lanes=episodes),
        range(10**6, 10**6 + episodes),
        Depot,
        key=(0,),
        turn_tokens=5,
        greedy=greedy,
    ).trajectories
    return fmean(t.success for t in found), fmean(float(t.curve[-1]) for t in found)


def test_one_end_can_do_it_and_the_other_cannot():
    assert played(1.0, greedy=True)[0] > 0.9
    success, progress = played(0.0)
    assert success < 0.05 and 0.25 < progress < 0.5
    assert progress + 0.1 < played(0.5)[1] < played(1.0)[1]


def test_weights_lie_on_the_line():
    both = load_file(WEIGHTS)
    for share in (0.0, 0.25, 1.0):
        for name, weight in start(share).model.named_parameters():
            clean, spoilt = both[f"clean.{name}"].float(), both[f"spoilt.{name}"].float()
            torch.testing.assert_close(weight.detach(), spoilt + share * (clean - spoilt))
            assert weight.dtype == torch.float32 and weight.requires_grad
    assert WEIGHTS.stat().st_size < 2_200_000


def test_other_weights_are_refused():
    both = load_file(WEIGHTS)
    first = next(iter(both))
    with pytest.raises(ValueError, match=r"wrong or missing: .*" + first):
        start(0.5, weights={name: w for name, w in both.items() if name != first})
    with pytest.raises(ValueError, match="wrong or missing"):
        start(0.5, weights={**both, "clean.more": both[first]})
    for share in (-0.1, 1.1):
        with pytest.raises(ValueError, match=r"share must be a number in \[0, 1\]"):
            start(share)
