"""Starts the JVM of a session with a local master, in a third of the time that Spark's own scripts take.

    our process ──stdin──▶ sh ──▶ java … PythonGatewayServer ──▶ a file with port and secret ──▶ pyspark's py4j client

`bin/spark-submit` runs a shell and a first JVM that determines how to start the actual JVM. It also sets SPARK_HOME,
which makes every Python worker import pyspark from a zip file, without compiled modules: 1.2 s of CPU instead of 0.3 s.
So Rowkind starts the gateway's main class directly, without SPARK_HOME, and workers import the installed pyspark.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Protocol

import pyspark
from pyspark import SparkContext

from rowkind.service.machine.jars import NO_FILES, MissingJavaError, java
from rowkind.service.spark.errors import SparkStartError
from rowkind.service.spark.java_classes import argument_file, class_archive, class_path, keep, put_in_place

_MAIN = "org.apache.spark.api.python.PythonGatewayServer"

# The options that Spark's own launcher passes, without the incubating vector module. Only Spark's machine learning uses
# that module, which makes Java rebuild its module graph at each start.
_OPENED = (
    *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util")),
    *(f"java.base/java.util.{name}" for name in ("concurrent", "concurrent.atomic")),
    *(f"java.base/{name}" for name in ("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action")),
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={opened}=ALL-UNNAMED" for opened in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)

_FORKS = "rowkind.service.processes.forks"
_STAND_IN = Path(__file__).with_name("stand_in")
_ROOM = " " * 200
"""An argument that reserves space for the command lines of forked processes."""

_SHELL = ("/bin/sh", "-c", """trap '' TERM; "$@"; code=$?; rm -rf -- "$0"; exit $code""")
"""The shell that runs Java. `$0` is the folder with Java's temporary files, which the shell removes when Java exits.

The shell ignores SIGTERM, and so do Java and its children. A service manager such as systemd may send SIGTERM to all
processes of a service. Everything that a batch needs must keep running until our process has let the batch finish.
"""

_LONGEST = 40
"""The maximum length of the temporary folder's path that leaves enough room for a socket's path in a subfolder."""

_STDERR = 2

_LAST_WORDS_SECONDS = 5.0

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_POLL_SECONDS = 0.01
_FOLDER, _ALIVE = "rowkind-", "alive"


def java_version() -> str:
    """Return the version of the Java installation to use, from its `release` file, or `unknown` if there is none."""
    said = ""
    with suppress(MissingJavaError, OSError):
        said = (Path(java()).resolve().parents[1] / "release").read_text()
    found = re.search(r'^JAVA_VERSION="(.*)"$', said, re.MULTILINE)
    return found[1] if found else "unknown"


def python() -> str:
    """Return the Python that a local session's JVM starts: if possible, a program that requests forks.

    A JVM that was not launched here does not know where to request them.
    """
    ours = SparkContext._gateway is None or bool(_running)  # noqa: SLF001 - there is no other way to ask
    able = ours and hasattr(os, "pidfd_open") and os.access(_STAND_IN, os.X_OK)
    return str(_STAND_IN) if able else sys.executable


def launched() -> bool:
    """Return whether a JVM was started here, or pyspark is connected to another one."""
    return bool(_running) or SparkContext._gateway is not None  # noqa: SLF001 - there is no other way to ask


def launch(options: Sequence[str], more: Path | None = None, output: int = _STDERR) -> None:
    """Start a JVM with the given options, without waiting for it, unless one is running. It exits with this process.

    The class path contains the jars in the folder `more` in addition to Spark's own. The JVM and the workers write to
    the descriptor `output`.

    Raises:
        MissingJavaError: There is no Java.
    """
    if launched():
        return
    program = java()
    jars = Path(pyspark.__file__).parent / "jars"
    configuration = [os.environ[name] for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR") if os.environ.get(name)]
    first = os.pathsep.join([*configuration, *class_path(jars)])
    path = f"{first}{os.pathsep}{more}/*" if more else first
    # Classes cannot be archived if the class path begins with folders.
    archived = [] if configuration else class_archive(program, jars, [path, *options], [first, *options])
    short = len(tempfile.gettempdir()) <= _LONGEST
    folder, alive = temporary_folder(tempfile.gettempdir() if short else "/tmp")  # noqa: S108 - it makes one of our own
    command = [*_SHELL, folder, program, NO_FILES, f"@{argument_file(folder, '-cp', path)}"]
    command += [*MODULE_OPTIONS, *options, f"-Djava.io.tmpdir={folder}", *archived, _MAIN]
    # By default, Spark starts `python3` from PATH, which has different packages or none. If the driver has no Python,
    # Spark does not search modules called `pyspark_…` for data sources, which would take two processes.
    address = str(Path(folder, "forks"))
    pythons = {"PYSPARK_PYTHON": python(), "PYSPARK_DRIVER_PYTHON": "none"}
    pythons |= {"ROWKIND_PYTHON": sys.executable, "ROWKIND_STAND_IN": address}
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | pythons
    # By default, the C library keeps freed memory in one arena per thread, about 100 MB in total here.
    environment.setdefault("MALLOC_ARENA_MAX", "2")
    told = Path(folder, "gateway")
    environment |= {_FILE: str(told), "TMPDIR": folder}
    # Java runs in a separate process group: Ctrl-C at a terminal is meant for our process, which lets the batch finish.
    # Java's standard output goes to standard error, so that a reader of our output need not wait until Java exits.
    with alive:
        process = subprocess.Popen(  # noqa: S603 - our own command line
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            process_group=0,
            pass_fds=[alive.fileno()],
        )
    forks = _forks(address, environment, output)
    hint = "See the output above." if output == _STDERR else "Its last output:"
    _running.append(_Jvm(process, program, told, forks, hint, archived))


def _forks(address: str, environment: Mapping[str, str], output: int) -> _Child:
    """Start the process that forks Python processes when it is asked to at the socket `address`."""
    # Imported by name, because it belongs to a higher layer, which knows all modules to load.
    forked: _Child | None = import_module(_FORKS).fork(address, output)
    return forked or subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", _FORKS, address, _ROOM],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        # Spark requires all workers to use the same hash seed.
        env={**environment, "PYTHONHASHSEED": "0"},
        process_group=0,
    )


def temporary_folder(parent: str) -> tuple[str, IO[bytes]]:
    """Return a folder for a JVM's temporary files, and a file in it that stays locked while a process has it open.

    Folders whose JVM was killed together with its clean-up shell are removed. Each such folder takes 60 MB.
    """
    for mark in Path(parent).glob(f"{_FOLDER}*/{_ALIVE}"):
        with suppress(OSError), mark.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(mark.parent, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=_FOLDER, dir=parent)
    draft = Path(folder, f"{_ALIVE}.new")
    alive = draft.open("wb")
    fcntl.flock(alive, fcntl.LOCK_EX)
    # The final name appears only once the file is locked.
    draft.rename(Path(folder, _ALIVE))
    return folder, alive


@contextmanager
def gateway(options: Sequence[str], more: Path | None = None) -> Iterator[None]:
    """Let pyspark connect to the launched JVM inside the block. Start a JVM if none is running.

    If pyspark is already connected to a JVM, nothing changes.

    Raises:
        MissingJavaError: There is no Java.
        SparkStartError: The installed Java cannot run Spark.
    """
    launch(options, more)
    if SparkContext._gateway is not None:  # noqa: SLF001 - as above
        yield
        return
    (jvm,) = _running
    port, secret = jvm.address()
    os.environ |= {_PORT: str(port), _SECRET: secret}
    try:
        yield
    finally:
        del os.environ[_PORT], os.environ[_SECRET]


def ended() -> int | None:
    """Return the exit code, as in a shell, of the JVM that pyspark was connected to, or None if it is running.

    A JVM that no longer answers is given a few seconds to exit.
    """
    # A cluster session's JVM was started by Spark's own scripts.
    process = _running[0].process if _running else getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - as above
    if process is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_WORDS_SECONDS)
    code: int | None = process.returncode
    return code if code is None or code >= 0 else 128 - code


def drop_ended() -> None:
    """Discard a JVM that has exited, so that another one can be started."""
    while _running:
        _running.pop().leave()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - as above


def end() -> None:
    """Stop the JVM if it was started here, and install the class archive that it leaves. No session may follow."""
    while _running:
        jvm = _running.pop()
        jvm.process.communicate()
        jvm.leave()
    put_in_place()


def has_run_a_batch() -> None:
    """Let later JVMs use the class archive that this process's JVM leaves. Calling this repeatedly is cheap."""
    for jvm in _running:
        if jvm.archived:
            keep(jvm.archived)
            jvm.archived = ()


class _Child(Protocol):
    """The process that forks workers: a separate program, or a child of this process."""

    @property
    def stdin(self) -> IO[bytes] | None: ...

    def wait(self, timeout: float) -> int: ...

    def kill(self) -> None: ...


@dataclass
class _Jvm:
    """A JVM, and the process that forks its workers. Both run as long as their standard input is open.

    `told`: the file to which the JVM writes its port and secret. `hint`: where the JVM's output is.
    `archived`: its options for the class archive.
    """

    process: subprocess.Popen[bytes]
    program: str
    told: Path
    forks: _Child
    hint: str
    archived: Sequence[str]

    def leave(self) -> None:
        """Let the forking process exit, once all processes that it forked have exited."""
        assert self.forks.stdin is not None, "the process has a pipe as standard input"
        self.forks.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.forks.wait(_LAST_WORDS_SECONDS)

    def address(self) -> tuple[int, str]:
        """Wait for the gateway, and return its port and secret. Raises SparkStartError if the JVM exits first."""
        while self.process.poll() is None:
            if self.told.exists():
                content = self.told.read_bytes()
                port, length = struct.unpack_from(">ii", content)
                return port, content[8 : 8 + length].decode()
            time.sleep(_POLL_SECONDS)
        self.forks.kill()
        self.leave()
        _running.clear()
        raise SparkStartError(f"Spark did not start with {self.program}, which must be Java 17 or newer. {self.hint}")


_running: list[_Jvm] = []
