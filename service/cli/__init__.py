"""The command-line interface."""

from rowkind.service.cli.commands import main

__all__ = ["main"]
