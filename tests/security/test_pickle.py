"""Pickled values are exchanged only between processes of one job and are never from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from rowkind.service.kafka import producer_process

ROOT = Path(__file__).parents[2]
KNOWN = {
    "service/kafka/spec.py": "a source's settings, in an option that our own driver gives to Spark",
    "service/kafka/printed_changes.py": "changes that a task prints, over a socket that only the job's user finds",
    "service/kafka/producer_process.py": "between a worker and its writer, over a socket that only their user finds",
}


def test_nothing_else_is_unpickled() -> None:
    """Every place that unpickles values is listed with the origin of its bytes."""
    files = [path for part in ("avro", "operators", "service", "rowkind") for path in (ROOT / part).rglob("*.py")]
    found = {
        str(path.resolve().relative_to(ROOT))
        for path in files
        if re.search(r"\bpickle\.loads?\(|\bUnpickler\b|\bmarshal\.|\bshelve\b|yaml\.unsafe", path.read_text())
    }
    assert found == KNOWN.keys()


def test_a_writer_listens_where_only_its_user_may_enter() -> None:
    """Only the user of a writer process has access to the folder of its socket."""
    folder = Path(producer_process.address("localhost:9092", "job-main-0", "1")).parent
    assert folder.stat().st_mode & 0o077 == 0
