"""The Helm chart, rendered by helm itself and read back."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "rowkind"
JOB = {"job": "shop", "kafka": {"bootstrap.servers": "kafka:9092"}, "tables": {}, "sinks": {}}
VALUES = {
    "job": JOB,
    "schemas": {"orders-value.avsc": '{"type": "record"}'},
    "secretEnv": ["kafka-password"],
    "secretFiles": ["kafka-tls"],
}

pytestmark = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")


def _helm(*arguments: str, values: dict[str, Any], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    command = ["helm", *arguments, "--kube-version", "1.31.0", "--values", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def _render(tmp_path: Path, **values: Any) -> dict[str, Any]:
    done = _helm("template", "shop", str(CHART), values=VALUES | values, tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr
    return {manifest["kind"]: manifest for manifest in YAML(typ="safe").load_all(done.stdout)}


def test_the_chart_passes_helms_own_linter(tmp_path: Path) -> None:
    """Helm finds nothing to complain about, warnings included."""
    done = _helm("lint", "--strict", str(CHART), values=VALUES, tmp_path=tmp_path)
    assert done.returncode == 0, done.stdout


def test_the_pod_runs_the_job_file_that_the_values_gave(tmp_path: Path) -> None:
    """The job reaches the container as the file that its arguments name, beside its schemas."""
    manifests = _render(tmp_path)
    data = manifests["ConfigMap"]["data"]
    assert YAML(typ="safe").load(data["job.yaml"]) == JOB | {"checkpoint": "/var/lib/rowkind/checkpoint"}
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:2] == ["run", "/etc/rowkind/job.yaml"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    files = {item["key"]: item["path"] for item in volumes["job"]["configMap"]["items"]}
    assert files == {"job.yaml": "job.yaml", "orders-value.avsc": "schemas/orders-value.avsc"}
    assert set(files) == set(data)


def test_a_changed_job_is_rebuilt_if_the_values_say_so(tmp_path: Path) -> None:
    """Not otherwise: whoever installs a release decides it."""
    for wanted in (False, True):
        (container,) = _render(tmp_path, upgrade=wanted)["StatefulSet"]["spec"]["template"]["spec"]["containers"]
        assert ("--upgrade" in container["args"]) == wanted


def test_a_job_begins_with_a_savepoint_if_the_values_name_one(tmp_path: Path) -> None:
    """The folder is one argument, whatever is in its name."""
    pod = _render(tmp_path, savepoint="/saved by hand")["StatefulSet"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["args"][-2:] == ["--from", "/saved by hand"]


def test_the_pod_may_write_to_its_checkpoint_and_scratch_only(tmp_path: Path) -> None:
    """No root, no capability, a read-only root file system; the checkpoint is a claim and /tmp an empty folder."""
    pod = _render(tmp_path)["StatefulSet"]["spec"]
    context = pod["template"]["spec"]["securityContext"]
    (container,) = pod["template"]["spec"]["containers"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["fsGroup"] == 10001
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/rowkind": "checkpoint", "/tmp": "scratch"}
    assert [claim["metadata"]["name"] for claim in pod["volumeClaimTemplates"]] == ["checkpoint"]
    volumes = {volume["name"] for volume in pod["template"]["spec"]["volumes"]} | {"checkpoint"}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_probes_and_service_ask_the_port_that_the_job_serves(tmp_path: Path) -> None:
    """One value sets the port of the command line, the container, the annotations, the service and the probes."""
    manifests = _render(tmp_path, port=9000)
    template = manifests["StatefulSet"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["args"][-2:] == ["--port", "9000"]
    assert container["ports"] == [{"name": "metrics", "containerPort": 9000}]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == "9000"
    assert manifests["Service"]["spec"]["ports"] == [{"name": "metrics", "port": 9000, "targetPort": "metrics"}]
    asked = {probe: container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {
        "startupProbe": {"path": "/healthz", "port": "metrics"},
        "livenessProbe": {"path": "/healthz", "port": "metrics"},
        "readinessProbe": {"path": "/readyz", "port": "metrics"},
    }


def test_the_service_and_the_pod_find_each_other(tmp_path: Path) -> None:
    """Selectors match the pod's labels, and the StatefulSet names its service and its account."""
    manifests = _render(tmp_path)
    spec = manifests["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    for selector in (spec["selector"]["matchLabels"], manifests["Service"]["spec"]["selector"]):
        assert selector.items() <= labels.items()
    assert spec["serviceName"] == manifests["Service"]["metadata"]["name"]
    assert spec["template"]["spec"]["serviceAccountName"] == manifests["ServiceAccount"]["metadata"]["name"]
    assert spec["replicas"] == 1


def test_a_changed_job_restarts_the_pod(tmp_path: Path) -> None:
    """Another job gives another checksum on the pod, the same job the same."""

    def checksum(**values: Any) -> str:
        template = _render(tmp_path, **values)["StatefulSet"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/job"])

    assert checksum() == checksum()
    assert checksum() != checksum(job=JOB | {"ttl": "1d"})


def test_a_checkpoint_may_lie_elsewhere(tmp_path: Path) -> None:
    """The job's own counts."""
    data = _render(tmp_path, job=JOB | {"checkpoint": "s3a://bucket/jobs"})["ConfigMap"]["data"]
    assert YAML(typ="safe").load(data["job.yaml"])["checkpoint"] == "s3a://bucket/jobs"


def test_without_executors_the_pod_asks_nothing_of_the_cluster(tmp_path: Path) -> None:
    """No token, no role, no settings of Spark's, a volume for one node."""
    manifests = _render(tmp_path)
    assert not {"Role", "RoleBinding"} & manifests.keys()
    spec = manifests["StatefulSet"]["spec"]
    assert spec["template"]["spec"]["automountServiceAccountToken"] is False
    assert "--master" not in spec["template"]["spec"]["containers"][0]["args"]
    assert "spark-defaults.conf" not in manifests["ConfigMap"]["data"]
    assert spec["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_the_driver_of_executors_may_have_pods_and_nothing_else(tmp_path: Path) -> None:
    """Its account, and no other, is bound to a role of one rule."""
    manifests = _render(tmp_path, executors={"count": 2})
    (rule,) = manifests["Role"]["rules"]
    assert rule["resources"] == ["pods"]
    binding = manifests["RoleBinding"]
    assert binding["roleRef"]["name"] == manifests["Role"]["metadata"]["name"]
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    assert [subject["name"] for subject in binding["subjects"]] == [pod["serviceAccountName"]]
    assert pod["automountServiceAccountToken"] is True


def test_executors_find_the_driver_by_its_service(tmp_path: Path) -> None:
    """Host and ports of Spark's settings are those of the headless service, and of the container behind it."""
    manifests = _render(tmp_path, executors={"count": 2, "cores": 3}, spark={"spark.executor.cores": "4"})
    settings = _settings(manifests)
    (container,) = manifests["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    service = manifests["Service"]
    assert settings["spark.driver.host"] == f"{service['metadata']['name']}.default.svc"
    assert settings["spark.kubernetes.driver.pod.name"] == f"{manifests['StatefulSet']['metadata']['name']}-0"
    served = {port["name"]: str(port["port"]) for port in service["spec"]["ports"]}
    behind = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert served == behind
    assert served["spark"] == settings["spark.driver.port"]
    assert served["blocks"] == settings["spark.driver.blockManager.port"]
    assert settings["spark.kubernetes.container.image"] == container["image"]
    assert settings["spark.executor.instances"] == "2"
    # What the values say of Spark counts for more.
    assert settings["spark.executor.cores"] == "4"
    assert {"name": "SPARK_CONF_DIR", "value": "/etc/rowkind/spark"} in container["env"]
    assert container["args"][4:6] == ["--master", "k8s://https://kubernetes.default.svc"]


def test_executors_have_what_the_driver_has(tmp_path: Path) -> None:
    """Files, Secrets, environment, volume and confinement, but no token; the values may add to it."""
    more = {"metadata": {"annotations": {"team": "shop"}}, "spec": {"priorityClassName": "high"}}
    manifests = _render(
        tmp_path,
        env=[{"name": "A", "value": "b"}],
        executors={"count": 1, "podTemplate": more},
        nodeSelector={"a": "b"},
    )
    pod = YAML(typ="safe").load(manifests["ConfigMap"]["data"]["executor.yaml"])
    driver = manifests["StatefulSet"]["spec"]["template"]["spec"]
    (container,), (own,) = pod["spec"]["containers"], driver["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts | {"/tmp"} == {mount["mountPath"] for mount in own["volumeMounts"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == {each["name"] for each in pod["spec"]["volumes"]}
    assert container["envFrom"] == own["envFrom"]
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert container["securityContext"] == own["securityContext"]
    assert pod["spec"]["securityContext"] == driver["securityContext"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["nodeSelector"] == {"a": "b"}
    assert pod["spec"]["priorityClassName"] == "high"
    assert pod["metadata"]["annotations"] == {"team": "shop"}
    (claim,) = manifests["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    # The service is the driver's alone.
    assert not manifests["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def _settings(manifests: dict[str, Any]) -> dict[str, str]:
    lines = manifests["ConfigMap"]["data"]["spark-defaults.conf"].strip().splitlines()
    return {name: value for name, _, value in (line.partition(" ") for line in lines)}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"job": {}}, "job is empty"),
        ({"port": 80}, "/port"),
        ({"replicas": 2}, "replicas"),
        ({"schemas": {"orders": "{}"}}, "avsc"),
        ({"persistence": {"size": "much"}}, "size"),
        ({"executors": {"count": -1}}, "count"),
        ({"executors": {"memory": "much"}}, "memory"),
        ({"spark": {"executor.cores": 2}}, "executor.cores"),
    ],
)
def test_values_that_cannot_work_are_refused(tmp_path: Path, values: dict[str, Any], told: str) -> None:
    """A wrong or unknown value ends the installation with its name, before anything reaches the cluster."""
    done = _helm("template", "shop", str(CHART), values=VALUES | values, tmp_path=tmp_path)
    assert done.returncode != 0
    assert told in done.stderr
