"""The value of ``info["headway"]``, which environments begin and wrappers fill."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
"""``base``, ``channels``, ``channels_raw``, ``phi``, ``gate``, ``status``, ``verdict``."""


def blank(base: float) -> Record:
    """The record of a turn that nobody has graded: all of the reward is base."""
    return {
        "base": base,
        "channels": {},
        "channels_raw": {},
        "phi": {},
        "gate": {},
        "status": "ungraded",
        "verdict": None,
    }
