# ruff: noqa: SLF001 - Hadoop's file systems are available only through Spark's gateway
"""The Spark session that a job runs in.

Every setting that a job relies on is set in this module and nowhere else. The commit that introduced a setting contains
the measurements for it. Settings that only silence log output or set a limit have a comment.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it ships no type information
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from rowkind.errors import RowkindError
from rowkind.service.machine.budget import Budget
from rowkind.service.machine.jars import java
from rowkind.service.python.code import Code
from rowkind.service.spark import kubernetes, s3
from rowkind.service.spark.console_filter import quiet_stderr, relayed
from rowkind.service.spark.errors import SparkLostError, SparkStartError, reason
from rowkind.service.spark.jvm import drop_ended, ended, gateway, launch, launched, python
from rowkind.service.spark.warm import warm_up

_STATE_STORE = "spark.sql.streaming.stateStore"

_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    # State: RocksDB, small commits, bounded native memory. The operators count rows themselves, so RocksDB need not
    # look up every key that it writes.
    f"{_STATE_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE_STORE}.rocksdb.trackTotalNumberOfRows": "false",
    f"{_STATE_STORE}.rocksdb.boundedMemoryUsage": "true",
    # Rowkind itself checks which job a folder belongs to (`service.checkpoint.checkpoint`). After a kill, Spark would
    # take the draft of a log's first file for a file of another query.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # The interval in ms at which an idle query polls for new data. Spark's default of 10 ms takes 14% of a core.
    "spark.sql.streaming.pollingDelay": "50",
    # An edge has few rows, each of which contains a block. Compiling a plan for them costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Over TCP, a task's first block waits 40 ms for the acknowledgement of the data sent before it.
    "spark.python.unix.domain.socket.enabled": "true",
    # Only some kinds of task pass this setting on. Since workers are pooled by settings, leaving it on would double the
    # number of workers.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # The part of the heap that Spark reserves for itself. With the default of 300 MB, Spark refuses a heap below 450
    # MB.
    "spark.testing.reservedMemory": str(64 << 20),
    "spark.ui.showConsoleProgress": "false",
}

_JAVA_OPTIONS = ("-XX:+UseParallelGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=128m")
"""The JVM moves blocks and plans batches. It runs no loops over rows, which the optimising compiler would speed up.
That compiler alone took a fifth of a core for minutes. Without the compiler, Java reserves only 48 MB for compiled
code, of which a job fills 35 MB in its first minute. When this space is full, Java interprets further code.
"""

_USUAL = Budget()

_CHATTY = (
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.sql.execution.python.streaming",
    "org.apache.spark.scheduler.DAGScheduler",
)
"""The loggers whose warnings a job causes in the caller's session."""

_MASTER = re.compile(r"local(\[|$)|spark://|k8s://|yarn$")
_ADDRESS = re.compile(r"(?<=[/,])([^/,:\[\]]+|\[[^\]]+\]):(\d+)")
_ANSWER_SECONDS = 5.0

_DAEMON = "rowkind.service.processes.worker_daemon"
_SHIPPED = "rowkind.zip"

_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""The class that writes checkpoint files to a local disk. Spark's default class starts several processes per file
(chmod, readlink), which took half of a small batch's time. Both classes install a file by an atomic rename.
"""


def local_master(parallelism: int) -> str:
    """Return the master of a job that runs in this process and one JVM. A failed task is attempted four times."""
    return f"local[{parallelism},4]"


def launch_jvm(checkpoint: str, budget: Budget = _USUAL) -> None:
    """Start the JVM of a local session without waiting for it. This process can fork while it has one thread.

    Raises SparkStartError or DownloadError.
    """
    with quiet_stderr(later=True):
        launch(_local_options(budget), s3.jars(checkpoint))


def begin_without_output(checkpoint: str, budget: Budget, write: Callable[[bytes], object]) -> None:
    """Start the JVM of a local session early. `write` is called with each line that the JVM and its workers print.

    Raises SparkStartError or DownloadError.
    """
    with relayed(write) as output:
        launch(_local_options(budget), s3.jars(checkpoint), output)


def _local_options(budget: Budget) -> list[str]:
    """Return the options of a JVM on this machine. Blocks are briefly stored outside the heap."""
    return [f"-Xmx{budget.heap}", f"-XX:MaxDirectMemorySize={budget.direct}", *_java_options()]


def _java_options() -> tuple[str, ...]:
    """Return the options of the driver's JVM, except for its memory, which is set differently on a cluster."""
    return (*_JAVA_OPTIONS, f"-Dlog4j2.configurationFile={_logging().as_uri()}")


def session(
    name: str, *, master: str, parallelism: int, checkpoint: str, budget: Budget = _USUAL, code: Code | None = None
) -> SparkSession:
    """Return the session for a job. It becomes the process's only session.

    Args:
        name: the application's name in the cluster's listings.
        master: Spark's master URL. With `local[…]`, everything runs in this process and one JVM.
        parallelism: the number of partitions of every shuffle. A checkpoint's first batch fixes it.
        checkpoint: the folder or URL under which queries keep their checkpoints.
        budget: the memory of the JVM, if it is started here, and of the state stores.
        code: the job's own functions, which are shipped to executors on other machines.

    Raises:
        MissingJavaError: There is no Java.
        SparkStartError: The installed Java cannot run Spark, or there is no such master.
        DownloadError: The checkpoint's jars cannot be downloaded.
    """
    local = is_local(master)
    # The same Python as in `service.spark.jvm`. On other machines, executors may have Python at another path.
    here = python() if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = here, sys.executable
    jars = s3.jars(checkpoint)
    settings = _settings(parallelism, checkpoint, budget) | _of_driver(master, checkpoint, jars)
    program = java()
    _check_reachable(master, checkpoint)
    try:
        # The output of a JVM that was launched before is already filtered.
        quiet = nullcontext() if local and launched() else quiet_stderr()
        with quiet, gateway(_local_options(budget), jars) if local else nullcontext():
            spark = _started(name, master, settings)
    except PySparkRuntimeError as error:
        raise SparkStartError(f"Spark did not start with {program}, which must be Java 17 or newer: {error}") from None
    except Py4JJavaError as error:
        raise SparkStartError(f"Spark did not start at {master}: {reason(error)}.") from None
    _let_accumulators_go(spark)
    if local:
        _write_plainly(spark)
        warm_up(spark)
    else:
        _ship(spark, code)
    return spark


def _of_driver(master: str, checkpoint: str, jars: Path | None) -> dict[str, str]:
    """Return additional settings for a session that starts its own JVM."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.executor.extraJavaOptions": " ".join(_JAVA_OPTIONS),
        "spark.python.daemon.module": _DAEMON,
        **s3.settings(checkpoint),
    }
    if is_local(master):
        # A single process needs neither to be reachable over the network nor to compress blocks for transport.
        own = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        return {**settings, **own, "spark.shuffle.compress": "false"}
    return {
        **settings,
        **({} if jars is None else {"spark.jars": ",".join(map(str, sorted(jars.glob("*.jar"))))}),
        # The file from `_ship`, in the executor's working folder. The daemon needs it too.
        "spark.executorEnv.PYTHONPATH": _SHIPPED,
        "spark.driver.extraJavaOptions": " ".join(_java_options()),
        **(kubernetes.SETTINGS if kubernetes.is_kubernetes(master) else {}),
    }


def _check_reachable(master: str, checkpoint: str) -> None:
    """Raise SparkStartError if the master or the checkpoint's store does not answer."""
    if not _MASTER.match(master):
        raise SparkStartError(f"{master} is not a Spark master: expected spark://host:port, k8s://…, yarn or local[n].")
    pods = kubernetes.is_kubernetes(master)
    if not _anybody_there(kubernetes.address(master) if pods else master):
        who = "the cluster's API server" if pods else "Spark's master"
        raise SparkStartError(f"no answer from {master}: check that {who} is running, and the address in --master.")
    # Hadoop would retry for many minutes, which is useful only when a job is already running.
    if (store := s3.endpoint(checkpoint)) and not _anybody_there(store):
        raise SparkStartError(
            f"the checkpoint {checkpoint} cannot be reached, because {store} does not answer: check "
            f"AWS_ENDPOINT_URL_S3."
        )


def _started(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    if kubernetes.is_kubernetes(master):
        own = {"spark.master": master, "spark.app.name": name}
        SparkContext._ensure_initialized(conf=SparkConf().setAll([*settings.items(), *own.items()]))
        kubernetes.check(SparkContext._jvm, master)
    return SparkSession.builder.appName(name).master(master).config(map=dict(settings)).getOrCreate()


def _settings(parallelism: int, checkpoint: str, budget: Budget) -> dict[str, str]:
    """Return the settings that every job needs, whatever its master is."""
    return {
        **_SETTINGS,
        f"{_STATE_STORE}.rocksdb.maxMemoryUsageMB": str(budget.rocksdb >> 20),
        "spark.sql.shuffle.partitions": str(parallelism),
        # A value is a whole block, so the limit in bytes is reached long before any limit in rows.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(budget.at_once(parallelism)),
        "spark.sql.streaming.checkpointLocation": checkpoint,
        **({"spark.sql.streaming.checkpointFileManagerClass": _LOCAL_FILES} if _on_disk(checkpoint) else {}),
    }


def beside(
    spark: SparkSession, *, parallelism: int, checkpoint: str, budget: Budget, code: Code | None
) -> SparkSession:
    """Return a session for a job in the Spark context of the caller's session. That session keeps its settings.

    The arguments are the same as for `session`. The caller's context determines Java's memory and options, and the
    access to an object store.

    Raises:
        SparkStartError: The session is a Spark Connect client, or has been stopped.
    """
    if not isinstance(spark, SparkSession):
        raise SparkStartError(
            "a job needs a session whose driver is this process, but this session is a Spark Connect client: create "
            "one with SparkSession.builder.master(…)."
        )
    if is_stopped(spark):
        raise SparkStartError("this Spark session has been stopped: create another one for the job.")
    own = spark.newSession()
    _silence_streaming(own)
    for key, value in _settings(parallelism, checkpoint, budget).items():
        if key.startswith("spark.sql."):
            own.conf.set(key, value)
    if not is_local(spark.sparkContext.master):
        _ship(own, code)
    return own


def is_stopped(spark: SparkSession) -> bool:
    """Return whether the session has been stopped, or is being stopped."""
    # pyspark drops its context only once the context has stopped.
    context = spark.sparkContext._jsc
    return context is None or bool(context.sc().isStopped())


def is_local(master: str | None) -> bool:
    """Return whether everything runs in this process and one JVM."""
    return master is not None and (master == "local" or master.startswith("local["))


@contextmanager
def stopping(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield the session, and stop it at the end. Raises SparkLostError if its JVM exits first."""
    lost = None
    try:
        yield spark
    except RowkindError:
        raise
    except Exception:  # a call to a lost JVM may raise any exception; otherwise, it is raised again
        if (lost := ended()) is None:
            raise
        raise SparkLostError(lost) from None
    finally:
        if lost is None:
            spark.stop()
        else:
            _stop_without_jvm(spark)


def lost(spark: SparkSession) -> SparkLostError | None:
    """Return an error if the session's JVM has exited, and stop the Python side, so that another session can start."""
    code = ended()
    if code is None:
        return None
    _stop_without_jvm(spark)
    return SparkLostError(code)


def _stop_without_jvm(spark: SparkSession) -> None:
    """Stop the Python side of a session whose JVM has exited."""
    spark.sparkContext._jsc = None
    spark.sparkContext.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    drop_ended()


def _anybody_there(url: str) -> bool:
    """Return whether a server is listening on any of the URL's addresses; true if no address in the URL has a port."""
    addresses = _ADDRESS.findall(url)
    for host, port in addresses:
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS):
            return True
    return not addresses


def _silence_streaming(spark: SparkSession) -> None:
    """Turn off warnings of Spark's streaming. It warns of every state value that is new, several times per batch."""
    jvm: Any = spark.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    for name in _CHATTY:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)


def _on_disk(checkpoint: str) -> bool:
    return urlsplit(checkpoint).scheme in {"", "file"}


def _let_accumulators_go(spark: SparkSession) -> None:
    """Ignore the closing of the channel through which the JVM sends accumulator values.

    If the JVM is stopped while it sends the end of a task, it closes the channel. pyspark would print this as an error.
    """
    server: Any = spark.sparkContext._accumulatorServer
    told = server.handle_error

    def handle_error(request: object, client: object) -> None:
        if not isinstance(sys.exception(), EOFError):
            told(request, client)

    server.handle_error = handle_error


def _write_plainly(spark: SparkSession) -> None:
    """Turn off Hadoop's checksum file for each file on the local disk.

    Hadoop starts a `chmod` process for each checksum file, which took a twentieth of a small batch's time. RocksDB's
    files have their own checksums: change logs through compression, snapshots as zip files.
    """
    jvm: Any = spark.sparkContext._jvm
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop).setWriteChecksum(False)


def _logging() -> Path:
    """Return the path of the log4j2 configuration in this package."""
    path = resources.files("rowkind.service.spark") / "log4j2.properties"
    if isinstance(path, Path):
        return path
    copy = Path(tempfile.mkdtemp(prefix="rowkind-")) / "log4j2.properties"
    copy.write_text(path.read_text())
    return copy


def archive(path: Path) -> None:
    """Write the running package to a zip file at `path`, from which Python can import it."""
    root = Path(str(resources.files("rowkind")))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        # In a checkout, parts of the package are symbolic links, which a plain walk skips.
        for folder, _, names in sorted(os.walk(root, followlinks=True)):
            if Path(folder).name != "__pycache__":
                for name in sorted(names):
                    target.write(Path(folder) / name, Path("rowkind") / Path(folder).relative_to(root) / name)


def _ship(spark: SparkSession, code: Code | None) -> None:
    """Ship the running code and the code of the job's functions to the executors, whatever their image contains.

    The required libraries must be in the executors' image (`service.processes.executors`).
    """
    folder = tempfile.mkdtemp(prefix="rowkind-")
    # Executors that start later also fetch the files, so the folder is kept as long as the driver runs.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / _SHIPPED
    archive(path)
    spark.sparkContext.addPyFile(str(path))
    if code is not None:
        code.pack(path.with_name(code.archive))
        spark.sparkContext.addPyFile(str(path.with_name(code.archive)))
