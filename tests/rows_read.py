"""How many stored rows operators read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from rowkind.operators.arrangement import compiled
from rowkind.operators.arrangement.segment import Segment


@contextmanager
def rows_read() -> Iterator[list[int]]:
    """Record how many rows each lookup reads while in the context, with the compiled library or without it."""
    read: list[int] = []
    lookup = compiled.lookup

    def looked_up(*arguments: Any, **options: Any) -> Any:
        found = lookup(*arguments, **options)
        if found is not None:
            read.append(found.read)
        return found

    def counted(name: str) -> Any:
        function = getattr(Segment, name)

        def find(*arguments: Any) -> Any:
            result = function(*arguments)
            read.append(len(result))
            return result

        return patch.object(Segment, name, find)

    with patch.object(compiled, "lookup", looked_up), counted("find"), counted("find_up_to"):
        yield read
