"""`python -m rowkind` is the command `rowkind`."""

from rowkind.service.cli import main

main()
