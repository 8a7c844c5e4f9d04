"""HopSearch: questions of several hops to an invented encyclopaedia with a search engine.

``edition`` holds the encyclopaedia and its index, ``tools`` what an agent can do with it,
``templates`` the families of questions, ``clues`` what each page rules out, ``probes`` what the
contract tries on each task; ``words.json`` has the names of the splits, ``prose.json`` the
sentences of the pages and the phrases of the questions, ``sayings.json`` those of the instructions.
"""

from __future__ import annotations

import json
from importlib.resources import files

from headway.envs.domain import Domain
from headway.envs.domains.hopsearch import probes
from headway.envs.domains.hopsearch.edition import WORDS
from headway.envs.domains.hopsearch.templates import TEMPLATES
from headway.envs.domains.hopsearch.tools import TABLES, TOOLS
from headway.envs.world import Knobs

_SAYINGS = json.loads(files(__package__).joinpath("sayings.json").read_text(encoding="utf-8"))
SAYINGS = {
    template.name: {**_SAYINGS["shared"], **_SAYINGS[template.name]} for template in TEMPLATES
}

KNOBS = {
    1: Knobs(size=1, distractors=1, traps=0, noise=0),
    2: Knobs(size=2, distractors=2, traps=0, noise=0),
    3: Knobs(size=3, distractors=3, traps=1, noise=0),
    4: Knobs(size=4, distractors=4, traps=1, noise=1),
    5: Knobs(size=5, distractors=5, traps=1, noise=2),
}
"""``distractors`` is the rank of the edition's size: 200, 400, 700, 1200 or 2000 pages."""

HOPSEARCH = Domain(
    name="HopSearch",
    version=0,
    tables=TABLES,
    tools=TOOLS,
    templates=TEMPLATES,
    knobs=KNOBS,
    words=WORDS,
    sayings=SAYINGS,
    guess=probes.guess,
    look=probes.look,
    stray=probes.stray,
    variants=probes.VARIANTS,
    renderings=(0, 1, 2),
    undo=probes.UNDO,
    extras=("domains",),
    modules=("bm25s",),
)
