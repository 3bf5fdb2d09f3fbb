"""The pages of a service of several jobs, one of which does not answer."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from rowkind.service.multi.pages import SeveralPages
from rowkind.service.web.overview import Overview
from tests.page import jobs, scene


def test_a_job_that_stands_still_holds_up_no_page() -> None:
    """Of all jobs, neither those of people nor Prometheus', which gives up after ten seconds; a probe even less."""
    with (
        jobs.several(works=scene.lively(scene.job()), first=jobs.new()) as service,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        first = service.members[Path("jobs/first.yaml")]
        first.port = silent.getsockname()[1]
        jobs.starting(first)
        first.lately = jobs.WHY

        def ask(path: str) -> str:
            return SeveralPages(service).answer(path, known=True).body.decode()

        began = time.monotonic()
        assert "last ended because" in ask("/healthz")
        assert time.monotonic() - began < 2
        states = [job.state for job in Overview.from_json(ask("/status.json").encode()).jobs]
        assert states == ["running", "starting", "refused"]
        assert time.monotonic() - began < 8
        assert 'rowkind_job_up{name="first"} 0.0' in ask("/metrics")
        assert "job first: starting again" in ask("/readyz")
        assert time.monotonic() - began < 18
