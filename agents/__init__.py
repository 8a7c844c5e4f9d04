"""Who acts: agents without a model, and what they are worth on many tasks."""

from __future__ import annotations

from headway.agents.audit import Audit, audit, replay
from headway.agents.evaluate import Episode, Evaluation, evaluate, pass_at_k, play, wilson
from headway.agents.rescore import Rescored, rescore
from headway.agents.scripted import AGENTS, Agent, NoOp, Oracle, Random, Reader

__all__ = [
    "AGENTS",
    "Agent",
    "Audit",
    "Episode",
    "Evaluation",
    "NoOp",
    "Oracle",
    "Random",
    "Reader",
    "Rescored",
    "audit",
    "evaluate",
    "pass_at_k",
    "play",
    "replay",
    "rescore",
    "wilson",
]
