"""The image's health check, run against status ports like the service's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from rowkind.service.kafka.errors import UnreachableError
from rowkind.service.monitoring.incidents import incident
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.plan.explain.description import QueryDescription
from rowkind.service.web.http import Guard, StatusServer
from rowkind.service.web.job_pages import JobPages
from tests.run.process import ROOT


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    """A self-signed certificate, and a login."""
    issued = trustme.CA().issue_cert("status.example")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    for part in issued.cert_chain_pems:
        part.write_to_path(tmp_path / "certificate.pem", append=True)
    return Guard(str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem"), "ops:geheim")


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("words", ["--port\0{}", "--port={}"])
def test_a_service_is_asked_where_it_listens_and_as_it_speaks(
    guard: Guard, guarded: bool, words: str, tmp_path: Path
) -> None:
    """The check works with HTTP, and with TLS and a login, at any port, and fails after a failed query or an end."""
    monitor = Monitor("job", "1", "4", "17")
    monitor.add("main", QueryDescription("main", (), 1, ()), None)
    with StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, guard if guarded else Guard()) as serving:
        cmdline = tmp_path / "cmdline"
        cmdline.write_text("\0".join(["python3", "/opt/rowkind/bin/rowkind", "run", words.format(serving.port), ""]))
        assert _healthy(cmdline)
        failure = UnreachableError("no broker answers")
        monitor.failed("main", str(failure), incident(0, "main", failure))
        assert not _healthy(cmdline)
    assert not _healthy(cmdline), "it is gone"


def _healthy(cmdline: Path) -> bool:
    return subprocess.run([sys.executable, "deploy/healthy.py", cmdline], cwd=ROOT, check=False).returncode == 0
