"""A job whose executors are pods of a Kubernetes cluster with a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.dev.broker import Broker
from rowkind.service.machine.ports import free_port
from tests.chaos.stage import SLOW, Stage
from tests.cluster.control_plane import ControlPlane, missing
from tests.cluster.kubelet import Kubelet, Pod
from tests.deploy.chart import CHART
from tests.e2e.containers import build_product, require_daemon
from tests.run.process import Rowkind, get, until
from tests.run.results import Results
from tests.run.shop import Shop

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.containers]
if missing():
    pytestmark.append(pytest.mark.skip(reason=missing()))

_IMAGE = "rowkind-test/executor"
_VERBS = ("create", "get", "list", "watch", "delete", "deletecollection")
_SETTINGS = """
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.executor.instances 2
spark.executor.memory 512m
spark.kubernetes.container.image {image}
spark.kubernetes.executor.podTemplateFile {template}
spark.kubernetes.executor.volumes.hostPath.shop.mount.path {folder}
spark.kubernetes.executor.volumes.hostPath.shop.options.path {folder}
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server at which `driver` may manage pods in the namespace `default`."""
    require_daemon()
    with ControlPlane(tmp_path_factory.mktemp("plane"), "driver", "stranger") as running:
        running.allow("driver", "default", "pods", *_VERBS)
        yield running


@pytest.fixture(scope="module")
def image() -> str:
    """The product's image, whose Python is also at the driver's path.

    Executors start Python from that path, because one setting applies to them and to the driver's own workers.
    """
    require_daemon()
    lines = (
        f"FROM {build_product()}\nUSER 0\nRUN mkdir -p {Path(sys.prefix).parent} && ln -s /opt/rowkind {sys.prefix}\n"
    )
    command = ["docker", "build", "--quiet", "--tag", _IMAGE, "-"]
    built = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=300)
    assert built.returncode == 0, built.stderr
    return _IMAGE


@pytest.fixture
def kubelet(plane: ControlPlane, tmp_path: Path) -> Iterator[Kubelet]:
    """A node of the cluster."""
    with Kubelet(plane, tmp_path / "pods") as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path, image: str) -> Path:
    """The folder with Spark's settings. Executors see the checkpoint's folder, and run as its owner."""
    folder = tmp_path / "settings"
    folder.mkdir()
    owner = {"securityContext": {"runAsUser": 0, "readOnlyRootFilesystem": True}}
    template = folder / "executor.yaml"
    template.write_text(json.dumps({"spec": {"containers": [{"name": "executor", **owner}]}}))
    filled = _SETTINGS.format(image=image, template=template, folder=tmp_path)
    (folder / "spark-defaults.conf").write_text(filled)
    return folder


def test_a_job_runs_in_pods_and_gets_over_their_loss(
    stage: Stage, plane: ControlPlane, kubelet: Kubelet, settings: Path
) -> None:
    """After a killed and a deleted executor, others replace them, and no pod is left after the drain."""
    own = {"SPARK_CONF_DIR": str(settings), "KUBECONFIG": str(plane.kubeconfig("driver"))}

    def executors() -> int:
        return len(kubelet.pods(spark_role="executor"))

    stage.manipulate(0.4)
    with stage.job("--master", plane.master, **own) as job:
        stage.catch_up(job)
        assert executors() == 2
        stage.manipulate(0.2)
        stage.inside_a_batch(job)
        kubelet.pods(spark_role="executor")[0].kill()
        stage.catch_up(job)
        until(lambda: executors() == 2, "another executor", lambda: job.error)
        stage.manipulate(0.2)
        stage.inside_a_batch(job)
        plane.ask("DELETE", kubelet.pods(spark_role="executor")[0].path)
        stage.catch_up(job)
        stage.manipulate(0.2)
        stage.catch_up(job)
        ended = stage.drain(job)
    assert ended.code == 0, ended.error
    assert "Traceback" not in ended.error
    assert "\tat " not in ended.error
    stage.validate()
    until(lambda: not plane.ask("GET", "/api/v1/namespaces/default/pods")["items"], "the end of all pods")


def test_what_kubernetes_does_not_let_it_is_told_in_a_line(
    stage: Stage, plane: ControlPlane, settings: Path, tmp_path: Path
) -> None:
    """A missing server, unknown user, missing right, namespace or image: each ends the job at once with one line."""
    defaults = settings / "spark-defaults.conf"
    whole = defaults.read_text()
    stranger, driver, admin = (str(plane.kubeconfig(user)) for user in ("stranger", "driver", "admin"))
    unknown = str(plane.kubeconfig("unknown"))
    untrusted = tmp_path / "untrusted"
    untrusted.write_text(Path(driver).read_text().replace(str(plane.authority), "/etc/ssl/certs/ca-certificates.crt"))
    without = "\n".join(line for line in whole.splitlines() if "container.image" not in line)
    elsewhere = f"{whole}spark.kubernetes.namespace nowhere\n"
    nobody = f"k8s://https://127.0.0.1:{free_port()}"
    cases = [
        (nobody, driver, whole, "check that the cluster's API server is running"),
        (plane.master, unknown, whole, "it does not accept the credentials (401)"),
        (plane.master, str(untrusted), whole, "spark.kubernetes.authenticate.caCertFile"),
        (
            plane.master,
            stranger,
            whole,
            "does not allow this driver to create, get, list, watch, delete, deletecollection",
        ),
        (plane.master, driver, without, "executors have no image: set spark.kubernetes.container.image"),
        (plane.master, admin, elsewhere, 'namespaces "nowhere" not found'),
    ]
    for master, who, said, told in cases:
        defaults.write_text(said)
        with stage.job("--master", master, SPARK_CONF_DIR=str(settings), KUBECONFIG=who) as job:
            ended = job.ended(SLOW)
        last = ended.error.strip().splitlines()[-1]
        assert ended.code == 1, ended.error
        assert last.startswith("rowkind: "), ended.error
        assert told in last, ended.error
        assert "Traceback" not in ended.error
        assert "\tat " not in ended.error


def test_what_keeps_pods_from_running_is_told_while_they_are_awaited(
    stage: Stage, plane: ControlPlane, kubelet: Kubelet, settings: Path
) -> None:
    """The log names the missing image, and SIGTERM ends the wait."""
    assert kubelet.pods() == []
    defaults = settings / "spark-defaults.conf"
    defaults.write_text(f"{defaults.read_text()}spark.kubernetes.executor.container.image rowkind-test/absent\n")
    own = {"SPARK_CONF_DIR": str(settings), "KUBECONFIG": str(plane.kubeconfig("driver"))}
    with stage.job("--master", plane.master, **own) as job:
        stage.await_words(job, "a pod cannot start, ErrImagePull: there is no image rowkind-test/absent")
        job.terminate()
        ended = job.ended(SLOW)
    assert ended.code == 0, ended.error
    assert "Traceback" not in ended.error


@dataclass
class Release:
    """The chart installed as `shop`.

    Its job counts the ratings of a shop, with two executor pods besides the driver's.
    """

    plane: ControlPlane
    shop: Shop
    port: int
    driver: str = "shop-rowkind-0"

    def helm(self, *arguments: str) -> None:
        """Run a helm command, which must succeed."""
        own = {"KUBECONFIG": str(self.plane.kubeconfig())}
        done = subprocess.run(
            ["helm", *arguments], env=os.environ | own, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr

    def values(self, where: str, **changed: Any) -> tuple[str, ...]:
        """Return the chart and the values for a job that counts the ratings for which `where` is true."""
        sql = f"SELECT stars, COUNT(*) AS n FROM ratings WHERE {where} GROUP BY stars"
        sinks = {"counted": {"mode": "upsert", "key": "stars", "sql": sql}}
        with Rowkind(self.shop.folder, "topics", "create", str(self.shop.job(sinks))) as made:
            assert made.ended().code == 0, made.error
        there = {"registry": {"folder": "/etc/rowkind/schemas"}, "checkpoint": "/var/lib/rowkind/checkpoint"}
        values = {
            "job": self.shop.job(sinks, **there).read_text(),
            "schemas": {each.name: each.read_text() for each in self.shop.registry.path.glob("*.avsc")},
            "image": {"repository": build_product(), "tag": "latest"},
            "executors": {"count": 2, "memory": "512m"},
            "port": self.port,
            **changed,
        }
        path = self.shop.folder / "values.json"
        path.write_text(json.dumps(values))
        return str(CHART), "--values", str(path)


def test_a_release_of_the_chart_runs_in_pods(
    broker: Broker, plane: ControlPlane, kubelet: Kubelet, tmp_path: Path
) -> None:
    """It is installed, tested by `helm test`, killed, upgraded and uninstalled, and each change is written once."""
    shop = Shop(broker.bootstrap_servers, tmp_path, f"release-{os.getpid()}")
    release = Release(plane, shop, free_port())
    numbers = count()

    def driver() -> Pod | None:
        return next((each for each in kubelet.pods() if each.name == release.driver), None)

    def said() -> str:
        return kubelet.said(release.driver)

    def ready() -> bool:
        return driver() is not None and get(release.port, "/readyz")[0] == 200

    def rated(stars: int) -> None:
        shop.row("ratings", "+I", rating_id=next(numbers), stars=stars)
        shop.flush()

    rated(5)
    release.helm("install", "shop", *release.values("stars IS NOT NULL"))
    with closing(Results(shop, "counted")) as results:
        until(lambda: results.rows() == Counter({(5, 1): 1}), "the first result", said)
        until(ready, "a job that is ready", said)
        assert len(kubelet.pods(spark_role="executor")) == 2
        release.helm("test", "shop")
        killed = driver()
        assert killed is not None
        killed.kill()
        rated(5)
        rated(1)
        until(lambda: results.rows() == Counter({(5, 2): 1, (1, 1): 1}), "the result after a loss", said)
        until(lambda: len(kubelet.pods(spark_role="executor")) == 2, "the executors of the new driver alone", said)
        release.helm("upgrade", "shop", *release.values("stars > 1", upgrade=True))
        until(lambda: results.rows() == Counter({(5, 2): 1}), "the result of the other query", said)
        until(ready, "a job that is ready", said)
        rated(5)
        until(lambda: results.rows() == Counter({(5, 3): 1}), "a result after the upgrade", said)
        release.helm("uninstall", "shop")
        until(lambda: not plane.ask("GET", "/api/v1/namespaces/default/pods")["items"], "the end of all pods", said)
        assert results.flaws == []
    assert "Traceback" not in said()
    assert "\tat " not in said()
