"""Gates withhold what is paid and let through what is charged."""

from __future__ import annotations

import itertools
import math
import sys
import types

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headway.wrappers import GATES, Bound, Gate, GatedReward, PotentialShaping, ProgressReward


def attempt(verdict):
    """A gate of one's own, found by ``"module:function"`` in the tests below."""
    return verdict.progress >= 0.5


@given(data=st.data(), gate=st.sampled_from(sorted(GATES)), gamma=st.floats(0.5, 1.0))
def test_episode_gate(Script, play, scripts, data, gate, gamma):
    """Open: the same sum. Closed: exactly what was charged, and 0.0 where nothing was."""
    script = data.draw(scripts())
    free = play(ProgressReward(Script(**script), gamma=gamma))
    turns = play(GatedReward(ProgressReward(Script(**script), gamma=gamma), gate=gate))
    amounts = [record["channels"]["progress"] for *_, record in free]
    paid = [record["channels"]["progress"] for *_, record in turns]
    assert [record["gate"] for *_, record in turns[:-1]] == [{gate: None}] * (len(turns) - 1)
    *_, last = turns[-1]
    verdict = last["verdict"]
    opened = verdict.status == "ok" and GATES[gate](verdict)
    assert last["gate"] == {gate: opened}
    assert type(last["gate"][gate]) is bool
    assert paid[:-1] == [min(x, 0.0) for x in amounts[:-1]]
    charged = [x for x in amounts if x < 0]
    if opened:
        assert sum(paid) == pytest.approx(sum(amounts), abs=1e-9)
    else:
        assert paid[-1] == min(amounts[-1], 0.0)
        assert sum(paid) == sum(charged)
        assert charged or sum(paid) == 0.0
    assert [r["channels_raw"]["progress"] for *_, r in turns] == amounts
    assert [r["base"] for *_, r in turns] == [r["base"] for *_, r in free]


@given(data=st.data(), gate=st.sampled_from(sorted(GATES)))
def test_step_gate(Script, play, scripts, data, gate):
    """Each turn by its own verdict."""
    script = data.draw(scripts())
    free = play(ProgressReward(Script(**script), gamma=0.9))
    env = GatedReward(ProgressReward(Script(**script), gamma=0.9), scope="step", gate=gate)
    for (*_, was), (*_, now) in list(zip(free, play(env), strict=True))[1:]:
        opened = now["verdict"].status == "ok" and GATES[gate](now["verdict"])
        assert now["gate"] == {gate: opened}
        amount = was["channels"]["progress"]
        assert now["channels"]["progress"] == (amount if opened else min(amount, 0.0))
        assert now["channels_raw"]["progress"] == amount


@given(data=st.data(), more=st.floats(0.0, 0.5))
def test_more_progress_never_changes_a_closed_episode(Script, play, scripts, data, more):
    """Raise a turn's gain, and the return is the same to the last bit."""
    script = data.draw(scripts(broken=False))
    script["phis"] = sorted(script["phis"])
    script["attempted"] = script["success"] = False
    higher = [min(1.0, phi + more * i) for i, phi in enumerate(script["phis"])]
    returns = [
        sum(r for r, *_ in play(GatedReward(ProgressReward(Script(**s), gamma=1.0))))
        for s in (script, {**script, "phis": higher})
    ]
    assert returns[0] == returns[1] == sum(script["bases"])


@given(data=st.data())
def test_a_closed_gate_erases_no_penalty(Script, play, scripts, data):
    script = data.draw(scripts(broken=False))
    script["attempted"] = script["success"] = False
    phis = script["phis"]
    falls = sum(0.5 * (b - a) for a, b in itertools.pairwise(phis) if b < a)
    assume(falls < 0)
    turns = play(GatedReward(ProgressReward(Script(**script), gamma=1.0)))
    assert sum(r["channels"]["progress"] for *_, r in turns) == pytest.approx(falls)


def test_what_is_collected_is_not_discounted():
    """0.01 a turn is 0.1 to a learner with 0.9, and whatever the turns come to on the last one."""
    paid = Bound(0.0, 0.1, 0.0, 0.01)
    gate = Gate("clean", "episode")
    assert gate.bound(paid, 0.9) == (0.0, 0.1, 0.0, math.inf)
    assert gate.bound(paid, 1.0) == (0.0, 0.1, 0.0, 0.1)
    assert Gate("clean", "step").bound(paid, 0.9) == paid
    both = Bound(-0.5, 0.5, -1.0, 1.0)
    assert gate.bound(both, 1.0) == (-math.inf, 0.5, -1.0, math.inf)


def test_which_end_opens_what(verdict):
    """An attempt need not be right; a success is one without a trace of submission."""
    assert not GATES["attempted"](verdict(0.9))
    assert GATES["attempted"](verdict(0.2, attempted=True))
    assert GATES["attempted"](verdict(1.0, success=True))
    assert GATES["success"](verdict(1.0, success=True))
    assert not GATES["success"](verdict(0.9, attempted=True))
    assert GATES["clean"](verdict(0.0))
    assert not GATES["clean"](verdict(0.9, violations=1, attempted=True))


def test_no_verdict_at_the_end_closes_and_says_so(Script, play):
    script = {"phis": [0.0, 0.5, None], "attempted": True}
    for gate in GATES:
        *_, (_, _, _, record) = play(
            GatedReward(ProgressReward(Script(**script), gamma=1.0), gate=gate)
        )
        assert record["gate"] == {gate: False}
        assert record["channels"] == {"progress": 0.0}
        assert record["status"] == "no_verdict"


def test_several_channels_and_the_next_episode(Script, play):
    """Each channel is paid its own sum, and nothing is carried into the next episode."""
    inner = PotentialShaping(
        ProgressReward(Script([0.0, 0.5, 0.25, 0.75], attempted=True), gamma=1.0),
        gamma=1.0,
        on_truncation="zero",
    )
    env = GatedReward(inner)
    for _ in range(2):
        turns = play(env)
        assert [r["channels"] for *_, r in turns] == [
            {"progress": 0.0, "potential": 0.0},
            {"progress": 0.0, "potential": 0.0},
            {"progress": -0.125, "potential": -0.25},
            {"progress": 0.5, "potential": pytest.approx(0.25)},
        ]
    env.unwrapped.attempted = False
    assert [r["channels"]["progress"] for *_, r in play(env)] == [0.0, 0.0, -0.125, 0.0]


def test_a_gate_of_ones_own(Script, play, monkeypatch):
    """By a name that a spec can hold."""
    module = types.ModuleType("my_gates")
    module.attempt, module.number = attempt, 3
    monkeypatch.setitem(sys.modules, "my_gates", module)
    for phi, opened in ((0.5, True), (0.4, False)):
        env = GatedReward(ProgressReward(Script([0.0, phi]), gamma=1.0), gate="my_gates:attempt")
        *_, (reward, _, _, record) = play(env)
        assert record["gate"] == {"my_gates:attempt": opened}
        assert reward == pytest.approx(0.5 * phi if opened else 0.0)
    for name in ("my_gates:atempt", "no_such_module:f", "my_gates:number"):
        with pytest.raises(ValueError, match=r"gate must name something .*, got "):
            GatedReward(Script(), gate=name)


def test_bad_arguments(Script):
    with pytest.raises(ValueError, match=r"gate must be one of .*, got 'atempted'; did you mean"):
        GatedReward(Script(), gate="atempted")
    with pytest.raises(ValueError, match=r"scope must be one of \['episode', 'step'\], got 'turn'"):
        GatedReward(Script(), scope="turn")
    with pytest.raises(ValueError, match="a stack may hold gate 'clean' only once; drop one"):
        GatedReward(GatedReward(Script(), gate="clean"), scope="step", gate="clean")
    with pytest.raises(TypeError):
        GATES["mine"] = attempt
