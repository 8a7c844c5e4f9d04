"""What is true now: checks, verdicts, and the signals that are read from them."""

from __future__ import annotations

from headway.verifiers.answer import Candidates, Clue
from headway.verifiers.check import (
    EVIDENCE_SHARE,
    UNFINISHED,
    Acceptance,
    Allow,
    Change,
    Check,
    Grader,
    Node,
    Verdict,
    cap_evidence,
    changes,
    grade,
    penalty,
    settle,
)
from headway.verifiers.graph import Graph
from headway.verifiers.judge import Accepted, Refused, Rubric, Unjudged, accept, preference
from headway.verifiers.kinds import GRADER_VERSION, KINDS
from headway.verifiers.likelihood import SCORERS, AnswerLikelihood
from headway.verifiers.memory import Memory
from headway.verifiers.performance import staged
from headway.verifiers.potentials import POTENTIALS, potential_named
from headway.verifiers.record import Record, blank
from headway.verifiers.reference import Match
from headway.verifiers.signal import (
    Checks,
    Ear,
    Information,
    Look,
    Milestones,
    Potential,
    milestone_targets,
)
from headway.verifiers.strata import prompt_weight, renorm, stratify
from headway.verifiers.view import Gradable, Kind, Row, Table, View

__all__ = [
    "EVIDENCE_SHARE",
    "GRADER_VERSION",
    "KINDS",
    "POTENTIALS",
    "SCORERS",
    "UNFINISHED",
    "Acceptance",
    "Accepted",
    "Allow",
    "AnswerLikelihood",
    "Candidates",
    "Change",
    "Check",
    "Checks",
    "Clue",
    "Ear",
    "Gradable",
    "Grader",
    "Graph",
    "Information",
    "Kind",
    "Look",
    "Match",
    "Memory",
    "Milestones",
    "Node",
    "Potential",
    "Record",
    "Refused",
    "Row",
    "Rubric",
    "Table",
    "Unjudged",
    "Verdict",
    "View",
    "accept",
    "blank",
    "cap_evidence",
    "changes",
    "grade",
    "milestone_targets",
    "penalty",
    "potential_named",
    "preference",
    "prompt_weight",
    "renorm",
    "settle",
    "staged",
    "stratify",
]
