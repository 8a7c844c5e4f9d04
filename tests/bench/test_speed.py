"""The measurement itself, and those of its results that hold on any machine."""

from __future__ import annotations

import math
import sys

import pytest

from headway.bench import speed
from headway.bench.clock import of_calls, of_turns
from headway.bench.neighbours import NEIGHBOURS, measurements

RATIOS = {name: bounds["ratio"] for name, bounds in speed.TARGETS.items() if "ratio" in bounds}


def too_slow(rows):
    """Rows beyond their bound on the ratio; NaN is beyond every bound."""
    found = {row.name: row.ratio for row in rows}
    return {name: found[name] for name, most in RATIOS.items() if not found[name] <= most}


def quick_run():
    heard = []
    rows = speed.run(
        quick=True, against=["gymnasium"], told=lambda *progress: heard.append(progress)
    )
    return rows, heard


@pytest.fixture(scope="module")
def measured():
    """A quick run and what it told; taken again, four times at most, while the machine is busy."""
    for _ in range(4):
        run = quick_run()
        if not too_slow(run[0]):
            break
    return run


def test_no_ratio_is_beyond_its_bound(measured):
    rows, _ = measured
    assert not too_slow(rows)


def test_every_row_is_a_measurement(measured):
    rows, heard = measured
    names = [row.name for row in rows]
    assert len(set(names)) == len(names)
    assert set(speed.TARGETS) <= set(names)
    assert "gymnasium turn" in names
    for row in rows:
        assert row.unit in ("us", "ms", "us wall")
        assert 0 < row.min and 0 < row.median and row.n >= 1
    assert heard == [("rounds", n, speed.QUICK_ROUNDS) for n in range(1, speed.QUICK_ROUNDS + 1)]


def test_ratios_are_those_of_the_minima_in_the_table(measured):
    by_name = {row.name: row for row in measured[0]}
    for row in by_name.values():
        if row.versus is None:
            assert row.ratio is None
            continue
        base = by_name[row.versus]
        scale = {"us": 1, "us wall": 1, "ms": 1000}
        expected = row.min * scale[row.unit] / (base.min * scale[base.unit])
        assert row.ratio == pytest.approx(expected)
        assert row.n == base.n


def test_the_parts_of_a_turn_add_up(measured):
    """Ratio of a whole to its parts, measured apart: each is really timed, and in full."""
    least = {row.name: row.min for row in measured[0]}
    parts = least["tool call"] + least["grade, new state"]
    assert least[speed.TURN] == pytest.approx(parts, rel=0.35)
    assert least["grade, known state"] < least["grade, new state"] / 5
    assert least["reset, known task"] < least["contract"] / 5 < least["reset, new task"]


def subject(name, versus=None, over=None):
    return speed._Subject(name, "us", lambda: 0.0, versus, over)


def test_rows_take_off_what_lies_under_a_layer():
    times = {"bare": [3e-6, 2e-6, 9e-6], "stock": [4e-6, 4e-6, 9e-6], "layer": [5e-6, 7e-6, 9e-6]}
    subjects = [
        subject("bare"),
        subject("stock", over="bare"),
        subject("layer", versus="stock", over="bare"),
    ]
    bare, stock, layer = speed._rows(subjects, times)
    assert (bare.min, bare.median, bare.n, bare.ratio) == (2, 3, 3, None)
    assert (stock.min, stock.median) == pytest.approx((2, 1))
    assert (layer.min, layer.median, layer.ratio) == pytest.approx((3, 4, 1.5))


def test_what_took_no_time_is_compared_with_nothing():
    times = {"base": [0.0], "other": [1e-6]}
    rows = speed._rows([subject("base"), subject("other", versus="base")], times)
    assert math.isnan(rows[1].ratio)
    assert not rows[1].ratio <= 1000


def test_target_in_words():
    def row(name, unit):
        return speed.Row(name, unit, 1.0, 1.0, 1, None, None)

    assert speed.target(row(speed.TURN, "us")) == "median 60 us, ratio 100"
    assert speed.target(row("contract", "ms")) == "median 25 ms"
    assert speed.target(row("tool call", "us")) == ""


def test_only_turns_are_timed():
    """By a clock that every reset puts forward by 100 and every turn by its action."""
    now = [0.0]

    def forward(by):
        now[0] += by

    taken = of_turns([[1, 2], [3]], lambda number: forward(100), forward, clock=lambda: now[0])
    assert taken == 2.0
    assert of_calls([lambda: forward(1), lambda: forward(2)], clock=lambda: now[0]) == 1.5


def test_unknown_neighbour():
    with pytest.raises(ValueError, match=r"against must be one of \['gymnasium',.*'textarena'\?"):
        speed.run(quick=True, against=["textarna"])


@pytest.mark.parametrize(
    ("name", "install"), [("textarena", "textarena"), ("verifiers", "verifiers<0.4")]
)
def test_missing_neighbour(monkeypatch, name, install):
    monkeypatch.setitem(sys.modules, name, None)  # Python's way of saying that it is not there
    with pytest.raises(ImportError, match=f"against '{name}' .*pip install '{install}'"):
        speed.run(quick=True, against=[name])


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_neighbour_takes_time(name):
    try:
        measure = measurements([name])[name]
    except ImportError as error:
        pytest.skip(str(error))
    assert measure() > 0
