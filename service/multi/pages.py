"""The pages of a multi-job service: the pages of each job, and an overview of all jobs.

- `/jobs/NAME/` and the paths below it are the pages of job NAME. While the job has no process, a page says why.
- `/metrics` returns the metrics of all jobs. The label `name` is the job's name.
- `/healthz` returns 200 while the service supervises its jobs. A problem in one job is no reason to restart the
  service.
- `/readyz` returns 200 if every job is ready and no file is refused. Otherwise, it returns 503 with the reasons.
- `/` shows the state of each job, and `/status.json` the same in machine-readable form.

A job that was started again after a failure shows the reason until a batch succeeds.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import unquote

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from rowkind.service.monitoring.exposition import CONTENT_TYPE
from rowkind.service.monitoring.status import JobStatus, trouble_of
from rowkind.service.multi.managed_job import CHANGE_THE_FILE, ManagedJob
from rowkind.service.multi.multi_job import Several
from rowkind.service.web import overview_page
from rowkind.service.web.http import WITHOUT_ROWS, Response
from rowkind.service.web.live_page import HEADERS, within
from rowkind.service.web.overview import JobOverview, JobState, Overview
from rowkind.version import version

_PATIENCE_SECONDS = 10.0
TOGETHER_SECONDS = 4.0
"""The timeout for a job's answer on pages about all jobs. It is less than the limits of probes (5 s) and Prometheus
(10 s)."""
PROBE_SECONDS = 0.5
"""The timeout for a job's answer in a liveness probe of the service, which must not depend on a single job."""
_UP = "rowkind_job_up"
_T = TypeVar("_T")
_SILENT = "it does not answer; it may still be starting"


@dataclass(frozen=True)
class SeveralPages:
    """The pages of all of a service's jobs."""

    of: Several

    def answer(self, path: str, *, known: bool, rows: bool) -> Response:
        """Return the response for a path."""
        match path:
            case "/metrics":
                return Response(200, CONTENT_TYPE, self._metrics())
            case "/healthz":
                return Response.text(200, "\n".join(self._wrong()) if known else "ok")
            case "/readyz":
                return self._ready(known=known)
            case "/":
                return Response.page(overview_page.page(self._overview()), HEADERS)
            case "/status.json":
                return Response(200, "application/json", self._overview().to_json().encode())
            case _ if path.startswith("/jobs/"):
                return self._of_job(path, rows=rows)
            case _:
                return Response.text(404, "try /, /jobs/NAME/, /status.json, /metrics, /healthz or /readyz")

    def _of_job(self, path: str, *, rows: bool) -> Response:
        _, _, name, *rest = path.split("/", 3)
        name = unquote(name)
        member = next((each for each in self.of.all() if each.job.name == name), None)
        refused = next((why for file, why in [*self.of.refused.items()] if file.stem == name), None)
        if member is None and refused is None:
            return Response.text(404, f"there is no job {name}; the jobs are {', '.join(self._names())}")
        if not rest:
            # A job's page has relative links, which need the final slash.
            return Response(308, "text/plain", b"", {"Location": f"{path}/"})
        answer = None if member is None or member.reason else _ask(member, f"/{rest[0]}", _PATIENCE_SECONDS, rows=rows)
        if answer is not None:
            return replace(answer, body=within(answer.body)) if rest[0] == "" else answer
        job = _refused(name, refused or "") if member is None else _overview(member, None)
        if rest[0] in ("", "explain"):
            incidents = () if member is None else member.endings.latest()
            return Response.page(overview_page.page_of(job, time.time(), version(), incidents), HEADERS)
        return Response.text(503, "\n".join(filter(None, (job.error, job.remedy))) or _SILENT)

    def _names(self) -> list[str]:
        return [*(member.job.name for member in self.of.all()), *(file.stem for file in [*self.of.refused])]

    def _overview(self) -> Overview:
        """Return an overview of all jobs. The running jobs are queried in parallel."""
        members = self.of.all()
        jobs = _of_all(lambda member: _overview(member, _status(member)), members)
        jobs += [_refused(file.stem, why) for file, why in [*self.of.refused.items()]]
        return Overview(str(self.of.path), version(), time.time(), tuple(jobs))

    def _metrics(self) -> bytes:
        registry = CollectorRegistry()
        registry.register(_Merged(self.of))
        return generate_latest(registry)

    def _wrong(self) -> Iterator[str]:
        """Yield the problems of jobs and files, each with one or more lines. Query jobs that may have recovered."""
        yield from self.of.refused.values()
        for member in self.of.all():
            if member.lately and not member.reason:
                _status(member, PROBE_SECONDS)
            if trouble := member.wrong[0]:
                yield f"job {member.job.name}: {trouble}"

    def _ready(self, *, known: bool) -> Response:
        reasons = list(self.of.refused.values())
        members = self.of.all()
        answers = _of_all(lambda member: None if member.reason else _ask(member, "/readyz"), members)
        for member, answer in zip(members, answers, strict=True):
            if answer is None or answer.code != 200:
                said = answer.body.decode().strip() if answer else "it has just been started"
                why = member.wrong[0] if member.reason or member.lately else said
                reasons.append(f"job {member.job.name}: {why}")
            else:
                member.lately = ""
        if not known:
            return Response.text(503 if reasons else 200, "not ready" if reasons else "ok")
        return Response.text(503, "\n".join(reasons)) if reasons else Response.text(200, "ok")


class _Merged(Collector):
    """The metrics of all jobs. A job that does not answer has `rowkind_job_up` 0."""

    def __init__(self, of: Several) -> None:
        self._of = of

    def collect(self) -> Iterator[Metric]:
        """Yield each metric family once, with the samples of all jobs."""
        families: dict[str, Metric] = {}
        silent: list[str] = []
        members = self._of.all()
        answers = _of_all(lambda member: _ask(member, "/metrics"), members)
        for member, answer in zip(members, answers, strict=True):
            for family in text_string_to_metric_families(answer.body.decode()) if answer else ():
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                merged.samples += family.samples
            if answer is None:
                silent.append(member.job.name)
        up = families.setdefault(_UP, Metric(_UP, "Whether the process of the job answers.", "gauge"))
        for name in (*silent, *(file.stem for file in [*self._of.refused])):
            up.add_sample(_UP, {"name": name}, 0)
        yield from families.values()


def _of_all(ask: Callable[[ManagedJob], _T], members: Sequence[ManagedJob]) -> list[_T]:
    """Call `ask` for all given jobs in parallel, and return the results in order."""
    with ThreadPoolExecutor(max_workers=max(1, len(members))) as threads:
        return [*threads.map(ask, members)]


def _overview(member: ManagedJob, status: JobStatus | None) -> JobOverview:
    """Return the overview of a job, from the status of its process if there is one."""
    error, remedy = member.wrong
    if status is None:
        state: JobState = "refused" if member.refused else "failed" if member.reason else "starting"
        return JobOverview(member.job.name, state, restarts=member.restarts, error=error, remedy=remedy)
    reasons = [trouble_of(each.name, each.state, each.reason) for each in status.queries if each.reason]
    return JobOverview(
        member.job.name,
        status.state,
        sum(each.lag_rows for each in status.queries),
        max((each.lag_seconds for each in status.queries), default=0.0),
        sum(each.read.rate for each in status.queries),
        sum(each.written.rate for each in status.queries),
        max((each.batches[-1] for each in status.queries if each.batches), key=lambda batch: batch.ended, default=None),
        member.restarts,
        "\n".join(filter(None, (error, *reasons, *status.warnings))),
        remedy,
    )


def _refused(name: str, why: str) -> JobOverview:
    """Return the overview of a file whose job cannot be run."""
    return JobOverview(name, "refused", error=why, remedy=CHANGE_THE_FILE)


def _status(member: ManagedJob, patience: float = TOGETHER_SECONDS) -> JobStatus | None:
    """Return a job's status, or None if it does not answer. If a batch has succeeded, mark the job as recovered."""
    answer = None if member.reason else _ask(member, "/status.json", patience)
    if answer is None or answer.code != 200:
        return None
    status = JobStatus.from_json(answer.body)
    if status.queries and all(each.batches or each.state == "idle" for each in status.queries):
        member.lately = ""
    return status


def _ask(member: ManagedJob, path: str, patience: float = TOGETHER_SECONDS, *, rows: bool = False) -> Response | None:
    """Return the response from the job's own port, or None if the job does not answer. `rows`: it may have rows."""
    said = member.job.status or {}
    # The connection is local, and the certificate is for the service's external name, so it is not verified.
    context = ssl._create_unverified_context()  # noqa: S323, SLF001 - see above
    connection = (
        http.client.HTTPSConnection("127.0.0.1", member.port, timeout=patience, context=context)
        if "certificate" in said
        else http.client.HTTPConnection("127.0.0.1", member.port, timeout=patience)
    )
    login = base64.b64encode(f"{said.get('user')}:{said.get('password')}".encode()).decode()
    try:
        headers = {"Authorization": f"Basic {login}"} | ({} if rows else {WITHOUT_ROWS: "1"})
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        kept = {
            name: value for name, value in answer.getheaders() if name in ("Cache-Control", "Content-Security-Policy")
        }
        return Response(answer.status, answer.getheader("Content-Type", "text/plain"), answer.read(), kept)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
