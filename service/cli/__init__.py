"""The command line."""

from rowkind.service.cli.commands import main

__all__ = ["main"]
