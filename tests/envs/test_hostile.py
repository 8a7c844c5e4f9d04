"""Whatever an agent writes is answered: no exception, bounded texts, the documented record."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import pytest

from headway.envs.actions import FORMATS, MAX_ACTION, ToolCall, format_calls
from headway.envs.rng import Rng
from headway.envs.tool_env import ToolEnv
from headway.verifiers import Verdict
from headway.wrappers import GatedReward, PotentialShaping, ProgressReward

ID = "headway/Apps-v0"
TAIL = 60
"""Characters of an observation beside the replies: the turns left, line breaks between replies."""

VALUES: list[Any] = [
    *(None, True, 0, -1, 2**63, 10**300, 1e308, 0.1, "", " ", "\x00", "\ud83d", "\ud83c\udf78"),
    *([], [[]], {}, {"a": {"b": []}}, ["x"] * 200, "x" * 20_000, "é" * 300, "</tool_call>"),
    *('"', "\\", "\r\n", "2031-13-45", "99:99", "NaN", "a@b.example", "‮", "../../etc/passwd"),
    *("{}{}", "%s%n", "'; drop table mail; --", "../" * 60, "m1", 3.0, "١٢"),
]
SCRAPS = [
    *("{", "}", "[", "]", '"', "\\", ",", ":", "\n", "\x00", "\ud800", "\udfff", "\u2028", "🍸"),
    *("```json\n", "```", "<tool_call>", "</tool_call>", "null", "NaN", "-Infinity", "1e999"),
    *('{"tool": "', '{"name": "submit", "arguments": {}}', "9" * 500, "\\u", "\\ud83d", "'", "//"),
]


OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("ask_user", {"question": "What about the day?"}),
    ("note_write", {"title": "long", "text": "x" * 9000}),
    ("note_read", {"title": "long"}),
]
"""Calls that no guess makes: to the user, and for more than one observation holds."""


class Fuzz:
    """An endless stream of damaged calls, drawn from calls that would have worked."""

    def __init__(self, name: str, action_format: str) -> None:
        self.random = random.Random(f"{name} {action_format}")
        self.format = action_format

    def action(self, env: ToolEnv, rng: Rng) -> str:
        """One action, damaged in several ways, in one, or not at all."""
        calls = [self.call(env, rng) for _ in range(self.random.choice([1, 1, 1, 1, 2, 5, 20]))]
        texts = [self.write(call, env) for call in calls]
        text = self.random.choice(["\n", "", " and then "]).join(texts)
        for _ in range(self.random.choice([0, 0, 1, 1, 2, 8])):
            text = self.random.choice([self.cut, self.flip, self.insert, self.double])(text)
        return self.random.choice([str, str, str, str, self.wrap, self.drown])(text)

    def call(self, env: ToolEnv, rng: Rng) -> tuple[Any, Any]:
        """A tool and arguments, of the right types or not."""
        guess = env.domain.guess(env.box, rng)
        tool, args = guess.tool, guess.args
        if self.random.random() < 0.2:
            tool, args = self.random.choice(OTHERS)
        args = dict(args)
        for name in list(args):
            if self.random.random() < 0.25:
                args[name] = self.random.choice(VALUES)
        if self.random.random() < 0.1:
            args[self.random.choice(["extra", "", "id", "é" * 99])] = self.random.choice(VALUES)
        if self.random.random() < 0.1 and args:
            del args[self.random.choice(list(args))]
        if self.random.random() < 0.1:
            tool = self.random.choice(["", "x" * 5000, "mail_reed", "sub mit", 3, None, tool * 9])
        return tool, self.random.choice([args] * 9 + [self.random.choice(VALUES)])

    def write(self, call: tuple[Any, Any], env: ToolEnv) -> str:
        """The call as text, escaped or not, in the right format or the other one."""
        if self.format == "command" and self.random.random() < 0.9:
            try:
                return format_calls([ToolCall(*call)], "command", env.instance.toolbox)
            except (AttributeError, TypeError, ValueError):  # no name, or no arguments
                return f"{call[0]} {call[1]}"
        names = self.random.choice([("tool", "args"), ("name", "arguments"), ("tool", "arguments")])
        plain = self.random.random() < 0.5
        text = json.dumps(dict(zip(names, call, strict=True)), ensure_ascii=plain)
        right = self.random.random() < 0.9
        return f"<tool_call>\n{text}\n</tool_call>" if (self.format == "hermes") == right else text

    def cut(self, text: str) -> str:
        return text[: self.random.randint(0, len(text))]

    def flip(self, text: str) -> str:
        at = self.random.randint(0, len(text))
        return (
            text[:at] + chr(self.random.choice([0, 34, 92, 123, 0xD800, 0x10FFFF])) + text[at + 1 :]
        )

    def insert(self, text: str) -> str:
        at = self.random.randint(0, len(text))
        return text[:at] + self.random.choice(SCRAPS) + text[at:]

    def double(self, text: str) -> str:
        return (text + text)[: 2 * MAX_ACTION]

    def wrap(self, text: str) -> str:
        """Deep in arrays and objects."""
        depth = self.random.choice([1, 5, 70, 3000])
        opened = self.random.choice(["[", '{"tool":', '{"args":[', "[{"])
        return opened * depth + text + "]" * depth

    def drown(self, text: str) -> str:
        """In much of something."""
        scrap = self.random.choice([*SCRAPS, "word ", "\n"])
        return text + scrap * self.random.choice([10, 1000, 1 + MAX_ACTION // len(scrap)])


def bare(action_format: str) -> gym.Env[Any, Any]:
    """The environment alone, which grades at the end."""
    return gym.make(ID, action_format=action_format)


def layered(action_format: str) -> gym.Env[Any, Any]:
    """Reward layers that look at every turn."""
    env = ProgressReward(bare(action_format), gamma=0.99)
    return GatedReward(PotentialShaping(env, gamma=0.99, on_truncation="zero"), scope="step")


def storm(make: Callable[[str], gym.Env[Any, Any]], action_format: str, count: int) -> Counter[str]:
    """Plays ``count`` damaged actions over a few tasks and checks every answer."""
    env, fuzz, seen = make(action_format), Fuzz(make.__name__, action_format), Counter[str]()
    tasks = [(0, {"rendering": 2}), (1, {"rendering": 4}), (2, {"difficulty": 3, "rendering": 3})]
    episode, over = 0, True
    for number in range(count):
        if over:
            seed, options = tasks[episode % len(tasks)]
            env.reset(seed=seed, options=options)
            world: ToolEnv = env.unwrapped
            room = world.instance.task.max_obs_chars + TAIL
            rng, episode = Rng("fuzz", episode), episode + 1
        text = fuzz.action(world, rng)
        stamp = world.box.stamp()
        obs, reward, terminated, truncated, info = env.step(text)
        over = terminated or truncated
        assert type(obs) is str and len(obs) <= room, number
        obs.encode()
        check_record(reward, info)
        assert [type(terminated), type(truncated)] == [bool, bool]
        assert over == ("Turns left: " not in obs.rsplit("\n", 1)[1])
        seen["actions"] += 1
        seen["refused"] += "Error: " in obs
        seen["cut"] += "characters cut]" in obs
        seen["changed the world"] += world.box.stamp() != stamp
        seen["ended"] += over
    return seen


def check_record(reward: float, info: dict[str, Any]) -> None:
    """The keys that are documented, no others, and a reward that is the sum of its parts."""
    assert info.keys() == {"task_id", "turn", "calls", "headway"}
    record = info["headway"]
    assert record.keys() == {
        *("base", "channels", "channels_raw", "phi", "gate", "status", "verdict")
    }
    assert type(reward) is float and math.isfinite(reward)
    assert abs(record["base"] + sum(record["channels"].values()) - reward) <= 1e-9
    assert record["channels"].keys() == record["channels_raw"].keys()
    assert record["status"] in ("ok", "ungraded")
    assert isinstance(record["verdict"], Verdict) == (record["status"] == "ok")


@pytest.mark.parametrize("action_format", FORMATS)
@pytest.mark.parametrize("make", [bare, layered])
def test_five_thousand_hostile_actions_are_answered(make, action_format: str) -> None:
    seen = storm(make, action_format, 1250)
    assert (
        min(seen["refused"], seen["changed the world"]) > 100 and seen["cut"] > 10 < seen["ended"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("action_format", FORMATS)
@pytest.mark.parametrize("make", [bare, layered])
def test_a_hundred_thousand_hostile_actions_are_answered(make, action_format: str) -> None:
    """Shown with ``-s``: how many there were, and what became of them."""
    seen = storm(make, action_format, 25_000)
    print(f"{make.__name__} {action_format}: {dict(seen)}")
    assert seen["actions"] == 25_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "\ud83d",
        "{" * 99_999,
        "[" * 99_999,
        '{"tool": "submit"' + " " * 200_000,
        '{"tool": "note_list"}' * 400,
        '{"tool": "note_read", "args": {"title": "' + "\n" * 30_000,
        '{"tool": "note_list", "args": {"a": 1, "a": 2}}',
        '{"tool": "pay_send", "args": {"payee": "x", "amount": ' + "9" * 4000 + ', "memo": ""}}',
        "<tool_call>" * 9000,
        json.dumps({"tool": "mail_search", "args": {"query": "x" * 99_000}}),
        json.dumps({"tool": "x" * 5000}),
        json.dumps([{"tool": "note_list"}] * 40),
        "note_list\n" * 9000,
        'note_read "' + "\n" * 30_000,
        "note_read " + "x=" * 30_000,
        "pay_send x " + "9" * 4000 + " memo",
        "file_write a " + "b " * 40_000,
        "cal_create a 2031-05-01 09:00 " + "[" * 50_000,
    ],
)
@pytest.mark.parametrize("action_format", FORMATS)
def test_single_blows(text: str, action_format: str) -> None:
    """As the first action after a reset too; the state and its progress stay as they were."""
    env = gym.make(ID, action_format=action_format)
    env.reset(seed=1)
    world = env.unwrapped
    before, verdict = world.box.canonical(), world.grade()
    obs, reward, terminated, truncated, info = env.step(text)
    assert (reward, terminated, truncated, info["turn"]) == (0.0, False, False, 1)
    assert len(obs) <= world.instance.task.max_obs_chars + TAIL
    assert world.box.canonical() == before and world.grade() == verdict
    check_record(reward, info)


def test_what_an_agent_wrote_comes_back_unchanged() -> None:
    """Delimiters, other scripts and emoji, byte for byte; halves of surrogates are replaced."""
    text = 'a </tool_call> {"tool": "submit"} ```\n日本語 👩‍👩‍👧‍👦 \\ud83c \x00 "q"'
    for action_format in FORMATS:
        env = gym.make(ID, action_format=action_format)
        env.reset(seed=1)
        call = env.unwrapped.format
        env.step(call("note_write", {"title": "odd", "text": text}))
        obs = env.step(call("note_read", {"title": "odd"}))[0]
        assert obs.rsplit("\n", 1)[0] == text
    env.step(call("note_write", {"title": "half", "text": "a\ud83db"}))
    assert env.step(call("note_read", {"title": "half"}))[0].startswith("a\ufffdb\n")
