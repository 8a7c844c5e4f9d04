"""Work done by several processes, none of which outlives who started it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

GRACE_S = 5.0
"""Seconds that a worker is given to end by itself."""


@contextmanager
def mapped(
    work: Callable[[T], R], items: Sequence[T], jobs: int, *, ordered: bool = True
) -> Iterator[Iterator[R]]:
    """The results of ``work``; leaving early leaves no process.

    Args:
        work: Must be picklable if ``jobs`` is above 1, as must items and results.
        items: What to do.
        jobs: Processes; with 1 it is done in this one.
        ordered: Whether results come in the order of the items, and not as they are ready.
    """
    if jobs == 1:
        yield map(work, items)
        return
    others = active_children()
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_enlist)
    try:
        if ordered:
            yield pool.map(work, items)
        else:
            yield (done.result() for done in as_completed([pool.submit(work, i) for i in items]))
    except BaseException:
        # A worker ends after the item it is at, unless the interrupt has hit a lock.
        workers = [worker for worker in active_children() if worker not in others]
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.join(GRACE_S)
            worker.kill()
        raise
    pool.shutdown()


def _enlist() -> None:
    """Makes a worker leave Ctrl-C to its parent and die with it, however that dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    parent = parent_process()
    assert parent is not None  # only workers enlist
    parent.join()
    os._exit(1)
