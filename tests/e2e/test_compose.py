"""The compose file, started with the images that can be built here: results, metrics and restarts.

The broker is the tests' own image, the registry is that of `rowkind dev`, and Prometheus is this machine's. Grafana is
left out.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rowkind.service.machine.ports import free_port
from tests.deploy import prometheus
from tests.deploy.prometheus import Prometheus
from tests.deploy.test_alerts import NAMES
from tests.e2e.containers import KAFKA_IMAGE, REGISTRY, ROOT, missing, require_daemon
from tests.e2e.kcat import Kcat
from tests.run.process import get, until

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers")]

DEPLOY = ROOT / "deploy"
SECONDS = 240.0
OUTSIDE = "127.0.0.1:19092"
"""The broker's address on this machine, according to the compose file."""


def _standing_in(image: str, ports: dict[str, str]) -> dict[str, Any]:
    """Return the compose file with images that exist here, and with only these ports published on this machine."""
    compose: dict[str, Any] = YAML(typ="safe").load(DEPLOY / "compose.yaml")
    # Debian's version of compose does not know this key.
    del compose["name"]
    services = compose["services"]
    del services["grafana"], compose["volumes"]["grafana"]
    for name, service in services.items():
        service["ports"] = [ports[name]] if name in ports else []
        if service.pop("build", None):
            service["image"] = image
    program = shutil.which("prometheus")
    services["prometheus"] |= {"image": image, "entrypoint": [program], "user": "0"}
    services["prometheus"]["volumes"].append(f"{program}:{program}:ro")
    services["kafka"]["image"] = KAFKA_IMAGE
    services["kafka"]["healthcheck"]["test"] = ["CMD", "bash", "-c", "exec 3<> /dev/tcp/localhost/9092"]
    asks = "import urllib.request as asked; asked.urlopen('http://localhost:8081/subjects')"
    services["registry"] |= {"image": image, "entrypoint": ["python3", "-c", REGISTRY]}
    services["registry"]["healthcheck"]["test"] = ["CMD", "python3", "-c", asks]
    return compose


@dataclass(frozen=True)
class Composed:
    """A running compose file, whose job serves `port`, and its Prometheus."""

    command: tuple[str, ...]
    port: int
    prometheus: Prometheus

    def run(self, *arguments: str) -> str:
        """Run a compose command and return its output."""
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def written(self) -> float:
        """Return the number of changes that the job has written since it started; 0 while it does not answer."""
        _, metrics = get(self.port, "/metrics")
        return sum(map(float, re.findall(r"^rowkind_rows_out_total\{.*\} (\S+)$", metrics, re.MULTILINE)))

    def said(self) -> str:
        """Return the last lines of all logs."""
        return self.run("logs", "--tail", "30")

    def container(self, service: str) -> str:
        """Return the id of a service's container."""
        return self.run("ps", "-q", service).strip()


@pytest.fixture
def composed(rowkind_image: str, tmp_path: Path) -> Iterator[Composed]:
    """All services, running; everything is removed at the end."""
    require_daemon()
    prometheus.require()
    spellings = (("docker", "compose"), ("docker-compose",))
    command = next((each for each in spellings if _succeeds(*each, "version")), None)
    if command is None:
        missing("there is neither `docker compose` nor docker-compose")
    port, asked = free_port(), free_port()
    ports = {"rowkind": f"127.0.0.1:{port}:8080", "prometheus": f"127.0.0.1:{asked}:9090", "kafka": f"{OUTSIDE}:19092"}
    file = tmp_path / "compose.json"
    file.write_text(json.dumps(_standing_in(rowkind_image, ports)))
    told = ("--file", str(file), "--project-directory", str(DEPLOY), "--project-name", "rowkind-test")
    composed = Composed((*command, *told), port, Prometheus(asked))
    try:
        composed.run("up", "--detach")
        yield composed
    finally:
        composed.run("down", "--volumes", "--timeout", "60")


def test_the_composed_job_writes_is_watched_and_gets_over_a_broker_that_ends(composed: Composed, kcat: str) -> None:
    """The results can be read, Prometheus has metrics and alerts, and the job continues after the broker restarts."""
    until(lambda: composed.written() > 0, "the first results", composed.said, SECONDS)
    read = Kcat(kcat, OUTSIDE).consume("paid-orders")
    assert read
    assert all(message.key for message in read)
    until(lambda: bool(composed.prometheus.ask("rowkind_job_up == 1")), "the job's metrics", composed.said, SECONDS)
    assert composed.prometheus.rules() == NAMES
    broker = composed.container("kafka")
    subprocess.run(["docker", "exec", broker, "sh", "-c", "kill 1"], check=True, timeout=60)
    until(lambda: _restarts(broker) > 0, "another start of the broker", composed.said, SECONDS)
    before = composed.written()
    until(lambda: composed.written() > before, "further results", composed.said, SECONDS)
    assert _restarts(composed.container("rowkind")) == 0, composed.said()


def _restarts(container: str) -> int:
    asked = ["docker", "inspect", "--format", "{{.RestartCount}}", container]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout)


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    except FileNotFoundError:
        return False
