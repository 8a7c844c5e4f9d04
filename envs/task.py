"""Tasks: a latent world rendered for an agent, named by an id and identified by a digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from headway.verifiers import Acceptance
from headway.verifiers.view import Table

SPLITS = ("train", "dev", "test")
DIFFICULTIES = (1, 2, 3, 4, 5)
RENDERINGS = (0, 1, 2, 3, 4)

_ID = re.compile(
    r"(?P<domain>\w+)-v(?P<version>0|[1-9]\d*)/(?P<template>\w+)/d(?P<difficulty>\d)/R(?P<rendering>\d)"
    r"/(?P<split>\w+)/(?P<seed>0|[1-9]\d*)(?:\.(?P<attempt>[1-9]\d*))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class TaskKey:
    """The name of a task: ``Apps-v0/bills/d3/R2/train/17`` or, resampled once, ``.../17.1``.

    Attributes:
        domain: Name of the domain.
        version: Its version; anything that changes a task or a verdict raises it.
        template: Name of the template.
        difficulty: 1 to 5.
        rendering: 0 to 4.
        split: ``"train"``, ``"dev"`` or ``"test"``.
        seed: At least 0.
        attempt: How many earlier worlds of this seed failed the contract.
    """

    domain: str
    version: int
    template: str
    difficulty: int
    rendering: int
    split: str
    seed: int
    attempt: int = 0

    def __str__(self) -> str:
        tail = f".{self.attempt}" if self.attempt else ""
        return (
            f"{self.domain}-v{self.version}/{self.template}/d{self.difficulty}"
            f"/R{self.rendering}/{self.split}/{self.seed}{tail}"
        )

    @classmethod
    def parse(cls, text: str) -> TaskKey:
        """The key that ``str`` would print as ``text``.

        Raises:
            ValueError: ``text`` is not a task id.
        """
        match = _ID.fullmatch(text) if isinstance(text, str) and len(text) <= 200 else None
        if match is None:
            raise ValueError(
                "task_id must look like 'Apps-v0/bills/d3/R2/train/17' "
                f"(domain-version/template/difficulty/rendering/split/seed), got {text!r:.100}"
            )
        part = match.groupdict()
        return cls(
            domain=part["domain"],
            version=int(part["version"]),
            template=part["template"],
            difficulty=int(part["difficulty"]),
            rendering=int(part["rendering"]),
            split=part["split"],
            seed=int(part["seed"]),
            attempt=int(part["attempt"] or 0),
        )

    def next_attempt(self) -> TaskKey:
        """The key of the world to try when this one fails the contract."""
        return replace(self, attempt=self.attempt + 1)


@dataclass(frozen=True, slots=True)
class Clause:
    """A rendered sentence.

    Attributes:
        id: Of the saying it renders.
        text: The sentence.
        announces: Checks that a reader can infer from it.
        slots: ``(fact, start, end)``: where in ``text`` the value of each fact stands.
        place: Where an agent finds it.
        ask: Words by which a question is recognised as being about it.
    """

    id: str
    text: str
    announces: frozenset[str]
    slots: tuple[tuple[str, int, int], ...]
    place: Literal["instruction", "document", "user"] = "instruction"
    ask: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """Everything that an episode needs.

    Attributes:
        key: Its name.
        instruction: What the agent is told.
        clauses: The sentences that state the task, wherever they stand.
        tables: Initial state.
        tools: Names of the tools that the agent has.
        acceptance: What decides the verdict.
        flaky: Tools whose first call fails.
        max_turns: Length of an episode.
        max_obs_chars: Length of one observation.
        schemas: Hash of the tools' schemas.
        grader: Version of the check kinds.
    """

    key: TaskKey
    instruction: str
    clauses: tuple[Clause, ...]
    tables: Mapping[str, Table]
    tools: tuple[str, ...]
    acceptance: Acceptance
    flaky: tuple[str, ...]
    max_turns: int
    max_obs_chars: int
    schemas: str
    grader: str

    @cached_property
    def id(self) -> str:
        """The key as text."""
        return str(self.key)

    def canonical(self) -> str:
        """The whole task as JSON with sorted keys: equal text, equal task."""
        content = {
            "id": self.id,
            "instruction": self.instruction,
            "clauses": [{**asdict(c), "announces": sorted(c.announces)} for c in self.clauses],
            "tables": self.tables,
            "tools": self.tools,
            "acceptance": self.acceptance.as_json(),
            "flaky": self.flaky,
            "limits": [self.max_turns, self.max_obs_chars],
            "schemas": self.schemas,
            "grader": self.grader,
        }
        return json.dumps(content, sort_keys=True, ensure_ascii=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of :meth:`canonical`; covers the grader, so a changed verdict changes it."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()

    def __deepcopy__(self, memo: dict[int, Any]) -> Task:
        """A task is a value: siblings share it."""
        return self


def digest_of(value: Any) -> str:
    """SHA-256 of plain data, 16 hex digits."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
