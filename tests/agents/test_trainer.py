"""The loop: the same run however often it is killed, the log and the ledger, what it refuses."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.agents import trainer
from headway.agents.config import Config, config, load
from headway.agents.ledger import SECONDS, TOKENS, Ledger
from headway.agents.log import EPISODES, LOG, Log, lines
from headway.agents.policy import Policy
from headway.agents.trainer import environment, estimator, train
from headway.bench.starts import start

torch.set_num_threads(1)

DEPOT = "headway.bench.depot:Depot"


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A folder with a policy that calls tools and errs."""
    folder = tmp_path_factory.mktemp("policy") / "start"
    start(0.3).save(folder)
    return str(folder)


def run(policy, **changes):
    found = {
        "env": DEPOT,
        "policy": policy,
        "gamma": 0.9,
        "groups": 2,
        "size": 4,
        "turn_tokens": 4,
        "context": 96,
        "rate": 1e-3,
        "tokens": 1000,
        "episodes": 8,
        "save": 2,
        "device": "cpu",
        **changes,
    }
    return Config(**found)


def trained(folder):
    """The weights of the newest checkpoint."""
    newest = json.loads((folder / "state.json").read_text())["newest"]
    found = Policy.load(folder / newest)
    return torch.cat([w.detach().flatten() for w in found.model.parameters()])


def rows(folder, *but):
    """The log, without what time is in."""
    found = [row for _, row in lines(folder / LOG)]
    for row in found:
        row.pop("seconds")
        row.get("ledger", {}).pop("seconds", None)
    return found


def test_a_run_learns_and_says_so(policy, tmp_path):
    """Every figure of the log is there, adds up, and moves as it should."""
    heard = []
    last = train(run(policy), tmp_path, told=heard.append)
    found = rows(tmp_path)
    assert len(found) == len(heard) and heard[-1] == last
    assert [row["update"] for row in found] == list(range(len(found)))
    assert "evaluation" in found[0] and "evaluation" in found[-1]
    assert last["tokens"] >= 1000 > found[-3]["tokens"]
    for row in found[:-1]:
        ledger = row["ledger"]["tokens"]
        assert row["tokens"] == ledger["policy"] and ledger["prefill"] > 0
        assert ledger["scorer"] == ledger["continuations"] == 0
        assert row["gap"] <= 1e-4 and row["moved"] >= 0.0 and 0.0 <= row["silent"] <= 1.0
        assert set(row["returns"]) == {"base", "progress"} == set(row["share"])
    episodes = [row for _, row in lines(tmp_path / EPISODES)]
    assert {row["update"] for row in episodes} == set(range(0, len(found) - 1, 2))
    for episode in episodes:
        assert len(episode["progress"]) == len(episode["turns"]) + 1
        assert all(math.isfinite(turn["advantage"]) for turn in episode["turns"])


@pytest.mark.parametrize("at", [1, 3])
def test_a_stopped_run_goes_on_as_if_nothing_had_been(policy, tmp_path, at):
    """Bit for bit: weights, tasks, rewards; stopped before and after a checkpoint."""
    made = run(policy, evaluate=2)
    train(made, tmp_path / "whole")

    class Stop(Exception):
        pass

    def stop(row):
        if row["update"] == at:
            raise Stop

    with pytest.raises(Stop):
        train(made, tmp_path / "parts", told=stop)
    train(made, tmp_path / "parts")
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    assert torch.equal(trained(tmp_path / "parts"), trained(tmp_path / "whole"))
    one, two = ((tmp_path / name / EPISODES).read_text() for name in ("parts", "whole"))
    assert one == two


def test_small_steps_are_not_lost_in_few_bits(policy, tmp_path):
    """Computed in bfloat16, where one part in 256 is the least that a weight can change."""
    last = train(run(policy, tokens=400, rate=1e-5, dtype="bfloat16", lanes=8), tmp_path)
    first = torch.cat([w.detach().flatten() for w in Policy.load(policy).model.parameters()])
    moved = (trained(tmp_path) - first).abs()
    assert last["update"] >= 2 and (moved > 0.0).float().mean() > 0.5
    assert 0.0 < float(moved.max()) < 1e-4
    assert 0.0 < max(row.get("gap", 0.0) for row in rows(tmp_path)) < 0.5


CHILD = """
import sys, torch
torch.set_num_threads(1)
from pathlib import Path
from headway.agents.config import load
from headway.agents.trainer import train
train(load(sys.argv[1]), Path(sys.argv[2]))
"""


def test_kill_9(policy, tmp_path):
    """At a moment that nobody chose; what is left is taken up by another process."""
    file = tmp_path / "run.toml"
    settings = {k: v for k, v in asdict(run(policy, save=1)).items() if v is not None}
    settings.pop("environment")
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    train(load(file), tmp_path / "whole")
    argv = [sys.executable, "-c", CHILD, str(file), str(tmp_path / "parts")]
    child = subprocess.Popen(argv)
    log = tmp_path / "parts" / LOG
    try:
        while child.poll() is None and not (log.exists() and log.read_text().count("\n") >= 2):
            time.sleep(0.01)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert child.returncode == -signal.SIGKILL
    subprocess.run(argv, check=True)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    assert torch.equal(trained(tmp_path / "parts"), trained(tmp_path / "whole"))
    left = {path.name.partition("-")[0] for path in (tmp_path / "parts").iterdir()}
    assert left <= {"config.json", "state.json", LOG, EPISODES, "update", "tensorboard"}


def test_what_costs_is_charged(policy, tmp_path):
    """Continuations, scored answers and pilots count against the budget."""
    for changes, kind in (
        ({"continuations": 1, "credit": "values", "stack": ""}, "continuations"),
        ({"information": 0.5, "credit": "final"}, "scorer"),
    ):
        folder = tmp_path / kind
        last = train(run(policy, tokens=500, **changes), folder)
        row = rows(folder)[-2]
        counts = row["ledger"]["tokens"]
        assert counts[kind] > 0 and last["tokens"] == counts[kind] + counts["policy"]
    plain = train(run(policy, tokens=1, credit="outcome", stack=""), tmp_path / "plain")
    edge = train(run(policy, tokens=1, credit="outcome", stack="", edge=True), tmp_path / "edge")
    assert edge["tokens"] > 1.4 * plain["tokens"]


def test_values_sum_to_what_was_left_open(policy, tmp_path):
    """The channel of an episode sums to its outcome less the value of its start."""
    seen = []
    taken = trainer.collect

    def spied(*args, **kwargs):
        found = taken(*args, **kwargs)
        if kwargs.get("continuations"):
            seen.extend(zip(found.trajectories, found.values, strict=True))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "collect", spied)
        train(run(policy, tokens=1, credit="values", stack="", continuations=2), tmp_path)
    assert seen
    for trajectory, values in seen:
        paid = sum(turn.channels["value"] for turn in trajectory.turns)
        assert paid == pytest.approx(float(trajectory.success) - values[0])


def test_schedules_go_by_generated_tokens(policy, tmp_path):
    """Faded out at 300 tokens, progress is paid in the first update and in none after it."""
    train(run(policy, stack="progress,anneal(steps=300)"), tmp_path)
    paid = [row["returns"]["progress"] for row in rows(tmp_path)[:-1]]
    assert paid[0] > 0.0 and rows(tmp_path)[1]["tokens"] > 300 and set(paid[3:]) == {0.0}


def test_placebos_change_what_is_learnt_and_not_what_is_told(policy, tmp_path):
    plain = run(policy, tokens=1)
    train(plain, tmp_path / "plain")
    train(run(policy, tokens=1, placebo="shuffle_traj"), tmp_path / "placebo")
    one, two = (rows(tmp_path / name)[0] for name in ("plain", "placebo"))
    assert one["returns"] == two["returns"] and one["success"] == two["success"]
    assert one["norm"] != two["norm"]


def test_nothing_to_learn_is_no_step(policy, tmp_path):
    """Without a success and without a dense reward the weights stay as they are."""
    made = run(policy, stack="", credit="outcome", environment={"horizon": 2}, tokens=200)
    train(made, tmp_path)
    assert all(row["silent"] == 1.0 and row["norm"] is None for row in rows(tmp_path)[:-1])
    first = Policy.load(policy)
    before = torch.cat([w.detach().flatten() for w in first.model.parameters()])
    assert torch.equal(trained(tmp_path), before)


def test_a_folder_of_another_run_is_refused(policy, tmp_path):
    train(run(policy, tokens=1), tmp_path)
    with pytest.raises(ValueError, match=r"the same run.*with seed 0 instead of 1"):
        train(run(policy, tokens=1, seed=1), tmp_path)


def test_held_out_tasks_are_others():
    """Of the test split where there is one, without reward layers, from seeds of their own."""
    made = Config(env="headway/Apps-v0", policy="none", gamma=0.9)
    seen = {}
    for held_out in (False, True):
        env = environment(made, held_out=held_out)
        _, info = env.reset(seed=3)
        seen[held_out] = (info["task_id"].split("/")[-2], dict(info["headway"]["channels"]))
        env.close()
    assert seen == {False: ("train", {"progress": 0.0}), True: ("test", {})}


@pytest.mark.parametrize("layer", ["novelty", "clip", "placebo(kind=flip,p=0.1)"])
def test_layers_that_remember_other_episodes_are_refused(layer):
    """Episodes are played in copies, which would take the memory with them."""
    made = Config(
        env="headway/Apps-v0",
        policy="none",
        gamma=0.9,
        stack=f"progress,{layer}",
        allow_dominance=True,
    )
    with pytest.raises(ValueError, match=r"no layer that remembers other episodes"):
        environment(made)
    environment(replace(made, stack="progress,clip(eta=0.1)")).close()


def test_credit_by_name_and_by_function():
    assert estimator("turn").name == "turn"
    assert estimator("headway.bench.arms:Z").name == "z"
    with pytest.raises(ValueError, match="did you mean 'outcome'"):
        estimator("outcom")


# Configuration.


def test_configurations_are_checked(tmp_path):
    needed = {"env": DEPOT, "policy": "x", "gamma": 0.9}
    for changes, said in (
        ({"gama": 1}, "did you mean 'gamma'"),
        ({"gamma": 0.0}, r"gamma must be a number in \(0, 1\], got 0"),
        ({"size": 1}, "size must be an int of at least 2"),
        ({"edge": "yes"}, "edge must be one of"),
        ({"environment": 3}, "environment must be a table"),
        ({"stack": None}, "stack must be a text"),
        ({"control": "blanc"}, "did you mean 'blank'"),
    ):
        with pytest.raises(ValueError, match=said):
            config({**needed, **changes})
    with pytest.raises(ValueError, match="must have policy, gamma"):
        config({"env": DEPOT})
    file = tmp_path / "run.toml"
    file.write_text('env = "a"\npolicy = "b"\ngamma = 0.5\n[environment]\ndifficulty = 2\n')
    found = load(file, {"gamma": 0.7})
    assert (found.gamma, found.environment) == (0.7, {"difficulty": 2})
    file.write_text("env = ")
    with pytest.raises(ValueError, match="must be TOML"):
        load(file)


# The ledger.


@given(st.lists(st.tuples(st.sampled_from(TOKENS), st.integers(0, 10**9)), max_size=20))
def test_a_ledger_sums_what_it_is_told(charges):
    ledger = Ledger()
    for kind, count in charges:
        ledger.charge({kind: count}, {})
    for kind in TOKENS:
        assert ledger.tokens[kind] == sum(count for name, count in charges if name == kind)
    assert ledger.generated == sum(count for name, count in charges if name != "prefill")
    twin = Ledger()
    twin.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    assert twin == ledger


def test_seconds_are_those_of_a_clock(policy, tmp_path):
    """A clock that stands still has nothing to charge, whatever is done."""
    last = train(run(policy, tokens=1), tmp_path, clock=lambda: 7.0)
    assert last["tokens"] > 0 and last["seconds"] == 0.0


def test_time_is_charged_even_where_it_fails():
    ledger = Ledger()
    with pytest.raises(ValueError, match="x"), ledger.timed("learner"):
        time.sleep(0.01)
        raise ValueError("x")
    assert ledger.seconds["learner"] >= 0.01
    ledger.charge({}, {"evaluation": 5.0})
    assert ledger.trained == sum(ledger.seconds[kind] for kind in SECONDS if kind != "evaluation")
    with pytest.raises(KeyError), ledger.timed("lerner"):
        pass
    with pytest.raises(KeyError, match="kinds"):
        ledger.load_state_dict({"tokens": {}, "seconds": {}})


# The log.


def test_a_log_is_cut_to_where_a_run_goes_on(tmp_path):
    log = Log(tmp_path, 0)
    for update in range(4):
        log.write({"update": update, "kl": math.nan, "returns": {"base": math.inf}})
    log.close()
    file = tmp_path / LOG
    file.write_text(file.read_text() + '{"update": 4, "kl"')
    Log(tmp_path, 2).close()
    found = [row for _, row in lines(file)]
    assert [row["update"] for row in found] == [0, 1]
    assert found[0]["kl"] is None and found[0]["returns"] == {"base": None}
    file.write_text("{\n")
    with pytest.raises(ValueError, match="line 1, must be JSON"):
        list(lines(file))


def test_numpy_numbers_are_written(tmp_path):
    log = Log(tmp_path, 0)
    log.write({"update": 0, "x": float(np.float64(0.5))})
    log.close()
    assert [row for _, row in lines(tmp_path / LOG)] == [{"update": 0, "x": 0.5}]
    assert os.listdir(tmp_path)
