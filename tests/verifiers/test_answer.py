"""Candidates of an answer: what is left, in bits, and that it is part of what decides a verdict."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.verifiers import KINDS, Acceptance, Candidates, Check, Clue, Grader, settle

COUNT = 12
RECORDS = ("a", "b", "c", "d")

ranges = st.tuples(st.integers(0, COUNT - 1), st.integers(1, COUNT)).filter(lambda r: r[0] < r[1])
clues = st.builds(
    Clue,
    st.lists(st.sampled_from(RECORDS), min_size=1, max_size=3, unique=True).map(tuple),
    # The last candidate is right, so nothing removes it.
    st.lists(ranges.filter(lambda r: r[1] < COUNT), max_size=3).map(tuple),
)
all_candidates = st.lists(clues, max_size=6).map(lambda found: Candidates(COUNT, tuple(found)))
seen = st.sets(st.sampled_from(RECORDS)).map(lambda found: {record: {} for record in sorted(found)})


def left(candidates: Candidates, known: set[str]) -> set[int]:
    """The definition, with sets."""
    out = set(range(candidates.count))
    for clue in candidates.clues:
        if set(clue.records) <= known:
            out -= {n for first, past in clue.removes for n in range(first, past)}
    return out


@given(all_candidates, seen)
def test_it_is_the_intersection(candidates: Candidates, known: dict[str, Any]) -> None:
    """What is left, and its share of the bits, are as defined; 1.0 exactly at one candidate."""
    want = left(candidates, set(known))
    assert candidates.left(known) == len(want)
    share = candidates.information(known)
    assert math.isclose(share, 1 - math.log2(len(want)) / math.log2(COUNT), abs_tol=1e-12)
    assert (share == 1.0) == (len(want) == 1) and 0.0 <= share <= 1.0


@given(all_candidates, st.permutations(RECORDS))
def test_gains_sum_to_at_most_one(candidates: Candidates, order: list[str]) -> None:
    """Information never falls, in whatever order records are seen."""
    known: dict[str, Any] = {}
    values = [candidates.information(known)]
    for record in order:
        known = {**known, record: {}}
        values.append(candidates.information(known))
    assert values == sorted(values) and values[0] == 0.0 and values[-1] <= 1.0


@pytest.mark.parametrize(
    ("count", "clues", "says"),
    [
        (1, (), "count must be at least 2, got 1"),
        (4, (Clue((), ((0, 1),)),), "at least one record"),
        (4, (Clue(("a",), ((1, 1),)),), "0 <= first < past <= 4"),
        (4, (Clue(("a",), ((3, 5),)),), "0 <= first < past <= 4"),
        (4, (Clue(("a",), ((0, 2),)), Clue(("b",), ((2, 4),))), "together they leave none"),
    ],
)
def test_what_makes_no_sense_is_refused(count: int, clues: tuple[Clue, ...], says: str) -> None:
    """The message names what must hold and what came."""
    with pytest.raises(ValueError, match=says):
        Candidates(count, clues)


CHECKS = (Check("read", "seen", {"records": ["a"]}),)
HALVES = Candidates(4, (Clue(("a",), ((0, 2),)), Clue(("a", "b"), ((2, 3),))))


def test_a_verdict_tells_it(table_state: Any) -> None:
    """As records are seen; None where the task has no candidates."""
    state = table_state({"seen": {}}, watched=())
    grader = Grader(Acceptance(CHECKS, candidates=HALVES), KINDS)
    found = [grader(state).information]
    for record in ("b", "a"):
        state.put("seen", record, {})
        found.append(grader(state).information)
    assert found == [0.0, 0.0, 1.0]
    assert Grader(Acceptance(CHECKS), KINDS)(state).information is None


def test_it_is_counted_once_for_what_was_seen(
    table_state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes elsewhere do not count it again; a copy keeps what was counted."""
    counted = []
    count = Candidates.information
    monkeypatch.setattr(
        Candidates, "information", lambda self, seen: counted.append(1) or count(self, seen)
    )
    state = table_state({"seen": {}, "mail": {}}, watched=("mail",))
    grader = Grader(Acceptance(CHECKS, candidates=HALVES), KINDS)
    grader(state)
    for n in range(5):
        state.put("mail", f"m{n}", {})
        grader(state)
    assert len(counted) == 1
    twin, other = grader.copy(), state.fork()
    other.put("seen", "a", {})
    assert twin(other).information == 0.5 and grader(state).information == 0.0
    assert len(counted) == 2


def test_no_verdict_has_no_information(table_state: Any) -> None:
    """A failed measurement is no 0."""

    class Broken(type(table_state({}, watched=()))):  # type: ignore[misc]
        def names(self) -> tuple[str, ...]:
            raise OSError("gone")

    verdict = Grader(Acceptance(CHECKS, candidates=HALVES), KINDS)(Broken({}, watched=()))
    assert verdict.status == "no_verdict" and verdict.information is None


def test_it_decides_what_verdicts_compare_under() -> None:
    """Candidates are part of the fingerprint; having none leaves it as it was."""
    plain, asked = Acceptance(CHECKS), Acceptance(CHECKS, candidates=HALVES)
    fewer = replace(asked, candidates=replace(HALVES, clues=HALVES.clues[:1]))
    assert len({plain.fingerprint, asked.fingerprint, fewer.fingerprint}) == 3
    assert "candidates" not in plain.as_json()
    assert asked.as_json()["candidates"]["count"] == 4
    assert plain.fingerprint == "a6e6bbdcfdff034c"  # as it was before there were candidates


def test_candidates_are_values(table_state: Any) -> None:
    """Copies are equal, plain data too, and what holds at reset does not lose them."""
    asked = Acceptance(CHECKS, candidates=HALVES)
    assert copy.deepcopy(asked) == asked and asdict(asked)["candidates"]["count"] == 4
    state = table_state({"seen": {"a": {}}}, watched=())
    assert settle(asked, state, KINDS).candidates == HALVES
