"""A multi-job service for its pages: job files, and status servers in place of the jobs' processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.monitoring.status import Incident
from rowkind.service.multi.managed_job import ManagedJob
from rowkind.service.multi.multi_job import Several
from rowkind.service.web.http import Guard, StatusServer
from rowkind.service.web.job_pages import JobPages
from tests.page import scene

WRONG_SQL = """broken.yaml:14: sinks.out: there is no column amuont in orders
    SELECT order_id, amuont FROM orders
                     ^
Columns are order_id, amount."""


WHY = """While connecting: no answer from Kafka at broker-1:9092.
Check that Kafka runs, and the network between."""


@contextmanager
def several(**monitors: Monitor) -> Iterator[Several]:
    """Yield a service with jobs that report the given monitors, and with the refused file broken.yaml."""
    made = Several(Path("jobs"), upgrades=False)
    made.refused[Path("jobs/broken.yaml")] = WRONG_SQL
    with ExitStack() as stack:
        for name, monitor in monitors.items():
            server = stack.enter_context(StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, Guard()))
            file, job = Path(f"jobs/{name}.yaml"), scene.job().model_copy(update={"name": name})
            made.members[file] = ManagedJob(file, job, "", upgrades=False, port=server.port)
        yield made


def failing(member: ManagedJob, times: int) -> None:
    """Let the job's process have ended this many times and wait for its restart."""
    member.lately = member.reason = WHY
    member.restarts, member.again = times - 1, time.monotonic() + 30
    what, _, remedy = WHY.partition("\n")
    member.endings.add(Incident(time.time(), "", what, remedy, times))


def starting(member: ManagedJob) -> None:
    """Let the job have been restarted just now."""
    member.reason, member.again, member.restarts = "", None, member.restarts + 1


def new() -> Monitor:
    """Return the monitor of a job whose queries have not started yet."""
    return Monitor("new", "0.1.0", "4.3.0", "17.0.15")
