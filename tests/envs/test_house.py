"""House: one hand, lids and locks, what difficulty does, and the wrong ways it has to refuse."""

from __future__ import annotations

import contextlib
import io
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from headway.envs.box import Box
from headway.envs.contract import Run, certify, examine
from headway.envs.domains.house import HOUSE, KNOBS
from headway.envs.domains.house.templates import MOST_ROOMS, MOST_THINGS
from headway.envs.domains.house.tools import HAND, TABLES, room_of
from headway.envs.render import Instance, build
from headway.envs.rng import Rng
from headway.envs.task import SPLITS, TaskKey
from headway.envs.tool_env import ToolEnv
from headway.envs.tools import Tool
from headway.envs.world import Action
from headway.verifiers import Row

ROOT = Path(__file__).resolve().parents[2]
TOOLS: dict[str, Tool] = dict(HOUSE.toolbox)


def key(template: str, difficulty: int = 3, seed: int = 0, **parts: Any) -> TaskKey:
    return replace(TaskKey("House", 0, template, difficulty, 2, "test", seed), **parts)


def task(template: str, difficulty: int = 3, seed: int = 0) -> Instance:
    """A certified task of the test split."""
    return certify(HOUSE, key(template, difficulty, seed))[0]


def worlds(count: int) -> Iterator[Instance]:
    """Tasks that go round splits, templates and difficulties."""
    for seed in range(count):
        split = SPLITS[seed % 3]
        names = HOUSE.template_names(split)
        yield build(HOUSE, key(names[seed // 3 % len(names)], 1 + seed % 5, seed, split=split))


def errand(instance: Instance, tool: str) -> list[Action]:
    """The calls of a step in which that tool is used."""
    steps = (s.actions for s in instance.world.steps if any(a.tool == tool for a in s.actions))
    return list(next(steps))


def thing(place: str = "oak shelf", sort: str = "dish", **state: Any) -> Row:
    fields = {"kind": "x", "look": "x", "sort": sort, "place": place}
    return {**fields, "clean": True, "temp": "plain", "cut": False, "gone": False, **state}


@pytest.fixture
def box() -> Box:
    """A small house, the agent in its hall."""
    tables: dict[str, dict[str, Row]] = {
        "rooms": {
            "hall": {"locked": False, "fits": ""},
            "kitchen": {"locked": False, "fits": ""},
            "cellar": {"locked": True, "fits": "brass key"},
        },
        "places": {
            "oak shelf": {"room": "hall", "lid": "none"},
            "pine chest": {"room": "hall", "lid": "closed"},
            "steel table": {"room": "kitchen", "lid": "none"},
            "ash bench": {"room": "cellar", "lid": "none"},
        },
        "devices": {
            "sink": {"room": "kitchen", "use": "wash"},
            "stove": {"room": "kitchen", "use": "heat"},
            "fridge": {"room": "kitchen", "use": "cool"},
            "board": {"room": "kitchen", "use": "slice"},
        },
        "things": {
            "blue mug": thing(clean=False),
            "brass key": thing(sort="key"),
            "iron key": thing(sort="key"),
            "red pear": thing("steel table", "food"),
            "hidden plum": thing("pine chest", "food"),
        },
        "notes": {
            "list": {"room": "hall", "text": "words"},
            "red pear": {"room": "", "text": "ripe"},
        },
    }
    return Box(tables, TOOLS)


def play(box: Box, *calls: str) -> list[str]:
    """Calls as ``"tool: argument, argument"``; returns the replies."""
    out = []
    for call in calls:
        tool, _, values = call.partition(": ")
        names = TOOLS[tool].parameters["properties"]
        args = dict(zip(names, values.split(", "), strict=True)) if values else {}
        out.append(box.call(tool, args).text)
    return out


@pytest.mark.parametrize(
    ("before", "call", "says"),
    [
        ("", "go: attic", "no room 'attic'"),
        ("", "go: kitchn", "did you mean kitchen?"),
        ("", "go: cellar", "the cellar is locked; it can be unlocked from the hall"),
        ("", "take: red pear", "no red pear can be seen in the hall"),
        ("", "take: blu mug", "(did you mean blue mug?)"),
        ("", "take: hidden plum", "no hidden plum can be seen"),
        ("", "take: mug", "no mug can be seen in the hall"),
        ("take: blue mug", "take: brass key", "your hand holds the blue mug"),
        ("", "put: blue mug, oak shelf", "take the blue mug first"),
        ("take: blue mug", "put: blue mug, steel table", "no steel table can be seen in the hall"),
        ("take: blue mug", "put: blue mug, pine chest", "the pine chest is closed"),
        ("", "open: oak shelf", "cannot be opened"),
        ("", "close: oak shelf", "cannot be closed"),
        ("", "unlock: cellar, brass key", "take the brass key first"),
        ("take: iron key", "unlock: cellar, iron key", "does not fit"),
        ("take: brass key", "unlock: kitchen, brass key", "is not locked"),
        ("take: brass key; go: kitchen", "unlock: cellar, brass key", "go to the hall first"),
        ("take: blue mug", "wash: blue mug", "nothing to wash with in the hall"),
        ("take: blue mug; go: kitchen", "heat: blue mug", "is nothing to heat"),
        ("go: kitchen", "heat: red pear", "take the red pear first"),
        ("go: kitchen", "read: list", "no list can be seen in the kitchen"),
        ("", "read: red pear", "no red pear can be seen in the hall"),
        ("", "read: blue mug", "nothing is written on the blue mug"),
        ("", "discard: red pear", "no red pear can be seen in the hall"),
    ],
)
def test_mistakes_are_answered(box: Box, before: str, call: str, says: str) -> None:
    """The message names what is wrong, and nothing changes."""
    if before:
        assert not any(text.startswith("Error") for text in play(box, *before.split("; ")))
    was, stood = box.canonical(), room_of(box)
    (text,) = play(box, call)
    assert text.startswith("Error") and says in text, text
    assert len(text) < 300
    assert box.canonical() == was and room_of(box) == stood


@pytest.mark.parametrize(
    "call", ["take: {}", "read: {}", "discard: {}", "put: blue mug, {}", "open: {}"]
)
def test_to_ask_is_no_way_to_find_out(box: Box, call: str) -> None:
    """What is in another room, or shut away, is refused as what is nowhere, and never proposed."""
    play(box, "take: blue mug")
    for name in ("red pear", "hidden plum", "steel table"):
        if not (call.startswith(("put", "open")) and name != "steel table"):
            there, nowhere, near = play(
                box, call.format(name), call.format("no such"), call.format(name[:-1])
            )
            assert there.replace(name, "no such") == nowhere and name not in near


def test_names_are_read_as_people_write_them(box: Box) -> None:
    """In any case, with an article or more blanks."""
    play(box, "take: The  BLUE mug")
    assert box.table("things")["blue mug"]["place"] == HAND


def test_only_what_is_here_and_open_is_seen(box: Box) -> None:
    """Other rooms and closed lids hide what they hold."""
    (hall,) = play(box, "look")
    assert "blue mug (dirty)" in hall and "The pine chest is closed." in hall
    assert "pear" not in hall and "plum" not in hall and "cellar (locked)" in hall
    (chest, hall) = play(box, "open: pine chest", "look")
    assert "hidden plum" in chest and "In the pine chest: hidden plum." in hall
    (kitchen,) = play(box, "go: kitchen")
    assert "red pear" in kitchen and "mug" not in kitchen and "stove (to heat)" in kitchen


def test_devices_change_what_is_held(box: Box) -> None:
    """Washed, heated, cooled, cut; what is hot already burns, and stays burnt."""
    play(box, "take: blue mug", "go: kitchen", "wash: blue mug", "put: blue mug, steel table")
    assert box.table("things")["blue mug"] == thing("steel table")
    play(box, "take: red pear", "slice: red pear", "cool: red pear", "heat: red pear")
    assert box.table("things")["red pear"] == thing(HAND, "food", temp="hot", cut=True)
    texts = play(box, "cool: red pear", "heat: red pear", "heat: red pear", "cool: red pear")
    assert texts[1:3] == ["The red pear is hot.", "The red pear is burnt."]
    assert "stays so" in texts[3] and box.table("things")["red pear"]["temp"] == "burnt"


def test_what_is_discarded_is_gone(box: Box) -> None:
    """From the hand too, which is free then; nobody sees it or takes it again."""
    play(box, "take: blue mug", "discard: blue mug", "take: brass key")
    assert box.table("things")["brass key"]["place"] == HAND
    assert "mug" not in play(box, "look")[0]
    assert "no blue mug can be seen" in play(box, "take: blue mug")[0]
    play(box, "open: pine chest", "discard: hidden plum")
    assert play(box, "open: pine chest") == ["In the pine chest: nothing."]


def test_a_lock_opens_for_good(box: Box) -> None:
    play(box, "take: brass key", "unlock: cellar, brass key", "put: brass key, oak shelf")
    (cellar,) = play(box, "go: cellar")
    assert cellar.startswith("You are in the cellar.")


def test_only_what_was_read_is_evidence(box: Box) -> None:
    """A note in its room; a label where its thing lies."""
    assert box.call("read", {"note": "list"}).seen == ("notes/list",)
    assert not box.call("look", {}).seen
    play(box, "go: kitchen")
    assert box.call("read", {"note": "red pear"}).seen == ("notes/red pear",)


def test_walking_is_neither_progress_nor_damage() -> None:
    """Where the agent stands is in no table that is judged."""
    instance = task("fetch", 2)
    run = Run(instance)
    before = run.box.canonical()
    for room in instance.task.tables["rooms"]:
        run.do(Action("go", {"room": room}))
        verdict = run.grade()
        assert verdict.progress == 0 and not verdict.violations
    assert run.box.canonical() == before and "body" not in TABLES
    env = ToolEnv(HOUSE, template="fetch")
    env.reset(seed=0)
    anchors = set()
    for room in env.instance.task.tables["rooms"]:
        env.step(env.format("go", {"room": room}))
        anchors.add(env.anchor())
    assert len(anchors) == 4  # and yet it is another state


def test_nothing_is_latched() -> None:
    """Taken, put back, taken, brought, taken away: progress comes and goes, and no loop pays."""
    instance = task("fetch", 1)
    go, take, away, put = instance.world.steps[0].actions
    start = instance.task.tables["things"][take.args["thing"]]["place"]
    back = Action("put", {"thing": take.args["thing"], "place": start})
    run, seen = Run(instance), []
    for action in (go, take, back, take, away, put, take, put):
        assert not run.do(action).error
        seen.append(run.grade().progress)
    assert seen == pytest.approx([0, 0.2, 0, 0.2, 0.2, 1, 0.2, 1])


@pytest.mark.parametrize(("template", "tool"), [("clean", "wash"), ("serve", "heat")])
def test_a_treated_thing_counts_before_it_is_in_place(template: str, tool: str) -> None:
    """A third of the way; brought untreated, it counts nothing."""
    instance = task(template, 1)
    calls = errand(instance, tool)
    at = next(n for n, call in enumerate(calls) if call.tool == tool)
    run = Run(instance).play(calls[: at + 1])
    assert run.grade().progress == pytest.approx(1 / 3)
    assert run.play(calls[at + 1 :]).grade().success
    raw = [call for call in calls if call.tool != tool]
    verdict = Run(instance).play(raw).grade()
    assert verdict.progress == 0 and not verdict.violations


def test_what_was_opened_has_to_be_closed() -> None:
    """Lids that the task has to open, and others."""
    instance = task("fetch", 4)
    calls = instance.solution()
    n = next(n for n, call in enumerate(calls) if call.tool == "close")
    verdict = Run(instance).play([*calls[:n], *calls[n + 1 :]]).grade()
    assert not verdict.success and any(not ok for i, ok in verdict.ok.items() if "shut" in i)
    used = {call.args["place"] for call in calls if call.tool == "open"}
    places = instance.task.tables["places"].items()
    name, row = next((k, r) for k, r in places if r["lid"] == "closed" and k not in used)
    more = [Action("go", {"room": row["room"]}), Action("open", {"place": name})]
    verdict = Run(instance).play([*calls[:-1], *more]).grade()
    assert verdict.violations == (f"edited places/{name}",) and not verdict.success
    more.append(Action("close", {"place": name}))
    assert Run(instance).play([*calls[:-1], *more]).grade().success


def test_moved_and_discarded_things_are_damage() -> None:
    """Of what nobody asked for; each costs half, and bringing it back restores it."""
    instance = task("fetch", 2)
    name, row = next(iter(instance.task.tables["things"].items()))
    calls = instance.solution()[:-1]
    hall = Action("go", {"room": next(iter(instance.task.tables["rooms"]))})
    take = [hall, Action("take", {"thing": name})]
    back = Action("put", {"thing": name, "place": row["place"]})
    run = Run(instance).play(calls[:-1])
    before = run.grade().progress
    held = Run(instance).play([*calls, *take])
    assert held.grade().violations == (f"edited things/{name}",)
    assert held.play([back]).grade().success
    spoiled = Run(instance).play([*take[:1], Action("discard", {"thing": name}), *calls[:-1]])
    assert spoiled.grade().progress == pytest.approx(before / 2)
    mine = next(call for call in calls if call.tool == "take")
    lost = Run(instance).play([*calls[: calls.index(mine)], replace(mine, tool="discard")])
    assert lost.grade().progress == 0  # no way to have it out of its place
    assert lost.grade().violations == (f"edited things/{mine.args['thing']}",)


def test_the_key_goes_back() -> None:
    """Left in the hand or elsewhere, the task is not done."""
    instance = task("locked", 2)
    step = next(s for s in instance.world.steps if s.id == "unlock")
    run = Run(instance).play([a for s in instance.plan[:1] for a in s.actions])
    run.play(step.actions[:4])
    verdict = run.grade()
    assert verdict.ok["unlock"] and not verdict.ok["back"] and not verdict.violations
    assert run.play(step.actions[4:]).grade().ok["back"]


@pytest.mark.parametrize("template", HOUSE.template_names("test"))
def test_every_trap_has_a_way_in_that_fails(template: str) -> None:
    """From difficulty 3 on, and there only; each wrong way ends without success."""
    slips = {"another place", "key left elsewhere"}
    assert {n.trap for n in build(HOUSE, key(template, 2)).world.naive} <= slips
    traps = set()
    for difficulty in (3, 4):
        instance = task(template, difficulty)
        for naive in instance.world.naive:
            traps.add(naive.trap)
            calls = [a for s in instance.plan for a in naive.instead.get(s.id, s.actions)]
            assert not Run(instance).play(calls).grade().success, naive.trap
    assert len(traps - slips) >= (1 if template == "delivery" else 2)


def test_twins_are_told_apart_by_what_is_said() -> None:
    """The name alone fits two things; the instruction says which, and does not name its colour."""
    for template, seed in product(("fetch", "clean", "chores"), range(15)):
        instance = build(HOUSE, key(template, 3, seed))
        facts, things = instance.world.facts, instance.task.tables["things"]
        twins = [name for name, row in things.items() if row["kind"] == facts["twin"]]
        assert len(twins) == 2
        assert sum(not things[name]["clean"] for name in twins) == 1 and facts["mark"] == "dirty"
        assert not any(name in instance.task.instruction for name in twins)
        assert facts["mark"] in instance.task.instruction


def test_difficulty_grows() -> None:
    """Oracle calls and things rise from level to level, in the mean and on every template."""
    for template in HOUSE.template_names("test"):
        calls, things = [], []
        for difficulty in KNOBS:
            made = [build(HOUSE, key(template, difficulty, seed)) for seed in range(8)]
            calls.append(statistics.mean(len(w.solution()) for w in made))
            things.append(statistics.mean(len(w.task.tables["things"]) for w in made))
        assert calls == sorted(set(calls)), (template, calls)
        assert things == sorted(set(things)), (template, things)


def test_every_house_fits_the_numeric_view() -> None:
    """At most so many rooms and things, and a room has one surface and at most one container."""
    for instance in worlds(210):
        tables = instance.task.tables
        assert len(tables["things"]) <= MOST_THINGS and len(tables["rooms"]) <= MOST_ROOMS
        for room in tables["rooms"]:
            lids = [row["lid"] for row in tables["places"].values() if row["room"] == room]
            assert lids.count("none") == 1 and lids.count("closed") <= 1
        names = [*tables["places"], *tables["things"], *tables["rooms"]]
        assert len(names) == len(set(names))


def test_no_start_tells_where_things_are() -> None:
    """What is asked for lies in any room, open or closed, at any place of the table."""
    rooms, lids, ranks = set(), set(), set()
    for seed in range(40):
        instance = build(HOUSE, key("fetch", 2, seed))
        tables = instance.task.tables
        for step in instance.world.steps:
            take = next(a for a in step.actions if a.tool == "take")
            place = tables["places"][tables["things"][take.args["thing"]]["place"]]
            rooms.add(list(tables["rooms"]).index(place["room"]))
            lids.add(place["lid"])
            ranks.add(list(tables["places"].values()).index(place))
    assert rooms == set(range(4)) and lids == {"none", "closed"} and len(ranks) >= 5


def test_words_of_the_splits_differ() -> None:
    for a, b in (("train", "dev"), ("train", "test"), ("dev", "test")):
        for name, words in HOUSE.words[a].items():
            assert not set(words) & set(HOUSE.words[b][name]), (a, b, name)
            assert len(words) == len(set(words))
    assert {t.name for t in HOUSE.templates if t.held_out} == {"delivery"}


def test_chance_is_allowed_at_one_goal_only() -> None:
    """Random play solves some tasks of difficulty 1, which miss a contract without leave."""
    strict = replace(HOUSE, random_from=1)
    chores = [key("chores", 1, seed, split="train") for seed in range(30)]
    assert not any(examine(build(HOUSE, k), mutants=0)[0] for k in chores)
    missed = [m.check for k in chores for m in examine(build(strict, k), mutants=0)[0]]
    assert missed and set(missed) == {"policies"}
    two = [key("chores", 2, seed, split="train") for seed in range(30)]
    found = [[m.detail for m in examine(build(HOUSE, k), mutants=0)[0]] for k in two]
    assert found == [[m.detail for m in examine(build(strict, k), mutants=0)[0]] for k in two]


def test_guesses_are_possible() -> None:
    """A random call is no mistake, and is of every kind in the long run."""
    tools: set[str] = set()
    for seed, instance in enumerate(worlds(42)):
        box, rng = instance.open(), Rng("guess", seed)
        box._flaky = frozenset()
        for _ in range(40):
            call = HOUSE.guess(box, rng)
            tools.add(call.tool)
            reply = box.call(call.tool, call.args)
            assert not reply.error or call.tool in ("unlock", "cool"), (call, reply.text)
    assert tools == set(TOOLS)


def test_looking_at_everything_leaves_no_trace() -> None:
    """It sees every thing that no lock hides, and earns evidence only."""
    for template in HOUSE.template_names("test"):
        instance = task(template, 3)
        run = Run(instance)
        shown = "\n".join(run.do(call).text for call in instance.look(run.box))
        verdict = run.grade()
        assert not verdict.violations and verdict.progress <= 0.15 + 1e-9
        assert (verdict.progress > 0) == (template in ("locked", "recipe", "delivery"))
        locked = [r for r, row in instance.task.tables["rooms"].items() if row["locked"]]
        for name, row in instance.task.tables["things"].items():
            if instance.task.tables["places"][row["place"]]["room"] not in locked:
                assert name in shown


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language in ``docs/house.md``."""
    page = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)


def test_the_page_shows_what_is_so() -> None:
    """The episode as it is printed, the numbers as they are made, every tool and template."""
    episode, numbers, _ = blocks("python")
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(episode, names)
    assert [printed.getvalue()] == blocks("text")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(numbers, names)
    assert printed.getvalue().startswith("Discrete(23) (")
    page = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
    assert all(f"`{name}" in page for name in (*TOOLS, *HOUSE.template_names("test")))


@pytest.mark.slow
def test_ppo_runs_as_it_is_shown() -> None:
    """The page's learner after its environment, and the example for a moment."""
    episode, numbers, learner = blocks("python")
    example = str(ROOT / "examples" / "house_ppo.py")
    for args in (["-c", f"{episode}\n{numbers}\n{learner}"], [example, "--steps", "64"]):
        command = [sys.executable, "-W", "error", *args]
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"before: 0\.\d\d\nafter 64 steps.*: 0\.\d\d\n", done.stdout), done.stdout


def test_held_out_texts_share_few_8_grams_with_train() -> None:
    """Under 10 %, as in Apps: other wordings, other names."""

    def grams(split: str, count: int) -> list[tuple[str, ...]]:
        names = HOUSE.template_names(split)
        texts = (
            build(HOUSE, key(names[n % len(names)], 1 + n % 5, n, split=split)).task.instruction
            for n in range(count)
        )
        lists = [text.split() for text in texts]
        return [tuple(words[i : i + 8]) for words in lists for i in range(len(words) - 7)]

    train = set(grams("train", 300))
    for split in ("dev", "test"):
        held = grams(split, 60)
        assert sum(gram in train for gram in held) < 0.1 * len(held)
