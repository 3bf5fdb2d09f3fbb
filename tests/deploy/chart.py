"""The Helm chart, rendered by helm itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "rowkind"
JOB = """\
# Columns in an order that is not that of the alphabet.
job: shop
kafka: {bootstrap.servers: "${KAFKA}"}
tables:
  orders: {topic: orders, mode: append, columns: {order_id: BIGINT, customer: STRING, amount: BIGINT}}
sinks: {}
"""
VALUES = {
    "job": JOB,
    "schemas": {"orders-value.avsc": '{"type": "record"}'},
    "envFrom": [{"secretRef": {"name": "kafka-password"}}],
    "secretFiles": ["kafka-tls"],
}
EVERYTHING = {
    "executors": {"count": 2},
    "verify": {"schedule": "17 3 * * *", "arguments": ["--sample", "0.1"]},
    **{name: {"enabled": True} for name in ("podDisruptionBudget", "serviceMonitor", "prometheusRule", "dashboards")},
    "networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 9092}]}]},
}
"""Values with which a release creates all objects that the chart has."""

NEEDS_HELM = pytest.mark.skipif(
    shutil.which("helm") is None and os.environ.get("ROWKIND_REQUIRE_HELM") != "1", reason="helm is not installed"
)

Manifest = dict[str, Any]


def helm(*arguments: str, values: Manifest) -> subprocess.CompletedProcess[str]:
    """Run a helm command on the chart, without a cluster, and return its result."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        command = ["helm", *arguments, str(CHART), "--kube-version", "1.31.0", "--values", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def objects(*arguments: str, **values: Any) -> list[Manifest]:
    """Return all objects of a release named shop with these values."""
    done = helm("template", "shop", *arguments, values=VALUES | values)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in YAML(typ="safe").load_all(done.stdout) if manifest]


def render(**values: Any) -> dict[str, Manifest]:
    """Return the same objects by kind, without dashboards and the pod of `helm test`; the first one of each kind."""
    found: dict[str, Manifest] = {}
    for manifest in objects(**values):
        name, annotations = manifest["metadata"]["name"], manifest["metadata"].get("annotations", {})
        if "-dashboard-" not in name and "helm.sh/hook" not in annotations:
            found.setdefault(manifest["kind"], manifest)
    return found


def refusal(**values: Any) -> str:
    """Return helm's message for values that it refuses."""
    done = helm("template", "shop", values=VALUES | values)
    assert done.returncode != 0, done.stdout
    return done.stderr


def pod(manifests: dict[str, Manifest]) -> Manifest:
    """Return the spec of the job's pod."""
    found: Manifest = manifests["StatefulSet"]["spec"]["template"]["spec"]
    return found


def executor(manifests: dict[str, Manifest]) -> Manifest:
    """Return the pod template of the executors."""
    found: Manifest = YAML(typ="safe").load(manifests["ConfigMap"]["data"]["executor.yaml"])
    return found


def labels_of(what: Sequence[Manifest]) -> list[Manifest]:
    """Return the labels in the pod selectors of a NetworkPolicy's `from` or `to`."""
    return [each["podSelector"]["matchLabels"] for each in what if "podSelector" in each]
