"""Commands whose output or files do not fit on the disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rowkind.errors import FAILED, NO_SPACE
from rowkind.service.query.errors import CheckpointFolderError

ROOT = Path(__file__).parents[2]


def test_a_command_whose_output_does_not_fit_says_so() -> None:
    """The message names the cause and the remedy, without a traceback."""
    command = [sys.executable, "-m", "rowkind", "explain", "examples/orders-payments/job.yaml"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == FAILED
    assert done.stderr.startswith(f"rowkind: {NO_SPACE}: free space for standard output")
    assert "Traceback" not in done.stderr


def test_a_full_checkpoint_is_no_mistake_in_the_job() -> None:
    """The exit code lets a supervisor try again, and the remedy is not another folder."""
    error = CheckpointFolderError("/state/shop", f"java.io.IOException: {NO_SPACE}")
    assert error.exit_code == FAILED
    assert str(error).endswith("\nFree space there, then try again.")
