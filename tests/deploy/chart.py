"""The Helm chart as helm itself renders it."""

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
    **{name: {"enabled": True} for name in ("podDisruptionBudget", "serviceMonitor", "prometheusRule", "dashboards")},
    "networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 9092}]}]},
}
"""With these, a release makes all that it can."""

NEEDS_HELM = pytest.mark.skipif(
    shutil.which("helm") is None and os.environ.get("ROWKIND_REQUIRE_HELM") != "1", reason="helm is not installed"
)

Manifest = dict[str, Any]


def helm(*arguments: str, values: Manifest) -> subprocess.CompletedProcess[str]:
    """What helm says to a command of the chart, for a cluster that is not there."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        command = ["helm", *arguments, str(CHART), "--kube-version", "1.31.0", "--values", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def objects(*arguments: str, **values: Any) -> list[Manifest]:
    """All that a release called shop makes with these values."""
    done = helm("template", "shop", *arguments, values=VALUES | values)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in YAML(typ="safe").load_all(done.stdout) if manifest]


def render(**values: Any) -> dict[str, Manifest]:
    """The same by kind, but for dashboards and the pod of `helm test`; of several of a kind the first."""
    found: dict[str, Manifest] = {}
    for manifest in objects(**values):
        name, annotations = manifest["metadata"]["name"], manifest["metadata"].get("annotations", {})
        if "-dashboard-" not in name and "helm.sh/hook" not in annotations:
            found.setdefault(manifest["kind"], manifest)
    return found


def refusal(**values: Any) -> str:
    """What helm says to values that it refuses."""
    done = helm("template", "shop", values=VALUES | values)
    assert done.returncode != 0, done.stdout
    return done.stderr


def pod(manifests: dict[str, Manifest]) -> Manifest:
    """What the job's pod is to be."""
    found: Manifest = manifests["StatefulSet"]["spec"]["template"]["spec"]
    return found


def executor(manifests: dict[str, Manifest]) -> Manifest:
    """The pod that executors are made of."""
    found: Manifest = YAML(typ="safe").load(manifests["ConfigMap"]["data"]["executor.yaml"])
    return found


def labels_of(what: Sequence[Manifest]) -> list[Manifest]:
    """The labels that selectors of pods ask for, in what a NetworkPolicy lets in or out."""
    return [each["podSelector"]["matchLabels"] for each in what if "podSelector" in each]
