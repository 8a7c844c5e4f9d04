"""Reward algebra: named, bounded dense rewards around anything that can be graded."""

from __future__ import annotations

from typing import Any

from headway.wrappers.bounds import (
    Clip,
    ClippedReward,
    Delta,
    DeltaReward,
    Watermark,
    WatermarkReward,
)
from headway.wrappers.channel import Bound, Channel, ChannelWrapper, Ended, Filter, FilterWrapper
from headway.wrappers.dependency import DependencyReward, Redistribute
from headway.wrappers.ends import LateBonus, LateReward, TurnCost, TurnCostReward
from headway.wrappers.foreign import Graded
from headway.wrappers.gate import GATES, Gate, GatedReward
from headway.wrappers.information import InfoGain
from headway.wrappers.match import MatchReward
from headway.wrappers.novelty import KEYS, Dedup, DedupReward, Novelty, NoveltyReward
from headway.wrappers.placebo import Placebo, PlaceboReward
from headway.wrappers.progress import PotentialShaping, ProgressReward
from headway.wrappers.record import Recorder, episodes
from headway.wrappers.rubric import RubricReward
from headway.wrappers.schedule import (
    S2D,
    SCHEDULES,
    Anneal,
    Schedule,
    ScheduledReward,
    SparseToDense,
    set_progress,
)
from headway.wrappers.stack import LAYERS, build
from headway.wrappers.staged import StagedReward
from headway.wrappers.transforms import Diff
from headway.wrappers.views import DiscreteActions, Features

__all__ = [
    "GATES",
    "KEYS",
    "LAYERS",
    "S2D",
    "SCHEDULES",
    "Anneal",
    "Bound",
    "Channel",
    "ChannelWrapper",
    "Clip",
    "ClippedReward",
    "Dedup",
    "DedupReward",
    "Delta",
    "DeltaReward",
    "DependencyReward",
    "Diff",
    "DiscreteActions",
    "Ended",
    "Features",
    "Filter",
    "FilterWrapper",
    "Gate",
    "GatedReward",
    "Graded",
    "InfoGain",
    "LateBonus",
    "LateReward",
    "MatchReward",
    "Novelty",
    "NoveltyReward",
    "Placebo",
    "PlaceboReward",
    "PotentialShaping",
    "ProgressReward",
    "Recorder",
    "Redistribute",
    "RubricReward",
    "Schedule",
    "ScheduledReward",
    "SparseToDense",
    "StagedReward",
    "TurnCost",
    "TurnCostReward",
    "Watermark",
    "WatermarkReward",
    "build",
    "episodes",
    "set_progress",
]


def __getattr__(name: str) -> Any:
    if name == "SeatChannels":  # needs pettingzoo, which is an extra
        from headway.wrappers.seat import SeatChannels

        return SeatChannels
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
