"""The contract of every stack: sums, records, rebuilt specs, forks, vectors."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import ClipReward, RecordEpisodeStatistics, TimeLimit, TransformReward
from hypothesis import given, settings
from hypothesis import strategies as st

import headway
from headway.verifiers import Verdict
from headway.wrappers import (
    Bound,
    Channel,
    ChannelWrapper,
    Diff,
    FilterWrapper,
    Gate,
    GatedReward,
    NoveltyReward,
    PotentialShaping,
    ProgressReward,
    ScheduledReward,
)
from headway.wrappers.stack import LAYERS, bounded, channels_of

KEYS = {"base", "channels", "channels_raw", "phi", "gate", "status", "verdict"}


GAMMA = st.sampled_from([0.9, 1.0])
RULE = st.sampled_from(["zero", "keep"])
GATE = st.sampled_from(["attempted", "success", "clean"])
STEPS = st.integers(1, 6)
HALF = st.just(0.5)
ETA = st.sampled_from([None, -0.5, 0.0, 0.25])
KEY = st.sampled_from(["action", "calls", "anchor", "observation"])
SOURCE = st.sampled_from(
    [
        ("exact", "prob", None),
        ("likelihood", "logp", None),
        ("likelihood", "prob", "blank"),
        ("likelihood", "logp", "subtract"),
    ]
)
KAPPA = st.sampled_from([0.3, 1.0])
PLACEBO = st.sampled_from([("random", None), ("flip", 0.5), ("flip", 1.0), ("shuffle_turns", None)])

ARGUMENTS = {
    "progress": {"gamma": GAMMA, "c": st.just(0.25)},
    "potential": {"gamma": GAMMA, "on_truncation": RULE, "terminal": RULE, "beta": st.just(2.0)},
    "gate": {"gate": GATE, "scope": st.sampled_from(["episode", "step"])},
    "schedule": {"schedule": st.sampled_from(["linear", "step", "exp"]), "steps": STEPS},
    "anneal": {"steps": STEPS, "schedule": st.sampled_from(["linear", "cosine"])},
    "s2d": {"gamma": GAMMA, "on_truncation": RULE, "start_at": st.integers(0, 2), "beta": HALF},
    "watermark": {"c": st.just(0.25)},
    "clip": {"alpha": st.just(0.5), "eta": ETA, "q": st.sampled_from([0.0, 0.5, 1.0])},
    "delta": {"gamma": GAMMA, "alpha": st.just(0.5)},
    "dedup": {"key": KEY},
    "novelty": {"b": st.just(0.25), "cap": st.sampled_from([0.4, 0.9])},
    "late": {"bonus": st.just(0.5), "gate": GATE},
    "turncost": {"cost": st.just(0.25), "cap": st.sampled_from([0.3, 0.9])},
    "placebo": {"kind, p": PLACEBO, "seed": st.integers(0, 3)},
    "information": {"gamma": GAMMA, "source, mode, control": SOURCE},
    "dependency": {"gamma": GAMMA, "kappa": KAPPA, "clipping": st.sampled_from(["carry", "lose"])},
    "redistribute": {"gamma": GAMMA},
    "match": {"c": st.just(0.25)},
    "staged": {"unit": st.sampled_from(["turns", "calls"]), "c": st.just(0.25)},
    "rubric": {"judge": st.just(f"{__name__}:reader"), "c": st.just(0.25)},
}
"""What each of ``LAYERS`` may be given; ``name`` comes by itself."""


def reader(task, answer):
    """A judge: who went on long enough."""
    return float("turn 3" in answer)


@st.composite
def layer_of(draw, kind, number):
    """``(class, kwargs)`` of one layer, channels named by their number."""
    kwargs = {}
    for names, values in ARGUMENTS[kind].items():
        value = draw(values)
        kwargs |= zip(names.split(", "), value, strict=True) if "," in names else {names: value}
    if "name" in inspect.signature(LAYERS[kind]).parameters:
        kwargs["name"] = f"c{number}"
    return LAYERS[kind], kwargs


@st.composite
def stacks(draw):
    """Up to four layers in any order, as ``(class, kwargs)``, each gate at most once.

    Around a placebo that shuffles turns there are channels only.
    """
    layers, gates, shuffled = [], set(), False
    for number in range(draw(st.integers(1, 4))):
        layer, kwargs = draw(layer_of(draw(st.sampled_from(sorted(ARGUMENTS))), number))
        if layer is GatedReward and kwargs["gate"] in gates:
            continue
        if shuffled and "name" not in kwargs:
            continue
        layers.append((layer, kwargs))
        shuffled = shuffled or kwargs.get("kind") == "shuffle_turns"
        if layer is GatedReward:
            gates.add(kwargs["gate"])
    return layers


def test_every_layer_is_among_the_stacks():
    """One that is left out would be tested by nothing below. The page has a row for each."""
    assert set(ARGUMENTS) == set(LAYERS)
    page = Path(__file__).parents[2].joinpath("docs", "rewards.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `(\w+)`: ", page, re.M)) == sorted(LAYERS)


def stacked(env, layers):
    for layer, kwargs in layers:
        env = layer(env, **kwargs)
    return env


def rewards(turns):
    return [r for r, *_ in turns]


WORDS = st.lists(st.sampled_from(["go", "stop", "look"]), max_size=6)
"""Actions, after which a script goes on by itself."""


@settings(max_examples=200)
@given(data=st.data(), layers=stacks(), words=WORDS)
def test_channels_sum_to_the_reward(Script, play, scripts, data, layers, words):
    script = data.draw(scripts())
    env = stacked(Script(**script), layers)
    turns = play(env, words)
    names = [kwargs["name"] for _, kwargs in layers if "name" in kwargs]
    gates = [kwargs["gate"] for layer, kwargs in layers if layer is GatedReward]
    for reward, terminated, truncated, record in turns:
        assert set(record) - {"credit", "unmeasured"} == KEYS
        assert list(record["channels"]) == list(record["channels_raw"]) == names
        assert sorted(record["gate"]) == sorted(gates)
        assert record["base"] + sum(record["channels"].values()) == pytest.approx(reward, abs=1e-9)
        amounts = [reward, record["base"], *record["phi"].values()]
        amounts += [*record["channels"].values(), *record["channels_raw"].values()]
        assert {type(x) for x in amounts} == {float}
        assert (type(terminated), type(truncated)) == (bool, bool)
        assert {type(x) for x in record["gate"].values()} <= {bool, type(None)}
        assert record["status"] == record["verdict"].status
    assert rewards(turns)[0] == 0.0
    assert [r["base"] for *_, r in turns] == [0.0, *script["bases"]]
    # One grade a state, however many layers read it; none where the environment had graded.
    assert env.unwrapped.grades == len(turns) - script["grades_itself"]
    # In whatever order they stand, layers read verdicts and never change them.
    assert [r["verdict"] for *_, r in turns] == verdicts(Script(**script))
    for number, (layer, kwargs) in enumerate(layers):
        if "name" in kwargs:
            alone = play(layer(Script(**script), **kwargs), words)
            own = [r["channels"][kwargs["name"]] for *_, r in alone]
            assert [r["channels_raw"][kwargs["name"]] for *_, r in turns] == own
            if all("name" in later for _, later in layers[number:]):
                assert [r["channels"][kwargs["name"]] for *_, r in turns] == own


def verdicts(env):
    """Of every state of a bare script."""
    env.reset()
    found = [env.present()]
    while not env.over:
        env.step("go")
        found.append(env.present())
    return found


def keeps_its_bounds(env, play, words, gamma, k):
    """Every channel through the filters around it, in a first episode and in later ones."""
    bounds = {
        channel.name: bounded(channel, filters, gamma) for channel, filters in channels_of(env)
    }
    for _ in range(3):
        paid = [record["channels"] for *_, record in play(env, words)[1:]]
        for name, (low, high, least, most) in bounds.items():
            total = sum(gamma**t * channels[name] for t, channels in enumerate(paid))
            assert low - 1e-9 <= total <= high + 1e-9
            for channels in paid:
                assert least - 1e-9 <= channels[name] <= most + 1e-9
        headway.set_progress(env, k)


K = st.integers(0, 8)


@settings(max_examples=200)
@given(data=st.data(), layers=stacks(), words=WORDS, gamma=GAMMA, k=K)
def test_bounds_hold(Script, play, scripts, data, layers, words, gamma, k):
    keeps_its_bounds(stacked(Script(**data.draw(scripts())), layers), play, words, gamma, k)


@pytest.mark.parametrize("kind", sorted(ARGUMENTS))
@settings(max_examples=40)
@given(data=st.data(), words=WORDS, gamma=GAMMA, k=K)
def test_the_bound_of_each_layer_holds(Script, play, scripts, data, kind, words, gamma, k):
    """Around a channel that gains and loses: progress, or what every turn pays."""
    inside = data.draw(st.sampled_from([(ProgressReward, {"gamma": 0.9}), (NoveltyReward, {})]))
    layers = [inside, data.draw(layer_of(kind, 1))]
    env = stacked(Script(**data.draw(scripts(broken=False))), layers)
    keeps_its_bounds(env, play, words, gamma, k)


AT, LIVED = st.integers(0, 8), st.integers(0, 1)
"""Where an episode is left, and how many were lived through before it."""


def goes_on(Script, play, script, layers, words, at, lived, k):
    """A copy in mid-episode, and a new stack put into the state, pay what the original pays.

    In the next episode as well: what a layer has lived through may count there.
    """
    sound, env, fresh = (stacked(Script(**script), layers) for _ in range(3))
    for one in (sound, env):
        headway.set_progress(one, k)
        for _ in range(lived):
            play(one, words)
    whole, again = play(sound, words), play(sound, words)
    at = min(at, len(whole) - 2)
    said = [*words, *["go"] * len(whole)]
    env.reset()
    for turn, word in zip(whole[1 : at + 1], said, strict=False):
        assert env.step(word)[1] == turn[0]
    twin = headway.fork(env)
    fresh.reset()
    headway.set_state(fresh, json.loads(json.dumps(headway.get_state(env))))
    for one in (twin, env, fresh):
        for turn, word in zip(whole[at + 1 :], said[at:], strict=False):
            _, reward, terminated, truncated, info = one.step(word)
            assert (reward, terminated, truncated, info["headway"]) == turn
        assert play(one, words) == again


@settings(max_examples=200)
@given(data=st.data(), layers=stacks(), words=WORDS, at=AT, lived=LIVED, k=K)
def test_forks_go_on_alike_and_apart(Script, play, scripts, data, layers, words, at, lived, k):
    goes_on(Script, play, data.draw(scripts()), layers, words, at, lived, k)


@pytest.mark.parametrize("kind", sorted(ARGUMENTS))
@settings(max_examples=40)
@given(data=st.data(), words=WORDS, at=AT, lived=LIVED, k=K)
def test_each_layer_goes_on_alike(Script, play, scripts, data, kind, words, at, lived, k):
    layers = [(ProgressReward, {"gamma": 0.9}), data.draw(layer_of(kind, 1))]
    goes_on(Script, play, data.draw(scripts(broken=False)), layers, words, at, lived, k)


def test_every_memory_is_part_of_the_state(Script):
    """Put into a stack that has lived through something else."""
    layers = [
        (lambda env: ChannelWrapper(env, Turns("turns")), {}),
        (ProgressReward, {"gamma": 0.9}),
        (GatedReward, {}),
        (ScheduledReward, {"steps": 4}),
    ]
    script = {"phis": [0.0, 0.5, 0.75], "attempted": True}
    env, other = stacked(Script(**script), layers), stacked(Script(**script), layers)
    env.reset(), other.reset()
    headway.set_progress(other, 4)
    env.step("go")
    headway.set_state(other, json.loads(json.dumps(headway.get_state(env))))
    assert other.env.env.env._before == env.env.env.env._before
    got, wanted = other.step("go"), env.step("go")
    assert got == wanted
    assert wanted[1] == pytest.approx(-0.02 + 0.5 * (0.9 * 0.5 + 0.9 * 0.75 - 0.5))
    turns = [one.env.env.env.layer for one in (other, env)]
    assert turns[0].seen == turns[1].seen == (0.5, 0.75, "terminated")
    assert [one.layer.k for one in (other, env)] == [0, 0]


@settings(max_examples=60)
@given(data=st.data(), layers=stacks(), words=WORDS)
def test_a_spec_rebuilds_the_stack(script_id, play, scripts, data, layers, words):
    env = stacked(gym.make(script_id, **data.draw(scripts())), layers)
    for layer in env.spec.additional_wrappers:
        json.dumps(layer.kwargs)
    rebuilt = gym.make(env.spec)
    assert str(rebuilt) == str(env)
    for _ in range(2):
        ours, theirs = play(env, words), play(rebuilt, words)
        assert [turn[:3] for turn in theirs] == [turn[:3] for turn in ours]


@pytest.mark.parametrize("kind", sorted(ARGUMENTS))
@settings(max_examples=10)
@given(data=st.data())
def test_every_argument_of_each_layer_is_rebuilt(script_id, data, kind):
    """All that it takes but the environment, with the values that it was given."""
    layer, kwargs = data.draw(layer_of(kind, 1))
    kept = layer(gym.make(script_id), **kwargs).spec.additional_wrappers[-1].kwargs
    assert kept | kwargs == kept
    assert ["env", *sorted(kept)] == sorted(inspect.signature(layer).parameters, key=by_env)


def by_env(name):
    """The environment first, the rest by name."""
    return (name != "env", name)


def test_arguments_that_are_not_the_defaults_are_rebuilt(script_id, play):
    """One by one: each of them changes the reward, so one that got lost would show."""
    script = {"phis": [0.25, 1.0, 0.5], "end": "truncated", "violations": [0, 1, 0]}
    layers = [
        (ProgressReward, {"gamma": 0.7, "c": 0.125, "name": "x"}),
        (PotentialShaping, {"gamma": 0.7, "on_truncation": "keep", "beta": 0.3, "name": "y"}),
        (PotentialShaping, {"gamma": 0.7, "on_truncation": "zero", "terminal": "keep"}),
        (GatedReward, {"scope": "step", "gate": "clean"}),
        (ScheduledReward, {"schedule": "const", "start": 0.25}),
    ]
    env = stacked(gym.make(script_id, **script), layers)
    kept = [spec.kwargs for spec in env.spec.additional_wrappers]
    assert [k | kwargs for k, (_, kwargs) in zip(kept, layers, strict=True)] == kept
    assert [len(k) for k in kept] == [4, 6, 6, 2, 3]
    assert rewards(play(gym.make(env.spec))) == rewards(play(env))


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_every_episode_of_a_vector_totals_the_same(Script, play, mode):
    layers = [
        (ProgressReward, {"gamma": 0.9}),
        (GatedReward, {"gate": "clean"}),
        (PotentialShaping, {"gamma": 0.9, "on_truncation": "keep"}),
    ]
    scripts = [
        {"phis": [0.5, 0.25, 0.75, 1.0], "end": "terminated"},
        {"phis": [0.0, 0.5, None, 0.75], "end": "truncated", "bases": [0.0, 0.0, 1.0]},
    ]
    alone = [sum(rewards(play(stacked(Script(**s), layers)))) for s in scripts]
    lanes = [lambda s=s: stacked(Script(**s), layers) for s in scripts]
    vector = SyncVectorEnv(lanes, autoreset_mode=mode)
    vector.reset()
    totals, running = [], np.zeros(2)
    for _ in range(12):
        _, reward, terminated, truncated, _ = vector.step(("go", "go"))
        running += reward
        if (terminated | truncated).any():
            totals.append(running.copy())
            running[:] = 0.0
    assert len(totals) >= 3
    for total in totals:
        assert total == pytest.approx(alone)


def test_a_cut_goes_through_every_layer(Script, play):
    """An outside cut is a step like any other: graded, paid, gated."""
    env = ProgressReward(Script([0.0, 0.5, 1.0], "truncated"), gamma=1.0)
    env = PotentialShaping(GatedReward(env, gate="clean"), gamma=1.0, on_truncation="zero")
    turns = play(env, [headway.CUT])
    assert [turn[:3] for turn in turns] == [(0.0, False, False), (0.25, False, True)]
    assert turns[-1][3]["channels"] == {"progress": 0.25, "potential": 0.0}
    assert turns[-1][3]["gate"] == {"clean": True}


def test_the_time_limit_of_gymnasium(Script, play):
    """It ends an episode behind the environment's back; the end is graded all the same."""
    env = TimeLimit(Script([0.5, 0.75, 1.0], "terminated"), 1)
    turns = play(PotentialShaping(env, gamma=1.0, on_truncation="zero"))
    assert [turn[:3] for turn in turns[1:]] == [(-0.5, False, True)]
    env = TimeLimit(Script([0.5, 0.75], "terminated"), 1)
    turns = play(PotentialShaping(env, gamma=1.0, on_truncation="keep"))
    assert [turn[:3] for turn in turns[1:]] == [(-0.5, True, True)]


def test_wrappers_between_that_change_rewards(Script, play):
    """What they add or take is base, wherever they stand; the sum stays right."""
    script = {"phis": [0.0, 0.5, 1.0], "bases": [0.0, 3.0]}
    env = ProgressReward(ClipReward(Script(**script), -1.0, 1.0), gamma=1.0)
    *_, (reward, _, _, record) = play(env)
    assert (reward, record["base"], record["channels"]) == (1.25, 1.0, {"progress": 0.25})
    doubled = TransformReward(ProgressReward(Script(**script), gamma=1.0), lambda r: 2 * r)
    shaped = PotentialShaping(doubled, gamma=1.0, on_truncation="zero")
    *_, (reward, _, _, record) = play(shaped)
    assert reward == pytest.approx(6.5 - 0.5)
    assert record["base"] + sum(record["channels"].values()) == pytest.approx(reward)
    *_, (reward, _, _, record) = play(GatedReward(doubled))
    assert (reward, record["channels"]) == (pytest.approx(6.25), {"progress": 0.0})
    assert record["base"] == pytest.approx(reward)


def test_checker_and_stock_wrappers(script_id, play):
    """Gymnasium's own checks find nothing, and its wrappers may stand anywhere."""
    env = gym.make(script_id)
    env = RecordEpisodeStatistics(
        ProgressReward(RecordEpisodeStatistics(env, stats_key="a"), gamma=1)
    )
    turns = play(PotentialShaping(env, gamma=1, on_truncation="zero"))
    assert rewards(turns) == [0.0, 0.25 + 0.5, 0.25 - 0.5]
    layered = GatedReward(ProgressReward(gym.make(script_id).unwrapped, gamma=1.0))
    with pytest.warns(UserWarning, match="is different from the unwrapped version"):
        check_env(layered)


class Plain(gym.Env):
    """Knows nothing of headway but ``grade()``; one info for ever, NumPy scalars."""

    observation_space = gym.spaces.Discrete(9)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn, self.info = 0, {"mine": 1}
        return 0, self.info

    def step(self, action):
        self.turn += 1
        end = np.bool_(self.turn == 3)
        return self.turn, np.float32(0.5), end, np.bool_(False), self.info

    def grade(self):
        return Verdict(self.turn / 3, self.turn == 3, {})


def test_foreign_environments(play):
    """Their reward is base; their info is left alone; types are Python's."""
    env = GatedReward(ProgressReward(Plain(), gamma=1.0, c=0.9))
    for _ in range(2):
        turns = play(env, [1, 1, 1])
        assert [r["base"] for *_, r in turns] == [0.0, 0.5, 0.5, 0.5]
        assert [r["phi"]["checks"] for *_, r in turns] == [0.0, 1 / 3, 2 / 3, 1.0]
        assert rewards(turns) == pytest.approx([0.0, 0.5, 0.5, 1.4])
        assert {type(x) for turn in turns for x in turn[:3]} == {float, bool}
        assert len({id(record) for *_, record in turns}) == 4
    assert env.unwrapped.info == {"mine": 1}
    bare = GatedReward(Plain())
    turns = play(bare, [1, 1, 1])
    assert [turn[:3] for turn in turns[1:]] == [(0.5, False, False)] * 2 + [(0.5, True, False)]
    assert {type(x) for turn in turns for x in turn[:3]} == {float, bool}


def test_names_are_unique_in_a_stack(Script):
    env = ProgressReward(Script(), gamma=1.0)
    between = RecordEpisodeStatistics(env)
    with pytest.raises(ValueError, match=r"hold channel 'progress' only once; give .* name="):
        ProgressReward(between, gamma=1.0)
    with pytest.raises(ValueError, match="hold channel 'progress' only once"):
        PotentialShaping(env, gamma=1.0, on_truncation="zero", name="progress")
    ProgressReward(between, gamma=1.0, name="second")
    ScheduledReward(ScheduledReward(env, steps=1), steps=1)


def test_what_cannot_be_graded(play):
    class Blind(Plain):
        grade = property()

    with pytest.raises(TypeError, match=r"env must offer grade\(\) .*headway.wrappers.Graded"):
        ProgressReward(Blind(), gamma=1.0)

    class Odd(Plain):
        def grade(self):
            return 0.5

    with pytest.raises(TypeError, match=r"grade\(\) must return a Verdict, got 0.5"):
        ProgressReward(Odd(), gamma=1.0).reset()


def test_a_grade_that_is_replaced(Script, play):
    """Looked up anew at each reset, so a patched or swapped environment is not half used."""
    env = ProgressReward(Script([0.0, 0.5]), gamma=1.0)
    play(env)
    env.unwrapped.grade = lambda: Verdict(0.25, False, {})
    env.unwrapped.grades_itself = False
    assert rewards(play(env)) == [0.0, 0.0]


def test_states_of_other_layers_are_refused(Script):
    env = ProgressReward(Script(), gamma=1.0)
    env.reset()
    gate = GatedReward(Script())
    with pytest.raises(ValueError, match="state must have keys"):
        gate.set_state(env.get_state())
    with pytest.raises(ValueError, match="state must have keys"):
        env.set_state(gate.get_state())


class Turns(Channel):
    """A channel of one's own: a price for each turn."""

    memory = ("count",)

    def begin(self, before):
        self.count = 0

    def step(self, before, after, ended):
        self.count += 1
        self.seen = (before.progress, after.progress, ended)
        return -0.01 * self.count

    def bound(self, gamma):
        return Bound(-float("inf"), 0.0, -float("inf"), 0.0)


def test_a_channel_of_ones_own(script_id, play):
    """Rebuilt from the spec, copied for each environment, handed both verdicts and the end."""
    channel = Turns("turns")
    env = ChannelWrapper(gym.make(script_id, phis=[0.0, 0.5, 1.0]), channel)
    other = ChannelWrapper(gym.make(script_id, phis=[0.0, 0.5, 1.0]), channel)
    other.reset()
    other.step("go")
    for one in (env, gym.make(env.spec)):
        assert rewards(play(one)) == pytest.approx([0.0, -0.01, -0.02])
        assert one.layer.seen == (0.5, 1.0, "terminated")
        assert one.layer.phi is None
    assert other.step("go")[1] == pytest.approx(-0.02)
    *_, (_, _, _, record) = play(env)
    assert record["phi"] == {}
    filtered = FilterWrapper(env, Gate("success", "episode"))
    assert rewards(play(gym.make(filtered.spec))) == pytest.approx([0.0, -0.01, -0.02])
    assert not channel.keeps_optimum(0.9)
    assert Diff("d", gamma=1, scale=1, terminal="zero", on_truncation="zero").keeps_optimum(1.0)


@pytest.mark.parametrize("name", ["base", "(no channel)"])
def test_names_that_mean_something_else(name):
    """Beside the outcome, or what comes from no channel, nobody could tell what was paid."""
    with pytest.raises(ValueError, match="name must be none of"):
        Turns(name)
