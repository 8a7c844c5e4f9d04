"""Attempts at a task by which its soundness is tried: wrong solutions, and other right ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headway.envs.render import Instance
from headway.envs.rng import Rng
from headway.envs.world import Action, Step

BABBLE = "1 2 3 09:00 10:00 11:00 2031-01-01 2031-01-02 a@b.example"
"""Appended to a text, turns it into one that says everything."""

Call = Action | Callable[[Any], Action]
"""A call, or a function from what the call before it returned to a call."""


def wrong(instance: Instance, plan: Sequence[Step], rng: Rng) -> list[tuple[str, int, list[Call]]]:
    """Wrong solutions: name, the step up to which they follow ``plan``, the calls from there.

    Acting steps left out; arguments swapped, off by one, cut short, doubled, emptied, with a digit
    changed or saying everything, in the place of the right call and beside it; calls made twice
    that must not be, or taken back; stray writes; and each trap's naive solution.
    """
    out: list[tuple[str, int, list[Call]]] = []
    pool: dict[tuple[str, str], list[Any]] = {}
    for step in plan:
        for action in step.actions:
            for name, value in action.args.items():
                pool.setdefault((action.tool, name), []).append(value)

    def replaced(at: int, actions: Sequence[Call]) -> list[Call]:
        return [*actions, *(a for step in plan[at + 1 :] for a in step.actions)]

    for at, step in enumerate(plan):
        if all(check.evidence for check in step.checks):
            continue
        out.append((f"{step.id} left out", at, replaced(at, ())))
        for n, action in enumerate(step.actions):
            tool = instance.toolbox[action.tool]
            if not tool.writes:
                continue
            for name, value in action.args.items():
                if action.sources.get(name) == ():
                    continue
                for kind, other in _spoiled(value, pool[action.tool, name], rng):
                    bad = replace(action, args={**action.args, name: other})
                    actions = [*step.actions[:n], bad, *step.actions[n + 1 :]]
                    out.append((f"{step.id}: {name} {kind}", at, replaced(at, actions)))
                    beside = replaced(at, [*step.actions, bad])
                    out.append((f"{step.id}: {name} {kind}, beside the right one", at, beside))
            if not tool.idempotent:
                out.append((f"{step.id}: {action.tool} twice", len(plan), [action]))
        undo = instance.domain.undo.get(step.actions[-1].tool)
        if undo is not None:
            out.append((f"{step.id} taken back", at, replaced(at, [*step.actions, undo])))
    for action in instance.domain.stray(instance.world, rng):
        out.append((f"stray {action.tool}", 0, [action, *replaced(-1, ())]))
    for naive in instance.world.naive:
        at = min(n for n, step in enumerate(plan) if step.id in naive.instead)
        steps = plan[at:]
        out.append((naive.trap, at, [a for s in steps for a in naive.instead.get(s.id, s.actions)]))
    return out


def _spoiled(value: Any, pool: Sequence[Any], rng: Rng) -> list[tuple[str, Any]]:
    """Other values for an argument, each wrong."""
    out: list[tuple[str, Any]] = []
    if isinstance(value, int | float):
        return [("off by one", value + 1)]
    if isinstance(value, list):
        return [("cut short", value[:-1]), ("says more", [*value, BABBLE.split()[-1]])]
    text = str(value)
    others = sorted({str(v) for v in pool if v != value})
    if others:
        out.append(("swapped", rng.choice(others)))
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        decimals = len(text.partition(".")[2])
        out.append(("off by one", f"{float(text) + 1:.{decimals}f}"))
    elif len(text) > 1:
        out.append(("cut short", text[: len(text) // 2]))
    if found := re.search(r"\d(?=\D*$)", text):
        digit = str((int(found[0]) + 1) % 10)
        out.append(("one digit changed", text[: found.start()] + digit + text[found.end() :]))
    out += [("doubled", f"{text}{text}"), ("emptied", "")]
    return [*out, ("says everything", f"{text} {BABBLE}")]


def honest(instance: Instance, plan: Sequence[Step], rng: Rng) -> list[tuple[str, list[Action]]]:
    """Other right ways to carry out ``plan``: those of every domain, and the domain's own."""
    calls = [action for step in plan for action in step.actions]
    writes = [a for a in calls if instance.toolbox[a.tool].writes]
    again = [a for a in writes if instance.toolbox[a.tool].idempotent and a.tool != "submit"]
    submit = [a for a in calls if a.tool == "submit"]
    work = [a for a in calls if a.tool != "submit"]
    out = [
        ("nothing read", writes),
        ("everything read first", [*instance.look(instance.open()), *calls]),
        (
            "errors on the way",
            [Action("no_such_tool", {}), Action(calls[0].tool, {"x": 1}), *calls],
        ),
        ("lists turned round", [_turned(a) for a in calls]),
        ("repeated where harmless", [*work, *again, *submit]),
        ("free texts of its own", [_reworded(a) for a in calls]),
    ]
    for name, variant in instance.domain.variants.items():
        actions = variant(instance.world, plan, rng)
        if actions is not None:
            out.append((name, actions))
    return out


def _turned(action: Action) -> Action:
    args = {k: v[::-1] if isinstance(v, list) else v for k, v in action.args.items()}
    return replace(action, args=args)


def _reworded(action: Action) -> Action:
    free = [k for k, v in action.args.items() if action.sources.get(k) == () and isinstance(v, str)]
    return replace(action, args={**action.args, **dict.fromkeys(free, "as agreed, thank you")})
