"""The kinds of check that come with headway, by the names that tasks give them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headway.verifiers.kinds.tables import BAG, ROWS, SEEN
from headway.verifiers.view import Kind

KINDS: Mapping[str, Kind] = MappingProxyType({"bag": BAG, "rows": ROWS, "seen": SEEN})

GRADER_VERSION = "1"
"""Part of every task digest: bump on any change of a verdict, in kinds or in ``grade``."""
