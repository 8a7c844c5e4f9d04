"""Apps: one person's mail, calendar, contacts, notes, payments and files. The reference world.

``tools`` holds the state and what can be done to it, ``templates`` the families of tasks,
``probes`` what the contract tries on each task, ``words.json`` the vocabularies of the splits,
``sayings.json`` the sentences of the instructions.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from headway.envs.domain import Document, Domain
from headway.envs.domains.apps import probes
from headway.envs.domains.apps.templates import TEMPLATES
from headway.envs.domains.apps.tools import TABLES, TOOLS, VOIDS
from headway.envs.world import Action, Knobs

WORDS, SAYINGS = (
    json.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))
    for name in ("words.json", "sayings.json")
)

KNOBS = {
    1: Knobs(size=1, distractors=1, traps=0, noise=0),
    2: Knobs(size=2, distractors=2, traps=0, noise=0),
    3: Knobs(size=3, distractors=3, traps=1, noise=0),
    4: Knobs(size=4, distractors=4, traps=2, noise=1),
    5: Knobs(size=5, distractors=5, traps=2, noise=2),
}


def _place(tables: dict[str, Any], title: str, text: str) -> tuple[dict[str, Any], str]:
    key = f"n{len(tables['notes']) + 1}"
    notes = {**tables["notes"], key: {"title": title, "text": text}}
    return {**tables, "notes": notes}, f"notes/{key}"


NOTE = Document(
    place=_place,
    read=lambda title: (Action("note_list", {}), Action("note_read", {"title": title})),
    phrase=(
        "How I want it done stands in my note '{title}'.",
        "Follow my note '{title}'.",
        "The particulars are laid down in the note '{title}', which applies here.",
    ),
    titles={split: words["title"] for split, words in WORDS.items()},
)

APPS = Domain(
    name="Apps",
    version=0,
    tables=TABLES,
    tools=TOOLS,
    templates=TEMPLATES,
    knobs=KNOBS,
    words=WORDS,
    sayings=SAYINGS,
    document=NOTE,
    guess=probes.guess,
    look=probes.look,
    stray=probes.stray,
    variants=probes.VARIANTS,
    undo=probes.UNDO,
    voids=VOIDS,
)
