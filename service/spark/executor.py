"""The program that runs in the pod of a Spark executor.

Spark passes such a pod a single argument, `executor`, and everything else in environment variables. Spark's own images
have a script that builds a command from them. In Rowkind's image, the program is `rowkind`, so Spark runs `rowkind
executor`. The driver and its executors can therefore use the same image.

An executor needs no writable folders other than those that Spark mounts. The executor runs in the first of these
folders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark

from rowkind.service.machine.jars import java
from rowkind.service.spark.errors import SparkStartError

_MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = "SPARK_JAVA_OPT_"
_MEMORY = "SPARK_EXECUTOR_MEMORY"
_FOLDERS = "SPARK_LOCAL_DIRS"
_FIRST, _AFTER = ("HADOOP_CONF_DIR", "SPARK_CONF_DIR"), "SPARK_CLASSPATH"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def become() -> None:
    """Replace this process with a Spark executor. Raises SparkStartError if this process was not started by Spark."""
    folder = os.environ.get(_FOLDERS, ".").partition(",")[0]
    command = told(os.environ, folder)
    # Files that the driver ships arrive in the working folder, where workers look for them by name.
    os.chdir(folder)
    # The C library keeps freed memory in one arena per thread, up to this number of arenas.
    os.execve(command[0], command, {"MALLOC_ARENA_MAX": "2", **os.environ, "TMPDIR": folder})  # noqa: S606 - no shell


def told(environment: Mapping[str, str], folder: str) -> list[str]:
    """Return the command for Spark's `environment`, with temporary files in `folder`. Raises SparkStartError."""
    if missing := [name for name in (*_ARGUMENTS.values(), _MEMORY) if not environment.get(name)]:
        raise SparkStartError(
            f"{missing[0]} is not set: only Spark itself starts executors, in pods, for `rowkind run --master k8s://…`."
        )
    numbers = sorted(int(name.removeprefix(_OPTION)) for name in environment if name.startswith(_OPTION))
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    path = [*(environment.get(name) for name in _FIRST), jars, environment.get(_AFTER)]
    return [
        java(),
        *(environment[f"{_OPTION}{number}"] for number in numbers),
        f"-Xmx{environment[_MEMORY]}",
        f"-Djava.io.tmpdir={folder}",
        "-cp",
        os.pathsep.join(each for each in path if each),
        _MAIN,
        *(part for option, name in _ARGUMENTS.items() for part in (option, environment[name])),
    ]
