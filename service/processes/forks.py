"""Python processes for Spark, forked from a process that has all modules loaded.

Spark starts a Python process for each purpose: to run tasks, and to ask for a source's properties, its offsets, its
read plan, and the state variables. Each process would repeat the same imports, which take a second of CPU. So Spark
starts a small program instead of Python. The program requests a fork from this process, passes on its input, output and
environment, and exits as the forked process does. If this process does not answer, the program becomes Python itself
(`service.spark.stand_in`).

    main ──forks──▶ forks ◀──what to run── stand_in ◀──starts── JVM
                      └──fork──▶ pyspark.daemon, worker_daemon, python_streaming_source_runner, …

The main process needs most of these modules itself. While it has only one thread, it loads them all and forks this
process, so that everything is loaded once. Otherwise, as in the caller's own session, this module runs as a separate
program. The program exits when its parent and all forked processes have exited.
"""

from __future__ import annotations

import array
import ctypes
import os
import random
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

from rowkind.service.machine.loading import without_collections
from rowkind.service.machine.threads import ONE_THREAD, threads
from rowkind.service.processes.worker_daemon import LOADED

_LOADED = (
    *LOADED,
    "pyspark.daemon",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
_SIZE, _STANDARD, _MOST_FILES = 8, 3, 1024


@dataclass
class Forked:
    """The forking process as a child of this process, with the interface of `subprocess.Popen`."""

    pid: int
    stdin: IO[bytes]

    def wait(self, timeout: float) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        ended = os.pidfd_open(self.pid)
        try:
            if not select.select([ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("forks", timeout)
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        finally:
            os.close(ended)

    def kill(self) -> None:
        """Kill the process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def fork(address: str, output: int) -> Forked | None:
    """Fork a child that serves requests at the socket `address`, and writes to the descriptor `output`.

    All modules are loaded in this process first. Return None if this process has several threads, or if the socket's
    folder does not exist.
    """
    if threads() != 1:
        return None
    os.environ |= ONE_THREAD
    try:
        listener = _listening(address)
    except OSError:
        return None
    with without_collections():
        _load()
    if threads() != 1:
        listener.close()
        Path(address).unlink(missing_ok=True)
        return None
    source, sink = os.pipe()
    for written in (sys.stdout, sys.stderr):
        written.flush()
    pid = os.fork()
    if pid:
        os.close(source)
        listener.close()
        return Forked(pid, os.fdopen(sink, "wb"))
    code = 1
    try:
        os.setpgid(0, 0)
        for number, descriptor in enumerate((source, output, output)):
            os.dup2(descriptor, number)
        # Above all, this closes inherited ends of pipes, so that a reader of such a pipe sees when the main process
        # exits.
        os.closerange(_STANDARD, listener.fileno())
        os.closerange(listener.fileno() + 1, _MOST_FILES)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays open while the process runs
        _look_like("-m", __name__)
        _serve(listener)
        code = 0
    except BaseException:  # noqa: BLE001 - no code of the main process may continue in the child
        traceback.print_exc()
    finally:
        os._exit(code)


def main(address: str) -> None:
    """Load all modules, and fork on request at the socket `address` until standard input is closed."""
    os.environ |= ONE_THREAD
    try:
        listener = _listening(address)
    except OSError:
        # The JVM has already exited, and its folder was removed.
        return
    with without_collections():
        _load()
    if threads() == 1:
        _serve(listener)


def _load() -> None:
    for name in _LOADED:
        import_module(name)


def _listening(address: str) -> socket.socket:
    """Return a socket at which clients wait until they are served.

    Raises OSError if the socket's folder does not exist.
    """
    with ExitStack() as failed:
        listener = failed.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(address)
        listener.listen()
        failed.pop_all()
    return listener


def _serve(listener: socket.socket) -> None:
    # As in every process that Spark starts, because a batch's processes must run until the batch is finished.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with listener, selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        children: dict[int, tuple[int, socket.socket]] = {}
        while listener.fileno() in ready.get_map() or children:
            for key, _ in ready.select():
                if key.fileobj is listener:
                    line, _ = listener.accept()
                    if (found := _forked(line)) is not None:
                        ended = os.pidfd_open(found)
                        children[ended] = found, line
                        ready.register(ended, selectors.EVENT_READ)
                        ready.register(line, selectors.EVENT_READ, found)
                elif key.fileobj is sys.stdin:
                    ready.unregister(sys.stdin)
                    ready.unregister(listener)
                elif key.fd in children:
                    child, line = children.pop(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                    ready.unregister(key.fd)
                    os.close(key.fd)
                    with suppress(KeyError):
                        ready.unregister(line)
                    with line, suppress(OSError):
                        line.send(b"%d" % code)
                else:
                    # Spark has killed the program that represents the child.
                    ready.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)


def _forked(line: socket.socket) -> int | None:
    """Fork the child that was requested, and return its process id, or None if the request was dropped."""
    descriptors = array.array("i")
    try:
        size, told, _, _ = line.recvmsg(_SIZE, socket.CMSG_SPACE(_STANDARD * descriptors.itemsize))
        for _, _, data in told:
            descriptors.frombytes(data)
        with line.makefile("rb") as rest:
            asked = rest.read(int(size))
        pid = os.fork()
    except (OSError, ValueError):
        line.close()
        return None
    if not pid:
        _become(asked, list(descriptors))
    for descriptor in descriptors:
        os.close(descriptor)
    with suppress(OSError):
        line.send(b".")
    return pid


def _become(asked: bytes, descriptors: list[int]) -> NoReturn:
    """Run the requested module in this process."""
    code = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(_STANDARD, _MOST_FILES)
        folder, words, environment = asked.split(b"\0\0")
        os.chdir(folder)
        os.environ.clear()
        for pair in environment.split(b"\0"):
            name, _, value = pair.partition(b"=")
            os.environb[name] = value
        # The parent has already chosen its own temporary folder.
        tempfile.tempdir = None
        option, module, *arguments = map(os.fsdecode, words.split(b"\0"))
        assert option == "-m", f"Spark runs modules, not {words!r}"
        _look_like(option, module, *arguments)
        sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path]
        sys.argv = [module, *arguments]
        random.seed()
        # The module was loaded before, so runpy would warn.
        warnings.filterwarnings("ignore", "'.*' found in sys.modules", RuntimeWarning)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python itself does at the top level
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code & 0xFF)


def _look_like(*arguments: str) -> None:
    """Let process listings show Python with these arguments as the command line, as far as there is space."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begins, ends = int(fields[45]), int(fields[46])
    if begins:
        line = "\0".join(("python", *arguments)).encode()[: ends - begins - 1]
        ctypes.memmove(begins, line.ljust(ends - begins, b"\0"), ends - begins)


if __name__ == "__main__":
    main(sys.argv[1])
