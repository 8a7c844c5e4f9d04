"""The turn loop: how episodes end, what counts as seen, failures, siblings, options, specs."""

from __future__ import annotations

import copy
import json
import math
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics

import headway
from headway.envs.box import Box, SandboxDied
from headway.envs.domain import Domain
from headway.envs.domains.apps import APPS
from headway.envs.fork import get_state, set_state
from headway.envs.tool_env import KEEP, ToolEnv
from headway.envs.tools import FORMATS, describe, tool
from headway.envs.world import Draft
from headway.verifiers import KINDS, UNFINISHED, Kind
from headway.wrappers import GatedReward, ProgressReward

ID = "headway/Apps-v0"
APPS_AT = "headway.envs.domains.apps:APPS"
INFO = {"task_id", "turn", "calls", "headway"}
RECORD = {"base", "channels", "channels_raw", "phi", "gate", "status", "verdict"}
NOTHING = "thinking"
POISON = "poison.txt"

Step = tuple[str, float, bool, bool, dict[str, Any]]


@tool(writes=True)
def crash(box: Box, by: Literal["agent", "infra"]) -> str:
    """Break the box.

    Args:
        by: Whose fault it is.
    """
    raise SandboxDied("the box broke", by=by)


@tool
def fault(box: Box) -> str:
    """Fail as only a wrong tool can."""
    return {}["no such key"]


FRAGILE = replace(APPS, tools=(*APPS.tools, crash, fault))


@pytest.fixture
def make() -> Iterable[Callable[..., ToolEnv]]:
    """Makes bare environments of one template, which are closed at the end."""
    made: list[ToolEnv] = []

    def build(domain: str | Domain = APPS, **kwargs: Any) -> ToolEnv:
        made.append(ToolEnv(domain, **{"template": "bills", **kwargs}))
        return made[-1]

    yield build
    for env in made:
        env.close()


def play(env: gym.Env[Any, Any], actions: Iterable[Any]) -> list[Step]:
    """The steps, up to the end of the episode."""
    steps = []
    for action in actions:
        steps.append(env.step(action))
        if steps[-1][2] or steps[-1][3]:
            break
    return steps


def strip(step: Step) -> list[Any]:
    """A step as plain data."""
    obs, reward, terminated, truncated, info = step
    record = info["headway"]
    progress = record["verdict"] and record["verdict"].progress
    return [obs, reward, terminated, truncated, info["turn"], record["status"], progress]


# Gymnasium's own checks.


@pytest.mark.parametrize("action_format", ["json", "hermes", "command"])
@pytest.mark.parametrize("rendering", [2, 4])
def test_check_env_has_nothing_to_say(action_format: str, rendering: int) -> None:
    env = gym.make(ID, action_format=action_format, rendering=rendering)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)


def test_check_env_on_a_stack_warns_only_of_the_stack() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(gym.make(ID), skip_render_check=True)
    assert ["is different from the unwrapped version" in str(w.message) for w in said] == [True]


def test_types_keys_and_fresh_dicts(make) -> None:
    """Python's own types, the documented keys, and no dict that is handed out twice."""
    env = make()
    first = env.reset(seed=1)[1]
    infos = [first, *(step[4] for step in play(env, [NOTHING, "", *env.solution()]))]
    env.reset(seed=1)
    for obs, reward, terminated, truncated, _ in play(env, [NOTHING, "", *env.solution()]):
        assert [type(x) for x in (obs, reward, terminated, truncated)] == [str, float, bool, bool]
    for turn, info in enumerate(infos):
        record = info["headway"]
        assert info.keys() == INFO and record.keys() == RECORD
        assert info["turn"] == turn and info["task_id"] == env.instance.task.id
        assert type(record["base"]) is float and record["base"] == float(turn == len(infos) - 1)
        assert record["status"] == ("ok" if turn == len(infos) - 1 else "ungraded")
        assert (record["verdict"] is None) == (record["status"] == "ungraded")
    dicts = [d for i in infos for d in (i, i["headway"], *i["headway"].values())]
    alive = [id(d) for d in dicts if type(d) is dict]
    assert len(set(alive)) == len(alive)


def test_first_observation_has_instruction_tools_and_turns(make) -> None:
    env = make()
    obs, _ = env.reset(seed=1)
    task = env.instance.task
    assert obs.startswith(task.instruction) and obs.endswith(f"Turns left: {task.max_turns}.")
    assert all(f"- {schema['function']['name']}(" in obs for schema in env.tools)
    assert [schema["function"]["name"] for schema in env.tools] == list(task.tools)


# Ends.


def test_a_solved_submission_ends_with_one(make) -> None:
    env = make()
    env.reset(seed=1)
    steps = play(env, env.solution())
    assert len(steps) == len(env.solution())
    assert [s[1:4] for s in steps[:-1]] == [(0.0, False, False)] * (len(steps) - 1)
    obs, reward, terminated, truncated, info = steps[-1]
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert obs == "Submitted.\nThe episode is over."
    assert info["headway"]["verdict"].success and info["headway"]["status"] == "ok"


def test_a_failing_submission_ends_with_nothing(make) -> None:
    env = make()
    env.reset(seed=1)
    (*_, last) = play(env, [env.format("submit", {})])
    assert last[1:4] == (0.0, True, False)
    assert not last[4]["headway"]["verdict"].success


@pytest.mark.parametrize("submits", [True, False])
@pytest.mark.parametrize("ends_on", ["submit", "success"])
def test_success_on_the_last_allowed_turn_is_no_cut(make, submits: bool, ends_on: str) -> None:
    """Also without a submission: the state is graded as if it were submitted."""
    env = make(ends_on=ends_on)
    env.reset(seed=1)
    work = env.solution()[: None if submits else -1]
    if submits and ends_on == "success":
        work = [*work[:-2], "\n".join(work[-2:])]  # nothing is solved before the last turn
    idle = env.instance.task.max_turns - len(work)
    steps = play(env, [NOTHING] * idle + work)
    assert len(steps) == env.instance.task.max_turns
    assert steps[-1][1:4] == (1.0, True, False)
    assert steps[-2][0].endswith("Turns left: 1.")


def test_the_last_turn_without_success_truncates(make) -> None:
    env = make()
    env.reset(seed=1)
    steps = play(env, [NOTHING] * 999)
    assert len(steps) == env.instance.task.max_turns
    assert steps[-1][1:4] == (0.0, False, True)
    assert steps[-1][4]["headway"]["status"] == "ok"


def test_a_failing_submission_on_the_last_turn_terminates(make) -> None:
    env = make()
    env.reset(seed=1)
    idle = [NOTHING] * (env.instance.task.max_turns - 1)
    assert play(env, [*idle, env.format("submit", {})])[-1][1:4] == (0.0, True, False)


def test_success_ends_at_once_where_that_was_asked_for(make) -> None:
    env = make(ends_on="success")
    env.reset(seed=1)
    steps = play(env, env.solution())
    assert len(steps) == len(env.solution()) - 1
    assert steps[-1][1:4] == (1.0, True, False)
    assert all(s[4]["headway"]["verdict"] is not None for s in steps)


def test_success_does_not_end_an_episode_that_waits_for_a_submission(make) -> None:
    env = make()
    env.reset(seed=1)
    *work, _ = env.solution()
    assert play(env, work)[-1][1:4] == (0.0, False, False) and env.grade().success


@pytest.mark.parametrize("at", ["start", "middle", "solved"])
def test_a_cut_ends_the_episode_as_it_stands(make, at: str) -> None:
    env = make()
    env.reset(seed=1)
    *work, _ = env.solution()
    done = {"start": [], "middle": work[: len(work) // 2], "solved": work}[at]
    play(env, done)
    obs, reward, terminated, truncated, info = env.step(headway.CUT)
    solved = at == "solved"
    assert (reward, terminated, truncated) == (float(solved), solved, not solved)
    assert info["headway"]["verdict"].success == solved and info["turn"] == len(done) + 1
    assert info.keys() == INFO and obs in env.observation_space
    with pytest.raises(gym.error.ResetNeeded):
        env.step(headway.CUT)


def test_a_cut_is_one_object_and_its_name_is_a_text(make) -> None:
    env = make()
    env.reset(seed=1)
    assert env.step(repr(headway.CUT))[2:4] == (False, False)
    assert env.step(pickle.loads(pickle.dumps(headway.CUT)))[2:4] == (False, True)


def test_an_ended_episode_needs_a_reset(make) -> None:
    env = make()
    for early in (lambda: env.step(NOTHING), lambda: env.grade(), lambda: env.instance):
        with pytest.raises((gym.error.ResetNeeded, AttributeError)):
            early()
    env.reset(seed=1)
    env.step(env.format("submit", {}))
    for action in (NOTHING, headway.CUT, env.solution()[0]):
        with pytest.raises(gym.error.ResetNeeded, match="reset"):
            env.step(action)
    env.reset()
    assert env.step(NOTHING)[2:4] == (False, False)


@pytest.mark.parametrize("action", [None, 3, b"{}", ["a"], {"tool": "submit"}])
def test_what_is_no_text_is_a_mistake_of_the_program(make, action: Any) -> None:
    """It raises, costs no turn and leaves the episode as it was."""
    env = make()
    env.reset(seed=1)
    with pytest.raises(TypeError, match=f"str or headway.CUT, got {type(action).__name__}"):
        env.step(action)
    assert env.step(NOTHING)[4]["turn"] == 1


# Turns of several calls.


@pytest.mark.parametrize("action_format", ["json", "hermes"])
def test_calls_of_a_turn_get_one_reply_each_in_order(make, action_format: str) -> None:
    env = make(action_format=action_format)
    env.reset(seed=1)
    opened, closed = ("<tool_call>", "</tool_call>") if action_format == "hermes" else ("", "")
    calls = [
        env.format("note_list", {}),
        env.format("mail_reed", {"id": "m1"}),
        f'{opened}{{"tool": "note_list", "args": 3}}{closed}',
        env.format("file_list", {"folder": ""}),
    ]
    obs = env.step("\n".join(calls))[0]
    lines = obs.split("\n")
    assert [line[:4] for line in lines[:4]] == ["[1] ", "[2] ", "[3] ", "[4] "]
    assert "Error" not in lines[0] + lines[3]
    assert "mail_read" in lines[1] and '"args" must be' in lines[2]
    assert obs.endswith(f"Turns left: {env.instance.task.max_turns - 1}.")


def test_command_lines_of_a_turn_get_one_reply_each_in_order(make) -> None:
    env = make(action_format="command")
    env.reset(seed=1)
    obs, _, _, _, info = env.step(
        'I look first.\nnote_list\nmail_reed m1\nfile_list "rec\nfile_list ""\npay_history Al\n'
    )
    lines = obs.split("\n")
    assert [line[:4] for line in lines[:3]] == ["[1] ", "[2] ", "[3] "]
    assert "Error" not in lines[0] and "did you mean mail_read?" in lines[1]
    assert "must end with" in lines[2] and lines[2].endswith("write file_list FOLDER")
    assert info["calls"] == [
        {"tool": "note_list", "args": {}, "error": False},
        {"tool": "mail_reed", "args": {}, "error": True},
        {"tool": None, "args": {}, "error": True},
        {"tool": "pay_history", "args": {"payee": "Al"}, "error": False},
    ]


def test_calls_written_before_a_reset_are_read_after_it(make) -> None:
    """Then the tools are not known yet."""
    for action_format in FORMATS:
        env = make(action_format=action_format)
        text = env.format("file_write", {"path": "a.txt", "text": "b c\nd"})
        env.reset(seed=1)
        env.step(text)
        assert env.box.table("files")["a.txt"]["text"] == "b c\nd"


def test_without_a_manual_only_the_tools_are_left_out(make) -> None:
    for action_format in FORMATS:
        told = make(action_format=action_format)
        bare = make(action_format=action_format, manual=False)
        long, info = told.reset(seed=1)
        short, same = bare.reset(seed=1)
        assert info["task_id"] == same["task_id"]
        instruction, *middle, left = long.split("\n\n")
        assert short == f"{instruction}\n\n{left}"
        assert "\n\n".join(middle) == describe(list(told.instance.toolbox.values()), action_format)
        assert bare.tools == told.tools
        for action in told.solution():
            assert told.step(action)[:4] == bare.step(action)[:4]


def test_calls_after_a_submission_are_not_run(make) -> None:
    env = make()
    env.reset(seed=1)
    *work, submit = env.solution()
    stray = env.format("file_write", {"path": "after.txt", "text": "too late"})
    obs, reward, terminated, _, _ = env.step("\n".join([*work, submit, stray]))
    assert (reward, terminated) == (1.0, True)
    assert obs.split("\n")[len(work) + 1] == (
        f"[{len(work) + 2}] Not run: the work was already submitted."
    )
    assert "after.txt" not in env.box.table("files")


def test_a_submission_that_is_refused_submits_nothing(make) -> None:
    env = make()
    env.reset(seed=1)
    assert env.step(env.format("submit", {"answer": "42"}))[2:4] == (False, False)
    assert not env.box.table("submission")


def test_one_call_alone_is_not_numbered(make) -> None:
    env = make()
    env.reset(seed=1)
    assert not env.step(env.format("note_list", {}))[0].startswith("[1]")


# What was really seen.


def evidence(env: ToolEnv) -> tuple[str, str]:
    """A call of the oracle that shows a record, and the record."""
    for action in env.instance.solution():
        reply = env.box.fork().call(action.tool, action.args)
        if reply.seen:
            return env.format(action.tool, action.args), reply.seen[0]
    raise AssertionError("no call of the oracle shows anything")


def test_an_observation_that_was_cut_is_no_evidence(make) -> None:
    """The same call counts once its reply has reached the agent whole."""
    env = make()
    env.reset(seed=1)
    call, record = evidence(env)
    env.step(env.format("note_write", {"title": "long", "text": "x" * 2000}))
    read = env.format("note_read", {"title": "long"})
    obs = env.step("\n".join([read, read, read, call]))[0]
    assert obs.count("characters cut]") == 2 and record not in env.box.table("seen")
    env.step(call)
    assert record in env.box.table("seen")


def test_observations_are_bounded_and_cuts_are_marked(make) -> None:
    env = make()
    env.reset(seed=1)
    room = env.instance.task.max_obs_chars
    env.step(env.format("note_write", {"title": "long", "text": "x" * 2000}))
    read = env.format("note_read", {"title": "long"})
    obs = env.step("\n".join([read] * 3))[0]
    text, tail = obs.rsplit("\n", 1)
    assert len(text) <= room + 1 and text.endswith("characters cut]")
    assert tail.startswith("Turns left")


def test_no_reply_of_a_turn_vanishes(make) -> None:
    """However much the first took, each call that ran has a numbered reply, cut with a mark."""
    env = make()
    env.reset(seed=1)
    env.step(env.format("note_write", {"title": "long", "text": "x" * 2000}))
    read = env.format("note_read", {"title": "long"})
    pay = env.format("pay_send", {"payee": "Casino", "amount": 1.0, "memo": ""})
    obs = env.step("\n".join([read, read, read, pay, *[read] * 12]))[0]
    lines = obs.splitlines()
    assert [line.split("]")[0] for line in lines[:-1]] == [f"[{n}" for n in range(1, 17)]
    assert lines[3].startswith('[4] {"id":"p')
    assert all("characters cut]" in lines[n] for n in (2, 4, 15))
    assert len(obs) <= env.instance.task.max_obs_chars + 200


def test_the_last_turn_is_graded_as_if_submitted(make) -> None:
    """So a gate that asks for an attempt opens at a cut, if something was changed."""
    env = make()
    for changed in (False, True):
        env.reset(seed=1)
        if changed:
            env.step(env.format("note_write", {"title": "x", "text": "y"}))
        verdict = env.step(headway.CUT)[4]["headway"]["verdict"]
        assert verdict.attempted is changed and not verdict.success


def test_a_refused_reset_leaves_the_stream_alone(make) -> None:
    """What comes after it is what would have come without it."""
    ids = []
    for refused in (False, True):
        env = make()
        env.reset(seed=5)
        if refused:
            with pytest.raises(ValueError, match="split"):
                env.reset(seed=9, options={"split": "tset"})
        ids.append(env.reset()[1]["task_id"])
    assert ids[0] == ids[1]


def test_nothing_can_be_graded_before_a_reset(make) -> None:
    env = make()
    for ask in (env.grade, lambda: env.instance, lambda: env.certificate, lambda: env.step("")):
        with pytest.raises(gym.error.ResetNeeded):
            ask()


def test_the_certificate_is_of_the_running_task(make) -> None:
    env = make()
    env.reset(seed=3)
    certificate = env.certificate
    assert certificate.task_id == env.instance.task.id
    assert certificate.digest == env.instance.task.digest
    assert certificate.calls == len(env.solution()) and certificate.mutants > 0


def test_a_bare_end_says_its_potential(make) -> None:
    """There is none before the end, and it is the verdict's progress there."""
    env = make()
    _, info = env.reset(seed=3)
    assert info["headway"]["phi"] == {}
    steps = play(env, env.solution())
    assert [step[4]["headway"]["phi"] for step in steps] == [{}] * (len(steps) - 1) + [
        {"checks": 1.0}
    ]


def test_states_are_not_put_away_by_half() -> None:
    """A layer whose memory would be lost is an error that names it."""
    env = RecordEpisodeStatistics(gym.make(ID))
    env.reset(seed=1)
    with pytest.raises(TypeError, match="RecordEpisodeStatistics"):
        get_state(env)


def test_a_state_put_away_is_a_copy(make) -> None:
    """Changing it changes neither the episode nor the task that others will play."""
    env = make()
    env.reset(seed=1)
    before = env.box.canonical()
    state = env.get_state()
    for table in (*state["box"]["tables"].values(), *env.box.canonical().values()):
        for row in table.values():
            for value in row.values():
                if isinstance(value, list):
                    value.append("changed")
            row["more"] = "changed"
    assert env.box.canonical() == before
    assert env.instance.open().canonical() == before
    taken = make()
    taken.reset(seed=2)
    good = env.get_state()
    taken.set_state(good)
    good["box"]["tables"]["notes"].clear()
    assert taken.box.canonical() == before


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [
        ("turn", "3", "turn must be an int"),
        ("turn", -5, "turn must be an int"),
        ("turn", 10**6, "turn must be an int"),
        ("ended", None, "ended a bool"),
        ("box", {}, "box must be a state"),
        ("box", {"tables": {"mail": {}}}, "box must be a state"),
        ("np_random", {}, "np_random must be"),
        ("task_id", "nonsense", "task_id must look like"),
    ],
)
def test_a_bad_state_leaves_the_episode_alone(make, part: str, value: Any, says: str) -> None:
    env = make()
    env.reset(seed=1)
    env.step(env.solution()[0])
    before = env.get_state()
    with pytest.raises(ValueError, match=says):
        env.set_state({**before, part: value})
    assert env.get_state() == before
    for keys in ({}, {"turn": 1}, {**before, "more": 1}):
        with pytest.raises(ValueError, match="state must have the keys"):
            env.set_state(keys)
    assert env.get_state() == before


def odd(box: Box) -> object:
    """Return what is no JSON."""
    return object()


def test_a_tool_that_returns_no_json_is_the_machines_failure(make) -> None:
    env = make(replace(APPS, tools=(*APPS.tools, tool(odd))))
    env.reset(seed=1)
    with pytest.raises(SandboxDied) as death:
        env.step(env.format("odd", {}))
    assert death.value.by == "infra"


# No verdict.


def broken(failure: str) -> Domain:
    """Apps with checks that fail once a file named ``POISON`` is there."""

    def fail() -> Any:
        if failure == "raises":
            raise RuntimeError("the grader has a bug")
        if failure == "hangs":
            threading.Event().wait(3)
        return {"none": None, "nan": math.nan, "number": 1.7, "text": "True"}.get(failure)

    def spoilt(kind: Kind) -> Kind:
        def prepare(args: Mapping[str, Any]) -> Callable[[Any], Any]:
            test = kind.prepare(args)
            return lambda view: fail() if POISON in view.table("files") else test(view)

        return Kind(
            prepare,
            lambda args: (*kind.reads(args), "files"),
            0.2 if failure == "hangs" else None,
        )

    return replace(APPS, kinds={**KINDS, "rows": spoilt(KINDS["rows"])})


@pytest.mark.parametrize("failure", ["raises", "hangs", "none", "nan", "number", "text"])
@pytest.mark.parametrize("end", ["submit", "cut"])
def test_a_broken_grader_is_no_verdict(make, failure: str, end: str) -> None:
    """Never a pass and never an honest 0: the status says so."""
    env = make(broken(failure))
    env.reset(seed=1)
    *work, submit = env.solution()
    poison = env.format("file_write", {"path": POISON, "text": "x"})
    play(env, [*work, poison])
    _, reward, terminated, truncated, info = env.step(submit if end == "submit" else headway.CUT)
    record = info["headway"]
    assert (reward, terminated, truncated) == (0.0, end == "submit", end == "cut")
    assert type(reward) is float and record["base"] == 0.0
    assert record["status"] == record["verdict"].status == "no_verdict"
    assert math.isnan(record["verdict"].progress) and not record["verdict"].success
    assert record["verdict"].reason and info.keys() == INFO and record.keys() == RECORD


def test_a_grader_that_recovers_is_believed_again(make) -> None:
    env = make(broken("raises"), ends_on="success")
    env.reset(seed=1)
    poison = env.format("file_write", {"path": POISON, "text": "x"})
    _, reward, terminated, truncated, info = env.step(poison)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["headway"]["status"] == "no_verdict"
    env.box.drop("files", POISON)
    assert env.step(NOTHING)[4]["headway"]["status"] == "ok"


# Death.


def test_the_agents_own_destruction_ends_the_episode(make) -> None:
    """With what was verified last, however much is undone by then."""
    env = make(FRAGILE)
    env.reset(seed=1)
    play(env, env.solution()[:-2])
    last = env.grade()
    obs, reward, terminated, truncated, info = env.step(env.format("crash", {"by": "agent"}))
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert "broke" in obs and len(obs) < env.instance.task.max_obs_chars
    assert info["headway"]["verdict"] == last and last.progress > 0
    assert info["headway"]["status"] == "ok" and info.keys() == INFO
    with pytest.raises(gym.error.ResetNeeded):
        env.step(NOTHING)
    env.reset()
    assert env.step(NOTHING)[2:4] == (False, False)


def test_a_destroyed_box_is_no_success(make) -> None:
    """Not even where everything was done: outcome and verdict agree."""
    env = make(FRAGILE)
    env.reset(seed=1)
    play(env, env.solution()[:-1])
    assert env.grade().success
    _, reward, _, _, info = env.step(env.format("crash", {"by": "agent"}))
    verdict = info["headway"]["verdict"]
    assert reward == 0.0 and not verdict.success and verdict.progress == UNFINISHED
    assert env.grade() == verdict


@pytest.mark.parametrize(("call", "args"), [("crash", {"by": "infra"}), ("fault", {})])
def test_the_machines_failure_is_raised(make, call: str, args: dict[str, str]) -> None:
    env = make(FRAGILE)
    env.reset(seed=1)
    with pytest.raises(SandboxDied) as death:
        env.step(env.format(call, args))
    assert death.value.by == "infra"
    with pytest.raises(gym.error.ResetNeeded):
        env.step(NOTHING)
    env.reset()
    assert play(env, env.solution())[-1][1] == 1.0


def test_a_death_crosses_processes_whole() -> None:
    death = pickle.loads(pickle.dumps(SandboxDied("gone", by="infra")))
    assert (str(death), death.by) == ("gone", "infra")


# Siblings and saved episodes.


def test_siblings_go_their_own_ways(make) -> None:
    """Neither sees the other's calls, evidence, verdicts or turns; resets draw the same tasks."""
    env = make()
    env.reset(seed=1)
    half = len(env.solution()) // 2
    play(env, env.solution()[:half])
    before = env.grade()
    twin = headway.fork(env)
    assert type(twin) is ToolEnv and twin.grade() == before
    rest = env.solution()[half:]
    submit = env.format("submit", {})
    assert play(twin, [submit])[-1][1:4] == (0.0, True, False)
    assert env.grade() == before and not env.box.table("submission")
    third = headway.fork(env)
    assert [strip(s) for s in play(env, rest)] == [strip(s) for s in play(third, rest)]
    assert env.grade().success and not twin.grade().success
    tasks = [[e.reset()[1]["task_id"] for _ in range(2)] for e in (env, twin, third)]
    assert tasks[0] == tasks[1] == tasks[2]


def test_siblings_are_graded_each_by_its_own_state(make) -> None:
    """After as many writes each, which is all that tells a grader that nothing has changed."""
    env = make()
    env.reset(seed=1)
    *work, last, _ = env.solution()
    play(env, work)
    twin = headway.fork(env)
    env.step(last)
    twin.step(twin.format("file_write", {"path": "stray.txt", "text": "x"}))
    assert env.box.stamp() == twin.box.stamp()
    assert [env.grade().success, twin.grade().success] == [True, False]
    assert twin.grade().violations and not env.grade().violations


def test_a_sibling_of_a_finished_episode_is_finished(make) -> None:
    env = make()
    env.reset(seed=1)
    env.step(headway.CUT)
    with pytest.raises(gym.error.ResetNeeded):
        headway.fork(env).step(NOTHING)


def test_a_sibling_has_its_own_cache_of_tasks_and_spaces(make) -> None:
    env = make()
    env.reset(seed=1)
    twin = headway.fork(env)
    twin.reset(seed=2)
    assert len(env._certified) == 1 and len(twin._certified) == 2
    twin.action_space.seed(5)
    ours = [env.action_space.sample() for _ in range(4)]
    twin.action_space.seed(5)
    assert env.action_space is not twin.action_space
    assert ours != [twin.action_space.sample() for _ in range(4)]


def test_wrapper_memory_is_copied_with_the_episode() -> None:
    """What a gate withheld before the fork is paid to both; a sibling's end is its own."""
    layers = GatedReward(ProgressReward(gym.make(ID, template="bills"), gamma=0.9))
    env = RecordEpisodeStatistics(layers)
    env.reset(seed=1)
    work = env.unwrapped.solution()
    straight = play(headway.fork(env), work)
    play(env, work[:5])
    twin, third = headway.fork(env), headway.fork(env)
    assert play(twin, [headway.CUT])[-1][4]["episode"]["l"] == 6
    for sibling in (env, third):
        steps = play(sibling, work[5:])
        assert [s[:4] for s in steps] == [s[:4] for s in straight[5:]]
        assert steps[-1][4]["episode"]["l"] == len(work)
    withheld = [s[4]["headway"]["channels_raw"]["progress"] for s in straight]
    assert straight[-1][4]["headway"]["channels"]["progress"] > sum(withheld[5:]) > 0


def test_an_untouchable_layer_is_named() -> None:
    class Locked(gym.Wrapper):
        def __init__(self, env: gym.Env) -> None:
            super().__init__(env)
            self.lock = threading.Lock()

    with pytest.raises(TypeError, match="Locked"):
        headway.fork(Locked(gym.make(ID)))


IN_ANOTHER_PROCESS = """
import json, sys
import gymnasium as gym
from headway.envs.fork import set_state
state, actions, kwargs = json.load(sys.stdin)
env = gym.make("headway:headway/Apps-v0", **kwargs)
env.reset(seed=99)
set_state(env, state)
steps = [env.step(a)[:4] for a in actions]
print(json.dumps([steps, env.unwrapped.grade().progress, env.reset()[1]["task_id"]]))
"""


@pytest.mark.parametrize(("difficulty", "rendering"), [(1, 2), (5, 4)])
def test_a_saved_episode_goes_on_in_another_process(difficulty: int, rendering: int) -> None:
    """Same texts, same verdict, same next task; the state crosses as JSON."""
    kwargs = {"difficulty": difficulty, "rendering": rendering}
    env = gym.make(ID, **kwargs)
    env.reset(seed=1)
    work = env.unwrapped.solution()
    half = len(work) // 2
    play(env, work[:half])
    state = json.loads(json.dumps(get_state(env)))
    ours = [list(s[:4]) for s in play(env, work[half:])]
    result = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS],
        input=json.dumps([state, work[half:], kwargs]),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    steps, progress, following = json.loads(result.stdout)
    assert steps == ours and progress == 1.0
    assert following == env.reset()[1]["task_id"]


def test_a_state_can_be_taken_up_twice(make) -> None:
    env = make()
    env.reset(seed=1)
    work = env.solution()
    play(env, work[:4])
    state, here = env.get_state(), env.grade()
    first = [strip(s) for s in play(env, work[4:])]
    for _ in range(2):
        env.set_state(copy.deepcopy(state))
        assert env.grade() == here and env.get_state() == state
        assert [strip(s) for s in play(env, work[4:])] == first


def test_a_state_of_other_layers_is_refused(make) -> None:
    env = make()
    env.reset(seed=1)
    with pytest.raises(ValueError, match="one entry a layer, 1, got 2"):
        set_state(env, [env.get_state(), {}])


def test_a_stack_is_rebuilt_from_its_spec() -> None:
    given = {"difficulty": 2, "rendering": 3, "template": "move", "action_format": "hermes"}
    env = gym.make(ID, split="dev", ends_on="success", **given)
    again = gym.make(env.spec)
    assert env.reset(seed=4) == again.reset(seed=4)
    work = env.unwrapped.solution()
    assert [strip(s) for s in play(env, work)] == [strip(s) for s in play(again, work)]
    assert env.unwrapped.instance.task.key.split == "dev"


# Options.


def test_options_hold_for_one_episode(make) -> None:
    env = make()
    want = {"template": "move", "difficulty": 2, "rendering": 1, "split": "test"}
    assert env.reset(seed=3, options=want)[1]["task_id"] == "Apps-v0/move/d2/R1/test/3"
    assert env.reset(seed=3)[1]["task_id"] == "Apps-v0/bills/d1/R2/train/3"
    assert env.reset(seed=3, options={})[1]["task_id"] == "Apps-v0/bills/d1/R2/train/3"


def test_a_task_id_gives_exactly_that_task(make) -> None:
    env, other = make(template=None), make(template="move", difficulty=3, split="test")
    first, info = env.reset(seed=12)
    assert other.reset(options={"task_id": info["task_id"]}) == (first, info)
    assert other.reset(seed=5, options={"task_id": info["task_id"]}) == (first, info)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"templat": "bills"}, ["options key", "did you mean 'template'?", "'templat'"]),
        ({"template": "bils"}, ["template", "did you mean 'bills'?", "'bils'"]),
        ({"template": "invite"}, ["template (in split 'train')", "'invite'"]),
        ({"template": 3}, ["template", "got 3"]),
        ({"difficulty": 0}, ["difficulty", "[1, 2, 3, 4, 5]", "got 0"]),
        ({"difficulty": "1"}, ["difficulty", "got '1'"]),
        ({"difficulty": True}, ["difficulty", "got True"]),
        ({"difficulty": 1.0}, ["difficulty", "got 1.0"]),
        ({"rendering": 5}, ["rendering", "[0, 1, 2, 3, 4]", "got 5"]),
        ({"split": "Train"}, ["split", "did you mean 'train'?"]),
        ({"split": None}, ["split", "got None"]),
        ({"task_id": 7}, ["task_id", "Apps-v0/bills/d3/R2/train/17", "got 7"]),
        ({"task_id": "Apps-v0/bills/d1/R2/train"}, ["task_id", "must look like"]),
        ({"task_id": "Apps-v0/bills/d1/R2/train/01"}, ["task_id", "must look like"]),
        ({"task_id": "Apps-v0/bills/d1/R2/train/-1"}, ["task_id", "must look like"]),
        ({"task_id": "App-v0/bills/d1/R2/train/1"}, ["Apps-v0", "'App-v0/bills/d1/R2/train/1'"]),
        ({"task_id": "Apps-v1/bills/d1/R2/train/1"}, ["must be of Apps-v0"]),
        ({"task_id": "Apps-v0/bils/d1/R2/train/1"}, ["template", "did you mean 'bills'?"]),
        ({"task_id": "Apps-v0/invite/d1/R2/train/1"}, ["template (in split 'train')"]),
        ({"task_id": "Apps-v0/bills/d6/R2/train/1"}, ["difficulty", "got 6"]),
        ({"task_id": "Apps-v0/bills/d1/R7/train/1"}, ["rendering", "got 7"]),
        ({"task_id": "Apps-v0/bills/d1/R2/tran/1"}, ["split", "did you mean 'train'?"]),
        ({"task_id": "Apps-v0/bills/d1/R2/train/1.1"}, ["not certified", "d1/R2/train/1'"]),
        ({"task_id": "Apps-v0/bills/d1/R2/train/1", "difficulty": 1}, ["task_id alone"]),
    ],
)
def test_bad_options_are_explained(make, options: dict[str, Any], words: list[str]) -> None:
    """And leave the running episode as it was."""
    env = make()
    env.reset(seed=1)
    env.step(NOTHING)
    with pytest.raises(ValueError) as error:
        env.reset(seed=2, options=options)
    assert all(word in str(error.value) for word in words), error.value
    assert env.step(NOTHING)[4] | {"headway": 0} == {
        "task_id": "Apps-v0/bills/d1/R2/train/1",
        "turn": 2,
        "calls": [{"tool": None, "args": {}, "error": True}],
        "headway": 0,
    }


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"difficulty": 9}, ["difficulty", "got 9"]),
        ({"rendering": -1}, ["rendering", "got -1"]),
        ({"split": "tset"}, ["split", "did you mean 'test'?"]),
        ({"template": "tirage"}, ["template", "did you mean 'triage'?"]),
        ({"action_format": "jsn"}, ["action_format", "did you mean 'json'?"]),
        ({"ends_on": "sucess"}, ["ends_on", "did you mean 'success'?"]),
        ({"domain": "apps"}, ["domain", "'apps'"]),
        ({"domain": "headway.envs.domains.apps:WORDS"}, ["must name a Domain"]),
    ],
)
def test_bad_arguments_are_explained(kwargs: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        ToolEnv(**{"domain": APPS_AT, **kwargs})
    assert all(word in str(error.value) for word in words), error.value


def stubborn(draft: Draft) -> None:
    """Bills whose first world of each seed is rejected by chance, as it were."""
    APPS.template("bills").draft(draft)
    if draft.rng.key[-2] == 0:
        draft.referent("somebody who is not there", "contacts", name="nobody")


def test_a_resampled_world_has_its_attempt_in_the_id(make) -> None:
    """Under that id it is accepted; the rejected world and a later one are not."""
    env = make(replace(APPS, templates=(replace(APPS.templates[0], draft=stubborn),)))
    first, info = env.reset(seed=1)
    assert info["task_id"] == "Apps-v0/bills/d1/R2/train/1.1"
    assert env.reset(options={"task_id": info["task_id"]}) == (first, info)
    for wrong in ("1", "1.2"):
        with pytest.raises(ValueError, match=r"not certified; seed 1 gives '.*/1\.1'"):
            env.reset(options={"task_id": f"Apps-v0/bills/d1/R2/train/{wrong}"})


def test_certified_tasks_are_kept_and_bounded(make) -> None:
    env = make()
    env.reset(seed=1)
    kept = env.instance
    env.reset(seed=1)
    assert env.instance is kept
    env.reset(options={"task_id": kept.task.id})
    assert env.instance is kept
    for seed in range(2, 2 + KEEP):
        env.reset(seed=seed)
    assert len(env._certified) == KEEP
    env.reset(seed=1)
    assert env.instance is not kept and env.instance.task == kept.task


def test_closing_twice_and_early_is_harmless() -> None:
    env = ToolEnv(APPS)
    env.close()
    env.reset(seed=1)
    env.close()
    env.close()


# Who wins and who does not.


@pytest.mark.parametrize("difficulty", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("rendering", [0, 1, 2, 3, 4])
def test_the_oracle_wins_everywhere(difficulty: int, rendering: int) -> None:
    """At every difficulty and rendering, in every split, over all templates in turn."""
    env = gym.make(ID, difficulty=difficulty, rendering=rendering)
    for n, split in enumerate(("train", "dev", "test")):
        names = APPS.template_names(split)
        template = names[(difficulty * 5 + rendering + n) % len(names)]
        _, info = env.reset(seed=n, options={"split": split, "template": template})
        assert info["task_id"].startswith(f"Apps-v0/{template}/d{difficulty}/R{rendering}/{split}")
        steps = play(env, env.unwrapped.solution())
        assert steps[-1][1:4] == (1.0, True, False), info["task_id"]
        assert (
            len(steps) == len(env.unwrapped.solution()) <= env.unwrapped.instance.task.max_turns / 2
        )


@pytest.mark.parametrize("template", APPS.template_names("test"))
def test_doing_nothing_earns_nothing(template: str) -> None:
    """No action, an empty one, or handing in what was found."""
    env = gym.make(ID, template=template, split="test")
    call = env.unwrapped.format
    for action in ("", "   ", headway.CUT, call("submit", {}), call("submit", {"answer": ""})):
        env.reset(seed=2)
        steps = play(env, [action] * 999)
        assert sum(s[1] for s in steps) == 0.0 and (steps[-1][2] or steps[-1][3])
        assert env.unwrapped.grade().progress == 0.0
