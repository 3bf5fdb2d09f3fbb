"""The objects of a release of the Helm chart, validated against the schemas of their consumers.

Kubernetes' schemas come with kubernetes-validate. The schemas of Prometheus' operator are in its Go module, which is
downloaded once (4 MB) if Go is installed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from tests.deploy.chart import EVERYTHING, JOB, NEEDS_HELM, Manifest, executor, objects, render

pytestmark = NEEDS_HELM

VERSIONS = ("1.27", "1.36", "1.37")
"""Versions of Kubernetes: the oldest that the chart supports, and the two newest."""

OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
OF_OPERATOR = "monitoring.coreos.com/v1"

RELEASES: dict[str, Manifest] = {
    "with everything": EVERYTHING,
    "in someone else's hands": {
        "job": f"{JOB}status: {{certificate: a, key: b, user: c, password: d}}\n",
        "image": {"digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "registry"}],
        "upgrade": True,
        "savepoint": "/saved",
        "extraArgs": ["--reset-state"],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}],
        "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "A_"}],
        "extraVolumes": [{"name": "code", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "code", "mountPath": "/code", "readOnly": True}],
        "initContainers": [{"name": "fetch", "image": "git"}],
        "extraContainers": [{"name": "proxy", "image": "envoy"}],
        "podSecurityContext": {"runAsUser": None},
        "priorityClassName": "high",
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "streams", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "persistence": {"existingClaim": "states"},
        "serviceAccount": {"create": False, "name": "streams"},
        "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
        "serviceMonitor": {
            "enabled": True,
            "interval": "15s",
            "scrapeTimeout": "10s",
            "basicAuth": {"username": {"name": "a", "key": "b"}, "password": {"name": "a", "key": "c"}},
            "tlsConfig": {"insecureSkipVerify": True},
            "relabelings": [{"action": "labeldrop", "regex": "pod"}],
            "metricRelabelings": [{"action": "drop", "sourceLabels": ["table"], "regex": "a"}],
        },
    },
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", RELEASES.values(), ids=RELEASES)
def test_kubernetes_knows_every_field_of_every_object(
    values: Manifest, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No field is misspelt, of a wrong type or too new, including those of the pods that Spark creates."""
    # Without a cache, megabytes would be read for each object.
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
    made = [each for each in objects(**values) if each["apiVersion"] != OF_OPERATOR]
    if values.get("executors"):
        made.append({"apiVersion": "v1", "kind": "Pod"} | executor(render(**values)))
    for manifest in made:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.fixture(scope="module")
def operators_schemas() -> dict[str, Any]:
    """The schemas of the operator's objects, by kind; unknown fields are refused."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed, which fetches the schemas of Prometheus' operator")
    command = ["go", "mod", "download", "-json", OPERATOR]
    fetched = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True, timeout=300)
    folder = Path(json.loads(fetched.stdout)["Dir"], "example", "prometheus-operator-crd")
    files = (folder / f"monitoring.coreos.com_{kind}.yaml" for kind in ("servicemonitors", "prometheusrules"))
    definitions = [YAML(typ="safe").load(file)["spec"] for file in files]
    return {
        each["names"]["kind"]: _closed(each["versions"][0]["schema"]["openAPIV3Schema"]) | {"type": "object"}
        for each in definitions
    }


@pytest.mark.parametrize("values", RELEASES.values(), ids=RELEASES)
def test_prometheus_operator_knows_every_field_of_its_objects(
    operators_schemas: dict[str, Any], values: Manifest
) -> None:
    """The operator would drop an unknown field without a message."""
    made = [each for each in objects(**values) if each["apiVersion"] == OF_OPERATOR]
    assert made
    for manifest in made:
        # Some of the schema's patterns are valid in Go and not in Python, so the schema itself is not checked.
        Draft202012Validator(operators_schemas[manifest["kind"]]).validate(manifest)


def _closed(schema: Any) -> Any:
    """Return the schema with all unknown fields forbidden. Metadata is left open, because Kubernetes checks it."""
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    if isinstance(fields := closed.get("properties"), dict):
        fields |= {"metadata": {"type": "object"}} if "metadata" in fields else {}
        closed.setdefault("additionalProperties", False)
    return closed
