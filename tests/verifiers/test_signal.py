import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.verifiers import Checks, Milestones, Verdict, penalty

IDS = tuple("abcdef")
GROUPS = (("a", "b"), ("c",), ("d", "e", "f"))
FAILED = Verdict(math.nan, False, {}, status="no_verdict", reason="OSError: gone")


def verdict(*done: str, violations: tuple[str, ...] = ()) -> Verdict:
    ok = {name: name in done for name in IDS}
    success = all(ok.values()) and not violations
    return Verdict(0.5 if not success else 1.0, success, ok, violations)


@pytest.mark.parametrize(
    ("done", "value"),
    [
        ("", 0.0),
        ("a", 1 / 6),
        ("ab", 1 / 3),
        ("bcdef", 1 / 6),  # what comes after an open milestone is worth nothing
        ("abd", 1 / 3),
        ("abc", 2 / 3),
        ("abcd", 7 / 9),
        ("abcde", 8 / 9),
        ("abcdef", 1.0),
    ],
)
def test_milestones_count_in_order(done, value):
    assert Milestones(GROUPS).value(verdict(*done)) == pytest.approx(value)


@given(
    done=st.sets(st.sampled_from(IDS)),
    more=st.sets(st.sampled_from(IDS)),
    groups=st.lists(st.sampled_from(IDS), min_size=1, unique=True).flatmap(
        lambda ids: st.integers(1, len(ids)).map(
            lambda size: [ids[i : i + size] for i in range(0, len(ids), size)]
        )
    ),
)
def test_milestones_stay_in_range_and_rise_with_what_is_done(done, more, groups):
    signal = Milestones(groups)
    before, after = signal.value(verdict(*done)), signal.value(verdict(*done, *more))
    assert 0.0 <= before <= after <= 1.0
    assert (after == 1.0) == {name for group in groups for name in group}.issubset(done | more)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_violations_cost_milestones_what_they_cost_progress(count):
    bad = tuple(f"edited mail/{i}" for i in range(count))
    assert Milestones(GROUPS).value(verdict(*IDS, violations=bad)) == penalty(count)


def test_checks_is_progress():
    assert Checks().value(verdict("a")) == 0.5
    assert Checks().value(verdict(*IDS)) == 1.0
    assert (Checks().name, Milestones(GROUPS).name) == ("checks", "milestones")


@pytest.mark.parametrize("signal", [Checks(), Milestones(GROUPS)])
def test_a_failed_measurement_has_no_value(signal):
    with pytest.raises(ValueError, match="OSError: gone"):
        signal.value(FAILED)


def test_an_unknown_check_is_named_even_behind_an_open_milestone():
    ok = {"pay.northgate": False}
    signal = Milestones([["pay.northgate"], ["pay.northgat"]])
    with pytest.raises(ValueError, match=r"'pay.northgat'; did you mean 'pay.northgate'\?"):
        signal.value(Verdict(0.0, False, ok))


@pytest.mark.parametrize("groups", [[], [[]], [["a"], []], "ab", ["a", "b"], [["a", "a"]]])
def test_groups_must_be_groups(groups):
    with pytest.raises(ValueError, match="groups"):
        Milestones(groups)
