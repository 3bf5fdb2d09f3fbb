"""Sinks without topics: tasks discard their changes, or send them to the job's process, which logs them.

    task ── sink, prefix, up to 1,000 changes ─▶ the job's process ── a log line per change
         ◀─ acknowledgement ─────────────────────

A task sends the next changes when the previous ones have been logged, so no process holds the text of a whole batch. A
slow log slows the query down. A task prints its changes before it records its progress, so that none is lost: after a
crash, the task is repeated, and prints them again.

On a cluster, tasks run on other machines. They write the lines to their own standard error, which Spark keeps as the
log of the executor.
"""

from __future__ import annotations

import json
import logging
import pickle
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedRWPair
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from typing import Any

from rowkind.avro.json_rows import decode
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from rowkind.operators.columns.emission import net
from rowkind.service.execute.members import addressed
from rowkind.service.execute.metrics import add
from rowkind.service.kafka.errors import PrinterLostError
from rowkind.service.kafka.record_builder import rows_out
from rowkind.service.kafka.spec import TopiclessSink, WriterSpec
from rowkind.service.kafka.written_sample import WrittenSample, last_rows

_PIECE_ROWS = 1_000
_LOGGED = b"\n"
"""The acknowledgement of a piece."""

log = logging.getLogger("rowkind")


@dataclass(frozen=True)
class PrintedChange:
    """A change of a sink. `row` is JSON text, as `rowkind consume` prints it."""

    sink: str
    prefix: str
    op: str
    row: str

    def __str__(self) -> str:
        return f"{self.prefix}> {self.op} {self.row}"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a JSON log line."""
        prefix = {} if self.prefix == self.sink else {"prefix": self.prefix}
        return {"sink": self.sink, **prefix, "op": self.op, "row": json.loads(self.row)}


def write(spec: WriterSpec, batch: Batch) -> tuple[dict[str, float], WrittenSample]:
    """Print or discard the changes of all sinks without topics. Return their counters and a sample of the changes.

    Raises PrinterLostError.
    """
    counters: dict[str, float] = {}
    sample = WrittenSample()
    for place, sink in spec.topicless.items():
        changes = net(addressed(batch, place).changes, "retract", keyed=sink.keyed, ordered=sink.ordered)
        if len(changes):
            if sink.prints:
                _print(spec.printer, sink, changes)
            sample.rows[sink.sink] = last_rows(changes)
        add(counters, rows_out(sink.sink, changes))
    return counters, sample


def _print(printer: str, sink: TopiclessSink, changes: Changes) -> None:
    if not printer:
        for piece in _pieces(sink, changes):
            sys.stderr.write("".join(f"{each}\n" for each in piece))
        sys.stderr.flush()
        return
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(printer)
            with line.makefile("rwb") as to:
                for piece in _pieces(sink, changes):
                    _send(to, piece)
    except (OSError, EOFError) as error:
        raise PrinterLostError(
            f"Sink {sink.sink}: the job's process, which logs its changes, does not answer ({error!r}). The batch is "
            f"repeated, and prints its changes again."
        ) from None


def _send(to: BufferedRWPair, piece: Sequence[PrintedChange]) -> None:
    pickle.dump(piece, to)
    to.flush()
    if to.read(len(_LOGGED)) != _LOGGED:
        raise EOFError


def _pieces(sink: TopiclessSink, changes: Changes) -> Iterator[list[PrintedChange]]:
    """Yield the changes in pieces. Only the current piece exists as text."""
    for first in range(0, len(changes), _PIECE_ROWS):
        piece = slice(first, first + _PIECE_ROWS)
        rows = decode(sink.record, changes.payload[piece])
        yield [
            PrintedChange(sink.sink, sink.prefix, SYMBOLS[kind], json.dumps(row, ensure_ascii=False))
            for kind, row in zip(changes.kind[piece].tolist(), rows, strict=True)
        ]


class _Logger(StreamRequestHandler):
    """Logs the changes of one task."""

    def handle(self) -> None:
        """Log each piece and acknowledge it, until the task disconnects or is killed."""
        with suppress(OSError, EOFError, pickle.UnpicklingError):
            while True:
                for change in pickle.load(self.rfile):  # noqa: S301 - from our own task
                    log.info("%s", change, extra={"printed": change})
                self.wfile.write(_LOGGED)


class _Printer(ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


@contextmanager
def logging_prints(address: str) -> Iterator[None]:
    """Log the changes that tasks send to the socket at `address`, while the context is active."""
    with _Printer(address, _Logger) as printer:
        threading.Thread(target=printer.serve_forever, name="prints", daemon=True).start()
        try:
            yield
        finally:
            printer.shutdown()
            Path(address).unlink(missing_ok=True)
