"""`rowkind completion`: shell completion of commands, options, files, and names in a job file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from rowkind.service.cli.job_file import calls

_VARIABLE = "_ROWKIND_COMPLETE"
"""The environment variable that tells click that a shell requests completions."""

Completes = Callable[[click.Context, click.Parameter, str], list[str]]


def names(*sections: str) -> Completes:
    """Return a completer for names in these sections of the job file that is given earlier on the command line."""

    def complete(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
        return [name for name in _names(context, sections) if name.startswith(begun)]

    return complete


def _names(context: click.Context, sections: Sequence[str]) -> list[str]:
    from rowkind.service.job.errors import JobError  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.job.load import named  # noqa: PLC0415 -- as above

    # If an option still lacks its value, click has not parsed the arguments yet.
    file = context.params.get("job_file") or next(iter(context.args), None)
    try:
        return [] if file is None else named(Path(file), *sections)
    except JobError:
        return []


@click.command(
    epilog=calls(
        'eval "$(rowkind completion bash)"              # in ~/.bashrc',
        'eval "$(rowkind completion zsh)"               # in ~/.zshrc',
        "rowkind completion fish > ~/.config/fish/completions/rowkind.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a completion script for SHELL. It completes commands, options, files and names."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that are offered"
    click.echo(kind(context.find_root().command, {}, "rowkind", _VARIABLE).source())
