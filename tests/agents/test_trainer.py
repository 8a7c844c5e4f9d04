"""The loop: the same run however often it is killed, the log and the ledger, what it refuses."""

from __future__ import annotations

import copy
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from statistics import fmean

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.agents import trainer
from headway.agents.checkpoint import Checkpoints
from headway.agents.config import Config, config, load
from headway.agents.credit import advantages
from headway.agents.evaluate import wilson
from headway.agents.learner import TRIES, Learner
from headway.agents.ledger import SECONDS, TOKENS, Ledger
from headway.agents.log import EPISODES, LOG, Log, lines
from headway.agents.policy import Policy
from headway.agents.trainer import HELD_OUT, environment, estimator, grouped, train
from headway.bench.starts import start

torch.set_num_threads(1)

DEPOT = "headway.bench.depot:Depot"


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A folder with a policy that calls tools and errs."""
    folder = tmp_path_factory.mktemp("policy") / "start"
    start(0.3).save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def able(tmp_path_factory):
    """A folder with a policy that often succeeds."""
    folder = tmp_path_factory.mktemp("policy") / "able"
    start(0.8).save(folder)
    return str(folder)


FRAIL = """
from headway.bench.depot import Depot
from headway.envs.box import SandboxDied

class Frail(Depot):
    def step(self, action):
        if self._seed % 2 == 0 and self._turn == 1:
            raise SandboxDied("no machine", by="infra")
        return super().step(action)
"""


@pytest.fixture
def frail(tmp_path, monkeypatch):
    """A depot whose machine fails in the second turn of every other task."""
    (tmp_path / "frail_depot.py").write_text(FRAIL, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "frail_depot:Frail"
    sys.modules.pop("frail_depot", None)


@pytest.fixture
def played(monkeypatch):
    """What the trainer has sampled: per call the seeds, the keywords and the rollout."""
    seen = []
    taken = trainer.collect

    def spied(engine, seeds, *args, **kwargs):
        found = taken(engine, seeds, *args, **kwargs)
        seen.append((list(seeds), kwargs, found))
        return found

    monkeypatch.setattr(trainer, "collect", spied)
    return seen


class Stop(Exception):
    """Ends a run from outside."""


def stopped(made, folder, at):
    """A run that is stopped once it has told of an update."""

    def stop(row):
        if row["update"] == at:
            raise Stop

    with pytest.raises(Stop):
        train(made, folder, told=stop)


def scripted(monkeypatch, successes, last):
    """Evaluations find this, one an update; ``last`` from then on."""
    found = {"low": 0.0, "high": 1.0, "progress": 0.5, "episodes": 8, "unscored": 0}

    def told(engine, config, update, split):
        return {"success": [*successes, last][min(update, len(successes))], **found}

    monkeypatch.setattr(trainer, "evaluation", told)


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
    stopped(made, tmp_path / "parts", at)
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
        counts = rows(folder)[-2]["ledger"]["tokens"]
        assert counts[kind] > 0 and last["tokens"] == counts[kind] + counts["policy"]
        begun = [0, *(row["tokens"] for row in rows(folder)[:-2])]
        assert begun[-1] < 500 <= last["tokens"]
    plain = train(run(policy, tokens=1, credit="outcome", stack=""), tmp_path / "plain")
    edge = train(run(policy, tokens=1, credit="outcome", stack="", edge=True), tmp_path / "edge")
    assert edge["tokens"] > 1.4 * plain["tokens"]


def test_values_sum_to_what_was_left_open(able, tmp_path):
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
        train(run(able, tokens=1, credit="values", stack="", continuations=2), tmp_path)
    assert any(0.0 < values[0] < 1.0 for _, values in seen)
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
    train(run(policy, tokens=1, placebo="random"), tmp_path / "placebo")
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


def test_a_folder_of_something_else_is_refused(policy, tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="holds something else"):
        train(run(policy, tokens=1), tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_what_is_refused_leaves_no_folder(policy, tmp_path):
    """So the corrected command can have it."""
    for changes, said in (
        ({"credit": "gdpo"}, "divides dense rewards"),
        ({"credit": "igpo"}, "'information', which nothing pays"),
        ({"credit": "pprs_keep", "placebo": "random"}, "reads nothing that a placebo changes"),
        ({"placebo": "mismatch", "groups": 1}, "groups must be at least 2"),
        ({"context": 10**6}, "context must be at most the model's"),
        ({"context": 3}, "context must be more than"),
        ({"environment": {"nope": 1}}, "must take the settings nope"),
    ):
        with pytest.raises(ValueError, match=said):
            train(run(policy, tokens=1, **changes), tmp_path / "run")
        assert not (tmp_path / "run").exists(), changes
    train(run(policy, tokens=1), tmp_path / "run")


def test_a_configuration_that_was_cut_is_named(policy, tmp_path):
    train(run(policy, tokens=1), tmp_path)
    for text, said in (("", "must be JSON"), ("[]", "must hold a configuration")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=rf"config\.json {said}"):
            train(run(policy, tokens=1), tmp_path)


def test_a_run_that_learns_nothing_says_why(policy, tmp_path):
    """Every step is too far at such a rate."""
    train(run(policy, tokens=1, rate=1.0, kl_limit=1e-9), tmp_path)
    row = rows(tmp_path)[0]
    assert row["rolled_back"] == TRIES and row["moved"] == 0.0
    assert [text for text in row["alarms"] if text.startswith("guard: every try")]


def test_held_out_tasks_are_others():
    """Of the dev and the test split where there are any, and without reward layers."""
    made = Config(env="headway/Apps-v0", policy="none", gamma=0.9)
    seen = {}
    for split in (None, "dev", "test"):
        env = environment(made, split=split)
        _, info = env.reset(seed=3)
        seen[split] = (info["task_id"].split("/")[-2], dict(info["headway"]["channels"]))
        env.close()
    assert seen == {None: ("train", {"progress": 0.0}), "dev": ("dev", {}), "test": ("test", {})}
    env = environment(replace(made, environment={"split": "dev"}), split="test")
    assert env.reset(seed=3)[1]["task_id"].split("/")[-2] == "dev"
    env.close()


def test_tasks_and_streams_are_drawn_once(policy, tmp_path, played):
    """Evaluations of a run have the same tasks always, and the last one has its own.

    No training has them, nor any task twice, nor are two rollouts sampled from one stream, of
    whatever update or run.
    """
    for seed in (0, 1):
        made = run(policy, seed=seed, tokens=1000, evaluate=1, edge=True, temperature=0.5)
        train(made, tmp_path / str(seed))
    assert all(row["gap"] <= 1e-4 for row in rows(tmp_path / "0")[:-1])
    keys = [kwargs["key"] for _, kwargs, _ in played]
    assert len(set(keys)) == len(keys) and len([key for key in keys if "train" in key]) >= 4
    kept = [
        (seeds, kwargs["key"][1], "test" in kwargs["key"])
        for seeds, kwargs, _ in played
        if "evaluation" in kwargs["key"]
    ]
    for seed in (0, 1):
        *ways, last = (seeds for seeds, which, _ in kept if which == seed)
        assert len(ways) >= 3 and all(seeds == ways[0] for seeds in ways)
        assert len({*ways[0], *last}) == 16 and min(*ways[0], *last) >= HELD_OUT
    assert [test for *_, test in kept].count(True) == 2
    assert len({seed for seeds, *_ in kept for seed in seeds}) == 32
    drawn = [seed for seeds, kwargs, _ in played if "pilot" in kwargs["key"] for seed in seeds]
    assert len(set(drawn)) == len(drawn) and max(drawn) < HELD_OUT
    for _, kwargs, _ in played:
        assert (kwargs["temperature"], kwargs["turn_tokens"]) == (0.5, 4)


def test_what_is_told_is_of_what_was_measured(able, tmp_path, played, frail):
    """Episodes that the machine lost count as none, in training and in evaluations."""
    train(run(able, env=frail, tokens=1, groups=4), tmp_path / "run")
    (_, _, held), (_, _, batch), *_ = played
    row = rows(tmp_path / "run")[0]
    for found, said in ((held, row["evaluation"]), (batch, row)):
        scored = [t for t in found.trajectories if t.ended != "died"]
        wins = sum(t.success for t in scored)
        assert 0 < wins and said["unscored"] == len(found.trajectories) - len(scored) > 0
        assert said["success"] == pytest.approx(wins / len(scored))
        assert said["progress"] == pytest.approx(fmean(t.curve[-1] for t in scored))
        if said is not row:
            assert (said["low"], said["high"]) == wilson(wins, len(scored))
            continue
        sums = [float(t.rewards()["progress"].sum()) for t in scored]
        assert said["returns"]["progress"] == pytest.approx(fmean(sums))
        played_all = found.trajectories
        entropy = -sum(t.logp.sum() for t in played_all) / sum(t.sampled for t in played_all)
        assert said["entropy"] == pytest.approx(entropy, rel=1e-4) and entropy > 0.0
        assert said["turns"] == fmean(len(t.turns) for t in played_all)


def test_what_was_not_measured_is_none(policy, tmp_path, monkeypatch):
    """Where all machines fail no figure is 0, nothing is learnt and nothing is the best."""
    text = FRAIL.replace("if self._seed % 2 == 0 and self._turn == 1", "if True")
    (tmp_path / "frail_depot.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    train(run(policy, env="frail_depot:Frail", tokens=1), tmp_path / "run")
    sys.modules.pop("frail_depot")
    first, last = rows(tmp_path / "run")
    for row in (first, first["evaluation"], last["evaluation"], last["test"]):
        assert row["success"] is None and row["progress"] is None
    assert first["norm"] is None and first["unscored"] == 8


def test_turns_are_credited_as_asked(policy, tmp_path, played):
    """By the run's estimator, within the groups of a task, at the run's discount."""
    train(run(policy, tokens=1, gamma=0.5), tmp_path)
    (batch,) = (found for _, kwargs, found in played if "train" in kwargs["key"])
    groups = grouped(batch.trajectories)
    assert [len(group) for group in groups] == [4, 4]
    wanted = advantages(groups, estimator("turn"), gamma=0.5)
    shown = [row for _, row in lines(tmp_path / EPISODES)]
    assert len(shown) == 2 and any(wanted[0][0]) and any(wanted[1][0])
    for row, worth in zip(shown, wanted, strict=True):
        assert [turn["advantage"] for turn in row["turns"]] == pytest.approx(worth[0])


def test_layers_have_the_discount_of_the_run():
    """A first turn that changes nothing pays what waiting costs."""
    made = Config(env=DEPOT, policy="none", gamma=0.5, stack="potential")
    env = environment(made)
    env.reset(seed=0)
    for _ in range(2):
        action = env.unwrapped.solution()[0]
        _, _, _, _, info = env.step(action)
    (paid,) = info["headway"]["channels"].values()
    assert paid == pytest.approx((0.5 - 1.0) / 6)


def test_evaluations_come_at_both_ends_and_every_so_many_updates(policy, tmp_path):
    train(run(policy, tokens=1300, evaluate=2), tmp_path)
    found = [row["update"] for row in rows(tmp_path) if "evaluation" in row]
    last = rows(tmp_path)[-1]["update"]
    assert last >= 4 and found == sorted({*range(0, last + 1, 2), last})


def test_the_best_is_that_of_the_best_evaluation(policy, tmp_path, monkeypatch):
    """Not of a later one that is better than the one before, nor what was saved since."""
    scripted(monkeypatch, [0.2, 0.5, 0.1], 0.3)
    train(run(policy, evaluate=1, tokens=1300), tmp_path)
    found = Checkpoints(tmp_path)
    assert found.best().name == "update-000001" and found.newest()[2]["update"] >= 4
    assert found.newest()[2]["best"] == 0.5


def test_a_run_stops_where_rewards_rise_and_success_falls(policy, tmp_path, monkeypatch):
    """Three evaluations in a row, though some were before it was killed."""
    scripted(monkeypatch, [0.2, 0.5], 0.1)
    real, told = trainer._told_of, []

    def rising(trajectories):
        told.append(None)
        return {**real(trajectories), "returns": {"base": 0.1 * len(told)}}

    monkeypatch.setattr(trainer, "_told_of", rising)
    made = run(policy, evaluate=1, tokens=5000)
    stopped(made, tmp_path, 3)
    last = train(made, tmp_path)
    assert last["update"] == 4 and last["tokens"] < 5000
    assert "goodhart" in last["alarms"][0] and Checkpoints(tmp_path).best().name == "update-000001"


def test_a_budget_of_seconds_is_of_training(policy, tmp_path, monkeypatch):
    """Evaluations cost nothing; updates do."""
    now = [0.0]
    scripted(monkeypatch, [], 0.5)
    asked, stepped = trainer.evaluation, Learner.step

    def slow(wait, act):
        def call(*args):
            now[0] += wait
            return act(*args)

        return call

    monkeypatch.setattr(trainer, "evaluation", slow(1000.0, asked))
    monkeypatch.setattr(Learner, "step", slow(10.0, stepped))
    made = run(policy, evaluate=1, tokens=5000, seconds=25.0)
    last = train(made, tmp_path, clock=lambda: now[0])
    assert (last["update"], last["seconds"]) == (3, 30.0)


def test_the_edge_is_what_is_neither_easy_nor_hopeless(policy, tmp_path, monkeypatch):
    """Both failed, both lost by the machine, one of two, both succeeded: the second and third.

    What the machine lost says nothing of a task, so its chance is one half.
    """
    taken, asked = trainer.collect, {}

    def spied(engine, seeds, *args, **kwargs):
        found = taken(engine, seeds, *args, **kwargs)
        asked.setdefault(kwargs["key"][0], seeds)
        if "pilot" in kwargs["key"]:
            for one, (success, ended) in zip(found.trajectories, script, strict=True):
                one.success, one.ended = success, ended
        return found

    fails, wins, died = (False, "truncated"), (True, "terminated"), (False, "died")
    script = [fails, fails, died, died, wins, fails, wins, wins]
    monkeypatch.setattr(trainer, "collect", spied)
    train(run(policy, tokens=1, edge=True), tmp_path)
    assert asked["train"] == asked["pilot"][1:3]


def test_information_is_probed_as_asked(policy, tmp_path, played):
    for control, wanted in (("mismatch", (None, True)), ("subtract", ("subtract", False))):
        made = run(policy, tokens=1, information=0.3, gamma=0.8, control=control)
        train(made, tmp_path / control)
        (probe,) = (kwargs["probe"] for _, kwargs, _ in played if "train" in kwargs["key"])
        assert (probe.control, probe.mismatch) == wanted
        assert (probe.c, probe.gamma) == (0.3, 0.8)
        played.clear()


def test_a_value_that_is_not_known_is_no_value(able, tmp_path, monkeypatch):
    """Its trajectory is left out, and all else is learnt from."""
    taken = trainer.collect

    def spied(*args, **kwargs):
        found = taken(*args, **kwargs)
        if kwargs.get("continuations"):
            found.values[0][1] = math.nan
        return found

    monkeypatch.setattr(trainer, "collect", spied)
    train(run(able, tokens=1, credit="values", stack="", continuations=1), tmp_path)
    row = rows(tmp_path)[0]
    assert row["unscored"] == 1 and math.isfinite(row["returns"]["value"]) and row["norm"] > 0.0


def test_a_placebo_has_chance_of_its_own_each_update(policy, tmp_path, monkeypatch):
    seen = []
    real = trainer.placebo

    def spied(groups, kind, rng):
        seen.append(int(copy.deepcopy(rng).integers(2**62)))
        return real(groups, kind, rng)

    monkeypatch.setattr(trainer, "placebo", spied)
    for seed in (0, 1):
        made = run(policy, seed=seed, tokens=600, placebo="shuffle_turns")
        train(made, tmp_path / str(seed))
    assert len(seen) >= 4 and len(set(seen)) == len(seen)


def test_what_has_to_be_allowed_is_refused(policy, tmp_path):
    """Dense rewards over their deviation, and a stack that pays more than success."""
    made = run(policy, tokens=1, credit="headway.bench.arms:Z")
    with pytest.raises(ValueError, match="allow_std_on_dense"):
        train(made, tmp_path / "no")
    assert not (tmp_path / "no").exists()
    train(replace(made, allow_std_on_dense=True), tmp_path / "yes")
    much = run(policy, stack="headway.bench.depot:CallReward(weight=1.0)")
    with pytest.raises(ValueError, match="allow_dominance"):
        environment(much)
    environment(replace(much, allow_dominance=True)).close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"credit": "values"}, "set .*for 'value' continuations"),
        ({"credit": "igpo"}, "needs the channel 'information'"),
        ({"credit": "outcome", "placebo": "random"}, "placebo must be None with credit='outcome'"),
        ({"credit": "pprs_keep", "placebo": "random"}, "placebo must be None"),
        ({"placebo": "mismatch", "groups": 1}, "groups must be at least 2"),
    ],
)
def test_what_does_not_fit_together_takes_no_folder(policy, tmp_path, changes, said):
    with pytest.raises(ValueError, match=said):
        train(run(policy, tokens=1, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_second_loss_is_learnt_from(policy, tmp_path):
    for weight in (0.0, 0.1):
        train(run(policy, tokens=1, auxiliary=weight), tmp_path / str(weight))
    one, two = (rows(tmp_path / name)[0]["norm"] for name in ("0.0", "0.1"))
    assert one != two


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
        ({"save": 0}, "save must be an int of at least 1"),
        ({"temperature": 0.0}, "temperature must be a number in"),
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
    ledger.charge({}, {"checks": 1.5})
    ledger.charge({}, {"checks": 2.0})
    assert ledger.seconds["checks"] == 3.5
    twin, state = Ledger(), ledger.state_dict()
    ledger.charge({"policy": 1}, {"checks": 1.0})
    twin.load_state_dict(json.loads(json.dumps(state)))
    assert twin.generated == ledger.generated - 1 and twin.trained == ledger.trained - 1.0
    twin.charge({"policy": 1}, {"checks": 1.0})
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
