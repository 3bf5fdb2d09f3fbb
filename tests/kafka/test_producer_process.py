"""The process of a transactional producer: what starts it, what shares it, and what happens when it is killed."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.block import Block
from rowkind.service.kafka import producer_process
from rowkind.service.kafka.errors import AppendOnlyError, WriterLostError
from rowkind.service.kafka.producer_process import write_there
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.kafka.sink import Counted
from tests.kafka.sinks import Change, MakeSink, Sink, changes
from tests.kafka.tables import order
from tests.run.process import until

pytestmark = pytest.mark.kafka

_ELSEWHERE = """
import pickle, sys
from pathlib import Path
from rowkind.service.kafka.producer_process import write_there
sys.stdout.buffer.write(pickle.dumps(write_there(*pickle.loads(Path(sys.argv[1]).read_bytes()))))
"""

_FORKED = """
import os, pickle, sys
from pathlib import Path
from rowkind.service.kafka import producer_process
producer_process.fork_on_demand()
counted = producer_process.write_there(*pickle.loads(Path(sys.argv[1]).read_bytes()))
assert not producer_process._started
sys.stdout.buffer.write(pickle.dumps((counted, os.environ["ROWKIND_FORKS"])))
"""


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """End the processes that a test has started."""
    yield
    leave()


def leave() -> None:
    """Close this process's connections, and wait until the processes that it started have ended by themselves."""
    for line in producer_process._lines.values():
        line.close()
    producer_process._lines.clear()
    for process in producer_process._started:
        process.wait(20)
    producer_process._started.clear()


def blocks(*given: Change) -> list[pa.Buffer]:
    """Return the changes as the blocks of a task."""
    return [pa.py_buffer(Block(Batch(changes(each))).to_bytes()) for each in given]


def outcomes(sink: Sink, counted: Counted) -> dict[str, float]:
    """Return the outcomes of the transactions, with their counts."""
    start = f'rowkind_transactions_total{{query="{sink.spec.query}",outcome="'
    return {name[len(start) : -2]: count for name, count in counted.written.items() if name.startswith(start)}


def ids(sink: Sink) -> list[int]:
    """Return the ids of the rows in the topic."""
    return [message.row["id"] for message in sink.messages() if message.row]


def test_all_workers_of_a_machine_share_one_producer(make_sink: MakeSink, tmp_path: Path) -> None:
    """A second worker continues after the first one, without fencing it and without a second producer process."""
    sink = make_sink()
    first = write_there(sink.spec, BatchPartition("c", 0, 0), blocks(("+I", order(1)), ("+I", order(2))))
    (tmp_path / "task").write_bytes(pickle.dumps((sink.spec, BatchPartition("c", 1, 0), blocks(("+I", order(3))))))
    command = [sys.executable, "-c", _ELSEWHERE, str(tmp_path / "task")]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[2])
    third = write_there(sink.spec, BatchPartition("c", 2, 0), blocks(("+I", order(4))))
    for counted in (first, pickle.loads(done.stdout), third):
        assert outcomes(sink, counted) == {"committed": 1}
    assert ids(sink) == [1, 2, 3, 4]
    assert len(producer_process._started) == 1


def test_it_ends_with_the_last_worker_that_uses_it(make_sink: MakeSink) -> None:
    """The process ends by itself, and the next task starts another one."""
    sink = make_sink()
    write_there(sink.spec, BatchPartition("c", 0, 0), blocks(("+I", order(1))))
    (process,) = producer_process._started
    assert process.poll() is None
    leave()
    assert process.poll() == 0
    assert outcomes(sink, write_there(sink.spec, BatchPartition("c", 0, 0), blocks(("+I", order(1))))) == {"skipped": 1}


def test_a_process_that_is_killed_fails_one_attempt_and_loses_nothing(make_sink: MakeSink) -> None:
    """The task fails with a clear message; when it is repeated, each row is there once."""
    sink = make_sink()
    write_there(sink.spec, BatchPartition("c", 0, 0), blocks(("+I", order(1))))
    (process,) = producer_process._started
    process.kill()
    process.wait(20)
    with pytest.raises(WriterLostError, match=f"{sink.topic}.*exited unexpectedly"):
        write_there(sink.spec, BatchPartition("c", 1, 0), blocks(("+I", order(2))))
    assert outcomes(sink, write_there(sink.spec, BatchPartition("c", 0, 0), blocks(("+I", order(1))))) == {"skipped": 1}
    assert outcomes(sink, write_there(sink.spec, BatchPartition("c", 1, 0), blocks(("+I", order(2))))) == {
        "committed": 1
    }
    assert ids(sink) == [1, 2]


def test_an_error_of_the_user_comes_back_as_itself_and_the_process_goes_on(make_sink: MakeSink) -> None:
    """The worker raises the same error as the process, and the process continues."""
    sink = make_sink(form="append")
    with pytest.raises(AppendOnlyError, match="Use mode retract or upsert"):
        write_there(sink.spec, BatchPartition("c", 0, 0), blocks(("-D", order(1))))
    assert outcomes(sink, write_there(sink.spec, BatchPartition("c", 0, 0), blocks(("+I", order(2))))) == {
        "committed": 1
    }
    assert len(producer_process._started) == 1


def test_an_error_of_ours_tells_where_it_was_met(make_sink: MakeSink) -> None:
    """An unexpected error has the traceback of the process attached."""
    sink = make_sink()
    with pytest.raises(pa.ArrowInvalid) as met:
        write_there(sink.spec, BatchPartition("c", 0, 0), [pa.py_buffer(b"no block")])
    assert any("from_bytes" in note for note in met.value.__notes__)


def test_it_is_forked_where_workers_are(make_sink: MakeSink, tmp_path: Path) -> None:
    """The worker daemon leaves a process that forks producers, and that process ends with its last client."""
    sink = make_sink()
    (tmp_path / "task").write_bytes(pickle.dumps((sink.spec, BatchPartition("c", 0, 0), blocks(("+I", order(1))))))
    command = [sys.executable, "-c", _FORKED, str(tmp_path / "task")]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[2])
    counted, address = pickle.loads(done.stdout)
    assert outcomes(sink, counted) == {"committed": 1}
    assert ids(sink) == [1]
    until(lambda: not Path(address).exists(), "the end of what forks")
