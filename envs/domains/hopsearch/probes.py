"""What the contract tries on every task of this world: guesses, looks, damage, honest variants."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from headway.envs.box import Box
from headway.envs.domains.hopsearch.edition import MONTHS
from headway.envs.domains.hopsearch.templates import LETTERS
from headway.envs.rng import Rng
from headway.envs.world import Action, LatentWorld, Step

_DATE = re.compile(rf"(\d+) ({'|'.join(MONTHS)}) (\d+)")


def guess(box: Box, rng: Rng) -> Action:
    """A valid random call, with ids, titles and lines as they occur."""
    pages = box.table("pages")
    ids = list(pages)

    def title() -> str:
        return str(pages[rng.choice(ids)]["title"])

    kind = rng.below(3)
    if kind == 0:
        return Action("search", {"query": title(), "k": rng.randint(1, 10)})
    if kind == 1:
        return Action("open", {"id": rng.choice(ids), "part": rng.randint(1, 2)})
    line = f"{rng.choice(LETTERS)}{rng.randint(2, 9)}"
    return Action("note", {"line": line, "value": title(), "source": "a guess"})


def look(box: Box) -> list[Action]:
    """The calls that read on until the budget refuses, and some more."""
    most = box.table("book")["print"]["budget"] + 3
    return [
        Action("open", {"id": id, "part": part})
        for id in islice(box.table("pages"), most)
        for part in (2, 1)
    ]


def stray(world: LatentWorld, rng: Rng) -> list[Action]:
    """Calls that damage something outside any footprint, one of each kind."""
    asked = {value for name, value in world.facts.items() if name.startswith("line_")}
    lines = [f"{letter}{digit}" for letter in LETTERS for digit in range(2, 10)]
    line = rng.choice([line for line in lines if line not in asked])
    return [
        Action("note", {"line": line, "value": "somebody", "source": ""}),
        Action("note", {"line": f"{rng.choice(sorted(asked))}b", "value": "Ann", "source": "x"}),
    ]


def _calls(plan: Sequence[Step]) -> list[Action]:
    return [action for step in plan for action in step.actions]


def _rewritten(plan: Sequence[Step], tool: str, **change: Callable[[Any], Any]) -> list[Action]:
    """The oracle's calls with arguments of one tool written otherwise."""
    return [
        replace(a, args={**a.args, **{name: to(a.args[name]) for name, to in change.items()}})
        if a.tool == tool
        else a
        for a in _calls(plan)
    ]


def loud_notes(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """Findings in capitals, lines in small letters."""
    return _rewritten(plan, "note", value=str.upper, line=str.lower)


def wordy_notes(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """Findings with an article and a full stop."""
    return _rewritten(plan, "note", value=lambda name: f" The {name}. ")


def answer_in_a_sentence(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """The answer in a sentence."""
    return _rewritten(plan, "submit", answer=lambda text: f"It says {text} on the roll.")


def other_notation(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """A number with a comma, a date in ISO form."""

    def other(text: str) -> str:
        found = _DATE.fullmatch(text)
        if found is None:
            return f"{int(text):,}"
        return f"{found[3]}-{MONTHS.index(found[2]) + 1:02d}-{int(found[1]):02d}"

    return _rewritten(plan, "submit", answer=other)


def notes_last(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """Everything is read before anything is noted, then in another order."""
    calls = _calls(plan)
    notes = rng.shuffled([a for a in calls if a.tool == "note"])
    reads = [a for a in calls if a.tool not in ("note", "submit")]
    return [*reads, *notes, *(a for a in calls if a.tool == "submit")]


def corrected(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """A finding on the wrong line is erased, a wrong one is written over."""
    calls = _calls(plan)
    first = next(a for a in calls if a.tool == "note")
    slip = replace(first, args={**first.args, "line": "Z1"})
    wrong = replace(first, args={**first.args, "value": "Nobody"})
    return [slip, wrong, replace(slip, args={**slip.args, "value": ""}), *calls]


def other_searches(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """More hits, other case, another word; what was opened is opened again."""
    out = []
    for action in _calls(plan):
        if action.tool == "search":
            action = replace(action, args={"query": f"{action.args['query'].upper()} ?", "k": 10})
        out += [action] * (1 + (action.tool == "open"))
    return out


VARIANTS = {
    "findings in capitals": loud_notes,
    "findings with an article": wordy_notes,
    "the answer in a sentence": answer_in_a_sentence,
    "another notation": other_notation,
    "notes at the end": notes_last,
    "mistakes corrected": corrected,
    "other searches": other_searches,
}

UNDO = {
    "note": lambda made: Action("note", {"line": made["line"], "value": "", "source": "slip"}),
}
