"""What is true now: checks, verdicts, and the signals that are read from them."""

from __future__ import annotations

from headway.verifiers.check import (
    EVIDENCE_SHARE,
    UNFINISHED,
    Acceptance,
    Allow,
    Change,
    Check,
    Grader,
    Verdict,
    cap_evidence,
    changes,
    grade,
    penalty,
    settle,
)
from headway.verifiers.kinds import GRADER_VERSION, KINDS
from headway.verifiers.record import Record, blank
from headway.verifiers.signal import Checks, Milestones, Potential, StepSignal
from headway.verifiers.view import Gradable, Kind, Row, Table, View

__all__ = [
    "EVIDENCE_SHARE",
    "GRADER_VERSION",
    "KINDS",
    "UNFINISHED",
    "Acceptance",
    "Allow",
    "Change",
    "Check",
    "Checks",
    "Gradable",
    "Grader",
    "Kind",
    "Milestones",
    "Potential",
    "Record",
    "Row",
    "StepSignal",
    "Table",
    "Verdict",
    "View",
    "blank",
    "cap_evidence",
    "changes",
    "grade",
    "penalty",
    "settle",
]
