"""How one measurement is taken: CPU time, and of an episode only its turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

Sample = Callable[[], float]
"""Measures once and returns seconds per item."""


def of_calls(
    calls: Sequence[Callable[[], object]], *, clock: Callable[[], float] = time.process_time
) -> float:
    """Seconds that one of ``calls`` takes on average, made in turn."""
    started = clock()
    for call in calls:
        call()
    return (clock() - started) / len(calls)


def of_turns(
    episodes: Sequence[Sequence[Any]],
    begin: Callable[[int], object],
    turn: Callable[[Any], object],
    *,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Seconds that one ``turn`` takes on average over whole episodes.

    Args:
        episodes: The actions of each. The clock is read twice an episode, which takes as long as a
            step of an environment that does nothing, so episodes of such should be long.
        begin: Called with the number of an episode before its first turn, untimed.
        turn: Called with each action.
        clock: CPU time of this process, or ``time.perf_counter`` where others do the work.
    """
    spent = 0.0
    for number, actions in enumerate(episodes):
        begin(number)
        started = clock()
        for action in actions:
            turn(action)
        spent += clock() - started
    return spent / sum(map(len, episodes))
