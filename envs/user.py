"""The user of a vague request (R4): holds the clauses and tells what it is asked about."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headway.envs.task import Clause
from headway.verifiers.view import Table

_WORD = re.compile(r"\w+")


def user_table(clauses: Sequence[Clause]) -> Table:
    """What the user knows: a row a clause, in a table that no tool shows."""
    return {c.id: {"text": c.text, "ask": list(c.ask)} for c in clauses if c.place == "user"}


def answer(known: Mapping[str, Mapping[str, Any]], question: str) -> tuple[str, tuple[str, ...]]:
    """What a scripted user says to ``question``, and the topics it has told.

    A question is about a clause when it holds one of the clause's words. A question about none
    gets the topics, so that an agent that asks anything sensible gets on.
    """
    asked = set(_WORD.findall(question.casefold()))
    told = [topic for topic, row in known.items() if asked & set(row["ask"])]
    if told:
        return " ".join(known[topic]["text"] for topic in told), tuple(told)
    topics = ", ".join(row["ask"][0] for row in known.values())
    return f"I did not get that. Ask me about: {topics}.", ()
