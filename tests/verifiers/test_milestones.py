"""The forms of milestones that the paper has, and what a critic is taught from them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.verifiers import Milestones, Verdict, milestone_targets

IDS = tuple("abcdef")
GROUPS = (("a", "b"), ("c",), ("d", "e", "f"))


def verdict(done):
    return Verdict(0.5, False, {name: name in done for name in IDS})


def reached(done):
    return [set(group) <= set(done) for group in GROUPS]


@given(done=st.sets(st.sampled_from(IDS)))
def test_whole_milestones(done):
    """Their share, up to the first that is not reached, or in any order."""
    flags = [*reached(done), False]
    whole = Milestones(GROUPS, partial=False).value(verdict(done))
    assert whole == flags.index(False) / 3
    free = Milestones(GROUPS, partial=False, any_order=True).value(verdict(done))
    assert free == sum(flags) / 3
    assert whole <= free
    assert whole <= Milestones(GROUPS).value(verdict(done)) < whole + 1 / 3 or whole == 1.0


@given(done=st.sets(st.sampled_from(IDS)))
def test_parts_in_any_order(done):
    shares = [sum(name in done for name in group) / len(group) for group in GROUPS]
    found = Milestones(GROUPS, any_order=True).value(verdict(done))
    assert found == pytest.approx(sum(shares) / 3)


@given(steps=st.lists(st.sets(st.sampled_from(IDS)), max_size=6))
def test_latched_milestones_never_fall(steps):
    """Where what was done stays done, the potential does not fall."""
    done, before = set(), 0.0
    for more in steps:
        done |= more
        value = Milestones(GROUPS, partial=False).value(verdict(done))
        assert value >= before
        before = value


@pytest.mark.parametrize(
    ("n", "targets"),
    [
        ([0, 0, 0, 0, 2], [0.0, 0.125, 0.25, 0.375, 0.5]),
        ([0, 1, 1, 1, 2, 2], [0.0, 0.25, 1 / 3, 5 / 12, 0.5, 0.5]),
        ([1], [0.25]),
        ([0, 0], [0.0, 0.0]),
        ([0, 4], [0.0, 1.0]),
        ([0, 2, 1, 4], [0.0, 0.5, 0.75, 1.0]),
        ([], []),
    ],
)
def test_targets_by_hand(n, targets):
    assert milestone_targets(n, 4) == pytest.approx(targets)


@given(n=st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_targets(n):
    """They never fall, hit each milestone when it is reached, and stay flat after the last."""
    targets = milestone_targets(n, 5)
    assert len(targets) == len(n)
    assert all(a <= b for a, b in itertools.pairwise(targets))
    best, last = -1, 0
    for t, number in enumerate(n):
        if number > best:
            best, last = number, t
            assert targets[t] == number / 5
        assert best / 5 - 1e-12 <= targets[t]
    assert targets[last:] == [best / 5] * (len(n) - last)
    corners = [t for t in range(len(n)) if t == 0 or n[t] > max(n[:t])]
    for a, b in itertools.pairwise(corners):
        steps = [y - x for x, y in zip(targets[a:b], targets[a + 1 : b + 1], strict=True)]
        assert steps == pytest.approx([steps[0]] * len(steps))


@pytest.mark.parametrize(("n", "m"), [([0, 3], 2), ([-1], 2), ([0.5], 2), ([0], 0)])
def test_targets_refuse(n, m):
    with pytest.raises(ValueError, match=r"(reached|m) must be"):
        milestone_targets(n, m)
