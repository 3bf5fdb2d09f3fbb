"""The pages of a multi-job service: codes, text and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rowkind.service.machine.ports import free_port
from rowkind.service.multi.managed_job import ManagedJob
from rowkind.service.multi.multi_job import Several
from rowkind.service.multi.pages import SeveralPages
from rowkind.service.web.http import Response
from rowkind.service.web.overview import JobOverview, Overview
from tests.page import jobs, scene


@pytest.fixture
def service() -> Iterator[Several]:
    """A service with a running job, a job that is starting, and a refused job file."""
    with jobs.several(works=scene.lively(scene.job()), first=jobs.new()) as made:
        yield made


def test_the_overview_has_every_job_in_a_few_numbers(service: Several) -> None:
    """The overview of every job has state, lag, rates, last batch, restarts and error, and survives JSON."""
    answer = ask(service, "/status.json")
    assert answer.content_type == "application/json"
    found = overview(service)
    assert Overview.from_json(found.to_json()) == found
    works, first, broken = found.jobs
    assert (works.name, works.state, works.lag_rows, works.lag_seconds) == ("works", "running", 960_000, 95.0)
    assert works.read > 0 < works.written
    assert works.last_batch is not None
    assert works.last_batch.number == 39
    assert (works.restarts, works.error) == (0, "")
    assert first == JobOverview("first", "starting")
    assert (broken.name, broken.state, broken.error) == ("broken", "refused", jobs.WRONG_SQL)
    assert broken.remedy.startswith("Change its file")


def test_why_a_job_was_started_again_is_told_until_a_batch_succeeds(service: Several) -> None:
    """The reason of a restart is shown on the page, as JSON and by both probes, until a batch succeeds."""
    first, again = member(service, "first"), "restarting for the 6th time; it last ended because: While connecting"
    jobs.failing(first, 6)
    assert overview(service).jobs[1].state == "failed"
    assert overview(service).jobs[1].remedy.endswith("s, for the 6th time.")
    jobs.starting(first)
    for path in ("/", "/status.json", "/readyz", "/healthz"):
        assert again in ask(service, path).body.decode(), path
    assert (overview(service).jobs[1].state, overview(service).jobs[1].restarts) == ("starting", 6)
    first.port = member(service, "works").port
    assert "last ended" not in ask(service, "/healthz").body.decode()
    assert overview(service).jobs[1].error == ""
    assert overview(service).jobs[1].restarts == 6


@pytest.mark.parametrize(("number", "said"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (22, "22nd")])
def test_times_are_counted_as_people_do(service: Several, number: int, said: str) -> None:
    """The number of a restart is shown as an ordinal."""
    jobs.failing(member(service, "first"), number)
    assert f"for the {said} time" in overview(service).jobs[1].remedy


@pytest.mark.parametrize(("name", "says"), [("first", "no answer from Kafka"), ("broken", "amuont")])
def test_a_job_without_a_process_has_a_page(service: Several, name: str, says: str) -> None:
    """A job without a process has an HTML page; its probes, metrics and JSON are answered with 503 and a text."""
    jobs.failing(member(service, "first"), 2)
    for path in ("", "explain"):
        answer = ask(service, f"/jobs/{name}/{path}")
        assert (answer.code, answer.content_type) == (200, "text/html; charset=utf-8")
        assert says in answer.body.decode()
        assert 'href="../../"' in answer.body.decode()
    for path in ("healthz", "readyz", "metrics", "status.json"):
        answer = ask(service, f"/jobs/{name}/{path}")
        assert (answer.code, answer.content_type) == (503, "text/plain; charset=utf-8")
        assert says in answer.body.decode()


def test_a_job_that_starts_says_so(service: Several) -> None:
    """A job that is starting is shown as such until its process answers."""
    member(service, "first").port = free_port()
    assert "as soon as its process answers" in ask(service, "/jobs/first/").body.decode()
    assert ask(service, "/jobs/first/readyz").body.decode() == "it does not answer; it may still be starting\n"


def test_the_page_of_a_job_leads_to_all_of_them(service: Several) -> None:
    """The page of a job in a multi-job service links to the overview."""
    assert '<a href="../../">all jobs</a>' in ask(service, "/jobs/works/").body.decode()
    assert ask(service, "/jobs/works").headers["Location"] == "/jobs/works/"


def test_a_mistyped_name_is_told_those_there_are(service: Several) -> None:
    """An unknown job name is answered with 404 and all names, including those of refused files."""
    answer = ask(service, "/jobs/wroks/")
    assert answer.code == 404
    assert answer.body.decode() == "there is no job wroks; the jobs are works, first, broken\n"


def ask(service: Several, path: str) -> Response:
    """Return the response for a path."""
    return SeveralPages(service).answer(path, known=True, rows=True)


def overview(service: Several) -> Overview:
    """Return the overview of all jobs."""
    return Overview.from_json(ask(service, "/status.json").body)


def member(service: Several, name: str) -> ManagedJob:
    """Return one job of the service."""
    return service.members[Path(f"jobs/{name}.yaml")]
