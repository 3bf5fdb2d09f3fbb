"""Rowkind as users run it: `rowkind run job.yaml`, exactly once, state on RocksDB."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import ClassVar

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from rowkind.service.job import size
from tests.bench.compare.engine import SINK_PARTITIONS, EngineError, Progress, Setting
from tests.bench.compare.limited import limited
from tests.bench.compare.queries import Query
from tests.bench.compare.tables import TABLES
from tests.bench.compare.workload import Variant

_JOB = """
job: "{sink}"
kafka: {{bootstrap.servers: "{servers}"}}
registry: {{folder: {schemas}}}
checkpoint: {folder}/checkpoint
parallelism: {parallelism}
tables:
{tables}
sinks:
  result:
    topic: {sink}
    mode: {mode}{key}
    partitions: {partitions}{emit}
    sql: >-
      {sql}
"""
_MODES: dict[Variant, str] = {
    "append": "mode: append, row_kind: {missing: insert}",
    "skewed": "mode: append, row_kind: {missing: insert}",
    "changelog": "mode: upsert",
    "nexmark": "mode: append, row_kind: {missing: insert}",
}


@dataclass(frozen=True)
class Rowkind:
    """See `tests.bench.compare.engine.Engine`.

    `memory` is the limit of the job and of the control group in which it runs. `ttl` is the job's TTL. `interval` is
    the minimum interval of its batches.
    """

    memory: str | None = None
    ttl: str | None = None
    interval: str | None = None
    name: ClassVar = "Rowkind"
    transactional: ClassVar = True
    framed: ClassVar = True

    def sql(self, query: Query) -> str:
        """Return the query unchanged."""
        return query.sql

    @contextmanager
    def run(self, setting: Setting) -> Iterator[RunningRowkind]:
        """Start the job, and end it with SIGTERM."""
        job = setting.folder / "job.yaml"
        batch = f"{{min_interval: {self.interval}}}" if self.interval else None
        more = {"memory": self.memory, "ttl": self.ttl, "batch": batch}
        job.write_text(job_file(setting) + "".join(f"{name}: {value}\n" for name, value in more.items() if value))
        command = [sys.executable, "-m", "rowkind", "run", str(job), "--port", "0"]
        with limited(size.parse(self.memory)) if self.memory else nullcontext([]) as before:
            process = subprocess.Popen([*before, *command], stderr=subprocess.PIPE, text=True)
            try:
                yield RunningRowkind(process)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()


def job_file(setting: Setting) -> str:
    """Return the job file of a setting."""
    tables = []
    for name in setting.query.tables:
        table = TABLES[name]
        columns = ", ".join(f'{column}: "{sql}"' for column, sql in table.columns.items())
        key = f", primary_key: [{table.key}]" if table.key else ""
        watermark = f", watermark: {{column: ts, delay: {table.delay}s}}" if setting.query.closes else ""
        tables.append(
            f"  {name}: {{topic: {setting.topics[name]}, {_MODES[setting.variant]}{key}, "
            f"columns: {{{columns}}}{watermark}}}"
        )
    return _JOB.format(
        servers=setting.servers,
        schemas=setting.schemas,
        folder=setting.folder,
        parallelism=setting.parallelism,
        tables="\n".join(tables),
        sink=setting.sink,
        mode=setting.query.mode,
        key=f"\n    key: [{', '.join(setting.query.key)}]" if setting.query.key else "",
        partitions=SINK_PARTITIONS,
        emit=f"\n    emit: {setting.query.emit}" if setting.query.emit else "",
        sql=setting.query.sql,
    )


class RunningRowkind:
    """See `tests.bench.compare.engine.Running`: the values are the job's metrics, which count committed batches."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self._process = process
        log: list[str] = []
        for line in process.stderr:
            log.append(line)
            if "metrics and health at" in line:
                break
        else:
            raise EngineError("the job did not start:\n" + "".join(log[-12:]))
        self._port = int(line.rpartition(":")[2])
        self._log = log
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        """Return the job's driver process."""
        return self._process.pid

    def progress(self) -> Progress:
        """Return the rows of committed batches, and stages such as `read decode`, summed over all operators."""
        stages = defaultdict[str, float](float)
        sums = defaultdict[str, float](float)
        for sample in self._samples():
            sums[sample.name] += sample.value
            if sample.name.endswith("_seconds_total"):
                stages[f"{sample.name.split('_')[1]} {sample.labels['stage']}"] += sample.value
        batch = "rowkind_batch_duration_seconds"
        return Progress(int(sums["rowkind_rows_in_total"]), stages, int(sums[f"{batch}_count"]), sums[f"{batch}_sum"])

    def state_bytes(self) -> int:
        """Return the size of the operators' state as stored."""
        return int(sum(sample.value for sample in self._samples() if sample.name == "rowkind_state_bytes"))

    def _samples(self) -> list[Sample]:
        if self._process.poll() is not None:
            raise EngineError("the job has ended:\n" + "".join(self._log[-12:]))
        try:
            with urllib.request.urlopen(f"http://localhost:{self._port}/metrics") as answer:
                families = text_string_to_metric_families(answer.read().decode())
                return [sample for family in families for sample in family.samples]
        except OSError as error:
            raise EngineError(f"the job has no metrics, {error}:\n" + "".join(self._log[-12:])) from None

    def _listen(self) -> None:
        """Read the log, so that a full pipe never blocks the job."""
        assert self._process.stderr is not None
        self._log.extend(self._process.stderr)
