"""What a release of the Helm chart runs: the job, its pod, and its executors."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.deploy.chart import EVERYTHING, JOB, NEEDS_HELM, VALUES, Manifest, executor, helm, pod, render

pytestmark = NEEDS_HELM


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["as it comes", "with everything"])
def test_the_chart_passes_helms_own_linter(values: Manifest) -> None:
    """Helm reports no errors and no warnings."""
    done = helm("lint", "--strict", values=VALUES | values)
    assert done.returncode == 0, done.stdout


def test_the_pod_runs_the_job_file_that_the_values_gave() -> None:
    """The container gets the job file unchanged, at the path in its arguments, next to its schemas."""
    manifests = render()
    data = manifests["ConfigMap"]["data"]
    assert data["job.yaml"].startswith(JOB)
    (container,) = pod(manifests)["containers"]
    assert container["args"][:2] == ["run", "/etc/rowkind/job.yaml"]
    volumes = {volume["name"]: volume for volume in pod(manifests)["volumes"]}
    files = {item["key"]: item["path"] for item in volumes["job"]["configMap"]["items"]}
    assert files == {"job.yaml": "job.yaml", "orders-value.avsc": "schemas/orders-value.avsc"}
    assert set(files) == set(data)


def test_a_changed_job_is_rebuilt_if_the_values_say_so() -> None:
    """`--upgrade` is set only if the values say so."""
    for wanted in (False, True):
        (container,) = pod(render(upgrade=wanted))["containers"]
        assert ("--upgrade" in container["args"]) == wanted


def test_a_suspended_job_leaves_a_pod_that_waits_and_ends_when_it_is_told() -> None:
    """The pod has no probes, sees the same files as the job, and ends on SIGTERM."""
    (running,), (container,) = (pod(render(suspend=wanted))["containers"] for wanted in (False, True))
    gone = {"args", "startupProbe", "livenessProbe", "readinessProbe"}
    assert {name: value for name, value in container.items() if name != "command"} == {
        name: value for name, value in running.items() if name not in gone
    }
    with subprocess.Popen(container["command"]) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.5)
        waiting.terminate()
        assert waiting.wait(10) in {0, 143}


def test_a_job_begins_with_a_savepoint_if_the_values_name_one() -> None:
    """The folder is a single argument, even if its name has spaces."""
    (container,) = pod(render(savepoint="/saved by hand"))["containers"]
    assert container["args"][-2:] == ["--from", "/saved by hand"]


def test_the_pod_may_write_to_its_checkpoint_and_scratch_only() -> None:
    """It has no root user, no capability and a read-only root; the checkpoint is a claim and /tmp an empty folder."""
    manifests = render()
    context = pod(manifests)["securityContext"]
    (container,) = pod(manifests)["containers"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["fsGroup"] == 10001
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/rowkind": "checkpoint", "/tmp": "scratch"}
    assert [claim["metadata"]["name"] for claim in manifests["StatefulSet"]["spec"]["volumeClaimTemplates"]] == [
        "checkpoint"
    ]
    volumes = {volume["name"] for volume in pod(manifests)["volumes"]} | {"checkpoint"}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_probes_and_service_ask_the_port_that_the_job_serves() -> None:
    """One value sets the port of the command line, the container, the annotations, the service and the probes."""
    manifests = render(port=9000)
    template = manifests["StatefulSet"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["args"][-2:] == ["--port", "9000"]
    assert container["ports"] == [{"name": "metrics", "containerPort": 9000}]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == "9000"
    assert manifests["Service"]["spec"]["ports"] == [{"name": "metrics", "port": 9000, "targetPort": "metrics"}]
    asked = {probe: container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {
        "startupProbe": {"path": "/healthz", "port": "metrics", "scheme": "HTTP"},
        "livenessProbe": {"path": "/healthz", "port": "metrics", "scheme": "HTTP"},
        "readinessProbe": {"path": "/readyz", "port": "metrics", "scheme": "HTTP"},
    }


def test_the_service_and_the_pod_find_each_other() -> None:
    """Selectors match the pod's labels, and the StatefulSet names its service and its account."""
    manifests = render()
    spec = manifests["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    for selector in (spec["selector"]["matchLabels"], manifests["Service"]["spec"]["selector"]):
        assert selector.items() <= labels.items()
    assert spec["serviceName"] == manifests["Service"]["metadata"]["name"]
    assert spec["template"]["spec"]["serviceAccountName"] == manifests["ServiceAccount"]["metadata"]["name"]
    assert spec["replicas"] == 1


def test_a_changed_job_restarts_the_pod() -> None:
    """Another job changes the checksum on the pod, and the same job does not."""

    def checksum(**values: Any) -> str:
        template = render(**values)["StatefulSet"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/job"])

    assert checksum() == checksum()
    assert checksum() != checksum(job=f"{JOB}ttl: 1d\n")


def test_a_checkpoint_lies_on_the_volume_unless_the_job_says_otherwise() -> None:
    """A job without `checkpoint` gets a line for it, and a job with one stays unchanged."""
    text = render()["ConfigMap"]["data"]["job.yaml"]
    assert YAML(typ="safe").load(text)["checkpoint"] == "/var/lib/rowkind/checkpoint"
    own = f"{JOB}checkpoint: ${{CHECKPOINT:-s3a://bucket/jobs}}\n"
    assert render(job=own)["ConfigMap"]["data"]["job.yaml"] == own


def test_a_job_that_asks_for_tls_is_asked_by_it() -> None:
    """Probes, Prometheus' annotation and monitor use HTTPS if the job's `status` has a certificate."""
    secured = f"{JOB}status: {{certificate: status.pem, key: ${{KEY}}}}\n"
    manifests = render(job=secured)
    (container,) = pod(manifests)["containers"]
    probes = [container[probe] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert {probe["httpGet"]["scheme"] for probe in probes} == {"HTTPS"}
    template = manifests["StatefulSet"]["spec"]["template"]
    assert template["metadata"]["annotations"]["prometheus.io/scheme"] == "https"
    (endpoint,) = render(job=secured, serviceMonitor={"enabled": True})["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"


def test_without_executors_the_pod_asks_nothing_of_the_cluster() -> None:
    """There is no token, no role, no Spark setting, and the volume is for one node."""
    manifests = render()
    assert not {"Role", "RoleBinding"} & manifests.keys()
    spec = manifests["StatefulSet"]["spec"]
    assert spec["template"]["spec"]["automountServiceAccountToken"] is False
    assert "--master" not in spec["template"]["spec"]["containers"][0]["args"]
    assert "spark-defaults.conf" not in manifests["ConfigMap"]["data"]
    assert spec["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_the_driver_of_executors_may_have_pods_and_nothing_else() -> None:
    """Only its account is bound to a role with a single rule."""
    manifests = render(executors={"count": 2})
    (rule,) = manifests["Role"]["rules"]
    assert rule["resources"] == ["pods"]
    binding = manifests["RoleBinding"]
    assert binding["roleRef"]["name"] == manifests["Role"]["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == [pod(manifests)["serviceAccountName"]]
    assert pod(manifests)["automountServiceAccountToken"] is True


def test_executors_find_the_driver_by_its_service() -> None:
    """Host and ports in Spark's settings are those of the headless service and of the driver's container."""
    manifests = render(executors={"count": 2, "cores": 3}, spark={"spark.executor.cores": "4"})
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
    # Spark settings in the values take precedence.
    assert settings["spark.executor.cores"] == "4"
    assert {"name": "SPARK_CONF_DIR", "value": "/etc/rowkind/spark"} in container["env"]
    assert container["args"][4:6] == ["--master", "k8s://https://kubernetes.default.svc"]


def test_executors_have_what_the_driver_has() -> None:
    """Executors have the same files, Secrets, environment, volume and restrictions, but no token; values can add."""
    more = {"metadata": {"annotations": {"team": "shop"}}, "spec": {"priorityClassName": "high"}}
    manifests = render(
        env=[{"name": "A", "value": "b"}],
        executors={"count": 1, "podTemplate": more},
        nodeSelector={"a": "b"},
    )
    made, driver = executor(manifests), pod(manifests)
    (container,), (own,) = made["spec"]["containers"], driver["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts | {"/tmp"} == {mount["mountPath"] for mount in own["volumeMounts"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == {each["name"] for each in made["spec"]["volumes"]}
    assert container["envFrom"] == own["envFrom"]
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert container["securityContext"] == own["securityContext"]
    assert made["spec"]["securityContext"] == driver["securityContext"]
    assert made["spec"]["automountServiceAccountToken"] is False
    assert made["spec"]["nodeSelector"] == {"a": "b"}
    assert made["spec"]["priorityClassName"] == "high"
    assert made["metadata"]["annotations"] == {"team": "shop"}
    (claim,) = manifests["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    # The service selects only the driver.
    assert not manifests["Service"]["spec"]["selector"].items() <= made["metadata"]["labels"].items()


def _settings(manifests: dict[str, Any]) -> dict[str, str]:
    lines = manifests["ConfigMap"]["data"]["spark-defaults.conf"].strip().splitlines()
    return {name: value for name, _, value in (line.partition(" ") for line in lines)}


def test_several_jobs_are_a_folder_that_the_service_follows() -> None:
    """Each job is a file of the folder, with its checkpoint on the volume; a changed job does not change the pod."""
    other = JOB.replace("job: shop", "job: other") + "checkpoint: s3a://bucket/jobs\n"
    manifests = render(job="", jobs={"shop": JOB, "other": other})
    data = manifests["ConfigMap"]["data"]
    assert data["other.yaml"] == other
    assert data["shop.yaml"] == f"{JOB}checkpoint: /var/lib/rowkind/checkpoint\n"
    (container,) = pod(manifests)["containers"]
    assert container["args"][:2] == ["run", "/etc/rowkind/jobs"]
    volumes = {volume["name"]: volume for volume in pod(manifests)["volumes"]}
    files = {item["key"]: item["path"] for item in volumes["job"]["configMap"]["items"]}
    assert files == {
        "other.yaml": "jobs/other.yaml",
        "shop.yaml": "jobs/shop.yaml",
        "orders-value.avsc": "schemas/orders-value.avsc",
    }
    changed = render(job="", jobs={"shop": f"{JOB}ttl: 1d\n", "other": other}, upgrade=True)
    template, before = (
        each["StatefulSet"]["spec"]["template"] for each in (changed, render(job="", jobs={"shop": JOB}, upgrade=True))
    )
    assert template == before | {"spec": template["spec"]}
    assert "--upgrade" in template["spec"]["containers"][0]["args"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"jobs": {"shop": JOB}}, "`job` and `jobs` cannot be combined"),
        ({"job": "", "jobs": {"shop": JOB}, "executors": {"count": 1}}, "`executors` and `jobs` cannot be combined"),
        ({"job": "", "jobs": {"shop": JOB}, "savepoint": "/saved"}, "`savepoint` and `jobs` cannot be combined"),
        ({"job": "", "jobs": {"shop": {"job": "shop"}}}, "`jobs.shop` must be text"),
        ({"job": "", "jobs": {"shop": "{job: shop}"}}, "`jobs.shop` has no checkpoint"),
        ({"job": "", "jobs": {"Shop": JOB}}, "'/jobs': additional properties 'Shop' not allowed"),
    ],
)
def test_what_several_jobs_cannot_have_is_refused_by_name(values: Manifest, told: str) -> None:
    """The values are refused before anything reaches a cluster."""
    done = helm("template", "shop", values=VALUES | values)
    assert done.returncode != 0
    assert told in done.stderr
