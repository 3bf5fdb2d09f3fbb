"""A service of several jobs as its pages show it: files of jobs, and what answers in the place of their processes."""

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
    """Jobs that run, each as its monitor says, and the file broken.yaml, which is refused."""
    made = Several(Path("jobs"), upgrades=False)
    made.refused[Path("jobs/broken.yaml")] = WRONG_SQL
    with ExitStack() as stack:
        for name, monitor in monitors.items():
            server = stack.enter_context(StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, Guard()))
            file, job = Path(f"jobs/{name}.yaml"), scene.job().model_copy(update={"name": name})
            made.members[file] = ManagedJob(file, job, "", upgrades=False, port=server.port)
        yield made


def failing(member: ManagedJob, times: int) -> None:
    """The job's process has ended so often, and waits to be started again."""
    member.lately = member.reason = WHY
    member.restarts, member.again = times - 1, time.monotonic() + 30
    what, _, remedy = WHY.partition("\n")
    member.endings.add(Incident(time.time(), "", what, remedy, times))


def starting(member: ManagedJob) -> None:
    """It has just been started once more."""
    member.reason, member.again, member.restarts = "", None, member.restarts + 1


def new() -> Monitor:
    """A job whose queries are still to be started."""
    return Monitor("new", "0.1.0", "4.3.0", "17.0.15")
