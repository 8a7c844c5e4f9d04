"""What is true now: named checks over a state, and the verdict that grades it.

``grade(acceptance, state)`` is the one place where progress is computed; every dense reward in
headway is a function of the :class:`Verdict` it returns.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import Any, Literal

from headway.arguments import nearest
from headway.verifiers.answer import Candidates
from headway.verifiers.kinds.tables import where
from headway.verifiers.view import Gradable, Kind, Row, Table, View

EVIDENCE_SHARE = 0.15
"""Evidence checks (the agent saw a record) carry at most this share of a task's weight."""

UNFINISHED = 0.999
"""Progress of a state that is not a success stays at or below this."""


@dataclass(frozen=True, slots=True)
class Change:
    """One net difference between the present state and the state at reset.

    Attributes:
        table: Name of the table.
        key: Key of the row in it.
        kind: ``"new"`` (the agent made the row), ``"edited"`` or ``"deleted"``.
        fields: Names of the fields that differ; of a new or deleted row, all of them.
        row: The row as it stands; of a deleted row, as it was.
    """

    table: str
    key: str
    kind: Literal["new", "edited", "deleted"]
    fields: tuple[str, ...]
    row: Row


@dataclass(frozen=True, slots=True)
class Check:
    """One named condition on the state, as data.

    Attributes:
        id: Unique within a task and namespaced by its step, for example ``"pay.northgate"``.
        kind: Name of the :class:`Kind` that decides it.
        args: Plain JSON arguments of the kind.
        weight: Share of progress before normalisation, > 0.
        needs: Ids of checks that must count before this one counts.
        evidence: True when it says what the agent has seen, not what it has done. Such a check
            also holds once a check that needs it counts, so a route that never looked is no worse.
        superseded_by: Ids of checks whose success erases this one's mark.
    """

    id: str
    kind: str
    args: Mapping[str, Any]
    weight: float = 1.0
    needs: tuple[str, ...] = ()
    evidence: bool = False
    superseded_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A check without what it wants: its place in the graph of a task, which gives nothing away."""

    id: str
    weight: float
    needs: tuple[str, ...]
    evidence: bool


@dataclass(frozen=True, slots=True)
class Allow:
    """One rule of a task's footprint: a change that the task may make.

    Attributes:
        table: Name of the table.
        keys: Rows that the rule is about.
        fields: Fields of those rows that may differ, if they stood there at reset.
        new: Conditions (as in the ``rows`` kind) under which a row that the agent made is
            allowed, under one of ``keys`` if there are any; None allows no new row.
    """

    table: str
    keys: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    new: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Verdict:
    """What :func:`grade` found.

    Attributes:
        progress: In [0, 1]; NaN without a verdict. 1.0 exactly when ``success``, but always 0.0
            where there is nothing to do: no check that was not true from the start.
        success: Every check counts, every guard holds, nothing else was changed.
        ok: Whether each check counts, by id.
        violations: What was changed outside the footprint, and guards that no longer hold.
        status: ``"ok"``, or ``"no_verdict"`` when the grader itself failed.
        reason: Why there is no verdict; empty otherwise.
        attempted: Something differs from the state at reset, and it was handed in: by the agent,
            or by the end of the episode, which is graded as if submitted.
        fingerprint: Identifies checks, weights, guards, footprint and initial state; verdicts
            compare only under equal fingerprints.
        nodes: The checks that it was graded by, without what they want.
        information: Share of the hidden answer's initial bits that the agent has seen settled, in
            [0, 1]; None where the task has no candidates, and without a verdict.
    """

    progress: float
    success: bool
    ok: Mapping[str, bool]
    violations: tuple[str, ...] = ()
    status: Literal["ok", "no_verdict"] = "ok"
    reason: str = ""
    attempted: bool = False
    fingerprint: str = ""
    nodes: tuple[Node, ...] = field(default=(), repr=False)
    information: float | None = None

    def __eq__(self, other: object) -> bool:
        """Field by field, with NaN equal to NaN: one state has one verdict."""
        if not isinstance(other, Verdict):
            return NotImplemented
        mine, theirs = self.plain(), other.plain()
        a, b = mine.pop("progress"), theirs.pop("progress")
        return mine == theirs and (a == b or (math.isnan(a) and math.isnan(b)))

    def plain(self) -> dict[str, Any]:
        """The fields as plain data, without ``nodes``, which the fingerprint stands for."""
        found = {**vars(self), "ok": dict(self.ok)}
        del found["nodes"]
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Verdict:
        """A verdict is a value: siblings share it."""
        return self

    __hash__ = None  # type: ignore[assignment]  # holds a mapping


@dataclass(frozen=True)
class Acceptance:
    """Everything that decides a verdict, as data.

    Attributes:
        checks: What has to become true; a check comes after all that it needs.
        guards: What has to stay true: violations when they fail, never progress.
        writes: The footprint; any other net change is a violation.
        voids: Per table the conditions under which a row *the agent made* is no change at all (a
            payment that was refunded). What stood there at reset must be back exactly as it was.
        start: Digest of the initial state, part of the fingerprint.
        candidates: The answers that are possible at reset, and what rules them out; None where the
            task asks nothing, or nothing of the kind is known.

    Raises:
        ValueError: Two checks share an id, a weight is not a positive number, or a check needs
            one that does not come before it.
    """

    checks: tuple[Check, ...]
    guards: tuple[Check, ...] = ()
    writes: tuple[Allow, ...] = ()
    voids: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    start: str = ""
    candidates: Candidates | None = None

    def __post_init__(self) -> None:
        known: set[str] = set()
        for check in self.checks + self.guards:
            if check.id in known:
                raise ValueError(f"check ids must be unique, got {check.id!r} twice")
            if not (check.weight > 0 and math.isfinite(check.weight)):
                raise ValueError(
                    f"weight of check {check.id!r} must be finite and > 0, got {check.weight!r}"
                )
            missing = [name for name in check.needs if name not in known]
            if missing:
                raise ValueError(
                    f"check {check.id!r} needs {missing}, which must come before it; "
                    f"before it are {sorted(known)}"
                )
            known.add(check.id)

    def as_json(self) -> dict[str, Any]:
        """All of the above as plain data, for digests; without ``candidates`` where there are none.

        So a task that has none keeps the digest that it had before there were any.
        """
        out = asdict(self if self.candidates is None else replace(self, candidates=None))
        del out["candidates"]
        return out if self.candidates is None else {**out, "candidates": self.candidates.as_json()}

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The checks without what they want."""
        return tuple(Node(c.id, c.weight, c.needs, c.evidence) for c in self.checks)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all of the above, 16 hex digits."""
        text = json.dumps(self.as_json(), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def cap_evidence(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Scales evidence weights down until they are at most ``EVIDENCE_SHARE`` of the total.

    Without the cap a policy that reads everything and does nothing earned up to 24 % (measured).
    """
    acting = sum(c.weight for c in checks if not c.evidence)
    seen = sum(c.weight for c in checks if c.evidence)
    most = acting * EVIDENCE_SHARE / (1 - EVIDENCE_SHARE)
    if seen <= most or not acting:
        return tuple(checks)
    return tuple(replace(c, weight=c.weight * most / seen) if c.evidence else c for c in checks)


class Grader:
    """Grades the states of one episode against one :class:`Acceptance`.

    A check is decided again only when a table it reads has been replaced, so a turn that wrote
    one mail does not pay for the calendar. The cache keys on the table objects themselves;
    ``copy()`` gives a sibling its own cache.

    Args:
        acceptance: What to check.
        kinds: Check kinds by name.

    Raises:
        ValueError: A check names an unknown kind, or its arguments do not fit the kind.
    """

    def __init__(self, acceptance: Acceptance, kinds: Mapping[str, Kind]) -> None:
        self.acceptance = acceptance
        self.checks = acceptance.checks + acceptance.guards
        self._tests: list[Callable[[View], bool]] = []
        self._readers: dict[str, list[int]] = {}
        for index, check in enumerate(self.checks):
            kind = kinds.get(check.kind)
            if kind is None:
                raise ValueError(
                    f"kind of check {check.id!r} must be one of {sorted(kinds)}, "
                    f"got {check.kind!r}{nearest(check.kind, kinds)}"
                )
            self._tests.append(_guarded(check, kind))
            tables = kind.reads(check.args)
            if not tables:
                raise ValueError(f"kind {check.kind!r} must read a table, else nothing decides it")
            for name in tables:
                self._readers.setdefault(name, []).append(index)
        self._plan = _Plan(acceptance.checks, acceptance.guards)
        self._allowed = _Footprint(acceptance)
        self._holds: list[bool] = [False] * len(self.checks)
        self._tables: dict[str, Table] = {}
        self._damage: dict[str, tuple[bool, tuple[str, ...]]] = {}
        self._changed: tuple[bool, list[str]] | None = None
        self._names: tuple[str, ...] = ()
        self._order: tuple[str, ...] = tuple(self._readers)
        self._last: tuple[Hashable, Verdict] | None = None
        self._counted: tuple[dict[str, bool], float, list[str]] | None = None
        self._fingerprint = acceptance.fingerprint
        self._nodes = acceptance.nodes
        self._settled: tuple[Table, float] | None = None

    def copy(self) -> Grader:
        """A grader over the same acceptance whose cache goes its own way."""
        twin = object.__new__(Grader)
        twin.__dict__ = dict(self.__dict__)
        twin._holds = list(self._holds)
        twin._tables = dict(self._tables)
        twin._damage = dict(self._damage)
        return twin

    def __call__(self, state: Gradable) -> Verdict:
        """The verdict on ``state`` as it stands; a failure of the grader is *no verdict*."""
        try:
            stamp = state.stamp()
            if self._last is None or stamp != self._last[0]:
                self._last = (stamp, self._grade(state))
            return self._last[1]
        except Exception as error:  # whatever a kind or an adapter raises is our fault, not a 0
            self._tables.clear()
            self._counted = None
            self._damage.clear()
            self._changed = None
            self._last = None
            return Verdict(
                progress=math.nan,
                success=False,
                ok={},
                status="no_verdict",
                reason=f"{type(error).__name__}: {error}"[:500],
                fingerprint=self.acceptance.fingerprint,
                nodes=self._nodes,
            )

    def _grade(self, state: Gradable) -> Verdict:
        names = tuple(state.names())
        if names != self._names:
            self._names = names
            self._tables.clear()
            self._changed = None
            self._order = tuple(dict.fromkeys((*self._readers, *names)))
        turned = False
        read, known = state.table, self._tables.get
        for name in self._order:
            table = read(name)
            if known(name) is table:
                continue
            for index in self._readers.get(name, ()):
                holds = self._tests[index](state)
                turned = turned or holds is not self._holds[index]
                self._holds[index] = holds
            if name in names:
                moved = changes(name, state.start.table(name), table)
                self._damage[name] = self._allowed.judge(name, moved)
                self._changed = None
            self._tables[name] = table
        if turned or self._counted is None:
            marks = self._plan.stands(self._holds)
            ok, base = self._plan.counts(marks)
            guards = self.checks[len(self.acceptance.checks) :]
            held = marks[len(self.acceptance.checks) :]
            failed = [f"guard {g.id}" for g, h in zip(guards, held, strict=True) if not h]
            self._counted = (ok, base, failed)
        ok, base, failed = self._counted
        if self._changed is None:
            judged = [self._damage[name] for name in names]
            self._changed = (any(d for d, _ in judged), [b for _, bad in judged for b in bad])
        changed, bad = self._changed
        damage = [*bad, *failed]
        success = not damage and all(ok.values())
        # What a frozen dataclass does for each field by itself costs three times as much.
        verdict = object.__new__(Verdict)
        verdict.__dict__.update(
            progress=self._progress(success, base, len(damage)),
            success=success,
            ok=dict(ok),
            violations=tuple(damage),
            status="ok",
            reason="",
            attempted=changed and bool(state.table("submission")),
            fingerprint=self._fingerprint,
            nodes=self._nodes,
            information=self._information(state),
        )
        return verdict

    def _information(self, state: View) -> float | None:
        """Counted again only when something else was seen, for which ``seen`` is replaced."""
        candidates = self.acceptance.candidates
        if candidates is None:
            return None
        seen = state.table("seen")
        if self._settled is None or self._settled[0] is not seen:
            self._settled = (seen, candidates.information(seen))
        return self._settled[1]

    def _progress(self, success: bool, base: float, damage: int) -> float:
        if not self.acceptance.checks:
            return 0.0
        return 1.0 if success else min(UNFINISHED, base * penalty(damage))


def grade(acceptance: Acceptance, state: Gradable, kinds: Mapping[str, Kind]) -> Verdict:
    """The verdict on one state; :class:`Grader` is the same with a cache over an episode."""
    return Grader(acceptance, kinds)(state)


def penalty(violations: int) -> float:
    """Factor on progress: halves for each of three violations, then falls by a tenth for each.

    It never becomes flat, so damage past the third is not free.
    """
    if not violations:
        return 1.0
    return float(0.5 ** min(3, violations) * 0.9 ** max(0, violations - 3))


def changes(name: str, start: Table, now: Table) -> tuple[Change, ...]:
    """Net differences of one table from its start, in the order of the rows."""
    if start is now:
        return ()
    found = []
    for key, row in now.items():
        was = start.get(key)
        if was is None:
            found.append(Change(name, key, "new", tuple(row), row))
        elif was is not row and was != row:
            fields = tuple(f for f in {**was, **row} if was.get(f, _GONE) != row.get(f, _GONE))
            found.append(Change(name, key, "edited", fields, row))
    if len(now) - sum(change.kind == "new" for change in found) < len(start):
        found += [Change(name, k, "deleted", tuple(r), r) for k, r in start.items() if k not in now]
    return tuple(found)


def settle(acceptance: Acceptance, state: Gradable, kinds: Mapping[str, Kind]) -> Acceptance:
    """Turns checks that already hold into guards: they are part of success, never of progress.

    Evidence that counts only because the checks that need it do is no guard, as nobody has seen
    it: it goes with the last of them.

    Raises:
        ValueError: The initial state cannot be graded.
    """
    grader = Grader(acceptance, kinds)
    verdict = grader(state)
    if verdict.status != "ok":
        raise ValueError(f"the initial state has no verdict: {verdict.reason}")
    checks = acceptance.checks
    stands = grader._plan.stands(grader._holds)
    true = {c.id for c, own in zip(checks, stands, strict=False) if own and verdict.ok[c.id]}
    if not true:
        return acceptance
    settled = tuple(replace(c, needs=()) for c in checks if c.id in true)
    for check in reversed(checks):
        if check.id not in true and verdict.ok[check.id]:
            if true.issuperset(c.id for c in checks if check.id in c.needs):
                true.add(check.id)
    left = tuple(
        replace(c, needs=tuple(n for n in c.needs if n not in true))
        for c in checks
        if c.id not in true
    )
    return replace(acceptance, checks=left, guards=acceptance.guards + settled)


class _Plan:
    """Which checks count, given which hold; compiled once from the graph of needs."""

    def __init__(self, checks: Sequence[Check], guards: Sequence[Check]) -> None:
        everything = (*checks, *guards)
        place = {c.id: i for i, c in enumerate(everything)}
        self.ids = [c.id for c in checks]
        total = sum(c.weight for c in checks)
        self.weights = [c.weight / total for c in checks]
        self.successors: list[tuple[int, list[int]]] = []
        for i, check in enumerate(everything):
            later = [place[s] for s in check.superseded_by if s in place]
            for n in later:  # grows: the successors of a successor erase its mark as well
                heirs = (place[s] for s in everything[n].superseded_by if s in place)
                later += [h for h in heirs if h not in later]
            if later:
                self.successors.append((i, later))
        # An acting check is not held up by evidence (acting proves it), only by what the
        # evidence itself needs.
        self.needs: list[list[int]] = []
        for check in checks:
            hard: set[int] = set()
            for n in (place[name] for name in check.needs):
                hard |= set(self.needs[n]) if checks[n].evidence else {n, *self.needs[n]}
            self.needs.append(sorted(hard))
        self.hard = [(i, needs) for i, needs in enumerate(self.needs) if needs]
        dependants: dict[int, list[int]] = {}
        for i, check in enumerate(checks):
            for name in check.needs:
                dependants.setdefault(place[name], []).append(i)
        self.implied = [
            (i, dependants[i])
            for i, c in reversed(list(enumerate(checks)))
            if c.evidence and i in dependants
        ]

    def stands(self, holds: Sequence[bool]) -> list[bool]:
        """Which checks and guards hold, or have a successor that does."""
        marks = list(holds)
        for i, later in self.successors:
            marks[i] = marks[i] or any([holds[s] for s in later])
        return marks

    def counts(self, stands: Sequence[bool]) -> tuple[dict[str, bool], float]:
        """``({check id: counts}, share of the weight that counts)``."""
        marks = list(stands[: len(self.ids)])
        for i, needs in self.hard:
            if marks[i]:
                for n in needs:
                    if not marks[n]:
                        marks[i] = False
                        break
        for i, dependants in self.implied:
            if not marks[i]:
                for d in dependants:
                    if marks[d]:
                        marks[i] = True
                        break
        base = sum(compress(self.weights, marks))
        return dict(zip(self.ids, marks, strict=True)), base


class _Footprint:
    """Which changes are allowed, compiled from the rules of one acceptance."""

    def __init__(self, acceptance: Acceptance) -> None:
        self.edits: dict[str, dict[str, set[str]]] = {}
        self.new: dict[str, list[tuple[tuple[str, ...], Callable[[Row], bool]]]] = {}
        for rule in acceptance.writes:
            for key in rule.keys:
                self.edits.setdefault(rule.table, {}).setdefault(key, set()).update(rule.fields)
            if rule.new is not None:
                self.new.setdefault(rule.table, []).append((rule.keys, where(rule.new)))
        self.voids = {name: where(conditions) for name, conditions in acceptance.voids.items()}

    def judge(self, name: str, moved: Sequence[Change]) -> tuple[bool, tuple[str, ...]]:
        """``(anything changed, what was changed outside the footprint)``."""
        edits, new, void = self.edits.get(name, {}), self.new.get(name, ()), self.voids.get(name)
        changed, bad = False, []
        for change in moved:
            if change.kind == "new":
                if void is not None and void(change.row):
                    continue
                allowed = any(
                    (not keys or change.key in keys) and match(change.row) for keys, match in new
                )
            else:
                allowed = change.kind == "edited" and edits.get(change.key, set()).issuperset(
                    change.fields
                )
            changed = True
            if not allowed:
                bad.append(f"{change.kind} {name}/{change.key}")
        return changed, tuple(bad)


def _guarded(check: Check, kind: Kind) -> Callable[[View], bool]:
    """The test of one check, whose only answers are True, False and an exception."""
    try:
        test = kind.prepare(check.args)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"args of check {check.id!r} do not fit kind {check.kind!r}: {error!r}"
        ) from error

    def run(view: View) -> bool:
        answer = test(view) if kind.timeout_s is None else _in_time(test, view, kind.timeout_s)
        if answer is not True and answer is not False:
            raise TypeError(f"check {check.id!r} must answer True or False, got {answer!r}")
        return answer

    return run


def _in_time(test: Callable[[View], bool], view: View, timeout_s: float) -> bool:
    """Runs ``test`` in a thread that is abandoned when it is late; works off the main thread."""
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append((True, test(view)))
        except Exception as error:
            answer.append((False, error))

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    worker.join(timeout_s)
    if not answer:
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    returned, value = answer[0]
    if not returned:
        raise value
    return value  # type: ignore[no-any-return]  # judged by the caller


_GONE = object()
