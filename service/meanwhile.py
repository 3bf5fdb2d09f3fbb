"""Something that is done again and again while something else goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(do: Callable[[], object], every_seconds: float, name: str) -> Iterator[None]:
    """Do it so often, in a thread of this name, until what is inside has ended; an error that it raises ends it."""
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
        thread.join()
