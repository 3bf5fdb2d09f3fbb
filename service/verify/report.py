"""The report of an audit: as a table for people, as JSON, and as metrics for Prometheus."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from rowkind.avro.to_json import base64_text, json_float
from rowkind.quantities import counted
from rowkind.service.verify.judgement import SinkAudit

_METRICS = (
    ("rowkind_verify_rows", "Rows of the result topic that are as expected.", lambda each: each.compared.equal),
    (
        "rowkind_verify_differences",
        "Rows of the result topic that differ, are missing, or are not expected.",
        lambda each: each.compared.different,
    ),
    (
        "rowkind_verify_unsure_rows",
        "Rows that were not compared.",
        lambda each: each.compared.unsure + each.compared.pending,
    ),
    (
        "rowkind_verify_not_compared",
        "1 if the sink could not be compared, else 0.",
        lambda each: int(each.verdict == "not compared"),
    ),
)


def document(audits: Sequence[SinkAudit]) -> Iterator[str]:
    """Yield a JSON object per sink."""
    for each in audits:
        found: dict[str, Any] = {"sink": each.sink, "topic": each.topic, "verdict": each.verdict}
        if each.verdict == "not compared":
            found |= {"reason": each.reason} | ({"notes": list(each.notes)} if each.notes else {})
        else:
            compared = each.compared
            found |= {"rows": compared.equal, "differences": compared.different}
            found |= {"unsure": compared.unsure, "pending": compared.pending, "notes": list(each.notes)}
            found["first"] = [
                {
                    "expected": _json(difference.expected),
                    "found": _json(difference.found),
                    "partition": difference.partition,
                    "offset": difference.offset,
                    "sources": [
                        {
                            "table": row.table,
                            "topic": row.topic,
                            "partition": row.partition,
                            "offset": row.offset,
                            "row": _json(row.row),
                        }
                        for row in sources
                    ],
                }
                for difference, sources in zip(compared.first, each.sources, strict=True)
            ]
        yield json.dumps(found, allow_nan=False, ensure_ascii=False)


def _json(value: Any) -> Any:
    """Return a value that DuckDB returned as a JSON value, in the same form as `rowkind consume` prints it."""
    match value:
        case float():
            return json_float(value)
        case Decimal():
            return f"{value:f}"
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case bytes():
            return base64_text(value)
        case Mapping():
            return {str(_json(name)): _json(each) for name, each in value.items()}
        case list() | tuple():
            return [_json(each) for each in value]
        case None | bool() | int() | str():
            return value
    return str(value)


def lines(audits: Sequence[SinkAudit]) -> Iterator[str]:
    """Yield the lines of the report for people."""
    width = max((len(each.sink) for each in audits), default=0)
    for each in audits:
        name = each.sink.ljust(width)
        if each.verdict == "not compared":
            yield f"{name}  not compared: {each.reason}"
            yield from (f"{' ' * width}  {note}" for note in each.notes)
            continue
        if each.verdict == "ok":
            yield f"{name}  ok, {counted(each.compared.equal, 'row')}"
        else:
            different = counted(each.compared.different, "row")
            yield f"{name}  differs: {different}; {counted(each.compared.equal, 'row')} as expected"
        yield from (f"{' ' * width}  {note}" for note in each.notes)
        for difference, sources in zip(each.compared.first, each.sources, strict=True):
            place = f"{each.topic}/{difference.partition}@{difference.offset}"
            shown = [("expected", "", difference.expected), ("found", place, difference.found)]
            rows = [(label, at, row) for label, at, row in shown if row is not None]
            yield ""
            yield from _table(rows)
            missing = [label for label, _, row in shown if row is None]
            yield from ("  no row expected" if label == "expected" else "  no row found" for label in missing)
            for row in sources:
                yield from _table([("source", f"{row.topic}/{row.partition}@{row.offset}", row.row)])
        if each.compared.first:
            yield ""


def _table(rows: Sequence[tuple[str, str, dict[str, Any]]]) -> Iterator[str]:
    """Yield a table with a line of names and a line per row."""
    if not rows:
        return
    names = list(rows[0][2])
    table = [["", "", *names], *([label, place, *(_text(row[name]) for name in names)] for label, place, row in rows)]
    widths = [max(len(line[at]) for line in table) for at in range(len(table[0]))]
    for line in table:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True) if width]
        yield f"  {'  '.join(cells)}".rstrip()


def _text(value: Any) -> str:
    shown = "NULL" if value is None else _json(value)
    return (shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)).replace("\n", "\\n")


def write_metrics(file: Path, job: str, audits: Sequence[SinkAudit]) -> None:
    """Write the metrics in Prometheus's text format, for node-exporter's textfile collector. Raises OSError."""
    found = []
    for name, about, value in _METRICS:
        found += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
        found += [f'{name}{{job_name="{job}",sink="{each.sink}"}} {value(each)}' for each in audits]
    name = "rowkind_verify_timestamp_seconds"
    found += [f"# HELP {name} When the last audit ended.", f"# TYPE {name} gauge"]
    found.append(f'{name}{{job_name="{job}"}} {time.time():.0f}')
    # The collector must not read half a file.
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    part.write_text("\n".join([*found, ""]))
    part.replace(file)
