"""Any bytes in a topic become a row or are refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.records import Formats, batch


@pytest.mark.parametrize("seed", range(6))
def test_random_records_are_rows_or_refused(seed: int, tmp_path: Path) -> None:
    """Every input of a random batch of each kind becomes a row or is refused."""
    print(f"seed {seed}")
    formats = Formats(tmp_path)
    for surface in formats.surfaces():
        print(surface)
        assert batch(formats, surface, seed).total()
