"""From a latent world to a task: five ways of telling an agent the same thing.

R0 is a checklist with arguments, R1 ordered goals, R2 the wanted end state, R3 moves the rules into
a document that has to be found, R4 is a vague request to a user who answers questions. The checks
are the same, so the effect of wording can be studied in pairs. R3 and R4 need oracle steps of
their own, the prelude: reading the document, asking the user.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headway.envs.box import Box
from headway.envs.domain import Domain
from headway.envs.rng import Rng
from headway.envs.submit import ASK_USER, SUBMIT, SUBMIT_ANSWER
from headway.envs.task import Clause, Task, TaskKey, digest_of
from headway.envs.tools import Tool
from headway.envs.user import user_table
from headway.envs.world import Action, Draft, LatentWorld, Saying, Step
from headway.verifiers import Acceptance, Check, cap_evidence

OPENINGS = (
    "",
    "Please do the following for me.",
    "I need your help with something.",
    "Here is a job for you.",
    "",
    "Could you take this off my hands?",
)
CLOSINGS = (
    "Change nothing else.",
    "Leave everything else as it is.",
    "Do not touch anything besides this.",
    "Nothing else may be altered.",
    "Everything not mentioned stays untouched.",
    "Keep your hands off all other records.",
)
ASKING = (
    "I will answer your questions.",
    "Ask me whatever you need to know.",
    "If something is unclear, just ask.",
)


@dataclass(frozen=True)
class Instance:
    """A task together with the world behind it, which no agent sees.

    Attributes:
        domain: Where it comes from.
        world: The latent world.
        task: Its rendered view.
        prelude: Oracle steps that the rendering itself needs.
    """

    domain: Domain
    world: LatentWorld
    task: Task
    prelude: tuple[Step, ...]

    @cached_property
    def toolbox(self) -> Mapping[str, Tool]:
        """The tools that the agent has, by name."""
        return {t.name: t for t in tools_of(self.domain, self.task.key.rendering, self.world)}

    @property
    def plan(self) -> tuple[Step, ...]:
        """The oracle's steps, prelude first."""
        return self.prelude + self.world.steps

    def solution(self) -> list[Action]:
        """The oracle's calls, failing ones made again; the last one submits."""
        actions, flaky = [], set(self.task.flaky)
        for action in (action for step in self.plan for action in step.actions):
            again = action.tool in flaky
            flaky.discard(action.tool)
            actions += [action] * (1 + again)
        return actions if self.world.question else [*actions, Action("submit", {})]

    def look(self, box: Box) -> list[Action]:
        """The calls that read everything there is, the user's mind included."""
        asks = [
            Action("ask_user", {"question": c.ask[0]})
            for c in self.task.clauses
            if c.place == "user"
        ]
        return [*self.domain.look(box), *asks]

    def open(self, **other: Tool) -> Box:
        """A fresh box in the initial state, with ``other`` tools in place of those so named."""
        hidden = {"user": user_table(self.task.clauses), "canary": canary(self.task.key)}
        return Box(self.task.tables, {**self.toolbox, **other}, self.task.flaky, hidden)

    def __deepcopy__(self, memo: dict[int, Any]) -> Instance:
        """An instance is a value: siblings share it."""
        return self


def canary(key: TaskKey) -> dict[str, dict[str, str]]:
    """A table with a string by which this task's data is recognised where it should not be."""
    mark = digest_of(["headway canary", str(key)])
    return {"canary": {"text": f"headway-canary-{mark}"}}


def tools_of(domain: Domain, rendering: int, world: LatentWorld) -> tuple[Tool, ...]:
    """The tools of a task: the domain's, ``submit``, and at R4 ``ask_user``."""
    asking = (ASK_USER,) if rendering == 4 else ()
    return (*domain.tools, *asking, SUBMIT_ANSWER if world.question else SUBMIT)


def build(domain: Domain, key: TaskKey) -> Instance:
    """Drafts the world that ``key`` names and renders it; proves nothing (see the contract)."""
    name = (domain.name, domain.version, key.template, key.difficulty, key.split, key.seed)
    draft = Draft(
        Rng(*name, key.attempt, "world"),
        domain.knobs[key.difficulty],
        key.split,
        domain.words[key.split],
        domain.sayings[key.template],
        domain.tables,
        domain.renderings,
    )
    domain.template(key.template).draft(draft)
    rng = Rng(*name, key.attempt, "flaky")
    used = sorted({a.tool for step in draft.steps for a in step.actions if a.tool != "submit"})
    draft.flaky = tuple(rng.sample(used, min(draft.knobs.noise, len(used))))
    return render(domain, key, draft.finish(), Rng(*name, key.attempt, "text", key.rendering))


def render(domain: Domain, key: TaskKey, world: LatentWorld, rng: Rng) -> Instance:
    """The task that shows ``world`` at the level of ``key``, and its prelude."""
    say = _Speaker(world.facts, key.split, rng)
    tables: dict[str, Any] = dict(world.tables)
    prelude: tuple[Step, ...] = ()
    if key.rendering <= 1:
        clauses, instruction = _ordered(say, world, key.rendering)
    elif key.rendering == 2:
        clauses, instruction = _prose(say, world.sayings)
    elif key.rendering == 3:
        clauses, instruction, tables, prelude = _documented(say, domain, world, tables)
    else:
        clauses, instruction, prelude = _vague(say, world)
    acceptance = _acceptance(domain, world, clauses, prelude, digest_of(tables))
    calls = sum(len(s.actions) for s in prelude + world.steps) + len(world.flaky) + 1
    tools = tools_of(domain, key.rendering, world)
    task = Task(
        key=key,
        instruction=instruction,
        clauses=clauses,
        tables=tables,
        tools=tuple(t.name for t in tools),
        acceptance=acceptance,
        flaky=world.flaky,
        max_turns=2 * calls + 10,
        max_obs_chars=domain.max_obs_chars,
        schemas=digest_of([t.schema() for t in tools]),
        grader=domain.grader,
    )
    return Instance(domain, world, task, prelude)


def offered(alternatives: Sequence[str], split: str) -> Sequence[str]:
    """The wordings that a split may use: the last third never occurs in train."""
    cut = len(alternatives) - len(alternatives) // 3
    return alternatives[:cut] if split == "train" else alternatives[cut:]


class _Speaker:
    """Fills wordings with facts and remembers where each fact came to stand."""

    def __init__(self, facts: Mapping[str, str], split: str, rng: Rng) -> None:
        self.facts = facts
        self.split = split
        self.rng = rng

    def pick(self, alternatives: Sequence[str]) -> str:
        return self.rng.choice(offered(alternatives, self.split))

    def fill(self, text: str) -> tuple[str, tuple[tuple[str, int, int], ...]]:
        out, slots = "", []
        for literal, name, _, _ in string.Formatter().parse(text):
            out += literal
            if name is not None:
                value = self.facts[name]
                slots.append((name, len(out), len(out) + len(value)))
                out += value
        return out, tuple(slots)

    def clause(self, saying: Saying, *, imperative: bool) -> Clause:
        text, slots = self.fill(self.pick(saying.do if imperative else saying.want))
        return Clause(saying.id, text, saying.announces, slots, ask=saying.ask)


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _ordered(say: _Speaker, world: LatentWorld, rendering: int) -> tuple[tuple[Clause, ...], str]:
    clauses = [say.clause(s, imperative=True) for s in world.sayings]
    lines = [f"{n}. {c.text}" for n, c in enumerate(clauses, 1)]
    if rendering == 0:
        calls = [_call(world, step, a) for step in world.steps for a in step.actions]
        clauses += calls
        lines += ["Calls that do it:", *(f"- {c.text}" for c in calls)]
    text = "\n".join([*lines, say.pick(CLOSINGS)])
    opening = say.pick(OPENINGS)
    return tuple(clauses), f"{opening}\n{text}" if opening else text


def _call(world: LatentWorld, step: Step, action: Action) -> Clause:
    """One line of the R0 checklist; what has to be worked out is named, not given."""
    text, slots = f"{action.tool}(", []
    for i, (name, value) in enumerate(action.args.items()):
        text += f"{', ' if i else ''}{name}="
        places = _earned_in(world, value)
        if places:
            shown = f"<from {', '.join(places)}>"
        elif name not in action.sources:
            shown = json.dumps(value, ensure_ascii=False)
            slots.append((f"{step.id}.{name}", len(text), len(text) + len(shown)))
        elif action.sources[name]:
            shown = f"<from {', '.join(action.sources[name])}>"
        else:
            shown = "<your choice>"
        text += shown
    return Clause(f"call.{step.id}", text + ")", frozenset(c.id for c in step.checks), tuple(slots))


def _earned_in(world: LatentWorld, value: Any) -> list[str]:
    """Where an argument has to be found out, if any part of it is a secret."""
    parts = value if isinstance(value, list) else [value]
    texts = [f"{part:.2f}" if isinstance(part, float) else part for part in parts]
    found = [s for text in texts for s in world.secrets.values() if s.value == text]
    return list(dict.fromkeys(place for secret in found for place in secret.places))


def _prose(say: _Speaker, sayings: Sequence[Saying]) -> tuple[tuple[Clause, ...], str]:
    """The first saying names the goal and stays first; the others come in any order."""
    told = [*sayings[:1], *say.rng.shuffled(sayings[1:])]
    clauses = tuple(say.clause(s, imperative=False) for s in told)
    text = _join(say.pick(OPENINGS), *(c.text for c in clauses), say.pick(CLOSINGS))
    return clauses, text


def _documented(
    say: _Speaker, domain: Domain, world: LatentWorld, tables: dict[str, Any]
) -> tuple[tuple[Clause, ...], str, dict[str, Any], tuple[Step, ...]]:
    assert domain.document is not None  # else a key of the domain would not ask for this level
    rules = [s for s in world.sayings if s.rule]
    shown, _ = _prose(say, [s for s in world.sayings if not s.rule])
    moved = tuple(replace(say.clause(s, imperative=False), place="document") for s in rules)
    title = say.rng.choice(domain.document.titles[say.split])
    tables, record = domain.document.place(tables, title, " ".join(c.text for c in moved))
    pointer = say.pick(domain.document.phrase).format(title=title)
    start = pointer.index(title)
    where = Clause(
        "document",
        pointer,
        frozenset({"document.read"}),
        (("document", start, start + len(title)),),
    )
    text = _join(say.pick(OPENINGS), *(c.text for c in shown), pointer, say.pick(CLOSINGS))
    check = Check("document.read", "seen", {"records": [record]}, 0.5, evidence=True)
    step = Step("document", (), domain.document.read(title), (check,))
    return (*shown, where, *moved), text, tables, (step,)


def _vague(say: _Speaker, world: LatentWorld) -> tuple[tuple[Clause, ...], str, tuple[Step, ...]]:
    told = tuple(replace(say.clause(s, imperative=False), place="user") for s in world.sayings)
    opening, slots = say.fill(say.pick(world.vague))
    where = Clause("request", opening, frozenset(f"ask.{c.id}" for c in told), slots)
    prelude = tuple(
        Step(
            f"ask.{c.id}",
            (),
            (Action("ask_user", {"question": f"What about the {c.ask[0]}?"}, {"question": ()}),),
            (Check(f"ask.{c.id}", "seen", {"records": [f"user/{c.id}"]}, 0.25, evidence=True),),
        )
        for c in told
    )
    return (where, *told), _join(opening, say.pick(ASKING), say.pick(CLOSINGS)), prelude


def _acceptance(
    domain: Domain,
    world: LatentWorld,
    clauses: Sequence[Clause],
    prelude: Sequence[Step],
    start: str,
) -> Acceptance:
    """Collects checks and footprint; what a hidden clause announces needs its being read."""
    hidden: dict[str, tuple[str, ...]] = {}
    for clause in clauses:
        if clause.place == "instruction":
            continue
        source = "document.read" if clause.place == "document" else f"ask.{clause.id}"
        for check in clause.announces:
            hidden[check] = tuple(dict.fromkeys((*hidden.get(check, ()), source)))
    checks = [check for step in prelude for check in step.checks] + [
        replace(check, needs=check.needs + hidden.get(check.id, ()))
        for step in world.steps
        for check in step.checks
    ]
    return Acceptance(
        checks=cap_evidence(checks),
        writes=tuple(rule for step in world.steps for rule in step.writes),
        voids=domain.voids,
        start=start,
        candidates=world.candidates,
    )
