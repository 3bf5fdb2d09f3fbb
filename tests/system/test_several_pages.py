"""The pages of a multi-job service with a job that does not answer."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rowkind.service.multi.pages import PROBE_SECONDS, TOGETHER_SECONDS, SeveralPages
from rowkind.service.web.overview import Overview
from tests.page import jobs, scene

PROBE_LIMIT_SECONDS = 5
"""The chart's `timeoutSeconds` of probes. Prometheus gives up after 10 s."""


def test_a_job_that_does_not_answer_delays_each_page_by_one_timeout() -> None:
    """Each page asks the job once, so that it is answered before a probe or Prometheus gives up."""
    assert PROBE_SECONDS < TOGETHER_SECONDS < PROBE_LIMIT_SECONDS
    with (
        jobs.several(works=scene.lively(scene.job()), first=jobs.new()) as service,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        first = service.members[Path("jobs/first.yaml")]
        first.port = silent.getsockname()[1]
        jobs.starting(first)
        first.lately = jobs.WHY

        def ask(path: str) -> str:
            answer = SeveralPages(service).answer(path, known=True, rows=False).body.decode()
            silent.accept()[0].close()
            return answer

        assert "last ended because" in ask("/healthz")
        states = [job.state for job in Overview.from_json(ask("/status.json").encode()).jobs]
        assert states == ["running", "starting", "refused"]
        assert 'rowkind_job_up{name="first"} 0.0' in ask("/metrics")
        assert "job first: restarting for the 1st time" in ask("/readyz")
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()
