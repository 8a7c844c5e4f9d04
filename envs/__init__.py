"""Worlds, tools and the turn loop. Importing registers the ids and loads no world."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gymnasium.envs.registration import register

DOMAINS: Mapping[str, str] = MappingProxyType(
    {
        "headway/Apps-v0": "headway.envs.domains.apps:APPS",
        "headway/HopSearch-v0": "headway.envs.domains.hopsearch:HOPSEARCH",
        "headway/House-v0": "headway.envs.domains.house:HOUSE",
    }
)
"""Every id and the domain behind it; a new world adds one row."""

for _id, _domain in DOMAINS.items():
    register(id=_id, entry_point="headway.envs.tool_env:ToolEnv", kwargs={"domain": _domain})
