"""Two seats: PettingZoo's tests, the same results as with one seat, channels on the agent's."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gymnasium as gym
import pytest

import headway
from headway.envs.actions import MAX_ACTION
from headway.envs.box import Box, SandboxDied
from headway.envs.domain import Domain
from headway.envs.domains.apps import APPS
from headway.envs.submit import ASK_USER
from headway.envs.task import Clause
from headway.envs.tool_env import ToolEnv
from headway.envs.tools import tool
from headway.verifiers import Verdict
from headway.wrappers import Diff, GatedReward, ProgressReward
from headway.wrappers.gate import Gate

pytest.importorskip("pettingzoo", reason="two seats need headway[multi]")

from pettingzoo.test import api_test, seed_test
from pettingzoo.utils import turn_based_aec_to_parallel
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from headway.envs.duo import Duo, ScriptedUser
from headway.wrappers.seat import SeatChannels

APPS_AT = "headway.envs.domains.apps:APPS"
OF_ARRAYS = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be",
    "Action space for each agent probably should be",
    "We recommend agents to be named",
    "Environment has not defined a render",
)
"""What PettingZoo says of every environment of texts, of these seats, and of no picture."""

LAYERS = (
    Diff("progress", gamma=0.9, scale=0.5, terminal="keep", on_truncation="keep"),
    Gate("attempted", "episode"),
)

User = Callable[[str], Any]


def duo(**kwargs: Any) -> Duo:
    """Two seats over Apps."""
    return Duo(APPS_AT, **{"template": "bills", **kwargs})


def ask(question: str) -> str:
    """The agent's call that asks."""
    return json.dumps({"tool": "ask_user", "args": {"question": question}})


def moves(env: Any, actions: Iterator[Any], user: User) -> Iterator[tuple[Any, ...]]:
    """Plays to the end; before each move ``(seat, observation, reward, ends, info)``."""
    for seat in env.agent_iter():
        obs, reward, terminated, truncated, info = env.last()
        yield seat, obs, reward, terminated, truncated, info
        over = terminated or truncated
        env.step(None if over else next(actions) if seat == "agent" else user(obs))


def outcome(env: Any, actions: list[Any], user: User) -> list[tuple[Any, ...]]:
    """What the agent got of each of its turns: text, reward, ends, verdict."""
    seats = moves(env, iter(actions), user)
    seen = [(obs, r, te, tr, info["headway"]) for s, obs, r, te, tr, info in seats if s == "agent"]
    return [(*turn[:4], turn[4]["verdict"]) for turn in seen]


# PettingZoo's own tests.


@pytest.mark.parametrize("wrap", [lambda env: env, OrderEnforcingWrapper])
def test_api(wrap, capsys) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        api_test(wrap(duo(template=None)), num_cycles=200)
    assert all(str(w.message).startswith(OF_ARRAYS) for w in said)
    assert "Passed API test" in capsys.readouterr().out


def test_api_with_channels(capsys) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        api_test(SeatChannels(duo(), LAYERS, seat="agent"), num_cycles=200)
    assert all(str(w.message).startswith(OF_ARRAYS) for w in said)


def test_seed() -> None:
    seed_test(duo, num_cycles=50)


def test_fifty_cycles_of_two_copies_are_equal() -> None:
    """Over several episodes, seeded once, every table of both seats."""
    pair = [duo(template=None), duo(template=None)]
    draw = random.Random(1)
    for env in pair:
        env.reset(seed=9)
    asked = episodes = 0
    for _ in range(50):
        if not pair[0].agents:
            episodes += 1
            for env in pair:
                env.reset()
        shown = [tables(env) for env in pair]
        assert shown[0] == shown[1]
        seat = pair[0].agent_selection
        over = pair[0].terminations[seat] or pair[0].truncations[seat]
        if draw.random() < 0.1 and seat == "agent":
            action: Any = headway.CUT
        else:
            action = draw.choice([ask("When?"), ask("What rule?"), "hm", "day", "2031-05-01"])
        asked += seat == "user" and not over
        for env in pair:
            env.step(None if over else action)
    assert asked > 5 and episodes > 1


def tables(env: Any) -> list[Any]:
    """Everything an environment shows."""
    seats = list(env.agents)
    return [
        *(seats, env.agent_selection, env.rewards, env._cumulative_rewards, env.infos),
        *(env.terminations, env.truncations, [env.observe(seat) for seat in seats]),
    ]


def test_turn_based_parallel_conversion_plays_the_same() -> None:
    """Texts go through unchanged, and so does the outcome."""
    env, parallel = duo(), turn_based_aec_to_parallel(duo())
    env.reset(seed=1)
    expected = outcome(env, env.solution(), ScriptedUser().act)
    seen, infos = parallel.reset(seed=1)
    work = iter(parallel.unwrapped.solution())
    seat, texts, total = "agent", [seen["agent"]], 0.0
    while parallel.agents:
        action = next(work) if seat == "agent" else ScriptedUser().act(seen["user"])
        seen, rewards, *_, infos = parallel.step({"agent": action, "user": action})
        total += rewards["agent"]
        seat = infos["agent"].get("active_agent", "agent")
        if seat == "agent":
            texts.append(seen["agent"])
    assert texts == [turn[0] for turn in expected] and total == 1.0


# The same as with one seat.


@pytest.mark.parametrize("template", APPS.template_names("dev"))
@pytest.mark.parametrize("difficulty", [1, 4])
def test_the_scripted_user_makes_it_the_single_environment(template: str, difficulty: int) -> None:
    """Same texts, rewards, ends and verdicts, for the oracle."""
    kwargs = {"template": template, "difficulty": difficulty, "split": "dev", "ends_on": "success"}
    single, env = ToolEnv(APPS, rendering=4, **kwargs), duo(**kwargs)
    first, _ = single.reset(seed=3)
    env.reset(seed=3)
    work = single.solution()
    assert env.solution() == work
    steps = []
    while not steps or not (steps[-1][2] or steps[-1][3]):
        steps.append(single.step(work[len(steps)]))
    expected = [(first, 0.0, False, False, None)]
    expected += [(*step[:4], step[4]["headway"]["verdict"]) for step in steps]
    assert outcome(env, work, ScriptedUser().act) == expected
    assert expected[-1][1:4] == (1.0, True, False)


@pytest.mark.parametrize("seed", range(4))
def test_any_talk_with_the_scripted_user_comes_to_the_same(seed: int) -> None:
    """Several calls a turn, bad questions, questions after a submission, a cut."""
    single, env = ToolEnv(APPS, rendering=4, ends_on="success"), duo(template=None)
    env = duo(template=None, ends_on="success")
    first, _ = single.reset(seed=seed)
    env.reset(seed=seed)
    work = single.solution()
    talk = [
        ask(""),
        "\n".join([ask("zzz"), *work[:2], ask("What about everything?"), work[2]]),
        '{"tool": "ask_user", "args": {"question": 3}}',
        ask(" ".join(row["ask"][0] for row in single.box.table("user").values())),
        "\n".join(work[:6]),
        "\n".join([ask("when"), single.format("submit", {}), ask("why")]),
        headway.CUT,
    ]
    expected = [(first, 0.0, False, False, None)]
    for action in talk:
        step = single.step(action)
        expected.append((*step[:4], step[4]["headway"]["verdict"]))
        if step[2] or step[3]:
            break
    assert outcome(env, talk, ScriptedUser().act) == expected


# What each seat sees.


def test_the_user_sees_the_request_and_the_question_and_no_tool_result() -> None:
    env = duo()
    env.reset(seed=1)
    clauses = [c for c in env.desk.instance.task.clauses if c.place == "user"]
    view = json.loads(env.observe("user"))
    assert view == {
        "request": env.desk.instance.task.instruction,
        "known": {c.id: {"text": c.text, "ask": list(c.ask)} for c in clauses},
        "question": "",
    }
    assert len(clauses) > 1 and all(c.text not in env.observe("agent") for c in clauses)
    listing = env.desk.format("note_list", {})
    env.step("\n".join([listing, ask("Which «day»?"), listing]))
    assert env.agent_selection == "user"
    assert json.loads(env.observe("user")) == {**view, "question": "Which «day»?"}
    env.step("not today")
    assert env.agent_selection == "agent" and json.loads(env.observe("user")) == view
    lines = env.observe("agent").split("\n")
    assert lines[1] == "[2] not today" and lines[0][4:] == lines[2][4:]
    assert lines[0][4:] not in env.observe("user")


def test_questions_of_a_turn_are_asked_one_after_the_other() -> None:
    """The turn counts once, and nothing of it has happened before the last reply."""
    env = duo()
    env.reset(seed=1)
    stray = env.desk.format("file_write", {"path": "stray.txt", "text": "x"})
    env.step("\n".join([stray, ask("one"), ask("two")]))
    asked = []
    while env.agent_selection == "user":
        assert "stray.txt" not in env.desk.box.table("files") and not env.grade().violations
        assert env.infos["agent"]["turn"] == env.infos["user"]["turn"] == 0
        asked.append(json.loads(env.observe("user"))["question"])
        env.step(f"reply to {asked[-1]}")
    assert asked == ["one", "two"] and env.infos["agent"]["turn"] == 1
    assert env.observe("agent").split("\n")[1:3] == ["[2] reply to one", "[3] reply to two"]
    assert env.grade().violations == ("new files/stray.txt",)


def told(env: Duo, reply: str) -> set[str]:
    """The topics that count as told after one question and this reply."""
    env.reset(seed=1)
    env.step(ask("Well?"))
    env.step(reply)
    return {record for record in env.desk.box.table("seen") if record.startswith("user/")}


def values(clause: Clause) -> list[str]:
    """The values that a clause states."""
    return [clause.text[start:end] for _, start, end in clause.slots]


def test_a_fact_is_told_by_its_text_or_by_all_its_values() -> None:
    env = duo(template="move", difficulty=3)
    env.reset(seed=1)
    move, rule, *_ = (c for c in env.desk.instance.task.clauses if c.place == "user")
    old, new, why = values(move)
    assert not values(rule)
    year, month, day = new.split("-")
    month = ("May", "June", "July")[int(month) - 5]
    assert told(env, move.text) == {"user/move"}
    assert told(env, f"well,  {move.text}\n and {rule.text}!") == {"user/move", "user/rule"}
    assert told(env, f"From {old} to {int(day)} {month} {year}, {why.upper()}.") == {"user/move"}
    for reply in ("", "yes", f"{old}, {new}", f"{old} {new}1 {why}", f"{old} {new} x{why}x", old):
        assert told(env, reply) == set(), reply
    assert told(env, rule.text[:-1]) == set()


def test_values_that_other_clauses_hold_too_tell_nothing() -> None:
    env = duo(template="split", difficulty=5)
    env.reset(seed=1)
    clauses = {c.id: c for c in env.desk.instance.task.clauses}
    (name,), (note,) = values(clauses["correction"]), values(clauses["note"])
    assert name in note and name in clauses["request"].text
    assert told(env, f"It was {name}.") == set()
    assert told(env, f"Look for {note}.") == {"user/note"}
    assert told(env, clauses["correction"].text) == {"user/correction"}


def test_a_reply_that_was_cut_tells_nothing() -> None:
    """Evidence counts only if the text really reached the agent."""
    env = duo(template="move")
    env.reset(seed=1)
    text = next(c.text for c in env.desk.instance.task.clauses if c.place == "user")
    assert told(env, text + " " * 7000) == set()
    assert told(env, text + " " * 700) == {"user/move"}


# Ends, seats, rewards.


def test_both_seats_end_at_once_and_play_again() -> None:
    """Dead seats step with None in order; after a reset the order and first mover are the same."""
    env = duo()
    for episode in range(3):
        env.reset(seed=1 if episode == 0 else None)
        assert env.agents == env.possible_agents == ["agent", "user"]
        assert env.agent_selection == "agent" and env.num_agents == 2
        seats = list(moves(env, iter(env.solution()), ScriptedUser().act))
        (*_, agent, user) = seats
        assert [seat[0] for seat in (agent, user)] == ["agent", "user"]
        assert [seat[2:5] for seat in (agent, user)] == [(1.0, True, False)] * 2
        assert sum(seat[2] for seat in seats[:-2]) == 0.0 and env.agents == []
        assert env.possible_agents == ["agent", "user"]
        with pytest.raises(gym.error.ResetNeeded):
            env.step(None)


def test_a_dead_seat_only_takes_none() -> None:
    env = duo()
    env.reset(seed=1)
    env.step(headway.CUT)
    assert env.truncations == {"agent": True, "user": True}
    assert env.terminations == {"agent": False, "user": False}
    with pytest.raises(ValueError, match="None"):
        env.step("more")
    env.step(None)
    assert env.agents == ["user"] and env.agent_selection == "user"


def test_a_cut_from_the_user_ends_the_turn_that_waits() -> None:
    """As it stood before that turn; on a solved state it is a success."""
    env = duo()
    env.reset(seed=1)
    stray = env.desk.format("file_write", {"path": "stray.txt", "text": "x"})
    env.step("\n".join([stray, ask("one")]))
    env.step(headway.CUT)
    assert env.truncations["agent"] and not env.grade().violations
    assert env.infos["agent"]["turn"] == 1
    env.reset(seed=1)
    for seat, *_ in moves(env, iter([*env.solution()[:-1], ask("done?")]), ScriptedUser().act):
        if seat == "user" and "done?" in env.observe("user"):
            break
    env.step(headway.CUT)
    assert env.rewards == {"agent": 1.0, "user": 1.0} and env.terminations["user"]


def test_the_agents_last_turn_waits_for_the_user_too() -> None:
    env = duo()
    env.reset(seed=1)
    for _ in range(env.desk.instance.task.max_turns - 1):
        env.step("hm")
    env.step(ask("And now?"))
    assert env.agent_selection == "user" and not env.truncations["user"]
    env.step("Nothing.")
    assert env.truncations == {"agent": True, "user": True}
    assert "Nothing." in env.observe("agent")


@pytest.mark.parametrize("seat", ["agent", "user"])
@pytest.mark.parametrize("action", [None, 3, b"x", ["a"]])
def test_what_is_no_text_is_a_mistake_of_the_program(seat: str, action: Any) -> None:
    env = duo()
    env.reset(seed=1)
    if seat == "user":
        env.step(ask("one"))
    with pytest.raises(TypeError, match=r"str or headway\.CUT"):
        env.step(action)
    assert env.agent_selection == seat and env.agents == ["agent", "user"]


def test_infos_are_fresh_and_of_the_documented_form() -> None:
    env = duo()
    env.reset(seed=1)
    seen = []
    for *_, info in moves(env, iter(env.solution()), ScriptedUser().act):
        everything = list(env.infos.values())
        assert len({id(i) for i in everything}) == len(everything)
        seen += everything
        record = info["headway"]
        assert info.keys() == {"task_id", "turn", "calls", "headway"}
        assert record.keys() == {
            *("base", "channels", "channels_raw", "phi", "gate", "status", "verdict")
        }
        assert (record["status"] == "ok") == isinstance(record["verdict"], Verdict)
        info["headway"]["channels"]["mine"] = 1.0
    assert len({id(i["headway"]["channels"]) for i in seen}) == len({id(i) for i in seen})


def test_spaces_hold_what_is_seen_and_are_the_same_objects() -> None:
    env = duo()
    env.reset(seed=1)
    for seat in env.possible_agents:
        assert env.action_space(seat) is env.action_space(seat)
        assert env.observation_space(seat) is env.observation_space(seat)
        assert headway.CUT in env.action_space(seat)
        assert env.observe(seat) in env.observation_space(seat)
    with pytest.raises(ValueError, match="did you mean 'agent'"):
        env.observe("agnet")


def test_the_name_says_that_there_are_two() -> None:
    assert str(duo()) == duo().metadata["name"] == "AppsDuo-v0"
    assert duo().metadata is not duo().metadata and Duo.metadata["name"] == "Duo"


@pytest.mark.parametrize(
    ("kwargs", "word"),
    [({"rendering": 2}, "rendering must be one of [4], got 2"), ({"difficulty": 7}, "difficulty")],
)
def test_bad_arguments_are_explained(kwargs: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match="must be one of") as error:
        duo(**kwargs)
    assert word in str(error.value)


def test_bad_options_are_explained() -> None:
    env = duo()
    for options in ({"rendering": 2}, {"task_id": "Apps-v0/bills/d1/R2/train/1"}, {"seeds": 1}):
        with pytest.raises(ValueError, match="must be one of"):
            env.reset(seed=1, options=options)
    env.reset(options={"task_id": "Apps-v0/move/d2/R4/test/1"})
    assert env.infos["user"]["task_id"] == "Apps-v0/move/d2/R4/test/1"


# Failures and copies.


@tool(writes=True)
def crash(box: Box) -> str:
    """Break the machine."""
    raise SandboxDied("the machine broke", by="infra")


def test_a_dead_machine_raises_and_leaves_no_result() -> None:
    env = Duo(replace(APPS, tools=(*APPS.tools, crash)), template="bills")
    env.reset(seed=1)
    boom = '{"tool": "crash"}'
    with pytest.raises(SandboxDied):
        env.step(boom)
    with pytest.raises(gym.error.ResetNeeded):
        env.step("again")
    env.reset()
    env.step(ask("one"))
    assert env.agent_selection == "user"


def test_siblings_of_a_waiting_turn_go_their_own_ways() -> None:
    env = duo(template="move")
    env.reset(seed=1)
    env.step(ask("one"))
    twin = headway.fork(env)
    text = next(c.text for c in env.desk.instance.task.clauses if c.place == "user")
    twin.step(text)
    env.step("no")
    assert "user/move" in twin.desk.box.table("seen")
    assert "user/move" not in env.desk.box.table("seen")
    assert env.observe("agent").startswith("no\n") and twin.observe("agent").startswith(text)


def hostile(draw: random.Random) -> Any:
    """What a broken model might write in either seat."""
    scraps = [
        *("{", "}", '"', "\\", "\x00", "\ud83d", "🍸", "<tool_call>", "]" * 3000, "x" * 20_000),
        *(
            ask("\ud83d"),
            ask("x" * 9000),
            ask("\x00" * 9000),
            ask(""),
            ask("a\nb"),
            ask("day") * 20,
        ),
        *('{"tool": "ask_user"}', '{"tool": "submit"}', '{"tool": "ask_user", "args": []}'),
    ]
    return "".join(draw.choice(scraps) for _ in range(draw.choice([0, 1, 1, 2, 5])))


def test_hostile_texts_from_both_seats_are_answered() -> None:
    env, draw = duo(template=None), random.Random(3)
    env.reset(seed=1)
    turns = {"agent": 0, "user": 0}
    for _ in range(1000):
        if not env.agents:
            env.reset(seed=draw.randrange(4))
        seat = env.agent_selection
        over = env.terminations[seat] or env.truncations[seat]
        env.step(None if over else hostile(draw))
        turns[seat] += not over
        for name in env.agents:
            assert env.observe(name) in env.observation_space(name)
            env.observe(name).encode()
    assert min(turns.values()) > 100
    env.reset(seed=1)
    env.step(ask("one"))
    env.step("x" * 10 * MAX_ACTION)
    assert len(env.observe("agent")) < 7000


# Channels on the agent's seat.


def test_channels_pay_the_agent_as_in_a_single_environment() -> None:
    """Turn by turn the same record, though the user speaks in between; the user is paid base."""
    single = GatedReward(ProgressReward(gym.make("headway/Apps-v0", rendering=4), gamma=0.9))
    env = SeatChannels(duo(template=None), LAYERS, seat="agent")
    for seed in (1, 2):
        _, info = single.reset(seed=seed)
        env.reset(seed=seed)
        work = single.unwrapped.solution()
        expected = [(0.0, info["headway"])]
        for action in ["hm", "\n".join(work[:3]), *work[3:]]:
            _, reward, _, _, info = single.step(action)
            expected.append((reward, info["headway"]))
        talk = iter(["hm", "\n".join(work[:3]), *work[3:]])
        seen = list(moves(env, talk, ScriptedUser().act))
        agent = [(reward, info["headway"]) for s, _, reward, _, _, info in seen if s == "agent"]
        assert len(agent) == len(expected)
        for (paid, record), (reward, alone) in zip(agent, expected, strict=True):
            assert paid == pytest.approx(reward, abs=1e-12)
            assert record["base"] + sum(record["channels"].values()) == pytest.approx(paid)
            for part in ("base", "channels", "channels_raw", "phi", "gate", "status", "verdict"):
                assert record[part] == alone[part]
        user = [turn for turn in seen if turn[0] == "user"]
        assert sum(turn[2] for turn in user) == user[-1][2] == 1.0
        assert all(turn[5]["headway"]["channels"] == {} for turn in user)
    assert agent[-1][0] > 1.0


WITHOUT_PETTINGZOO = """
import sys
sys.modules["pettingzoo"] = None
import gymnasium as gym, headway, headway.wrappers
gym.make("headway/Apps-v0", rendering=4).reset(seed=1)
try:
    import headway.envs.duo
except ImportError as error:
    print(error)
"""


def test_only_this_module_needs_pettingzoo() -> None:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_PETTINGZOO],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert "headway[multi]" in result.stdout


def test_the_tool_of_the_seat_reads_like_the_scripted_one() -> None:
    """So that the task, its schemas and its digest are the same."""
    env, single = duo(), ToolEnv(APPS, rendering=4, template="bills")
    env.reset(seed=1)
    single.reset(seed=1)
    assert env.desk.tools == single.tools and ASK_USER.schema() in single.tools
    assert env.desk.instance.task.digest == single.instance.task.digest
    assert isinstance(env.desk.domain, Domain)


def test_mistakes_with_seats_are_named() -> None:
    game = Duo("headway.envs.domains.apps:APPS")
    with pytest.raises(gym.error.ResetNeeded):
        game.observe("agent")
    for ask in (game.observation_space, game.action_space):
        with pytest.raises(ValueError, match="agent must be one of"):
            ask("agnt")
