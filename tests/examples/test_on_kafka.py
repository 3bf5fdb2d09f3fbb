"""The queries of the examples school, Nexmark and reviews on Kafka and Spark: the content of their topics."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.service.dev.broker import Broker
from tests.examples.jobs import InDuckDB, Inputs, batches, example, stored_lines
from tests.examples.on_kafka import OnKafka
from tests.examples.test_functions import EXPECTED
from tests.run.results import Results

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

JOBS = {"school": 25, "nexmark": 160}
"""The jobs with their changes per batch, which give two or three batches."""


@pytest.mark.parametrize("name", JOBS)
def test_every_query_gives_on_kafka_what_duckdb_gives(
    name: str, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """All result topics of a job, written by one query, fold to DuckDB's results without unmatched retractions."""
    on_kafka = OnKafka(name, broker.bootstrap_servers, tmp_path, JOBS[name])
    job, inputs = example(name), Inputs(example(name))
    inputs.apply(batches(job, stored_lines(name), 1_000)[0])
    duckdb = InDuckDB(job)
    duckdb.show(inputs.tables)
    # The topics have not ended, so only the final rows that close before the last pause must be there.
    pause, wrong = inputs.watermark(job.tables) - timedelta(hours=1), []
    on_kafka.run(spark)
    for sink in on_kafka.sinks:
        results = Results(on_kafka, sink)
        value, found = on_kafka.sinks[sink].value, results.rows()
        if sink == "q12":
            # The processing times of bids are known only to the run, so only the number of bids per bidder is compared.
            bids, bidders = inputs.tables["bid"].column("bidder").to_pylist(), Counter[int]()
            for (bidder, count, *_), times in found.items():
                bidders[bidder] += count * times
            wrong += [] if bidders == Counter(bids) and not results.flaws else [f"{sink}: {found} {results.flaws}"]
            results.close()
            continue
        much, little = found - duckdb.values(sink, value), duckdb.values(sink, value, pause) - found
        results.close()
        if much or little or results.flaws:
            wrong.append(f"{sink}: too much {much}, too little {little}, flaws {results.flaws}")
    assert not wrong, "\n".join(wrong)


def test_functions_in_python_give_on_kafka_what_they_give_in_memory(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Scalar, table and aggregate functions in Spark's workers give the in-memory results over several batches."""
    on_kafka = OnKafka("reviews", broker.bootstrap_servers, tmp_path, 5)
    on_kafka.run(spark)
    wrong = []
    for sink in on_kafka.sinks:
        results = Results(on_kafka, sink)
        found, expected = results.rows(), Counter(map(tuple, EXPECTED[sink]))
        results.close()
        if found != expected or results.flaws:
            wrong.append(f"{sink}: {found}, not {expected}, flaws {results.flaws}")
    assert not wrong, "\n".join(wrong)
