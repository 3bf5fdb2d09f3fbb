"""Producer processes: one process per transactional id, which holds the Kafka producer.

Spark assigns a partition's tasks to any idle Python worker. If workers had the producers, a worker would fence the
previous worker's producer in almost every batch. Opening a producer takes 0.13 to 0.6 s: connections, a new epoch,
reading the progress. So the producer is in a separate process, which all workers of a machine reach through a socket. A
task sends its blocks to that process, and receives the counters or the exception that was raised:

    worker  ── spec, batch partition, blocks ─▶  process  ── transaction ─▶  Kafka
            ◀─ counters ───────────────────────────

The first task that finds no such process starts it. The process exits when the last connected worker has disconnected.
The process keeps no essential state: if it dies, or if the partition moves to another machine, a new process starts.
The new process fences the old producer and reads from the progress topic which batches were written
(`service.kafka.transaction`).

Starting a process from scratch takes 0.7 s. If workers are forked (`service.processes.worker_daemon`), their parent
also forks a template process that has all modules loaded. Producer processes are then forked from the template.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedRWPair
from pathlib import Path

import pyarrow as pa

from rowkind.service.kafka.clients import servers
from rowkind.service.kafka.errors import ChangelogError, WriterLostError
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.kafka.sink import Counted, write
from rowkind.service.kafka.spec import WriterSpec

_SIZE = struct.Struct(">Q")

_LONGEST = 55
"""The maximum length, in bytes, of the temporary folder's path that leaves enough room for a socket in a subfolder.

A socket path may have 107 bytes, of which Spark's temporary folders in pods use 52.
"""

_FORKS = "ROWKIND_FORKS"
"""The environment variable with the address of the socket at which a worker can request a forked producer process."""

_lines: dict[tuple[str, str, str], BufferedRWPair] = {}
_started: list[subprocess.Popen[bytes]] = []


def write_there(spec: WriterSpec, batch_partition: BatchPartition, blocks: Sequence[pa.Buffer]) -> Counted:
    """Run `sink.write` in the producer process of the transactional id. Raises ChangelogError."""
    producer = (servers(spec.kafka), spec.transactional_id(batch_partition.partition), spec.run)
    line = _lines.pop(producer, None) or _connect(address(*producer))
    try:
        pickle.dump((spec, batch_partition, len(blocks)), line)
        for block in blocks:
            line.write(_SIZE.pack(block.size))
            line.write(block)
        line.flush()
        answer: Counted | Exception = pickle.load(line)  # noqa: S301 - from our own process
    except (OSError, EOFError) as error:
        raise WriterLostError(
            f"The process that writes to Kafka as {spec.transactional_id(batch_partition.partition)} exited "
            f"unexpectedly ({error!r}), perhaps because memory ran out. The batch is written again, exactly once."
        ) from None
    _lines[producer] = line
    if isinstance(answer, Exception):
        raise answer
    return answer


def fork_on_demand() -> None:
    """Fork a template process, which forks a producer process whenever a worker requests one.

    Workers are forked from the current process later. The current process must not have started any thread. The
    template exits when the current process and all its workers have exited.
    """
    forks = address("forks", str(os.getpid()))
    listener = _listening(forks)
    ended, held = os.pipe()
    if os.fork():
        # Every process forked from this one inherits `held`. When all of them have exited, `ended` reaches EOF.
        os.close(ended)
        listener.close()
        os.environ[_FORKS] = forks
        return
    os.close(held)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with listener, selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        ready.register(ended, selectors.EVENT_READ)
        while not any(key.fd == ended for key, _ in ready.select()):
            line, _ = listener.accept()
            with line:
                if not os.fork():
                    os.setsid()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    listener.close()
                    serve(line.recv(4096).decode(), line.fileno())
                    os._exit(0)
    Path(forks).unlink(missing_ok=True)
    os._exit(0)


def serve(address: str, told: int) -> None:
    """Write to Kafka the blocks that workers send to the socket at `address`, until the last worker disconnects.

    When the socket is ready, this function writes a line to the file descriptor `told`.
    """
    with _listening(address) as listener, selectors.DefaultSelector() as ready:
        # Set a name for process listings: a forked process has the same command line as the workers.
        with suppress(OSError):
            Path("/proc/self/comm").write_text("rowkind-writer")
        # The parent process waits for this line.
        os.write(told, b"ready\n")
        ready.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is listener:
                    worker, _ = listener.accept()
                    ready.register(worker, selectors.EVENT_READ, worker.makefile("rwb"))
                elif not _answered(key.data):
                    ready.unregister(key.fileobj)
            if len(ready.get_map()) == 1:
                return


def _listening(address: str) -> socket.socket:
    """Listen on a socket at this path. A stale socket of an earlier process is replaced."""
    listener = socket.socket(socket.AF_UNIX)
    Path(address).unlink(missing_ok=True)
    listener.bind(address)
    listener.listen()
    return listener


def _answered(line: BufferedRWPair) -> bool:
    """Handle a worker's request. Return False if the worker has disconnected, perhaps in the middle of the request."""
    try:
        spec, batch_partition, count = pickle.load(line)  # noqa: S301 - from our own worker
        blocks = [_block(line) for _ in range(count)]
        pickle.dump(_outcome(spec, batch_partition, blocks), line)
        line.flush()
    except (OSError, EOFError):
        return False
    return True


def _outcome(spec: WriterSpec, batch_partition: BatchPartition, blocks: Sequence[pa.Buffer]) -> Counted | Exception:
    try:
        return write(spec, batch_partition, blocks)
    except ChangelogError as error:
        return error
    except Exception as error:  # noqa: BLE001 - any error must fail the task that sent the request
        error.add_note(traceback.format_exc())
        return error


def _block(line: BufferedRWPair) -> pa.Buffer:
    (size,) = _SIZE.unpack(_whole(line, _SIZE.size))
    return pa.py_buffer(_whole(line, size))


def _whole(line: BufferedRWPair, size: int) -> bytearray:
    data = bytearray(size)
    if line.readinto(data) < size:
        raise EOFError
    return data


def _connect(address: str) -> BufferedRWPair:
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            _start(address)
            line.connect(address)
        return line.makefile("rwb")


def _start(address: str) -> None:
    """Start the process and wait until it listens. It gets no signals that are sent to the job, which drains first."""
    if not (_forked(address) or _spawned(address)):
        raise WriterLostError("A process that writes to Kafka did not start. See the executor's log for the reason.")


def _forked(address: str) -> bool:
    """Fork the process from the template process, if there is one. Return whether it started."""
    with socket.socket(socket.AF_UNIX) as line, suppress(OSError):
        line.connect(os.environ.get(_FORKS, ""))
        line.send(address.encode())
        return bool(line.recv(1))
    return False


def _spawned(address: str) -> bool:
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", __name__, address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    _started.append(process)
    assert process.stdout is not None
    with process.stdout as said:
        return bool(said.readline())


def address(*name: str) -> str:
    """Return the path of a socket with this name, in a folder that only this user can enter."""
    temporary = tempfile.gettempdir()
    folder = Path(temporary if len(temporary) <= _LONGEST else "/tmp", f"rowkind-{os.getuid()}")  # noqa: S108 - see below
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise WriterLostError(f"{folder} belongs to another user: remove it, or set TMPDIR to your own folder.")
    return str(folder / hashlib.sha256("\0".join(name).encode()).hexdigest()[:32])


if __name__ == "__main__":
    serve(sys.argv[1], sys.stdout.fileno())
