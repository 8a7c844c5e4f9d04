"""Where learners begin: the way between the two policies that ship, and cloned ones."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch
from safetensors.torch import load_file

from headway.agents.engine import Engine
from headway.agents.policy import Policy
from headway.agents.rollout import collect
from headway.agents.sft import Cloner
from headway.bench import starts
from headway.bench.depot import Depot
from headway.bench.starts import WEIGHTS, cloned, start

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


SETTINGS = {"action_format": "command", "manual": False, "difficulty": 1}
MADE = {
    **{"vocabulary": 300, "episodes": 2, "steps": 3, "batch": 1, "save": 1, "rate": 1e-3},
    "sizes": {"layers": 1, "width": 16, "heads": 2, "ffn": 16, "context": 2048},
}


def test_a_start_is_whole_or_not_there(tmp_path, monkeypatch):
    """Killed while it clones, it goes on where it was, and leaves nothing but the policy."""
    monkeypatch.setattr(starts, "SPELT", 2)
    made = {}
    for name, kills in (("whole", 0), ("parts", 2)):
        real, steps = Cloner.step, []

        def step(cloner, real=real, steps=steps, kills=kills):
            steps.append(cloner.done)
            if len(steps) == kills:
                raise KeyboardInterrupt
            return real(cloner)

        with monkeypatch.context() as patch:
            patch.setattr(Cloner, "step", step)
            if kills:
                with pytest.raises(KeyboardInterrupt):
                    cloned(tmp_path / name, "headway/Apps-v0", SETTINGS, **MADE)
                assert not (tmp_path / name).exists()
            cloned(tmp_path / name, "headway/Apps-v0", SETTINGS, **MADE)
            assert steps == ([0, 1, 1, 2] if kills else [0, 1, 2])
        made[name] = Policy.load(tmp_path / name, device="cpu").model.state_dict()
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "parts"}
    for name, weight in made["whole"].items():
        assert weight.equal(made["parts"][name])
