"""A job with only the documented rights, on a broker that requires TLS and a login; and the secrecy of its secrets."""

from __future__ import annotations

import json
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from rowkind.client import Producer, table
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from tests.run.process import Rowkind, get, until
from tests.security.conftest import PASSWORD, SecuredBroker
from tests.security.rights import grant

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 200
STATUS_PASSWORD = "planted-password-of-the-page"
PLANTED = re.compile(rb"planted|cGxhbnRlZ|BsYW50ZW|wbGFudGVk")
"""The secrets in plain text, and in base64 at any offset."""


def test_a_job_runs_with_the_documented_rights_and_shows_no_secret(secured: SecuredBroker, tmp_path: Path) -> None:
    """The secrets are not in logs, plans, metrics, pages, checkpoints or process lists, neither running nor failed."""
    file = _job(secured, tmp_path)
    job = load(file, {"PASSWORD": PASSWORD})
    mine = load(_without_login(file, secured), {})
    admin = AdminClient({"bootstrap.servers": secured.servers})
    output = tmp_path / "output"
    with Rowkind(output, "topics", "create", str(mine.file)) as made:
        assert made.ended(60).code == 0, made.error
    grant(admin, job)
    seen: dict[str, bytes] = {}
    with Producer(mine, "orders") as orders:
        orders.insert({"id": 1, "amount": 5})
    with (
        tempfile.TemporaryDirectory(prefix="rights-") as temporary,  # short enough for the names of sockets
        Rowkind(output, "run", str(file), "--port", "0", PASSWORD=PASSWORD, TMPDIR=temporary) as running,
    ):

        def written() -> bool:
            assert running.running, running.error
            return _rows(mine) == [{"id": 1, "amount": 5}]

        until(written, "a result", lambda: running.error, SLOW)
        seen["command lines"] = b"\n".join(_command_lines())
        seen |= _files(Path(temporary))
        for page in ("/", "/metrics", "/healthz", "/readyz"):
            seen[page] = get(running.port, page)[1].encode()
        with Producer(mine, "orders") as orders:
            orders.insert({"id": 2, "amount": 0})
        ended = running.ended(SLOW)
        assert ended.code == 1, ended.error
        assert "division by zero" in ended.error
    wrong = {"PASSWORD": f"{PASSWORD}-wrong"}
    for command in ("explain", "check", "diff", "run"):
        with Rowkind(output, command, str(file), **(wrong if command == "run" else {"PASSWORD": PASSWORD})) as told:
            code = told.ended(SLOW).code
        assert code == (2 if command == "run" else 0), told.error
        seen[command] = (told.output + told.error).encode()
    seen["log"] = (ended.output + ended.error).encode()
    seen |= _files(tmp_path)
    del seen[str(tmp_path / "status-password")]
    assert any("/checkpoint/" in name for name in seen)
    assert any("blockmgr" in name or ("/rights-" in name and "/spark" in name) for name in seen)
    assert not [name for name, content in seen.items() if PLANTED.search(content)]


def _job(secured: SecuredBroker, folder: Path) -> Path:
    """Return the file of a job with one secret from the environment and one from a file."""
    (folder / "status-password").write_text(STATUS_PASSWORD)
    name = f"rights-{os.getpid()}"
    amount = {"id": "BIGINT", "amount": "INT"}
    job: dict[str, Any] = {
        "job": name,
        "kafka": secured.client("SCRAM") | {"sasl.password": "${PASSWORD}"},
        "registry": {"folder": "schemas"},
        "checkpoint": str(folder / "checkpoint"),
        "status": {"user": "ops", "password": {"file": "status-password"}},
        "dead_letters": {"topic": f"letters-{name}"},
        "tables": {"orders": {"topic": f"orders-{name}", "mode": "append", "columns": amount, "primary_key": "id"}},
        "sinks": {
            "shares": {
                "topic": f"shares-{name}",
                "mode": "upsert",
                "key": "id",
                "sql": "SELECT id, CAST(SUM(5 * amount / amount) AS INT) AS amount FROM orders GROUP BY id",
            }
        },
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return folder / "job.yaml"


def _without_login(file: Path, secured: SecuredBroker) -> Path:
    """Return the same job with a client that has all rights."""
    job = json.loads(file.read_text())
    del job["status"]
    other = file.with_name("other.yaml")
    other.write_text(json.dumps(job | {"kafka": {"bootstrap.servers": secured.servers}}))
    return other


def _rows(job: Job) -> list[dict[str, Any]]:
    return table(job, "shares").to_pylist()


def _files(folder: Path) -> dict[str, bytes]:
    """Return the content of the files in a folder, some of which may be deleted at any time."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file():
                found[str(path)] = path.read_bytes()
    return found


def _command_lines() -> list[bytes]:
    """Return the command lines of all processes of this machine."""
    return [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
