"""What experiments share: intervals by hand, seeds by commit, runs that are kept."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.bench.experiment import holm, interval, seeds, shown, spread, store, stored


def test_an_interval_by_hand() -> None:
    """Mean 2, standard error 1 / sqrt(3), and 4.3027 of it at two degrees of freedom."""
    low, high = interval([1.0, 2.0, 3.0])
    assert (low, high) == (pytest.approx(2 - 4.302653 / math.sqrt(3)), pytest.approx(4 - low))
    low, _ = interval([1.0, 2.0, 3.0], 0.1)
    assert low == pytest.approx(2 - 2.919986 / math.sqrt(3))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9), st.floats(-2, 2))
def test_an_interval_moves_with_its_values(values: list[float], by: float) -> None:
    low, high = interval(values)
    assert low <= statistics.fmean(values) + 1e-12 and high >= statistics.fmean(values) - 1e-12
    moved = interval([value + by for value in values])
    assert moved == (pytest.approx(low + by, abs=1e-9), pytest.approx(high + by, abs=1e-9))


def test_holm_by_hand() -> None:
    """One that stands out at a third of 5 %, then the rest at a half: the others hold 0."""
    sure, open_, none = [1.0, 1.01, 0.99, 1.0], [0.1, -0.05, 0.2, 0.1], [0.1, -0.1, 0.1, -0.1]
    found = holm({"none": none, "sure": sure, "open": open_})
    assert list(found) == ["none", "sure", "open"]
    assert found["sure"] == interval(sure, 0.05 / 3)
    assert found["open"] == interval(open_, 0.05 / 2)
    assert found["none"] == interval(none, 0.05 / 2)


def test_holm_does_not_mind_the_sign() -> None:
    """A placebo that harms stands out as much as one that helps."""
    rows = {"harms": [-1.0, -1.01, -0.99, -1.0], "none": [0.1, -0.1, 0.1, -0.05]}
    for name, (low, high) in holm({n: [-x for x in row] for n, row in rows.items()}).items():
        assert holm(rows)[name] == (pytest.approx(-high), pytest.approx(-low))
    assert holm(rows)["harms"] == interval(rows["harms"], 0.05 / 2)


@given(st.lists(st.lists(st.floats(-1, 1), min_size=4, max_size=4), min_size=1, max_size=5))
def test_holm_lies_between_none_and_bonferroni(rows: list[list[float]]) -> None:
    found = holm({str(n): row for n, row in enumerate(rows)})
    for n, row in enumerate(rows):
        low, high = found[str(n)]
        plain, widest = interval(row), interval(row, 0.05 / len(rows))
        assert widest[0] - 1e-12 <= low <= plain[0] + 1e-12
        assert plain[1] - 1e-12 <= high <= widest[1] + 1e-12


def test_seeds_are_those_of_the_commit_and_differ_by_purpose() -> None:
    first, other = seeds(5, "final", "abc"), seeds(5, "tuning", "abc")
    assert first == seeds(7, "final", "abc")[:5] and len({*first, *other}) == 10
    assert not {*first} & {*seeds(5, "final", "abd")}


def test_runs_are_kept_by_commit_and_a_torn_line_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    assert stored(file, "c") == []
    store(file, "c", {"n": 1})
    store(file, "d", {"n": 2})
    whole = file.read_text()
    file.write_text(whole + '{"commit": "c", "n": 3')
    assert stored(file, "c") == [{"n": 1}] and file.read_text() == whole


def test_a_figure_with_its_interval() -> None:
    row = {"x": 0.9, "x_95": (0.75, 1.05), "y": 0.5, "y_95": None}
    assert spread(row, "x", share=True) == "0.900 (0.750 to 1.000)"
    assert spread(row, "x", share=False) == "0.900 (0.750 to 1.050)"
    assert spread(row, "y", share=True) == "0.500"
    assert spread(row, "z", share=True) == ""


def test_tables_for_terminals_and_for_documents(capsys: pytest.CaptureFixture[str]) -> None:
    """The same cells in both."""
    rows = [("turn", "0.9"), ("outcome", "0.2")]
    shown("Depot", ("arm", "success"), rows, markdown=True)
    found = capsys.readouterr().out
    assert found.splitlines() == [
        *("Depot", "", "| arm | success |", "| --- | --- |"),
        *("| turn | 0.9 |", "| outcome | 0.2 |", ""),
    ]
    shown("Depot", ("arm", "success"), rows, markdown=False)
    told = capsys.readouterr().out
    assert all(cell in told for cell in ("Depot", "arm", "success", "turn", "0.9", "outcome"))
