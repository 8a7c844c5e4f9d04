"""The commands that learn: each runs, says what came of it, and refuses what it cannot do."""

from __future__ import annotations

import json
import math

import pytest
import torch

from headway import cli
from headway.agents.exam import examine
from headway.agents.policy import Policy
from headway.agents.tiny import bpe, tiny
from headway.bench.depot import Depot
from headway.bench.starts import start
from headway.cli import output
from headway.envs.box import SandboxDied

torch.set_num_threads(1)

DEPOT = "headway.bench.depot:Depot"


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A folder with a policy that calls the depot's tools and errs."""
    folder = tmp_path_factory.mktemp("policy") / "start"
    start(0.3).save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def speller(tmp_path_factory):
    """A folder with a policy that can spell any text, and knows nothing."""
    folder = tmp_path_factory.mktemp("policy") / "speller"
    tokenizer = bpe(["mail_search invoice", "Turns left: 3."], vocabulary=300)
    sizes = {"layers": 1, "width": 16, "heads": 2, "ffn": 32, "context": 1024}
    tiny(tokenizer, seed=0, **sizes).save(folder)
    return str(folder)


def run(capsys, *argv):
    status = cli.main(list(argv))
    return status, capsys.readouterr().out


def refused(capsys, *argv):
    with pytest.raises(SystemExit) as error:
        cli.main(list(argv))
    assert error.value.code == 2
    return capsys.readouterr().err


TRAIN = "--gamma 0.9 --budget-tokens 300 --set turn_tokens=4 --set context=96 --set groups=2"
REST = "--set size=4 --set episodes=8 --set rate=1e-3 --device cpu"


def test_train_then_eval_then_report(policy, tmp_path, capsys):
    """One run, taken up again once it is over, and its page."""
    out = tmp_path / "run"
    argv = ["train", DEPOT, "--policy", policy, "--out", str(out), *TRAIN.split(), *REST.split()]
    status, text = run(capsys, *argv)
    assert status == 0 and "Held-out tasks: success" in text and f"headway report {out}" in text
    status, text = run(capsys, *argv, "--json")
    found = json.loads(text)
    assert status == 0 and found["tokens"] >= 300 and found["evaluation"]["episodes"] == 8
    page = tmp_path / "page.html"
    status, text = run(capsys, "report", str(out), "--out", str(page))
    assert status == 0 and page.stat().st_size > 10_000 and str(page) in text


def test_a_configuration_file(policy, tmp_path, capsys):
    """What the command line says takes the place of what the file says."""
    file = tmp_path / "run.toml"
    file.write_text(
        f'env = "nothing"\npolicy = "{policy}"\ngamma = 0.5\ntokens = 100\nturn_tokens = 4\n'
        "context = 96\ngroups = 1\nsize = 2\nepisodes = 4\n[environment]\nhorizon = 3\n"
    )
    out = tmp_path / "run"
    argv = ("train", DEPOT, "--config", str(file), "--out", str(out), "--gamma", "0.9", "--json")
    assert run(capsys, *argv)[0] == 0
    made = json.loads((out / "config.json").read_text())
    assert (made["env"], made["gamma"], made["tokens"]) == (DEPOT, 0.9, 100)
    assert made["environment"] == {"horizon": 3}


def test_what_is_said_is_done(speller, tmp_path, capsys):
    """Every option arrives, beside what the file says and without taking away from it."""
    file = tmp_path / "run.toml"
    file.write_text(
        "turn_tokens = 4\ncontext = 1000\ngroups = 1\nsize = 2\nepisodes = 2\nseed = 5\n"
        '[environment]\naction_format = "command"\nrendering = 1\n'
    )
    out = tmp_path / "run"
    argv = ["train", "Apps", "--config", str(file), "--out", str(out), "--policy", speller]
    argv += "--gamma 0.9 --stack potential --credit final --budget-tokens 900".split()
    argv += "--budget-seconds 0.001 --difficulty 1 --rendering 0 --no-manual --json".split()
    status, text = run(capsys, *argv)
    assert status == 0 and json.loads(text)["update"] == 1
    made = json.loads((out / "config.json").read_text())
    environment = {"action_format": "command", "manual": False, "difficulty": 1, "rendering": 0}
    wanted = {"env": "headway/Apps-v0", "stack": "potential", "credit": "final", "tokens": 900}
    wanted |= {"seconds": 0.001, "seed": 5, "gamma": 0.9, "groups": 1, "environment": environment}
    assert {name: made[name] for name in wanted} == wanted
    argv = ["train", DEPOT, "--config", str(file), "--out", str(tmp_path / "no"), "--seed", "7"]
    argv += ["--set", "seed=x", "--policy", speller, "--gamma", "0.9"]
    assert "seed must be an int of at least 0, got 'x'" in refused(capsys, *argv)


def test_a_seed_that_is_said_is_the_seed(policy, tmp_path, capsys):
    for seed in ("7", "8"):
        argv = ["train", DEPOT, "--policy", policy, "--out", str(tmp_path / seed), "--seed", seed]
        assert run(capsys, *argv, *TRAIN.split(), *REST.split())[0] == 0
        assert json.loads((tmp_path / seed / "config.json").read_text())["seed"] == int(seed)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["train", "Appz", "--out", "x"], "no environment 'Appz'"),
        (["train", DEPOT, "--out", "x"], "must have policy, gamma"),
        (["train", DEPOT, "--out", "x", "--set", "gama=1"], "did you mean 'gamma'"),
        (["train", DEPOT, "--out", "x", "--set", "gamma"], "--set must be KEY=VALUE"),
        (["train", DEPOT, "--policy", "x", "--gamma", "2", "--out", "x"], "gamma must be a number"),
        (["train", DEPOT, "--config", "none.toml", "--out", "x"], "No such file"),
        (["train", "Apps", "--policy", "no", "--gamma", "1", "--out", "x"], "source must be"),
        (["report", "nowhere"], "nowhere"),
        (["sft", DEPOT, "--policy", "nowhere", "--out", "x"], "source must be"),
        (["eval", "Apps", "--policy", "nowhere"], "source must be"),
        (["eval", "Apps", "--policy", "http://localhost:1/v1"], "a URL needs --model"),
        (["eval", "Apps", "--model", "m"], "--model: is for a --policy that is a URL"),
        (["eval", "Apps", "--policy", "x", "--temperature", "-1"], "must be a number of at least"),
    ],
)
def test_wrong_usage(argv, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, *argv)


def test_sft(policy, tmp_path, capsys):
    """A policy that was cloned can be loaded, and the same call again does nothing anew."""
    argv = ["sft", DEPOT, "--policy", policy, "--out", str(tmp_path / "warm"), "--episodes", "8"]
    argv += ["--steps", "3", "--batch", "4", "--device", "cpu", "--seed", "6"]
    argv += ["--rate", "2e-3", "--noise", "0.3", "--clone-noise"]
    status, text = run(capsys, *argv)
    assert status == 0 and "Nats per cloned token" in text
    made = json.loads((tmp_path / "warm" / "sft.json").read_text())
    asked = {"episodes": 8, "steps": 3, "batch": 4, "seed": 6, "rate": 2e-3, "noise": 0.3}
    assert {name: made[name] for name in asked} == asked and made["clone_noise"] is True
    Policy.load(tmp_path / "warm")
    status, text = run(capsys, *argv, "--json")
    assert status == 0 and json.loads(text)["held"] > 0.0


def test_eval_of_a_policy(speller, capsys):
    """The same figures as of an agent; a policy that knows nothing succeeds in nothing."""
    argv = ["eval", "Apps", "--policy", speller, "--episodes", "4", "--samples", "2"]
    argv += ["--turn-tokens", "4", "--action-format", "command", "--no-manual"]
    status, text = run(capsys, *argv, "--json")
    found = json.loads(text)
    assert status == 0 and found["episodes"] == 4 and found["success"] == 0.0
    assert found["no_verdict"] == 0 and found["agent"] == speller
    assert set(found["pass_at_k"]) == {"1", "2"}
    status, text = run(capsys, *argv, "--stack", "progress", "--gamma", "0.9")
    assert status == 0 and "progress" in text and "pass@2" in text


def depot(split, kind=Depot, **settings):
    """A depot, which has no splits; exams are of the test split."""
    assert split == "test"
    return kind(**settings)


class Bare(Depot):
    """Graded at its end only, and by whoever asks."""

    def _info(self, outcome, calls, guess):
        info = super()._info(outcome, calls, guess)
        if not self._ended:
            info["headway"] |= {"verdict": None, "status": "ungraded"}
        return info


class Frail(Depot):
    """Its machine fails in the first turn of every other task."""

    def step(self, action):
        if self._seed % 2:
            raise SandboxDied("no machine", by="infra")
        return super().step(action)


EXAM = {"turn_tokens": 4, "context": 96, "horizon": 8}


def test_exams_are_of_the_tasks_of_their_seeds(policy):
    """Each as often as asked for; a policy at no temperature does the likeliest always."""
    asked = {"episodes": 6, "samples": 2, "seed0": 5, **EXAM}
    loaded = Policy.load(policy)
    greedy = examine(loaded, depot, greedy=True, **asked)
    names = [f"Depot-v0/8/{seed}" for seed in (5, 5, 6, 6, 7, 7)]
    assert [episode.task_id for episode in greedy.played] == names
    assert greedy.played[::2] == greedy.played[1::2]
    assert examine(loaded, depot, temperature=1e-3, **asked).played == greedy.played
    drawn = examine(loaded, depot, **asked).played
    assert drawn != greedy.played and drawn[::2] != drawn[1::2]


def test_exams_grade_every_turn(policy):
    """Also of worlds that do so at their end only."""
    found, wanted = (
        examine(Policy.load(policy), depot, kind=kind, episodes=8, **EXAM).played
        for kind in (Bare, Depot)
    )
    assert found == wanted and any(0.0 < episode.curve[1] < 1.0 for episode in found)


def test_an_exam_leaves_out_what_the_machine_lost(policy):
    found = examine(Policy.load(policy), depot, kind=Frail, episodes=8, **EXAM)
    assert [episode.status for episode in found.played] == ["ok", "died"] * 4
    assert (found.died, found.no_verdict, len(found.scored)) == (4, 0, 4)
    assert all("no machine" in episode.reason for episode in found.played[1::2])


def test_an_exam_is_what_was_sampled(policy):
    """Whatever the number of lanes; curves have a grade a turn and end where the episode did."""
    asked = {"episodes": 6, "samples": 2, "turn_tokens": 4, "context": 96, "horizon": 8}
    one, two = (
        examine(Policy.load(policy), depot, lanes=lanes, stack="progress", gamma=0.9, **asked)
        for lanes in (6, 2)
    )
    assert one.played == two.played and one.samples == 2
    for episode in one.played:
        last = 0.9**episode.turns * episode.curve[-1]
        assert episode.returns["progress"] == pytest.approx(0.5 * last)
        assert episode.success == (episode.curve[-1] == 1.0)
        assert len(episode.curve) == episode.turns + 1


def test_what_is_not_known_is_no_figure():
    """And what rounding left of 0 has no sign."""
    assert output.figure(math.nan, ".0%") == "-" and output.figure(0.5, ".0%") == "50%"
    assert output.amount(-1e-12) == "0.000" and output.amount(math.nan) == "-"


def test_demo_learn(tmp_path, capsys):
    """Two trainings, the figures of both, and a page."""
    page = tmp_path / "learn.html"
    status, text = run(
        capsys, "demo", "--learn", "--tokens", "100", "--jobs", "1", "--out", str(page)
    )
    assert status == 0 and "outcome" in text and "turn" in text
    assert page.stat().st_size > 10_000
