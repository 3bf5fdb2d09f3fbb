"""The help of every command, and shell completion."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rowkind.service.cli import main


def commands(of: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield all visible commands with their full names."""
    yield name, of
    if isinstance(of, click.Group):
        for each, command in of.commands.items():
            if not command.hidden:
                yield from commands(command, f"{name} {each}")


COMMANDS = dict(commands(main, "rowkind"))
WITHOUT = {"rowkind topics", "rowkind dead-letters", "rowkind examples"}
"""Groups without an action of their own, and one command without arguments."""


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT))
def test_every_help_has_examples_that_can_be_called(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example line calls an existing command with valid options and arguments."""
    monkeypatch.chdir(tmp_path)
    for file in ("job.yaml", "changes.jsonl", "flink-script.sql"):
        Path(file).touch()
    text = CliRunner().invoke(main, [*name.split()[1:], "--help"], prog_name="rowkind").output
    _, found, examples = text.partition("Examples:\n")
    assert found
    lines = [line for line in examples.partition("\n\n")[0].splitlines() if "rowkind " in line]
    assert lines
    for line in lines:
        call = line[line.rindex("rowkind ") :].partition("    ")[0].partition(" > ")[0].partition(" | ")[0].rstrip(')"')
        _, *words = shlex.split(call)
        command: click.Command = main
        while isinstance(command, click.Group) and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        with command.make_context("rowkind", list(words)):
            pass


@pytest.mark.parametrize(("shell", "says"), [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "complete --")])
def test_a_shell_gets_a_script_that_completes(shell: str, says: str) -> None:
    """`rowkind completion` prints the completion script of each shell."""
    done = CliRunner().invoke(main, ["completion", shell], prog_name="rowkind")
    assert done.exit_code == 0
    assert says in done.output


def completed(line: str) -> list[str]:
    """Return the completions of the last word of a line, as the completion script requests them."""
    asked = {"_ROWKIND_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    done = CliRunner().invoke(main, env=asked, prog_name="rowkind")
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_and_options_are_completed() -> None:
    """Names of commands and options are completed."""
    assert completed("rowkind sav") == ["plain,savepoint"]
    assert completed("rowkind run --l") == ["plain,--log"]


def test_names_in_the_job_file_are_completed(tmp_path: Path) -> None:
    """Sinks and tables of the job file are completed, even if its references are unset or the job is invalid."""
    job = tmp_path / "job.yaml"
    job.write_text(
        "kafka: {bootstrap.servers: '${KAFKA}'}\ntables: {orders: {}, payments: {}}\nsinks: {paid: {}, open: {}}\n"
    )
    assert completed(f"rowkind explain {job} --sink p") == ["plain,paid"]
    assert completed(f"rowkind try {job} --changes - --sink o") == ["plain,open"]
    assert completed(f"rowkind consume {job} p") == ["plain,paid", "plain,payments"]
    assert completed(f"rowkind produce {job} o") == ["plain,orders"]


@pytest.mark.parametrize("text", ["", "[", "sinks: 1", "- sinks", None])
def test_a_job_file_that_is_none_completes_nothing(tmp_path: Path, text: str | None) -> None:
    """A missing or invalid job file gives no completions and prints no error."""
    job = tmp_path / "job.yaml"
    if text is not None:
        job.write_text(text)
    assert completed(f"rowkind consume {job} p") == []
    assert completed("rowkind explain --sink p") == []
