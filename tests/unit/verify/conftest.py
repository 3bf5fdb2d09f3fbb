"""Fixtures of the tests of `rowkind verify`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.client.folded_topics import FoldedTopics
from rowkind.service.execute.kernels import register
from tests.unit.verify.judged import (
    KEYED,
    Case,
)


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    """Return a function that opens a job with a table `items` and a sink with the given query."""
    with ExitStack() as stack:

        def of(sql: str, sink: Mapping[str, Any] = KEYED, **table: Any) -> Case:
            columns = {"k": "STRING NOT NULL", "g": "INT", "v": "BIGINT", "at": "TIMESTAMP"}
            items = {"topic": "items", "mode": "append", "columns": columns} | table
            job = {
                "job": "doubted",
                "kafka": {"bootstrap.servers": "127.0.0.1:1"},
                "registry": {"folder": "schemas"},
                "tables": {"items": items},
                "sinks": {"result": {"topic": "result", "sql": sql, **sink}},
            }
            (tmp_path / "job.yaml").write_text(json.dumps(job))
            topics = stack.enter_context(FoldedTopics(tmp_path / "job.yaml"))
            register(topics.connection)
            return Case(topics)

        yield of
