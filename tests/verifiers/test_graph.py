"""What rests on something broken is worth less, and nothing else is."""

from __future__ import annotations

import itertools
import math
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.verifiers import POTENTIALS, Check, Graph, Verdict, penalty, potential_named
from headway.verifiers.graph import marked, prerequisites, worths
from headway.wrappers import Diff

KEPT = {"terminal": "keep", "on_truncation": "keep"}

PAGE = {"c1": (), "c2": ("c1",), "c3": ("c1",), "c4": ()}
"""The graph of the example on the method's page: c1 supports c2 and c3, c4 is independent."""


def checks(needs, evidence=()):
    return tuple(
        Check(name, "rows", {}, needs=tuple(before), evidence=name in evidence)
        for name, before in needs.items()
    )


def verdict(needs, done, violations=0, evidence=()):
    ok = {name: name in done for name in needs}
    found = checks(needs, evidence)
    return Verdict(0.5, False, ok, ("damage",) * violations, nodes=found)


def values(signal, needs, states):
    signal.begin(verdict(needs, ()))
    return [signal.value(verdict(needs, done)) for done in states]


@st.composite
def graphs(draw):
    """``{check: what it needs next}`` for up to six checks, each after all that it needs."""
    needs = {}
    for number in range(draw(st.integers(1, 6))):
        before = st.lists(st.sampled_from(sorted(needs)), unique=True) if needs else st.just([])
        needs[f"c{number}"] = tuple(draw(before))
    return needs


def marks_of(needs):
    return st.fixed_dictionaries({name: st.sampled_from("UVB") for name in needs})


def above(needs, name):
    """All that rests on a check."""
    found = {name}
    for one, before in needs.items():
        if found & set(before):
            found.add(one)
    return found - {name}


def test_the_example_of_the_page():
    """Verified one by one; c1 breaks, c3 is verified nevertheless, c1 is repaired."""
    states = ["", "c1", "c1 c2", "c1 c2 c4", "c2 c4", "c2 c3 c4", "c1 c2 c3 c4"]
    found = values(Graph(lam=1.0), PAGE, [state.split() for state in states])
    assert [round(x, 2) for x in found] == [0.0, 0.25, 0.5, 0.75, 0.34, 0.43, 1.0]


def test_a_verdict_that_does_not_count_what_rests_on_a_break():
    """It keeps the mark it had, for as long as that cannot be told, and no longer."""
    states = ["c1 c2 c3", "", "c4", "c1 c2 c4", "c1 c2 c3 c4"]
    found = values(Graph(lam=1.0), PAGE, [state.split() for state in states])
    left = 2 * math.exp(-1.0)
    assert found == pytest.approx([0.75, left / 4, (left + 1) / 4, 0.75, 1.0])
    signal = Graph(lam=1.0)
    values(signal, PAGE, [state.split() for state in states[:4]])
    assert signal.marks == {"c1": "V", "c2": "V", "c3": "B", "c4": "V"}


@given(
    data=st.data(), needs=graphs(), lam=st.floats(0.01, 5.0), decay=st.sampled_from(["near", "far"])
)
def test_values(data, needs, lam, decay):
    """In [0, 1]; 1.0 exactly where all are verified; only what rests on a break pays for it."""
    marks = data.draw(marks_of(needs))
    worth = worths(marks, needs, lam=lam, decay=decay)
    assert list(worth) == list(needs)
    assert all(0.0 <= x <= 1.0 for x in worth.values())
    assert (min(worth.values()) == 1.0) == (set(marks.values()) == {"V"})
    under = set().union(*(above(needs, name) for name in needs if marks[name] == "B"), set())
    for name in needs:
        if marks[name] != "V":
            assert worth[name] == 0.0
        elif name in under:
            assert 0.0 < worth[name] < 1.0
        else:
            assert worth[name] == 1.0


@given(data=st.data(), needs=graphs(), lam=st.floats(0.01, 5.0))
def test_one_break_more_never_raises_the_value(data, needs, lam):
    marks = data.draw(marks_of(needs))
    more = {**marks, data.draw(st.sampled_from(sorted(needs))): "B"}
    before, after = (worths(m, needs, lam=lam, decay="near") for m in (marks, more))
    assert all(after[name] <= before[name] for name in needs)
    untouched = set(needs) - {n for n in needs if marks[n] != more[n]}
    for name in untouched:
        if not any(name in above(needs, one) for one in needs if marks[one] != more[one]):
            assert after[name] == before[name]


@given(data=st.data(), needs=graphs(), lam=st.floats(0.01, 5.0))
def test_an_extra_break_never_raises_phi(data, needs, lam):
    """All is verified, and then one check after another breaks, in any order."""
    signal = Graph(lam=lam)
    signal.begin(verdict(needs, ()))
    broken = data.draw(st.permutations(sorted(needs)))
    states = [set(needs) - set(broken[:count]) for count in range(len(needs) + 1)]
    found = [signal.value(verdict(needs, state)) for state in states]
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(found))


STATES = st.sets(st.sampled_from([f"c{n}" for n in range(6)]))


@given(needs=graphs(), states=st.lists(STATES, min_size=1, max_size=6), times=st.integers(1, 3))
def test_a_fact_that_is_verified_again_pays_nothing(needs, states, times):
    """However it came to be: new, kept, or repaired after a break."""
    channel = Diff("d", gamma=1.0, scale=1.0, **KEPT, potential=Graph())
    before = verdict(needs, ())
    channel.begin(before)
    for state in states:
        after = verdict(needs, state)
        channel.step(before, after, "no")
        again = [channel.step(after, verdict(needs, state), "no") for _ in range(times)]
        assert again == [0.0] * times
        before = after


def test_distance_and_decay():
    """The nearest break counts; ``"near"`` spares what is far, ``"far"`` what is near."""
    chain = {"a": (), "b": ("a",), "c": ("b",), "d": ("c", "a")}
    marks = {"a": "B", "b": "V", "c": "V", "d": "V"}
    near = worths(marks, chain, lam=0.5, decay="near")
    assert near == pytest.approx(
        {"a": 0.0, "b": math.exp(-0.5), "c": math.exp(-0.25), "d": math.exp(-0.5)}
    )
    far = worths(marks, chain, lam=0.5, decay="far")
    assert far["c"] == pytest.approx(math.exp(-1.0))
    assert far["b"] == far["d"] == pytest.approx(math.exp(-0.5))


@given(data=st.data(), needs=graphs())
def test_marks(data, needs):
    """Verified is what holds; broken is what held and fell by itself; a repair verifies again."""
    signal = Graph()
    signal.begin(verdict(needs, ()))
    was = {name: "U" for name in needs}
    for _ in range(data.draw(st.integers(1, 5))):
        done = data.draw(st.sets(st.sampled_from(sorted(needs))))
        value = signal.value(verdict(needs, done))
        again = signal.value(verdict(needs, done))
        assert value == again  # a fact that is verified again pays nothing
        for name, mark in signal.marks.items():
            if name in done:
                assert mark == "V"
            elif was[name] == "V" and set(needs[name]) <= done:
                assert mark == "B"
            else:
                assert mark == was[name]
        was = dict(signal.marks)


def test_evidence_is_no_node_and_passes_needs_on():
    needs = {"root": (), "seen": ("root",), "act": ("seen",), "look": ()}
    found = prerequisites(checks(needs, evidence=("seen", "look")))
    assert found == {"root": (), "act": ("root",)}
    signal = Graph(lam=1.0)
    signal.begin(verdict(needs, ()))
    states = [("seen", "look"), ("root", "act"), ("act",)]
    found = [signal.value(verdict(needs, d, evidence=("seen", "look"))) for d in states]
    assert found == pytest.approx([0.0, 1.0, math.exp(-1.0) / 2])


def test_damage_costs_and_nothing_has_no_value():
    signal = Graph()
    assert signal.value(verdict(PAGE, PAGE, violations=2)) == penalty(2)
    assert signal.value(Verdict(0.0, False, {})) is None
    only = {"look": ()}
    assert signal.value(verdict(only, only, evidence=only)) is None
    with pytest.raises(ValueError, match="gone"):
        signal.value(Verdict(math.nan, False, {}, status="no_verdict", reason="gone"))


def test_an_episode_begins_anew_and_memory_is_data():
    signal = Graph(lam=1.0)
    values(signal, PAGE, [["c1", "c2"], ["c2"]])
    twin = Graph(lam=1.0)
    twin.load_state_dict(signal.state_dict())
    assert twin.marks == {"c1": "B", "c2": "V", "c3": "U", "c4": "U"}
    twin.value(verdict(PAGE, ["c1", "c2"]))
    assert signal.marks["c1"] == "B"
    signal.begin(verdict(PAGE, ()))
    assert signal.value(verdict(PAGE, ["c2"])) == 0.25
    assert marked({}, {"c1": False, "c2": True, "c3": False, "c4": False}, PAGE)["c1"] == "U"


@pytest.mark.parametrize(("lam", "decay"), [(0.0, "near"), (math.nan, "near"), (1.0, "nearest")])
def test_arguments(lam, decay):
    with pytest.raises(ValueError, match=r"lam must be|decay must be .*did you mean 'near'"):
        Graph(lam=lam, decay=decay)


def half():
    """A potential of one's own."""
    return Graph(lam=2.0)


def test_potentials_by_name(monkeypatch):
    for name in POTENTIALS:
        assert potential_named(name).name == name
        assert potential_named(name) is not potential_named(name)
    module = types.ModuleType("my_potentials")
    module.half, module.none, module.number = half, lambda: None, 3
    monkeypatch.setitem(sys.modules, "my_potentials", module)
    assert potential_named("my_potentials:half").lam == 2.0
    with pytest.raises(ValueError, match=r"must name what makes a Potential, got .*:none"):
        potential_named("my_potentials:none")
    with pytest.raises(
        ValueError, match=r"potential must be .* got 'check'; did you mean 'checks'"
    ):
        potential_named("check")
    for name in ("my_potentials:haf", "no_such_module:f", "my_potentials:number", ":f"):
        with pytest.raises(ValueError, match="potential must name something"):
            potential_named(name)
    with pytest.raises(ValueError, match="potential must be one of"):
        potential_named(None)
