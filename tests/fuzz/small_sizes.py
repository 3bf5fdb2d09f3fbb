"""The sizes at which state and changes are worked on in parts, made so small that random cases reach them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from rowkind.operators.arrangement import compaction, segment

_SIZES = ((segment, "SEGMENT_ROWS", 2), (compaction, "SEGMENT_ROWS", 2), (compaction, "SMALL_RUN", 1))


@contextmanager
def small_sizes(*, on: bool = True) -> Iterator[None]:
    """Within it, if it is on, segments have 2 rows."""
    with ExitStack() as stack:
        for module, name, size in _SIZES if on else ():
            stack.enter_context(patch.object(module, name, size))
        yield
