"""A level that follows a potential, and rewards that are paid later."""

from __future__ import annotations

import itertools
import json
import math

import gymnasium as gym
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headway
from headway.verifiers import Check, Graph, Verdict
from headway.wrappers import (
    DependencyReward,
    Diff,
    PotentialShaping,
    ProgressReward,
    Redistribute,
)
from headway.wrappers.dependency import Later, Paced
from headway.wrappers.stack import build

GAMMA = st.sampled_from([0.5, 0.9, 1.0])
PHI = st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0))
NEEDS = {"c1": (), "c2": ("c1",), "c3": ("c1",), "c4": ()}
CHECKS = tuple(Check(name, "rows", {}, needs=before) for name, before in NEEDS.items())


def graded(*done):
    return Verdict(0.5, False, {name: name in done for name in NEEDS}, nodes=CHECKS)


def paced(gamma, kappa, clipping="carry", potential=None):
    return Paced("p", gamma=gamma, scale=0.5, kappa=kappa, clipping=clipping, potential=potential)


def plays(channel, verdicts, end="terminated"):
    channel.begin(verdicts[0])
    paid = []
    for t in range(1, len(verdicts)):
        ended = end if t == len(verdicts) - 1 else "no"
        paid.append(channel.step(verdicts[t - 1], verdicts[t], ended))
    return paid


def discounted(values, gamma):
    return sum(gamma**t * x for t, x in enumerate(values))


@given(
    phis=st.lists(PHI, min_size=2, max_size=8),
    gamma=GAMMA,
    kappa=st.floats(0.05, 1.5),
    end=st.sampled_from(["terminated", "truncated"]),
)
def test_what_is_carried_sums_to_the_difference(verdict, phis, gamma, kappa, end):
    """So nothing is won by losing in one step and gaining in many, or the reverse."""
    verdicts = [verdict(phi) for phi in phis]
    diff = Diff("d", gamma=gamma, scale=0.5, terminal="keep", on_truncation="keep")
    want = plays(diff, verdicts, end)
    channel = paced(gamma, kappa)
    paid = plays(channel, verdicts, end)
    assert discounted(paid, gamma) == pytest.approx(discounted(want, gamma), abs=1e-9)
    bound = channel.bound(gamma)
    assert bound.low - 1e-9 <= discounted(paid, gamma) <= bound.high + 1e-9
    assert all(bound.least - 1e-9 <= x <= bound.most + 1e-9 for x in paid)
    if kappa >= 1.0:
        assert paid == pytest.approx(want, abs=1e-12)
    if gamma == 1.0:
        assert all(abs(x) <= 0.5 * kappa + 1e-12 for x in paid[:-1])


def test_a_level_by_hand(verdict):
    verdicts = [verdict(phi) for phi in (0.0, 0.75, 0.75, 0.0, 1.0)]
    assert plays(paced(1.0, 0.5), verdicts) == [0.25, 0.125, -0.25, 0.375]
    assert plays(paced(1.0, 0.5, "lose"), verdicts) == [0.25, 0.0, -0.25, 0.25]
    halves = [0.25 * 0.5, 0.5 * (0.5 * 0.75 - 0.5), 0.5 * (0.5 * 0.25 - 0.75)]
    assert plays(paced(0.5, 0.5), verdicts)[:3] == pytest.approx(halves)


def test_what_is_lost_can_be_farmed_and_what_is_carried_cannot(verdict):
    """Everything undone in one turn, and done again in four, for ever."""
    lap = [0.0, 0.25, 0.5, 0.75, 1.0]
    verdicts = [verdict(phi) for phi in [1.0, *(lap * 20)]]
    lost, carried = (paced(1.0, 0.3, clipping) for clipping in ("lose", "carry"))
    assert sum(plays(lost, verdicts)) == pytest.approx(0.5 * 20 * 0.7)
    assert sum(plays(carried, verdicts)) == pytest.approx(0.0)
    assert lost.bound(1.0).high == math.inf
    assert lost.bound(1.0).most == pytest.approx(0.15)
    assert lost.bound(0.9).high == pytest.approx(1.5)
    assert carried.bound(1.0).high == 0.5


@given(done=st.lists(st.sets(st.sampled_from(sorted(NEEDS))), min_size=2, max_size=7), gamma=GAMMA)
@example(done=[set(), {"c1"}, {"c1", "c2"}, {"c2"}, {"c1", "c2"}], gamma=1.0)
def test_dependency_pays_for_the_graph(done, gamma):
    """Its sum is what the graph is worth at the end, less what it was at the start."""
    verdicts = [graded(*names) for names in done]
    graph = Graph()
    graph.begin(verdicts[0])
    phis = [graph.value(one) for one in verdicts]
    paid = plays(paced(gamma, 0.3, potential=Graph()), verdicts)
    want = 0.5 * (gamma ** (len(done) - 1) * phis[-1] - phis[0])
    assert discounted(paid, gamma) == pytest.approx(want, abs=1e-9)


@given(
    done=st.lists(st.sets(st.sampled_from(sorted(NEEDS))), min_size=2, max_size=7),
    gamma=GAMMA,
    kappa=st.floats(1.0, 1.5),
)
@example(done=[set(), set(NEEDS), set(NEEDS)], gamma=1.0, kappa=1.0)
def test_without_a_limit_each_turn_pays_its_own_difference(done, gamma, kappa):
    """So a turn that leaves the graph as it was pays nothing to who does not discount."""
    verdicts = [graded(*names) for names in done]
    graph = Graph()
    graph.begin(verdicts[0])
    phis = [graph.value(one) for one in verdicts]
    paid = plays(paced(gamma, kappa, potential=Graph()), verdicts)
    want = [0.5 * (gamma * now - was) for was, now in itertools.pairwise(phis)]
    assert paid == pytest.approx(want, abs=1e-12)


@given(data=st.data(), gamma=GAMMA, alpha=st.sampled_from([0.0, 0.25, 1.0]))
def test_redistributed_rewards_are_worth_the_same(Script, play, scripts, data, gamma, alpha):
    """Discounted, and channel by channel; gains early, everything else at the end."""
    script = data.draw(scripts())

    def inner():
        env = ProgressReward(Script(**script), gamma=gamma)
        return PotentialShaping(env, gamma=gamma, on_truncation="zero")

    free, turns = play(inner()), play(Redistribute(inner(), gamma=gamma, alpha=alpha))
    for name in ("progress", "potential"):
        was = [record["channels"][name] for *_, record in free]
        now = [record["channels"][name] for *_, record in turns]
        assert discounted(now, gamma) == pytest.approx(discounted(was, gamma), abs=1e-9)
        assert now[:-1] == [alpha * max(0.0, x) for x in was[:-1]]
        assert [record["channels_raw"][name] for *_, record in turns] == was
    for reward, _, _, record in turns:
        assert record["base"] + sum(record["channels"].values()) == pytest.approx(reward, abs=1e-9)


@given(phis=st.lists(PHI, min_size=3, max_size=6), gamma=GAMMA, data=st.data())
def test_another_one_can_take_over(verdict, phis, gamma, data):
    """In mid-episode, from plain data."""
    verdicts = [verdict(phi) for phi in phis]
    turn = data.draw(st.integers(1, len(phis) - 2))
    old, new = paced(gamma, 0.3), paced(gamma, 0.3)
    plays(old, verdicts[: turn + 1], end="no")
    new.load_state_dict(json.loads(json.dumps(old.state_dict())))
    later, twin = Later(gamma, 0.25), Later(gamma, 0.25)
    later.begin({})
    later.step({"channels": {"p": phis[0] or 0.5}}, "no")
    twin.load_state_dict(json.loads(json.dumps(later.state_dict())))
    records = [{"channels": {"p": 0.5}}, {"channels": {"p": 0.5}}]
    later.step(records[0], "terminated")
    twin.step(records[1], "terminated")
    assert records[0] == records[1]
    for before, after in itertools.pairwise(verdicts[turn:]):
        assert new.step(before, after, "no") == old.step(before, after, "no")


def test_redistribution_by_hand(Script, play):
    phis = [0.0, 0.5, 0.25, 1.0]
    env = Redistribute(ProgressReward(Script(phis), gamma=0.5, c=0.5), gamma=0.5, alpha=0.5)
    turns = play(env)
    raw = [0.5 * 0.25, 0.5 * (0.125 - 0.5), 0.5 * (0.5 - 0.25)]
    owed = (raw[0] / 2) / 0.25 + raw[1] / 0.5
    paid = [record["channels"]["progress"] for *_, record in turns]
    assert paid[1:] == pytest.approx([raw[0] / 2, 0.0, raw[2] + owed])
    env.reset()
    env.step("go")  # and no further: what is owed there is owed to nobody
    assert [r["channels"] for *_, r in play(env)] == [r["channels"] for *_, r in turns]


def test_bounds_and_claims(Script):
    shaping = PotentialShaping(Script(), gamma=0.9, on_truncation="zero")
    later = Redistribute(shaping, gamma=0.9).layer
    assert later.keeps_optimum(0.9) and not later.keeps_optimum(0.8)
    inner = shaping.layer.bound(0.9)
    assert later.bound(inner, 0.9)[:2] == inner[:2]
    assert later.bound(inner, 0.9)[2:] == (-math.inf, math.inf)
    assert later.bound(inner, 0.8) == (-math.inf, math.inf, -math.inf, math.inf)
    none = type(inner)(0.0, 0.0, 0.0, 0.0)
    assert later.bound(none, 0.9) == later.bound(none, 0.8) == none
    assert not DependencyReward(Script(), gamma=0.9).layer.keeps_optimum(0.9)
    with pytest.raises(ValueError, match=r"less than the 1\.0 of success, got up to 1 "):
        build(Script(), "dependency(rho=0.5),progress(c=0.5)", gamma=1.0)
    with pytest.raises(ValueError, match=r"got up to 1\.5 "):
        build(Script(), "dependency(clipping=lose)", gamma=0.9)


def test_in_an_environment_of_headway():
    """The oracle earns all of it, step by step, in a stack that was written down."""
    env = gym.make("headway/Apps-v0")
    env = build(env, "dependency(rho=0.5,kappa=1.0),redistribute(alpha=1.0)", gamma=1.0)
    _, info = env.reset(seed=3)
    assert info["headway"]["phi"]["graph"] == 0.0
    total, gains, solution = 0.0, 0, env.unwrapped.solution()
    for number, action in enumerate(solution):
        if number == len(solution) // 2:
            env = headway.fork(env)
            state = json.loads(json.dumps(env.env.get_state()))
            env.env.set_state(state)
        *_, info = env.step(action)
        paid = info["headway"]["channels"]["dependency"]
        total += paid
        gains += paid > 0.0
    assert info["headway"]["phi"]["graph"] == 1.0
    assert total == pytest.approx(0.5)
    assert gains > 1


@pytest.mark.parametrize(
    ("layer", "kwargs", "message"),
    [
        (DependencyReward, {"rho": 0.0}, r"rho must be a number in \(0, 1\), got 0"),
        (DependencyReward, {"rho": 1.0}, r"rho must be a number in \(0, 1\), got 1"),
        (DependencyReward, {"lam": 0.0}, "lam must be"),
        (DependencyReward, {"kappa": 0.0}, "kappa must be"),
        (DependencyReward, {"decay": "fat"}, "did you mean 'far'"),
        (DependencyReward, {"clipping": "loose"}, "did you mean 'lose'"),
        (DependencyReward, {"gamma": 1.5}, "gamma must be"),
        (Redistribute, {"alpha": 1.5}, r"alpha must be a number in \[0, 1\]"),
        (Redistribute, {"gamma": 0.0}, "gamma must be"),
    ],
)
def test_arguments(Script, layer, kwargs, message):
    with pytest.raises(ValueError, match=message):
        layer(Script(), **({"gamma": 1.0} | kwargs))


def test_all_arguments_are_rebuilt(script_id):
    dependency = {
        "gamma": 0.9,
        "rho": 0.25,
        "lam": 2.0,
        "kappa": 0.5,
        "decay": "far",
        "clipping": "lose",
        "name": "x",
    }
    env = DependencyReward(gym.make(script_id), **dependency)
    env = Redistribute(env, gamma=0.8, alpha=0.75)
    assert [one.kwargs for one in env.spec.additional_wrappers] == [
        dependency,
        {"gamma": 0.8, "alpha": 0.75},
    ]
    rebuilt = gym.make(env.spec)
    channel, later = rebuilt.env.layer, rebuilt.layer
    assert (channel.gamma, channel.scale, channel.kappa, channel.clipping) == (
        0.9,
        0.25,
        0.5,
        "lose",
    )
    assert (channel.signal.lam, channel.signal.decay, channel.name) == (2.0, "far", "x")
    assert (later.gamma, later.alpha) == (0.8, 0.75)
