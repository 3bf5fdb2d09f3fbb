"""The command of an executor pod, and the address of the Kubernetes API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowkind.service.spark.errors import SparkStartError
from rowkind.service.spark.executor import told
from rowkind.service.spark.kubernetes import address

# The environment that Spark 4.3 gives a pod.
_POD = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "shop-exec-3",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number}" for number in range(11)},
}


@pytest.fixture(autouse=True)
def _java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


def test_an_executor_is_what_spark_asks_for(tmp_path: Path) -> None:
    """The JVM options come in their order before the main class, and the executor's arguments after it."""
    command = told(_POD, "/scratch")
    at = command.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    assert command[0] == str(tmp_path / "bin" / "java")
    assert command[1:12] == [f"-Dnumber={number}" for number in range(11)]
    assert command[12:14] == ["-Xmx1024m", "-Djava.io.tmpdir=/scratch"]
    assert command[at - 1].startswith("/opt/spark/conf:/")
    assert command[at - 1].endswith("/jars/*")
    pairs = dict(zip(command[at + 1 :: 2], command[at + 2 :: 2], strict=True))
    assert pairs["--driver-url"] == "spark://CoarseGrainedScheduler@driver:7078"
    assert pairs["--podName"] == "shop-exec-3"
    assert pairs["--hostname"] == "10.0.0.7"


def test_nobody_else_is_an_executor() -> None:
    """Without Spark's environment, the error says that only Spark starts executors."""
    with pytest.raises(SparkStartError, match="SPARK_DRIVER_URL is not set: only Spark itself starts executors"):
        told({}, ".")


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("k8s://https://10.0.0.1:6443", "https://10.0.0.1:6443"),
        ("k8s://https://kubernetes.default.svc", "https://kubernetes.default.svc:443"),
        ("k8s://http://localhost", "http://localhost:80"),
        ("k8s://cluster:6443", "https://cluster:6443"),
    ],
)
def test_the_api_server_is_where_spark_would_look_for_it(master: str, expected: str) -> None:
    """The API server is reached over HTTPS unless the master says HTTP, at the default port if none is given."""
    assert address(master) == expected
