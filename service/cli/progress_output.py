"""The progress output of a command while a job runs: a live view on a terminal, or log lines, one per batch.

- `view`: the job's status stays in the last lines of the terminal, and log lines scroll above it.
- `lines`: log lines with time and level. A batch is logged as `batch query=main number=12 seconds=0.41 …`.
- `json`: the same, one JSON object per line. The row of a printed change is an object, too.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from rowkind.service.machine.periodic import meanwhile

if TYPE_CHECKING:
    from rowkind.service.monitoring.status import JobStatus

LogForm = Literal["view", "lines", "json"]
LOG_FORM = "rowkind.log"
"""The key of a command's log form in click's `Context.meta`."""

_EVERY_SECONDS = 0.5
_FIELDS = "fields"
_PRINTED = "printed"
"""The attribute of a log record that has a printed change (`service.kafka.printed_changes`)."""

log = logging.getLogger("rowkind")


def usual() -> LogForm:
    """Return the default form: the view on a terminal that can show it, otherwise lines."""
    return "view" if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" else "lines"


@contextmanager
def showing_progress(form: LogForm) -> Iterator[Callable[[Callable[[], JobStatus]], Any]]:
    """Write log messages in this form while the context is active.

    Yields a function that takes the job's status function and returns a context manager. While that context is active,
    the job's progress is shown.
    """
    if form == "view":
        with _on_terminal() as view:
            yield view
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(
            _JsonFormatter() if form == "json" else _LineFormatter("%(asctime)s %(levelname)s %(message)s")
        )
        with _listening(handler):
            yield _batches


@contextmanager
def _listening(handler: logging.Handler) -> Iterator[None]:
    """Send log messages to the handler while the context is active. From libraries, only warnings and errors."""
    from rowkind.service.spark.console_filter import not_py4js  # noqa: PLC0415 -- loaded when it is needed

    handler.addFilter(not_py4js)
    logging.getLogger("rowkind").setLevel(logging.INFO)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


@contextmanager
def _on_terminal() -> Iterator[Callable[[Callable[[], JobStatus]], Any]]:
    from rich.console import Console  # noqa: PLC0415 -- loaded when it is needed
    from rich.live import Live  # noqa: PLC0415 -- as above

    from rowkind.service.cli.screen import screen  # noqa: PLC0415 -- as above

    # Keep a copy of standard error, because it is redirected for a while when Spark starts.
    with os.fdopen(os.dup(2), "w", encoding="utf-8") as terminal:
        console = Console(file=terminal)

        class OnConsole(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                console.print(self.format(record), markup=False, highlight=False, soft_wrap=True)

        handler = OnConsole()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

        def view(status: Callable[[], JobStatus]) -> Live:
            return Live(
                get_renderable=lambda: screen(status()),
                console=console,
                refresh_per_second=1 / _EVERY_SECONDS,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="ellipsis",
            )

        with _listening(handler):
            yield view


@contextmanager
def _batches(status: Callable[[], JobStatus]) -> Iterator[None]:
    """Log every batch that ends while the context is active."""
    told: dict[str, int] = {}

    def tell() -> None:
        _tell(status(), told)

    try:
        with meanwhile(tell, _EVERY_SECONDS, "batches"):
            yield
    finally:
        tell()


def _tell(status: JobStatus, told: dict[str, int]) -> None:
    for query in status.queries:
        for batch in query.batches:
            if batch.number > told.get(query.name, -1):
                told[query.name] = batch.number
                fields = {
                    "query": query.name,
                    "number": batch.number,
                    "seconds": round(batch.seconds, 3),
                    "rows_in": batch.rows_in,
                    "rows_out": batch.rows_out,
                    "lag_rows": query.lag_rows,
                    "lag_seconds": round(query.lag_seconds, 1),
                }
                log.info("batch", extra={_FIELDS: fields})


def json_line(seconds: float, level: str, message: str, fields: Mapping[str, Any]) -> str:
    """Return a log line as one JSON object; `seconds` is the time since the epoch."""
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": moment, "level": level, "message": message, **fields}, ensure_ascii=False)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = getattr(record, _FIELDS, {})
    return found


class _LineFormatter(logging.Formatter):
    """Formatter for log lines. The record's fields follow the message as `name=value`, so that they can be searched."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return " ".join([super().format(record), *(f"{name}={value}" for name, value in _fields(record).items())])


class _JsonFormatter(logging.Formatter):
    """Formatter for JSON lines: time, level, message, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        if (printed := getattr(record, _PRINTED, None)) is not None:
            return json_line(record.created, record.levelname, "change", printed.fields)
        fields = _fields(record)
        if record.exc_info:
            fields = {**fields, "traceback": self.formatException(record.exc_info)}
        return json_line(record.created, record.levelname, record.getMessage(), fields)
