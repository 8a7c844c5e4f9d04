"""Stacks written as text: what they stand for, and what they refuse."""

from __future__ import annotations

import sys
import types

import pytest
from hypothesis import given
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
from headway.wrappers.stack import build, channels_of, dense


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
    """Whatever is given back does not count; one may insist."""
    text = f"progress(c={c}),watermark(c={more}),potential(beta=5.0)"
    total = gamma * c + more
    if total < 1.0:
        assert dense(build(Script(), text, gamma=gamma), gamma) == pytest.approx(total)
        return
    with pytest.raises(ValueError, match=r"stack must pay less than the 1.0 of success, got up to"):
        build(Script(), text, gamma=gamma)
    env = build(Script(), text, gamma=gamma, allow_dominance=True)
    assert dense(env, gamma) == pytest.approx(total)


def test_filters_bound_what_is_inside_them(Script):
    env = build(Script(), "watermark(c=0.8),clip,watermark(c=0.9,name=b)", gamma=1.0)
    inside, outside = channels_of(env)
    assert [channel.name for channel, _ in (inside, outside)] == ["watermark", "b"]
    assert [len(filters) for _, filters in (inside, outside)] == [1, 0]
    assert dense(env, 1.0) == pytest.approx(0.9)
    kept = WatermarkReward(ProgressReward(Script(), gamma=1.0, c=0.25), c=0.25)
    assert dense(ScheduledReward(kept, schedule="const", start=0.5), 1.0) == pytest.approx(0.25)
    assert dense(build(Script(), "potential,gate", gamma=1.0), 1.0) == 0.0


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
        ("progress(name='('),gate(gate='clean')", "a layer whose arguments cannot be read"),
        ("progress(c=1/2)", "stack takes plain values as arguments, got c"),
        ("progress,,gate", "stack must be names like .*, got '' in it"),
        ("progress gate", "stack must be names like"),
        (
            "no_such_module:f",
            "layer of stack must name something as 'module:attribute', got 'no_such_module:f'",
        ),
        ("progress,progress", "may hold channel 'progress' only once"),
    ],
)
def test_what_it_refuses(Script, text, message):
    with pytest.raises(ValueError, match=message):
        build(Script(), text, gamma=1.0)
    with pytest.raises(ValueError, match=r"gamma must be a number in \(0, 1\], got 0"):
        build(Script(), "", gamma=0)
