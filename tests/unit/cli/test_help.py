"""The help of every command, and what a shell is told to complete it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rowkind.service.cli import main


def commands(of: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """All commands that people see, by how they are called."""
    yield name, of
    if isinstance(of, click.Group):
        for each, command in of.commands.items():
            if not command.hidden:
                yield from commands(command, f"{name} {each}")


COMMANDS = dict(commands(main, "rowkind"))
WITHOUT = {"rowkind topics", "rowkind dead-letters", "rowkind examples"}
"""Groups that do nothing by themselves, and one command that takes nothing."""


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT))
def test_every_help_has_examples_that_can_be_called(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line calls a command that there is, with options and as many arguments as it takes."""
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
    """By which it asks the command itself."""
    done = CliRunner().invoke(main, ["completion", shell], prog_name="rowkind")
    assert done.exit_code == 0
    assert says in done.output


def test_commands_and_options_are_completed() -> None:
    """As the script asks for them."""
    asked = {"_ROWKIND_COMPLETE": "bash_complete", "COMP_WORDS": "rowkind sav", "COMP_CWORD": "1"}
    assert CliRunner().invoke(main, env=asked, prog_name="rowkind").output == "plain,savepoint\n"
    asked = {"_ROWKIND_COMPLETE": "bash_complete", "COMP_WORDS": "rowkind run --l", "COMP_CWORD": "2"}
    assert CliRunner().invoke(main, env=asked, prog_name="rowkind").output == "plain,--log\n"
