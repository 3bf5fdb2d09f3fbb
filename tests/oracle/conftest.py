"""What the oracles share."""

from __future__ import annotations

import duckdb
import pytest


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """One connection, one thread: the tables are tiny."""
    return duckdb.connect(config={"threads": 1})
