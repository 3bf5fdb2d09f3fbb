"""The effect of each value of the Helm chart on a release, and the values that are refused."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.deploy.chart import (
    CHART,
    DEPLOY,
    EVERYTHING,
    JOB,
    NEEDS_HELM,
    executor,
    labels_of,
    objects,
    pod,
    refusal,
    render,
)

pytestmark = NEEDS_HELM

DIGEST = f"sha256:{'0' * 64}"


def test_an_image_is_named_by_digest_or_else_by_tag() -> None:
    """The digest takes precedence, and executors and the pod of `helm test` have the same image."""
    for image, name in (({}, "rowkind:0.1.0"), ({"tag": "2"}, "rowkind:2"), ({"tag": "2", "digest": DIGEST}, DIGEST)):
        made = objects(image=image, executors={"count": 1})
        (driver,) = (each["spec"]["template"]["spec"] for each in made if each["kind"] == "StatefulSet")
        (asking,) = (each["spec"] for each in made if each["kind"] == "Pod")
        (settings,) = (each["data"]["spark-defaults.conf"] for each in made if each["kind"] == "ConfigMap")
        named = driver["containers"][0]["image"]
        assert named.endswith(name)
        assert asking["containers"][0]["image"] == named
        assert f"spark.kubernetes.container.image {named}\n" in settings


def test_secrets_of_an_image_are_those_of_all_pods() -> None:
    """The pods of the job, of executors and of `helm test` have the image's pull secrets."""
    secrets = [{"name": "registry"}]
    made = objects(imagePullSecrets=secrets, executors={"count": 1})
    manifests = {each["kind"]: each for each in made}
    assert pod(manifests)["imagePullSecrets"] == secrets
    assert manifests["Pod"]["spec"]["imagePullSecrets"] == secrets
    assert executor(render(imagePullSecrets=secrets, executors={"count": 1}))["spec"]["imagePullSecrets"] == secrets


@pytest.mark.parametrize(
    ("values", "name", "chart"),
    [
        ({}, "shop-rowkind", "rowkind"),
        ({"nameOverride": "orders"}, "shop-orders", "orders"),
        ({"nameOverride": "shop"}, "shop", "shop"),
        ({"fullnameOverride": "till"}, "till", "rowkind"),
        ({"fullnameOverride": "a" * 52 + "-b"}, "a" * 52, "rowkind"),
    ],
)
def test_everything_bears_the_names_that_the_values_give(values: dict[str, str], name: str, chart: str) -> None:
    """Names begin with the release's name, and labels, selectors and references agree."""
    made = objects(**EVERYTHING, **values)
    assert all(each["metadata"]["name"].startswith(name) for each in made)
    assert {each["metadata"]["labels"]["app.kubernetes.io/name"] for each in made} == {chart, f"{chart}-test"}
    manifests = render(**values)
    labels = manifests["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert manifests["Service"]["spec"]["selector"].items() <= labels.items()
    assert manifests["StatefulSet"]["spec"]["serviceName"] == manifests["Service"]["metadata"]["name"] == name


def test_common_labels_and_annotations_are_everywhere_but_in_selectors() -> None:
    """Every object and every pod has them; selectors do not, because Kubernetes does not allow them to change."""
    made = objects(**EVERYTHING, commonLabels={"team": "shop"}, commonAnnotations={"owner": "ada"})
    assert {each["kind"] for each in made} >= {"StatefulSet", "Role", "NetworkPolicy", "PrometheusRule", "Pod"}
    for each in made:
        assert each["metadata"]["labels"]["team"] == "shop", each["kind"]
        assert each["metadata"]["annotations"]["owner"] == "ada", each["kind"]
    manifests = render(**EVERYTHING, commonLabels={"team": "shop", "app.kubernetes.io/name": "other"})
    spec = manifests["StatefulSet"]["spec"]
    assert spec["template"]["metadata"]["labels"]["team"] == "shop"
    assert executor(manifests)["metadata"]["labels"]["team"] == "shop"
    assert "team" not in spec["selector"]["matchLabels"] | manifests["Service"]["spec"]["selector"]
    assert "team" not in spec["volumeClaimTemplates"][0]["metadata"]["labels"]
    assert spec["template"]["metadata"]["labels"]["app.kubernetes.io/name"] == "rowkind"


def test_labels_and_annotations_of_one_object_are_its_alone() -> None:
    """Labels and annotations of the pod, the service and the account appear only there."""
    manifests = render(
        podLabels={"a": "1"},
        podAnnotations={"b": "2", "prometheus.io/scrape": "false"},
        service={"annotations": {"c": "3"}},
        serviceAccount={"annotations": {"d": "4"}},
    )
    metadata = manifests["StatefulSet"]["spec"]["template"]["metadata"]
    assert metadata["labels"]["a"] == "1"
    assert metadata["annotations"].items() >= {"b": "2", "prometheus.io/scrape": "false"}.items()
    assert manifests["Service"]["metadata"]["annotations"] == {"c": "3"}
    assert manifests["ServiceAccount"]["metadata"]["annotations"] == {"d": "4"}
    assert "annotations" not in manifests["StatefulSet"]["metadata"]


def test_a_pod_gets_what_the_values_add_to_it() -> None:
    """Arguments, environment, volumes, mounts and further containers are added to the job's pod."""
    volume, mount = {"name": "code", "emptyDir": {}}, {"name": "code", "mountPath": "/code"}
    before, beside = {"name": "fetch", "image": "git"}, {"name": "proxy", "image": "envoy"}
    more = {"extraVolumes": [volume], "extraVolumeMounts": [mount], "env": [{"name": "A", "value": "b"}]}
    manifests = render(
        **more,
        envFrom=[{"configMapRef": {"name": "settings"}}],
        extraArgs=["--reset-state"],
        initContainers=[before],
        extraContainers=[beside],
        executors={"count": 1},
    )
    driver = pod(manifests)
    job, *others = driver["containers"]
    assert (driver["initContainers"], others) == ([before], [beside])
    assert job["args"][-1] == "--reset-state"
    for made, container in ((driver, job), (executor(manifests)["spec"], executor(manifests)["spec"]["containers"][0])):
        assert volume in made["volumes"]
        assert mount in container["volumeMounts"]
        assert {"name": "A", "value": "b"} in container["env"]
        assert container["envFrom"] == [{"configMapRef": {"name": "settings"}}]


def test_security_contexts_are_added_to_and_taken_from() -> None:
    """Security contexts of pod and container can be extended and reduced, for executors and `helm test` as well."""
    values = {
        "podSecurityContext": {"runAsUser": None, "supplementalGroups": [1]},
        "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
    }
    made = {each["kind"]: each for each in objects(**values)}
    for spec in (pod(made), made["Pod"]["spec"], executor(render(**values, executors={"count": 1}))["spec"]):
        assert "runAsUser" not in spec["securityContext"]
        assert spec["securityContext"]["supplementalGroups"] == [1]
        assert spec["securityContext"]["runAsNonRoot"] is True
        (container,) = spec["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_values_say_where_pods_are_and_who_goes_first() -> None:
    """Node selector, tolerations, affinity and priority apply to the job, executors and `helm test`."""
    values: dict[str, Any] = {
        "priorityClassName": "high",
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "streams", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    }
    made = {each["kind"]: each for each in objects(**values)}
    for spec in (pod(made), made["Pod"]["spec"], executor(render(**values, executors={"count": 1}))["spec"]):
        assert values.items() <= spec.items()


def test_a_claim_follows_the_values() -> None:
    """Size, storage class, access mode and retention policy of the claim follow the values."""
    spec = render(
        persistence={
            "size": "1Ti",
            "accessMode": "ReadWriteOncePod",
            "storageClass": "fast",
            "retentionPolicy": {"whenDeleted": "Delete"},
        }
    )["StatefulSet"]["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOncePod"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Ti"}},
    }
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Delete", "whenScaled": "Retain"}


def test_a_claim_that_is_there_is_used() -> None:
    """The job and the executors use the existing claim, and no claim is created."""
    manifests = render(persistence={"existingClaim": "states"}, executors={"count": 1})
    spec = manifests["StatefulSet"]["spec"]
    assert not {"volumeClaimTemplates", "persistentVolumeClaimRetentionPolicy"} & spec.keys()
    checkpoint = {"name": "checkpoint", "persistentVolumeClaim": {"claimName": "states"}}
    assert checkpoint in pod(manifests)["volumes"]
    assert checkpoint in executor(manifests)["spec"]["volumes"]


def test_a_checkpoint_on_an_object_store_needs_no_claim() -> None:
    """The checkpoint folder is then an empty volume, and a job whose checkpoint would be lost is refused."""
    without = {"persistence": {"enabled": False}}
    manifests = render(**without, job=f"{JOB}checkpoint: s3a://bucket/jobs\n", executors={"count": 1})
    assert "volumeClaimTemplates" not in manifests["StatefulSet"]["spec"]
    for spec in (pod(manifests), executor(manifests)["spec"]):
        assert {"name": "checkpoint", "emptyDir": {}} in spec["volumes"]
    assert "would be lost with the pod" in refusal(**without)
    for lost in ("/var/lib/rowkind/a", "first-checkpoint", "file:///var/lib/rowkind/a", '"${WHERE:-first-checkpoint}"'):
        assert "would be lost with the pod" in refusal(**without, job=f"{JOB}checkpoint: {lost}\n"), lost
    for kept in ('"${WHERE}/jobs"', '"${WHERE:-s3a://bucket/jobs}"'):
        assert "emptyDir" in str(pod(render(**without, job=f"{JOB}checkpoint: {kept}\n"))["volumes"]), kept


def test_a_disruption_budget_keeps_the_job_where_it_is() -> None:
    """The budget applies to the job's pod and not to executors, which Spark replaces."""
    assert "PodDisruptionBudget" not in render()
    manifests = render(podDisruptionBudget={"enabled": True}, executors={"count": 1})
    spec = manifests["PodDisruptionBudget"]["spec"]
    assert spec["maxUnavailable"] == 0
    assert spec["selector"] == manifests["StatefulSet"]["spec"]["selector"]
    allowing = render(podDisruptionBudget={"enabled": True, "maxUnavailable": 1})["PodDisruptionBudget"]
    assert allowing["spec"]["maxUnavailable"] == 1


def test_a_network_policy_lets_in_who_has_to() -> None:
    """The port is open to all or to the named peers, and to `helm test`; egress is not restricted."""
    assert "NetworkPolicy" not in render()
    manifests = render(networkPolicy={"enabled": True})
    spec = manifests["NetworkPolicy"]["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["podSelector"] == manifests["StatefulSet"]["spec"]["selector"]
    assert spec["ingress"] == [{"ports": [{"port": "metrics"}]}]
    prometheus = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
    made = objects(networkPolicy={"enabled": True, "from": [prometheus]})
    (policy,) = (each for each in made if each["kind"] == "NetworkPolicy")
    (asking,) = (each for each in made if each["kind"] == "Pod")
    ((rule),) = policy["spec"]["ingress"]
    assert prometheus in rule["from"]
    (tester,) = labels_of(rule["from"])
    assert tester.items() <= asking["metadata"]["labels"].items()


def test_network_policies_let_job_and_executors_reach_each_other() -> None:
    """Each accepts the other on all ports, and if egress is restricted, DNS stays reachable."""
    values = {"executors": {"count": 2}, "networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 9092}]}]}}
    policies = [each["spec"] for each in objects(**values) if each["kind"] == "NetworkPolicy"]
    manifests = render(**values)
    pods = [manifests["StatefulSet"]["spec"]["template"], executor(manifests)]
    assert len(policies) == len(pods)
    for policy, of in zip(policies, pods, strict=True):
        assert policy["podSelector"]["matchLabels"].items() <= of["metadata"]["labels"].items()
        among = policy["ingress"][0]
        names, each_other, own = policy["egress"]
        for rule in (among["from"], each_other["to"]):
            for selected, reached in zip(labels_of(rule), pods, strict=True):
                assert selected.items() <= reached["metadata"]["labels"].items()
        assert "ports" not in among
        assert {port["port"] for port in names["ports"]} == {53}
        assert own == {"ports": [{"port": 9092}]}


def test_prometheus_operator_is_told_of_the_service() -> None:
    """The monitor selects the service by labels and its port by name, and the pod has no prometheus.io annotations."""
    values = {
        "namespace": "monitoring",
        "labels": {"release": "prometheus"},
        "interval": "15s",
        "basicAuth": {"username": {"name": "login", "key": "user"}, "password": {"name": "login", "key": "password"}},
        "relabelings": [{"action": "labeldrop", "regex": "pod"}],
    }
    assert "ServiceMonitor" not in render()
    manifests = render(serviceMonitor={"enabled": True} | values)
    monitor, service = manifests["ServiceMonitor"], manifests["Service"]
    assert monitor["metadata"]["namespace"] == "monitoring"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    spec = monitor["spec"]
    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert spec["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]] == ["default"]
    (endpoint,) = spec["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert {name: endpoint[name] for name in ("interval", "basicAuth")}.items() <= values.items()
    # The alerts expect this job label, whatever the name of the release is.
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "rowkind"}, *values["relabelings"]]
    assert "scrapeTimeout" not in endpoint
    annotations = manifests["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    assert not any(name.startswith("prometheus.io/") for name in annotations)


def test_the_rules_are_those_that_prometheus_reads() -> None:
    """The rules are unchanged, with the templates in their texts left to Prometheus."""
    assert "PrometheusRule" not in render()
    rule = render(prometheusRule={"enabled": True, "labels": {"release": "prometheus"}})["PrometheusRule"]
    assert rule["spec"] == YAML(typ="safe").load(DEPLOY / "prometheus" / "rules.yaml")
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_every_dashboard_becomes_a_configmap() -> None:
    """Each has the label by which Grafana's sidecar finds it, and the text of its file."""
    values = {"enabled": True, "annotations": {"grafana_folder": "Streams"}}
    made = [each for each in objects(dashboards=values) if "-dashboard-" in each["metadata"]["name"]]
    files = {file.name: json.loads(file.read_text()) for file in (DEPLOY / "grafana").glob("*.json")}
    assert {name: json.loads(text) for each in made for name, text in each["data"].items()} == files
    assert len(made) == len(files) > 0
    for each in made:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "Streams"}


def test_helm_test_asks_the_service_whether_the_job_is_ready() -> None:
    """The pod is a hook that runs on request, and the service does not select it."""
    made = {each["kind"]: each for each in objects(port=9000)}
    asking, service = made["Pod"], made["Service"]
    assert asking["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = asking["spec"]["containers"]
    assert container["command"][-1] == f"http://{service['metadata']['name']}:9000/readyz"
    assert not service["spec"]["selector"].items() <= asking["metadata"]["labels"].items()
    compile(container["command"][2], "test", "exec")


def test_the_packaged_chart_has_rules_and_dashboards(tmp_path: Path) -> None:
    """Links in the repository become files in the package, and no other file is added."""
    command = ["helm", "package", str(CHART), "--destination", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as files:
        names = {name.removeprefix("rowkind/files/") for name in files.getnames() if "/files/" in name}
    assert names == {"prometheus/rules.yaml", *(f"grafana/{file.name}" for file in (DEPLOY / "grafana").glob("*.json"))}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"job": ""}, "`job` is empty"),
        ({"job": {"job": "shop"}}, "`job` must be text"),
        ({"job": "job: [shop"}, "`job` is not a job file"),
        ({"job": "{job: shop}"}, "add `checkpoint:"),
        ({"port": 80}, "/port|port: Must be greater"),
        ({"port": "8080"}, "port"),
        ({"replicas": 2}, "replicas"),
        ({"image": {"digest": "sha256:1"}}, "digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"schemas": {"orders": "{}"}}, "avsc"),
        ({"env": [{"value": "1"}]}, "name"),
        ({"envFrom": [{"secretRef": {"name": "a"}, "configMapRef": {"name": "b"}}]}, "envFrom"),
        ({"extraArgs": "--reset-state"}, "extraArgs"),
        ({"persistence": {"size": "much"}}, "size"),
        ({"persistence": {"retentionPolicy": {"whenDeleted": "Forget"}}}, "whenDeleted"),
        ({"resources": {"limits": {"cpu": "much"}}}, "cpu"),
        ({"executors": {"count": -1}}, "count"),
        ({"executors": {"memory": "much"}}, "memory"),
        ({"spark": {"executor.cores": 2}}, "executor.cores"),
        ({"commonLabels": {"team": 1}}, "team"),
        ({"affinity": {"podAffinities": {}}}, "podAffinities"),
        ({"podDisruptionBudget": {"maxUnavailable": 2}}, "maxUnavailable"),
        ({"serviceMonitor": {"interval": "soon"}}, "interval"),
        ({"serviceMonitor": {"basicAuth": {"user": {}}}}, "user"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], told: str) -> None:
    """A wrong or unknown value ends the installation with its name, before anything reaches the cluster."""
    said = refusal(**values)
    assert any(each in said for each in told.split("|")), said


def test_values_for_a_chart_around_this_one_are_let_pass() -> None:
    """Helm passes down `global` and the condition of a dependency."""
    assert render(**{"global": {"a": 1}, "enabled": True})
