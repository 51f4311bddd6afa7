"""Pools of processes that end with the process that started them."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread


def process_pool(count: int | None, *, start_method: str | None = None) -> ProcessPoolExecutor:
    """Create a pool whose processes also end when this process is killed.

    Those of Python's own pool wait for the next job forever then.

    Args:
        count: maximum number of processes; None: one per processor.
        start_method: how they start, as `multiprocessing.get_context` names it. Default: Python's.
    """
    return ProcessPoolExecutor(
        count, mp_context=get_context(start_method), initializer=_end_with_parent
    )


def _end_with_parent() -> None:
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = parent_process()
    assert parent is not None  # noqa: S101 - a pool started this process
    parent.join()
    os._exit(1)
