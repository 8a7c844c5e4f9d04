"""Farmers, loops and the audit: planted farms are found, and shipped layers have none."""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
import shlex
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.agents.audit import LONG, ahead, audit, replay
from headway.agents.evaluate import make
from headway.agents.farmers import (
    HOSTILE,
    IDLE,
    RECITE,
    SAID,
    SILENCE,
    UNDO,
    Harvest,
    endless,
    farms,
    loops,
    place,
    play,
    recital,
    scripts,
)
from headway.cli import program
from headway.envs import DOMAINS
from headway.wrappers import Channel, ChannelWrapper, Filter, FilterWrapper
from headway.wrappers.audit import Play, bounds, paid_for, prove, staged
from headway.wrappers.channel import OUTSIDE, Bound
from headway.wrappers.miniature import ACTIONS, Desk, Miniature
from headway.wrappers.stack import LAYERS

APPS = "headway/Apps-v0"

STACKS = {
    "progress": "progress",
    "potential": "potential",
    "gate": "progress,gate",
    "schedule": "progress,schedule(steps=10)",
    "anneal": "progress,anneal(steps=10)",
    "s2d": "s2d(start_at=5)",
    "watermark": "watermark",
    "clip": "progress,clip(eta=0.1)",
    "delta": "progress,delta",
    "dedup": "progress,dedup",
    "novelty": "novelty",
    "late": "late",
    "turncost": "turncost",
    "placebo": "progress,placebo(kind=random)",
    "information": "information",
    "dependency": "dependency",
    "redistribute": "progress,redistribute",
    "match": "match",
    "staged": "staged",
    "rubric": None,
}
"""For every layer a stack; None where it has nothing to judge in a miniature."""


@pytest.fixture(autouse=True)
def _gallery(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))


def stacked(stack, gamma, world=None):
    return staged(world or Miniature(56), stack, gamma=gamma, on_truncation="zero")


def farmed(stack, gamma, world=None):
    """The farms in a miniature, by channel."""
    env = stacked(stack, gamma, world)
    _, info = env.reset()
    declared = bounds(env, 1.0).items()
    limited = {name: bound.high for name, bound in declared if bound.high < math.inf}
    found, _ = farms(env, Play(info["task_id"], ()), gamma, limited)
    return {farm.channel: farm for farm in found}


# What is endless.


@pytest.mark.parametrize("count", [4, 7, 8, 16, 40])
def test_what_goes_on_and_what_runs_out(count):
    for pays, goes_on in (
        (lambda n: 0.1, True),
        (lambda n: n**-0.5, True),
        (lambda n: 0.1 * n, True),
        (lambda n: n**-2.0, False),
        (lambda n: 0.5**n, False),
        (lambda n: 1.0 if n == 1 else 0.0, False),
        (lambda n: -0.1, False),
        (lambda n: 0.3 if n % 2 else -0.1, False),
        (lambda n: 0.1 if n > count // 2 else 0.1 * (n % 2) - 0.05, False),
        (lambda n: 0.0 if n == count - 1 else 0.1, False),
    ):
        assert endless([pays(n) for n in range(1, count + 1)]) is goes_on
    assert not endless([0.1] * 3)
    late = 2 * (count // 4)
    assert endless([0.0] * (count - late) + [0.1] * late) is (count >= 16)
    assert endless([0.1 * (n % 4 == 3) for n in range(count)]) is (count >= 16)
    assert not endless([0.1 * (n in (1, 5, 6, 11, 12)) for n in range(count)])  # chance
    assert not endless([math.nan] * count)


@given(st.floats(0.05, 1.0), st.floats(1.2, 3.0), st.integers(4, 64), st.integers(1, 20))
def test_sums_that_end_are_told_whatever_came_before(slow, fast, count, first):
    """n**-p has a finite sum exactly if p > 1."""
    assert endless([n**-slow for n in range(first, first + count)])
    assert not endless([n**-fast for n in range(first, first + count)])


# Loops.


def test_loops_of_the_miniature_are_all_there():
    """As many as its rules have, tried without playing anything."""
    actions = [action for action in ACTIONS if action != "submit"]
    env = Miniature(20)
    env.reset()
    env.step("fill")
    start, wanted = Desk("filled"), set()
    for length in (1, 2, 3):
        for loop in itertools.product(actions, repeat=length):
            desk, visited = start, []
            for action in loop:
                desk = desk.after(action, True)[0]._replace(dark=False)
                visited.append(desk)
            inner = [start, *visited[:-1]]
            if desk == start and len(set(inner)) == length:
                wanted.add(loop)
    found = list(loops(env, 3))
    assert set(found) == wanted and len(found) == len(wanted)
    assert [len(loop) for loop in found] == sorted(len(loop) for loop in found)
    assert ("clear", "fill") in wanted and ("wait",) in wanted


def tools(**settings):
    world = make(APPS, **settings)
    world.reset(seed=1)
    return world.unwrapped


def test_loops_of_tools_take_back_what_they_did():
    """A payment that is refunded leaves no trace that the task minds; a mail does."""
    world = tools(template="bills")
    pay = next(action for action in world.solution() if "pay_send" in action)
    before = place(world), world.anchor()
    found = list(loops(world, 2))
    assert (pay, UNDO) in found and (IDLE,) in found
    assert not any("mail_send" in action for loop in found for action in loop)
    assert (place(world), world.anchor()) == before
    world.step(pay)
    assert place(world) != before[0]
    refund = world.format("pay_refund", {"id": list(world.box.table("payments"))[-1]})
    world.step(refund)
    assert place(world) == before[0] and world.anchor() != before[1]


# Farmers.


def test_farmers_do_what_they_are_named_for():
    world = tools(template="bills", difficulty=2)
    last = world.instance.task.max_turns
    env = stacked("progress", 1.0, make(APPS, template="bills", difficulty=2))
    _, info = env.reset(seed=1)
    harvests = [
        play(env, farmer, Play(info["task_id"], tuple(actions)), 1.0)
        for farmer, actions in scripts(world)
    ]
    assert all(harvest.over and harvest.graded for harvest in harvests)
    by = {}
    for harvest in harvests:
        by.setdefault(harvest.farmer, []).append(harvest)
        if harvest.farmer != "repeat a step":  # the last step, repeated, may solve
            assert harvest.success == ("solve" in harvest.farmer), harvest.farmer
    assert len(by["solve"][0].play.actions) < last
    assert len(by["solve at the last moment"][0].play.actions) == last
    assert by["submit at once"][0].sums["progress"] == by["do nothing"][0].sums["progress"] == 0.0
    near = by["hover near the end"][0].sums["progress"]
    assert 0.25 < near < 0.5
    assert min(harvest.sums["progress"] for harvest in by["grab, then lose"]) < near
    assert max(harvest.sums["progress"] for harvest in harvests if not harvest.success) == near
    assert all(
        len(set(harvest.play.actions[-4:])) > 1 and len(harvest.play.actions) == last
        for harvest in by["do and undo"]
    )
    assert by["crash the grader"][0].play.actions[: len(HOSTILE)] == HOSTILE


def test_what_is_recited():
    """The words, and the numbers or the dates that the instruction's own lie about."""
    said = recital("Pay 7 of the 10 bills to Ada, to Bea.").split(", ")
    words = ["Pay", "7", "of", "the", "10", "bills", "to", "Ada", "Bea"]
    assert said == [*words, "7", "8", "9", "10"]
    assert recital("Say nothing.") == "Say, nothing, 0"
    said = recital("Between 30 November 1101 and 2 May 1103.").split(", ")
    assert "1 January 1101" in said and "2 January 1102" in said
    dates = [one.split() for one in said if one.count(" ") == 2]
    assert len({(day, month) for day, month, _ in dates}) == len(dates) == 31 * 12
    assert len({(month, year) for _, month, year in dates}) == 12 * 3
    many = recital("From 10000 to 18191 or up to 99999999.").split(", ")
    assert len(many) < 2 * SAID and many[-1] == "99990001"


def test_who_recites_does_nothing_else():
    """No call but the one that hands in; nothing is seen and nothing changed."""
    for id in DOMAINS:
        world = make(id)
        _, info = world.reset(seed=3)
        for name, actions in scripts(world.unwrapped):
            if name not in (RECITE, SILENCE):
                continue
            env = staged(make(id), "", gamma=1.0, on_truncation="zero")
            env.reset(options={"task_id": info["task_id"]})
            before = env.unwrapped.anchor()
            *_, after = env.step(actions[0])
            assert [call for call in after["calls"] if call["tool"]] == []
            assert env.unwrapped.anchor() == before and len(actions) == 2
            assert (name == RECITE) == (len(actions[0]) > 100)


HOPSEARCH = "headway/HopSearch-v0"
LIKELY = "information(source=likelihood,mode=logp,c=0.9{})"


@pytest.mark.slow
def test_talk_that_is_paid_is_a_farm():
    """Dates said aloud where one is asked for; unless what is said is subtracted, or not read."""
    found = audit(HOPSEARCH, LIKELY.format(""), gamma=1.0, tasks=1, seed0=3, difficulty=1)
    (channel,) = found.channels
    assert channel.verdict == "farmed" and not found.sound
    shown = json.loads(json.dumps(channel.counterexample))
    assert shown["farmer"] == RECITE and shown["loop"] == []
    assert 0.5 < shown["pays"] < channel.seen[1]
    again = stacked(LIKELY.format(""), 1.0, make(HOPSEARCH, difficulty=1))
    assert replay(again, shown) == shown["pays"]
    for stack in (LIKELY.format(",control=subtract"), "information(c=0.9)"):
        found = audit(HOPSEARCH, stack, gamma=1.0, tasks=1, seed0=3, difficulty=1)
        assert [channel.verdict for channel in found.channels] == ["bounded"], stack
        assert found.sound


def test_play_leaves_the_episode_alone():
    env = stacked("progress,gate", 0.9, make(APPS))
    env.reset(seed=0)
    before = json.dumps(headway.get_state(env), sort_keys=True)
    play(env, "", Play("", tuple(env.unwrapped.solution())), 0.9)
    farms(env, Play("", ()), 0.9)
    assert json.dumps(headway.get_state(env), sort_keys=True) == before


# Planted farms.

PLANTED = [
    ("bad_rewards:every_turn", 0.99, {IDLE, "Nothing to do."}),
    ("bad_rewards:gains_only", 1.0, {"pay_send", "pay_refund"}),
    ("bad_rewards:undiscounted", 0.9, {"pay_send", "pay_refund"}),
    ("progress(gamma=1.0)", 0.9, {"pay_send", "pay_refund"}),
    ("bad_rewards:good_calls", 1.0, {"tool"}),
    ("bad_rewards:every_visit", 0.9, {"cal_create", "cal_cancel"}),
    ("progress,bad_rewards:forgiving_gate", 0.99, {"cal_create", "cal_cancel"}),
]


@pytest.mark.parametrize(("stack", "gamma", "names"), PLANTED)
def test_planted_farms_are_found_and_named(stack, gamma, names):
    """In a task of the environment itself; what was found pays the same when it is played again."""
    found = audit(APPS, stack, gamma=gamma, tasks=1, template="bills", difficulty=1)
    (channel,) = found.channels
    assert channel.verdict == "farmed" and not found.sound
    shown = json.loads(json.dumps(channel.counterexample))
    assert shown["task_id"].startswith("Apps-v0/bills/")
    text = " ".join(shown["loop"])
    assert any(name in text for name in names), shown["loop"]
    again = stacked(stack, gamma, make(APPS, template="bills"))
    assert replay(again, shown) == shown["pays"] > 0.0


@pytest.mark.parametrize("gamma", [0.9, 1.0])
@pytest.mark.parametrize(
    "stack", [f"bad_rewards:{name}" for name in ("every_turn", "gains_only", "good_calls")]
)
def test_planted_farms_are_found_in_the_miniature(stack, gamma):
    assert farmed(stack, gamma)


def test_other_planted_faults_are_found():
    """A claim that is false, and a bound that is; each with a play of the miniature."""
    found = audit(APPS, "bad_rewards:kept_shaping", gamma=1.0, tasks=1)
    assert not found.sound and [c.verdict for c in found.channels] == ["bounded"]
    shown = json.loads(json.dumps(found.counterexample))
    for one in (shown, shown["instead"]):
        env = stacked("bad_rewards:kept_shaping", 1.0, Miniature())
        assert replay(env, one) == one["pays"]
    found = audit(APPS, "bad_rewards:too_modest", gamma=1.0, tasks=1)
    (channel,) = found.channels
    assert channel.verdict == "broken bound" and not found.sound
    env = stacked("bad_rewards:too_modest", 1.0, Miniature())
    assert replay(env, channel.counterexample) > channel.bound[1]


# Shipped layers.


def test_every_layer_has_a_stack():
    assert list(STACKS) == list(LAYERS)


QUICK = ("progress", "gate", "watermark", "delta", "novelty", "dedup")


@pytest.mark.parametrize(
    ("stack", "gamma"),
    [
        pytest.param(stack, gamma, marks=() if name in QUICK and gamma == 0.9 else pytest.mark.slow)
        for name, stack in STACKS.items()
        for gamma in (0.9, 0.99, 1.0)
        if stack
    ],
)
def test_no_shipped_layer_is_farmed_in_the_miniature(stack, gamma):
    assert farmed(stack, gamma) == {}


@pytest.mark.parametrize(
    ("stack", "gamma"),
    [
        pytest.param(stack, gamma, marks=() if (stack, gamma) == quick else pytest.mark.slow)
        for quick in [("progress,gate,potential", 0.99)]
        for stack in [*filter(None, STACKS.values()), "progress,gate,potential"]
        for gamma in (0.9, 0.99, 1.0)
    ],
)
def test_no_shipped_stack_is_farmed_in_apps(stack, gamma):
    found = audit(APPS, stack, gamma=gamma, tasks=1)
    assert found.sound, found.as_json()
    assert found.proof.preserved == found.proof.claimed
    assert {channel.verdict for channel in found.channels} <= {"bounded", "unbounded"}


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.9, 0.99, 1.0])
@pytest.mark.parametrize("id", DOMAINS)
def test_the_recommended_stack_is_sound_everywhere(id, gamma):
    assert audit(id, "progress,gate,potential", gamma=gamma, tasks=4).sound


def test_the_page_runs(capsys):
    """``docs/audit.md``: its code and its commands."""
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    exec(code, {})
    assert capsys.readouterr().out == "farmed False\n"
    for command in re.findall(r"^headway (.*)$", page, flags=re.MULTILINE):
        assert program.arguments(shlex.split(command)).command == "audit"


def test_bounded_novelty_is_no_farm_in_apps():
    """Each cancelled event makes a new state, which pays until the bonus is spent."""
    found = audit(APPS, "novelty", gamma=1.0, tasks=1, template="bills")
    assert [channel.verdict for channel in found.channels] == ["bounded"]


class Price(Channel):
    """Falls due at the end of an episode."""

    def begin(self, before):
        self.turns = 0

    def step(self, before, after, ended):
        self.turns += 1
        return 0.0 if ended == "no" else -1.0

    def bound(self, gamma):
        return Bound(-1.0, math.inf, -1.0, 0.0)


class Counted(Price):
    """The same with a memory that never stands still."""

    memory = ("turns",)
    turns = 0


class Bounty(Price):
    """Paid for a failure."""

    def step(self, before, after, ended):
        return 2.0 if ended != "no" and not after.success else 0.0

    def bound(self, gamma):
        return Bound(0.0, 2.0, 0.0, 2.0)


class Toll(Price):
    """Charges a success for every turn, without a limit."""

    def step(self, before, after, ended):
        self.turns += 1
        return -0.1 * self.turns if ended != "no" and after.success else 0.0

    def bound(self, gamma):
        return Bound(-math.inf, 0.0, -math.inf, 0.0)


class Chatter(Price):
    """Pays a little for what is said without a call, once it is long enough."""

    hears = True
    said = 0

    def hear(self, action, observation, info, look):
        self.said = 0 if action is None or "{" in action else len(action)

    def step(self, before, after, ended):
        return 1e-9 * self.said if 100 < self.said < 4000 else 0.0

    def bound(self, gamma):
        return Bound(0.0, 0.5, 0.0, 0.5)


def planted(env, kind):
    return ChannelWrapper(env, globals()[kind](kind))


@pytest.mark.parametrize("kind", ["Price", "Counted"])
def test_putting_a_price_off_is_no_farm(kind):
    """It weighs less the later it falls due; beside a farm it is none itself."""
    price = f"{__name__}:planted(kind={kind})"
    assert farmed(price, 0.9) == {}
    assert set(farmed(f"{price},bad_rewards:good_calls", 0.9)) == {"good calls"}


def test_a_failure_that_beats_every_success_is_a_farm():
    """Though nothing is repeated; a failure that a success could outdo is none."""
    found = audit(APPS, f"{__name__}:planted(kind=Bounty)", gamma=1.0, tasks=1, template="bills")
    (channel,) = found.channels
    assert channel.verdict == "farmed" and channel.counterexample["farmer"].startswith("fail: ")
    assert channel.counterexample["loop"] == [] and channel.counterexample["pays"] == 2.0


def test_pay_for_what_is_said_is_a_farm_however_small():
    """In any world, as nothing was looked at or changed."""
    found = audit(APPS, f"{__name__}:planted(kind=Chatter)", gamma=1.0, tasks=1, template="bills")
    (channel,) = found.channels
    assert channel.verdict == "farmed" and channel.counterexample["farmer"] == RECITE
    assert 0.0 < channel.counterexample["pays"] < 1e-4


class Quiet(Counted):
    """Pays nothing at first, then every turn."""

    first = 20

    def pay(self):
        return 0.2 if self.turns > self.first else 0.0

    def step(self, before, after, ended):
        super().step(before, after, ended)
        return self.pay()

    def bound(self, gamma):
        return Bound(0.0, math.inf, 0.0, math.inf)


class Seldom(Quiet):
    """Pays every twentieth turn."""

    def pay(self):
        return 0.5 if self.turns % 20 == 0 else 0.0


class Fading(Quiet):
    """Pays 1/n**2 in the n-th turn: 1.65 a unit in all, however long the episode."""

    def pay(self):
        return 0.3 / self.turns**2


class Fresh(Quiet):
    """Pays for what is not what was done on the turn before, if it changes nothing."""

    hears = True
    memory = ("turns", "last", "now")
    last, now = "", 0

    def hear(self, action, observation, info, look):
        tools = [call["tool"] for call in info.get("calls", ())]
        idle = not any(tools) or tools == ["wait"]
        self.now, self.last = int(idle and action != self.last), str(action)

    def pay(self):
        return 0.1 * self.now


class Reader(Fresh):
    """Pays for a record that is not the one that was read on the turn before."""

    def hear(self, action, observation, info, look):
        reads = ("mail_read", "file_read")
        read = any(call["tool"] in reads and not call["error"] for call in info.get("calls", ()))
        self.now, self.last = int(read and action != self.last), str(action)


class NoNumber(Quiet):
    """Pays NaN in its third turn."""

    def pay(self):
        return math.nan if self.turns == 3 else 0.0


class NoNumberThere(NoNumber):
    """Pays NaN in the tenth turn, which the exhaustive play does not reach."""

    def pay(self):
        return math.nan if self.turns == 10 else 0.0


class Fails(Quiet):
    """Raises something in its seventh turn."""

    def pay(self):
        return 1.0 / (7 - self.turns) * 0.0


class Arrays(Quiet):
    """Remembers what is no plain data."""

    memory = ("turns", "seen")
    seen = np.zeros(3)

    def pay(self):
        return 0.0


class Hoarding(Filter):
    """Withholds losses, and charges them only if the episode is terminated."""

    memory = ("owed",)

    def __init__(self):
        self.owed = 0.0

    def begin(self, record):
        self.owed = 0.0

    def step(self, record, ended):
        for name, amount in record["channels"].items():
            self.owed += min(0.0, amount)
            record["channels"][name] = max(0.0, amount) + self.owed * (ended == "terminated")

    def bound(self, inner, gamma):
        return Bound(-math.inf, math.inf, -math.inf, math.inf)


def hoarding(env):
    return FilterWrapper(env, Hoarding())


class Tip(gym.Wrapper):
    """No layer, and pays late, or for what only a world of tools says."""

    def __init__(self, env, kind):
        super().__init__(env)
        self.kind, self.turns = kind, 0

    def reset(self, **kwargs):
        self.turns = 0
        return self.env.reset(**kwargs)

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        self.turns += 1
        tipped = self.turns > 12 if self.kind == "late" else "Turns left" in obs
        return obs, reward + 0.01 * tipped, *rest

    def get_state(self):
        return {"turns": self.turns}

    def set_state(self, state):
        self.turns = state["turns"]


def tip(env, kind):
    return Tip(env, kind)


@pytest.mark.parametrize("kind", ["late", "said"])
def test_what_comes_from_no_channel_is_found_in_the_world_of_tools(kind):
    """Though the exhaustive play sees none of it."""
    found = audit(APPS, f"{__name__}:tip(kind={kind})", gamma=1.0, tasks=1)
    assert found.proof.channels == () and found.proof.preserved
    (channel,) = found.channels
    assert channel.name == OUTSIDE and channel.verdict in ("farmed", "broken bound")
    assert not found.preserved and not found.sound and channel.counterexample["pays"] > 0.0
    assert not found.as_json()["optimum_preserved"]


@pytest.mark.parametrize("stack", ["{tip},potential", "potential,{tip}"])
def test_what_comes_from_no_channel_is_found_on_either_side_of_a_layer(stack):
    """A layer around it takes what it pays for the outcome; the world itself knows better."""
    found = audit(APPS, stack.format(tip=f"{__name__}:tip(kind=late)"), gamma=1.0, tasks=1)
    verdicts = {channel.name: channel.verdict for channel in found.channels}
    assert verdicts["potential"] == "bounded" and verdicts[OUTSIDE] in ("farmed", "broken bound")
    assert not found.sound and not found.preserved


class Living(Channel):
    """A price of every turn that was graded."""

    def begin(self, before):
        pass

    def step(self, before, after, ended):
        return -0.001 if after.status == "ok" else 0.0

    def bound(self, gamma):
        return Bound(-math.inf, 0.0, -0.001, 0.0)


def living(env):
    return ChannelWrapper(env, Living("living"))


def test_the_grader_of_the_miniature_is_no_fault_of_the_world():
    """To make it fail is what saves that price, and is tried there for that very reason."""
    found = audit(APPS, f"{__name__}:living,turncost", gamma=1.0, tasks=1)
    assert found.no_verdict == 0 and found.sound


@pytest.mark.parametrize("gamma", [pytest.param(0.9, marks=pytest.mark.slow), 1.0])
@pytest.mark.parametrize("kind", ["Quiet", "Seldom", "Fresh"])
def test_a_quiet_start_and_turns_taken_hide_no_farm(kind, gamma):
    world = Miniature(LONG)
    assert set(farmed(f"{__name__}:planted(kind={kind})", gamma, world)) == {kind}


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_what_runs_out_is_no_farm_however_late_it_begins(gamma):
    assert farmed(f"{__name__}:planted(kind=Fading)", gamma) == {}


class Busy(Quiet):
    """Pays every turn, counts them, and says that it pays little in all."""

    def pay(self):
        return 0.02

    def bound(self, gamma):
        return Bound(0.0, 0.5, 0.0, 0.02)


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_a_false_bound_excuses_no_loop(gamma):
    """Discounted it is never left, so what is paid undiscounted is held against it."""
    found = audit(APPS, f"{__name__}:planted(kind=Busy)", gamma=gamma, tasks=1)
    (channel,) = found.channels
    assert channel.verdict in ("farmed", "broken bound") and not found.sound


def test_what_runs_out_is_no_farm_in_apps():
    env = stacked(f"{__name__}:planted(kind=Fading)", 1.0, make(APPS))
    _, info = env.reset(seed=0)
    assert farms(env, Play(info["task_id"], ()), 1.0)[0] == []


def test_reading_by_turns_is_found():
    env = stacked(f"{__name__}:planted(kind=Reader)", 1.0, make(APPS))
    _, info = env.reset(seed=0)
    (farm,) = farms(env, Play(info["task_id"], ()), 1.0)[0]
    assert len(set(farm.loop)) == 2 and all("_read" in action for action in farm.loop)


def test_losses_that_a_cut_forgives_are_found():
    """With a play that a new stack repeats: the miniature is as long as the play."""
    stack = f"progress,{__name__}:hoarding"
    farm = farmed(stack, 1.0)["progress"]
    assert farm.play.task_id == f"Miniature-v0/{len(farm.play.actions)}/lucky"
    assert farm.play.actions[-1] == IDLE
    assert paid_for(stacked(stack, 1.0, Miniature()), farm.play, 1.0)["progress"] > 1.0


class Parallel(Channel):
    """Pays for calls beyond the first of a turn, which no farmer makes."""

    hears = True

    def begin(self, before):
        pass

    def hear(self, action, obs, info, get):
        self.calls = str(action).count("{")

    def step(self, before, after, ended):
        return 0.05 * (self.calls > 5)

    def bound(self, gamma):
        return Bound(0.0, math.inf, 0.0, 0.05)


def parallel(env):
    return ChannelWrapper(env, Parallel("parallel"))


@pytest.mark.parametrize(("gamma", "sound"), [(1.0, False), (0.9, True)])
def test_what_nothing_limits_is_not_sound(gamma, sound):
    """That no farmer thought of it is no proof; a discount is a limit."""
    found = audit(APPS, f"{__name__}:parallel", gamma=gamma, tasks=1)
    assert found.sound == sound


def test_what_is_no_number_breaks_any_bound_in_the_miniature():
    stack = f"{__name__}:planted(kind=NoNumber)"
    found = prove(stack, gamma=1.0)
    (channel,) = found.channels
    assert all(map(math.isnan, channel.seen)) and not found.preserved and found.distance is None
    paid = paid_for(stacked(stack, 1.0, Miniature()), channel.broken, 1.0)
    assert len(channel.broken.actions) == 3 and math.isnan(paid["NoNumber"])
    assert paid[OUTSIDE] == 0.0


def test_what_is_no_number_breaks_any_bound():
    found = audit(APPS, f"{__name__}:planted(kind=NoNumberThere)", gamma=1.0, tasks=1)
    (channel,) = found.channels
    assert channel.verdict == "broken bound" and all(map(math.isnan, channel.seen))
    assert math.isnan(channel.counterexample["pays"])
    assert not (found.sound or found.preserved or found.dominance.holds)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("Fails", "must raise nothing, got ZeroDivisionError: .* from Fails.pay"),
        ("Arrays", "must remember plain data, .*ndarray"),
    ],
)
def test_broken_layers_are_named(kind, says):
    with pytest.raises(ValueError, match=says):
        audit(APPS, f"{__name__}:planted(kind={kind})", gamma=1.0, tasks=1)


# The audit.


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_success_has_to_come_first_where_nothing_is_discounted(gamma):
    """A success at the last moment that returns less than doing nothing; below 1 a report."""
    found = audit(APPS, f"{__name__}:planted(kind=Toll)", gamma=gamma, tasks=1, template="bills")
    assert [channel.verdict for channel in found.channels] == ["bounded"]
    assert found.dominance.worst_success < found.dominance.best_failure
    assert not found.dominance.holds and found.sound == (gamma < 1.0)


def test_an_audit_repeats():
    first, second = (audit(APPS, "progress", gamma=0.99, tasks=1).as_json() for _ in range(2))
    assert first == second


def test_success_does_not_come_first_where_hovering_pays():
    found = audit(APPS, "bad_rewards:every_turn", gamma=1.0, tasks=1)
    assert not found.dominance.holds
    assert found.dominance.best_failure > found.dominance.worst_success
    assert (found.dominance.dense, found.dominance.turns) == (math.inf, 0)


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("dense", [0.01, 0.45, 0.81, 0.999, 1.0, 3.0])
def test_how_late_a_success_may_come(dense, gamma):
    turns = ahead(dense, gamma)
    assert turns == max((t for t in range(1, 2000) if gamma ** (t - 1) > dense), default=0)


def test_without_discount_or_dense_pay_any_success_is_ahead():
    assert ahead(0.0, 0.9) is None and ahead(0.999, 1.0) is None
    assert ahead(1.0, 1.0) == 0 == ahead(math.inf, 0.9)


def test_harvests_add_up():
    harvest = Harvest("", Play("", ()), {"base": 1.0, "progress": 0.5}, {}, True, True, True)
    assert harvest.total == 1.5


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"gamma": 0.0}, r"gamma must be a number in \(0, 1\]"),
        ({"tasks": 0}, "tasks must be an int of at least 1"),
        ({"seed0": -1}, "seed0 must be an int of at least 0"),
        ({"stack": "progres"}, "did you mean 'progress'"),
        ({"env": "headway/Apps-v0", "template": "bils"}, "did you mean 'bills'"),
    ],
)
def test_arguments_are_checked(given_, says):
    with pytest.raises(ValueError, match=says):
        audit(**{"env": APPS, "stack": "progress", "gamma": 0.9, "tasks": 1, **given_})


def test_other_worlds_are_refused():
    with pytest.raises(TypeError, match="env must be a headway environment"):
        farms(gym.make("CartPole-v1"), Play("", ()), 1.0)


def test_a_miniature_is_copied_not_shared():
    env = Miniature()
    env.reset()
    twin = copy.deepcopy(env)
    twin.step("fill")
    assert env.place == (Desk(), 0) and twin.place == (Desk("filled"), 1)
