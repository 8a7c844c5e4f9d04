"""The depot: its rules, its grades, siblings, and the two rewards that can be farmed in it."""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.bench import depot
from headway.bench.depot import CARDS, GUESSES, ITEMS, SHELVES, SIZES, TOOLS, WORDS, ZONES, Depot
from headway.envs.fork import get_state, set_state
from headway.envs.rng import Rng
from headway.wrappers import build

SEEDS = st.integers(0, 2**31 - 1)
WELL_FORMED = st.sampled_from([f"{t} {a} {g}" for t in TOOLS for a in TOOLS[t] for g in GUESSES])


class Rules:
    """The rules once more, as plainly as can be, from the order and what was told on the way."""

    def __init__(self, right):
        self.right = right
        self.facts = set()

    def says(self, tool, argument):
        """The first word of the reply."""
        facts, right = self.facts, self.right
        possible = {
            "find": True,
            "pick": "found" in facts,
            "pack": "picked" in facts,
            "label": "packed" in facts,
            "pay": True,
            "ship": "labelled" in facts and "paid" in facts,
        }
        if tool == "note":
            return "ok"
        if tool == "quit" or argument != right[tool] or not possible[tool]:
            return "no"
        done = ["found", "picked", "packed", "labelled", "paid", "shipped"]
        facts.add(done[list(possible).index(tool)])
        return "ok"


def right_of(env):
    """The right argument of each tool, read off the reference."""
    return {call["tool"]: call["args"]["argument"] for call in env.reference()}


def test_checks_of_gymnasium_pass():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*spec")
        check_env(Depot(), skip_render_check=True)


@given(SEEDS)
def test_the_order_says_what_it_says_and_hides_the_rest(seed):
    env = Depot()
    obs, _ = env.reset(seed=seed)
    right = right_of(env)
    assert obs == f"order {right['find']} {right['label']} {right['pay']}"
    assert right["ship"] == right["label"]
    assert env.gold() == (f"{right['pick']} {right['pack']}",)
    for tool, argument in right.items():
        assert argument in TOOLS[tool]
    assert right["pick"] not in obs.split() and right["pack"] not in obs.split()


def test_every_order_comes_up():
    env, seen = Depot(), {tool: set() for tool in depot.STEPS}
    for seed in range(400):
        env.reset(seed=seed)
        for tool, argument in right_of(env).items():
            seen[tool].add(argument)
    kinds = {"find": ITEMS, "pick": SHELVES, "pack": SIZES, "label": ZONES, "pay": CARDS}
    assert all(seen[tool] == set(words) for tool, words in kinds.items())


@given(SEEDS, st.lists(WELL_FORMED | st.integers(0, 5), max_size=14))
def test_replies_grades_and_ends_follow_the_rules(seed, plan):
    """Numbers in the plan are steps of the solution, so that every rule is reached."""
    env = Depot(horizon=10)
    env.reset(seed=seed)
    rules, solution = Rules(right_of(env)), env.solution()
    for turn, item in enumerate(plan, 1):
        action = solution[item] if isinstance(item, int) else item
        tool, argument, guess = action.split()
        before = len(rules.facts)
        obs, reward, terminated, truncated, info = env.step(action)
        said = rules.says(tool, argument)
        assert obs.split()[0] == said
        assert set(obs.split()) <= set(WORDS)
        assert info["guess"] is ((guess == "yes") == (said == "ok"))
        assert info["calls"] == [
            {"tool": tool, "args": {"argument": argument}, "error": said != "ok"}
        ]
        everything = len(rules.facts) == 6
        verdict = info["headway"]["verdict"]
        assert verdict is env.grade() and verdict.success is everything
        assert verdict.progress == pytest.approx(len(rules.facts) / 6)
        assert sum(verdict.ok.values()) == len(rules.facts) >= before
        assert not verdict.violations
        assert reward == info["headway"]["base"] == float(everything)
        assert terminated is (everything or tool == "quit")
        assert truncated is (turn == 10 and not terminated)
        assert verdict.attempted is (bool(rules.facts) and (terminated or truncated))
        if tool == "find" and said == "ok":
            assert obs == f"ok at {rules.right['pick']}"
        if tool == "pick" and said == "ok":
            assert obs == f"ok got {rules.right['pack']}"
        if terminated or truncated:
            with pytest.raises(gym.error.ResetNeeded):
                env.step("note cup yes")
            break


def test_steps_in_every_order():
    env = Depot(horizon=7)
    for order in itertools.permutations(range(6)):
        env.reset(seed=sum(order[:2]))
        rules, solution = Rules(right_of(env)), env.solution()
        for place in order:
            obs = env.step(solution[place])[0]
            assert obs.split()[0] == rules.says(*solution[place].split()[:2])
        assert env.grade().progress == pytest.approx(len(rules.facts) / 6)


@given(SEEDS, st.text() | st.text(alphabet="findcup yesnah\n\x00", max_size=40), st.booleans())
def test_no_text_raises_and_no_other_text_does_anything(seed, text, blanks):
    env = Depot()
    env.reset(seed=seed)
    obs, reward, terminated, truncated, info = env.step(f" \t{text}\n" if blanks else text)
    words = text.split()
    if len(words) == 3 and words[0] in TOOLS and words[2] in GUESSES:
        return
    assert (obs, reward, terminated, truncated) == ("bad", 0.0, False, False)
    assert info["guess"] is None
    assert info["calls"] == [{"tool": None, "args": {}, "error": True}]
    assert env.grade().progress == 0.0


@pytest.mark.parametrize(
    "text",
    [
        *("", "find", "find cup", "find cup maybe", "find cup yes now", "fly cup yes", "find yes"),
        *("FIND cup yes", "cup find yes", "find cup YES", "yes cup find", "find cup yes yes"),
    ],
)
def test_other_texts_are_bad(text):
    env = Depot()
    env.reset(seed=0)
    assert env.step(text)[0] == "bad"


def test_a_reset_begins_anew():
    env = Depot()
    for seed in range(3):
        env.reset(seed=seed)
        assert (env.grade().progress, env.anchor()) == (0.0, "")
        for action in env.solution()[:5]:
            env.step(action)
        assert env.anchor() == "find pick pack label pay"


def test_what_is_no_text_is_refused():
    env = Depot()
    with pytest.raises(gym.error.ResetNeeded, match=r"reset\(\)"):
        env.step("note cup yes")
    env.reset(seed=0)
    for action in (b"note cup yes", None, 3):
        with pytest.raises(TypeError, match=type(action).__name__):
            env.step(action)
    with pytest.raises(ValueError, match="horizon must be an int of at least 1, got 0"):
        Depot(0)
    with pytest.raises(ValueError, match="task_id, got"):
        env.reset(options={"difficulty": 2})


def test_a_cut_ends_without_a_call():
    env = Depot()
    env.reset(seed=0)
    env.step(env.expert())
    obs, reward, terminated, truncated, info = env.step(headway.CUT)
    assert (reward, terminated, truncated, info["calls"]) == (0.0, False, True, [])
    assert obs in WORDS
    assert info["headway"]["verdict"].progress == pytest.approx(1 / 6)
    assert info["guess"] is None


def test_success_on_the_last_turn_is_success():
    env = Depot(horizon=6)
    env.reset(seed=1)
    for action in env.solution():
        _, reward, terminated, truncated, _ = env.step(action)
    assert (reward, terminated, truncated) == (1.0, True, False)


@given(SEEDS, st.lists(WELL_FORMED.filter(lambda a: not a.startswith("quit")), max_size=8))
def test_the_expert_goes_on_from_wherever_it_is(seed, noise):
    env = Depot(horizon=14)
    env.reset(seed=seed)
    for action in noise:
        if env.step(action)[2]:
            return
    for _ in range(6):
        _, reward, terminated, _, info = env.step(env.expert())
        assert info["guess"] is True and not info["calls"][0]["error"]
        if terminated:
            break
    assert reward == 1.0
    with pytest.raises(gym.error.ResetNeeded):
        env.expert()


def test_chance_is_well_formed_and_knows_nothing():
    env = Depot()
    env.reset(seed=0)
    rng = Rng("test")
    actions = [env.chance(rng) for _ in range(2000)]
    for tool, argument, guess in map(str.split, actions):
        assert argument in TOOLS[tool] and guess in GUESSES
    assert {a.split()[0] for a in actions} == set(TOOLS)
    assert len({a.split()[1] for a in actions if a.startswith("note")}) == len(ITEMS)
    assert 0.4 < sum(a.endswith("yes") for a in actions) / len(actions) < 0.6


def play(env, actions):
    out = []
    for action in actions:
        turn = env.step(action)
        out.append(turn)
        if turn[2] or turn[3]:
            break
    return out


@given(SEEDS, st.lists(WELL_FORMED, min_size=1, max_size=4), st.lists(WELL_FORMED, max_size=4))
def test_siblings_and_states_go_on_alike_and_apart(seed, before, after):
    env = build(Depot(horizon=9), "progress", gamma=0.9)
    env.reset(seed=seed)
    if any(turn[2] for turn in play(env, before)):
        return
    twin, place = headway.fork(env), env.unwrapped.anchor()
    stored = pickle.loads(pickle.dumps(get_state(env)))
    there = play(twin, after)
    assert env.unwrapped.anchor() == place
    assert play(env, after) == there
    other = build(Depot(), "progress", gamma=0.9)
    other.reset(seed=seed + 1)
    set_state(other, stored)
    assert play(other, after) == there


def test_unseeded_resets_repeat_after_a_seeded_one_and_siblings_draw_apart():
    env = Depot()
    env.reset(seed=3)
    twin = copy.deepcopy(env)
    drawn = [env.reset()[1]["task_id"] for _ in range(5)]
    assert len(set(drawn)) == 5
    assert drawn == [twin.reset()[1]["task_id"] for _ in range(5)]


def test_a_task_is_found_by_its_id():
    env = Depot(horizon=11)
    obs, info = env.reset(seed=77)
    assert info["task_id"] == "Depot-v0/11/77"
    other = Depot()
    again, info = other.reset(options={"task_id": "Depot-v0/11/77"})
    assert again == obs and info["task_id"] == "Depot-v0/11/77" and other.horizon == 11
    for wrong in ("Depot-v0/11", "Depot-v0/0/7", "Depot-v0/8/-1", "Apps-v0/8/1", None):
        with pytest.raises(ValueError, match="task_id must be like Depot-v0/8/123"):
            other.reset(options={"task_id": wrong})
    with pytest.raises(ValueError, match="state must have the keys"):
        other.set_state({"done": 3})


@given(SEEDS, st.lists(WELL_FORMED | st.integers(0, 5), min_size=1, max_size=9))
def test_the_two_farmable_rewards_are_what_they_say(seed, plan):
    horizon = 7
    stack = "headway.bench.depot:GuessReward(weight=0.3),headway.bench.depot:CallReward(weight=0.1)"
    env = build(Depot(horizon), stack, gamma=1.0, allow_dominance=True)
    env.reset(seed=seed)
    solution, right, turns = env.unwrapped.solution(), 0, 0
    for item in plan:
        action = solution[item] if isinstance(item, int) else item
        _, reward, terminated, truncated, info = env.step(action)
        turns += 1
        right += info["guess"]
        paid = info["headway"]["channels"]
        ended = terminated or truncated
        assert paid["calls"] == (0.1 if not info["calls"][0]["error"] else 0.0)
        assert paid["guess"] == pytest.approx(0.3 * right / turns if ended else 0.0)
        assert reward == pytest.approx(info["headway"]["base"] + sum(paid.values()))
        if ended:
            break


def test_each_episode_is_paid_for_itself():
    env = build(Depot(), "headway.bench.depot:GuessReward(weight=0.5)", gamma=1.0)
    for seed, (guess, paid) in enumerate([("nah", 0.5), ("yes", 0.0), ("nah", 0.5)]):
        env.reset(seed=seed)
        assert env.step(f"quit north {guess}")[1] == paid


def test_the_farmable_rewards_tell_what_they_can_pay():
    env = Depot(horizon=10)
    with pytest.raises(ValueError, match="got up to 3 from"):
        build(env, "headway.bench.depot:CallReward(weight=0.3)", gamma=1.0)
    assert build(env, "headway.bench.depot:CallReward(weight=0.09)", gamma=1.0)
    assert build(env, "headway.bench.depot:GuessReward(weight=0.9)", gamma=1.0)
    with pytest.raises(ValueError, match="weight must be a number"):
        depot.GuessReward(env, weight=0.0)
    with pytest.raises(ValueError, match="weight must be a number"):
        depot.CallReward(env, weight=-1.0)


@pytest.mark.parametrize(
    "stack",
    [
        *("potential", "progress,gate", "progress(c=0.2),dedup(key=anchor)", "watermark"),
        *(
            "progress(c=0.1),placebo(kind=shuffle_turns)",
            "progress(c=0.05),placebo(kind=random)",
            "novelty",
        ),
        *("match", "dependency", "staged", "progress,anneal(steps=100)"),
    ],
)
def test_reward_layers_work_on_it(stack):
    env = build(Depot(), stack, gamma=0.9)
    env.reset(seed=8)
    total = 0.0
    for action in env.unwrapped.solution():
        _, reward, terminated, _, info = env.step(action)
        record = info["headway"]
        assert reward == pytest.approx(record["base"] + sum(record["channels"].values()))
        total += reward
    assert terminated and record["base"] == 1.0 and total > 0.0
