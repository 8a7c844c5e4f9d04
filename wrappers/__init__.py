"""Reward algebra: named, bounded dense rewards around anything that can be graded."""

from __future__ import annotations

from typing import Any

from headway.wrappers.channel import Channel, ChannelWrapper, Ended, Filter, FilterWrapper
from headway.wrappers.foreign import Graded
from headway.wrappers.gate import GATES, Gate, GatedReward
from headway.wrappers.progress import PotentialShaping, ProgressReward
from headway.wrappers.schedule import SCHEDULES, Schedule, ScheduledReward, set_progress
from headway.wrappers.transforms import Diff

__all__ = [
    "GATES",
    "SCHEDULES",
    "Channel",
    "ChannelWrapper",
    "Diff",
    "Ended",
    "Filter",
    "FilterWrapper",
    "Gate",
    "GatedReward",
    "Graded",
    "PotentialShaping",
    "ProgressReward",
    "Schedule",
    "ScheduledReward",
    "set_progress",
]


def __getattr__(name: str) -> Any:
    if name == "SeatChannels":  # needs pettingzoo, which is an extra
        from headway.wrappers.seat import SeatChannels

        return SeatChannels
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
