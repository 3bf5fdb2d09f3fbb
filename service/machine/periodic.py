"""Calls a function repeatedly while a block of code runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(
    do: Callable[[], object], every_seconds: float, name: str, last_seconds: float | None = None
) -> Iterator[None]:
    """Call `do` at the given interval, in a thread called `name`, until the block ends.

    An error in `do` ends the calls. When the block ends, wait for a call in progress: for at most `last_seconds`, or,
    if `last_seconds` is None, until the call returns.
    """
    ended = threading.Event()

    def again() -> None:
        while not ended.wait(every_seconds):
            do()

    thread = threading.Thread(target=again, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(last_seconds)
