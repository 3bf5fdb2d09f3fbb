"""Fixtures that the oracle tests share."""

from __future__ import annotations

import duckdb
import pytest


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """Open one connection with one thread: the tables are tiny."""
    return duckdb.connect(config={"threads": 1})
