"""The experiment on credit: its arithmetic, its resumption, its arms, and that a policy learns."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from rich.console import Console

from headway.agents.credit import ESTIMATORS
from headway.agents.log import LOG, lines
from headway.agents.placebo import PLACEBOS as KINDS
from headway.agents.trainer import environment, estimator
from headway.bench import learning
from headway.bench.arms import ARMS, PLACEBOS, PROGRESS, WORLDS
from headway.bench.experiment import seeds
from headway.bench.learning import (
    Job,
    Run,
    configuration,
    folder_of,
    main,
    run,
    table,
)
from headway.bench.live import WIDTH, curve, picture, race

torch.set_num_threads(1)


def done(arm, seed, success, seconds=10.0, rate=1.0, tokens=75_000, progress=0.5):
    points = tuple((n * 100.0, n * seconds / 4, success * n / 4, 0.5) for n in range(1, 5))
    job = Job("depot", arm, seed, rate, tokens)
    return Run(job, success, progress, 400, seconds, points, ("length",) * (arm == "final"))


def test_differences_are_taken_seed_by_seed():
    """Seeds differ much more than arms do; paired, the small difference is sure."""
    runs = {
        "outcome": [done("outcome", n, n / 10) for n in range(5)],
        "turn": [done("turn", n, n / 10 + 0.1) for n in range(5)],
        "final": [done("final", n, n / 10 + 0.05) for n in range(5)],
        "shuffledturns": [done("shuffledturns", n, n / 10 + 0.02) for n in range(5)],
    }
    found = table(runs)
    assert found["turn"]["gap"] == pytest.approx(0.1)
    assert found["turn"]["gap_95"] == (pytest.approx(0.1), pytest.approx(0.1))
    assert found["turn"]["over_shuffledturns"] == pytest.approx(0.08)
    assert found["turn"]["success_95"][1] - found["turn"]["success_95"][0] > 0.3
    assert found["final"]["alarms"] == {"length": 5} and not found["turn"]["alarms"]
    assert "gap" not in found["outcome"]


def test_placebos_are_corrected_together():
    """Three of them get wider intervals than each would get alone."""
    import random

    rng = random.Random(0)
    runs = {"outcome": [done("outcome", n, 0.5) for n in range(6)]}
    for arm in ("shuffled", "random", "mismatch", "turn"):
        runs[arm] = [done(arm, n, 0.5 + rng.uniform(-0.1, 0.1)) for n in range(6)]
    alone = {arm: table({"outcome": runs["outcome"], arm: runs[arm]})[arm] for arm in runs}
    together = table(runs)
    for arm in ("shuffled", "random", "mismatch"):
        low, high = together[arm]["gap_95"]
        assert low < alone[arm]["gap_95"][0] and high > alone[arm]["gap_95"][1]
    assert together["turn"]["gap_95"] == alone["turn"]["gap_95"]


def test_equal_time_is_that_of_the_fastest():
    """The slower arm is read off where the faster one was done: mean of the last three updates."""
    slow, fast = done("turn", 0, 0.8, seconds=20.0), done("outcome", 0, 0.4, seconds=10.0)
    found = table({"outcome": [fast], "turn": [slow]})
    assert found["outcome"]["timed"] == pytest.approx(0.4 * (2 + 3 + 4) / 12)
    assert found["turn"]["timed"] == pytest.approx(0.8 * (1 + 2) / 8)


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_can_be_made(arm, tmp_path):
    """Its layers, its estimator and its placebo exist; the stack is the one it is named for."""
    job = Job(ARMS[arm].worlds[0], arm, 3, 1.0, 1000)
    found = configuration(tmp_path, job)
    estimator(found.credit)
    assert found.placebo is None or found.placebo in KINDS
    assert (found.placebo is not None or found.control == "mismatch") == (
        arm in PLACEBOS or arm == "shuffledturns"
    )
    if job.world == "depot":
        env = environment(found)
        _, info = env.reset(seed=0)
        paid = set(info["headway"]["channels"])
        assert bool(paid) == (found.stack != "")
    assert found.tokens == 1000 and found.seed == 3
    assert (found.stack == "") == (ARMS[arm].settings.get("stack", PROGRESS) == "")
    world = WORLDS[job.world].settings
    faster = configuration(tmp_path, Job(job.world, arm, 3, 2.0, 1000))
    assert (found.rate, faster.rate) == (world["rate"], 2.0 * world["rate"])
    assert (found.gamma, found.policy) == (world["gamma"], str(tmp_path / f"start-{job.world}"))


def test_arms_differ_by_what_they_are_named_for(tmp_path):
    """No two are the same; placebos are an arm of the same credit but for what is paid."""
    settings = {
        name: {"stack": PROGRESS, **arm.settings, "faster": arm.faster}
        for name, arm in ARMS.items()
    }
    kinds = [str(sorted(found.items())) for found in settings.values()]
    assert len(set(kinds)) == len(kinds)
    placebos = {name: dict(found) for name, found in settings.items() if "placebo" in found}
    assert sorted(found.pop("placebo") for found in placebos.values()) == sorted(KINDS)
    assert all(found in (settings["turn"], settings["final"]) for found in placebos.values())
    paid = [name for name, found in settings.items() if found["credit"] == "outcome"]
    assert paid and all(settings[name]["stack"] == "" for name in paid)
    assert ARMS["outcome2x"].settings == ARMS["outcome"].settings
    fading = configuration(tmp_path, Job("depot", "annealed", 3, 1.0, 1000))
    assert fading.stack == f"{PROGRESS},anneal(steps=600)"
    assert dict(settings["mismatched"]) == {**settings["igpo"], "control": "mismatch"}


def test_the_names_that_others_rely_on():
    assert list(ARMS)[:4] == ["outcome", "outcome2x", "final", "turn"]
    assert ARMS["turn"].settings["credit"] in ESTIMATORS and ARMS["outcome2x"].faster == 2.0


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch, capsys):
    """A file with a torn last line is taken up; the best rate of each arm is the one that is used.

    The arm at twice the rate takes that of ``outcome``.
    """
    entries = [
        done(arm, seed, 0.1 * seed + (rate == 0.5) * 0.2, rate=rate, tokens=tokens, progress=rate)
        for arm in ("outcome", "turn")
        for rate in (0.5, 1.0)
        for seed, tokens in [(1, 2000), (2, 2000), (9, 1000)]
    ]
    entries += [done("outcome2x", seed, 0.3, tokens=2000) for seed in (1, 2)]
    lines = [json.dumps({"commit": "c", **asdict(entry)}) + "\n" for entry in entries]
    (tmp_path / "runs.jsonl").write_text("".join(lines) + '{"job": {"arm"')
    monkeypatch.setattr(learning, "seeds", lambda count, purpose, commit: [9])
    status = main(
        "--arms outcome,outcome2x,turn --rates 0.5,1 --seeds 1,2 --tokens 2000 --json "
        f"--commit c --jobs 1 --out {tmp_path}".split()
    )
    found = json.loads(capsys.readouterr().out)["runs"]
    assert (
        status == 0
        and [row["arm"] for row in found] == ["outcome"] * 2 + ["outcome2x"] * 2 + ["turn"] * 2
    )
    assert set(found[0]) == {"world", "arm", "seed", "success", "progress", "tokens", "seconds"}
    assert found[0]["success"] == pytest.approx(0.3) and found[2]["success"] == 0.3
    assert (tmp_path / "runs.jsonl").read_text() == "".join(lines)
    assert (tmp_path / "learning-depot.png").stat().st_size > 5000


def test_rates_are_tuned_on_seeds_of_their_own(tmp_path, monkeypatch, capsys):
    """Nothing has to be run but what is drawn for either purpose, at half of the tokens."""
    drawn = [(seed, 1000) for seed in seeds(3, "tuning", "c")]
    drawn += [(seed, 2000) for seed in seeds(2, "final", "c")]
    entries = [
        done("outcome", seed, 0.1 * rate, rate=rate, tokens=tokens)
        for seed, tokens in drawn
        for rate in (0.5, 1.0)
    ]
    lines = [json.dumps({"commit": "c", **asdict(entry)}) + "\n" for entry in entries]
    (tmp_path / "runs.jsonl").write_text("".join(lines))

    def run(out, job):
        raise AssertionError(f"{job} was not asked for")

    monkeypatch.setattr(learning, "run", run)
    argv = "--arms outcome --rates 0.5,1 --count 2 --tuning 3 --tokens 2000 --json --jobs 1"
    assert main([*argv.split(), "--commit", "c", "--out", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [row["seed"] for row in found] == seeds(2, "final", "c")
    assert all(row["success"] == pytest.approx(0.1) for row in found)


def test_half_a_run_is_begun_anew(tmp_path):
    """What was left of one that was killed would be points of the curve that nobody has heard."""
    WORLDS["depot"].start(tmp_path / "start-depot")
    job = Job("depot", "outcome", 5, 1.0, 100)
    folder_of(tmp_path, job).mkdir()
    (folder_of(tmp_path, job) / LOG).write_text('{"update": 0}\n')
    found = run(tmp_path, job)
    rows = [row for _, row in lines(folder_of(tmp_path, job) / LOG)]
    assert [point[0] for point in found.curve] == [row["tokens"] for row in rows[:-1]]
    held = rows[-1]["test"]
    assert (found.success, found.progress) == (held["success"], held["progress"])
    assert found.tokens == rows[-1]["tokens"]


def test_explicit_flags_override_quick(tmp_path, capsys):
    """Two runs of one update each, and nothing but the object on stdout."""
    argv = "--quick --arms outcome --seeds 1,2 --tokens 100 --jobs 1 --json --commit c"
    assert main([*argv.split(), "--out", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [row["seed"] for row in found] == [1, 2] and found[0]["tokens"] < 5000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--arms turns", "did you mean 'turn'?"),
        ("--world depots", "did you mean 'depot'?"),
        ("--rates 0", "must be numbers above 0"),
        ("--seeds 1,1", "must differ"),
        ("--jobs 0", "--jobs: must be at least 1"),
    ],
)
def test_wrong_usage(arguments, message, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments.split())
    assert error.value.code == 2 and message in capsys.readouterr().err


def test_turn_credit_learns(tmp_path):
    """The trend of a short run from an easy start: more progress than at first, and a success.

    Where the outcome alone learns little: 12,000 tokens are eight updates.
    """
    start = tmp_path / "start-depot"
    WORLDS["depot"].start(start)
    found = run(tmp_path, Job("depot", "turn", 5, 1.0, 12_000))
    assert found.progress > found.curve[0][3] + 0.1
    assert not (folder_of(tmp_path, found.job) / "state.json").exists()
    assert list(folder_of(tmp_path, found.job).glob("update-*")) == []


# Live curves.


def test_a_curve_is_as_wide_as_what_is_known():
    assert curve([], 100) == " " * WIDTH
    full = curve([(n, n / 100) for n in range(101)], 100)
    assert len(full) == WIDTH and full[0] == "▁" and full[-1] == "█"
    assert full == "".join(sorted(full))
    half = curve([(n, 1.0) for n in range(51)], 100)
    assert half.rstrip() == "█" * (WIDTH // 2 + 1)
    assert curve([(0, 0.0), (500, 1.0)], 100)[-1] == "█"
    assert curve([(0, 1.0), (1, 0.0)], 100).rstrip() == "▄"
    assert curve([(0, 1.0), (50, 0.0)], 100).rstrip() == "█" * (WIDTH // 2) + "▁"


def test_a_picture_is_of_what_was_measured(tmp_path):
    """Updates without a verdict are left out, and runs that have not begun are empty."""
    jobs = [Job("depot", arm, 0, 1.0, 100) for arm in ("outcome", "turn")]
    folder_of(tmp_path, jobs[0]).mkdir()
    rows = [{"success": 0.5, "progress": 0.25}, {"success": None, "progress": None}]
    told = [{"update": n, "tokens": 10 * n, "seconds": 2.0, **row} for n, row in enumerate(rows)]
    text = "".join(json.dumps(row) + "\n" for row in told)
    (folder_of(tmp_path, jobs[0]) / LOG).write_text(text)
    columns = [list(column.cells) for column in picture(tmp_path, jobs).columns]
    assert columns[0] == ["outcome", "turn"] and columns[2] == ["50%", "0%"]
    assert [bars.rstrip() for bars in columns[1]] == ["▄", ""] and columns[3] == ["0.25", "0.00"]


def test_two_learners_side_by_side(tmp_path: Path):
    out = io.StringIO()
    console = Console(file=out, width=140, force_terminal=True)
    runs = race(tmp_path, console, seed=0, tokens=100, jobs=1)
    assert [found.job for found in runs] == [
        Job("depot", arm, 0, 1.0, 100) for arm in ("outcome", "turn")
    ]
    assert "Success of training episodes" in out.getvalue()
