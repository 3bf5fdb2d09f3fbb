"""Arguments that `rowkind run` refuses before it reads a job."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rowkind.service.cli import main


@pytest.mark.parametrize("host", ["nosuch.invalid", "203.0.113.7", "x" * 64 + ".invalid"])
def test_a_host_that_is_not_this_machines_is_refused_by_its_name(host: str) -> None:
    """The error says that the host is not an address of this machine, and does not suggest another port."""
    done = CliRunner().invoke(main, ["run", "job.yaml", "--host", host])
    assert done.exit_code == 2
    assert "Invalid value for '--host'" in done.stderr
    assert f"{host} is not an address of this machine: " in done.stderr
    assert "--port" not in done.stderr
