"""The compose files, checked without pulling their images.

`tests/e2e/test_compose.py` starts the one in `deploy`. `tests/cdc` starts the parts of the example's as processes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
EXAMPLE = ROOT / "examples" / "postgres-debezium"
each_file = pytest.mark.parametrize("folder", [DEPLOY, EXAMPLE], ids=lambda folder: folder.name)
ONCE = {"topics"}
"""Services that have done their work when they end."""


def _compose(folder: Path = DEPLOY) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(folder / "compose.yaml")
    return loaded


@each_file
def test_the_file_is_what_compose_reads(folder: Path) -> None:
    """The schema of the Compose Specification, from its Go module, accepts every key."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed, which fetches the Compose Specification")
    command = ["go", "mod", "download", "-json", "github.com/compose-spec/compose-go/v2@v2.16.2"]
    fetched = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True, timeout=300)
    schema = Path(json.loads(fetched.stdout)["Dir"], "schema", "compose-spec.json")
    Draft7Validator(json.loads(schema.read_text())).validate(_compose(folder))


@each_file
def test_what_ends_is_started_again(folder: Path) -> None:
    """Services restart unless they were stopped by hand, even after a reboot; one-time work is retried until done."""
    policies = {name: service.get("restart") for name, service in _compose(folder)["services"].items()}
    assert policies == {name: "on-failure" if name in ONCE else "unless-stopped" for name in policies}


def test_what_must_not_be_forgotten_lies_in_volumes() -> None:
    """Topics, checkpoint, metrics and Grafana's data are in named volumes, at the paths where each service writes."""
    compose = _compose()
    services = compose["services"]
    kept = {
        "kafka": services["kafka"]["environment"]["KAFKA_LOG_DIRS"],
        "rowkind": str(Path(services["rowkind"]["environment"]["CHECKPOINT"]).parent),
        "prometheus": "/prometheus",
        "grafana": "/var/lib/grafana",
    }
    for service, path in kept.items():
        assert f"{service}:{path}" in services[service]["volumes"]
    assert f"--storage.tsdb.path={kept['prometheus']}" in services["prometheus"]["command"]
    assert compose["volumes"].keys() == kept.keys()


@each_file
def test_nothing_is_open_to_other_machines(folder: Path) -> None:
    """No service requires a login, so every port is bound to this machine only."""
    ports = [port for service in _compose(folder)["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports), ports


@each_file
def test_what_is_waited_for_can_be_waited_for(folder: Path) -> None:
    """A service that others wait for has a health check, and every awaited service exists."""
    services = _compose(folder)["services"]
    for name, service in services.items():
        wanted = service.get("depends_on", {})
        for other in wanted:
            assert other in services, name
            if isinstance(wanted, dict) and wanted[other]["condition"] == "service_healthy":
                assert "healthcheck" in services[other], other


def test_the_job_waits_for_kafka_and_schemas() -> None:
    """Its topics are created when Kafka and the registry answer, and the job starts when there are topics."""
    services = _compose()["services"]
    assert services["topics"]["depends_on"].keys() == {"kafka", "registry"}
    assert services["rowkind"]["depends_on"].keys() == services["shop"]["depends_on"].keys() == {"topics"}


def test_the_job_is_the_examples_with_a_registry() -> None:
    """The job file differs from the example in one line, which names the registry's service and port."""
    example = (ROOT / "examples" / "orders-payments" / "job.yaml").read_text().splitlines()
    own = (DEPLOY / "compose" / "job.yaml").read_text().splitlines()
    (differing,) = (ours for ours, theirs in zip(own, example, strict=True) if ours != theirs)
    assert differing == 'registry: {url: "${REGISTRY}"}'
    services = _compose()["services"]
    listens = services["registry"]["environment"]["SCHEMA_REGISTRY_LISTENERS"]
    assert services["rowkind"]["environment"]["REGISTRY"] == listens.replace("0.0.0.0", "registry")


@each_file
def test_every_file_that_is_mounted_exists(folder: Path) -> None:
    """Every host path of a volume is a file or folder of the repository, and is mounted read-only."""
    mounts = [
        (service, volume)
        for service, description in _compose(folder)["services"].items()
        for volume in description.get("volumes", ())
        if volume.startswith(".")
    ]
    assert mounts
    for service, volume in mounts:
        host, _, inside = volume.partition(":")
        assert (folder / host).exists(), f"{service}: {volume}"
        assert inside.endswith(":ro"), f"{service}: {volume}"


@each_file
def test_every_image_that_is_pulled_has_a_version(folder: Path) -> None:
    """Every image that is pulled has a fixed version, and none has the tag latest."""
    pulled = [service["image"] for service in _compose(folder)["services"].values() if "build" not in service]
    assert pulled
    assert all(re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(\.Final)?", image) for image in pulled), pulled


@each_file
def test_the_job_runs_as_the_chart_runs_it(folder: Path) -> None:
    """The job's container has a read-only root, no capabilities, a writable /tmp and a volume for its checkpoint."""
    rowkind = _compose(folder)["services"]["rowkind"]
    assert rowkind["read_only"] is True
    assert rowkind["cap_drop"] == ["ALL"]
    assert rowkind["security_opt"] == ["no-new-privileges:true"]
    assert "/tmp" in rowkind["volumes"]
    assert "rowkind:/var/lib/rowkind" in rowkind["volumes"]
    assert rowkind["environment"]["CHECKPOINT"].startswith("/var/lib/rowkind")


@pytest.mark.parametrize(
    ("folder", "job", "names"),
    [(DEPLOY, "compose/job.yaml", ("topics", "rowkind", "shop")), (EXAMPLE, "job.yaml", ("topics", "rowkind"))],
)
def test_every_variable_of_the_job_file_is_given(folder: Path, job: str, names: tuple[str, ...]) -> None:
    """The environment of the job's containers has every ${NAME} of the job file."""
    services = _compose(folder)["services"]
    wanted = set(re.findall(r"\$\{(\w+)", (folder / job).read_text()))
    for service in names:
        assert wanted <= set(services[service]["environment"]), service


def test_prometheus_asks_the_port_that_the_job_serves() -> None:
    """The scrape target is the job's service and port, and the rule files that it loads exist."""
    prometheus = YAML(typ="safe").load(DEPLOY / "prometheus" / "prometheus.yaml")
    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    service, _, port = target.partition(":")
    assert port in _compose()["services"][service]["command"]
    assert all((DEPLOY / "prometheus" / name).is_file() for name in prometheus["rule_files"])


def test_grafana_finds_its_dashboards_where_they_are_mounted() -> None:
    """The provider's folder and the home dashboard are where the compose file mounts the dashboards."""
    grafana = _compose()["services"]["grafana"]
    provider = YAML(typ="safe").load(DEPLOY / "grafana" / "provisioning" / "dashboards" / "rowkind.yaml")
    folder = provider["providers"][0]["options"]["path"]
    assert f"./grafana:{folder}:ro" in grafana["volumes"]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == folder
    assert (DEPLOY / "grafana" / home.name).is_file()
