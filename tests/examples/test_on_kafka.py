"""The queries of the school and of Nexmark through Kafka and Spark: what their topics say."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.service.dev.broker import Broker
from tests.examples.jobs import InDuckDB, Inputs, batches, example, stored_lines
from tests.examples.on_kafka import OnKafka
from tests.run.results import Results

# Each starts a query per sink, two dozen at once: not beside another one, nor beside containers.
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.xdist_group("containers")]

TOGETHER = 4
"""Queries that run side by side, which two cores do in less time than one after the other."""

JOBS = {"school": 25, "nexmark": 160}
"""The jobs, and how many changes make a batch: there are two or three."""

ALIKE = {
    "first_exams",
    "mentors",
    "not_a_mentor_really",
    "personal_bests",
    "podium",
    "runners_up",
    "teachers",
    "with_distinction",
}
"""Queries left out here, because others run the same operators and each costs ten seconds of processor time."""


@pytest.mark.parametrize("name", JOBS)
def test_every_query_gives_on_kafka_what_duckdb_gives(
    name: str, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Thirty result topics fold to their queries' results, and take back only what is there."""
    on_kafka = OnKafka(name, broker.bootstrap_servers, tmp_path, JOBS[name])
    job, inputs = example(name), Inputs(example(name))
    inputs.apply(batches(job, stored_lines(name), 1_000)[0])
    duckdb = InDuckDB(job)
    duckdb.show(inputs.tables)
    wrong = []
    sinks = [sink for sink in on_kafka.sinks if sink not in ALIKE]
    for first in range(0, len(sinks), TOGETHER):
        on_kafka.run(spark, sinks[first : first + TOGETHER])
    for sink in sinks:
        results = Results(on_kafka, sink)
        found, expected = results.rows(), duckdb.values(sink, on_kafka.sinks[sink].value)
        results.close()
        if found != expected or results.flaws:
            wrong.append(f"{sink}: too much {found - expected}, too little {expected - found}, flaws {results.flaws}")
    assert not wrong, "\n".join(wrong)
