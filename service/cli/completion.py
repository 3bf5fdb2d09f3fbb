"""`rowkind completion`: what a shell needs to complete commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from rowkind.service.cli.job_file import calls

_VARIABLE = "_ROWKIND_COMPLETE"
"""By which click tells a shell's question from a command."""


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
    """Print a script that lets SHELL complete commands, options and files."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that are offered"
    click.echo(kind(context.find_root().command, {}, "rowkind", _VARIABLE).source())
