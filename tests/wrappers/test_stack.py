"""Stacks written as text: what they stand for, and what they refuse."""

from __future__ import annotations

import math
import sys
import types

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.wrappers import (
    DedupReward,
    GatedReward,
    NoveltyReward,
    PotentialShaping,
    ProgressReward,
    ScheduledReward,
    WatermarkReward,
)
from headway.wrappers.audit import explore
from headway.wrappers.miniature import Miniature
from headway.wrappers.stack import bounded, build, channels_of, dense, keeps_optimum


def layers(env):
    """``(class, arguments)`` of each, from the inside out."""
    found = []
    while hasattr(env, "env"):
        found.append((type(env), env._saved_kwargs))
        env = env.env
    return found[::-1]


def test_names_arguments_and_what_is_shared(Script):
    """Bare words are texts; ``gamma`` and ``on_truncation`` go to whoever takes them."""
    text = ' progress(c=0.3, name="a,b"),gate(gate=clean) , potential(gamma=0.5),schedule(steps=3)'
    env = build(Script(), text, gamma=0.9, on_truncation="keep")
    shaping = {"gamma": 0.5, "on_truncation": "keep", "terminal": "zero", "beta": 1.0}
    assert layers(env) == [
        (ProgressReward, {"gamma": 0.9, "c": 0.3, "potential": "checks", "name": "a,b"}),
        (GatedReward, {"scope": "episode", "gate": "clean"}),
        (PotentialShaping, {**shaping, "potential": "checks", "name": "potential"}),
        (ScheduledReward, {"schedule": "linear", "steps": 3, "start": 1.0}),
    ]
    bare = Script()
    assert build(bare, "", gamma=1.0) is bare


def test_layers_of_ones_own(Script, monkeypatch):
    mine = types.ModuleType("my_layers")
    mine.twice = lambda env, *, gamma, key: DedupReward(NoveltyReward(env), key=key)
    monkeypatch.setitem(sys.modules, "my_layers", mine)
    env = build(Script(), "my_layers:twice(key=action)", gamma=1.0)
    assert [kind for kind, _ in layers(env)] == [NoveltyReward, DedupReward]


@given(c=st.floats(0.01, 0.99), more=st.floats(0.01, 0.99), gamma=st.sampled_from([0.9, 1.0]))
def test_channels_stay_below_success_together(Script, c, more, gamma):
    """Whatever is given back does not count; one may insist; by hand nobody asks."""
    text = f"progress(c={c}),watermark(c={more}),potential(beta=5.0)"
    total = gamma * c + more
    if total < 1.0:
        assert dense(build(Script(), text, gamma=gamma), gamma) == pytest.approx(total)
        return
    with pytest.raises(ValueError, match=r"stack must pay, .* less than the 1.0 of success"):
        build(Script(), text, gamma=gamma)
    env = build(Script(), text, gamma=gamma, allow_dominance=True)
    assert dense(env, gamma) == pytest.approx(total)
    env = WatermarkReward(ProgressReward(Script(), gamma=gamma, c=c), c=more)
    assert dense(env, gamma) == pytest.approx(total)


@pytest.mark.parametrize(
    ("stack", "gamma", "most"),
    [
        ("turncost(cap=0.99,cost=0.5),novelty(cap=0.9,b=0.1)", 1.0, 1.89),
        ("turncost(cap=0.99,cost=0.5),novelty(cap=0.9,b=0.1)", 0.9, 1.89),
        ("turncost,schedule(steps=3,start=2.5)", 1.0, 1.25),
        ("turncost(cap=0.9),redistribute,watermark(c=0.2)", 0.9, 1.1),
        ("turncost(cap=0.9),placebo(kind=shuffle_turns),watermark(c=0.2)", 1.0, 1.1),
        ("progress(c=0.9),placebo(kind=random)", 1.0, math.inf),
        ("progress(c=0.1),placebo(kind=random),turncost", 1.0, math.inf),
        ("progress(c=0.9),placebo(kind=flip,p=0.1)", 1.0, math.inf),
        ("dependency(clipping=lose)", 1.0, math.inf),
        ("progress,redistribute(gamma=0.9)", 1.0, math.inf),
        ("potential(gamma=1.0,beta=5)", 0.9, 5.0),
        ("s2d(gamma=1.0,start_at=0,beta=5)", 0.9, 5.0),
        ("potential(beta=5),redistribute(gamma=1.0)", 0.9, math.inf),
    ],
)
def test_what_could_outweigh_success_is_refused(stack, gamma, most):
    """What successes are charged counts like what failures are paid; no limit is a limit passed."""
    with pytest.raises(ValueError, match=f"got up to {most:g} from .* allow_dominance=True"):
        build(Miniature(), stack, gamma=gamma)
    env = build(Miniature(), stack, gamma=gamma, allow_dominance=True)
    assert dense(env, gamma) == pytest.approx(most)


@pytest.mark.parametrize("gamma", [0.9, 0.99, 1.0])
@pytest.mark.parametrize("stack", ["progress,clip", "progress,clip(eta=0.1)", "potential,gate"])
def test_charges_that_go_on_are_no_part_of_it(stack, gamma):
    """Under a discount as well, which is all that limits them there."""
    assert dense(build(Miniature(), stack, gamma=gamma), gamma) == 0.0


WEIGHT = st.floats(0.05, 0.95).map(lambda weight: round(weight, 2))
CHANNELS = (
    "progress(c={})",
    "watermark(c={})",
    "information(c={})",
    "match(c={})",
    "staged(c={})",
    "dependency(rho={},kappa=0.3)",
    "turncost(cap={},cost=0.3)",
    "novelty(cap={},b=0.4)",
    "potential(beta={})",
    "progress(c={}),gate(gate=success)",
    "watermark(c={}),gate(gate=clean)",
    "progress(c={}),redistribute",
    "progress(c={}),delta(alpha=0.9)",
    "turncost(cap={},cost=0.3),schedule(schedule=const,start=1.5)",
)
"""Stacks whose charges have a limit, each with a weight."""


@st.composite
def stacks(draw):
    kinds = draw(st.lists(st.sampled_from(CHANNELS), min_size=1, max_size=3, unique=True))
    return ",".join(
        kind.replace("{}", f"{draw(WEIGHT)},name=c{number}", 1) for number, kind in enumerate(kinds)
    )


@settings(max_examples=40)
@given(stack=stacks())
@example("turncost(cap=0.99,cost=0.5),novelty(cap=0.9,b=0.4)")
@example("watermark(c=0.5),novelty(cap=0.45,b=0.4)")
def test_what_is_accepted_puts_success_first(stack):
    """Undiscounted, in every play of a miniature: the worst success beats the best failure."""
    try:
        build(Miniature(), stack, gamma=1.0)
    except ValueError as error:
        assert "stack must pay" in str(error)
        return
    good, bad = returns(stack)
    assert good > bad


def test_what_is_refused_may_not():
    good, bad = returns("turncost(cap=0.99,cost=0.5),novelty(cap=0.9,b=0.4)")
    assert good == pytest.approx(0.01 + 0.8) and bad == pytest.approx(0.9)


def returns(stack):
    """The least return of a success and the greatest of a failure, of all plays of four turns."""
    few = ("look", "fill", "patch", "sign", "spoil", "submit")
    game = explore(stack, gamma=1.0, actions=few)
    worst, best = {}, {}
    for at in range(len(game.nodes) - 1, -1, -1):
        good, bad = [math.inf], [-math.inf]
        for branches in game.nodes[at].edges.values():
            for branch in branches:
                total = branch.base + sum(branch.pays)
                if branch.to is not None:
                    good.append(total + worst[branch.to])
                    bad.append(total + best[branch.to])
                elif branch.base:
                    good.append(total)
                else:
                    bad.append(total)
        worst[at], best[at] = min(good), max(bad)
    return worst[0], best[0]


def test_a_stack_claims_what_all_its_layers_claim():
    """For the learner's discount and no other."""
    env = build(Miniature(), "potential,schedule(steps=3),progress,clip", gamma=0.9)
    shaping, progress = channels_of(env)
    assert not keeps_optimum(*shaping, 0.9), "clip is around it as well"
    assert keeps_optimum(shaping[0], shaping[1][:1], 0.9)
    assert not keeps_optimum(shaping[0], shaping[1][:1], 1.0)
    assert not keeps_optimum(progress[0], [], 0.9)


def test_filters_bound_what_is_inside_them(Script):
    env = build(Script(), "watermark(c=0.8),clip,watermark(c=0.9,name=b)", gamma=1.0)
    inside, outside = channels_of(env)
    assert [channel.name for channel, _ in (inside, outside)] == ["watermark", "b"]
    assert [len(filters) for _, filters in (inside, outside)] == [1, 0]
    (clip,) = inside[1]
    assert bounded(*inside, 1.0) == clip.bound(inside[0].bound(1.0), 1.0) != inside[0].bound(1.0)
    assert dense(env, 1.0) == pytest.approx(0.9)
    kept = WatermarkReward(ProgressReward(Script(), gamma=1.0, c=0.25), c=0.25)
    assert dense(ScheduledReward(kept, schedule="const", start=0.5), 1.0) == pytest.approx(0.25)
    assert dense(build(Script(), "potential,gate", gamma=1.0), 1.0) == 0.0


@pytest.mark.parametrize("name", ["(", "a)b", "a,b", "[", "it\\'s, so"])
def test_texts_may_hold_brackets_and_commas(name):
    """What stands in quotes separates nothing."""
    env = build(Miniature(), f"progress(name='{name}'),gate(gate='clean')", gamma=1.0)
    ((channel, filters),) = channels_of(env)
    assert channel.name == name.replace("\\", "") and len(filters) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("progres", "layer of stack must be one of .* did you mean 'progress'"),
        ("progress(c=2)", r"c must be a number in \(0, 1\), got 2"),
        ("progress(d=0.5)", r"a layer 'progress\(d=0.5\)' that cannot be made: .*'d'"),
        ("placebo", "a layer 'placebo' that cannot be made: .*'kind'"),
        ("progress(0.5)", "stack takes arguments by name only"),
        ("progress(**{})", "stack takes arguments by name only"),
        ("progress(c=)", "a layer whose arguments cannot be read"),
        ("progress(c=1/2)", "stack takes plain values as arguments, got c"),
        ("progress(c={[]: 1})", "stack takes plain values as arguments, got c"),
        ("progress(c=0.3)(name='x')", "a layer whose arguments cannot be read"),
        ("progress(c=" + "-" * 200_000 + "1)", "a layer whose arguments cannot be read"),
        ("progress(c=" + "(" * 300 + "1" + ")" * 300 + ")", "a layer whose arguments cannot be"),
        ("progress,,gate", "stack must be names like .*, got '' in it"),
        ("progress gate", "stack must be names like"),
        (
            "no_such_module:f",
            "layer of stack must name something as 'module:attribute', got 'no_such_module:f'",
        ),
        ("progress,progress", "may hold channel 'progress' only once"),
        ("progress(cc=0.3)", "its arguments are .*'c'.*, got 'cc'; did you mean 'c'"),
        ("anneal", r"it needs \['steps'\]; write anneal\(steps=...\)"),
        ("progress(c=0.1,c=0.2)", "an argument given twice"),
        ("gate,progress", "no channel is inside it; write layers from the inside out"),
        ("builtins:callable", "that cannot be made"),
        ("numpy:array_no", "got 'numpy:array_no': .*array_no"),
    ],
)
def test_what_it_refuses(Script, text, message):
    with pytest.raises(ValueError, match=message):
        build(Script(), text, gamma=1.0)
    with pytest.raises(ValueError, match=r"gamma must be a number in \(0, 1\], got 0"):
        build(Script(), "", gamma=0)
