"""House: rooms, things and one hand, as text or as numbers for classic RL.

``tools`` holds the state and what can be done to it, ``templates`` the families of tasks,
``probes`` what the contract tries on each task, ``view`` the numbers, ``words.json`` the
vocabularies of the splits, ``sayings.json`` the sentences of the instructions.
"""

from __future__ import annotations

import json
from importlib.resources import files

from headway.envs.domain import Domain
from headway.envs.domains.house import probes
from headway.envs.domains.house.templates import TEMPLATES
from headway.envs.domains.house.tools import TABLES, TOOLS
from headway.envs.domains.house.view import VIEW
from headway.envs.world import Knobs

WORDS, SAYINGS = (
    json.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))
    for name in ("words.json", "sayings.json")
)

KNOBS = {
    1: Knobs(size=1, distractors=1, traps=0, noise=0),
    2: Knobs(size=2, distractors=2, traps=0, noise=0),
    3: Knobs(size=3, distractors=2, traps=1, noise=0),
    4: Knobs(size=4, distractors=2, traps=2, noise=1),
    5: Knobs(size=5, distractors=2, traps=2, noise=2),
}

HOUSE = Domain(
    name="House",
    version=0,
    tables=TABLES,
    tools=TOOLS,
    templates=TEMPLATES,
    knobs=KNOBS,
    words=WORDS,
    sayings={t.name: {**SAYINGS["everywhere"], **SAYINGS[t.name]} for t in TEMPLATES},
    renderings=(0, 1, 2),
    unjudged=("body",),
    guess=probes.guess,
    look=probes.look,
    stray=probes.stray,
    variants=probes.VARIANTS,
    view=VIEW,
    random_from=2,
)
"""Random play often solves one goal by chance, so it has to fail from two on."""
