"""Proof that a task is sound. No task reaches an agent before it has passed.

Each check below answers one way in which published benchmarks were wrong: passes without work,
wrong gold, unsolvable, information missing, ambiguous, hidden requirements, valid alternatives
refused, junk accepted, answers reachable, not deterministic. A miss of the checks in
``RESAMPLED`` rejects the world (chance can cause it); any other miss is a fault of the generator.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headway.envs.attempts import Call, honest, wrong
from headway.envs.box import Box, Reply
from headway.envs.domain import Domain
from headway.envs.render import Instance, build
from headway.envs.rng import Rng
from headway.envs.task import TaskKey
from headway.envs.world import Action, Step, expected, order
from headway.verifiers import EVIDENCE_SHARE, Grader, Verdict
from headway.verifiers.kinds.tables import where

RESAMPLED = ("policies", "uniqueness", "leak", "budget")
ATTEMPTS = 10
ORDERS = 3
RANDOM_RUNS = 3
RANDOM_MOST = 0.05
ANSWER_BITS = 6
_WORDS = re.compile(r"[^\s\"'(),;:!?<>]+")

_MONEY = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Miss:
    """One way in which a task is unsound.

    Attributes:
        check: Name of the contract's check.
        detail: What was found.
    """

    check: str
    detail: str


class UnsoundTask(RuntimeError):
    """The generator made a task that fails the contract.

    Attributes:
        misses: Everything that was found.
    """

    def __init__(self, message: str, misses: Sequence[Miss] = ()) -> None:
        super().__init__(message)
        self.misses = tuple(misses)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was proved of one task.

    Attributes:
        task_id: The task.
        digest: Its digest, which covers the grader.
        grader: Version of the check kinds.
        calls: Oracle calls, the submission included.
        mutants: Wrong solutions refused.
        variants: Other right solutions accepted.
        random_progress: Mean progress of the random policy.
        reader_progress: Progress of reading everything.
        ms: What the proof took.
    """

    task_id: str
    digest: str
    grader: str
    calls: int
    mutants: int
    variants: int
    random_progress: float
    reader_progress: float
    ms: float


class Run:
    """One way through a task: a box, its grader, and evidence that really arrived."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.box: Box = instance.open()
        self.grader = Grader(instance.task.acceptance, instance.domain.kinds)

    def fork(self) -> Run:
        """A sibling from here on."""
        twin = object.__new__(Run)
        twin.instance, twin.box, twin.grader = self.instance, self.box.fork(), self.grader.copy()
        return twin

    def do(self, action: Action) -> Reply:
        """One call, made again if it asks for that."""
        reply = self.box.call(action.tool, action.args)
        if reply.retry:
            reply = self.box.call(action.tool, action.args)
        if len(reply.text) <= self.instance.task.max_obs_chars:
            self.box.observe(reply.seen)
        return reply

    def play(self, calls: Iterable[Call]) -> Run:
        """All of the calls; a function is given what the call before it returned."""
        value = None
        for call in calls:
            value = self.do(call if isinstance(call, Action) else call(value)).value
        return self

    def grade(self) -> Verdict:
        """The verdict here."""
        return self.grader(self.box)

    def same_world(self, other: Run) -> bool:
        """Whether both have come to the same state."""
        names = (*self.box.names(), "submission")
        return all(self.box.table(n) == other.box.table(n) for n in names)


def certify(domain: Domain, key: TaskKey) -> tuple[Instance, Certificate]:
    """The first sound task of a seed, and its proof.

    Raises:
        UnsoundTask: A world failed a check that chance cannot explain, or ``ATTEMPTS`` worlds in
            a row were rejected.
    """
    misses: tuple[Miss, ...] = ()
    for _ in range(ATTEMPTS):
        instance = build(domain, key)
        misses, certificate = examine(instance)
        if not misses:
            return instance, certificate
        bad = [m for m in misses if m.check not in RESAMPLED]
        if bad:
            first = f"{bad[0].check}: {bad[0].detail}"
            raise UnsoundTask(f"task {key} fails the contract: {first}", bad)
        key = key.next_attempt()
    text = f"{ATTEMPTS} worlds up to {key} were rejected, last for {misses[0]}"
    raise UnsoundTask(text, misses)


def examine(instance: Instance, *, mutants: int = 28) -> tuple[tuple[Miss, ...], Certificate]:
    """Checks 1 to 12 on one task; 13 (bytes) and 14 (clean-up) need other processes.

    Args:
        instance: The task.
        mutants: At most this many wrong solutions are tried, a fair sample of all.
    """
    started = time.perf_counter()
    exam = _Exam(instance, mutants)
    for check in CHECKS.values():
        check(exam)
    return tuple(exam.misses), Certificate(
        task_id=instance.task.id,
        digest=instance.task.digest,
        grader=instance.task.grader,
        calls=len(instance.solution()),
        mutants=exam.refused,
        variants=exam.accepted,
        random_progress=exam.random_progress,
        reader_progress=exam.reader_progress,
        ms=1000 * (time.perf_counter() - started),
    )


class _Exam:
    """What the checks share: the task, the oracle's run, the misses found so far."""

    def __init__(self, instance: Instance, mutants: int) -> None:
        self.instance = instance
        self.world = instance.world
        self.task = instance.task
        self.plan = instance.plan
        self.most_mutants = mutants
        self.rng = Rng("contract", instance.task.id)
        self.misses: list[Miss] = []
        self.refused = self.accepted = 0
        self.random_progress = self.reader_progress = 0.0

    def miss(self, check: str, detail: str) -> None:
        self.misses.append(Miss(check, detail[:300]))

    @cached_property
    def oracle(self) -> list[tuple[Run, list[Reply], list[Verdict]]]:
        """Per step: the run before it, the replies and the verdict after each action."""
        run, out = Run(self.instance), []
        for step in self.plan:
            before, replies, verdicts = run.fork(), [], []
            for action in step.actions:
                replies.append(run.do(action))
                verdicts.append(run.grade())
            out.append((before, replies, verdicts))
        self.final = run
        return out

    @cached_property
    def orders(self) -> list[list[Step]]:
        """The plan in other orders that its edges allow, the prelude first."""
        return [
            order(self.instance.prelude, self.rng) + order(self.world.steps, self.rng)
            for _ in range(ORDERS)
        ]


def _no_op(exam: _Exam) -> None:
    """1. Nothing done is nothing earned; no check holds at reset."""
    verdict = Run(exam.instance).grade()
    if verdict.status != "ok":
        exam.miss("no-op", f"no verdict at reset: {verdict.reason}")
    elif verdict.progress != 0 or verdict.success:
        true = [name for name, ok in verdict.ok.items() if ok]
        exam.miss("no-op", f"progress {verdict.progress} at reset, already true: {true}")
    elif verdict.violations:
        exam.miss("no-op", f"violations at reset: {verdict.violations}")


def _oracle(exam: _Exam) -> None:
    """2 and 3. The oracle makes no error, never loses progress, gains what the spec predicts."""
    last, done = 0.0, []
    for step, (_, replies, verdicts) in zip(exam.plan, exam.oracle, strict=True):
        before = last
        for action, reply, verdict in zip(step.actions, replies, verdicts, strict=True):
            if reply.error:
                exam.miss("oracle", f"{step.id}: {action.tool}: {reply.text}")
            if not verdict.progress >= last:
                exam.miss("oracle", f"{step.id}: {action.tool}: {last} fell to {verdict.progress}")
            last = verdict.progress
        if not last > before:
            exam.miss("oracle", f"{step.id} leaves no mark: progress stays {last}")
        done.append(step)
        _expect(exam, "prefix", verdicts[-1] if verdicts else None, done)
    if not exam.final.grade().success:
        exam.miss("oracle", f"ends without success: {_open(exam.final.grade())}")


def _expect(exam: _Exam, check: str, verdict: Verdict | None, done: Sequence[Step]) -> None:
    want = expected(exam.task.acceptance.checks, done)
    if verdict is None or abs(verdict.progress - want) > 1e-9:
        got = None if verdict is None else verdict.progress
        exam.miss(check, f"after {done[-1].id}: progress {got}, the spec predicts {want}")


def _open(verdict: Verdict) -> str:
    missing = [name for name, ok in verdict.ok.items() if not ok]
    return f"open {missing}, violations {list(verdict.violations)}, {verdict.reason}"


def _orders(exam: _Exam) -> None:
    """4. Any order that the edges allow succeeds, with the predicted value after every step."""
    for steps in exam.orders:
        run, done = Run(exam.instance), []
        for step in steps:
            for action in step.actions:
                run.do(action)
            done.append(step)
            _expect(exam, "orders", run.grade(), done)
        if not run.grade().success:
            exam.miss("orders", f"{[s.id for s in steps]}: {_open(run.grade())}")


def _policies(exam: _Exam) -> None:
    """5. Random play never succeeds and earns next to nothing; reading everything earns its cap."""
    total, wins = 0.0, 0
    for _ in range(RANDOM_RUNS):
        run = Run(exam.instance)
        for _ in range(exam.task.max_turns):
            run.do(exam.instance.domain.guess(run.box, exam.rng))
        verdict = run.grade()
        total += verdict.progress
        wins += verdict.success
    exam.random_progress = total / RANDOM_RUNS
    if exam.task.key.difficulty >= exam.instance.domain.random_from:
        if wins:
            exam.miss("policies", "a random policy succeeded")
        if not exam.random_progress <= RANDOM_MOST:
            exam.miss("policies", f"random progress {exam.random_progress}, at most {RANDOM_MOST}")
    run = Run(exam.instance)
    verdict = run.play(exam.instance.look(run.box)).grade()
    exam.reader_progress = verdict.progress
    if verdict.success or not verdict.progress <= EVIDENCE_SHARE + 1e-9:
        exam.miss("policies", f"reading everything earns {verdict.progress}")


def _mutants(exam: _Exam) -> None:
    """6. Wrong solutions fail, unless they come to the oracle's very state."""
    tried = exam.rng.sample(
        found := wrong(exam.instance, exam.plan, exam.rng), min(exam.most_mutants, len(found))
    )
    starts = [before for before, _, _ in exam.oracle]
    for name, at, actions in tried:
        run = starts[at].fork() if at < len(starts) else exam.final.fork()
        verdict = run.play(actions).grade()
        if verdict.success and not run.same_world(exam.final):
            exam.miss("mutants", f"{name} succeeds")
        exam.refused += not verdict.success


def _variants(exam: _Exam) -> None:
    """7. Other honest ways succeed."""
    for name, actions in honest(exam.instance, exam.plan, exam.rng):
        verdict = Run(exam.instance).play(actions).grade()
        if verdict.success:
            exam.accepted += 1
        else:
            exam.miss("variants", f"{name} is refused: {_open(verdict)}")


def _provenance(exam: _Exam) -> None:
    """8. Every oracle argument is given in a slot, was shown before, or follows from such facts."""
    for clause in exam.task.clauses:
        for fact, start, end in clause.slots:
            if fact in exam.world.facts and clause.text[start:end] != exam.world.facts[fact]:
                exam.miss(
                    "provenance", f"slot {fact!r} of {clause.id!r} holds {clause.text[start:end]!r}"
                )
    for steps in [list(exam.plan), *exam.orders]:
        run, known = Run(exam.instance), _Known(exam.instance)
        for step in steps:
            for action in step.actions:
                missing = known.missing(action)
                if missing:
                    exam.miss("provenance", f"{step.id}: {action.tool}: {missing}")
                known.hear(run.do(action))


def _coverage(exam: _Exam) -> None:
    """9. Every acting check is announced by a clause; every clause announces a check."""
    checks = {check.id: check for check in exam.task.acceptance.checks}
    announced = {name for clause in exam.task.clauses for name in clause.announces}
    for name, check in checks.items():
        if not check.evidence and name not in announced:
            exam.miss("coverage", f"no clause announces check {name!r}")
    for clause in exam.task.clauses:
        if not clause.announces & checks.keys():
            exam.miss("coverage", f"clause {clause.id!r} announces no check")


def _uniqueness(exam: _Exam) -> None:
    """10. A phrase selects one record; a search returns what is used, or declared distractors."""
    for referent in exam.world.referents:
        match = where(referent.where)
        hits = [k for k, row in exam.task.tables[referent.table].items() if match(row)]
        if len(hits) != 1:
            exam.miss("uniqueness", f"{referent.phrase!r} selects {hits}")
    for step, (_, replies, _) in zip(exam.plan, exam.oracle, strict=True):
        for action, reply in zip(step.actions, replies, strict=True):
            lost = set(action.finds) - set(reply.listed)
            twins = set(reply.listed) - set(action.finds) - exam.world.distractors
            if action.finds and (lost or twins):
                exam.miss(
                    "uniqueness", f"{step.id}: search lost {sorted(lost)}, added {sorted(twins)}"
                )


def _leak(exam: _Exam) -> None:
    """11. No secret stands where it has not been earned; answers cannot be guessed."""
    schemas = json.dumps([t.schema() for t in exam.instance.toolbox.values()], ensure_ascii=False)
    texts = {"the instruction": exam.task.instruction, "the tools": schemas}
    texts |= {f"clause {c.id}": c.text for c in exam.task.clauses}
    for name, table in exam.task.tables.items():
        texts |= {f"{name}/{key}": f"{key}\n{_flat(row)}" for key, row in table.items()}
    for name, secret in exam.world.secrets.items():
        unknown = [place for place in secret.places if place not in texts]
        if unknown:
            exam.miss("provenance", f"{name} may stand in {unknown}, which is not there")
        for place, text in texts.items():
            if secret.value in text and place not in secret.places and stands(secret.value, text):
                exam.miss("leak", f"{name} ({secret.value!r}) stands in {place}")
        if name == "answer" and not secret.bits >= ANSWER_BITS:
            exam.miss("leak", f"the answer has {secret.bits} bits, at least {ANSWER_BITS}")


def stands(value: str, text: str) -> bool:
    """Whether ``value`` stands in ``text`` by itself, not as part of a longer word or number."""
    return re.search(rf"(?<![\w.]){re.escape(value)}(?![\w]|\.\d)", text) is not None


def _budget(exam: _Exam) -> None:
    """12. The oracle needs at most half of the turns, and no observation is cut."""
    calls = len(exam.instance.solution())
    if calls > exam.task.max_turns / 2:
        exam.miss("budget", f"{calls} calls of {exam.task.max_turns} turns")
    longest = max((len(r.text) for _, replies, _ in exam.oracle for r in replies), default=0)
    if longest > exam.task.max_obs_chars:
        exam.miss("budget", f"an observation of {longest}, at most {exam.task.max_obs_chars}")


CHECKS: Mapping[str, Callable[[_Exam], None]] = {
    "no-op": _no_op,
    "oracle": _oracle,
    "orders": _orders,
    "policies": _policies,
    "mutants": _mutants,
    "variants": _variants,
    "provenance": _provenance,
    "coverage": _coverage,
    "uniqueness": _uniqueness,
    "leak": _leak,
    "budget": _budget,
}
"""Checks 1 to 12; 3, the exact prefix, is part of ``oracle``."""


class _Known:
    """What somebody knows who has read the instruction and every reply so far."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.tools = instance.toolbox
        self.texts: set[str] = set()
        self.words: set[str] = set()
        self.prose: set[str] = set()
        self.facts: set[str] = set()
        self.records: set[str] = set()
        self.hidden = [c for c in instance.task.clauses if c.place != "instruction"]
        for clause in instance.task.clauses:
            if clause.place == "instruction":
                self._tell(clause)

    def _tell(self, clause: Any) -> None:
        self.prose.update(word.rstrip(".") for word in _WORDS.findall(clause.text))
        for fact, start, end in clause.slots:
            self.facts.add(fact)
            self._add(clause.text[start:end])

    def _add(self, text: str) -> None:
        self.texts.add(text)
        for word in _WORDS.findall(text):
            self.words.update((word, word.rstrip(".")))
            if _MONEY.fullmatch(word.rstrip(".")):
                self.words.add(str(float(word.rstrip("."))))

    def hear(self, reply: Reply) -> None:
        """Takes in what a call returned."""
        self.records.update(reply.seen)
        for text in _strings(reply.value):
            self._add(text)
            for clause in self.hidden:
                if clause.text in text:
                    self._tell(clause)

    def missing(self, action: Action) -> list[str]:
        """Arguments of ``action`` that cannot be known yet."""
        out = []
        looking = not self.tools[action.tool].writes
        for name, value in action.args.items():
            sources = action.sources.get(name)
            if sources is not None:
                lacks = [s for s in sources if s not in self.facts and s not in self.records]
                out += [f"{name} is worked out from {lacks}, not known yet"] if lacks else []
                continue
            for text in _strings(value):
                if text in self.texts:
                    continue
                lost = [
                    word
                    for word in _WORDS.findall(text)
                    if word not in self.words and not (looking and word in self.prose)
                ]
                out += [f"{name}={text!r}: nobody has said {lost}"] if lost else []
        return out


def _strings(value: Any) -> Iterable[str]:
    """Every text in plain data, keys aside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
    elif value is not None:
        yield str(value)


def _flat(row: Mapping[str, Any]) -> str:
    return "\n".join(_strings(row))
