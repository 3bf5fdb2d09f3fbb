"""Sinks without a topic: what the job's process logs, and what is counted."""

from __future__ import annotations

import io
import json
import logging
import sys
from pathlib import Path

import pytest

from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from rowkind.service.cli.progress_output import showing_progress
from rowkind.service.execute.members import address
from rowkind.service.kafka.errors import PrinterLostError
from rowkind.service.kafka.printed_changes import logging_prints, write
from rowkind.service.kafka.spec import TopiclessSink, WriterSpec
from tests.kafka.sinks import changes
from tests.kafka.tables import ORDERS, order


def spec(printer: str = "", *, prints: bool = True, prefix: str = "paid") -> WriterSpec:
    """Return a query whose only sink has no topic."""
    sink = TopiclessSink("paid", prefix, prints=prints, keyed=True, ordered=False, record=ORDERS)
    return WriterSpec("job", "main", {}, {}, "progress", topicless={0: sink}, printer=printer)


def batch(given: Changes) -> Batch:
    """Return changes that are addressed to the sink."""
    return address(Batch(given), 0)


UPDATE = changes(("+I", order(1, "a")), ("-D", order(1, "b")), ("+I", order(2, 'zwei\n"')))


def test_the_job_logs_a_line_for_each_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A line has the prefix, the row kind and the row; old rows precede new rows, and all changes are counted."""
    with caplog.at_level(logging.INFO, "rowkind"), logging_prints(printer := str(tmp_path / "print")):
        counted, sample = write(spec(printer), batch(UPDATE))
    lines = [record.getMessage() for record in caplog.records]
    old, new = 'paid> -U {"id": 1, "name": "b", "amount": null}', 'paid> +U {"id": 1, "name": "a", "amount": null}'
    assert sorted(lines) == sorted([old, new, 'paid> +I {"id": 2, "name": "zwei\\n\\"", "amount": null}'])
    assert lines.index(new) == lines.index(old) + 1
    assert sorted(counted.values()) == [1.0, 1.0, 1.0]
    assert len(sample.rows["paid"]) == 3
    assert not Path(printer).exists()


def test_more_changes_than_a_piece_are_all_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Several pieces arrive in order and completely."""
    many = changes(*(("+I", order(number)) for number in range(2_345)))
    with caplog.at_level(logging.INFO, "rowkind"), logging_prints(printer := str(tmp_path / "print")):
        write(spec(printer), batch(many))
    rows = [json.loads(record.getMessage().removeprefix("paid> +I ")) for record in caplog.records]
    assert [row["id"] for row in rows] == list(range(2_345))


@pytest.mark.parametrize("prefix", ["paid", "all > paid"])
def test_a_json_log_has_the_change_as_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    """Each line is JSON, with the row as an object, and the prefix if it is not the sink's name."""
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with showing_progress("json"), logging_prints(printer := str(tmp_path / "print")):
        write(spec(printer, prefix=prefix), batch(UPDATE))
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert {line["message"] for line in lines} == {"change"}
    assert {line["sink"] for line in lines} == {"paid"}
    assert {line.get("prefix", "paid") for line in lines} == {prefix}
    assert {"id": 2, "name": 'zwei\n"', "amount": None} in [line["row"] for line in lines]


def test_tasks_of_a_cluster_print_to_their_own_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the address of the job's process, the lines are in the log of the executor."""
    write(spec(), batch(changes(("+I", order(1)))))
    assert capsys.readouterr().err.startswith('paid> +I {"id": 1, ')


def test_discarded_changes_are_only_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A blackhole sink prints nothing and counts its net changes by row kind."""
    counted, _ = write(spec(prints=False), batch(UPDATE))
    assert sorted(counted.values()) == [1.0, 1.0, 1.0]
    assert not capsys.readouterr().err


def test_the_task_fails_if_the_job_does_not_answer(tmp_path: Path) -> None:
    """The task then fails before it records its progress, so the batch is repeated."""
    with pytest.raises(PrinterLostError, match=r"Sink paid: .*prints its changes again") as lost:
        write(spec(str(tmp_path / "closed")), batch(UPDATE))
    assert lost.value.retryable
