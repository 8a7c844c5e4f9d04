"""What a new world has to supply; everything else is shared."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headway.envs.box import Box
from headway.envs.rng import Rng
from headway.envs.task import RENDERINGS
from headway.envs.tools import Tool
from headway.envs.wording import near
from headway.envs.world import Action, Draft, Knobs, LatentWorld, Step
from headway.verifiers import GRADER_VERSION, KINDS, Kind


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A call of the numeric view; compared by identity, as a reader makes each one once."""

    tool: str
    args: Mapping[str, Any]


Plan = Sequence[Step]
Variant = Callable[[LatentWorld, Plan, Rng], "list[Action] | None"]


@dataclass(frozen=True)
class Template:
    """One family of tasks.

    Attributes:
        name: Part of the task id.
        draft: Writes a world.
        held_out: True keeps the whole family out of the train split.
    """

    name: str
    draft: Callable[[Draft], None]
    held_out: bool = False


@dataclass(frozen=True)
class Document:
    """Where a world keeps texts, so that rules can be moved into one (R3).

    Attributes:
        place: ``place(tables, title, text)`` returns the tables with the document in them and the
            record name under which a reader has seen it.
        read: The oracle's calls that show the document with that title.
        phrase: How the instruction refers to it, with ``{title}``.
        titles: Names that a document may have, per split.
    """

    place: Callable[[dict[str, Any], str, str], tuple[dict[str, Any], str]]
    read: Callable[[str], tuple[Action, ...]]
    phrase: Sequence[str]
    titles: Mapping[str, Sequence[str]]


class Reader(Protocol):
    """One world as classic RL sees it; pure functions of the box."""

    def actions(self, box: Box) -> Sequence[Slot]:
        """A call for every slot, whether it is possible now or not."""
        ...

    def mask(self, box: Box) -> Sequence[bool]:
        """Which of them are possible now."""
        ...

    def features(self, box: Box, out: NDArray[np.float32]) -> None:
        """Writes the state and the goal, numbers in [0, 1], into ``out``, which is all 0."""
        ...


@dataclass(frozen=True)
class Numeric:
    """A numeric view: as many actions and numbers in every world of a domain.

    Attributes:
        slots: What each action does, in words; action i is always the i-th.
        size: How many numbers ``Reader.features`` writes.
        read: The reader of a world.
    """

    slots: tuple[str, ...]
    size: int
    read: Callable[[LatentWorld], Reader]


@dataclass(frozen=True)
class Domain:
    """A world: its state, its tools, its templates and what the contract needs to test it.

    Attributes:
        name: In CamelCase; the environment is ``headway/<name>-v<version>``.
        version: Raised by anything that changes a task or a verdict.
        tables: Names of the tables of the state.
        tools: The tools, without ``submit`` and ``ask_user``, which every domain has.
        templates: The families of tasks.
        knobs: What difficulty 1 to 5 means here.
        words: Word lists: split, name, words.
        sayings: What the templates can say: template, id, wordings. Every id has ``do`` and
            ``want``, three wordings or more each, the last third of which never occurs in train;
            ``ask``, the words by which a question is about it; and ``rule``, true for what can
            stand in a document (R3). ``"vague"`` is a list: the request at R4. The last two only
            for the levels that the domain has.
        renderings: Levels at which its tasks can be told, of 0 to 4.
        document: Where rules can be moved to; None where no task is told at R3.
        undo: For tools whose effect can be taken back, the call that does it, from the result of
            the call that made it.
        voids: See :class:`headway.verifiers.Acceptance`.
        guess: ``guess(box, rng)`` is a valid random call.
        look: ``look(box)`` are the calls that read everything there is.
        stray: ``stray(world, rng)`` are calls that damage something outside any footprint.
        variants: Honest other ways to carry out a solution, by name; each returns the actions,
            or None where it does not apply.
        kinds: Check kinds, the shared ones by default.
        grader: Version of ``kinds``; part of every digest, raised by anything that changes a
            verdict.
        unjudged: Tables besides ``tables`` that tools may write, such as where the agent stands: no
            change there is progress or damage.
        sandbox: What its processes run in; ``"none"`` where all is in memory.
        view: Its numeric view for classic RL; None where there is none.
        random_from: Least difficulty at which random play must never succeed and earns at most
            5 %. Above 1 only where a single goal can be met by chance and is meant to be.
        extras: Extras of the package that it needs.
        modules: What those bring and it imports late; missing ones are told when an environment is
            made.
        max_obs_chars: Longest observation.

    Raises:
        ValueError: A template has no sayings, or a document is missing, or one too many.
    """

    name: str
    version: int
    tables: tuple[str, ...]
    tools: tuple[Tool, ...]
    templates: tuple[Template, ...]
    knobs: Mapping[int, Knobs]
    words: Mapping[str, Mapping[str, Sequence[str]]]
    sayings: Mapping[str, Mapping[str, Any]]
    guess: Callable[[Box, Rng], Action]
    look: Callable[[Box], Sequence[Action]]
    stray: Callable[[LatentWorld, Rng], Sequence[Action]]
    variants: Mapping[str, Variant]
    renderings: tuple[int, ...] = RENDERINGS
    document: Document | None = None
    undo: Mapping[str, Callable[[Any], Action]] = field(default_factory=dict)
    voids: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kinds: Mapping[str, Kind] = field(default_factory=lambda: KINDS)
    grader: str = GRADER_VERSION
    unjudged: tuple[str, ...] = ()
    sandbox: str = "none"
    view: Numeric | None = None
    random_from: int = 1
    extras: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    max_obs_chars: int = 6000

    def __post_init__(self) -> None:
        if (self.document is not None) != (3 in self.renderings):
            raise ValueError(
                f"document must be given exactly if 3 is in renderings, got {self.renderings} and "
                f"{self.document!r}"
            )
        for template in self.templates:
            if template.name not in self.sayings:
                raise ValueError(
                    f"sayings must have an entry for every template, has {list(self.sayings)} and "
                    f"none for {template.name!r}{near(template.name, self.sayings)}"
                )

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the wrappers that give classic RL a numeric view of it."""
        return () if self.view is None else ("DiscreteActions", "Features")

    @cached_property
    def toolbox(self) -> Mapping[str, Tool]:
        """The domain's own tools by name."""
        return MappingProxyType({tool.name: tool for tool in self.tools})

    def check_installed(self) -> None:
        """Makes sure that everything is there that its worlds need.

        Raises:
            ModuleNotFoundError: An extra is not installed.
        """
        for module in self.modules:
            if importlib.util.find_spec(module) is None:
                raise ModuleNotFoundError(
                    f"{self.name} needs {module}, which is missing; "
                    f'pip install "headway[{",".join(self.extras)}]"',
                    name=module,
                )

    def template_names(self, split: str) -> tuple[str, ...]:
        """Templates that may occur in a split."""
        return tuple(t.name for t in self.templates if split != "train" or not t.held_out)

    def template(self, name: str) -> Template:
        """The template with that name, which the caller has checked."""
        return next(t for t in self.templates if t.name == name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Domain:
        """A domain is a value: siblings share it."""
        return self


def load(where: str | Domain) -> Domain:
    """The domain itself, or the one that ``"module:attribute"`` names.

    Raises:
        ValueError: ``where`` is neither.
    """
    if isinstance(where, Domain):
        return where
    module, _, attribute = where.partition(":") if isinstance(where, str) else ("", "", "")
    if not (module and attribute):
        raise ValueError(
            f"domain must be a Domain or 'module:attribute', for example "
            f"'headway.envs.domains.apps:APPS', got {where!r}"
        )
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"domain {where!r} must name a module on the import path: {error}"
        ) from error
    if not isinstance(found, Domain):
        raise ValueError(f"domain {where!r} must name a Domain, found {found!r}")
    return found
