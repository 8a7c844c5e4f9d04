"""A world small enough to play out completely: a form on a desk.

It offers whatever layers may ask of an environment (``grade``, ``anchor``, ``gold``, ``reference``,
the calls of a turn), and has what a reward can be wrong about: progress that can be taken back,
progress that leads nowhere, a risk, damage and its repair, evidence, idle turns, refused calls, a
grader that fails, handing in early, late and never.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym

from headway.arguments import one_of, whole
from headway.verifiers import (
    KINDS,
    Acceptance,
    Allow,
    Check,
    Grader,
    Row,
    Table,
    Verdict,
    blank,
    cap_evidence,
)
from headway.verifiers.answer import Candidates, Clue

CHANCE = 0.15
"""How likely a signature succeeds; low enough to be tempted by sure progress that leads nowhere."""

ANSWER = "blue"
"""What the label says."""

MINIATURE = "Miniature-v0"
"""How the ids of its tasks begin."""

ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "look": "reads the label: evidence",
        "fill": "fills the blank form in: a third of the work, which can be cleared",
        "patch": "fills it in neatly and for good: two thirds, but it can no longer be signed",
        "sign": f"signs the filled form: all of it with chance {CHANCE}, else the form is torn",
        "clear": "makes a filled form blank again, and takes the litter away",
        "spoil": "leaves litter: damage",
        "crash": "makes the grader fail on this turn",
        "wait": "does nothing, and the call succeeds",
        "mumble": "is no call",
        "submit": "hands in",
    }
)
"""Every action, and what it does."""

LUCK: Mapping[str, bool] = MappingProxyType({"lucky": True, "unlucky": False})
"""Whether the signature succeeds, by the last part of a task's id."""

_CHECKS = cap_evidence(
    (
        Check("read.label", "seen", {"records": ["label"]}, evidence=True),
        Check(
            "fill.form",
            "rows",
            {"table": "desk", "key": "form", "where": {"filled": True}},
            needs=("read.label",),
        ),
        Check(
            "fill.neat",
            "rows",
            {"table": "desk", "key": "form", "where": {"neat": True}},
            needs=("fill.form",),
        ),
        Check(
            "sign.form",
            "rows",
            {"table": "desk", "key": "form", "where": {"signed": True}},
            needs=("fill.neat",),
        ),
    )
)
_ACCEPTANCE = Acceptance(
    checks=_CHECKS,
    writes=(Allow("desk", keys=("form",), fields=("filled", "neat", "signed", "whole")),),
    candidates=Candidates(4, (Clue(("label",), ((0, 3),)),)),
)
_FORMS: Mapping[str, Row] = MappingProxyType(
    {
        name: dict(zip(("filled", "neat", "signed", "whole"), values, strict=True))
        for name, values in {
            "blank": (False, False, False, True),
            "filled": (True, False, False, True),
            "patched": (True, True, False, True),
            "signed": (True, True, True, True),
            "torn": (False, False, False, False),
        }.items()
    }
)


class Desk(NamedTuple):
    """All that can differ between two moments of an episode, apart from the turn.

    Attributes:
        form: ``"blank"``, ``"filled"``, ``"patched"``, ``"signed"`` or ``"torn"``.
        seen: Whether the label was read.
        litter: Whether there is damage.
        dark: Whether the grader fails now.
        handed_in: Whether the episode was ended by handing in, or graded as if.
    """

    form: str = "blank"
    seen: bool = False
    litter: bool = False
    dark: bool = False
    handed_in: bool = False

    def after(self, action: str, lucky: bool) -> tuple[Desk, bool]:
        """What the action leads to, and whether it was refused."""
        desk = self._replace(dark=False)
        form = self.form
        if action == "look":
            return desk._replace(seen=True), False
        if action == "fill" and form == "blank":
            return desk._replace(form="filled"), False
        if action == "patch" and form in ("blank", "filled"):
            return desk._replace(form="patched"), False
        if action == "sign" and form == "filled":
            return desk._replace(form="signed" if lucky else "torn"), False
        if action == "clear" and (form == "filled" or self.litter):
            kept = "blank" if form == "filled" else form
            return desk._replace(form=kept, litter=False), False
        if action == "spoil":
            return desk._replace(litter=True), False
        if action == "crash":
            return desk._replace(dark=True), False
        if action == "submit":
            return desk._replace(handed_in=True), False
        return desk, action != "wait"


@dataclass(frozen=True)
class _Still:
    """A desk as the tables that a grader reads."""

    tables: Mapping[str, Table]
    number: int
    begun: _Still | None = None

    @property
    def start(self) -> _Still:
        return self.begun or self

    def table(self, name: str) -> Table:
        return self.tables.get(name, {})

    def names(self) -> tuple[str, ...]:
        return ("desk",)

    def stamp(self) -> int:
        return self.number


class Miniature(gym.Env[str, str]):
    """A form has to be filled in, signed and handed in; signing it may tear it.

    Action: a text of ``ACTIONS``; any other is a bad call. Observation: one line.
    Reward: 1.0 for an end with the signed form and no litter, else 0.0.
    Ends: as in ToolEnv: terminated by ``"submit"`` and by success on the last turn, else truncated
    there. Nothing is left to chance: whether a signature succeeds is part of the task's id.

    Args:
        turns: How many turns an episode may take, at least 1.

    Attributes:
        outcome: The reward of the last turn before any wrapper.
        lucky: Whether a signature succeeds.

    Raises:
        ValueError: ``turns`` is outside its range.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # Gymnasium's own annotation

    def __init__(self, turns: int = 4) -> None:
        letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .:"
        self.action_space = gym.spaces.Text(64, charset=letters)
        self.observation_space = gym.spaces.Text(64, charset=letters)
        self.turns = whole("turns", turns, 1)
        self.lucky = True
        self.outcome = 0.0
        self._verdicts: dict[Desk, Verdict] = {}
        self._start = _Still({"desk": {"form": _FORMS["blank"]}}, 0)
        self._grader = Grader(_ACCEPTANCE, KINDS)
        self._desk, self._turn, self._ended = Desk(), 0, True

    @property
    def task_id(self) -> str:
        """``Miniature-v0/<turns>/lucky``, or ``unlucky``."""
        return f"{MINIATURE}/{self.turns}/{'lucky' if self.lucky else 'unlucky'}"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts an episode; ``options["task_id"]`` chooses luck and turns.

        Raises:
            ValueError: The task's id is none of this world.
        """
        super().reset(seed=seed)
        if options and "task_id" in options:
            world, turns, luck = (*str(options["task_id"]).split("/"), "", "")[:3]
            one_of("world of task_id", world, (MINIATURE,))
            self.lucky = LUCK[one_of("luck of task_id", luck, LUCK)]
            self.turns = whole("turns of task_id", int(turns) if turns.isdigit() else None, 1)
        self._desk, self._turn, self._ended = Desk(), 0, False
        return "A form and a label lie on the desk.", self._info(0.0, [])

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Plays one turn.

        Raises:
            ResetNeeded: The episode is over.
        """
        if self._ended:
            raise gym.error.ResetNeeded("no episode is running; call reset() before step()")
        self._turn += 1
        self._desk, refused = self._desk.after(action, self.lucky)
        terminated, last = self._desk.handed_in, self._turn >= self.turns
        self._desk = self._desk._replace(handed_in=terminated or last)
        self._ended = terminated or last
        success = self._ended and self.grade().success
        terminated = terminated or success
        self.outcome = float(success)
        known = action in ACTIONS and action != "mumble"
        args = {"answer": ANSWER} if action == "submit" else {}
        call = {"tool": action if known else None, "args": args, "error": refused}
        text = "Error: refused." if refused else "Done."
        if action == "look":
            text = f"The label says: {ANSWER}."
        info = self._info(self.outcome, [call])
        return text, self.outcome, terminated, self._ended and not terminated, info

    def grade(self) -> Verdict:
        """The verdict on the desk as it stands, or none in the dark."""
        desk = self._desk
        if desk.dark:
            return Verdict(
                math.nan,
                False,
                {},
                status="no_verdict",
                reason="the grader crashed",
                nodes=_ACCEPTANCE.nodes,
            )
        if desk not in self._verdicts:
            self._verdicts[desk] = self._judge(desk)
        return self._verdicts[desk]

    def anchor(self) -> str:
        """Equal in equal states; the dark is a state of the grader, not of the desk."""
        return repr(tuple(self._desk._replace(dark=False)))

    def gold(self) -> tuple[str, ...]:
        """What the label says."""
        return (ANSWER,)

    def reference(self) -> list[dict[str, Any]]:
        """One right sequence of calls."""
        return [
            {"tool": name, "args": {"answer": ANSWER} if name == "submit" else {}}
            for name in ("look", "fill", "sign", "submit")
        ]

    def solution(self) -> list[str]:
        """The same as actions."""
        return [call["tool"] for call in self.reference()]

    def get_state(self) -> dict[str, Any]:
        """The episode as plain data."""
        return {"desk": list(self._desk), "turn": self._turn, "ended": self._ended}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`get_state` returned."""
        self._desk = Desk(*state["desk"])
        self._turn, self._ended = state["turn"], state["ended"]

    @property
    def place(self) -> tuple[Desk, int]:
        """The state of the world and the turn."""
        return self._desk, self._turn

    def __deepcopy__(self, memo: dict[int, Any]) -> Miniature:
        """A sibling in mid-episode, which shares the verdicts: they are values."""
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__ = dict(self.__dict__)
        return twin

    def _judge(self, desk: Desk) -> Verdict:
        rows: dict[str, Row] = {"form": _FORMS[desk.form]}
        tables: dict[str, Table] = {
            "desk": {**rows, "litter": {}} if desk.litter else rows,
            "seen": {"label": {}} if desk.seen else {},
            "submission": {"final": {"answer": ANSWER}} if desk.handed_in else {},
        }
        number = len(self._verdicts) + 1  # a stamp of its own for each desk
        return self._grader(_Still(tables, number, self._start))

    def _info(self, outcome: float, calls: list[dict[str, Any]]) -> dict[str, Any]:
        record = blank(outcome)
        if self._ended:
            verdict = self.grade()
            record["verdict"], record["status"] = verdict, verdict.status
        return {"task_id": self.task_id, "turn": self._turn, "calls": calls, "headway": record}
