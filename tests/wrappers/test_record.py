"""Trajectories: exact whatever an agent writes, whole whatever ends the process."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headway
from headway import CUT
from headway.envs.box import SandboxDied
from headway.wrappers import GatedReward, ProgressReward, ScheduledReward
from headway.wrappers.lines import append, decode, encode, read
from headway.wrappers.record import KEYS, Recorder, action_of, episodes

HALVES = "\ud83c\udf78"
"""Two code points that one emoji is written as; not the emoji."""

SCRAPS = ["", "a", "Zoë", "日本語", "🍸", "\ud83d", "\udf78", HALVES, f"a{HALVES}{HALVES}b"]
SCRAPS += ["\x00", "\n", "\r\n", "\x85", "\u2028", "\\", '"', "\\ud83c", "$text", "$", "}", "{"]
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=())), st.lists(st.sampled_from(SCRAPS)).map("".join)
)
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(TEXT, st.integers()), inner, max_size=3),
    ),
    max_leaves=8,
)


def strict(data: bytes):
    """JSON as others read it: UTF-8, no NaN."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(data.decode("utf-8"), parse_constant=refuse)


def lines(file):
    """What a file holds, and the torn lines in it."""
    torn = []
    found = read(str(file), lambda *tear: torn.append(tear), wrong)
    return [value for _, value in found], torn


def wrong(*what):
    pytest.fail(str(what))


# Exactness.


@given(PLAIN)
@example({"$float": "nan"})
@example([{"a": 1, "$text": ["x"]}])
def test_plain_data_comes_back_exactly(tmp_path_factory, value):
    """By repr, which tells -0.0 from 0.0, True from 1, a tuple from a list, NaN from nothing."""
    file = str(tmp_path_factory.getbasetemp() / "exact.jsonl")
    Path(file).unlink(missing_ok=True)
    append(file, {"value": encode(value)})
    data = Path(file).read_bytes()
    assert data.count(b"\n") == 1 and data.endswith(b"\n")
    strict(data)
    ((_, found),) = read(file, wrong, wrong)
    assert repr(decode(found["value"])) == repr(value)
    assert encode(decode(found["value"])) == found["value"]


def test_numbers_of_other_libraries():
    found = encode([np.float32(0.5), np.int64(3), np.float64(math.inf), True])
    assert found == [0.5, 3, {"$float": "inf"}, True]
    assert [type(one) for one in found[:2]] == [float, int]


@pytest.mark.parametrize("value", [object(), {1, 2}, b"a", [1 + 2j], {"a": [print]}])
def test_what_is_no_plain_data_is_refused(value):
    with pytest.raises(TypeError, match="what is recorded must be plain data"):
        encode(value)


@pytest.mark.parametrize(
    "value",
    [
        *({"$float": "1"}, {"$text": 3}, {"$set": []}, [{"$map": {}}]),
        *({"$float": "nan", "a": 1}, {"a": 1, "$float": "nan"}),
    ],
)
def test_what_was_never_written_is_refused(value):
    with pytest.raises(ValueError, match="no value is written as"):
        decode(value)


@given(st.lists(st.one_of(TEXT, st.just(CUT)), min_size=1, max_size=4), st.data())
def test_a_trajectory_is_what_was_played(Script, scripts, tmp_path_factory, actions, data):
    """Actions, observations, flags, rewards and records of a stack, as step returned them."""
    file = tmp_path_factory.getbasetemp() / "played.jsonl"
    file.unlink(missing_ok=True)
    script = Script(**data.draw(scripts()))
    env = Recorder(GatedReward(ProgressReward(script, gamma=0.9)), file)
    obs, info = env.reset(seed=3)
    shown, played = [(obs, copy.deepcopy(info["headway"]))], []
    over = False
    while not over:
        action = actions.pop(0) if actions else "go"
        obs, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        shown.append((obs, copy.deepcopy(info["headway"])))
        played.append((action, reward, terminated, truncated))
    ((line, found),) = episodes(file)
    assert line == 1 and list(found) == list(KEYS)
    assert (found["task_id"], found["seed"], found["gamma"]) == ("script", 3, None)
    assert found["ended"] == ("terminated" if terminated else "truncated")
    turns = [found["start"], *found["turns"]]
    for turn, (obs, record) in zip(turns, shown, strict=True):
        verdict = record.pop("verdict").plain()
        verdict["violations"] = list(verdict["violations"])
        assert turn["observation"] == obs
        assert repr({**turn["record"]}) == repr(
            {name: verdict if name == "verdict" else record[name] for name in turn["record"]}
        )
    for turn, (action, *rest) in zip(found["turns"], played, strict=True):
        again = action_of(env.action_space, turn["action"])
        assert (again is CUT) if action is CUT else again == action
        assert (turn["action"] is None) is (action is CUT)
        assert [turn["reward"], turn["terminated"], turn["truncated"]] == rest
    assert repr(env.episode) == repr(found)


def test_a_recorder_changes_nothing(tmp_path):
    """What a bare environment leaves ungraded stays so; the trajectory has every verdict."""
    plain = gym.make("headway/Apps-v0")
    env = Recorder(gym.make("headway/Apps-v0"), tmp_path / "a.jsonl")
    assert env.reset(seed=1) == plain.reset(seed=1)
    for action in plain.unwrapped.solution():
        one, two = env.step(action), plain.step(action)
        assert one == two
        over = one[2] or one[3]
        assert one[4]["headway"]["status"] == ("ok" if over else "ungraded")
    ((_, found),) = episodes(tmp_path / "a.jsonl")
    progress = [turn["record"]["verdict"]["progress"] for turn in found["turns"]]
    assert progress == sorted(progress) and progress[-1] == 1.0
    assert found["turns"][0]["calls"][0]["tool"] in plain.unwrapped.domain.toolbox
    certificate = plain.unwrapped.certificate
    assert [found[name] for name in ("task_id", "digest", "grader")] == [
        *(certificate.task_id, certificate.digest, certificate.grader)
    ]
    assert found["version"] == version("headway")


def test_how_to_make_it_again(tmp_path):
    env = gym.make("headway/Apps-v0", difficulty=2)
    env = ScheduledReward(ProgressReward(env, gamma=0.9), steps=10)
    env = Recorder(env, tmp_path / "a.jsonl")
    headway.set_progress(env, 4)
    env.reset(seed=0)
    assert (env.episode["gamma"], env.episode["layers"][0]["k"]) == (0.9, 4)
    spec = gym.envs.registration.EnvSpec.from_json(json.dumps(env.episode["env"]))
    assert spec.kwargs["difficulty"] == 2
    assert [one.name for one in spec.additional_wrappers] == ["ProgressReward", "ScheduledReward"]
    again = gym.make(env.spec)
    assert isinstance(again, Recorder) and again.file == env.file


def test_a_gamma_only_where_there_is_one(Script):
    env = ProgressReward(gym.make("headway/Apps-v0"), gamma=0.9)
    env = Recorder(ProgressReward(env, gamma=0.8, c=0.1, name="other"))
    env.reset(seed=0)
    assert env.episode["gamma"] is None
    env = Recorder(env.env, gamma=0.7)
    env.reset(seed=0)
    assert env.episode["gamma"] == 0.7
    with pytest.raises(ValueError, match=r"gamma must be a number in \(0, 1\], got 0"):
        Recorder(Script(), gamma=0)
    env = Recorder(Script())
    env.reset()
    assert env.episode["env"] is None


def test_foreign_actions_and_observations_go_as_their_spaces_write_them(tmp_path, Script):
    class Pair(Script):
        def __init__(self):
            super().__init__()
            self.action_space = gym.spaces.Discrete(3)
            self.observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)

        def step(self, action):
            return (np.array([0.5, 1.0], np.float32), *super().step(action)[1:])

        def reset(self, **kwargs):
            return np.zeros(2, np.float32), super().reset(**kwargs)[1]

    env = Recorder(Pair(), tmp_path / "a.jsonl")
    env.reset()
    env.step(np.int64(2))
    env.close()
    ((_, found),) = episodes(tmp_path / "a.jsonl")
    assert found["turns"][0]["observation"] == {"samples": [[0.5, 1.0]]}
    assert action_of(env.action_space, found["turns"][0]["action"]) == 2


# How episodes end.


class Doomed(gym.Wrapper):
    """A machine that dies on the second turn."""

    def reset(self, **kwargs):
        self.left = 1
        return self.env.reset(**kwargs)

    def step(self, action):
        if not self.left:
            raise SandboxDied("out of disk", by="infra")
        self.left -= 1
        return self.env.step(action)


def test_a_death_is_written_at_once(Script, tmp_path):
    env = Recorder(Doomed(Script()), tmp_path / "a.jsonl")
    env.reset()
    env.step("one")
    with pytest.raises(SandboxDied):
        env.step("two")
    ((_, found),) = episodes(tmp_path / "a.jsonl")
    assert (found["ended"], found["reason"]) == ("died", "SandboxDied: out of disk")
    assert (found["fatal"], [turn["action"] for turn in found["turns"]]) == ("two", ["one"])
    with pytest.raises(gym.error.ResetNeeded, match="no episode is recorded; call reset"):
        env.step("three")
    env.close()
    assert len(list(episodes(tmp_path / "a.jsonl"))) == 1


def test_an_action_of_another_kind_is_the_callers_mistake(tmp_path):
    env = Recorder(gym.make("headway/Apps-v0", disable_env_checker=True), tmp_path / "a.jsonl")
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"action must be str or headway\.CUT"):
        env.step(3)
    env.step(CUT)
    ((_, found),) = episodes(tmp_path / "a.jsonl")
    assert found["ended"] == "truncated" and [t["action"] for t in found["turns"]] == [None]


@pytest.mark.parametrize("leave", ["reset", "close"])
def test_an_episode_that_is_left_is_written(Script, tmp_path, leave):
    env = Recorder(Script(), tmp_path / "a.jsonl")
    env.reset()
    env.step("one")
    getattr(env, leave)()
    env.close()
    ((_, found),) = episodes(tmp_path / "a.jsonl")
    assert found["ended"] == "left" and len(found["turns"]) == 1


def test_before_the_first_reset(Script, tmp_path):
    env = Recorder(Script(), tmp_path / "a.jsonl")
    for early in (lambda: env.step("a"), lambda: env.episode):
        with pytest.raises(gym.error.ResetNeeded, match="no episode is recorded"):
            early()
    env.close()
    assert list(episodes(tmp_path / "a.jsonl")) == []


def test_siblings_and_states_carry_the_trajectory(tmp_path):
    """A fork, and a stack put away and taken up, write whole episodes of their own."""
    env = Recorder(ProgressReward(gym.make("headway/Apps-v0"), gamma=1.0), tmp_path / "a.jsonl")
    env.reset(seed=1)
    first, *rest = env.unwrapped.solution()
    env.step(first)
    twin, state = headway.fork(env), headway.get_state(env)
    twin.step(CUT)
    late = gym.make(env.spec)
    late.reset(seed=5)
    for action in rest:
        env.step(action)
    headway.set_state(late, json.loads(json.dumps(state)))
    for action in rest:
        late.step(action)
    cut, whole, taken_up = (found for _, found in episodes(tmp_path / "a.jsonl"))
    assert [turn["action"] for turn in cut["turns"]] == [first, None]
    assert repr(taken_up) == repr(whole) and whole["ended"] == "terminated"
    with pytest.raises(ValueError, match="state must have keys"):
        env.set_state({"episode": None})


# Files.


def trajectories(file, count):
    """Lines with all that a torn one could be mistaken by: brackets, quotes, halves."""
    for number in range(count):
        append(str(file), {"number": number, "text": 'ä\\"}]} {[ \ud83d'})


def test_torn_at_every_byte(tmp_path):
    """Whole lines are read, the torn one is told of, and what comes after it is whole again."""
    whole, file = tmp_path / "whole", tmp_path / "torn"
    trajectories(whole, 3)
    data = whole.read_bytes()
    ends = [place for place, byte in enumerate(data, 1) if byte == ord("\n")]
    for size in range(len(data) + 1):
        file.write_bytes(data[:size])
        # A line that lacks nothing but its end is whole.
        count = sum(end - 1 <= size for end in ends)
        begun = size - max([0, *(end for end in ends if end <= size)])
        between = size == 0 or any(size in (end - 1, end) for end in ends)
        torn = [] if between else [(count + 1, begun)]
        found, told = lines(file)
        assert [one["number"] for one in found] == list(range(count))
        assert told == torn
        append(str(file), {"number": "next"})
        again, told = lines(file)
        assert again == [*found, {"number": "next"}]
        assert [line for line, _ in told] == [line for line, _ in torn]


def test_a_torn_trajectory_warns_by_line(Script, tmp_path):
    file = tmp_path / "a.jsonl"
    env = Recorder(Script(), file)
    for _ in range(2):
        env.reset()
        env.step(CUT)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.warns(UserWarning, match=rf"{file}:2: torn after \d+ bytes, dropped"):
        assert len(list(episodes(file))) == 1
    again = Recorder(Script(), file)
    again.reset()
    again.step(CUT)
    torn = []
    found = list(episodes(file, torn=lambda line, size: torn.append(line)))
    assert [line for line, _ in found] == [1, 3] and torn == [2]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"hello", ":2: Expecting value"),
        (b"{} {", ":2: Extra data"),
        (b'{"a": NaN}', ":2: NaN is not JSON"),
        (b"[1]", r":2: a line must be an object, got \[1\]"),
        (b'"{', ":2: Unterminated string"),
        (b'{"headway": 1}', r":2: a trajectory must have \['version', "),
        (b'{"headway": 2}', ":2: headway must be the format 1, got 2; a newer headway reads it"),
        (b"{}", ":2: headway must be the format 1, got None$"),
        (b'{"headway": true}', ":2: headway must be the format 1, got True$"),
        (b'{"headway": 1.0}', r":2: headway must be the format 1, got 1\.0$"),
        (b'{"a": %s1%s}' % (b"[" * 10**5, b"]" * 10**5), ":2: .*recursion"),
    ],
)
def test_a_line_that_is_wrong_is_named(Script, tmp_path, line, says):
    env = Recorder(Script(), tmp_path / "a.jsonl")
    env.reset()
    env.step(CUT)
    with (tmp_path / "a.jsonl").open("ab") as stream:
        stream.write(line + b"\n")
    env.reset()
    env.step(CUT)
    found = episodes(tmp_path / "a.jsonl")
    next(found)
    with pytest.raises(ValueError, match=says):
        next(found)
    lost = []
    found = list(episodes(tmp_path / "a.jsonl", lost=lambda *what: lost.append(what)))
    assert [line for line, _ in found] == [1, 3]
    ((line, reason),) = lost
    assert line == 2 and re.search(says, f":2: {reason}")


def test_a_file_ends_where_it_ended_when_it_was_opened(Script, tmp_path):
    """Who reads and adds for every line that was read comes to an end."""
    file = tmp_path / "a.jsonl"
    trajectories(file, 3)
    count = 0
    for _ in read(str(file), wrong, wrong):
        count += 1
        trajectories(file, 1)
        assert count <= 3
    assert count == 3 and len(lines(file)[0]) == 6


def test_a_tag_that_is_wrong_is_named(Script, tmp_path):
    env = Recorder(Script())
    env.reset()
    wrong = {**encode(env.episode), "seed": {"$float": "zero"}}
    append(str(tmp_path / "a.jsonl"), wrong)
    with pytest.raises(ValueError, match=r":1: no value is written as {'\$float': 'zero'}"):
        list(episodes(tmp_path / "a.jsonl"))


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_a_file_is_a_regular_one(Script, tmp_path, kind):
    file = os.devnull if kind == "device" else str(tmp_path / kind)
    if kind == "fifo":
        os.mkfifo(file)
    if kind == "folder":
        os.mkdir(file)
    with pytest.raises(ValueError, match=f"file must be a regular file, .* got '{file}'"):
        Recorder(Script(), file)


def test_a_file_stays_where_it_is(Script, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    env = Recorder(Script(), "a.jsonl")
    monkeypatch.chdir("elsewhere")
    env.reset()
    env.step(CUT)
    assert os.listdir() == [] and len(list(episodes(tmp_path / "a.jsonl"))) == 1


class Refusing:
    """A file that is taken away, and a disk that takes no other in its place."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        self.file.unlink()
        self.file.mkdir()

    def __exit__(self, *what):
        self.file.rmdir()


def test_a_refused_turn_is_played_and_the_next_call_tells(Script, tmp_path):
    """Once; the recorder goes on. What the disk takes on the second try is not lost."""
    file = tmp_path / "a.jsonl"
    for call in ("reset", "step", "close", "set_state"):
        env = Recorder(Script(), file)
        env.reset()
        again = {
            "reset": env.reset,
            "step": lambda env=env: env.step("late"),
            "close": env.close,
            "set_state": lambda env=env: env.set_state({"episode": None, "running": False}),
        }[call]
        with Refusing(file):
            *_, truncated, info = env.step(CUT)
            assert truncated and info["headway"]["status"] == "ok"
            assert env.episode["ended"] == "truncated" and len(env.episode["turns"]) == 1
            with pytest.raises(IsADirectoryError):
                again()
            env.reset()
            env.step(CUT)
        env.reset()
        ((_, found),) = episodes(file)
        assert found["ended"] == "truncated"
        env.close()
        file.unlink()


def test_a_refused_death_is_still_a_death(Script, tmp_path):
    file = tmp_path / "a.jsonl"
    env = Recorder(Doomed(Script()), file)
    env.reset()
    env.step("one")
    with Refusing(file), pytest.raises(SandboxDied, match="out of disk"):
        env.step("two")
    env.close()
    ((_, found),) = episodes(file)
    assert found["ended"] == "died"


def test_closing_closes_though_the_disk_refuses(Script, tmp_path):
    closed = []

    class Door(gym.Wrapper):
        def close(self):
            closed.append(True)

    file = tmp_path / "a.jsonl"
    env = Recorder(Door(Script()), file)
    env.reset()
    env.step("one")
    with Refusing(file), pytest.raises(IsADirectoryError):
        env.close()
    assert closed == [True]


@pytest.mark.parametrize("calls", [5, "two", [1], [{"name": "go"}], [{"tool": 3}]])
def test_what_others_mean_by_the_same_names_is_left_out(Script, tmp_path, calls):
    """A foreign environment counts something as calls, and numbers its tasks: it can be read."""

    class Foreign(gym.Wrapper):
        def reset(self, **kwargs):
            obs, info = self.env.reset(**kwargs)
            return obs, {**info, "calls": calls, "task_id": 7}

        def step(self, action):
            *turn, info = self.env.step(action)
            return (*turn, {**info, "calls": calls})

    env = Recorder(Foreign(Script()), tmp_path / "a.jsonl")
    env.reset()
    env.step(CUT)
    ((_, found),) = episodes(tmp_path / "a.jsonl")
    assert found["task_id"] is None and found["start"]["calls"] == found["turns"][0]["calls"] == []


def test_another_file_is_left_alone(Script, tmp_path):
    (tmp_path / "notes.txt").write_text("dear diary")
    with pytest.raises(ValueError, match=r"file must be new, empty, .* got '.*notes\.txt'"):
        Recorder(Script(), tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "dear diary"
    with pytest.raises(FileNotFoundError):
        Recorder(Script(), tmp_path / "nowhere" / "a.jsonl")
    (tmp_path / "torn.jsonl").write_bytes(b'{"head')
    Recorder(Script(), tmp_path / "torn.jsonl")


def test_a_writer_waits_for_the_one_before(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    file = tmp_path / "a.jsonl"
    with file.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        writer = threading.Thread(target=append, args=(str(file), {"a": 1}))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive() and not file.read_bytes()
        stream.write(b'{"begun": ')  # and killed before its end
    writer.join()
    assert file.read_bytes() == b'{"begun": \n{"a":1}\n'


WRITER = """
import sys
from headway.wrappers.lines import append
file, name, count = sys.argv[1:]
for number in range(int(count)):
    append(file, {"name": name, "number": number, "text": name * 100_000})
    print(number, flush=True)
"""


def writer(file, name, count):
    argv = [sys.executable, "-c", WRITER, str(file), name, str(count)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_several_processes_do_not_mix_their_lines(tmp_path):
    writers = [writer(tmp_path / "a.jsonl", name, 20) for name in "abc"]
    assert [one.communicate()[0].count("\n") for one in writers] == [20] * 3
    found, torn = lines(tmp_path / "a.jsonl")
    assert not torn and all(one["text"] == one["name"] * 100_000 for one in found)
    for name in "abc":
        assert [one["number"] for one in found if one["name"] == name] == list(range(20))


def test_a_killed_writer_loses_no_more_than_the_running_episode(tmp_path):
    file = tmp_path / "a.jsonl"
    one = writer(file, "a", 10**6)
    said = [one.stdout.readline() for _ in range(5)]
    one.send_signal(signal.SIGKILL)
    said += one.communicate()[0].splitlines()
    found, torn = lines(file)
    assert len(found) in (len(said), len(said) + 1) and len(torn) <= 1
    assert [one["number"] for one in found] == list(range(len(found)))
    append(str(file), {"number": "next"})
    assert lines(file)[0] == [*found, {"number": "next"}]


def test_what_the_disk_refuses_leaves_nothing(tmp_path):
    file = tmp_path / "a.jsonl"
    trajectories(file, 2)
    data = file.read_bytes()
    code = f"""
import resource
from headway.wrappers.lines import append
resource.setrlimit(resource.RLIMIT_FSIZE, ({len(data) + 10}, {len(data) + 10}))
try:
    append({str(file)!r}, {{"text": "a" * 1000}})
except OSError as error:
    print("refused", error.errno)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("refused"), done.stderr
    assert file.read_bytes() == data
