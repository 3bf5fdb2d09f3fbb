"""Commands that name a sink refuse an unknown name in the same words."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rowkind.service.cli import main

JOB = """
job: shop
kafka: {bootstrap.servers: "127.0.0.1:1"}
tables: {orders: {mode: append, columns: {id: BIGINT}}}
registry: {folder: schemas}
sinks:
  totals: {mode: retract, sql: SELECT COUNT(*) AS n FROM orders}
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "--sink", "total"),
        ("try", "--changes", "-", "--sink", "total"),
        ("why", "total", "7"),
        ("verify", "total"),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_an_unknown_sink_is_refused(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """The message has the line of the sinks and the most similar name, and the exit code is 2."""
    (tmp_path / "job.yaml").write_text(JOB.lstrip())
    command, *rest = arguments
    done = CliRunner().invoke(main, [command, str(tmp_path / "job.yaml"), *rest], input="")
    assert done.exit_code == 2, done.output
    assert done.stderr.endswith("job.yaml:5: sinks: there is no sink 'total'; did you mean totals?\n")
