"""HopSearch: its encyclopaedia and tools, ways of cheating, and information against enumeration."""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headway
from headway.envs.box import Box
from headway.envs.contract import Run, certify
from headway.envs.domains.hopsearch import HOPSEARCH, KNOBS, SAYINGS
from headway.envs.domains.hopsearch.edition import (
    POOL,
    SIZES,
    SOURCES,
    WORDS,
    Edition,
    Print,
    edition,
    printed,
)
from headway.envs.domains.hopsearch.tools import plain_name, print_of
from headway.envs.render import Instance, build
from headway.envs.rng import Rng
from headway.envs.task import TaskKey
from headway.envs.tool_env import UNSEEN
from headway.envs.world import Action
from headway.verifiers import EVIDENCE_SHARE

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = HOPSEARCH.template_names("test")


def task(template: str, difficulty: int = 3, seed: int = 0, **parts: Any) -> Instance:
    """A certified task of the test split."""
    key = TaskKey("HopSearch", 0, template, difficulty, 2, "test", seed)
    return certify(HOPSEARCH, replace(key, **parts))[0]


def drafted(template: str, difficulty: int, seed: int) -> Instance:
    """A task of the test split without its proof."""
    return build(HOPSEARCH, TaskKey("HopSearch", 0, template, difficulty, 2, "test", seed))


@pytest.fixture(scope="module")
def box() -> Box:
    """A box to try tools on; tests fork it."""
    return task("chain", 2).open()


def page(box: Box, kind: str, number: int = 0) -> str:
    """The id of a page of the box's print."""
    return print_of(box).id(kind, number)


# Tools.


@pytest.mark.parametrize(
    ("tool", "args", "says"),
    [
        ("search", {"query": "  "}, "query must have 1 to 200 characters"),
        ("search", {"query": "x" * 201}, "1 to 200 characters, got 201"),
        ("search", {"query": "x", "k": 0}, "k must be from 1 to 10, got 0"),
        ("search", {"query": "x", "k": 11}, "k must be from 1 to 10, got 11"),
        ("open", {"id": "p0"}, "no page 'p0'; search shows the ids"),
        ("open", {"id": "../1"}, "no page"),
        ("open", {"id": "p1", "part": 0}, "part of page p1 must be from 1 to"),
        ("open", {"id": "p1", "part": 3}, "part of page p1 must be from 1 to"),
        ("note", {"line": " ", "value": "x", "source": ""}, "line must not be empty"),
        ("note", {"line": "x" * 21, "value": "x", "source": ""}, "line must have at most 20"),
        ("note", {"line": "A1", "value": "x" * 101, "source": ""}, "value must have at most 100"),
        ("note", {"line": "A1", "value": "x", "source": "x" * 301}, "source must have at most 300"),
    ],
)
def test_mistakes_are_answered(box: Box, tool: str, args: dict[str, Any], says: str) -> None:
    """The message names what is wrong, and nothing changes."""
    fork = box.fork()
    reply = fork.call(tool, args)
    assert reply.error and says in reply.text, reply.text
    assert fork.canonical() == box.canonical() and not reply.seen


def test_a_search_shows_titles_only(box: Box) -> None:
    """A hit is evidence of nothing, and its text has no sentence of the page."""
    reply = box.fork().call("search", {"query": "warden of the guild", "k": 10})
    assert len(reply.value) == len(reply.listed) == 10 and not reply.seen
    assert all(set(hit) == {"id", "title", "parts"} for hit in reply.value)


def test_only_the_part_that_was_opened_was_seen(box: Box) -> None:
    """Each part is a record of its own."""
    id = page(box, "town")
    reply = box.fork().call("open", {"id": id, "part": 2})
    assert reply.seen == (f"pages/{id}/2",) and reply.value["of"] == 2


def test_the_budget_ends_reading(box: Box) -> None:
    """What was opened stays open, the rest shut; also if no observation arrived whole."""
    fork = box.fork()
    budget = fork.table("book")["print"]["budget"]
    ids = list(fork.table("pages"))
    for id in ids[:budget]:
        assert not fork.call("open", {"id": id}).error
    refused = fork.call("open", {"id": ids[budget]})
    assert refused.error and f"the {budget} parts that you may read are used up" in refused.text
    assert not refused.seen and not fork.call("open", {"id": ids[0]}).error


def test_the_worksheet_is_bounded_and_can_be_erased(box: Box) -> None:
    """Twenty lines; an empty value frees one."""
    fork = box.fork()

    def note(line: str, value: str) -> Any:
        return fork.call("note", {"line": line, "value": value, "source": ""})

    assert not any(note(f"A{n}", "x").error for n in range(20))
    assert "all are filled" in note("B1", "x").text
    note("a0", "")
    assert "A0" not in fork.table("worksheet") and not note("B1", "x").error
    assert not note("C9", "").error and len(fork.table("worksheet")) == 20


@pytest.mark.parametrize(
    "written",
    ["Orvane", "orvane", " ORVANE. ", "the town of Orvane", "Orvane (town)", "'Orvane'"],
)
def test_names_are_read_as_people_write_them(written: str) -> None:
    """Case, article, kind and full stop do not count; another name stays another."""
    assert plain_name(written) == "orvane" != plain_name("Orvano")
    assert plain_name("The Copper Heron Guild") == plain_name("copper heron")


# The encyclopaedia.


def test_an_edition_is_drawn_from_its_name_alone() -> None:
    """Twice the same pages; another split or size has others."""
    first, again = Edition("dev", 200), Edition("dev", 200)
    assert first.pages == again.pages and first.names == again.names
    assert first.pages != edition("test", 200).pages


@pytest.mark.parametrize("size", SIZES)
def test_an_edition_has_its_size(size: int) -> None:
    """So many pages, each with a title of its own, and no part longer than an observation."""
    book = printed("test", size, 1, "date")
    titles = [book.title(place) for place in range(size)]
    assert len(book.edition.pages) == size == len(set(titles)) == len(set(book.ids))
    longest = max(
        len(book.text(place, part))
        for place, entry in enumerate(book.edition.pages)
        for part in range(1, len(entry.parts) + 1)
    )
    assert longest < HOPSEARCH.max_obs_chars / 2


@pytest.mark.parametrize("split", WORDS)
@pytest.mark.parametrize("size", [200, 2000])
def test_every_page_is_found_by_its_title(split: str, size: int) -> None:
    """Within the first five hits, a town by its name and the word town."""
    book = printed(split, size, 7, "number")
    places = range(size) if size == 200 else range(0, size, 7)
    for place in places:
        title = book.title(place).replace("(", "").replace(")", "")
        assert place in book.search(title, 5), title


def test_equal_scores_come_in_the_order_of_ids() -> None:
    """A word of every town's page ranks by score, then by number, on every machine."""
    book = printed("test", 200, 3, "number")
    hits = book.search("province", 10)
    scores = book.edition.scores(["province"]).round(4)
    assert hits == sorted(hits, key=lambda p: (-scores[p], int(book.ids[p][1:])))
    assert book.search("nowhereinthebook", 5) == [] == book.search("42", 5)


@settings(max_examples=25)
@given(st.integers(0, 2**53 - 1), st.sampled_from(["number", "date"]))
def test_a_print_keeps_what_the_edition_says(number: int, kind: str) -> None:
    """Names, ids and numbers are permuted: all differ, ranges nest, rolls lie in their range."""
    book = Print(edition("test", 200), number, kind)
    rolls = [index for g in book.edition.guilds for index in book.roll(g)]
    assert len(set(rolls)) == len(rolls) and all(0 <= index < POOL for index in rolls)
    for t in book.edition.towns:
        town, province = book.blocks["town", t], book.blocks["province", t // 4]
        assert province[0] <= town[0] < town[1] <= province[1]
        for g in book.edition.guilds_of[t]:
            first, past = book.blocks["guild", g]
            assert town[0] <= first < past <= town[1]
            assert all(first <= index < past for index in book.roll(g))
    assert len({book.title(place) for place in range(200)}) == 200
    query = book.name("guild", 0)
    assert book.edition.at["guild", 0] in book.search(query, 5)


def test_another_print_is_another_book() -> None:
    """What was read in one task does not hold in the next."""
    one, other = (printed("train", 200, number, "number") for number in (1, 2))
    same = [
        place
        for place, entry in enumerate(one.edition.pages)
        if entry.kind == "guild" and one.title(place) == other.title(place)
    ]
    assert len(same) < 5
    assert sum(a == b for a, b in zip(one.ids, other.ids, strict=True)) < 10
    wardens = [one.roll(g)[one.edition.warden[g]] for g in one.edition.guilds]
    others = [other.roll(g)[other.edition.warden[g]] for g in other.edition.guilds]
    assert sum(a == b for a, b in zip(wardens, others, strict=True)) < 5


def test_splits_share_no_name() -> None:
    """Words of all lists are disjoint, and so are the names made of them."""
    made = {}
    for split, lists in WORDS.items():
        words = [word.lower() for name in lists for word in lists[name]]
        assert len(set(words)) == len(words), split
        towns = [head.lower() + tail for head in lists["head"] for tail in lists["tail"]]
        made[split] = set(words) | set(towns)
        assert len(made[split]) == len(words) + len(towns)
    assert not made["train"] & made["dev"]
    assert not made["test"] & (made["train"] | made["dev"])
    for split in WORDS:
        book = printed(split, 200, 1, "number")
        assert book.name(*book.edition.town(0)).lower() in made[split]
        assert set(book.name("person", 0).lower().split()) <= made[split]


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_answer_stands_in_one_place(template: str) -> None:
    """On the roll of the right guild; no other part of any page has it."""
    for difficulty in (1, 4):
        instance = drafted(template, difficulty, 2)
        answer = instance.world.secrets["answer"]
        book = print_of(instance.open())
        found = {
            f"pages/{book.ids[place]}/{part}"
            for place, entry in enumerate(book.edition.pages)
            for part in range(1, len(entry.parts) + 1)
            if f" {answer.value}" in f" {book.text(place, part)}".replace(".", " ")
        }
        exact = {r for r in found if r.endswith("/2")}
        assert len(exact) <= 2 and f"{answer.places[0]}/2" in exact
        assert answer.bits == 13.0


def test_without_the_search_library_the_message_says_what_to_install() -> None:
    """Importing, listing and registering do without it; an environment does not."""
    code = (
        "import sys; sys.modules['bm25s'] = None\n"
        "import gymnasium as gym, headway\n"
        "from headway.cli import main\n"
        "assert main(['list']) == 0 and main(['eval', 'HopSearch']) == 2\n"
        "try:\n    gym.make('headway/HopSearch-v0')\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = 'HopSearch needs bm25s, which is missing; pip install "headway[domains]"'
    assert out.stdout.endswith(f"{said}\n") and out.stderr == f"headway: {said}\n"


def test_importing_loads_no_search_library() -> None:
    """And the index is made without a progress bar."""
    code = (
        "import sys, headway.envs.domains.hopsearch as h\n"
        "assert 'bm25s' not in sys.modules\n"
        "from headway.envs.domains.hopsearch.edition import edition\n"
        "edition('dev', 200)\n"
        "assert 'bm25s' in sys.modules\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == out.stderr == ""


# Tasks.


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_is_sound(template: str) -> None:
    """At every rendering, at the easiest and the hardest difficulty."""
    for rendering in HOPSEARCH.renderings:
        for difficulty in (1, 5):
            _, certificate = certify(
                HOPSEARCH,
                TaskKey("HopSearch", 0, template, difficulty, rendering, "test", rendering),
            )
            assert certificate.mutants > 0 and certificate.variants >= 11


def test_difficulty_grows() -> None:
    """Oracle calls and pages rise from level to level, on every template."""
    for template in TEMPLATES:
        calls, pages = [], []
        for difficulty in KNOBS:
            worlds = [drafted(template, difficulty, seed) for seed in range(2)]
            calls.append(statistics.mean(len(w.solution()) for w in worlds))
            pages.append(len(worlds[0].task.tables["pages"]))
        assert calls == sorted(set(calls)), (template, calls)
        assert pages == list(SIZES)


def test_one_template_is_held_out() -> None:
    """Of six, and every template has the sayings that all share."""
    assert set(TEMPLATES) - set(HOPSEARCH.template_names("train")) == {"conflict"}
    shared = {"question", "budget", "note_town", "note_guild", "note_warden"}
    assert all(shared <= set(SAYINGS[name]) for name in TEMPLATES)


@pytest.mark.parametrize("template", TEMPLATES)
def test_traps_are_laid(template: str) -> None:
    """Where there is more than one way to be wrong, the contract tries it; all of them fail."""
    instance = task(template, 3)
    assert instance.world.naive
    for naive in instance.world.naive:
        calls = [a for s in instance.plan for a in naive.instead.get(s.id, s.actions)]
        verdict = Run(instance).play(calls).grade()
        assert not verdict.success and verdict.progress < 0.9, naive.trap


@pytest.mark.parametrize("kind", ["number", "date"])
def test_answers_are_single(kind: str) -> None:
    """A list that holds the right one is refused, and so is a part of it."""
    instance = next(
        found
        for seed in range(20)
        if (found := drafted("chain", 2, seed)).world.facts["pool"].startswith("10000")
        == (kind == "number")
    )
    gold = instance.solution()[-1].args["answer"]
    book = print_of(instance.open())
    other = book.shown(17) if book.shown(17) != gold else book.shown(18)
    for answer, right in [
        (gold, True),
        (f"The roll has {gold}.", True),
        (f"{gold} or {other}", False),
        (" ".join(book.shown(n) for n in range(0, POOL, 64)), False),
        (f"1{gold}", False),
        ("", False),
    ]:
        run = Run(instance).play(instance.solution()[:-1])
        run.do(Action("submit", {"answer": answer[:9999]}))
        assert run.grade().success is right, answer[:80]


def test_progress_is_filed_work() -> None:
    """Each filed finding and the answer are worth the same, reading alone at most the cap."""
    instance = task("chain", 4)
    checks = instance.task.acceptance.checks
    acting = [c for c in checks if not c.evidence]
    assert [c.id for c in acting] == ["note.town", "note.guild", "note.warden", "answer"]
    assert len({c.weight for c in acting}) == 1
    run, values = Run(instance), [0.0]
    for action in instance.solution():
        run.do(action)
        values.append(run.grade().progress)
    assert values == sorted(values) and values[-1] == 1.0
    assert len(set(values)) >= 8
    reads = [a for a in instance.solution() if a.tool != "note"][:-1]
    assert 0 < Run(instance).play(reads).grade().progress <= EVIDENCE_SHARE + 1e-9


def test_a_wrong_finding_is_damage_until_it_is_put_right() -> None:
    """On its line and on a line that nobody asked for."""
    instance = task("chain", 2)
    note = next(a for a in instance.solution() if a.tool == "note")
    for line in (note.args["line"], "B1"):
        run = Run(instance)
        wrong = replace(note, args={**note.args, "line": line, "value": "Somebody Else"})
        assert run.play([wrong]).grade().violations
        assert not run.play([replace(wrong, args={**wrong.args, "value": ""})]).grade().violations


def test_opening_everything_is_no_strategy() -> None:
    """Of all pages the budget lets a reader see few, and that is worth next to nothing."""
    for template in TEMPLATES:
        instance = task(template, 2)
        run = Run(instance)
        calls = instance.look(run.box)
        verdict = run.play(calls).grade()
        budget = run.box.table("book")["print"]["budget"]
        assert len(calls) > budget == len(run.box.table("seen"))
        assert verdict.progress <= EVIDENCE_SHARE
        assert budget < 0.15 * sum(len(p.parts) for p in print_of(run.box).edition.pages)


def test_ids_of_the_chain_are_not_where_they_were() -> None:
    """Over seeds, the pages of a chain have any id."""
    ids = [
        next(a.args["id"] for a in drafted("chain", 2, seed).solution() if a.tool == "open")
        for seed in range(30)
    ]
    assert len(set(ids)) > 20


# Information: what the clues say, against an enumeration that knows no clue.


class Enumeration:
    """All answers that agree with what was seen, by trying every path through the places.

    It knows what each part of a page states, and reads the question off the oracle's steps. A path
    is a province, a town and a guild; None is one that nobody has read about. ``left`` unites the
    numbers that the warden at the end of each consistent path can have.
    """

    def __init__(self, instance: Instance) -> None:
        self.book = print_of(instance.open())
        self.edition = self.book.edition
        self.template = instance.task.key.template
        self.pages = {id: self.edition.pages[place] for id, place in self.book.place_of.items()}
        self.facts = instance.world.facts
        read: list[tuple[str, int, int, str]] = []
        for step in instance.world.steps:
            if step.id.startswith("read."):
                _, kind, id, part = step.id.split(".")
                read.append((kind, self.pages[id].number, int(part), f"pages/{id}/{part}"))
        self.read = read
        filed = {s.id for s in instance.world.steps}
        kinds = [kind for kind, *_ in read]
        self.guild = next(n for kind, n, part, _ in reversed(read) if (kind, part) == ("guild", 2))
        self.town = self.edition.town_of[self.guild]
        self.province = self.edition.province_of[self.town]
        self.far = "note.town" in filed
        self.hops = (
            [record for kind, _, _, record in read if kind in ("work", "scholar")]
            if self.template in ("chain", "superseded", "conflict")
            else []
        )
        cross = [n for n, kind in enumerate(kinds) if kind in ("river", "craft")]
        self.cross = read[cross[0]] if cross else None
        self.toward = [record for *_, record in read[: cross[0]]] if cross else []
        self.named = [n for kind, n, part, _ in read if (kind, part) == ("guild", 1)]

    def left(self, seen: dict[str, Any]) -> int:
        """How many numbers are possible."""
        self.seen = seen
        parts = (record.split("/")[1:] for record in seen)
        self.parts = {(self.pages[i].kind, self.pages[i].number, int(part)) for i, part in parts}
        for name in ("_towns", "_guilds", "_blocks", "_elsewhere"):
            self.__dict__.pop(name, None)
        total = 0
        open_ended = self.hops or not self.far
        for p in [*self.edition.provinces, None] if open_ended else [self.province]:
            for t in [*self._towns, None] if self.far else [self.town]:
                if self._apart(p, t, self._towns, "province"):
                    continue
                for g in [*self._guilds, None]:
                    if self._apart(t, g, self._guilds, "town"):
                        continue
                    if self._meets(p, t, g):
                        total |= self._numbers(p, t, g)
        return total.bit_count()

    def _read(self, kind: str, number: int | None, part: int = 1) -> bool:
        return (kind, number, part) in self.parts

    @cached_property
    def _guilds(self) -> dict[int, int | None]:
        """Guilds that may lie somewhere, and their town where that is known."""
        known: dict[int, int | None] = {}
        for g in self.edition.guilds:
            t = self.edition.town_of[g]
            told = [self._read("guild", g, 1), self._read("guild", g, 2), self._read("town", t, 2)]
            told.append(self._read("ferry", t) and self.edition.ferry[t] == g)
            told += [self._read(s, t) and self.edition.bell[t][s] == g for s in SOURCES]
            if any(told):
                known[g] = t
            elif self._read("craft", self.edition.craft[g]):
                known[g] = None
        if self.template in ("comparison",) or (self.template == "chain" and not self._chained):
            known |= dict.fromkeys(self.named or [self.guild], self.town)
        return known

    @property
    def _chained(self) -> bool:
        """Whether the question leaves the guild open."""
        return any(kind == "town" for kind, *_ in self.read)

    @cached_property
    def _towns(self) -> dict[int, int | None]:
        """All towns, and their province where that is known."""
        known: dict[int, int | None] = {}
        for t in self.edition.towns:
            p = self.edition.province_of[t]
            told = [
                self._read("province", p, 2),
                self._read("town", t, 1),
                self._read("town", t, 2),
            ]
            told += [self._read(kind, t) for kind in ("ferry", *SOURCES)]
            told += [
                self._read("guild", g, part) for g in self.edition.guilds_of[t] for part in (1, 2)
            ]
            known[t] = p if any(told) else None
        return known

    @cached_property
    def _blocks(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Ranges that were told: by the register above, or by a page that names the guild."""
        known = {}
        for t in self.edition.towns:
            if self._read("province", self.edition.province_of[t], 2):
                known["town", t] = self.book.blocks["town", t]
        for g in self.edition.guilds:
            t = self.edition.town_of[g]
            told = [self._read("town", t, 2), self._read("guild", g, 1)]
            told.append(self._read("ferry", t) and self.edition.ferry[t] == g)
            told += [self._read(s, t) and self.edition.bell[t][s] == g for s in SOURCES]
            if any(told):
                known["guild", g] = self.book.blocks["guild", g]
        return known

    def _apart(
        self, above: int | None, below: int | None, known: dict[int, Any], register: str
    ) -> bool:
        """Whether ``below`` cannot lie in ``above``."""
        parents = self.edition.town_of if register == "town" else self.edition.province_of
        if self._read(register, above, 2):  # lists all that lies in it
            return below is None or parents[below] != above
        return below is not None and known.get(below) is not None and known[below] != above

    def _meets(self, p: int | None, t: int | None, g: int | None) -> bool:
        """Whether the question can mean the warden at the end of this path."""
        edition = self.edition
        at_town = self.template in ("intersection", "count") and self.far
        if self.hops and all(record in self.seen for record in self.hops) and p != self.province:
            return False
        if self.far and not at_town and self._read("province", p, 2) and t != edition.chancery[p]:
            return False
        if at_town and not self._selects(p, t, edition.towns_of, "town"):
            return False
        if self.template == "comparison":
            return g in self.named and self._may_win(g)
        if self.template in ("intersection", "count") and not at_town:
            return self._selects(t, g, edition.guilds_of, "guild")
        if self.template == "chain" and not self._chained:
            return g == self.guild
        if t is None:
            return True
        if self.template == "superseded":
            return not self._read("ferry", t) or g == edition.ferry[t]
        if self.template == "conflict":
            first = self.facts["first"]
            return not self._read(first, t) or g == edition.bell[t][first]
        return not self._read("town", t, 2) or g == edition.mill[t]

    def _may_win(self, g: int) -> bool:
        """Whether no hall of which we know beats that of ``g``, as far as we know it."""
        if not self._read("guild", g, 1):
            return True
        sign = 1 if "tallest" in self.facts["guild"] else -1
        rivals = [h for h in self.named if self._read("guild", h, 1)]
        return all(sign * self.edition.height[h] <= sign * self.edition.height[g] for h in rivals)

    def _selects(self, above: int | None, below: int | None, children: Any, kind: str) -> bool:
        """Whether ``below`` can be the child that is of a group, or stands at a place."""
        assert self.cross is not None and above is not None
        group_kind, group, _, record = self.cross
        groups = self.edition.river if group_kind == "river" else self.edition.craft
        if any(r not in self.seen for r in self.toward if r != record):
            return True  # which group is not known, and no two of these share one
        if self.template == "count":
            register = "town" if kind == "guild" else "province"
            if record not in self.seen or not self._read(register, above, 2):
                return True
            return below == children[above][groups.count(group) - 1]
        if record in self.seen and (below is None or groups[below] != group):
            return False
        if below is not None and groups[below] != group:
            if self._read(kind, below, 1) or self._read(group_kind, groups[below]):
                return False
        right = next(c for c in children[above] if groups[c] == group)
        lies_there = (self._towns if kind == "town" else self._guilds).get(right) == above
        of_group = record in self.seen or self._read(kind, right, 1)
        return below == right or not (lies_there and of_group)  # no other one is both

    def _numbers(self, p: int | None, t: int | None, g: int | None) -> int:
        """The numbers that the warden of ``g`` can have, as bits."""
        if not (
            ("town", t) in self._blocks or ("guild", g) in self._blocks or self._read("guild", g, 2)
        ):
            return self._elsewhere
        left = (1 << POOL) - 1
        for node, (first, past) in self._blocks.items():
            inside = (1 << past) - (1 << first)
            left &= inside if node in (("town", t), ("guild", g)) else ~inside
        for y in self._guilds:
            if self._read("guild", y, 2):
                roll = self.book.roll(y)
                if y == g:
                    return left & 1 << roll[self.edition.warden[y]]
                left &= ~sum(1 << index for index in roll)
        return left

    @cached_property
    def _elsewhere(self) -> int:
        """The numbers of somebody of whose town and guild no range is known."""
        left = (1 << POOL) - 1
        for first, past in self._blocks.values():
            left &= ~((1 << past) - (1 << first))
        for y in self.edition.guilds:
            if self._read("guild", y, 2):
                left &= ~sum(1 << index for index in self.book.roll(y))
        return left


def walk(instance: Instance, rng: Rng) -> Iterator[tuple[Box, str]]:
    """A walk of some kind: the oracle's, a part of it, or with pages from near and far between."""
    box = instance.open()
    book = print_of(box)
    kind = rng.choice(("oracle", "mixed", "mixed", "stray"))
    path = [a for a in instance.solution() if a.tool == "open"]
    near = [
        (entry.kind, entry.number)
        for entry in book.edition.pages
        if entry.kind in ("province", "town", "guild", "ferry", *SOURCES, "river", "craft")
    ]
    calls = path if kind == "oracle" else rng.shuffled(path)
    town = next(e.number for e in book.edition.pages if e.kind == "guild")
    ends = [book.edition.pages[book.place_of[a.args["id"]]] for a in path]
    towns = {
        e.number if e.kind in ("town", "ferry", *SOURCES) else book.edition.town_of[e.number]
        for e in ends
        if e.kind in ("town", "ferry", "guild", *SOURCES)
    } or {town}
    close = [
        (k, n)
        for k, n in near
        if (k in ("town", "ferry", *SOURCES) and n in towns)
        or (k == "guild" and book.edition.town_of[n] in towns)
        or k in ("province", "river", "craft")
    ]
    for _ in range(40):
        draw = rng.below(10)
        if kind == "oracle" or (kind == "mixed" and draw < 3):
            if not calls:
                return
            call = calls[0]
            calls = calls[1:]
        else:
            k, n = rng.choice(close if draw < 7 else near)
            call = Action("open", {"id": book.id(k, n), "part": rng.randint(1, 2)})
        reply = box.call(call.tool, call.args)
        if reply.retry:
            reply = box.call(call.tool, call.args)
        box.observe(reply.seen)
        yield box, reply.text


def compared(episodes: range) -> dict[str, Any]:
    """Plays episodes and compares information with the enumeration at every state."""
    gains, states, gradual = [], 0, 0
    for n in episodes:
        rng = Rng("walk", n)
        template, difficulty = TEMPLATES[n % 6], 1 + n // 6 % 5
        instance = drafted(template, difficulty, n)
        enumeration = Enumeration(instance)
        grader = Run(instance).grader
        last, total, steps = 0.0, 0.0, 0
        for box, text in walk(instance, rng):
            information = grader(box).information
            want = 1 - math.log2(enumeration.left(dict(box.table("seen")))) / 13
            assert information == pytest.approx(want, abs=1e-12), (n, instance.task.id, text)
            assert information >= last
            total += information - last
            steps += information > last
            last = information
            states += 1
        assert total <= 1 + 1e-12
        gains.append(total)
        gradual += steps > 1
    return {"episodes": len(gains), "states": states, "several gains": gradual, "gains": gains}


def test_information_is_what_an_enumeration_finds() -> None:
    """On a sample of 100 episodes; none gains more than 1, and many gain in several steps."""
    found = compared(range(100))
    assert max(found["gains"]) == pytest.approx(1.0) and found["several gains"] > 40


@pytest.mark.slow
def test_information_is_what_an_enumeration_finds_everywhere() -> None:
    """On a thousand."""
    found = compared(range(1000))
    print({**found, "gains": statistics.mean(found["gains"])})
    assert found["episodes"] == 1000 and max(found["gains"]) == pytest.approx(1.0)


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_oracle_learns_step_by_step(template: str) -> None:
    """It ends with all bits, and no page of a longer chain gives all of them."""
    instance = drafted(template, 3, 1)
    run, values = Run(instance), [0.0]
    for action in instance.solution():
        run.do(action)
        values.append(run.grade().information)
    assert values[0] == 0.0 and values[-1] == 1.0 and values == sorted(values)
    assert max(b - a for a, b in pairwise(values)) < 0.7


def test_searching_and_noting_tell_nothing() -> None:
    """Only what was opened counts; a right guess at the worksheet does not."""
    instance = task("chain", 3)
    calls = [a for a in instance.solution() if a.tool != "open"]
    verdict = Run(instance).play(calls).grade()
    assert verdict.information == 0.0 and verdict.success


def test_a_cut_page_tells_nothing() -> None:
    """What did not reach the agent whole was not seen."""
    instance = task("chain", 1)
    short = replace(instance, task=replace(instance.task, max_obs_chars=90))
    verdict = Run(short).play(instance.solution()).grade()
    assert verdict.success and verdict.information == 0.0


# Environments.


def test_blind_agents_see_nothing() -> None:
    """Replies are one fixed text, nothing counts as seen, and what is right stays right."""
    env = gym.make("headway/HopSearch-v0", difficulty=2, blind=True)
    env.reset(seed=4)
    base = env.unwrapped
    for action in base.solution():
        text, reward, terminated, _, info = env.step(action)
        assert text.startswith(f"{UNSEEN}\n") and base.grade().information == 0.0
        assert not base.box.table("seen")
    assert terminated and reward == 1.0 and info["headway"]["verdict"].information == 0.0
    assert env.spec is not None and gym.make(env.spec).unwrapped.blind is True


def test_a_blind_agent_hears_of_its_own_slips() -> None:
    """Text that is no call, and a tool that wants to be called again; no error of a tool."""
    env = gym.make("headway/HopSearch-v0", difficulty=5, template="chain", blind=True).unwrapped
    env.reset(seed=1)
    assert "Error" in env.step("no call at all")[0]
    flaky = next(a for a in env.instance.solution() if a.tool in env.instance.task.flaky)
    assert "busy" in env.step(env.format(flaky.tool, flaky.args))[0]
    text, *_, info = env.step(env.format("open", {"id": "p0"}))
    assert "Error" not in text and [call["error"] for call in info["calls"]] == [True]
    with pytest.raises(ValueError, match="blind"):
        gym.make("headway/HopSearch-v0", blind="yes")
    with pytest.raises(TypeError, match="blind environment has no numeric view"):
        env.actions()


def test_what_was_seen_survives_a_change_of_process() -> None:
    """Forks and stored states go on with the same information."""
    env = gym.make("headway/HopSearch-v0", difficulty=3, template="intersection")
    env.reset(seed=2)
    for action in env.unwrapped.solution()[:5]:
        env.step(action)
    before = env.unwrapped.grade()
    assert 0 < before.information < 1
    twin = headway.fork(env)
    other = gym.make("headway/HopSearch-v0")
    other.reset(seed=0)
    state = json.loads(json.dumps(headway.get_state(env)))
    headway.set_state(other, state)
    assert twin.unwrapped.grade() == before == other.unwrapped.grade()


def test_the_world_is_one_row() -> None:
    """It is registered, plays at three renderings, and says so of a fourth."""
    env = gym.make("headway:headway/HopSearch-v0", split="dev", rendering=1)
    env.reset(seed=0)
    for action in env.unwrapped.solution():
        _, reward, terminated, _, _ = env.step(action)
    assert terminated and reward == 1.0
    with pytest.raises(ValueError, match="rendering"):
        gym.make("headway/HopSearch-v0", rendering=3)


def test_the_transcript_of_the_page_is_real() -> None:
    """``docs/hopsearch.md``: what its program prints is what it quotes."""
    text = (ROOT / "docs" / "hopsearch.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    (quoted,) = re.findall(r"^```text\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    at = 0
    for piece in filter(str.strip, quoted.split("[...]")):
        assert piece.strip() in out.stdout[at:], piece
        at = out.stdout.index(piece.strip(), at)
