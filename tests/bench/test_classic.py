"""The experiment on House: its arithmetic, its resumption, and that a policy learns in it."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path

import pytest

from headway.bench import classic
from headway.bench.classic import ARMS, FIRST, Job, Run, main, table, world
from headway.wrappers.channel import layers_of


def run(arm: str, seed: int, *curve: float, rate: float = 7e-4, steps: int = 200_000) -> Run:
    return Run(Job(arm, 1, rate, seed, steps), curve, 0.5, 1.0)


def test_differences_are_taken_seed_by_seed() -> None:
    """Seeds differ much more than arms do; paired, the small difference is sure."""
    runs = {
        "sparse": [run("sparse", n, n / 10, n / 10) for n in range(5)],
        "potential": [run("potential", n, n / 10 + 0.1, n / 10 + 0.12) for n in range(5)],
    }
    row = table(runs, {"sparse": 1e-3, "potential": 7e-4})["potential"]
    assert row["minus_sparse"] == pytest.approx(0.11) and row["rate"] == 7e-4
    assert row["minus_sparse_95"] == (pytest.approx(0.11), pytest.approx(0.11))
    assert row["area_95"][1] - row["area_95"][0] > 0.3


def test_every_arm_can_be_built_and_pays_what_it_says() -> None:
    """One turn of each; the outcome is that of the bare environment in all of them."""
    for arm in ARMS:
        env = world(Job(arm, 1, 7e-4, 3, 100), 0)
        env.reset(seed=0)
        *_, info = env.step(0)
        assert info["base"] == 0.0 and bool(info["channels"]) == (arm != "sparse")


def test_lanes_have_placebos_of_their_own() -> None:
    """In one run and in others."""
    streams = [
        json.dumps(next(layers_of(world(Job("placebo", 1, 7e-4, seed, 100), lane))).get_state())
        for seed in (3, 4)
        for lane in (0, 1)
    ]
    assert len(set(streams)) == 4


def test_the_curriculum() -> None:
    """One goal until 40 % of the steps, then every other episode; always where one is the aim."""

    def difficulties(goals: int, share: float) -> list[str]:
        env = world(Job("sparse", goals, 7e-4, 3, 100), 0)
        env.share = share
        return [env.reset()[1]["task_id"].split("/")[2] for _ in range(4)]

    assert difficulties(1, 0.9) == ["d1"] * 4
    assert difficulties(2, FIRST - 0.01) == ["d1"] * 4
    assert difficulties(2, FIRST) == ["d2", "d1"] * 2


def test_what_is_done_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file with a torn last line is taken up; the best rate of each arm is the one reported."""
    entries = [
        run(arm, seed, 0.1 * seed + (rate == 1.5e-3) * 0.2, rate=rate, steps=steps)
        for arm in ("sparse", "potential")
        for rate in (7e-4, 1.5e-3)
        for seed, steps in [(1, 6000), (2, 6000), (9, 3000)]
    ]
    lines = [json.dumps({"commit": "c", **asdict(entry)}) + "\n" for entry in entries]
    other = run("sparse", 1, 0.9, rate=1.5e-3, steps=6000)
    lines.append(json.dumps({"commit": "d", **asdict(other)}) + "\n")
    (tmp_path / "runs.jsonl").write_text("".join(lines) + '{"job": {"arm": "spar')
    monkeypatch.setattr(classic, "seeds", lambda count, purpose, commit: [9])
    status = main(
        "--goals 1 --arms sparse,potential --rates 7e-4,1.5e-3 --seeds 1,2 --steps 6000 --json "
        f"--commit c --jobs 1 --out {tmp_path}".split()
    )
    out = capsys.readouterr().out
    found = json.loads(out)["goals"]["1"]
    assert status == 0 and {row["rate"] for row in found.values()} == {1.5e-3}
    assert found["sparse"]["area"] == pytest.approx(0.35)
    assert (tmp_path / "runs.jsonl").read_text() == "".join(lines)
    assert (tmp_path / "classic-1.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--arms sprase", "did you mean 'sparse'?"),
        ("--goals 3", "must be one of"),
        ("--count 1", "--count: must be at least 2, got 1"),
        ("--steps 100", "--steps: must be at least 5000, got 100"),
        ("--seeds 4", "must be 2 or more that differ, got [4]"),
        ("--seeds 4,4", "must be 2 or more that differ, got [4, 4]"),
        ("--rates 0", "must be numbers in (0, 1), got [0.0]"),
        ("--out /proc/no", "--out: "),
        ("--rates fast", "invalid float list value: 'fast'"),
    ],
)
def test_wrong_usage(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments.split())
    assert left.value.code == 2 and message in capsys.readouterr().err


def test_a_policy_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Success rises within 60,000 steps of shaped training; a longer one is the experiment."""
    monkeypatch.setattr(classic, "TESTS", 20)
    monkeypatch.setattr(classic, "WORLDS", 16)
    curve = classic.train(Job("potential", 1, 1.5e-3, 7, 60_000)).curve
    assert len(curve) == 12
    assert statistics.fmean(curve[-3:]) > statistics.fmean(curve[:3]) + 0.1
