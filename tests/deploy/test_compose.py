"""The compose file: what can be checked of it without pulling its images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def _compose() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(DEPLOY / "compose.yaml")
    return loaded


def test_every_file_that_is_mounted_exists() -> None:
    """A host path of a volume names a file or folder of the repository, read-only."""
    mounts = [
        (service, volume)
        for service, description in _compose()["services"].items()
        for volume in description.get("volumes", ())
        if volume.startswith(".")
    ]
    assert mounts
    for service, volume in mounts:
        host, _, inside = volume.partition(":")
        assert (DEPLOY / host).exists(), f"{service}: {volume}"
        assert inside.endswith(":ro"), f"{service}: {volume}"


def test_every_image_that_is_pulled_has_a_version() -> None:
    """No image of somebody else comes as latest."""
    pulled = [service["image"] for service in _compose()["services"].values() if "build" not in service]
    assert pulled
    assert all(re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", image) for image in pulled), pulled


def test_the_job_runs_as_the_chart_runs_it() -> None:
    """The job's container has a read-only root, a writable /tmp and a volume for its checkpoint."""
    rowkind = _compose()["services"]["rowkind"]
    assert rowkind["read_only"] is True
    assert "/tmp" in rowkind["volumes"]
    assert "rowkind:/var/lib/rowkind" in rowkind["volumes"]
    assert rowkind["environment"]["CHECKPOINT"].startswith("/var/lib/rowkind")


def test_every_variable_of_the_job_file_is_given() -> None:
    """The environment of the job's containers has every ${NAME} of the example's job file."""
    services = _compose()["services"]
    text = (ROOT / "examples" / "orders-payments" / "job.yaml").read_text()
    names = set(re.findall(r"\$\{(\w+)", text))
    for service in ("topics", "rowkind"):
        assert names <= set(services[service]["environment"]), service


def test_prometheus_asks_the_port_that_the_job_serves() -> None:
    """The scrape target is the job's service and port, and the rules that it loads are there."""
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
    for file in (DEPLOY / "grafana").glob("*.json"):
        assert f"./grafana/{file.name}:{folder}/{file.name}:ro" in grafana["volumes"]
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{folder}/rowkind.json"
