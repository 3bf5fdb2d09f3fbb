"""What the port of a service with several jobs shows: all that each of their ports shows, and what they are together.

- `/jobs/NAME/` and what is below it is the port of job NAME; while that has no process, why it has none.
- `/metrics` has the metrics of all jobs, which say by the label `name` whose they are.
- `/healthz` is 200 while the service looks after its jobs; what is wrong with one of them is no reason to end them all.
- `/readyz` is 200 when every job is ready and no file is refused; else it is 503 and says which is not, and why.
- `/` shows how each of the jobs does, and `/status.json` says it for programs.

A job that has failed and was started again shows why it had until a batch succeeds.
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
from rowkind.service.web.http import Response
from rowkind.service.web.live_page import HEADERS, within
from rowkind.service.web.overview import JobOverview, JobState, Overview
from rowkind.version import version

_PATIENCE_SECONDS = 10.0
_TOGETHER_SECONDS = 4.0
"""People, probes and Prometheus see the other jobs, if one stands still: probes wait for five, Prometheus for ten."""
_PROBE_SECONDS = 0.5
"""Whoever looks whether the service lives does not wait for one of its jobs."""
_UP = "rowkind_job_up"
_T = TypeVar("_T")
_SILENT = "it does not answer, maybe not yet"


@dataclass(frozen=True)
class SeveralPages:
    """The pages of all jobs of a service."""

    of: Several

    def answer(self, path: str, *, known: bool) -> Response:
        """What is at a path."""
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
                return self._of_job(path)
            case _:
                return Response.text(404, "try /, /jobs/NAME/, /status.json, /metrics, /healthz or /readyz")

    def _of_job(self, path: str) -> Response:
        _, _, name, *rest = path.split("/", 3)
        name = unquote(name)
        member = next((each for each in self.of.all() if each.job.name == name), None)
        refused = next((why for file, why in [*self.of.refused.items()] if file.stem == name), None)
        if member is None and refused is None:
            return Response.text(404, f"there is no job {name}; there are {', '.join(self._names())}")
        if not rest:
            # What is linked from the page of a job is below it.
            return Response(308, "text/plain", b"", {"Location": f"{path}/"})
        answer = None if member is None or member.reason else _ask(member, f"/{rest[0]}", _PATIENCE_SECONDS)
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
        """All jobs, of which those that run are asked, all at once."""
        members = self.of.all()
        jobs = _of_all(lambda member: _overview(member, _status(member)), members)
        jobs += [_refused(file.stem, why) for file, why in [*self.of.refused.items()]]
        return Overview(str(self.of.path), version(), time.time(), tuple(jobs))

    def _metrics(self) -> bytes:
        registry = CollectorRegistry()
        registry.register(_Merged(self.of))
        return generate_latest(registry)

    def _wrong(self) -> Iterator[str]:
        """What is wrong with jobs and their files, a line or more each. A job is asked if it may have recovered."""
        yield from self.of.refused.values()
        for member in self.of.all():
            if member.lately and not member.reason:
                _status(member, _PROBE_SECONDS)
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
    """The metrics of all jobs, of those that do not answer that they do not."""

    def __init__(self, of: Several) -> None:
        self._of = of

    def collect(self) -> Iterator[Metric]:
        """Each family once, with the samples of all jobs."""
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
    """What is said of each of these jobs, all of them asked at once."""
    with ThreadPoolExecutor(max_workers=max(1, len(members))) as threads:
        return [*threads.map(ask, members)]


def _overview(member: ManagedJob, status: JobStatus | None) -> JobOverview:
    """A job by what its process says, if that says something."""
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
    """A file that says no job that can be run."""
    return JobOverview(name, "refused", error=why, remedy=CHANGE_THE_FILE)


def _status(member: ManagedJob, patience: float = _TOGETHER_SECONDS) -> JobStatus | None:
    """What a job says of itself, if it runs and answers; it has recovered once a batch has succeeded."""
    answer = None if member.reason else _ask(member, "/status.json", patience)
    if answer is None or answer.code != 200:
        return None
    status = JobStatus.from_json(answer.body)
    if status.queries and all(each.batches or each.state == "idle" for each in status.queries):
        member.lately = ""
    return status


def _ask(member: ManagedJob, path: str, patience: float = _TOGETHER_SECONDS) -> Response | None:
    """What the job's own port answers; None if it does not."""
    said = member.job.status or {}
    # It is this machine, and the certificate is for the name under which the service is known outside.
    context = ssl._create_unverified_context()  # noqa: S323, SLF001 - as said above
    connection = (
        http.client.HTTPSConnection("127.0.0.1", member.port, timeout=patience, context=context)
        if "certificate" in said
        else http.client.HTTPConnection("127.0.0.1", member.port, timeout=patience)
    )
    login = base64.b64encode(f"{said.get('user')}:{said.get('password')}".encode()).decode()
    try:
        connection.request("GET", path, headers={"Authorization": f"Basic {login}"})
        answer = connection.getresponse()
        kept = {
            name: value for name, value in answer.getheaders() if name in ("Cache-Control", "Content-Security-Policy")
        }
        return Response(answer.status, answer.getheader("Content-Type", "text/plain"), answer.read(), kept)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
