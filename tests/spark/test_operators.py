"""The operators themselves in a real query, on RocksDB."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from operators.changes import Block
from operators.store import MemoryStore
from service.spark.processor import OperatorProcessor
from tests.laws.subjects import SUBJECTS
from tests.spark.distinct import by_payload, changes
from tests.spark.replay import Replay, scripted, told
from tests.spark.running import Query


@pytest.mark.spark
def test_operators_do_on_rocksdb_what_they_do_in_memory_and_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Each subject gives the same batch by batch, restarted in between, and has no state once all is retracted."""
    expected = {}
    for number, subject in enumerate(SUBJECTS):
        stores = {name: MemoryStore() for name in subject.operator.arrangements}
        for batch, columns in enumerate(map(subject.columns, scripted(subject))):
            expected[number, batch] = told(subject.operator.process(columns, stores, now=batch))
    processor = OperatorProcessor("replay", Replay(), by_payload, shards=len(SUBJECTS), labels=[0])
    query = Query(spark, tmp_path, processor, shards=len(SUBJECTS))
    last = max(batch for _, batch in expected)
    for batch in range(last + 1):
        query.add({n: [Block(changes(("+I", f"{n}|{b}")))] for n, b in expected if b == batch})
        if batch == last // 2:
            query.run()
    query.run()
    for batch, labels in query.outputs.items():
        for payload in (payload for blocks in labels.values() for block in blocks for payload in block.changes.payload):
            number, _, result = payload.as_py().partition(b"|")
            assert result == expected.pop((int(number), batch)), f"{SUBJECTS[int(number)]}, batch {batch}"
    assert not expected
    for arrangement in Replay().arrangements:
        reader = spark.read.format("statestore").option("stateVarName", arrangement)
        assert reader.load(str(tmp_path / "checkpoint")).count() == 0
