"""Gymnasium environments for tool-using language agents that pay verified progress.

Importing registers the ids and nothing else; what stands below is loaded when it is first used.
``gym.make("headway:headway/Apps-v0")`` needs no import at all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headway import envs as envs

if TYPE_CHECKING:
    from headway.envs.fork import fork as fork
    from headway.envs.fork import get_state as get_state
    from headway.envs.fork import set_state as set_state
    from headway.envs.spaces import CUT as CUT
    from headway.envs.vector import TextVec as TextVec
    from headway.envs.vector import make_vec as make_vec
    from headway.wrappers.schedule import set_progress as set_progress

_HOME = {
    "CUT": "headway.envs.spaces",
    "TextVec": "headway.envs.vector",
    "fork": "headway.envs.fork",
    "get_state": "headway.envs.fork",
    "make_vec": "headway.envs.vector",
    "set_progress": "headway.wrappers.schedule",
    "set_state": "headway.envs.fork",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'headway' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
