"""Faults planted into sound tasks, to see whether the contract notices.

A fault is what a template's author could really get wrong. :func:`plant` puts one into an
instance; :func:`spoil_grader` changes what the grader checks. A contract that lets them pass proves
nothing about the tasks it passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headway.envs.contract import Run
from headway.envs.render import Instance
from headway.envs.rng import Rng
from headway.envs.task import Clause
from headway.envs.world import Action, LatentWorld, Step
from headway.verifiers import Acceptance, Allow, Check
from headway.verifiers.kinds.tables import where

Plant = Callable[[Instance, Rng], Instance | None]


def plant(kind: str, instance: Instance, rng: Rng) -> Instance | None:
    """A copy of ``instance`` with one fault of that kind; None where it cannot have one."""
    return FAULTS[kind](instance, rng)


def _fact_missing(instance: Instance, rng: Rng) -> Instance | None:
    facts = _facts_used(instance)
    if not facts:
        return None
    fact = rng.choice(facts)
    return _reclaused(instance, [_without(c, fact) for c in instance.task.clauses])


def _without(clause: Clause, fact: str) -> Clause:
    """The clause with ``something`` where the value of a fact stood."""
    text, slots, at = "", [], 0
    for name, start, end in clause.slots:
        text += clause.text[at:start]
        value = "something" if name == fact else clause.text[start:end]
        if name != fact:
            slots.append((name, len(text), len(text) + len(value)))
        text, at = text + value, end
    return replace(clause, text=text + clause.text[at:], slots=tuple(slots))


def _already_true(instance: Instance, rng: Rng) -> Instance | None:
    roots = [s for s in _acting(instance) if not _acting_parents(instance, s)]
    step = rng.choice(roots)
    box = Run(instance).play(step.actions).box
    tables = {name: dict(box.table(name)) for name in box.names()}
    return replace(instance, task=replace(instance.task, tables=tables))


def _wrong_gold(instance: Instance, rng: Rng) -> Instance | None:
    """Oracle and grader agree on a number that the world does not hold."""
    found = [
        (action, name)
        for step in instance.world.steps
        for action in step.actions
        for name, value in action.args.items()
        if name not in action.sources and isinstance(value, float)
    ]
    if not found:
        return None
    wrong, name = rng.choice(found)
    old, new = f"{wrong.args[name]:.2f}", f"{wrong.args[name] + 1:.2f}"

    def fix(action: Action) -> Action:
        if action is not wrong:
            return action
        return replace(action, args={**action.args, name: float(new)})

    def swap(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {k: swap(v) for k, v in value.items()}
        return new if value == old else value

    return _resteped(
        instance,
        [
            replace(
                step,
                actions=tuple(fix(a) for a in step.actions),
                checks=tuple(replace(c, args=swap(c.args)) for c in step.checks),
                writes=tuple(replace(w, new=swap(w.new)) for w in step.writes),
            )
            if any(a is wrong for a in step.actions)
            else step
            for step in instance.world.steps
        ],
    )


def _leaked_secret(instance: Instance, rng: Rng) -> Instance | None:
    if not instance.world.secrets:
        return None
    secret = rng.choice(list(instance.world.secrets.values()))
    spots = [
        (name, key, field)
        for name, table in instance.task.tables.items()
        for key, row in table.items()
        for field, value in row.items()
        if isinstance(value, str) and " " in value and f"{name}/{key}" not in secret.places
    ]
    name, key, field = rng.choice(spots)
    row = instance.task.tables[name][key]
    leaked = {**row, field: f"{row[field]} {secret.value}"}
    table = {**instance.task.tables[name], key: leaked}
    return _retabled(instance, {**instance.task.tables, name: table})


def _wide_footprint(instance: Instance, rng: Rng) -> Instance:
    every = tuple(
        Allow(name, tuple(table), tuple(dict.fromkeys(f for row in table.values() for f in row)))
        for name, table in instance.task.tables.items()
    ) + tuple(Allow(name, new={}) for name in instance.task.tables)
    return _judged(instance, writes=every)


def _weak_check(instance: Instance, rng: Rng) -> Instance | None:
    """A check, and the footprint that follows from it, forget a condition."""
    found = [
        (check, field)
        for check in instance.task.acceptance.checks
        if check.kind == "rows" and "key" not in check.args and check.args["table"] != "submission"
        for field, condition in check.args["where"].items()
        if isinstance(condition, Mapping)
    ]
    if not found:
        return None
    return _forgetful(instance, *rng.choice(found))


def _forgetful(instance: Instance, check: Check, field: str) -> Instance:
    weak = _less(check, field)
    writes = tuple(
        replace(rule, new=weak.args["where"]) if rule.new == check.args["where"] else rule
        for rule in instance.task.acceptance.writes
    )
    return _judged(_rechecked(instance, check, weak), writes=writes)


def _less(check: Check, field: str) -> Check:
    where = {k: v for k, v in check.args["where"].items() if k != field}
    return replace(check, args={**check.args, "where": where})


def _overstrict_check(instance: Instance, rng: Rng) -> Instance | None:
    """A check insists on a wording that the instruction leaves free."""
    found = [
        (check, name, action.args[name])
        for step in instance.world.steps
        for action in step.actions
        for check in step.checks
        for name, sources in action.sources.items()
        if sources == () and check.kind == "rows" and "key" not in check.args
    ]
    if not found:
        return None
    check, field, value = rng.choice(found)
    now = next(c for c in instance.task.acceptance.checks if c.id == check.id)
    where = {**now.args["where"], field: value}
    return _rechecked(instance, now, replace(now, args={**now.args, "where": where}))


def _tight_budget(instance: Instance, rng: Rng) -> Instance:
    calls = len(instance.solution())
    return replace(instance, task=replace(instance.task, max_turns=calls + 1))


def _markless_step(instance: Instance, rng: Rng) -> Instance:
    """A step repeats a look and leaves nothing; ``Step`` itself refuses that."""
    first = instance.world.steps[0]
    step = replace(first, id="again", after=(first.id,), writes=())
    object.__setattr__(step, "checks", ())
    return replace(
        instance,
        world=replace(
            instance.world, steps=(*instance.world.steps[:1], step, *instance.world.steps[1:])
        ),
    )


def _unannounced_step(instance: Instance, rng: Rng) -> Instance | None:
    """A clause that alone announces something is left out."""
    acting = {c.id for c in instance.task.acceptance.checks if not c.evidence}
    found = []
    for clause in instance.task.clauses:
        others = [c.announces for c in instance.task.clauses if c is not clause]
        if (clause.announces & acting) - frozenset().union(*others):
            found.append(clause)
    if not found:
        return None
    gone = rng.choice(found)
    text = instance.task.instruction.replace(gone.text, "").strip()
    left = tuple(c for c in instance.task.clauses if c is not gone)
    return replace(instance, task=replace(instance.task, instruction=text, clauses=left))


def _twin_referent(instance: Instance, rng: Rng) -> Instance | None:
    if not instance.world.referents:
        return None
    referent = rng.choice(list(instance.world.referents))
    match = where(referent.where)
    table = instance.task.tables[referent.table]
    row = next(row for row in table.values() if match(row))
    twin = {**table, "twin": row}
    return _retabled(instance, {**instance.task.tables, referent.table: twin})


def _set_order(instance: Instance, rng: Rng) -> Instance:
    """The instruction ends in words in the order in which a set happens to hold them."""
    words = set(re.findall(r"[a-z]{5,}", instance.task.instruction))
    text = f"{instance.task.instruction} {' '.join(words)}"
    return replace(instance, task=replace(instance.task, instruction=text))


def _wrong_slot(instance: Instance, rng: Rng) -> Instance:
    facts = instance.world.facts
    clauses = list(instance.task.clauses)
    n = rng.choice([i for i, c in enumerate(clauses) if any(s[0] in facts for s in c.slots)])
    slots = tuple(
        (name, start - 1, end - 1) if name in facts else (name, start, end)
        for name, start, end in clauses[n].slots
    )
    clauses[n] = replace(clauses[n], slots=slots)
    return replace(instance, task=replace(instance.task, clauses=tuple(clauses)))


def _lax_edge(instance: Instance, rng: Rng) -> Instance | None:
    """The workflow forgets what the step with the most sources has to wait for."""
    steps = instance.world.steps
    weight = [sum(len(s) for a in step.actions for s in a.sources.values()) for step in steps]
    n = max(range(len(steps)), key=lambda i: (weight[i] if steps[i].after else -1, -i))
    if not steps[n].after or not weight[n] or steps[n].id == "answer":
        return None
    checks = tuple(replace(c, needs=()) for c in steps[n].checks)
    loose = replace(steps[n], after=(), checks=checks)
    return _resteped(instance, [*steps[:n], loose, *steps[n + 1 :]])


FAULTS: Mapping[str, Plant] = {
    "fact missing": _fact_missing,
    "already true": _already_true,
    "wrong gold": _wrong_gold,
    "leaked secret": _leaked_secret,
    "wide footprint": _wide_footprint,
    "weak check": _weak_check,
    "over-strict check": _overstrict_check,
    "tight budget": _tight_budget,
    "markless step": _markless_step,
    "unannounced step": _unannounced_step,
    "twin referent": _twin_referent,
    "set order": _set_order,
    "wrong slot": _wrong_slot,
    "lax edge": _lax_edge,
}
"""The kinds of fault by name; ``set order`` shows only in another process."""


def spoil_grader(instance: Instance, rng: Rng) -> Instance:
    """A copy whose grader checks something else: one literal, condition, check or rule changed.

    Footprints are widened only over tables that a tool can damage; elsewhere nothing would change.
    """
    acceptance = instance.task.acceptance
    checks = [c for c in acceptance.checks if not c.evidence]
    check = rng.choice(checks)
    hows = ["value", "condition", "check", "footprint", "damage"]
    how = rng.choice(hows if "key" in check.args else [*hows, "count"])
    if how == "value":
        return _rechecked(instance, check, replace(check, args=_changed(check.args, rng)))
    if how == "condition":
        return _forgetful(instance, check, rng.choice(list(check.args["where"])))
    if how == "check":
        left = tuple(c for c in acceptance.checks if c is not check)
        left = tuple(replace(c, needs=tuple(n for n in c.needs if n != check.id)) for c in left)
        return _judged(instance, checks=left)
    if how == "footprint":
        rules = list(acceptance.writes)
        del rules[rng.below(len(rules))]
        return _judged(instance, writes=tuple(rules))
    if how == "damage":
        box = Run(instance).play(instance.domain.stray(instance.world, rng)).box
        touched = [name for name in box.names() if box.table(name) is not box.start.table(name)]
        table = rng.choice(touched)
        keys = tuple(instance.task.tables[table])
        fields = tuple(dict.fromkeys(f for r in instance.task.tables[table].values() for f in r))
        return _judged(
            instance, writes=(*acceptance.writes, Allow(table, keys, fields), Allow(table, new={}))
        )
    return _rechecked(instance, check, replace(check, args={**check.args, "count": 2}))


def _changed(args: Mapping[str, Any], rng: Rng) -> dict[str, Any]:
    """The arguments with one text in the conditions changed."""
    where = dict(args["where"])
    field = rng.choice(list(where))

    def other(value: Any) -> Any:
        if isinstance(value, Mapping):
            name = rng.choice(list(value))
            return {**value, name: other(value[name])}
        if isinstance(value, list) and value:
            return [other(value[0]), *value[1:]]
        if isinstance(value, str) and value[-1:].isdigit():
            return value[:-1] + str((int(value[-1]) + 1) % 10)
        return f"{value}x"

    where[field] = other(where[field])
    return {**args, "where": where}


def _facts_used(instance: Instance) -> list[str]:
    """Facts that a writing call needs as they are and that only the text holds."""
    values = {
        str(value)
        for step in instance.world.steps
        for action in step.actions
        if instance.toolbox[action.tool].writes
        for name, value in action.args.items()
        if name not in action.sources
    }
    return [name for name, value in instance.world.facts.items() if value in values]


def _acting(instance: Instance) -> list[Step]:
    return [s for s in instance.world.steps if not all(c.evidence for c in s.checks)]


def _acting_parents(instance: Instance, step: Step) -> list[str]:
    acting = {s.id: s for s in instance.world.steps}
    todo, out = list(step.after), []
    while todo:
        parent = acting[todo.pop()]
        out += [] if all(c.evidence for c in parent.checks) else [parent.id]
        todo += parent.after
    return out


def _reclaused(instance: Instance, clauses: Iterable[Clause]) -> Instance:
    text, new = instance.task.instruction, tuple(clauses)
    for old, clause in zip(instance.task.clauses, new, strict=True):
        text = text.replace(old.text, clause.text)
    return replace(instance, task=replace(instance.task, instruction=text, clauses=new))


def _retabled(instance: Instance, tables: Mapping[str, Any]) -> Instance:
    return replace(instance, task=replace(instance.task, tables=tables))


def _judged(instance: Instance, **parts: Any) -> Instance:
    acceptance: Acceptance = replace(instance.task.acceptance, **parts)
    return replace(instance, task=replace(instance.task, acceptance=acceptance))


def _rechecked(instance: Instance, old: Check, new: Check) -> Instance:
    checks = tuple(new if c.id == old.id else c for c in instance.task.acceptance.checks)
    return _judged(instance, checks=checks)


def _resteped(instance: Instance, steps: Sequence[Step]) -> Instance:
    """Changes the workflow, and the acceptance with it."""
    world: LatentWorld = replace(instance.world, steps=tuple(steps))
    by_id = {c.id: c for s in steps for c in s.checks}
    extra = {c.id for s in instance.prelude for c in s.checks}
    checks = tuple(
        replace(
            c,
            args=by_id[c.id].args,
            needs=by_id[c.id].needs + tuple(n for n in c.needs if n in extra),
        )
        if c.id in by_id
        else c
        for c in instance.task.acceptance.checks
    )
    writes = tuple(w for s in steps for w in s.writes)
    return _judged(replace(instance, world=world), checks=checks, writes=writes)
