"""The exact audit: a miniature played out completely, and what is proved there."""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.verifiers import Potential
from headway.wrappers import Channel, ChannelWrapper, Diff
from headway.wrappers.audit import (
    GAP,
    OUTSIDE,
    PRACTICE,
    Play,
    best_of,
    explore,
    moments,
    paid_for,
    prove,
    staged,
)
from headway.wrappers.channel import Bound, layers_of
from headway.wrappers.miniature import ACTIONS, CHANCE, Desk, Miniature
from headway.wrappers.stack import LAYERS

BAD = str(Path(__file__).parents[2] / "examples")

STACKS = {
    "progress": ["progress", "progress(gamma=1.0)", "progress,potential"],
    "potential": ["potential", "potential(potential=graph)", "potential(terminal=keep)"],
    "gate": [
        "progress,gate",
        "potential,gate",
        "progress,gate,potential",
        "progress,gate(scope=step,gate=clean)",
    ],
    "schedule": ["progress,schedule(steps=10)", "potential,schedule(steps=10)"],
    "anneal": ["progress,anneal(steps=10)", "potential,anneal(steps=10)"],
    "s2d": ["s2d(start_at=5)"],
    "watermark": ["watermark"],
    "clip": ["progress,clip", "potential,clip(eta=0.1)"],
    "delta": ["progress,delta", "potential,delta"],
    "dedup": ["progress,dedup", "potential,dedup"],
    "novelty": ["novelty"],
    "late": ["late"],
    "turncost": ["turncost", "progress,gate,turncost"],
    "placebo": [
        "progress,placebo(kind=random)",
        "progress,placebo(kind=flip,p=0.2)",
        "potential,placebo(kind=flip,p=0.2)",
        "progress,placebo(kind=shuffle_turns)",
    ],
    "information": ["information", "information,gate"],
    "dependency": ["dependency"],
    "redistribute": ["progress,redistribute", "potential,redistribute"],
    "match": ["match"],
    "staged": ["staged"],
    "rubric": [f"rubric(judge='{__name__}:keen')"],
}
"""For every layer stacks that it makes sense in, with what it cannot do without."""


def keen(task, transcript):
    """A judge that likes one action."""
    return 1.0 if "> sign\n" in transcript else 0.0


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """The gallery of bad rewards, and this module, by the names that stacks give them."""
    monkeypatch.syspath_prepend(BAD)
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _module())


def _module():
    module = type(sys)(__name__)
    module.__dict__.update(globals())
    return module


def every(turns, actions=tuple(ACTIONS)):
    """Every sequence of actions of an episode, cut after its end, with and without luck."""
    for luck in ("lucky", "unlucky"):
        seen = set()
        for actions_ in itertools.product(actions, repeat=turns):
            end = actions_.index("submit") + 1 if "submit" in actions_ else turns
            if actions_[:end] not in seen:
                seen.add(actions_[:end])
                yield Play(f"Miniature-v0/{turns}/{luck}", actions_[:end])


# The miniature.


def test_the_miniature_ends_as_worlds_of_tools_do():
    """Success on the last turn terminates, anything else there is cut; handing in terminates."""
    for turns, actions, outcome, terminated, truncated in (
        (4, "look fill sign submit", 1.0, True, False),
        (3, "look fill sign", 1.0, True, False),
        (3, "fill sign spoil", 0.0, False, True),
        (3, "fill sign crash", 0.0, False, True),
        (2, "patch submit", 0.0, True, False),
        (2, "patch wait", 0.0, False, True),
    ):
        env = Miniature(turns)
        env.reset()
        for action in actions.split():
            _, reward, *ends, _ = env.step(action)
        assert (reward, *ends) == (outcome, terminated, truncated), actions
        with pytest.raises(gym.error.ResetNeeded):
            env.step("wait")


def test_the_miniature_has_what_a_reward_can_be_wrong_about():
    def phi(actions, **lucky):
        env = Miniature(9)
        env.reset(options={"task_id": f"Miniature-v0/9/{lucky.get('luck', 'lucky')}"})
        for action in actions.split():
            env.step(action)
        return env.grade()

    assert 0.0 == phi("fill clear").progress < phi("look").progress <= 0.15 + 1e-9
    assert phi("look").progress < phi("fill").progress < phi("patch").progress < 1.0
    assert phi("fill sign submit").success and not phi("patch sign submit").success
    assert phi("fill sign submit", luck="unlucky").progress == 0.0
    assert phi("patch spoil").progress == phi("patch").progress / 2
    assert phi("patch spoil").violations and not phi("patch spoil clear").violations
    assert math.isnan(phi("fill crash").progress) and phi("fill crash wait").status == "ok"
    assert (phi("").information, phi("look").information) == (0.0, 1.0)
    assert [check.needs for check in phi("").nodes] == [
        (),
        ("read.label",),
        ("fill.form",),
        ("fill.neat",),
    ]


@given(st.lists(st.sampled_from([*ACTIONS, "nonsense"]), max_size=8), st.integers(0, 8))
def test_the_miniature_can_be_put_into_a_state(actions, at):
    """And a copy goes its own way; equal anchors are equal desks up to the dark."""
    env = Miniature(20)
    env.reset()
    actions = [action for action in actions if action != "submit"]
    for action in actions[:at]:
        env.step(action)
    other, twin = Miniature(20), copy.deepcopy(env)
    other.reset()
    other.set_state(json.loads(json.dumps(env.get_state())))
    for action in actions[at:]:
        assert env.step(action)[:4] == other.step(action)[:4]
    assert (env.anchor(), env.place) == (other.anchor(), other.place)
    assert twin.place[1] == len(actions[:at])


@pytest.mark.parametrize("id", ["Maxiature-v0/4/lucky", "Miniature-v0/4/happy", "Miniature-v0"])
def test_the_miniature_knows_its_tasks(id):
    with pytest.raises(ValueError, match="must be"):
        Miniature().reset(options={"task_id": id})


# Playing out.


@pytest.mark.parametrize("stack", ["progress", "progress,gate", "watermark,dedup"])
def test_extremes_are_those_of_every_play(stack):
    """What a game says a channel can pay is what trying everything with new stacks finds."""
    few = ("fill", "spoil", "clear", "sign", "submit")
    game = explore(stack, gamma=0.9, turns=3, actions=few)
    channel = game.channels[0]
    sums = {}
    env = staged(Miniature(3), stack, gamma=0.9, on_truncation="zero")
    for play in every(3, few):
        sums[play] = paid_for(env, play, 0.9)[channel]
    for most, best in ((True, max), (False, min)):
        found, play = game.extreme(channel, most)
        assert found == pytest.approx(best(sums.values()), abs=1e-12)
        assert sums[play] == pytest.approx(found, abs=1e-12)


def expectimax(env, gamma, actions):
    """The best expected return from here on, by copies of the stack and nothing else."""
    best = -math.inf
    for action in actions:
        risky = action == "sign" and env.unwrapped.place[0].form == "filled"
        value = 0.0
        for lucky, chance in ((True, CHANCE), (False, 1 - CHANCE)) if risky else ((True, 1.0),):
            twin = copy.deepcopy(env)
            twin.unwrapped.lucky = lucky
            _, reward, terminated, truncated, _ = twin.step(action)
            later = 0.0 if terminated or truncated else gamma * expectimax(twin, gamma, actions)
            value += chance * (reward + later)
        best = max(best, value)
    return best


@pytest.mark.parametrize("stack", ["", "progress", "progress,gate"])
def test_best_play_is_that_of_a_search_without_memory_states(stack):
    few = ("fill", "patch", "sign", "clear", "submit")
    game = explore(stack, gamma=0.9, turns=3, actions=few)
    env = staged(Miniature(3), stack, gamma=0.9, on_truncation="zero")
    env.reset()
    worth = game.solve(lambda node, action, branch: branch.base + sum(branch.pays))
    assert max(worth[0].values()) == pytest.approx(expectimax(env, 0.9, few), abs=1e-12)


def test_memories_that_differ_are_kept_apart():
    """The watermark of a form that was filled and cleared is not that of a blank one."""
    game = explore("watermark", gamma=1.0, turns=3, actions=("fill", "clear", "wait"))
    places = [node.place for node in game.nodes]
    assert places.count((Desk(), 2)) == 2
    (unfilled,) = {len(explore("", gamma=1.0, turns=3, actions=("fill", "clear")).nodes)}
    assert unfilled == 5


def test_layers_without_a_state_are_refused():
    with pytest.raises(TypeError, match=r"get_state and set_state, got TransformReward"):
        prove(f"{__name__}:doubled", gamma=1.0)


def doubled(env):
    return gym.wrappers.TransformReward(env, lambda reward: 2.0 * reward)


def bribed(env):
    return Bribe(env)


class Bribe(gym.Wrapper):
    """A wrapper that is no layer and pays for patching."""

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        return obs, reward + 0.5 * (action == "patch"), *rest

    def get_state(self):
        return {}

    def set_state(self, state):
        pass


@pytest.mark.parametrize("stack", [f"{__name__}:bribed,progress", f"progress,{__name__}:bribed"])
def test_what_comes_from_no_channel_is_seen(stack):
    found = prove(stack, gamma=1.0)
    assert [paid.name for paid in found.channels] == ["progress", OUTSIDE]
    assert found.channels[1].seen[1] >= 0.5 and found.channels[1].broken is not None


def hiding(env):
    return Hide(env)


class Hide(Bribe):
    """A wrapper that is no layer and writes into the record as if it were one."""

    def step(self, action):
        obs, reward, *rest, info = self.env.step(action)
        paid = 0.5 * (action == "patch")
        info["headway"]["channels"]["hidden"] = paid
        return obs, reward + paid, *rest, info


def test_what_no_layer_declares_is_seen():
    found = prove(f"progress,{__name__}:hiding", gamma=1.0)
    assert [paid.name for paid in found.channels] == ["progress", OUTSIDE]
    assert found.channels[1].seen[1] >= 0.5 and found.channels[1].broken is not None


# Optima.


def test_every_layer_has_stacks():
    assert list(STACKS) == list(LAYERS)


@pytest.mark.parametrize(
    ("stack", "gamma"),
    [
        pytest.param(stack, gamma, marks=() if gamma == 0.9 else pytest.mark.slow)
        for row in STACKS.values()
        for stack in row
        for gamma in (0.9, 1.0)
    ],
)
def test_claims_are_true_and_bounds_hold(stack, gamma):
    """Who claims to keep the optimum does, who does not claim it does not; bounds hold exactly."""
    if stack == "progress(gamma=1.0)" and gamma < 1.0:
        pytest.skip("farmed: see the gallery")
    found = prove(stack, gamma=gamma)
    assert found.preserved == found.claimed, found.preference
    assert [paid.name for paid in found.channels if paid.broken] == []


def test_shaping_that_is_kept_at_a_cut_pays_for_not_handing_in():
    """Without a bootstrap; the best play with it runs into the last turn."""
    for gamma in (0.9, 1.0):
        found = prove("potential", gamma=gamma, on_truncation="keep")
        assert not found.claimed and not found.preserved
        assert found.preference.outcome
        assert "submit" not in found.preference.chosen.actions


@pytest.mark.parametrize(
    ("stack", "gamma"),
    [
        ("potential(gamma=1.0)", 0.9),
        ("potential(gamma=0.9)", 1.0),
        ("s2d(gamma=1.0,start_at=0)", 0.9),
        ("potential,redistribute(gamma=1.0)", 0.9),
    ],
)
def test_a_discount_that_is_not_the_learners_keeps_nothing(stack, gamma):
    """And does not say that it does."""
    found = prove(stack, gamma=gamma)
    assert not found.claimed and not found.preserved


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_false_claims_are_found(gamma):
    found = prove("bad_rewards:kept_shaping", gamma=gamma)
    assert found.claimed and not found.preserved


def test_a_broken_bound_is_found_with_a_play():
    found = prove("bad_rewards:too_modest", gamma=1.0).channels[0]
    env = staged(Miniature(), "bad_rewards:too_modest", gamma=1.0, on_truncation="zero")
    assert paid_for(env, found.broken, 1.0)["modest"] > found.bound.high + GAP


def spread(env):
    channel = Spread("spread", gamma=1.0, scale=0.3, terminal="keep", on_truncation="keep")
    return ChannelWrapper(env, channel)


class Spread(Diff):
    """Declares too little for an episode and enough for a turn."""

    def bound(self, gamma):
        return super().bound(gamma)._replace(high=0.25)


def test_a_broken_bound_of_an_episode_alone():
    (found,) = prove(f"{__name__}:spread", gamma=1.0).channels
    assert found.broken is not None and found.turn[1] <= found.bound.most


def quick(env):
    channel = Quick("quick", gamma=1.0, scale=0.3, terminal="keep", on_truncation="keep")
    return ChannelWrapper(env, channel)


class Quick(Diff):
    """Declares too little for a turn and enough for an episode."""

    def bound(self, gamma):
        return super().bound(gamma)._replace(most=0.1)


def test_a_broken_bound_of_a_turn_alone():
    """The play ends in that turn."""
    stack = f"{__name__}:quick"
    (found,) = prove(stack, gamma=1.0).channels
    last = []
    for play in (found.broken, found.broken._replace(actions=found.broken.actions[:-1])):
        env = staged(Miniature(), stack, gamma=1.0, on_truncation="zero")
        last.append(paid_for(env, play, 1.0).get("quick", 0.0))
    assert last[0] - last[1] == pytest.approx(found.turn[1]) and found.turn[1] > 0.1


def test_claims_compose():
    """A stack claims what all its channels and the filters around them claim."""
    for stack, claimed in (
        ("", True),
        ("potential", True),
        ("potential,schedule(steps=3)", True),
        ("potential,gate", False),
        ("progress,gate,potential", False),
    ):
        assert prove(stack, gamma=1.0).claimed == claimed


def test_schedules_are_judged_at_their_end_too():
    """Progress that is switched on later changes the optimum then."""
    found = prove("progress,schedule(schedule=step,steps=50)", gamma=1.0)
    assert found.preference.chosen.k >= 50


def test_layers_that_learn_are_judged_after_practice():
    """A running quantile charges nothing before there is anything to rank."""
    assert prove("progress,clip", gamma=1.0).preference.chosen.practice == PRACTICE


@pytest.mark.parametrize("stack", [one for stacks in STACKS.values() for one in stacks])
def test_layers_say_whether_their_memory_lasts(stack):
    """What they say is what episodes of practice leave behind."""
    env = staged(Miniature(), stack, gamma=1.0, on_truncation="zero")
    lasting = any(one.layer.lasting for one in layers_of(env))
    assert lasting == ((0, PRACTICE) in moments(env))


@pytest.mark.parametrize("stack", ["progress", "watermark", "turncost", "progress,gate", "novelty"])
@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_the_stack_prefers_what_it_is_said_to_prefer(stack, gamma):
    """Both plays can be repeated; where no luck is in them the gap is what they differ by."""
    found = prove(stack, gamma=gamma).preference
    paid = []
    for play in (found.chosen, found.instead):
        env = staged(Miniature(), stack, gamma=gamma, on_truncation="zero")
        sums = paid_for(env, play, gamma)
        paid.append(sum(amount for name, amount in sums.items() if name != "base"))
    if not found.outcome and "sign" not in (*found.chosen.actions, *found.instead.actions):
        assert paid[0] - paid[1] == pytest.approx(found.gap, abs=1e-9)
    assert found.gap >= 0.0


class Some(Potential):
    """A potential that is anything, by the state and a seed."""

    name = "some"
    hears = True
    seed = 0

    def hear(self, action, observation, info, look):
        self.place = look("anchor")()

    def value(self, verdict):
        return float(np.random.default_rng([self.seed, *self.place.encode()]).random())


def some(env, gamma, on_truncation, seed):
    potential = Some()
    potential.seed = seed
    ends = {"terminal": on_truncation, "on_truncation": on_truncation}
    return ChannelWrapper(env, Diff("some", gamma=gamma, scale=1.0, potential=potential, **ends))


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.sampled_from([0.9, 1.0]))
def test_shaping_keeps_the_optimum_whatever_the_potential(seed, gamma):
    """And does not if the last one is kept (200 problems of 200, and 197 of 200, in the source)."""
    for ends in ("zero", "keep"):
        game = explore(f"{__name__}:some(seed={seed})", gamma=gamma, on_truncation=ends, turns=3)
        assert (game.preference() is None) == (ends == "zero")


class Whim(Channel):
    """Pays anything, by the state and the action."""

    hears = True
    seed = 0

    def hear(self, action, observation, info, look):
        self.turn = f"{action}{look('anchor')()}"

    def begin(self, before):
        pass

    def step(self, before, after, ended):
        return 1e-4 * float(np.random.default_rng([self.seed, *self.turn.encode()]).random())

    def bound(self, gamma):
        return Bound(0.0, math.inf, 0.0, 1e-4)


def whim(env, seed):
    channel = Whim("whim")
    channel.seed = seed
    return ChannelWrapper(env, channel)


@settings(max_examples=5)
@given(st.integers(0, 10**6))
def test_the_smallest_whim_is_noticed(seed):
    """Though the outcome hides it: some environment pays less than it for something else."""
    assert explore(f"{__name__}:whim(seed={seed})", gamma=0.9, turns=3).preference() is not None


def test_best_of_takes_rounding_for_equal():
    assert best_of({"a": 0.1 + 0.2, "b": 0.3, "c": 0.3 - 1e-6}) == ["a", "b"]


def test_a_play_that_does_not_fit_is_refused():
    env = staged(Miniature(), "progress", gamma=1.0, on_truncation="zero")
    with pytest.raises(ValueError, match="must last 2 turns, it ended after 1"):
        paid_for(env, Play("Miniature-v0/4/lucky", ("submit", "wait")), 1.0)


@pytest.mark.parametrize("gamma", [0.0, 1.5, math.nan])
def test_gamma_is_checked(gamma):
    with pytest.raises(ValueError, match=r"gamma must be a number in \(0, 1\]"):
        prove("progress", gamma=gamma)


# STARC.


def test_starc_of_stacks():
    """0 for strict shaping, more for credit that is kept, none where memory decides."""
    assert prove("potential", gamma=0.9).distance < 1e-8
    for kept in ("progress", "potential(terminal=keep)", "potential(on_truncation=keep)"):
        assert prove(kept, gamma=0.9).distance > 0.05, kept
    assert prove("watermark", gamma=0.9).distance is None
