"""Whatever lies in a topic: it is a row, or it is refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.records import Formats, batch


@pytest.mark.parametrize("seed", range(6))
def test_random_records_are_rows_or_refused(seed: int, tmp_path: Path) -> None:
    """A batch of every kind."""
    print(f"seed {seed}")
    formats = Formats(tmp_path)
    for surface in formats.surfaces():
        print(surface)
        assert batch(formats, surface, seed).total()
