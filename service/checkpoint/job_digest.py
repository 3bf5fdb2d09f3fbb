"""The digest of a sink's definition, which shows whether the query or Rowkind's version has changed a plan.

The digest covers only the job file, and nothing that a version of Rowkind derives from it: the SQL of the sink and of
the views that it refers to, ignoring white space; the sink's settings; and the settings and columns of the tables that
the sink reads. Default values are left out, so that new settings in later versions change nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.tree import walk

_OF_DESTINATION = {"partitions", "replication", "create", "delivery", "on_lost", "to", "prefix"}


def asked(job: Job, sink: PhysicalSink) -> str:
    """Return the digest of one of a job's sinks."""
    sources = {node.source.table: node.source for node in walk(sink) if isinstance(node, PhysicalScan)}
    settings = job.sinks[sink.name].model_dump(mode="json", exclude_defaults=True, exclude=_OF_DESTINATION)
    said: dict[str, Any] = {
        "sink": {**settings, "sql": _plain(job.sinks[sink.name].sql)},
        "views": _views(job, job.sinks[sink.name].sql),
        "tables": {
            name: {
                **job.tables[name].model_dump(mode="json", exclude_defaults=True),
                "columns": [f"{each.name} {each.type}" for each in source.declared.fields],
            }
            for name, source in sorted(sources.items())
        },
        "functions": {
            name: function.model_dump(mode="json", exclude_defaults=True) for name, function in job.functions.items()
        },
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _views(job: Job, sql: str) -> dict[str, str]:
    """Return the views that the query's text names, directly or through other views."""
    found: dict[str, str] = {}
    texts = [sql]
    while texts:
        text = texts.pop().lower()
        for name, view in job.views.items():
            if name not in found and re.search(rf"\b{re.escape(name.lower())}\b", text):
                found[name] = _plain(view)
                texts.append(view)
    return found


def _plain(sql: str) -> str:
    return " ".join(sql.split())
