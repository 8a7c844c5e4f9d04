"""Latent worlds: what a task is before anybody words it.

A template drafts a world: the initial tables, the workflow that solves it, the check that each
step makes true and the clauses that say so. Instruction, tools, checks, oracle and difficulty are
all rendered from that one object, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headway.envs.rng import Rng
from headway.envs.wording import near
from headway.verifiers import Allow, Candidates, Check
from headway.verifiers.view import Row, Table

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Knobs:
    """What difficulty turns.

    Attributes:
        size: Parallel arms of work: bills to pay, meetings to move, people to write to.
        distractors: Near misses among the records for every record that matters.
        traps: How many of a template's traps (old damage, stale facts) are laid.
        noise: How many tools fail on their first call with an error that a retry cures.
    """

    size: int
    distractors: int
    traps: int
    noise: int


@dataclass(frozen=True, slots=True)
class Action:
    """One oracle tool call.

    Attributes:
        tool: Name of the tool.
        args: Its arguments.
        sources: For arguments that are worked out rather than copied, the facts and records
            (``"mail/m3"``) they are worked out from; ``()`` says that any value will do.
        finds: Records that a search must return for the oracle to go on.
    """

    tool: str
    args: Mapping[str, Any]
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    finds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One node of the workflow.

    Attributes:
        id: Unique within the world.
        after: Steps that must be finished before this one.
        actions: What the oracle does.
        checks: What is true once it is done and was not before; at least one.
        writes: What the step may change.

    Raises:
        ValueError: The step leaves no mark, so no check could tell that it was done.
    """

    id: str
    after: tuple[str, ...]
    actions: tuple[Action, ...]
    checks: tuple[Check, ...]
    writes: tuple[Allow, ...] = ()

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError(
                f"step {self.id!r} must have at least one check, got none; merge it into the step "
                "that follows, or give it an evidence check"
            )


@dataclass(frozen=True, slots=True)
class Saying:
    """One thing that the instruction has to say, with its alternative wordings.

    Attributes:
        id: Unique within the world; also the topic that a user is asked about.
        do: Imperatives ("Pay ..."), at least three; the last third is held out of train.
        want: Descriptions of the wanted end state, likewise.
        announces: Checks that a reader can infer from it.
        ask: Words by which a question is recognised as being about it, at least one.
        rule: True for what may move into a document (R3).

    Raises:
        ValueError: There are too few wordings, or no word to ask by.
    """

    id: str
    do: tuple[str, ...]
    want: tuple[str, ...]
    announces: frozenset[str]
    ask: tuple[str, ...]
    rule: bool = False

    def __post_init__(self) -> None:
        for name, texts in (("do", self.do), ("want", self.want)):
            if len(texts) < 3:
                raise ValueError(
                    f"{name} of saying {self.id!r} must have at least 3 wordings, so that one in "
                    f"three can be held out, got {len(texts)}"
                )
        if not self.ask:
            raise ValueError(f"ask of saying {self.id!r} must have at least one word, got none")


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that the agent has to earn.

    Attributes:
        value: As it would be written.
        places: Records (``"mail/m3"``) in which it may stand.
        bits: log2 of how many values it could have had.
    """

    value: str
    places: tuple[str, ...]
    bits: float


@dataclass(frozen=True, slots=True)
class Referent:
    """A phrase of the instruction that must select exactly one record."""

    phrase: str
    table: str
    where: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Naive:
    """A plausible wrong solution, tied to the trap that defeats it.

    Attributes:
        trap: What it falls into.
        instead: Actions by id of the step whose actions they replace.
    """

    trap: str
    instead: Mapping[str, tuple[Action, ...]]


@dataclass(frozen=True)
class LatentWorld:
    """A complete, consistent world; ``Draft.finish`` makes it."""

    tables: Mapping[str, Table]
    steps: tuple[Step, ...]
    facts: Mapping[str, str]
    sayings: tuple[Saying, ...]
    vague: tuple[str, ...]
    secrets: Mapping[str, Secret]
    referents: tuple[Referent, ...]
    distractors: frozenset[str]
    naive: tuple[Naive, ...]
    flaky: tuple[str, ...]
    question: bool
    candidates: Candidates | None = None


class Draft:
    """What a template writes on.

    Attributes:
        rng: The world's stream.
        knobs: How hard it is to be.
        split: ``"train"``, ``"dev"`` or ``"test"``.
        renderings: Levels at which the world has to be told.
        words: Word lists of that split.
        sayings: What the template can say: ``do``, ``want``, ``ask`` and ``rule`` by id (see
            :class:`Saying`), and under ``"vague"`` its wordings of the request at R4.
        tables: Initial state, filled by :meth:`put` and :meth:`add`.
        facts: What the instruction may say, by name; the values are rendered literally.
        question: True when the task wants an answer with the submission.
        candidates: The answers that are possible and what rules them out, where that is known.
        steps: The workflow so far.
    """

    def __init__(
        self,
        rng: Rng,
        knobs: Knobs,
        split: str,
        words: Mapping[str, Sequence[str]],
        sayings: Mapping[str, Any],
        tables: Iterable[str],
        renderings: Sequence[int],
    ) -> None:
        self.rng = rng
        self.knobs = knobs
        self.split = split
        self.renderings = renderings
        self.words = words
        self.sayings = sayings
        self.tables: dict[str, dict[str, Row]] = {name: {} for name in tables}
        self.facts: dict[str, str] = {}
        self.question = False
        self.candidates: Candidates | None = None
        self.flaky: tuple[str, ...] = ()
        self.steps: list[Step] = []
        self._sayings: list[Saying] = []
        self._secrets: dict[str, Secret] = {}
        self._referents: list[Referent] = []
        self._distractors: set[str] = set()
        self._naive: list[Naive] = []
        self._used: list[Any] = []

    def unique(self, draw: Callable[[], T]) -> T:
        """The first value drawn that :meth:`unique` has not returned before.

        Raises:
            ValueError: A hundred draws gave nothing new: the range is too small.
        """
        for _ in range(100):
            value = draw()
            if value not in self._used:
                self._used.append(value)
                return value
        raise ValueError(f"no unused value in 100 draws; {len(self._used)} values are used up")

    def put(self, table: str, key: str, **row: Any) -> str:
        """Places a row under a key of its own and returns its record name, ``table/key``."""
        self.tables[table][key] = row
        return f"{table}/{key}"

    def add(self, table: str, prefix: str, **row: Any) -> str:
        """Places a row under the next free id and returns the id."""
        key = f"{prefix}{len(self.tables[table]) + 1}"
        self.tables[table][key] = row
        return key

    def step(
        self,
        id: str,
        actions: Sequence[Action],
        *checks: Check,
        after: Sequence[str] = (),
        writes: Sequence[Allow] = (),
        makes: bool = False,
    ) -> str:
        """Adds a step and returns its id.

        Args:
            id: Unique within the world.
            actions: What the oracle does.
            *checks: What is true afterwards; they need the checks of the steps in ``after``.
            after: Steps that come before.
            writes: Which rows that are there at reset may change.
            makes: True for a step that makes a row. Nothing but the row that its check wants may
                appear, so a wrong one beside it is damage; and no second one, as the check counts.
        """
        before = tuple(c.id for s in self.steps if s.id in after for c in s.checks)
        linked = tuple(
            Check(c.id, c.kind, c.args, c.weight, c.needs + before, c.evidence, c.superseded_by)
            for c in checks
        )
        made = tuple(_made(check) for check in linked) if makes else ()
        self.steps.append(Step(id, tuple(after), tuple(actions), linked, (*writes, *made)))
        return id

    def say(self, id: str, *, announces: Iterable[str], wording: str | None = None) -> None:
        """Adds one thing that the instruction has to say.

        Args:
            id: Unique within the world.
            announces: Checks that a reader can infer from it.
            wording: The entry of ``sayings`` that words it, where that is not ``id``.

        Raises:
            ValueError: There is no such entry, or it has too little to say.
        """
        name = wording or id
        known = [key for key in self.sayings if key != "vague"]
        if name not in known:
            raise ValueError(f"saying must be one of {known}, got {name!r}{near(name, known)}")
        entry = self.sayings[name]
        do, want, ask = (tuple(entry.get(part, ())) for part in ("do", "want", "ask"))
        rule = entry.get("rule", False)
        self._sayings.append(Saying(id, do, want, frozenset(announces), ask, rule))

    def secret(self, name: str, value: str, *places: str, bits: float) -> None:
        """Declares a value that the agent has to earn."""
        self._secrets[name] = Secret(value, places, bits)

    def referent(self, phrase: str, table: str, **where: Any) -> None:
        """Declares that ``phrase`` selects exactly one row of ``table``."""
        self._referents.append(Referent(phrase, table, where))

    def distract(self, *records: str) -> None:
        """Declares records that a search may return beside the ones the oracle uses."""
        self._distractors.update(records)

    def naive(self, trap: str, instead: Mapping[str, Sequence[Action]]) -> None:
        """Declares a plausible wrong solution."""
        self._naive.append(Naive(trap, {k: tuple(v) for k, v in instead.items()}))

    def answer(
        self, text: str, source: Sequence[str], *, bits: float, places: Sequence[str] = ()
    ) -> str:
        """Makes the task a question: the last step submits ``text``, a number or a date.

        Args:
            text: The answer.
            source: Facts and records from which it is worked out.
            bits: log2 of how many values it could have had.
            places: Records in which it stands as it is.
        """
        self.question = True
        self.secret("answer", text, *places, bits=bits)
        check = Check(
            "answer", "rows", {"table": "submission", "where": {"answer": {"typed": [text]}}}
        )
        action = Action("submit", {"answer": text}, {"answer": tuple(source)})
        return self.step("answer", [action], check, after=[s.id for s in self.steps])

    def finish(self) -> LatentWorld:
        """The world as a value.

        Raises:
            ValueError: A rendering lacks something to say.
        """
        vague = tuple(self.sayings.get("vague", ()))
        if 4 in self.renderings and len(vague) < 3:
            raise ValueError(f"vague must have at least 3 wordings, got {len(vague)}")
        rules = [saying.id for saying in self._sayings if saying.rule]
        if 3 in self.renderings and (not rules or self._sayings[0].rule):
            raise ValueError(
                "the first saying must state the goal and at least one later one be a rule, got "
                f"sayings {[s.id for s in self._sayings]} with rules {rules}"
            )
        return LatentWorld(
            tables={name: dict(rows) for name, rows in self.tables.items()},
            steps=tuple(self.steps),
            facts=dict(self.facts),
            sayings=tuple(self._sayings),
            vague=vague,
            secrets=dict(self._secrets),
            referents=tuple(self._referents),
            distractors=frozenset(self._distractors),
            naive=tuple(self._naive),
            flaky=self.flaky,
            question=self.question,
            candidates=self.candidates,
        )


def _made(check: Check) -> Allow:
    keys = (check.args["key"],) if "key" in check.args else ()
    return Allow(check.args["table"], keys, new=check.args["where"])


def order(steps: Sequence[Step], rng: Rng) -> list[Step]:
    """A random topological order of ``steps``."""
    left, out = list(steps), list[Step]()
    done: set[str] = set()
    known = {s.id for s in steps}
    while left:
        ready = [s for s in left if (set(s.after) & known) <= done]
        step = rng.choice(ready)
        left.remove(step)
        done.add(step.id)
        out.append(step)
    return out


def expected(checks: Sequence[Check], done: Iterable[Step]) -> float:
    """Progress that the specification predicts once the steps ``done`` are finished."""
    true = {c.id for step in done for c in step.checks}
    return sum(c.weight for c in checks if c.id in true) / sum(c.weight for c in checks)
