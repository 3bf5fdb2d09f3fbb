# ruff: noqa: SLF001 - Hadoop's file systems are to be had through Spark's gateway only
"""The Spark session that a job runs in.

Everything a job relies on is set here and nowhere else. What was measured is in the commit that set it; what only
silences or bounds something says so next to it.
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
from collections.abc import Iterator, Mapping
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
from rowkind.service.python.code import Code
from rowkind.service.spark import kubernetes, s3
from rowkind.service.spark.console_filter import quiet_stderr
from rowkind.service.spark.errors import SparkLostError, SparkStartError, reason
from rowkind.service.spark.jvm import drop_ended, ended, gateway, java, launch, python
from rowkind.service.spark.warm import warm_up

_STATE_STORE = "spark.sql.streaming.stateStore"

_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    # State: RocksDB, small commits, bounded native memory. Rows are counted by the operators themselves, so that
    # RocksDB need not look up every key that it writes.
    f"{_STATE_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE_STORE}.rocksdb.trackTotalNumberOfRows": "false",
    f"{_STATE_STORE}.rocksdb.boundedMemoryUsage": "true",
    # Rowkind knows whose a folder is (`service.checkpoint.checkpoint`). Spark takes the draft of a log's first file, as
    # a kill leaves it, for another query's.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # How often an idle query asks for new data. Every 10 ms, Spark's default, takes 14 % of a core.
    "spark.sql.streaming.pollingDelay": "50",
    # An edge has few rows, each of which is a block: compiling a plan for them costs more than it ever saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Over TCP a task's first block waits 40 ms for the acknowledgement of what went before it.
    "spark.python.unix.domain.socket.enabled": "true",
    # Some tasks tell their workers of it and others do not, and each of the two kinds would have workers of its own.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # What Spark sets aside of the heap for itself; at 300 MB, its default, it refuses a heap of less than 450.
    "spark.testing.reservedMemory": str(64 << 20),
    "spark.ui.showConsoleProgress": "false",
}

_JAVA_OPTIONS = ("-XX:+UseParallelGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=128m")
"""The JVM moves blocks and plans batches; no loop over rows runs in it that the optimising compiler would speed up. It
alone took a fifth of a core for minutes. Without it Java reserves 48 MB for compiled code, of which a job fills 35 in
its first minute; once they are full, it interprets."""

_USUAL = Budget()

_MASTER = re.compile(r"local(\[|$)|spark://|k8s://|yarn$")
_ADDRESS = re.compile(r"(?<=[/,])([^/,:\[\]]+|\[[^\]]+\]):(\d+)")
_ANSWER_SECONDS = 5.0

_DAEMON = "rowkind.service.processes.worker_daemon"
_SHIPPED = "rowkind.zip"

_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""How checkpoint files on a local disk are written. Spark's default for them starts several processes per file (chmod,
readlink), which took half of a small batch. Both put a file in place by an atomic rename."""


def begin(checkpoint: str, budget: Budget = _USUAL) -> None:
    """Let the JVM of a local session start while there is something else to do.

    Raises SparkStartError or DownloadError.
    """
    with quiet_stderr(later=True):
        launch(_local_options(budget), s3.jars(checkpoint))


def _local_options(budget: Budget) -> list[str]:
    """What a JVM here is started with. Blocks lie outside of the heap for a moment."""
    return [f"-Xmx{budget.heap}", f"-XX:MaxDirectMemorySize={budget.direct}", *_java_options()]


def _java_options() -> tuple[str, ...]:
    """The options of the driver's JVM but for its memory, which Spark wants to be told otherwise on a cluster."""
    return (*_JAVA_OPTIONS, f"-Dlog4j2.configurationFile={_logging().as_uri()}")


def session(
    name: str, *, master: str, parallelism: int, checkpoint: str, budget: Budget = _USUAL, code: Code | None = None
) -> SparkSession:
    """The session for a job; it becomes the process's only one.

    Args:
        name: shows in the cluster's listings.
        master: Spark's master URL; with `local[…]` everything runs in this process and one JVM.
        parallelism: partitions of every shuffle. A checkpoint fixes it at its first batch.
        checkpoint: folder or URL under which queries keep their checkpoints.
        budget: of the JVM, where it is started here, and of the state stores.
        code: of the job's own functions, which executors on other machines are given.

    Raises:
        SparkStartError: There is no Java, or none that runs Spark, or no such master.
        DownloadError: What the checkpoint needs is not to be had.
    """
    local = is_local(master)
    # As `service.spark.jvm` says to the JVM. Executors on other machines may have theirs elsewhere.
    here = python() if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = here, sys.executable
    jars = s3.jars(checkpoint)
    settings = _settings(parallelism, checkpoint, budget) | _of_driver(master, checkpoint, jars)
    program = java()
    _check_reachable(master, checkpoint)
    try:
        with quiet_stderr(), gateway(_local_options(budget), jars) if local else nullcontext():
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
    """What a session of its own needs besides, whose JVM is started for it."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.executor.extraJavaOptions": " ".join(_JAVA_OPTIONS),
        "spark.python.daemon.module": _DAEMON,
        **s3.settings(checkpoint),
    }
    if is_local(master):
        # One process has no need to be seen on the network, nor of blocks that are packed for the way.
        own = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        return {**settings, **own, "spark.shuffle.compress": "false"}
    return {
        **settings,
        **({} if jars is None else {"spark.jars": ",".join(map(str, sorted(jars.glob("*.jar"))))}),
        # Where an executor finds what `_ship` gives it, in the folder that it runs in; for the daemon too.
        "spark.executorEnv.PYTHONPATH": _SHIPPED,
        "spark.driver.extraJavaOptions": " ".join(_java_options()),
        **(kubernetes.SETTINGS if kubernetes.is_kubernetes(master) else {}),
    }


def _check_reachable(master: str, checkpoint: str) -> None:
    """Raise SparkStartError if the master or the store of the checkpoint does not answer."""
    if not _MASTER.match(master):
        raise SparkStartError(
            f"{master} is no master of Spark's: expected spark://host:port, k8s://…, yarn or local[n]."
        )
    pods = kubernetes.is_kubernetes(master)
    if not _anybody_there(kubernetes.address(master) if pods else master):
        who = "the cluster's API server" if pods else "Spark's master"
        raise SparkStartError(f"nobody answers at {master}: check that {who} runs, and the address in --master.")
    # Hadoop would try for many minutes, which is right once a job runs.
    if (store := s3.endpoint(checkpoint)) and not _anybody_there(store):
        raise SparkStartError(
            f"the checkpoint {checkpoint} cannot be reached, nobody answers at {store}: check AWS_ENDPOINT_URL_S3."
        )


def _started(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    if kubernetes.is_kubernetes(master):
        own = {"spark.master": master, "spark.app.name": name}
        SparkContext._ensure_initialized(conf=SparkConf().setAll([*settings.items(), *own.items()]))
        kubernetes.check(SparkContext._jvm, master)
    return SparkSession.builder.appName(name).master(master).config(map=dict(settings)).getOrCreate()


def _settings(parallelism: int, checkpoint: str, budget: Budget) -> dict[str, str]:
    """What every job needs, wherever it runs."""
    return {
        **_SETTINGS,
        f"{_STATE_STORE}.rocksdb.maxMemoryUsageMB": str(budget.rocksdb >> 20),
        "spark.sql.shuffle.partitions": str(parallelism),
        # A value is a whole block: a batch is bounded by its bytes long before it is by its rows.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(budget.at_once(parallelism)),
        "spark.sql.streaming.checkpointLocation": checkpoint,
        **({"spark.sql.streaming.checkpointFileManagerClass": _LOCAL_FILES} if _on_disk(checkpoint) else {}),
    }


def beside(
    spark: SparkSession, *, parallelism: int, checkpoint: str, budget: Budget, code: Code | None
) -> SparkSession:
    """A session for a job in the context of somebody's own, which keeps its settings. The arguments are `session`'s.

    Java's memory and options, and the way to an object store, are what that context was started with.

    Raises:
        SparkStartError: It is a client of a session elsewhere, as Spark Connect has it, or has been stopped.
    """
    if not isinstance(spark, SparkSession):
        raise SparkStartError(
            "a job needs a session whose driver is this process, and this one is a client of Spark Connect's: make one "
            "with SparkSession.builder.master(…)."
        )
    if is_stopped(spark):
        raise SparkStartError("this Spark session has been stopped: make another one for the job.")
    own = spark.newSession()
    for key, value in _settings(parallelism, checkpoint, budget).items():
        if key.startswith("spark.sql."):
            own.conf.set(key, value)
    if not is_local(spark.sparkContext.master):
        _ship(own, code)
    return own


def is_stopped(spark: SparkSession) -> bool:
    """Whether the session has been stopped, or is being stopped."""
    # pyspark lets go of its context only when that has stopped.
    context = spark.sparkContext._jsc
    return context is None or bool(context.sc().isStopped())


def is_local(master: str | None) -> bool:
    """Whether everything runs in this process and one JVM."""
    return master is not None and (master == "local" or master.startswith("local["))


@contextmanager
def stopping(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, which is this process's no more in the end. Raises SparkLostError if its JVM ends before."""
    lost = None
    try:
        yield spark
    except RowkindError:
        raise
    except Exception:  # what a JVM that is gone makes of a call depends on the call; all else is raised again
        if (lost := ended()) is None:
            raise
        raise SparkLostError(lost) from None
    finally:
        if lost is None:
            spark.stop()
        else:
            _stop_without_jvm(spark)


def _stop_without_jvm(spark: SparkSession) -> None:
    """Stop the Python side of a session whose JVM has ended."""
    spark.sparkContext._jsc = None
    spark.sparkContext.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    drop_ended()


def _anybody_there(url: str) -> bool:
    """Whether somebody listens at the address in a URL, or at one of several; true if it has no port."""
    addresses = _ADDRESS.findall(url)
    for host, port in addresses:
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS):
            return True
    return not addresses


def _on_disk(checkpoint: str) -> bool:
    return urlsplit(checkpoint).scheme in {"", "file"}


def _let_accumulators_go(spark: SparkSession) -> None:
    """Say nothing when the JVM closes the channel on which it sends the values of accumulators.

    It does so when it is stopped while a task's end is on its way, and pyspark prints that as an error.
    """
    server: Any = spark.sparkContext._accumulatorServer
    told = server.handle_error

    def handle_error(request: object, client: object) -> None:
        if not isinstance(sys.exception(), EOFError):
            told(request, client)

    server.handle_error = handle_error


def _write_plainly(spark: SparkSession) -> None:
    """Leave out Hadoop's file of checksums beside each file on the local disk.

    Hadoop starts a process, `chmod`, for each of them, which took a twentieth of a small batch. What RocksDB keeps
    has checksums of its own: change logs in their compression, snapshots as zip files.
    """
    jvm: Any = spark.sparkContext._jvm
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop).setWriteChecksum(False)


def _logging() -> Path:
    """The path of the log4j2 configuration in this package."""
    path = resources.files("rowkind.service.spark") / "log4j2.properties"
    if isinstance(path, Path):
        return path
    copy = Path(tempfile.mkdtemp(prefix="rowkind-")) / "log4j2.properties"
    copy.write_text(path.read_text())
    return copy


def archive(path: Path) -> None:
    """Write the package that runs here into a zip file at `path`, from which Python can import it."""
    root = Path(str(resources.files("rowkind")))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        # In a checkout the parts of the package are links, which a plain walk passes over.
        for folder, _, names in sorted(os.walk(root, followlinks=True)):
            if Path(folder).name != "__pycache__":
                for name in sorted(names):
                    target.write(Path(folder) / name, Path("rowkind") / Path(folder).relative_to(root) / name)


def _ship(spark: SparkSession, code: Code | None) -> None:
    """Give the executors the very code that runs here, whatever their image holds, and that of the job's functions.

    The libraries that it needs come with the executors' image (`service.processes.executors`).
    """
    folder = tempfile.mkdtemp(prefix="rowkind-")
    # Executors that come later fetch it later, so it stays for as long as the driver does.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / _SHIPPED
    archive(path)
    spark.sparkContext.addPyFile(str(path))
    if code is not None:
        code.pack(path.with_name(code.archive))
        spark.sparkContext.addPyFile(str(path.with_name(code.archive)))
