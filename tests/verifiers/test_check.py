import copy
import math
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.verifiers import (
    EVIDENCE_SHARE,
    KINDS,
    Acceptance,
    Allow,
    Check,
    Grader,
    Kind,
    Verdict,
    cap_evidence,
    changes,
    grade,
    penalty,
    settle,
)

TABLES = ("red", "green", "blue")
STALL_S = 0.5

FLAG = Kind(
    prepare=lambda args: lambda view: args["key"] in view.table(args["table"]),
    reads=lambda args: (args["table"],),
    timeout_s=None,
)


def _moody(view):
    mood = view.table("mood")["now"]["is"]
    if mood == "raise":
        raise OSError("the disk is gone")
    if mood == "stall":
        time.sleep(STALL_S)
    return mood


MOODY = Kind(prepare=lambda args: _moody, reads=lambda args: ("mood",), timeout_s=0.05)
ALL = {**KINDS, "flag": FLAG, "moody": MOODY}


def flag(name, **more):
    """A check that holds when a row of its name stands in its table."""
    table = TABLES[sum(map(ord, name)) % len(TABLES)]
    return Check(name, "flag", {"table": table, "key": name}, **more)


@st.composite
def check_graphs(draw):
    names = [f"c{i}" for i in range(draw(st.integers(1, 6)))]
    acts = [name for name in names if draw(st.booleans())]

    def needs(i):
        near = names[max(0, i - 3) : i]
        return tuple(draw(st.lists(st.sampled_from(near), max_size=2, unique=True)) if near else ())

    return tuple(
        flag(
            name,
            weight=draw(st.sampled_from([0.25, 1.0, 2.0, 3.0])),
            needs=needs(i),
            evidence=name not in acts,
            superseded_by=tuple(s for s in acts if s != name and draw(st.integers(0, 9)) == 0),
        )
        for i, name in enumerate(names)
    )


@st.composite
def graphs_and_holding(draw, sets=1):
    checks = draw(check_graphs())
    holding = st.sets(st.sampled_from([c.id for c in checks]))
    return checks, *(draw(holding) for _ in range(sets))


@pytest.fixture(scope="session")
def state_of(table_state):
    """A state in which exactly the named checks hold, and a watched table to damage."""

    def build(checks, holding, **tables):
        rows = {name: {} for name in TABLES}
        for check in checks:
            if check.id in holding:
                rows[check.args["table"]][check.id] = {"on": True}
        return table_state({**rows, **tables}, watched=tuple(tables))

    return build


def counting(checks, holding):
    """Which checks count, written down once more as the definition reads."""
    known = {c.id: c for c in checks}

    def stands(name, visited=()):
        later = [s for s in known[name].superseded_by if s not in visited]
        return name in holding or any(stands(s, (*visited, name)) for s in later)

    def hard(name):
        for n in known[name].needs:
            if not known[n].evidence:
                yield n
            yield from hard(n)

    def counts(name):
        if stands(name) and all(stands(n) for n in hard(name)):
            return True
        later = [c.id for c in checks if name in c.needs]
        return known[name].evidence and any(counts(n) for n in later)

    return {c.id: counts(c.id) for c in checks}


@settings(max_examples=300)
@given(graphs_and_holding())
def test_progress_is_the_share_of_the_weight_that_counts(state_of, case):
    checks, holding = case
    verdict = grade(Acceptance(checks), state_of(checks, holding), ALL)
    ok = counting(checks, holding)
    share = sum(c.weight for c in checks if ok[c.id]) / sum(c.weight for c in checks)
    assert verdict.ok == ok
    assert verdict.progress == pytest.approx(1.0 if all(ok.values()) else min(share, 0.999))
    assert 0.0 <= verdict.progress <= 1.0
    assert (verdict.progress == 1.0) == verdict.success == all(ok.values())


@given(graphs_and_holding(sets=2))
def test_holding_more_is_never_worse(state_of, case):
    checks, some, others = case
    less = grade(Acceptance(checks), state_of(checks, some), ALL)
    more = grade(Acceptance(checks), state_of(checks, some | others), ALL)
    assert less.progress <= more.progress
    assert all(more.ok[name] for name, counts in less.ok.items() if counts)


@given(graphs_and_holding())
def test_unseen_evidence_counts_only_through_a_dependant_that_counts(state_of, case):
    checks, holding = case
    checks = tuple(replace(c, superseded_by=()) for c in checks)
    ok = grade(Acceptance(checks), state_of(checks, holding), ALL).ok
    for check in checks:
        if ok[check.id] and check.id not in holding:
            assert check.evidence
            assert any(ok[c.id] for c in checks if check.id in c.needs)


@given(graphs_and_holding())
def test_hard_prerequisites_bind_also_through_evidence(state_of, case):
    checks, holding = case
    ok = grade(Acceptance(checks), state_of(checks, holding), ALL).ok
    known = {c.id: c for c in checks}

    def acting_behind(name):
        for n in known[name].needs:
            yield from acting_behind(n) if known[n].evidence else [n]

    for name, counts in ok.items():
        assert not counts or all(ok[n] for n in acting_behind(name))


def test_evidence_is_no_prerequisite_but_what_it_needs_is(state_of):
    checks = (
        flag("open"),
        flag("read", needs=("open",), evidence=True),
        flag("pay", needs=("read",)),
    )
    blind = grade(Acceptance(checks), state_of(checks, {"open", "pay"}), ALL)
    assert blind.success
    forced = grade(Acceptance(checks), state_of(checks, {"read", "pay"}), ALL)
    assert forced.ok == {"open": False, "read": False, "pay": False}
    idle = grade(Acceptance(checks), state_of(checks, {"open"}), ALL)
    assert idle.ok == {"open": True, "read": False, "pay": False}


def test_evidence_of_evidence_counts_through_the_act_at_its_end(state_of):
    checks = (
        flag("find", evidence=True),
        flag("read", needs=("find",), evidence=True),
        flag("pay", needs=("read",)),
    )
    assert grade(Acceptance(checks), state_of(checks, {"pay"}), ALL).success


def test_every_hard_prerequisite_is_needed(state_of):
    checks = (flag("a"), flag("b"), flag("c", needs=("a", "b")), flag("d", needs=("c",)))
    verdict = grade(Acceptance(checks), state_of(checks, {"a", "c", "d"}), ALL)
    assert verdict.ok == {"a": True, "b": False, "c": False, "d": False}


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_a_successor_erases_marks_down_the_whole_chain(state_of, order):
    later = {"a": ("b",), "b": ("c",), "c": ()}
    checks = tuple(flag(name, superseded_by=later[name]) for name in order)
    assert grade(Acceptance(checks), state_of(checks, {"c"}), ALL).success
    assert grade(Acceptance(checks), state_of(checks, {"b"}), ALL).ok == {
        "a": True,
        "b": True,
        "c": False,
    }


@given(graphs_and_holding())
def test_grading_changes_nothing_and_repeats(state_of, case):
    checks, holding = case
    state = state_of(checks, holding, mail={"m1": {"to": "a@b.de"}})
    before = copy.deepcopy(state.tables)
    grader = Grader(Acceptance(checks), ALL)
    first = grader(state)
    state.writes += 1  # a new stamp, so that it grades again
    assert grader(state) == first == grade(Acceptance(checks), state, ALL)
    assert state.tables == before


@given(st.integers(0, 200))
def test_every_violation_costs(count):
    assert 0.0 < penalty(count + 1) < penalty(count) <= penalty(0) == 1.0


def test_penalty_by_hand():
    assert [penalty(n) for n in range(5)] == pytest.approx([1.0, 0.5, 0.25, 0.125, 0.1125])


@given(check_graphs())
def test_evidence_carries_at_most_its_share(checks):
    capped = cap_evidence(checks)
    acting = [c for c in checks if not c.evidence]
    if not acting:
        assert capped == checks
        return
    seen = sum(c.weight for c in capped if c.evidence)
    total = sum(c.weight for c in capped)
    assert seen <= EVIDENCE_SHARE * total * (1 + 1e-12)
    assert [c for c in capped if not c.evidence] == acting
    if sum(c.weight for c in checks if c.evidence) > seen * (1 + 1e-12):
        assert seen == pytest.approx(EVIDENCE_SHARE * total)  # no lower than it has to be
    ratios = {
        round(c.weight / d.weight, 9) for c, d in zip(capped, checks, strict=True) if c.evidence
    }
    assert len(ratios) <= 1


places = [(flag(name).args["table"], name) for name in ("c0", "c1", "c2", "calm")]
places += [("mail", "m1"), ("mail", "m2"), ("submission", "answer")]
writes = st.lists(
    st.tuples(st.sampled_from(places), st.sampled_from([None, {"on": True}, {"on": False}])),
    max_size=6,
)


def apply(state, write):
    (table, key), row = write
    if row is not None or key in state.table(table):
        state.put(table, key, row)


@settings(max_examples=200)
@given(graphs_and_holding(), writes, writes, writes)
def test_a_cached_grader_agrees_with_a_fresh_one_and_copies_go_their_own_way(
    state_of, case, shared, left, right
):
    checks, holding = case
    acceptance = Acceptance(
        checks, guards=(flag("calm"),), writes=(Allow("mail", ("m1",), ("on",), {"on": True}),)
    )
    state = state_of((*checks, flag("calm")), {*holding, "calm"}, mail={"m1": {"on": True}})
    grader = Grader(acceptance, ALL)
    for write in shared:
        apply(state, write)
        assert grader(state) == grade(acceptance, state, ALL)
    twin, other = grader.copy(), state.fork()
    for ours, theirs in zip(left, right, strict=False):
        apply(state, ours)
        apply(other, theirs)
        assert grader(state) == grade(acceptance, state, ALL)
        assert twin(other) == grade(acceptance, other, ALL)


def test_a_copy_keeps_the_damage_that_it_found(table_state):
    """Damage done in one sibling is none in the other, whatever that one changes afterwards."""
    wanted = Check("note", "rows", {"table": "notes", "key": "n1", "where": {"on": True}})
    acceptance = Acceptance((wanted,), writes=(Allow("notes", ("n1",), new={"on": True}),))
    state = table_state({"mail": {"m1": {"on": True}}, "notes": {}}, watched=("mail", "notes"))
    grader = Grader(acceptance, ALL)
    grader(state)
    twin, other = grader.copy(), state.fork()
    state.put("mail", "m1", {"on": False})
    assert grader(state).violations == ("edited mail/m1",)
    other.put("notes", "n1", {"on": True})
    assert twin(other) == grade(acceptance, other, ALL) and twin(other).success


def test_a_check_is_decided_again_only_when_its_table_was_replaced(state_of):
    asked = []

    def prepare(args):
        return lambda view: bool(asked.append(args["table"])) or True

    spy = Kind(prepare, FLAG.reads, timeout_s=None)
    acceptance = Acceptance(tuple(Check(t, "spy", {"table": t}) for t in TABLES))
    state = state_of((), (), mail={})
    grader = Grader(acceptance, {"spy": spy})
    grader(state)
    grader(state)
    state.put("mail", "m1", {})
    grader(state)
    assert asked == list(TABLES)
    state.put("green", "g", {})
    grader(state)
    assert asked == [*TABLES, "green"]


@settings(max_examples=300)
@given(graphs_and_holding(sets=2))
def test_settled_checks_are_demanded_but_never_paid(state_of, case):
    checks, start, more = case
    state = state_of(checks, start)
    settled = settle(Acceptance(checks), state, ALL)
    at_start = grade(settled, state, ALL)
    assert at_start.violations == ()
    assert at_start.progress == 0.0
    assert at_start.success == (not settled.checks)
    later = state_of(checks, start | more)
    assert grade(settled, later, ALL).success == grade(Acceptance(checks), later, ALL).success
    everything = state_of(checks, {c.id for c in checks})
    assert grade(settled, everything, ALL).success


def test_where_nothing_is_to_be_done_nothing_is_paid(state_of):
    state = state_of((), (), mail={})
    verdict = grade(Acceptance(()), state, ALL)
    assert (verdict.progress, verdict.success) == (0.0, True)
    state.put("mail", "m1", {})
    verdict = grade(Acceptance(()), state, ALL)
    assert (verdict.progress, verdict.success) == (0.0, False)


def test_undoing_what_was_settled_is_a_violation(state_of):
    checks = (flag("a"), flag("b", needs=("a",)))
    state = state_of(checks, {"a"})
    settled = settle(Acceptance(checks, guards=(flag("z"),)), state, ALL)
    assert [c.id for c in settled.checks] == ["b"]
    assert [g.id for g in settled.guards] == ["z", "a"]
    verdict = grade(settled, state_of(checks, {"b"}), ALL)
    assert verdict.violations == ("guard z", "guard a")
    assert verdict.progress == penalty(2)
    assert not verdict.success


def test_settling_keeps_no_guard_that_nobody_can_have_met(state_of):
    """Evidence that held only through a dependant, and a mark that a later step will erase."""
    read_then_pay = (flag("read", evidence=True), flag("pay", needs=("read",)))
    state = state_of(read_then_pay, {"pay"})
    settled = settle(Acceptance((*read_then_pay, flag("tell"))), state, ALL)
    assert ([c.id for c in settled.checks], [g.id for g in settled.guards]) == (["tell"], ["pay"])
    rename_then_move = (flag("rename", superseded_by=("move",)), flag("move"))
    settled = settle(Acceptance(rename_then_move), state_of(rename_then_move, {"rename"}), ALL)
    assert grade(settled, state_of(rename_then_move, {"move"}), ALL).success


def test_settling_keeps_what_is_still_to_be_done(state_of):
    checks = (
        flag("find", evidence=True),
        flag("read", needs=("find",), evidence=True),
        flag("pay", needs=("read",)),
        flag("tell", needs=("read",)),
        flag("sign"),
        flag("send", needs=("sign",)),
    )
    settled = settle(Acceptance(checks), state_of(checks, {"pay", "send"}), ALL)
    left = {c.id: c.needs for c in settled.checks}
    assert left == {
        "find": (),
        "read": ("find",),
        "tell": ("read",),
        "sign": (),
        "send": ("sign",),  # stands, but counts only once it was signed
    }
    settled = settle(Acceptance(checks[:3]), state_of(checks, {"pay"}), ALL)
    assert ([c.id for c in settled.checks], [g.id for g in settled.guards]) == ([], ["pay"])


def test_settle_needs_a_verdict(state_of):
    state = state_of((), (), mood={"now": {"is": "raise"}})
    with pytest.raises(ValueError, match="the disk is gone"):
        settle(Acceptance((Check("m", "moody", {}),)), state, ALL)


PAID = {"p0": {"payee": "Northgate", "cents": 900, "status": "sent"}}
VOIDS = {"pay": {"status": "refunded"}}


@pytest.mark.parametrize(
    ("edits", "violations"),
    [
        ([("p1", {"payee": "Halo", "cents": 5, "status": "refunded"})], []),
        ([("p1", {"payee": "Halo", "cents": 5, "status": "sent"})], ["new pay/p1"]),
        ([("p1", {"payee": "Orchard", "cents": 5, "status": "sent"})], []),
        ([("p1", {"payee": "Halo"}), ("p9", {"payee": "Halo"})], ["new pay/p1"]),
        ([("p0", PAID["p0"] | {"status": "refunded"})], ["edited pay/p0"]),
        ([("p0", PAID["p0"] | {"memo": "x"})], []),
        ([("p0", PAID["p0"] | {"memo": "x", "cents": 901})], ["edited pay/p0"]),
        ([("p0", {"payee": "Northgate", "cents": 900})], ["edited pay/p0"]),
        ([("p0", None)], ["deleted pay/p0"]),
        ([("n0", {"memo": "y"})], []),
        ([("n0", None)], ["deleted pay/n0"]),  # all of its fields may be edited
        ([("p0", None), ("p0", dict(PAID["p0"]))], []),
        ([("p0", None), ("p0", {"status": "refunded"})], ["edited pay/p0"]),
        ([("p1", {"status": "sent"}), ("p1", None)], []),
    ],
)
def test_only_net_effects_outside_the_footprint_are_damage(table_state, edits, violations):
    """Rows the agent made may cancel out; what stood there must be back exactly."""
    allow = (Allow("pay", ("p0", "n0"), ("memo",)), Allow("pay", new={"payee": "Orchard"}))
    allow += (Allow("pay", ("p9",), new={"payee": "Halo"}),)
    anything = Check("anything", "rows", {"table": "pay", "where": {}, "count": {"min": 0}})
    acceptance = Acceptance((anything,), writes=allow, voids=VOIDS)
    state = table_state({"pay": PAID | {"n0": {"memo": "x"}}}, watched=("pay",))
    grader = Grader(acceptance, ALL)
    assert grader(state).success
    for key, row in edits:
        state.put("pay", key, row)
        grader(state)
    verdict = grader(state)
    assert list(verdict.violations) == violations
    assert verdict.progress == penalty(len(violations))
    assert verdict.success == (not violations)


def test_changes_name_rows_and_fields_in_order():
    start = {"a": {"x": 1, "y": 2}, "b": {"x": 1}, "c": {"x": 1}}
    now = {"d": {"x": 5}, "a": {"x": 1, "z": 3}, "c": {"x": 1}}
    found = [(c.key, c.kind, c.fields) for c in changes("t", start, now)]
    assert found == [("d", "new", ("x",)), ("a", "edited", ("y", "z")), ("b", "deleted", ("x",))]
    assert changes("t", start, start) == ()


def test_an_attempt_is_a_change_that_was_submitted(table_state):
    acceptance = Acceptance((), voids=VOIDS)
    state = table_state({"pay": PAID}, watched=("pay",))
    state.put("submission", "answer", {"text": ""})
    assert not grade(acceptance, state, ALL).attempted
    state.put("pay", "p1", {"status": "refunded"})
    assert not grade(acceptance, state, ALL).attempted
    state.put("pay", "p1", {"status": "sent"})
    assert grade(acceptance, state, ALL).attempted
    state.put("submission", "answer", None)
    assert not grade(acceptance, state, ALL).attempted


def test_progress_of_damaged_success_stays_below_one(state_of):
    checks = (flag("a"), flag("b"))
    state = state_of(checks, {"a", "b"}, mail={})
    state.put("mail", "m1", {})
    verdict = grade(Acceptance(checks), state, ALL)
    assert (verdict.progress, verdict.success) == (0.5, False)
    almost = (flag("a", weight=1e9), flag("b"))
    verdict = grade(Acceptance(almost), state_of(almost, {"a"}), ALL)
    assert (verdict.progress, verdict.success) == (0.999, False)


REASONS = {
    "raise": "OSError: the disk is gone",
    "stall": "TimeoutError: no answer within 0.05 s",
}
BROKEN = ["raise", "stall", None, math.nan, 1.7, 1, "yes", np.bool_(True)]


@pytest.mark.parametrize("mood", BROKEN, ids=repr)
def test_a_broken_grader_gives_no_verdict_and_leaves_no_trace(state_of, mood):
    checks = (flag("a"), Check("moody", "moody", {}), flag("b"))
    acceptance = Acceptance(checks)
    state = state_of(checks[::2], {"a"}, mood={"now": {"is": True}})
    grader = Grader(acceptance, ALL)
    good = grader(state)
    assert good.ok == {"a": True, "moody": True, "b": False}

    state.put("mood", "now", {"is": mood})
    state.put(checks[0].args["table"], "a", None)
    started = time.perf_counter()
    broken = grader(state)
    assert time.perf_counter() - started < STALL_S
    assert broken.status == "no_verdict"
    assert math.isnan(broken.progress)
    assert (broken.success, broken.ok) == (False, {})
    assert broken.reason.startswith(REASONS.get(mood, "TypeError: check 'moody' must answer True"))
    assert broken.fingerprint == acceptance.fingerprint
    assert broken == grade(acceptance, state, ALL)  # NaN and all

    state.put("mood", "now", {"is": True})
    assert grader(state).ok == {"a": False, "moody": True, "b": False}
    state.put("mood", "now", {"is": False})
    assert grader(state).ok == {"a": False, "moody": False, "b": False}
    assert grader(state) == grade(acceptance, state, ALL)


@pytest.mark.parametrize("part", ["table", "names", "stamp"])
def test_a_broken_state_gives_no_verdict(state_of, part):
    state = state_of((), (), mail={})
    setattr(state, part, lambda *_: 1 / 0)
    verdict = grade(Acceptance((flag("a"),)), state, ALL)
    assert verdict.status == "no_verdict"
    assert verdict.reason.startswith("ZeroDivisionError")


@pytest.mark.parametrize("mood", [True, "stall"])
def test_grades_off_the_main_thread(state_of, mood):
    """Time limits by signal raise there."""
    state = state_of((), (), mood={"now": {"is": mood}})
    found = []
    acceptance = Acceptance((Check("m", "moody", {}),))
    worker = threading.Thread(target=lambda: found.append(grade(acceptance, state, ALL)))
    worker.start()
    worker.join(10)
    assert [v.status for v in found] == ["ok" if mood is True else "no_verdict"]


def test_verdicts_compare_by_value():
    nan = Verdict(math.nan, False, {}, status="no_verdict")
    assert nan == replace(nan, progress=float("nan"))
    assert nan != replace(nan, progress=0.0)
    assert Verdict(0.5, False, {"a": True}) != Verdict(0.5, False, {"a": False})


BASE = Acceptance((flag("a"), flag("b", needs=("a",))), start="0")


@pytest.mark.parametrize(
    "other",
    [
        replace(BASE, start="1"),
        replace(BASE, guards=(flag("g"),)),
        replace(BASE, writes=(Allow("mail"),)),
        replace(BASE, voids=VOIDS),
        replace(BASE, checks=BASE.checks[:1]),
        replace(BASE, checks=(flag("a", weight=2.0), BASE.checks[1])),
        replace(BASE, checks=(flag("a"), flag("b"))),
        replace(BASE, checks=(flag("a", evidence=True), BASE.checks[1])),
    ],
)
def test_the_fingerprint_covers_all_that_decides(other):
    assert other.fingerprint != BASE.fingerprint == copy.deepcopy(BASE).fingerprint


@pytest.mark.parametrize(
    ("checks", "message"),
    [
        ((flag("a"), flag("a")), "'a' twice"),
        ((flag("a", weight=0.0),), r"weight of check 'a' must be finite and > 0, got 0.0"),
        ((flag("a", weight=-1.0),), "got -1.0"),
        ((flag("a", weight=math.nan),), "got nan"),
        ((flag("a", weight=math.inf),), "got inf"),
        ((flag("a", needs=("b",)), flag("b")), r"check 'a' needs \['b'\], which must come before"),
    ],
)
def test_an_acceptance_must_make_sense(checks, message):
    with pytest.raises(ValueError, match=message):
        Acceptance(checks)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (Check("a", "flog", {}), "got 'flog'; did you mean 'flag'"),
        (Check("a", "rows", {"table": "mail", "wher": {}}), "args of check 'a' do not fit kind"),
        (Check("a", "rows", {"table": "mail", "wher": {}}), "did you mean 'where'"),
        (Check("a", "nothing", {}), "must read a table"),
    ],
)
def test_a_check_must_fit_its_kind(check, message):
    nothing = Kind(lambda args: lambda view: True, lambda args: ())
    with pytest.raises(ValueError, match=message):
        Grader(Acceptance((check,)), {**ALL, "nothing": nothing})
