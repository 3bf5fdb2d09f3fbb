"""The shell of `rowkind sql`, as a person types into it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from contextvars import copy_context
from pathlib import Path
from threading import Thread

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from rowkind.service.cli.sql_shell import Shell, SqlCompleter
from rowkind.service.client.job_tables import JobTables
from rowkind.service.job.load import load

JOB = {
    "job": "asked",
    "kafka": {"bootstrap.servers": "127.0.0.1:1"},
    "registry": {"folder": "schemas"},
    "dead_letters": {"topic": "letters"},
    "tables": {
        "orders": {
            "topic": "orders",
            "mode": "upsert",
            "primary_key": "id",
            "columns": {"id": "BIGINT", "customer": "STRING", "amount": "DECIMAL(10,2)"},
        },
        "made": {"mode": "append", "generate": {}, "columns": {"id": "BIGINT"}},
    },
    "sinks": {"large": {"topic": "large", "mode": "retract", "sql": "SELECT id, amount FROM orders WHERE amount > 5"}},
}
CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobTables]:
    """Return the tables of a job whose broker does not exist, so that no query may read a topic."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "job.yaml").write_text(json.dumps(JOB))
    with closing(JobTables(load(tmp_path / "job.yaml"), lambda: iter(()))) as tables:
        yield tables


def typed(tables: JobTables, *lines: str) -> None:
    """Type lines into a shell until it ends."""
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("".join(lines))
        # In a thread of its own, because another test may have left an event loop running in this one.
        shell = Thread(target=copy_context().run, args=(Shell(tables, "table").run,))
        shell.start()
        shell.join(60)
        assert not shell.is_alive(), "the shell has ended"


def test_a_query_may_have_several_lines(tables: JobTables, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It runs when a line ends with a semicolon, and is in the history of the next shell."""
    typed(tables, "SELECT 1 AS a,", ENTER, "'x' AS b;", ENTER, CTRL_D)
    assert "a  b\n1  x\n" in capsys.readouterr().out
    history = tmp_path / "state" / "rowkind" / "sql_history"
    assert "+SELECT 1 AS a,\n+'x' AS b;\n" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_a_bad_query_shows_the_message_of_duckdb(tables: JobTables, capsys: pytest.CaptureFixture[str]) -> None:
    """The shell goes on, and shows no stack trace."""
    typed(tables, "SELEC 1;", ENTER, "SELECT nothing;", ENTER, "SELECT 2 AS two;", ENTER, ".quit", ENTER)
    said = capsys.readouterr()
    assert 'syntax error at or near "SELEC"' in said.err
    assert 'Referenced column "nothing"' in said.err
    assert "Traceback" not in said.err
    assert "two\n  2\n" in said.out


def test_tables_and_their_columns_are_shown(tables: JobTables, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands begin with a dot; a table that does not exist and an unknown command are reported."""
    typed(
        tables, *(f"{line}{ENTER}" for line in (".tables", ".schema large", ".schema lrge", ".help", ".what")), CTRL_D
    )
    said = capsys.readouterr()
    assert "large         sink          retract       large\n" in said.out
    assert "orders        table         upsert   id   orders\n" in said.out
    assert "made          table         append        (none)\n" in said.out
    assert "dead_letters  dead letters  append        letters\n" in said.out
    assert "amount      DECIMAL(10,2)\n_partition  INTEGER\n" in said.out
    assert "DuckDB's SQL" in said.out
    assert "there is no table lrge" in said.err
    assert ".what is not a command" in said.err


def test_ctrl_c_clears_the_line(tables: JobTables, capsys: pytest.CaptureFixture[str]) -> None:
    """The text before Ctrl-C is gone, and the shell goes on."""
    typed(tables, "SELECT 'gone'", ENTER, "AS", CTRL_C, "SELECT 'here' AS word;", ENTER, CTRL_D)
    said = capsys.readouterr()
    assert "word\nhere\n" in said.out
    assert "gone" not in said.out + said.err


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("SELECT * FROM o", "orders", "ORDER"),
        ("SELECT cust FROM orders", "customer", "orders"),
        ("SELECT o.cust FROM orders o", "customer", "CURRENT_DATE"),
        ("SELECT arg_m", "arg_max", "orders"),
        ("SEL", "SELECT", "SET"),
        (".sch", ".schema", ".tables"),
        (".schema la", "large", "LATERAL"),
    ],
)
def test_names_and_words_are_completed(text: str, wanted: str, unwanted: str, tables: JobTables) -> None:
    """After FROM a table, after a table's alias its columns, elsewhere also keywords and functions."""
    before = text.partition(" FROM orders")[0]
    document = Document(text, len(before))
    found = [each.text for each in SqlCompleter(tables).get_completions(document, CompleteEvent())]
    assert wanted in found
    assert unwanted not in found
