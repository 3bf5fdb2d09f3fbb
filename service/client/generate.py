"""Write generated changes to a table's topic, to try a job or to measure it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rowkind.avro.python_values import to_python
from rowkind.operators.changelog import SYMBOLS
from rowkind.service.client.external_table import OutsideError
from rowkind.service.client.produce import Producer
from rowkind.service.job.load import generate_settings
from rowkind.service.kafka.generated_topic import GeneratedTopic
from rowkind.service.physical.generation import Generation
from rowkind.service.physical.source_table import SourceTable


def settings(table: SourceTable, given: Mapping[str, Any], columns: Sequence[str]) -> Generation:
    """Return what to generate for a table. `columns`: settings of columns in YAML, each as `name: settings`.

    Raises OutsideError for settings that are not valid or do not fit the table.
    """
    try:
        found = generate_settings(given, columns)
    except ValueError as error:
        raise OutsideError(str(error)) from None
    if (problem := found.problem(table.declared, table.primary_key)) is not None:
        raise OutsideError(f"table {table.table}: {problem}")
    return found.physical()


def write(producer: Producer, of: Generation) -> Iterator[int]:
    """Write the changes that are due at each step, and yield how many changes have been written so far.

    An update of a retract table is one change, although it is two records. Raises ChangelogError.
    """
    table = replace(producer.table, generation=of)
    begun = round(time.time() * 1000)
    schedule, topic = table.schedule(begun), GeneratedTopic(table, begun)
    at = 0
    while of.most is None or at < of.most * schedule.stride:
        due = schedule.end(time.time() * 1000)
        changes = topic.changes(at, due)
        columns = [to_python(column) for column in topic.columns(changes).columns]
        for kind, *row in zip(changes.kind.tolist(), *columns, strict=True):
            producer.send(SYMBOLS[kind], dict(zip(table.declared.names, row, strict=True)))
        producer.flush()
        at = due
        yield at // schedule.stride
