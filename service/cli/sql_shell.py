"""The shell of `rowkind sql`: reads queries on a terminal, with history and completion, and prints their results."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import has_completions, is_done
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from rowkind.errors import RowkindError
from rowkind.quantities import counted
from rowkind.service.cli.job_file import warn
from rowkind.service.cli.query_output import QueryForm, print_result, warn_of_undecodable
from rowkind.service.cli.row_output import RowOutput
from rowkind.service.client.job_tables import JobTables, QueryError, statements

_PROMPT, _CONTINUED = "sql> ", "  -> "
_HELP = """\
A query ends with a semicolon, and may have several lines. It is in DuckDB's SQL, not in the job's Spark SQL.

.tables         list the tables
.schema NAME    show the columns of a table
.help           show this help
.quit           leave the shell, as does Ctrl-D

Ctrl-C cancels a query that is running, or clears the line. Tab completes names."""
_COMMANDS = (".help", ".quit", ".schema", ".tables")
_WORD = re.compile(r"[.\w]+$")
_AFTER_TABLE = re.compile(r"(\b(from|join|describe|summarize)|\.schema)\s+[\w\"]*$", re.IGNORECASE)


class Shell:
    """Reads statements and commands until Ctrl-D, and prints their results in the given form."""

    def __init__(self, tables: JobTables, form: QueryForm | None) -> None:
        self._tables = tables
        self._form = form
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(_history())),
            completer=SqlCompleter(tables),
            complete_while_typing=False,
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation=_CONTINUED,
        )

    def run(self) -> None:
        """Read and answer until Ctrl-D or `.quit`. A query that fails does not end the shell."""
        number = counted(len(self._tables.tables), "table")
        click.echo(f"{number} of job {self._tables.job.name}; .help shows help, Ctrl-D leaves")
        while True:
            try:
                text = self._session.prompt(_PROMPT).strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text in (".quit", ".exit"):
                return
            try:
                self._answer(text)
            except KeyboardInterrupt:
                click.echo("cancelled", err=True)
            except QueryError as error:
                click.echo(str(error), err=True)
            except RowkindError as error:
                warn(str(error))

    def _answer(self, text: str) -> None:
        if text.startswith("."):
            self._obey(text.rstrip(";").split())
            return
        for statement in statements(text):
            print_result(self._tables.ask(statement), self._form)
        warn_of_undecodable(self._tables)

    def _obey(self, words: Sequence[str]) -> None:
        match words:
            case [".tables"]:
                self._show_tables()
            case [".schema", name] if name in self._tables.tables:
                shown = RowOutput("table", ["column", "type"])
                for column, type_ in self._tables.describe(name):
                    shown.add_row({"column": column, "type": type_})
                shown.flush()
            case [".schema", name]:
                click.echo(f"there is no table {name}; .tables lists the tables", err=True)
            case [".help"]:
                click.echo(_HELP)
            case _:
                click.echo(f"{' '.join(words)} is not a command; .help lists the commands", err=True)

    def _show_tables(self) -> None:
        shown = RowOutput("table", ["name", "kind", "mode", "key", "topic"])
        for name, table in self._tables.tables.items():
            key, topic = ", ".join(table.key), table.topic or "(none)"
            shown.add_row({"name": name, "kind": table.kind, "mode": table.mode, "key": key, "topic": topic})
        shown.flush()


class SqlCompleter(Completer):
    """Completes commands, tables, the columns of tables that the text names, and words of DuckDB's SQL."""

    def __init__(self, tables: JobTables) -> None:
        self._tables = tables

    @cached_property
    def _words(self) -> list[str]:
        return sorted(self._tables.words(), key=lambda word: (not word.isupper(), word))

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the words that continue the text before the cursor."""
        del complete_event
        before = document.text_before_cursor
        found = _WORD.search(before)
        begun = found[0] if found else ""
        if before.lstrip() == begun and begun.startswith("."):
            yield from (Completion(word, -len(begun)) for word in _COMMANDS if word.startswith(begun))
            return
        begun = begun.rpartition(".")[2]
        names = self._names(document.text, before, begun)
        for word in dict.fromkeys(names):
            if word.lower().startswith(begun.lower()):
                yield Completion(word, -len(begun))

    def _names(self, text: str, before: str, begun: str) -> Iterable[str]:
        yield from () if before.endswith(f".{begun}") else self._tables.tables
        if _AFTER_TABLE.search(before):
            return
        for name in self._tables.named_in(text):
            yield from self._columns(name)
        if begun:
            yield from self._words

    def _columns(self, name: str) -> Iterable[str]:
        try:
            return [column for column, _ in self._tables.describe(name)]
        except RowkindError:
            # The query itself reports what is wrong with the table.
            return []


def _keys() -> KeyBindings:
    """Return the key that ends a statement: Enter after a semicolon, or after a command, or in an empty text."""
    keys = KeyBindings()

    @keys.add("enter", filter=~is_done & ~has_completions)
    def _(event: KeyPressEvent) -> None:
        text = event.current_buffer.text.strip()
        if not text or text.startswith(".") or text.endswith(";"):
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    return keys


def _history() -> Path:
    """Return the file with the statements of earlier shells, `$XDG_STATE_HOME/rowkind/sql_history`, and create it."""
    file = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rowkind" / "sql_history"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    return file
