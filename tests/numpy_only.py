"""Turns the operators' compiled library off, so that NumPy does its work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from rowkind.operators.columns import library


@contextmanager
def numpy_only() -> Iterator[None]:
    """Do the work without the library while in the context."""
    with patch.object(library, "kernels", lambda: None):
        yield
