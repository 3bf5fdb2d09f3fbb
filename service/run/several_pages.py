"""What the port of a service with several jobs shows: all that each of their ports shows, and what they are together.

- `/jobs/NAME/` and what is below it is the port of job NAME.
- `/metrics` has the metrics of all jobs, which say by the label `name` whose they are.
- `/healthz` is 200 while the service looks after its jobs; what is wrong with one of them is no reason to end them all.
- `/readyz` is 200 when every job is ready and no file is refused; else it is 503 and says which is not, and why.
- `/` lists the jobs.
"""

from __future__ import annotations

import base64
import http.client
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from rowkind.service.run.exposition import CONTENT_TYPE
from rowkind.service.run.http import Response
from rowkind.service.run.managed_job import ManagedJob
from rowkind.service.run.several import Several
from rowkind.service.run.status_page import STYLE

_PATIENCE_SECONDS = 10.0
_UP = "rowkind_job_up"
_TEMPLATE = Template(resources.files("rowkind.service.run").joinpath("several.html").read_text("utf-8"))


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
                return Response.page(self._list())
            case _ if path.startswith("/jobs/"):
                return self._of_job(path)
            case _:
                return Response.text(404, "try /, /jobs/NAME/, /metrics, /healthz or /readyz")

    def _of_job(self, path: str) -> Response:
        _, _, name, *rest = path.split("/", 3)
        member = next((each for each in self.of.all() if each.job.name == name), None)
        if member is None:
            return Response.text(404, f"there is no job {name}; / lists those that are there")
        if not rest:
            # What is linked from the page of a job is below it.
            return Response(308, "text/plain", b"", {"Location": f"/jobs/{name}/"})
        return _ask(member, f"/{rest[0]}") or Response.text(503, member.reason or "it does not answer, maybe not yet")

    def _metrics(self) -> bytes:
        registry = CollectorRegistry()
        registry.register(_Merged(self.of))
        return generate_latest(registry)

    def _wrong(self) -> Iterator[str]:
        """What is wrong with jobs and their files, a line or more each."""
        yield from self.of.refused.values()
        for member in self.of.all():
            if trouble := member.reason or member.news:
                yield f"job {member.job.name}: {trouble}"

    def _ready(self, *, known: bool) -> Response:
        reasons = list(self.of.refused.values())
        for member in self.of.all():
            answer = None if member.reason else _ask(member, "/readyz")
            if answer is None or answer.code != 200:
                why = member.reason or (answer.body.decode().strip() if answer else "it has just been started")
                reasons.append(f"job {member.job.name}: {why}")
        if not known:
            return Response.text(503 if reasons else 200, "not ready" if reasons else "ok")
        return Response.text(503, "\n".join(reasons)) if reasons else Response.text(200, "ok")

    def _list(self) -> str:
        rows = [_row(member) for member in self.of.all()]
        rows += [
            f"<tr><td>{escape(file.name)}</td><td>{_pill('failed', 'refused')}</td><td>{escape(why)}</td></tr>"
            for file, why in self.of.refused.items()
        ]
        return _TEMPLATE.substitute(style=STYLE, path=escape(str(self.of.path)), rows="\n".join(rows))


class _Merged(Collector):
    """The metrics of all jobs, of those that do not answer that they do not."""

    def __init__(self, of: Several) -> None:
        self._of = of

    def collect(self) -> Iterator[Metric]:
        """Each family once, with the samples of all jobs."""
        families: dict[str, Metric] = {}
        silent: list[str] = []
        for member in self._of.all():
            answer = _ask(member, "/metrics")
            for family in text_string_to_metric_families(answer.body.decode()) if answer else ():
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                merged.samples += family.samples
            if answer is None:
                silent.append(member.job.name)
        up = families.setdefault(_UP, Metric(_UP, "Whether the process of the job answers.", "gauge"))
        for name in (*silent, *(file.stem for file in [*self._of.refused])):
            up.add_sample(_UP, {"name": name}, 0)
        yield from families.values()


def _row(member: ManagedJob) -> str:
    answer = _ask(member, "/readyz")
    state = "failed" if member.reason else "running" if answer is not None and answer.code == 200 else "starting"
    name = escape(member.job.name)
    trouble = "<br>".join(escape(member.reason or member.news).splitlines())
    return f'<tr><td><a href="jobs/{name}/">{name}</a></td><td>{_pill(state, state)}</td><td>{trouble}</td></tr>'


def _pill(kind: str, text: str) -> str:
    return f'<span class="pill {kind}">{text}</span>'


def _ask(member: ManagedJob, path: str) -> Response | None:
    """What the job's own port answers; None if it does not."""
    said = member.job.status or {}
    # It is this machine, and the certificate is for the name under which the service is known outside.
    context = ssl._create_unverified_context()  # noqa: S323, SLF001 - as said above
    connection = (
        http.client.HTTPSConnection("127.0.0.1", member.port, timeout=_PATIENCE_SECONDS, context=context)
        if "certificate" in said
        else http.client.HTTPConnection("127.0.0.1", member.port, timeout=_PATIENCE_SECONDS)
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
