"""Printing: while a job runs, its process logs the changes of its `print` sinks (`service.kafka.printed_changes`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex

from rowkind.service.job.model import Job
from rowkind.service.kafka.printed_changes import logging_prints
from rowkind.service.kafka.producer_process import address


@contextmanager
def printing(job: Job) -> Iterator[str]:
    """Log the changes that tasks on this machine send. Yield the address of the log, empty if no sink prints."""
    if all(sink.to != "print" for sink in job.sinks.values()):
        yield ""
        return
    printer = address("print", job.name, token_hex(8))
    with logging_prints(printer):
        yield printer
