"""Stored episodes played again: the same for the same code, and every change named."""

from __future__ import annotations

import importlib
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest

import headway
from headway import CUT
from headway.agents import evaluate
from headway.agents.rescore import rescore
from headway.envs import DOMAINS
from headway.envs.box import SandboxDied
from headway.wrappers import ProgressReward, ScheduledReward
from headway.wrappers.lines import append, encode
from headway.wrappers.record import KEYS, Recorder, episodes

WORLDS = """
from dataclasses import replace
import gymnasium as gym
from headway.agents import Oracle
from headway.envs.domains.apps import APPS
from headway.envs.tool_env import ToolEnv
from headway.verifiers import KINDS, Kind
from headway.wrappers import Graded
from headway.verifiers import Acceptance, Check

def quiet(args):
    holds = KINDS["rows"].prepare(args)
    loud = lambda row: "!!!" in str(row.get("text"))
    return lambda view: holds(view) and not any(map(loud, view.table(args["table"]).values()))

def frail(args):
    holds = KINDS["rows"].prepare(args)
    def test(view):
        if any("!!!" in str(row.get("text")) for row in view.table(args["table"]).values()):
            raise ArithmeticError("too loud")
        return holds(view)
    return test

STRICT = replace(APPS, kinds={**KINDS, "rows": Kind(quiet, KINDS["rows"].reads)}, grader="2")
SLY = replace(STRICT, grader=APPS.grader)
RENAMED = replace(APPS, grader="2")
BROKEN = replace(APPS, kinds={**KINDS, "rows": Kind(lambda args: None, KINDS["rows"].reads)})
TERSE = replace(APPS, max_obs_chars=400)
FRAIL = replace(APPS, kinds={**KINDS, "rows": Kind(frail, KINDS["rows"].reads)})
SAME = APPS

class World(ToolEnv):
    pass

class Loud(Oracle):
    def __init__(self, seed):
        super().__init__()

    def _actions(self, env):
        return [a.replace('"}}', ' !!!"}}') if "note_write" in a else a for a in env.solution()]

class Lake(Graded):
    def tables(self):
        return {"lake": {"elf": {"at": int(self.env.unwrapped.s)}}}

    def acceptance(self):
        args = {"table": "lake", "key": "elf", "where": {"at": 1}}
        return Acceptance(checks=(Check("east", "rows", args),))

class Bold(gym.Wrapper):
    def __init__(self, env, tail):
        super().__init__(env)
        self.tail = tail

def bold(env):
    return env
"""


@pytest.fixture
def worlds(tmp_path, monkeypatch):
    """A module of one's own, under a name that nothing else has taken."""
    (tmp_path / "worlds.py").write_text(WORLDS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "worlds", raising=False)
    yield importlib.import_module("worlds")
    sys.modules.pop("worlds", None)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """20 episodes by three agents under a stack."""
    file = str(tmp_path_factory.mktemp("recorded") / "a.jsonl")
    for agent, count in (("oracle", 8), ("random", 8), ("reader", 4)):
        evaluate(
            "headway/Apps-v0",
            agent,
            episodes=count,
            samples=2,
            difficulty=2,
            stack="progress(c=0.3),gate,potential",
            gamma=0.9,
            record=file,
        )
    return file


def test_the_same_code_gives_the_same(recorded):
    heard = []
    found = rescore(recorded, told=lambda done, of: heard.append((done, of)))
    assert found.same and found.episodes == found.identical == found.same_verdicts == 20
    assert (found.differences, found.failed, found.died, found.torn) == ((), (), (), ())
    assert found.was == found.now and list(found.was) == ["base", "progress", "potential"]
    assert found.was["base"] > 0.0 and found.gammas == (0.9, 0.9)
    assert heard == [(n, 20) for n in range(1, 21)]


def test_returns_are_those_of_the_evaluation(tmp_path):
    """Both sum what was paid, discounted; so does a sum by hand."""
    file = str(tmp_path / "a.jsonl")
    told = evaluate(
        "headway/Apps-v0", "oracle", episodes=3, stack="progress(c=0.3)", gamma=0.9, record=file
    )
    found = rescore(file)
    assert found.was == told.returns == told.as_json()["returns"]
    lengths = [len(episode["turns"]) for _, episode in episodes(file)]
    # Progress from 0 to 1, and the outcome on the last turn.
    assert found.was["base"] == pytest.approx(sum(0.9 ** (n - 1) for n in lengths) / 3)
    assert found.was["progress"] == pytest.approx(0.3 * sum(0.9**n for n in lengths) / 3)


def test_a_discount_that_no_layer_was_given(tmp_path):
    file = str(tmp_path / "a.jsonl")
    told = evaluate(
        "headway/Apps-v0", "oracle", episodes=1, stack="watermark", gamma=0.9, record=file
    )
    found = rescore(file)
    assert found.same and found.gammas == (0.9, 0.9) and found.was == found.now == told.returns


def test_another_stack(recorded):
    """Verdicts stay, returns are those that the agents would have had."""
    found = rescore(recorded, stack="progress(c=0.2)", gamma=1.0)
    assert not found.same and found.same_verdicts == 20 and not found.failed
    kinds = {one.what for one in found.differences}
    assert kinds == {"return of base", "return of progress", "return of potential"}
    assert {one.turn for one in found.differences} == {None}
    assert found.gammas == (0.9, 1.0) and list(found.now) == ["base", "progress"]
    final = [e["turns"][-1]["record"]["verdict"]["progress"] for _, e in episodes(recorded)]
    assert found.now["progress"] == pytest.approx(0.2 * sum(final) / 20, abs=1e-9)
    assert rescore(recorded, stack="", gamma=0.8).gammas == (0.9, 0.8)
    same = rescore(recorded, stack="progress(c=0.3),gate,potential", gamma=0.9)
    assert same.identical == 20


def test_a_stricter_grader_is_named(worlds, tmp_path):
    """By version, by the checks that it decides otherwise, and by what that cost."""
    file = str(tmp_path / "a.jsonl")
    evaluate(
        "headway/Apps-v0", "worlds:Loud", episodes=2, template="bills", stack="progress", gamma=1.0,
        record=file,
    )  # fmt: skip
    evaluate("headway/Apps-v0", "oracle", episodes=2, template="bills", record=file)
    assert rescore(file).same
    found = rescore(file, env="worlds:STRICT")
    assert (found.episodes, found.identical, found.same_verdicts, found.failed) == (4, 0, 2, ())
    news = [(d.episode, d.what, d.was, d.now) for d in found.differences if d.turn is None]
    assert news == [(line, "grader", "1", "2") for line in (1, 2, 3, 4)]
    rest = [one for one in found.differences if one.turn is not None]
    assert {one.episode for one in rest} == {1, 2}
    assert {one.what for one in rest} >= {
        *("check note", "progress", "success", "reward", "base"),
        *("channel progress", "raw progress", "phi checks"),
    }
    checks = [one for one in rest if one.what.startswith("check ")]
    assert {one.what for one in checks} == {"check note"}
    assert all((one.was, one.now) == (True, False) for one in checks)
    ((_, episode), *_) = episodes(file)
    written = next(n for n, t in enumerate(episode["turns"], 1) if "note_write" in t["action"])
    turns = range(written, len(episode["turns"]) + 1)
    assert [one.turn for one in checks if one.episode == 1] == list(turns)
    assert found.was["base"] == 1.0 and found.now["base"] == 0.5


def test_a_grader_that_changed_without_a_word(worlds, tmp_path):
    """The same version, other verdicts: the module that the file names is not what it was."""
    file = str(tmp_path / "a.jsonl")
    evaluate("worlds:SAME", "worlds:Loud", episodes=2, template="bills", record=file)
    assert rescore(file, trust=True).same
    worlds.SAME = worlds.SLY
    found = rescore(file, trust=True)
    assert found.identical == 0 and not found.failed
    assert "grader" not in {one.what for one in found.differences}
    assert "check note" in {one.what for one in found.differences}


def test_no_verdict_is_the_same_as_no_verdict(worlds, tmp_path):
    """NaN then and NaN now; in no mean."""
    file = str(tmp_path / "a.jsonl")
    told = evaluate("worlds:FRAIL", "worlds:Loud", episodes=2, template="bills", record=file)
    assert told.no_verdict == 2
    found = rescore(file, trust=True)
    assert found.same and found.identical == 2 and found.was == found.now == {}
    other = rescore(file, env="worlds:SAME")
    assert other.same_verdicts == 0 and other.was == {}
    assert {"status", "reason", "progress"} <= {one.what for one in other.differences}


def test_a_new_version_alone_is_no_new_verdict(worlds, recorded):
    found = rescore(recorded, env="worlds:RENAMED")
    assert (found.identical, found.same_verdicts) == (0, 20)
    assert [one.what for one in found.differences] == ["grader"] * 20


def test_tools_that_answer_otherwise_and_tasks_that_differ(worlds, recorded):
    found = rescore(recorded, env="worlds:TERSE")
    kinds = {one.what for one in found.differences}
    assert "task" in kinds and "grader" not in kinds
    assert "observation of mail_search" in kinds
    task = next(one for one in found.differences if one.what == "task")
    ((_, first), *_) = episodes(recorded)
    assert task.was == first["digest"] != task.now


def test_tasks_that_cannot_be_made_any_more(worlds, recorded, tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"".join(Path(recorded).read_bytes().splitlines(keepends=True)[:3]))
    found = rescore(str(file), env="worlds:BROKEN")
    assert not found.same and found.identical == 0
    assert [one.episode for one in found.failed] == [1, 2, 3]
    assert all(one.task_id.startswith("Apps-v0/") and one.reason for one in found.failed)


# By hand: one trajectory, changed.


@pytest.fixture
def changed(recorded, tmp_path):
    """``changed(change, **kwargs)`` rescores the first episode after ``change(episode)``."""

    def run(change, **kwargs):
        _, episode = next(episodes(recorded))
        change(episode)
        file = tmp_path / "changed.jsonl"
        file.unlink(missing_ok=True)
        append(str(file), encode(episode))
        return rescore(str(file), **kwargs)

    return run


def test_every_number_of_a_turn_is_compared(changed):
    """What was changed in the file, and nothing else, is named, with its turn."""

    def change(episode):
        turn = episode["turns"][1]
        turn["observation"] += "!"
        turn["reward"] += 1e-12
        turn["record"]["channels_raw"]["progress"] = float("nan")
        turn["record"]["gate"]["attempted"] = True
        turn["record"]["verdict"]["violations"] = ["edited mail/m1"]
        turn["record"]["verdict"]["ok"]["extra"] = True
        turn["calls"][0]["error"] = True
        del turn["record"]["phi"]["checks"]
        episode["start"]["observation"] = ""
        assert episode["turns"][-1]["record"]["gate"]["attempted"] is True
        episode["turns"][-1]["record"]["gate"]["attempted"] = None
        lengths.append(len(episode["turns"]))

    lengths = []
    found = changed(change)
    assert {(one.turn, one.what) for one in found.differences} == {
        (0, "observation"),
        (lengths[0], "gate attempted"),
        *((2, what) for what in ("reward", "raw progress", "gate attempted", "violations")),
        *((2, what) for what in ("check extra", "calls", "phi checks")),
        (2, next(one.what for one in found.differences if one.what.startswith("observation of"))),
    }
    told = json.loads(json.dumps(found.as_json(), allow_nan=False))
    (raw,) = (one for one in told["differences"] if one["what"] == "raw progress")
    assert raw["was"] == {"$float": "nan"} and isinstance(raw["now"], float)
    (extra,) = (one for one in told["differences"] if one["what"] == "check extra")
    assert (extra["was"], extra["now"]) == (True, "absent")


def test_an_episode_that_ends_earlier_or_later(changed):
    earlier = changed(lambda e: e["turns"].append(e["turns"][-1]))
    (end,) = earlier.differences
    assert (end.what, end.was, end.now) == ("turn", "played", "absent")
    later = changed(lambda e: e["turns"][0].update(truncated=True))
    (end,) = later.differences
    assert (end.turn, end.what, end.was, end.now) == (1, "ended", ["truncated"], [])


def layer(episode):
    """The innermost reward layer of a trajectory, as it was recorded."""
    return episode["env"]["additional_wrappers"][0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda e: e.update(env=None), "does not say how the environment is made"),
        (
            lambda e: e["env"].update(entry_point="headway.envs.domain:load"),
            "may name classes of gymnasium.Env",
        ),
        (
            lambda e: layer(e).update(entry_point="headway.wrappers.gate:predicate"),
            "may name classes of gymnasium.Wrapper only, got 'headway.wrappers.gate:predicate'",
        ),
        (
            lambda e: layer(e).update(kwargs=None),
            "the arguments of the wrapper ProgressReward were not recorded",
        ),
        (lambda e: e.update(task_id=None, seed=None), "neither a task id nor a seed"),
        (lambda e: e.update(task_id="Apps-v0/bills/d2/R2/test/0.9"), "is not certified"),
        (lambda e: e.update(layers=e["layers"][1:]), "must have the 2 layers that were recorded"),
        (lambda e: e["layers"][0].update(luck=1), "state must have keys"),
    ],
)
def test_what_cannot_be_played_again_says_why(changed, change, says):
    found = changed(change)
    (lost,) = found.failed
    assert says in lost.reason and not found.same and found.was == {}


# What a file may not do.

TRAP = "import pathlib; pathlib.Path(__file__).with_name('sprung').touch()\n\ndef spring(): pass\n"


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module that leaves a mark when it is imported: this file, which is there then."""
    (tmp_path / "trap.py").write_text(TRAP, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "sprung"
    sys.modules.pop("trap", None)


def around(episode, entry_point, **kwargs):
    """Puts one more wrapper around what was recorded."""
    name = entry_point.rpartition(":")[2]
    more = {"name": name, "entry_point": entry_point, "kwargs": kwargs}
    episode["env"]["additional_wrappers"].append(more)


NAMED = {
    "environment": lambda e: e["env"].update(entry_point="trap:World"),
    "environment of a registered id": lambda e: e["env"].update(
        id="FrozenLake-v1", entry_point="trap:World"
    ),
    "environment beside ours": lambda e: e["env"].update(entry_point="headway.envs_trap:World"),
    "id that nobody registered": lambda e: e["env"].update(
        id="Nobody-v0", entry_point="gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv"
    ),
    "domain": lambda e: e["env"]["kwargs"].update(domain="trap:WORLD"),
    "wrapper": lambda e: around(e, "trap:Layer"),
    "potential": lambda e: layer(e)["kwargs"].update(potential="trap:spring"),
    "judge": lambda e: around(e, "headway.wrappers.rubric:RubricReward", judge="trap:spring"),
    "stack": lambda e: layer(e)["kwargs"].update(stack="progress(potential=trap:spring)"),
    "depths": lambda e: layer(e)["kwargs"].update(name=[{"a": ({"trap:spring": 1},)}]),
}


@pytest.mark.parametrize("change", NAMED.values(), ids=NAMED)
def test_a_file_imports_nothing(changed, trap, change):
    """Neither what it names nor anything on the way; what was refused and the remedy are told."""
    (lost,) = changed(change).failed
    assert "the file names '" in lost.reason and "trust=True (--trust)" in lost.reason
    assert not trap.exists() and "trap" not in sys.modules


@pytest.mark.parametrize("name", ["environment", "domain", "wrapper", "potential"])
def test_a_file_that_is_trusted_imports(changed, trap, name):
    changed(NAMED[name], trust=True)
    assert trap.exists()


def test_another_stack_and_another_world_need_no_trust(changed, trap, worlds):
    """What the file says of the layers and the world in their place is not looked at."""
    found = changed(NAMED["potential"], stack="progress", gamma=1.0)
    assert not found.failed and found.same_verdicts == 1
    for name in ("domain", "environment"):
        assert changed(NAMED[name], env="worlds:SAME").same
    assert not trap.exists()


def test_what_is_registered_here_is_known(worlds, tmp_path):
    """A class and a domain of one's own, as long as this process says so itself."""
    ids = {
        "me/Talk-v0": ("headway.envs.tool_env:ToolEnv", "worlds:SAME"),
        "me/World-v0": ("worlds:World", DOMAINS["headway/Apps-v0"]),
    }
    for number, (id, (where, domain)) in enumerate(ids.items()):
        file = str(tmp_path / f"{number}.jsonl")
        gym.register(id, where, kwargs={"domain": domain})
        try:
            evaluate(id, "oracle", episodes=1, record=file)
            assert rescore(file).same
        finally:
            del gym.registry[id]
        (lost,) = rescore(file).failed
        assert "the file names 'worlds:" in lost.reason
        assert rescore(file, trust=True).same


def test_recorders_inside_are_passed_over(tmp_path, recorded, changed):
    """Nothing is written: not to the file of an inner one, and not to the one that is read."""
    inner, outer = tmp_path / "inner.jsonl", tmp_path / "outer.jsonl"
    layered = ProgressReward(gym.make("headway/Apps-v0"), gamma=1.0)
    env = Recorder(Recorder(layered, inner), outer)
    env.reset(seed=0)
    for action in env.unwrapped.solution():
        env.step(action)
    env.close()
    before = inner.read_bytes()
    assert rescore(str(outer)).same and inner.read_bytes() == before
    where = "headway.wrappers.record:Recorder"
    sizes = []
    for file in (tmp_path / "changed.jsonl", tmp_path / "new.jsonl"):
        assert changed(lambda e, file=file: around(e, where, file=str(file))).same
        sizes.append(len((tmp_path / "changed.jsonl").read_bytes().splitlines()))
    assert sizes == [1, 1] and not (tmp_path / "new.jsonl").exists()


@pytest.mark.parametrize("trust", [False, True])
def test_what_else_writes_is_refused(changed, tmp_path, trust):
    folder = str(tmp_path / "films")
    where = "gymnasium.wrappers.rendering:RecordVideo"
    (lost,) = changed(lambda e: around(e, where, video_folder=folder), trust=trust).failed
    assert "a wrapper that writes files is not made again, got RecordVideo" in lost.reason
    assert not Path(folder).exists()


# Lines that nobody wrote.

MALFORMED = [
    (lambda e: e.update(gamma="x"), "gamma must be a number in (0, 1], got 'x'"),
    (lambda e: e.update(gamma=0), "gamma must be a number in (0, 1], got 0"),
    (lambda e: e.update(task_id=[1]), "task_id must be str or NoneType, got [1]"),
    (lambda e: e.update(seed="x"), "seed must be int or NoneType, got 'x'"),
    (lambda e: e.update(env="x"), "env must be dict or NoneType, got 'x'"),
    (lambda e: e.update(layers=5), "layers must be list, got 5"),
    (lambda e: e.update(layers=[5, {}]), "layers 0 must be dict, got 5"),
    (lambda e: e.update(turns=None), "turns must be list, got None"),
    (lambda e: e.update(turns=[1]), "turn 1 must be dict, got 1"),
    (lambda e: e.update(ended="won"), "ended must be one of"),
    (lambda e: e.update(ended=[]), "ended must be one of"),
    (lambda e: e.update(fatal="boo"), "reason and fatal must be empty where ended is not 'died'"),
    (lambda e: e.update(reason="boo"), "reason and fatal must be empty"),
    (lambda e: e["start"].pop("record"), "start record is missing"),
    (lambda e: e["turns"][0].pop("calls"), "turn 1 calls is missing"),
    (lambda e: e["turns"][0].pop("action"), "turn 1 action is missing"),
    (lambda e: e["turns"][0].update(terminated=1), "turn 1 terminated must be bool, got 1"),
    (lambda e: e["turns"][0].update(calls=[{"a": 1}]), "turn 1 calls must each have a tool"),
    (lambda e: e["turns"][0].update(calls=[{"tool": 1}]), "turn 1 calls must each have a tool"),
    (lambda e: record(e).pop("status"), "turn 1 record status is missing"),
    (lambda e: record(e).update(verdict=None), "turn 1 record verdict must be dict, got None"),
    (lambda e: record(e)["verdict"].update(ok=[]), "turn 1 verdict ok must be dict, got []"),
    (lambda e: record(e).update(phi=[]), "turn 1 record phi must be dict, got []"),
    (lambda e: record(e).update(channels=[1]), "turn 1 record channels must be dict, got [1]"),
    (lambda e: record(e)["channels"].update(a="b"), "turn 1 channels must be amounts by name"),
    (lambda e: record(e)["channels"].update(a=10**400), "turn 1 channels must be amounts by name"),
    (lambda e: record(e)["channels"].update({7: 1.0}), "turn 1 channels must be amounts by name"),
    (lambda e: e["turns"][0].update(action=5), "TypeError"),
    (lambda e: e["turns"][0].update(action={"samples": []}), "StopIteration"),
]


def record(episode):
    """Of the first turn."""
    return episode["turns"][0]["record"]


@pytest.mark.parametrize(("change", "says"), MALFORMED)
def test_a_malformed_trajectory_is_lost_and_the_others_are_not(recorded, tmp_path, change, says):
    file = tmp_path / "a.jsonl"
    (_, bad), (_, good), *_ = episodes(recorded)
    change(bad)
    for episode in (good, bad, good):
        append(str(file), encode(episode))
    heard = []
    found = rescore(str(file), told=lambda done, of: heard.append(done))
    assert (found.episodes, found.identical) == (3, 2) and not found.same and heard == [1, 2, 3]
    (lost,) = found.failed
    assert lost.episode == 2 and says in lost.reason


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"\0\0\0", "Expecting value"),
        (b"[1]", "a line must be an object"),
        (b'{"headway":2}', "a newer headway reads it"),
        (b'{"headway":true}', "headway must be the format 1, got True"),
        (b'{"headway":1,"a":%s1%s}' % (b"[" * 10**5, b"]" * 10**5), "recursion"),
        (b'{"headway":1,"a":%s}' % (b"9" * 6000), "4300"),
        (b'{"headway":1,"a":"\xff"}', "codec can't decode"),
    ],
)
def test_a_line_that_is_no_trajectory_is_lost_and_the_others_are_not(
    recorded, tmp_path, line, says
):
    """Where the file begins like one of trajectories."""
    good = Path(recorded).read_bytes().splitlines(keepends=True)[0]
    file = tmp_path / "a.jsonl"
    file.write_bytes(good + line + b"\n" + good)
    found = rescore(str(file))
    assert (found.episodes, found.identical) == (3, 2)
    (lost,) = found.failed
    assert lost.episode == 2 and says in lost.reason


@pytest.mark.parametrize("depth", [64, 97, 98, 300, 450])
def test_depths_are_compared_and_told_of_or_lost(changed, depth):
    """At any depth that JSON can be read at."""
    deep = []
    for _ in range(depth - 1):
        deep = [deep]
    found = changed(lambda e: record(e).update(deep=deep))
    assert json.dumps(found.as_json())
    if depth <= 97:
        (one,) = found.differences
        assert (one.what, one.was, one.now) == ("deep", deep, "absent")
    else:
        (lost,) = found.failed
        assert lost.reason == "nested more than 100 levels deep"


def test_a_return_that_is_no_number_is_another(changed):
    """NaN is within no rounding of anything."""

    def change(episode):
        record(episode)["channels"]["progress"] = math.nan

    found = changed(change, stack="progress(c=0.3),gate", gamma=0.9)
    (one,) = (one for one in found.differences if one.what == "return of progress")
    assert math.isnan(one.was) and math.isfinite(one.now) and not found.same


def test_a_verdict_that_says_another_status_differs(changed):
    def change(episode):
        episode["turns"][-1]["record"]["verdict"]["status"] = "no_verdict"

    assert [one.what for one in changed(change).differences] == ["verdict's status"]


def test_what_another_stack_could_not_measure_is_no_difference_of_the_turn(changed):
    def change(episode):
        record(episode)["unmeasured"] = {"progress": "why"}

    kinds = {one.what for one in changed(change, stack="progress(c=0.2)", gamma=0.9).differences}
    assert kinds <= {f"return of {name}" for name in ("base", "progress", "potential")}
    assert "unmeasured" in {one.what for one in changed(change).differences}


def test_amounts_without_a_mean(recorded, tmp_path):
    file = tmp_path / "a.jsonl"
    for (_, episode), amount in zip(episodes(recorded), (math.inf, -math.inf), strict=False):
        record(episode)["base"] = amount
        append(str(file), encode(episode))
    found = rescore(str(file))
    assert math.isnan(found.was["base"]) and math.isfinite(found.now["base"])


# Trajectories that were cut or told another story.


@pytest.mark.parametrize(
    ("change", "what", "was", "now"),
    [
        (lambda e: e["turns"].pop(), "ended", "terminated", "left"),
        (lambda e: e["turns"].clear(), "ended", "terminated", "left"),
        (lambda e: e.update(ended="left"), "ended", "left", "terminated"),
        (lambda e: e.update(ended="truncated"), "ended", "truncated", "terminated"),
        (lambda e: e.update(ended="died", reason="x"), "ended", "left", "terminated"),
        (lambda e: e.update(seed=e["seed"] + 1), "seed", None, None),
        (lambda e: e.update(options={"difficulty": 5}), "seed", None, None),
    ],
)
def test_a_trajectory_that_is_cut_or_lies_differs(changed, change, what, was, now):
    (one,) = changed(change).differences
    assert (one.turn, one.what) == (None, what)
    if what == "seed":
        assert one.was == one.task_id != one.now and one.now.startswith("Apps-v0/")
    else:
        assert one.now == now and one.was in (was, "died")


def test_another_world_need_not_give_the_same_task_for_a_seed(worlds, changed):
    assert changed(lambda e: e.update(seed=e["seed"] + 1), env="worlds:SAME").same


def test_a_machine_that_had_died(tmp_path, recorded):
    """It is told of; what it had done is compared; it is in no mean."""

    class Doomed(gym.Wrapper, gym.utils.RecordConstructorArgs):
        def __init__(self, env):
            gym.utils.RecordConstructorArgs.__init__(self)
            gym.Wrapper.__init__(self, env)

        def step(self, action):
            if action is CUT:
                raise SandboxDied("out of disk", by="infra")
            return self.env.step(action)

    file = str(tmp_path / "a.jsonl")
    bare = gym.make("headway/Apps-v0")
    env = Recorder(Doomed(bare), file)
    env.reset(seed=1)
    env.step("hello")
    with pytest.raises(SandboxDied):
        env.step(CUT)
    ((_, episode),) = episodes(file)
    episode["env"] = json.loads(bare.spec.to_json())
    again = str(tmp_path / "b.jsonl")
    append(again, encode(episode))
    found = rescore(again)
    assert found.identical == 1 and found.was == {}
    (lost,) = found.died
    assert (lost.episode, lost.reason) == (1, "SandboxDied: out of disk")
    assert lost.task_id == episode["task_id"]


def test_schedules_are_where_they_were(tmp_path):
    file = str(tmp_path / "a.jsonl")
    env = ScheduledReward(ProgressReward(gym.make("headway/Apps-v0"), gamma=1.0), steps=10)
    env = Recorder(env, file)
    for k in (0, 5, 10):
        headway.set_progress(env, k)
        env.reset(seed=1)
        for action in env.unwrapped.solution():
            env.step(action)
    found = rescore(file)
    assert found.same
    assert found.was["progress"] == pytest.approx(0.25)  # 0.5, half of it and nothing of it


def test_a_foreign_environment_is_found_by_its_seed(worlds, tmp_path):
    file = str(tmp_path / "a.jsonl")
    env = Recorder(worlds.Lake(gym.make("FrozenLake-v1", is_slippery=True)), file)
    for seed in range(3):
        env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, _ = env.step(2)
            over = terminated or truncated
    found = rescore(file, trust=True)
    assert found.identical == 3, (found.differences, found.failed)
    with_layers = rescore(file, stack="progress", gamma=1.0, trust=True)
    assert with_layers.same_verdicts == 3 and "progress" in with_layers.now


def test_torn_lines_are_told_of(recorded, tmp_path):
    file = tmp_path / "a.jsonl"
    data = Path(recorded).read_bytes().splitlines(keepends=True)
    file.write_bytes(data[0] + data[1][:-10])
    found = rescore(str(file))
    assert (found.episodes, found.identical, found.torn) == (1, 1, ((2, len(data[1]) - 10),))
    assert found.as_json()["torn"] == [{"line": 2, "bytes": len(data[1]) - 10}]


@pytest.mark.parametrize("how", [{"stack": "progress"}, {"gamma": 0.9}])
def test_a_stack_needs_its_gamma(recorded, how):
    with pytest.raises(ValueError, match="gamma must be given with stack"):
        rescore(recorded, **how)
    with pytest.raises(ValueError, match="gamma must be given with stack"):
        evaluate("headway/Apps-v0", "noop", episodes=1, **how)


def test_jobs_share_a_file(tmp_path):
    """Two processes record what one does, in whatever order."""
    files = [str(tmp_path / name) for name in "ab"]
    for file, jobs in zip(files, (1, 2), strict=True):
        evaluate("headway/Apps-v0", "random", episodes=6, samples=2, jobs=jobs, record=file)
    one, two = (sorted(repr(episode) for _, episode in episodes(file)) for file in files)
    assert one == two and len(one) == 6


def test_hundred_episodes_of_every_world(tmp_path):
    file = str(tmp_path / "a.jsonl")
    each = math.ceil(100 / (3 * len(DOMAINS)))
    for id in DOMAINS:
        for agent in ("oracle", "random", "reader"):
            evaluate(id, agent, episodes=each, record=file)
    found = rescore(file)
    assert found.same and found.identical == found.episodes == 3 * len(DOMAINS) * each >= 100


def test_the_page_runs(tmp_path):
    """``docs/trajectories.md``: its program, its list of keys, and its commands."""
    page = (Path(__file__).parents[2] / "docs" / "trajectories.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    argv = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2 of 2 the same"
    table = page.partition("## The file")[2].partition("##")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(KEYS)
    (commands,) = re.findall(r"^```bash\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    statuses = []
    for line in commands.splitlines():
        program, *rest = shlex.split(line, comments=True)
        assert program == "headway"
        argv = [sys.executable, "-m", "headway.cli", *rest]
        statuses.append(subprocess.run(argv, cwd=tmp_path, capture_output=True).returncode)
    assert statuses == [0, 0, 1]
