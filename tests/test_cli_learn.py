"""The commands that learn: each runs, says what came of it, and refuses what it cannot do."""

from __future__ import annotations

import json

import pytest
import torch

from headway import cli
from headway.agents.exam import examine
from headway.agents.policy import Policy
from headway.agents.tiny import bpe, tiny
from headway.bench.starts import start

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


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["train", "Appz", "--out", "x"], "no environment 'Appz'"),
        (["train", DEPOT, "--out", "x"], "must have policy, gamma"),
        (["train", DEPOT, "--out", "x", "--set", "gama=1"], "did you mean 'gamma'"),
        (["train", DEPOT, "--out", "x", "--set", "gamma"], "--set must be KEY=VALUE"),
        (["train", DEPOT, "--policy", "x", "--gamma", "2", "--out", "x"], "gamma must be a number"),
        (["train", DEPOT, "--config", "none.toml", "--out", "x"], "No such file"),
        (["train", "Apps", "--policy", "x", "--gamma", "1", "--out", "x"], "source must be"),
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
    argv += ["--steps", "3", "--batch", "4", "--device", "cpu"]
    status, text = run(capsys, *argv)
    assert status == 0 and "Nats per cloned token" in text
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


def test_an_exam_is_what_was_sampled(policy):
    """Whatever the number of lanes; curves have a grade a turn and end where the episode did."""
    from headway.bench.depot import Depot

    def made(**settings):
        settings.pop("split")
        return Depot(**settings)

    made.__name__ = "depot"
    asked = {"episodes": 6, "samples": 2, "turn_tokens": 4, "context": 96, "horizon": 8}
    one, two = (
        examine(Policy.load(policy), made, lanes=lanes, stack="progress", gamma=0.9, **asked)
        for lanes in (6, 2)
    )
    assert one.played == two.played and one.samples == 2
    for episode in one.played:
        assert episode.returns["progress"] >= 0.0
        assert episode.success == (episode.curve[-1] == 1.0)
        assert len(episode.curve) == episode.turns + 1


def test_demo_learn(tmp_path, capsys):
    """Two trainings, the figures of both, and a page."""
    page = tmp_path / "learn.html"
    status, text = run(
        capsys, "demo", "--learn", "--tokens", "100", "--jobs", "1", "--out", str(page)
    )
    assert status == 0 and "outcome" in text and "turn" in text
    assert page.stat().st_size > 10_000
