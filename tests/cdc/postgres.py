"""A PostgreSQL server of its own, from the package `postgresql`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rowkind.service.machine.ports import free_port
from tests.run.process import until

_SETTINGS = ("wal_level=logical", "fsync=off", "timezone=UTC")


@dataclass(frozen=True)
class Postgres:
    """A server that lets every user of this machine in without a password."""

    programs: Path
    port: int

    def run(self, *statements: str) -> str:
        """Run statements, each in a transaction of its own. Returns the rows, with | between columns."""
        done = self._psql(*(word for each in statements for word in ("-c", each)))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run_file(self, file: Path) -> None:
        """Run a file of statements."""
        done = self._psql("-f", str(file))
        assert done.returncode == 0, done.stderr

    def rows(self, sql: str) -> list[str]:
        """Return the rows of a query, with | between columns; no rows if it fails."""
        return self._psql("-c", sql).stdout.splitlines()

    def table(self, sql: str) -> str:
        """Return the rows of a query as psql shows them to people, without spaces at the ends of lines."""
        shown = self._psql("-P", "format=aligned", "-P", "tuples_only=off", "-c", sql).stdout
        return "\n".join(line.rstrip() for line in shown.rstrip().splitlines())

    def _psql(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.programs / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        command += ["-X", "-At", "-v", "ON_ERROR_STOP=1", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Run a server whose data is in a temporary folder.

    If PostgreSQL is not installed, the test is skipped with the reason; with ROWKIND_REQUIRE_POSTGRES=1, as in CI, it
    fails.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        reason = "PostgreSQL is not installed (apt-get install postgresql)"
        if os.environ.get("ROWKIND_REQUIRE_POSTGRES") == "1":
            pytest.fail(f"{reason}, and is required here", pytrace=False)
        pytest.skip(reason)
    programs, port = found[-1], free_port()
    # PostgreSQL refuses to run as root.
    user = "postgres" if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="rowkind-postgres-") as folder:
        if user is not None:
            shutil.chown(folder, user)
        data = Path(folder, "data")
        create = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*create, "--locale=C.UTF-8"], user=user, check=True, capture_output=True, cwd=folder)
        settings = (f"port={port}", f"unix_socket_directories={folder}", *_SETTINGS)
        with subprocess.Popen(
            [str(programs / "postgres"), "-D", str(data), *(word for each in settings for word in ("-c", each))],
            user=user,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as server:
            running = Postgres(programs, port)
            try:
                until(lambda: running.rows("SELECT 1") == ["1"], "an answer of PostgreSQL")
                yield running
            finally:
                # SIGINT also ends open connections, such as Debezium's.
                server.send_signal(2)
