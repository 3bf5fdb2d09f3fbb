"""Run the command `rowkind` as `python -m rowkind`."""

from rowkind.service.cli import main

main()
