"""The report: what is drawn is what was logged, and no text can do more than be read."""

from __future__ import annotations

import base64
import html
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.agents import page, report, runs, viewer
from headway.agents.runs import Arm, Episode, Run, Turn

EVIL = "</script></pre><script>alert('$x')</script>\"'&amp;\x00\x1b[31m\u202eabc\ud800 "
SHOWN = "</script></pre><script>alert('$x')</script>\"'&amp;\\x00\\x1b[31m\\u202eabc\\ud800 "

CHECKS = ("mail.sent", "mail.amount", "note.kept")


def row_of(update, skill, rng, **more):
    """A line of a log; everything in it is measured."""
    tokens, seconds = 1000 * (update + 1), 20.0 * (update + 1)
    return {
        "update": update,
        "tokens": tokens,
        "seconds": seconds,
        "success": float(np.clip(skill + rng.normal(0, 0.05), 0, 1)),
        "progress": float(np.clip(0.2 + 0.8 * skill + rng.normal(0, 0.05), 0, 1)),
        "turns": 8.0 - 4 * skill,
        "refused": 0.3 * (1 - skill),
        "cut": 0.02,
        "unscored": 0,
        "silent": 0.5 * (1 - skill),
        "kl": float(rng.exponential(0.003)),
        "norm": float(rng.exponential(1.0)),
        "rate": 1e-4,
        "rolled_back": 0,
        "moved": 0.01,
        "entropy": 1.5 - skill,
        "gap": 1e-6,
        "returns": {"base": skill, "progress": 0.5 * skill},
        "share": {"base": 1.0 - 0.5 * skill, "progress": 0.5 * skill},
        "variance": {"progress": 0.01},
        "length": {"base": 0.05, "progress": 0.1},
        "ledger": {
            "tokens": {"policy": tokens, "prefill": 3 * tokens},
            "seconds": {"policy": 0.7 * seconds, "learner": 0.3 * seconds},
        },
        "alarms": [],
        **more,
    }


def episode_of(update, success, turns=4, **more):
    """A line of kept episodes."""
    curve = [0.0] + [(n + 1) / turns if success else 0.1 for n in range(turns)]
    return {
        "update": update,
        "task_id": "Apps-v0/bills/d1/R2/train/7",
        "group": 0,
        "success": success,
        "ended": "terminated",
        "prompt": "Split the bill.",
        "progress": curve,
        "turns": [
            {
                "action": f"call {n}",
                "observation": f"reply {n}",
                "base": float(success and n == turns - 1),
                "channels": {"progress": 0.5 * (curve[n + 1] - curve[n])},
                "ok": list(CHECKS[: n + 1]) if success else [],
                "progress": curve[n + 1],
                "advantage": 0.25 * n - 0.3,
                "cut": n == 2,
            }
            for n in range(turns)
        ],
        **more,
    }


def write_run(
    folder,
    *,
    seed=0,
    updates=30,
    gain=1.0,
    finished=False,
    change=lambda row: row,
    episodes=None,
    **cfg,
):
    """The folder of a run as the trainer writes it."""
    folder.mkdir(parents=True)
    config = {
        "env": "headway/Apps-v0",
        "credit": "turn",
        "environment": {"difficulty": 1},
        "seed": seed,
        **cfg,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    rng = np.random.default_rng([seed, len(folder.name)])
    rows = []
    # The last line of a finished run is that of an evaluation, without an update.
    for update in range(updates + finished):
        skill = gain * update / 30
        row = row_of(update, min(1.0, skill), rng)
        if update == updates:
            row = {"update": update, "tokens": 1000 * update, "seconds": 20.0 * update}
        if update % 10 == 0 or update == updates:
            share = round(64 * min(1.0, 0.8 * skill)) / 64
            row["evaluation"] = {
                "success": share,
                "progress": 0.2 + 0.5 * share,
                "episodes": 64,
                "low": max(0.0, share - 0.1),
                "high": min(1.0, share + 0.1),
            }
        if update == updates:  # on other tasks, and a little lower
            row["test"] = {**row["evaluation"], "success": 0.9 * share}
        rows.append(row if update == updates else change(row))
    (folder / "log.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    if episodes is None:
        episodes = [episode_of(u, bool(rng.random() < u / 30)) for u in range(updates)]
    (folder / "episodes.jsonl").write_text(
        "".join(json.dumps(episode) + "\n" for episode in episodes), encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two arms of three seeds."""
    root = tmp_path_factory.mktemp("runs")
    return [
        write_run(
            root / f"{credit}-{seed}",
            seed=seed,
            gain=gain + 0.05 * seed,
            credit=credit,
            finished=True,
        )
        for credit, gain in (("turn", 1.0), ("outcome", 0.5))
        for seed in range(3)
    ]


@pytest.fixture(scope="module")
def written(folders, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "report.html"
    report.write(folders, file)
    return file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read_page(strict_page, written):
    return strict_page(written)


def figures(text):
    """The charts of a page: title, then one SVG for each horizontal axis."""
    found = {}
    for title, body in re.findall(
        r'<figure class="card"><h3>([^<]*)</h3>(.*?)</figure>', text, re.DOTALL
    ):
        charts = re.findall(r'<svg class="chart by-(\w+)".*?</svg>', body, re.DOTALL)
        parts = re.findall(r"<svg class=\"chart.*?</svg>", body, re.DOTALL)
        found[title] = dict(zip(charts, parts, strict=True))
    return found


def points(svg, arm, what="line"):
    """Where the lines of an arm run, as shares of the chart's width and height."""
    width = page.WIDTH - page.LEFT - page.RIGHT
    height = page.HEIGHT - page.TOP - page.BOTTOM
    found = re.findall(rf'class="{what} arm-{arm} n{arm}" points="([^"]*)"', svg)
    return [
        [
            ((float(x) - page.LEFT) / width, (page.HEIGHT - page.BOTTOM - float(y)) / height)
            for x, y in (pair.split(",") for pair in line.split())
        ]
        for line in found
    ]


# Curves.

CURVE = st.lists(
    st.tuples(st.floats(0, 1e6, width=32), st.floats(-1e3, 1e3, width=32)),
    min_size=1,
    max_size=60,
    unique_by=lambda point: point[0],
).map(sorted)


@given(CURVE, st.integers(1, 9))
def test_smoothing_keeps_lines_and_stays_inside(curve, window):
    """A straight line is its own running mean, and no mean leaves the range of what it is of."""
    line = [3.0 * n - 2.0 for n in range(len(curve))]
    found = runs.smoothed([(x, y) for (x, _), y in zip(curve, line, strict=True)], window)
    assert [y for _, y in found] == pytest.approx(line)
    found = runs.smoothed(curve, window)
    assert [x for x, _ in found] == [x for x, _ in curve]
    half = window // 2
    for at, (_, y) in enumerate(found):
        near = [v for _, v in curve[max(0, at - half) : at + half + 1]]
        assert min(near) - 1e-6 <= y <= max(near) + 1e-6


def test_smoothing_is_a_centred_mean():
    curve = [(float(n), float(v)) for n, v in enumerate((0, 0, 9, 0, 0, 6))]
    assert [y for _, y in runs.smoothed(curve, 3)] == [0, 3, 3, 3, 2, 6]
    assert runs.smoothed(curve, 1) == curve


@given(CURVE, st.integers(1, 70))
def test_thinning_averages_all_of_it(curve, most):
    """No point is lost: means of neighbours, in order, weighted by their number."""
    found = runs.thinned(curve, most)
    assert len(found) == min(most, len(curve))
    if most >= len(curve):
        assert found == curve
    sizes = [
        len(curve) * (n + 1) // len(found) - len(curve) * n // len(found) for n in range(len(found))
    ]
    assert max(sizes) - min(sizes) <= 1
    total = sum(size * y for size, (_, y) in zip(sizes, found, strict=True))
    assert total == pytest.approx(sum(y for _, y in curve), abs=1e-6)


def test_the_mean_of_one_curve_is_itself_and_has_no_interval():
    curve = [(1.0, 2.0), (5.0, 3.0)]
    assert runs.mean_curve([curve]) == (curve, [])
    assert runs.mean_curve([]) == ([], [])
    assert runs.mean_curve([curve, []]) == ([], [])


def test_the_mean_is_over_the_common_range_only():
    """Where one run has ended, the others alone would shift the mean."""
    long, short = [(0.0, 0.0), (10.0, 10.0)], [(2.0, 4.0), (6.0, 4.0)]
    mean, half = runs.mean_curve([long, short])
    assert mean == [(2.0, 3.0), (6.0, 5.0)]
    # Two values a and b: 12.706 * |a - b| / sqrt(2) / sqrt(2).
    assert half == pytest.approx([12.7062 * 2 / 2, 12.7062 * 2 / 2], rel=1e-4)
    assert runs.mean_curve([[(0.0, 1.0), (1.0, 1.0)], [(2.0, 1.0), (3.0, 1.0)]]) == ([], [])


@given(st.lists(CURVE, min_size=2, max_size=4), st.floats(-5, 5))
@settings(max_examples=50)
def test_the_mean_moves_with_all_of_them(curves, by):
    mean, half = runs.mean_curve(curves)
    moved, same = runs.mean_curve([[(x, y + by) for x, y in curve] for curve in curves])
    assert [x for x, _ in moved] == [x for x, _ in mean]
    assert [y for _, y in moved] == pytest.approx([y + by for _, y in mean], abs=1e-6)
    assert same == pytest.approx(half, abs=1e-4)
    assert len(half) == len(mean) <= max(runs.POINTS, 0)


@pytest.mark.parametrize(("count", "t"), [(2, 12.7062), (3, 4.30265), (5, 2.77645), (11, 2.22814)])
def test_intervals_are_students(count, t):
    """Quantiles as they stand in any table of Student's t."""
    values = [0.1 * n * n for n in range(count)]
    expected = t * np.std(values, ddof=1) / math.sqrt(count)
    assert runs.half_width(values) == pytest.approx(expected, rel=1e-5)


# Arms.


def test_arms_are_runs_that_differ_in_the_seed_alone(folders):
    found = runs.arms([runs.read(folder) for folder in folders])
    assert [(arm.name, len(arm.runs)) for arm in found] == [
        ("credit turn", 3),
        ("credit outcome", 3),
    ]
    assert [arm.number for arm in found] == [0, 1]


def test_the_same_seed_twice_is_not_two_seeds(tmp_path):
    """Copies of one run would make an interval of nothing."""
    twice = [runs.read(write_run(tmp_path / name, updates=2)) for name in ("a", "b")]
    found = runs.arms(twice)
    assert [len(arm.runs) for arm in found] == [1, 1]
    assert len({arm.name for arm in found}) == 2


def test_the_same_folder_twice_is_one_run(tmp_path, strict_page):
    folder = write_run(tmp_path / "run", updates=2)
    report.write([folder, tmp_path / "run" / ".." / "run"], tmp_path / "page.html")
    read = strict_page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert len([a for t, a in read.tags if "data-arm" in a]) == 1


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (({"rate": 0.1}, {"rate": 0.2}), ("rate 0.1", "rate 0.2")),
        (({"rate": 0.1, "edge": True}, {"rate": 0.2}), ("rate 0.1, edge true", "rate 0.2")),
        (
            ({"edge": True, "lora": None}, {"edge": False}),
            ("edge true, lora null", "edge false, lora absent"),
        ),
        (
            ({"lora": None, "stack": ""}, {"stack": "x"}, {}),
            ("lora null, stack empty", "lora absent, stack x", "lora absent, stack absent"),
        ),
        (
            ({"environment": {"difficulty": 1}}, {"environment": {"difficulty": 2}}),
            ("environment.difficulty 1", "environment.difficulty 2"),
        ),
        (({},), ("0",)),
    ],
)
def test_an_arm_says_what_sets_it_apart(tmp_path, settings, names):
    """What is off is left out, as long as every arm still has a name and no two have one."""
    found = [
        runs.read(write_run(tmp_path / str(n), updates=1, **one)) for n, one in enumerate(settings)
    ]
    assert [arm.name for arm in runs.arms(found)] == list(names)


# Reading.


def test_a_killed_run_is_read_as_far_as_it_got(tmp_path, strict_page):
    folder = write_run(tmp_path / "run", updates=5)
    for name in ("log.jsonl", "episodes.jsonl"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(text[:-30], encoding="utf-8")
    found = runs.read(folder)
    assert len(found.rows) == len(found.episodes) == 4
    report.write([folder], tmp_path / "page.html")
    said = strict_page((tmp_path / "page.html").read_text(encoding="utf-8")).text
    assert "run: 1 line of log.jsonl could not be read and were left out (5)" in said
    assert "run: 1 line of episodes.jsonl could not be read and were left out (5)" in said


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "3",
        "{}",
        '"text"',
        '{"update": 1}',
        '{"update": 1, "tokens": null, "seconds": 1}',
        '{"update": 1, "tokens": -5, "seconds": 1}',
        '{"update": 1, "tokens": NaN, "seconds": 1}',
        '{"update": 1, "tokens": true, "seconds": 1}',
        '{"update": "x", "tokens": 1, "seconds": 1}',
        '{"update": 1, "tokens": 1' + "0" * 400 + ', "seconds": 1}',
        '{"update": Infinity, "tokens": 1, "seconds": 1}',
        '{"update": 1' + "0" * 400 + ', "tokens": 1, "seconds": 1}',
        '{"update": -1, "tokens": 1, "seconds": 1}',
        "[" * 100_000,
        '{"update": 1, "turns": [{}], "progress": []}',
        '{"update":0,"task_id":"","success":true,"ended":"","prompt":"","progress":[],"turns":[]}',
        "\x00\xff",
    ],
)
def test_no_line_can_crash_it(tmp_path, line):
    """A line that says nothing is counted, and the lines around it stand."""
    folder = write_run(tmp_path / "run", updates=2)
    for name in ("log.jsonl", "episodes.jsonl"):
        first, last = (folder / name).read_bytes().splitlines(keepends=True)
        (folder / name).write_bytes(first + line.encode("latin-1") + b"\n" + last)
    found = runs.read(folder)
    assert [row["update"] for row in found.rows] == [0, 1]
    assert [episode.update for episode in found.episodes] == [0, 1]
    assert [note.partition(" could")[0] for note in found.notes] == [
        "1 line of log.jsonl",
        "1 line of episodes.jsonl",
    ]


def test_a_resumed_run_counts_no_update_twice(tmp_path):
    folder = write_run(tmp_path / "run", updates=3)
    text = (folder / "log.jsonl").read_text(encoding="utf-8")
    again = json.dumps({**json.loads(text.splitlines()[1]), "kl": 0.5})
    (folder / "log.jsonl").write_text(text + again + "\n", encoding="utf-8")
    found = runs.read(folder)
    assert [row["update"] for row in found.rows] == [0, 1, 2]
    assert found.rows[1]["kl"] == 0.5


@pytest.mark.parametrize(
    "value", ["null", "NaN", "Infinity", "true", '"0.5"', "[1]", "1" + "0" * 400]
)
def test_what_was_not_measured_is_no_number(tmp_path, value):
    """Nothing but a finite number is drawn: not as 0, and not at the edge."""
    folder = write_run(tmp_path / "run", updates=4)
    text = (folder / "log.jsonl").read_text(encoding="utf-8")
    lines = [re.sub(r'"kl": [^,]*', f'"kl": {value}', line) for line in text.splitlines()]
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = runs.read(folder)
    assert len(found.rows) == 4
    assert found.series("tokens", "kl") == []
    assert "Not measured: divergence, nats a token." in html.unescape(report.page([found]))


@pytest.mark.parametrize("name", ["config.json", "log.jsonl"])
def test_what_is_no_run_is_named(tmp_path, name):
    folder = write_run(tmp_path / "run", updates=1)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=rf"but {re.escape(str(folder))} has no {name}"):
        report.write([folder], tmp_path / "page.html")


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_a_broken_configuration_is_named(tmp_path, text):
    folder = write_run(tmp_path / "run", updates=1)
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json must be"):
        report.write([folder], tmp_path / "page.html")


def test_no_folder_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="at least one run, got none"):
        report.write([], tmp_path / "page.html")


def test_a_run_that_has_not_begun_makes_a_page(tmp_path, strict_page):
    folder = write_run(tmp_path / "run", updates=0)
    (folder / "episodes.jsonl").unlink()
    report.write([folder], tmp_path / "page.html")
    said = strict_page((tmp_path / "page.html").read_text(encoding="utf-8")).text
    for text in ("no update is logged yet", "episodes.jsonl is missing", "No evaluation is logged"):
        assert text in said


# What the page shows.


def test_page_needs_nothing_from_outside(read_page, written):
    read_page.needs_nothing()
    for word in ("http:", "https:", "url(", "@import", "fetch(", "import("):
        assert word not in written
    assert "default-src 'none'" in written
    assert not re.search(r"\bNaN\b|\bInfinity\b|\bnan\b|\binf\b", written)


def test_every_chart_is_there_for_both_axes(written):
    found = figures(written)
    titles = ["success, held out", "progress, held out", "success in training"]
    titles += ["progress in training", *(title for _, title in report.DETAILS)]
    titles += ["return of base", "return of progress", "share of the advantages: progress"]
    titles += ["variance without a success: progress", "correlation with length: progress"]
    for title in titles:
        assert list(found[title]) == ["tokens", "seconds"], title
        for svg in found[title].values():
            assert all(points(svg, arm) for arm in (0, 1)), title


def test_held_out_curves_are_the_means_of_the_evaluations(folders, written):
    """Where all seeds are evaluated, the line passes through their mean; dots are single ones."""
    svg = figures(written)["success, held out"]["tokens"]
    for arm, group in enumerate((folders[:3], folders[3:])):
        rows = [[r for r in runs.read(f).rows if "evaluation" in r] for f in group]
        means = [fmean(r["evaluation"]["success"] for r in at) for at in zip(*rows, strict=True)]
        (line,) = points(svg, arm)
        assert [y for _, y in line] == pytest.approx(means, abs=1e-3)
        # An evaluation is of the policy before the update whose line it stands in.
        assert [x for x, _ in line] == pytest.approx([0, 1 / 3, 2 / 3, 1], abs=1e-3)
        assert svg.count("h0", svg.index(f'class="dots arm-{arm} ')) >= 3 * len(means)
        half = [
            runs.half_width([r["evaluation"]["success"] for r in at])
            for at in zip(*rows, strict=True)
        ]
        (band,) = re.findall(rf'class="band arm-{arm} n{arm}" d="M([^Z]*)Z"', svg)
        corners = [tuple(map(float, pair.split())) for pair in band.split("L")]
        height = page.HEIGHT - page.TOP - page.BOTTOM
        ups = [(page.HEIGHT - page.BOTTOM - y) / height for _, y in corners]
        top = [min(1.0, m + h) for m, h in zip(means, half, strict=True)]
        low = [max(0.0, m - h) for m, h in zip(means, half, strict=True)]
        assert ups == pytest.approx([*top, *reversed(low)], abs=1e-3)


def test_areas_end_where_shares_do(tmp_path):
    """The interval of a mean near 1 passes 1, where nothing can be."""

    def change(row):
        return {**row, "success": 1.0 - 0.2 * (row["update"] % 2)}

    found = [
        runs.read(write_run(tmp_path / "a", seed=0, updates=4, change=change)),
        runs.read(write_run(tmp_path / "b", seed=1, updates=4)),
    ]
    svg = figures(report.page(found))["success in training"]["tokens"]
    (band,) = re.findall(r'class="band[^"]*" d="M([^Z]*)Z"', svg)
    ups = [float(pair.split()[1]) for pair in band.split("L")]
    assert min(ups) == page.TOP and max(ups) == page.HEIGHT - page.BOTTOM


def test_one_run_shows_the_interval_of_its_evaluations(tmp_path):
    folder = write_run(tmp_path / "run")
    svg = figures(report.page([runs.read(folder)]))["success, held out"]["tokens"]
    rows = [row["evaluation"] for row in runs.read(folder).rows if "evaluation" in row]
    found = re.findall(r'class="whisker[^"]*" d="M[\d.]+ ([\d.]+)L[\d.]+ ([\d.]+)"', svg)
    height = page.HEIGHT - page.TOP - page.BOTTOM
    shares = [tuple((page.HEIGHT - page.BOTTOM - float(y)) / height for y in one) for one in found]
    assert shares == [pytest.approx((row["low"], row["high"]), abs=1e-3) for row in rows]
    assert "band" not in svg


def test_training_curves_are_running_means(tmp_path):
    folder = write_run(tmp_path / "run", updates=3 * runs.SMOOTH)
    svg = figures(report.page([runs.read(folder)]))["progress in training"]["tokens"]
    expected = runs.smoothed(runs.read(folder).series("tokens", "progress"), 3)
    assert [y for _, y in points(svg, 0)[0]] == pytest.approx([y for _, y in expected], abs=1e-3)
    # The updates themselves are there too.
    (spots,) = re.findall(r'class="dots faint[^"]*" d="([^"]*)"', svg)
    ups = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)h0", spots)]
    height = page.HEIGHT - page.TOP - page.BOTTOM
    shown = [(page.HEIGHT - page.BOTTOM - y) / height for y in ups]
    raw = [y for _, y in runs.read(folder).series("tokens", "progress")]
    assert shown == pytest.approx(raw, abs=1e-3)


def test_where_a_run_has_ended_the_others_go_on_as_thin_lines(tmp_path):
    found = [
        runs.read(write_run(tmp_path / f"{n}", seed=n, updates=updates))
        for n, updates in enumerate((30, 12))
    ]
    svg = figures(report.page(found))["success in training"]["tokens"]
    (mean,), tails = points(svg, 0), points(svg, 0, "line tail")
    assert mean[-1][0] == pytest.approx(12 / 30, abs=1e-3)
    assert [tail[-1][0] for tail in tails] == [pytest.approx(1.0, abs=1e-3)]
    assert tails[0][0][0] == pytest.approx(12 / 30, abs=1e-3)


def test_steps_taken_back_are_marked(tmp_path):
    def change(row):
        return {**row, "rolled_back": 2} if row["update"] in (4, 9) else row

    folder = write_run(tmp_path / "run", change=change)
    found = figures(report.page([runs.read(folder)]))
    (marks,) = re.findall(r'class="marks[^"]*" d="([^"]*)"', found["learning rate"]["tokens"])
    width = page.WIDTH - page.LEFT - page.RIGHT
    where = [(float(x) - page.LEFT) / width * 30 for x in re.findall(r"M([\d.]+) ", marks)]
    assert where == pytest.approx([5, 10], abs=0.05)
    assert "marks" not in found["length of the gradient"]["tokens"]


def test_cards_say_what_was_measured(read_page, folders):
    said = read_page.text
    last = [runs.read(folder).rows[-1]["test"]["success"] for folder in folders[:3]]
    half = runs.half_width(last)
    low, high = max(0.0, fmean(last) - half), min(1.0, fmean(last) + half)
    assert f"held-out success{fmean(last):.1%} ({low:.1%} to {high:.1%})" in said
    assert "tokens30k" in said and "time10 min" in said and "updates30" in said


def test_numbers_beyond_any_measure_are_left_out(tmp_path):
    """They would leave no room on an axis for what was measured."""

    def change(row):
        return {**row, "norm": 1e308 if row["update"] % 2 else -1e308}

    found = runs.read(write_run(tmp_path / "run", updates=4, change=change))
    assert "<html" in report.page([found])
    assert all(math.isfinite(value) for _, value in found.series("tokens", "norm"))


def test_the_end_of_a_run_is_measured_on_its_own(tmp_path):
    """Not by the tasks that chose the best policy; of one that goes on there is nothing else."""
    whole = runs.read(write_run(tmp_path / "whole", updates=20, finished=True))
    parts = runs.read(write_run(tmp_path / "parts", updates=20))
    (row,) = (row for row in whole.rows if "test" in row)
    for run, measured in ((whole, row["test"]), (parts, parts.rows[10]["evaluation"])):
        assert f"{measured['success']:.1%}" in report._last(Arm("x", 0, (run,)), "success")
    assert whole.updates == parts.updates == 20


def test_what_was_spent_adds_up(read_page):
    """Of each arm what all its runs have spent, by kind."""
    assert "credit turn360kpolicy 25.0%, prefill 75.0%" in read_page.text
    assert "credit turn30 minpolicy 70.0%, learner 30.0%" in read_page.text
    widths = [
        float(re.search(r"width:([\d.]+)%", a["style"])[1])
        for t, a in read_page.tags
        if t == "i" and a.get("class", "").startswith("kind-") and "style" in a
    ]
    assert widths == [25, 75, 25, 75, 70, 30, 70, 30]


def test_alarms_are_listed_with_their_updates(tmp_path, strict_page):
    def change(row):
        return {**row, "alarms": ["it is dark"] if row["update"] in (3, 4, 5, 9) else []}

    folder = write_run(tmp_path / "run", updates=12, change=change)
    said = strict_page(report.page([runs.read(folder)])).text
    assert "it is darkrun, updates 3 to 5, 9" in said
    assert said.count("it is dark") == 1
    assert "alarms4" in said


def test_no_alarm_is_said_too(read_page):
    assert "No update raised an alarm." in read_page.text


@given(st.lists(st.integers(0, 40), min_size=1, unique=True).map(sorted))
def test_stretches_of_updates_hold_each(updates):
    said = report._updates(updates)
    numbers = set()
    for part in said.removeprefix("updates").removeprefix("update").split(" and ")[0].split(","):
        ends = [int(n) for n in part.split(" to ")]
        numbers |= set(range(ends[0], ends[-1] + 1))
    assert numbers <= set(updates)
    assert " in all" in said or numbers == set(updates)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (59.99, "60 s"), (120, "2 min"), (5400, "90 min"), (9000, "2.5 h")],
)
def test_durations(seconds, said):
    assert report.duration(seconds) == said


def test_long_training_is_drawn_in_hours(tmp_path):
    def change(row):
        return {**row, "seconds": 3600.0 * row["update"]}

    folder = write_run(tmp_path / "run", updates=11, change=change)
    svg = figures(report.page([runs.read(folder)]))["turns an episode"]["seconds"]
    assert "hours of training" in svg
    labels = [float(v) for v in re.findall(r'class="x"[^>]*>([\d.]+)<', svg)]
    assert labels == [0, 2, 4, 6, 8, 10]


# Episodes.


def turn(**how):
    values = {
        "action": "a",
        "observation": "o",
        "paid": {"outcome": 0.0},
        "ok": (),
        "advantage": 0.0,
        "cut": False,
    }
    return Turn(**{**values, **how})


def episode(turns, **how):
    values = {
        "update": 0,
        "task_id": "t",
        "success": False,
        "ended": "truncated",
        "prompt": "p",
        "progress": (0.0,) * (len(turns) + 1),
        "turns": tuple(turns),
    }
    return Episode(**{**values, **how})


def run_of(episodes, updates=10):
    rows = tuple({"update": n, "tokens": n, "seconds": n} for n in range(updates))
    return Run("run", {"seed": "0"}, rows, tuple(episodes), ())


def test_the_grid_shows_each_check_after_each_turn(read_page, written, folders):
    episodes, _ = viewer.pick(runs.arms([runs.read(folder) for folder in folders]))
    counting = sum(len(t.ok) for one in episodes for t in one.episode.turns)
    assert len(read_page.of_class("on")) == counting
    cells = sum(len(one.episode.turns) for one in episodes) * len(CHECKS)
    assert len(read_page.of_class("off")) == cells - counting
    assert len(read_page.of_class("turn")) == sum(len(one.episode.turns) for one in episodes)
    for n in range(4):
        assert f"call {n}" in read_page.text and f"reply {n}" in read_page.text


def test_options_are_the_episodes(read_page):
    options = [a for t, a in read_page.tags if t == "option"]
    sections = [a["id"] for t, a in read_page.tags if t == "section"]
    assert [a["value"] for a in options] == sections
    kinds = {(a["data-when"], a["data-end"]) for a in options}
    assert kinds >= {("early", "failure"), ("late", "success")}


def test_a_turn_shows_its_rewards_its_worth_and_its_news(strict_page):
    turns = [
        turn(ok=("a",), paid={"outcome": 0.0, "progress": 0.5}, advantage=-0.2),
        turn(ok=("b",), paid={"outcome": 1.0, "progress": -0.25}, advantage=None, cut=True),
    ]
    one = episode(turns, progress=(0.0, 0.5, None))
    read = strict_page(viewer.sections([viewer.Shown(one, "", False)]))
    assert "Turn 1 of 2, progress 0.50" in read.text
    assert "Turn 2 of 2, progress not measured cut by the limit on tokens" in read.text
    assert "outcome+1.000" in read.text and "progress-0.250" in read.text
    assert "advantage-0.200" in read.text and "advantagenot measured" in read.text
    # What counted before and no longer does is shown as lost.
    lost = re.search(
        r'<li class="lost">([^<]*)</li>', viewer.sections([viewer.Shown(one, "", True)])
    )
    assert lost[1] == "a"
    # On the scale of the episode, from -0.25 to 1.0, zero lies at a fifth.
    styles = [a["style"] for t, a in read.tags if t == "i" and "left" in a.get("style", "")]
    assert "left:20.0%;width:40.0%" in styles and "left:0.0%;width:20.0%" in styles
    assert len(read.of_class("unknown")) == 1


def test_the_curve_of_progress_begins_at_the_reset(strict_page):
    one = episode([turn(), turn(), turn()], progress=(0.25, None, 0.5, 1.0))
    read = strict_page(viewer.sections([viewer.Shown(one, "", False)]))
    ((_, line),) = [(t, a) for t, a in read.tags if t == "polyline"]
    assert line["points"] == "0,0.7500 2,0.5000 3,0.0000"


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=150), st.integers(1, 3))
@example([(n % 10, n % 3 == 0) for n in range(150)], 1)
@example([(n % 10, n % 7 < 5) for n in range(40)], 2)
@example([(0, True), *[(n % 10, False) for n in range(80)]], 1)
@settings(max_examples=30)
def test_the_choice_holds_all_kinds_and_begins_at_the_ends(kinds, count):
    """Of each arm and kind the outermost updates are shown, and none is left out in silence."""
    arms = [
        Arm(f"arm {n}", n, (run_of([episode([turn()], update=u, success=s) for u, s in kinds]),))
        for n in range(count)
    ]
    shown, notes = viewer.pick(arms)
    assert len(shown) == min(viewer.EPISODES, count * len(kinds))
    assert bool(notes) == (len(shown) < count * len(kinds))
    order = [(one.arm, one.episode.update) for one in shown]
    assert order == sorted(order)
    for arm in arms:
        name = arm.name if count > 1 else ""
        for late in (False, True):
            for success in (False, True):
                having = sorted(u for u, s in kinds if s is success and (u > 4.5) is late)
                found = [
                    one.episode.update
                    for one in shown
                    if (one.arm, one.late, one.episode.success) == (name, late, success)
                ]
                assert bool(found) == bool(having)
                expected = having[-len(found) :] if late else having[: len(found)]
                assert sorted(found) == expected or not found


def test_caps_hold_and_are_said(strict_page):
    """Neither long texts, nor many turns, nor many episodes make a page that no browser opens."""
    turns = [turn(action="x" * 50_000, observation="y" * 50_000)] * (viewer.TURNS + 7)
    arm = Arm("one", 0, (run_of([episode(turns, update=n % 10) for n in range(200)]),))
    shown, notes = viewer.pick([arm])
    text = viewer.sections(shown)
    assert 0 < len(shown) < viewer.EPISODES
    assert len(text) < 1.2 * viewer.ROOM
    assert notes == [
        f"{len(shown)} of 200 kept episodes are shown: from the first and the last updates"
    ]
    read = strict_page(text)
    assert "The last 7 turns are left out." in read.text
    cuts = read.text.count(" characters cut]")
    assert cuts == 2 * viewer.TURNS * len(shown)


def test_lines_are_thinned_and_that_is_said(tmp_path, strict_page):
    folder = write_run(tmp_path / "run", updates=3 * runs.POINTS, episodes=[])
    text = report.page([runs.read(folder)])
    for title in ("divergence, nats a token", "success in training"):
        (line,) = points(figures(text)[title]["tokens"], 0)
        assert len(line) == runs.POINTS
    assert f"run: {3 * runs.POINTS} updates, averaged to {runs.POINTS} points" in text


def test_an_episode_without_turns_is_shown(strict_page):
    read = strict_page(viewer.sections([viewer.Shown(episode([], ended="died"), "", False)]))
    assert "No turn was played." in read.text and "died after 0 turns" in read.text


# Hostile text.


@given(st.text(st.characters(codec="utf-16", exclude_categories=[]), max_size=40))
@settings(max_examples=300)
def test_plain_text_shows_all_and_does_nothing(text):
    found = page.plain(text)
    found.encode("utf-8")
    assert not re.search(r"[<>\"']", found)
    shown = html.unescape(found)
    assert not page._HIDDEN.search(shown)
    kept = page._HIDDEN.sub("", text)
    assert kept == re.sub(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})", "", shown) or "\\" in text


@pytest.mark.parametrize(
    "char", ["\0", "\x1b", "\r", "\x85", "\u202e", "\u2066", "\ufeff", "\ud800"]
)
def test_what_has_no_shape_is_written_out(char):
    assert re.fullmatch(r"a\\[xu][0-9a-f]+b", page.plain(f"a{char}b"))
    assert page.plain("a\n\tb\u200d") == "a\n\tb\u200d"


def test_every_text_is_escaped(tmp_path, strict_page):
    """No name, value, message or text of an agent can carry markup or script into the page."""
    turns = episode_of(3, True)["turns"]
    for one in turns:
        one.update(action=EVIL, observation=EVIL, ok=[EVIL], channels={EVIL: 0.1})
    hostile = episode_of(3, True, turns=4, task_id=EVIL, prompt=EVIL, ended=EVIL)
    hostile["turns"] = turns

    def change(row):
        row["returns"] = {EVIL: 0.5}
        row["ledger"] = {"tokens": {EVIL: 3}, "seconds": {EVIL: 3.0}}
        return {**row, "alarms": [EVIL]}

    def made(name, **cfg):
        folder = tmp_path / name
        return write_run(folder, updates=3, change=change, episodes=[hostile], env=EVIL, **cfg)

    odd = "<b>'\"&amp;\u202e"  # a folder may be called so
    folders = [made(odd, policy=EVIL), made("y", policy=EVIL + "2", **{EVIL: EVIL})]
    report.write(folders, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    read = strict_page(text)
    read.needs_nothing()
    assert [tag for tag, _ in read.tags].count("script") == 1
    assert read.text.count(SHOWN) >= 40
    assert not re.search("[\x00\x1b\u202e\ud800]", text)


@given(
    evil=st.text(st.sampled_from("<>&\"'/$\\`{}\x00\u2028\ud800 ascriptonerror=-!]"), max_size=30)
)
@settings(max_examples=60)
def test_no_text_changes_the_markup(strict_page, evil):
    """The same tags with the same attributes, whatever the texts say."""

    def tags(text):
        turns = [turn(action=text, observation=text, paid={text + "c": 0.1}, ok=(text + "k",))]
        one = episode(turns, task_id=text, prompt=text, ended=text)
        shown = [viewer.Shown(one, text, False)]
        read = strict_page(viewer.options(shown) + viewer.sections(shown))
        return [(tag, sorted(a)) for tag, a in read.tags if tag != "wbr"]

    # An action that is empty is shown as nothing.
    assert tags(evil or "x") == tags("x")


# Axes.


@given(
    low=st.floats(-1e6, 1e6),
    span=st.floats(1e-3, 1e6),
    most=st.integers(3, 8),
    unit=st.sampled_from([1.0, 60.0, 3600.0]),
)
def test_ticks_lie_on_the_axis_and_are_few(low, span, most, unit):
    axis = page.Axis("x", low, low + span, unit=unit)
    ticks = axis.ticks(most)
    assert len(ticks) <= most
    assert all(-1e-6 <= axis(tick) <= 1 + 1e-6 for tick in ticks)
    assert ticks == sorted(ticks)
    gaps = {round((b - a) / span, 6) for a, b in pairwise(ticks)}
    assert len(gaps) <= 1
    assert axis(low) == 0.0 and axis(low + span) == pytest.approx(1.0)


@pytest.mark.parametrize("last", [1, 2, 3, 7, 8, 9, 20, 33, 100])
def test_turns_are_counted_in_whole_numbers(last):
    ticks = page.Axis("turn", 0, last, whole=True).ticks(8)
    assert all(tick == int(tick) for tick in ticks) and ticks[0] == 0 and len(ticks) <= 8
    assert len(ticks) >= 2


@given(st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), min_size=1, max_size=20))
def test_an_axis_holds_what_it_is_made_for(values):
    values = [0.0 if abs(v) < 1e-9 else v for v in values]
    axis = page.around("y", values)
    assert all(-1e-9 <= axis(value) <= 1 + 1e-9 for value in values)
    if axis.log:
        assert min(values) > 0 and all(math.log10(tick) % 1 == 0 for tick in axis.ticks(6))
        assert axis.ticks(6)
    else:
        assert axis.low <= 0.0 <= axis.high or max(values) == min(values)


@given(st.lists(CURVE, min_size=1, max_size=3))
@settings(max_examples=40)
def test_lines_stay_inside_the_chart(curves):
    xs = [x for curve in curves for x, _ in curve]
    ys = [y for curve in curves for _, y in curve]
    axis = page.Axis("x", 0.0, max(xs) or 1.0)
    lines = [page.Line(curve, f"arm-{n} n{n}") for n, curve in enumerate(curves)]
    svg = page.chart(lines, axis, page.around("y", ys), "about")
    for n in range(len(curves)):
        for x, y in points(svg, n)[0]:
            assert -1e-3 <= x <= 1.001 and -1e-3 <= y <= 1.001


# In a browser.

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")

PROBE = """
const said = {};
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const visible = (element) => getComputedStyle(element).display !== "none";
const drawn = (selector) => all(selector).filter(visible).length;
const select = document.querySelector("#episode");
const seen = () => all("section.episode").filter((e) => !e.hidden);
const turns = () => all(".turn", seen()[0]).map((t) => t.classList.contains("shown"));
const press = (key) => seen()[0].dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
said.one = seen().length;
all(".timeline a", seen()[0])[0].click();
said.first = turns().indexOf(true);
press("ArrowRight");
press("ArrowRight");
said.third = turns().indexOf(true);
press("ArrowLeft");
said.second = turns().indexOf(true);
said.together = turns().filter(Boolean).length;
document.querySelector('input[name="end"][value="success"]').click();
said.good = [...new Set([...select.options].map((o) => o.dataset.end))];
said.same = seen()[0].id === select.value;
said.arm = drawn(".chart .n1") > 0;
document.querySelector('[data-arm="n1"]').click();
said.hidden = drawn(".chart .n1");
said.axis = [drawn(".by-tokens") > 0, drawn(".by-seconds")];
document.querySelector("#by-seconds").click();
said.other = [drawn(".by-tokens"), drawn(".by-seconds") > 0];
said.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
document.documentElement.dataset.said = JSON.stringify(said);
"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_works_in_a_browser(tmp_path, written, width):
    """It fits, one episode is seen at a time, keys turn the turns, switches switch."""
    inner = written.replace("</body>", f"<script>{PROBE}</script></body>")
    data = base64.b64encode(inner.encode()).decode()
    # A frame, because a window may not be as narrow as a telephone.
    outer = f"""<!doctype html><title>-</title><iframe id="f" style="width:{width}px;height:900px;
        border:0"></iframe><script>
        f.onload = () => document.title = f.contentDocument.documentElement.dataset.said;
        const bytes = Uint8Array.from(atob("{data}"), (c) => c.charCodeAt(0));
        f.srcdoc = new TextDecoder().decode(bytes);</script>"""
    (tmp_path / "outer.html").write_text(outer, encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1600,1000"]
    command += ["--virtual-time-budget=5000", "--dump-dom", f"file://{tmp_path / 'outer.html'}"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    said = json.loads(html.unescape(re.search("<title>(.*?)</title>", done.stdout)[1]))
    assert said == {
        "one": 1,
        "first": 0,
        "third": 2,
        "second": 1,
        "together": 1,
        "good": ["success"],
        "same": True,
        "arm": True,
        "hidden": 0,
        "axis": [True, 0],
        "other": [0, True],
        "wide": 0,
    }


def test_the_page_of_a_changed_run_changes(folders):
    """Nothing on the page is made up: it follows the log."""
    found = runs.read(folders[0])
    last = {**found.rows[-1], "test": {**found.rows[-1]["test"], "success": 0.123}}
    assert "12.3%" in report.page([replace(found, rows=(*found.rows[:-1], last))])
