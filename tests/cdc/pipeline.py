"""The example `postgres-debezium`, whose parts run as processes of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from click.testing import CliRunner

from rowkind.service.cli import main
from rowkind.service.dev.broker import Broker
from rowkind.service.job.load import load
from tests.cdc.connect import Connect, connect_worker
from tests.cdc.postgres import Postgres, postgres_server
from tests.run.process import ROOT, Rowkind, until

EXAMPLE = ROOT / "examples" / "postgres-debezium"
SECONDS = 180.0
TYPES = """
    SELECT id, a_boolean, a_smallint, an_integer, a_bigint, an_oid, a_real, a_double, a_numeric,
      a_free_numeric::numeric(38, 15), a_money, a_char, a_varchar, a_text, a_citext, an_enum, a_uuid, a_json, a_jsonb,
      an_xml, an_hstore, an_ltree, a_bytea, a_bit, a_bits,
      decode(lpad(to_hex(lpad(a_varbit::text, 8, '0')::bit(8)::int), 2, '0'), 'hex') AS a_varbit, a_date, a_time3,
      a_time, a_timetz AT TIME ZONE 'UTC' AS a_timetz, a_timestamp3, a_timestamp, a_timestamptz3, a_timestamptz,
      an_interval, an_inet, a_cidr, a_macaddr, a_macaddr8, a_point, an_int4range, an_int8range, a_numrange, a_daterange,
      a_tsrange, a_tstzrange, an_int_array, a_text_array
    FROM types
"""
"""The rows of `types` as the example's job writes them: numbers of one scale, bits as bytes, times of day in UTC."""


@dataclass
class Pipeline:
    """All parts of the example, running, and the same queries as views of PostgreSQL in the schema `expected`."""

    postgres: Postgres
    connect: Connect
    folder: Path
    environment: dict[str, str]
    job: Path = EXAMPLE / "job.yaml"
    marks: int = 0
    _running: ExitStack = field(default_factory=ExitStack)
    _rowkind: Rowkind | None = None

    def start(self) -> None:
        """Run the job, as the compose file does."""
        command = ("run", str(self.job), "--upgrade", "--port", "0")
        self._rowkind = self._running.enter_context(Rowkind(self.folder / "log", *command, **self.environment))

    def stop(self) -> None:
        """End the job with SIGTERM, and wait for its end."""
        assert self._rowkind is not None, "the job is started before it is stopped"
        self._rowkind.terminate()
        assert self._rowkind.ended().code == 0
        self.close()

    def close(self) -> None:
        """End all processes of the job."""
        self._running.close()

    def connector(self, method: str, file: str | None, path: str) -> None:
        """Send a request about a connector, with the configuration from a file of the example and local addresses."""
        body = None if file is None else self._local(json.loads((EXAMPLE / file).read_text()))
        self.connect.ask(method, f"connectors/{path}", body)
        name, _, action = path.partition("/")
        state = {"config": "RUNNING", "resume": "RUNNING", "stop": "STOPPED"}.get(action)
        if state is not None:
            self.connect.until_state(name, state)

    def _local(self, config: dict[str, str]) -> dict[str, str]:
        if "database.hostname" in config:
            return config | {"database.hostname": "127.0.0.1", "database.port": str(self.postgres.port)}
        url = config["connection.url"].replace("//postgres:5432/", f"//127.0.0.1:{self.postgres.port}/")
        return config | {"connection.url": url}

    def rowkind(self, *command: str) -> str:
        """Return the output of a command on the job."""
        done = CliRunner().invoke(main, [*command, str(self.job)], env=self.environment, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def show(self) -> None:
        """Create the views from the queries of the job."""
        queries = {name: sink.sql for name, sink in load(self.job, self.environment).sinks.items()} | {"types": TYPES}
        for name, sql in queries.items():
            self.postgres.run(f"DROP VIEW IF EXISTS expected.{name}", f"CREATE VIEW expected.{name} AS {sql}")

    def change(self, *statements: str) -> None:
        """Change rows. At last insert a row into each table, which shows that all changes before have arrived."""
        self.marks += 1
        mark = 1000 + self.marks
        self.postgres.run(
            *statements,
            f"INSERT INTO customers (id, name, country) VALUES ({mark}, 'mark', 'country {mark}')",
            f"INSERT INTO orders (id, customer_id, amount, placed) VALUES ({mark}, {mark}, 1, '2026-02-01Z')",
            f"INSERT INTO types (id) VALUES ({mark})",
        )

    def until_equal(self) -> None:
        """Wait until the result tables have the rows of the views."""
        for name in ("order_details", "top_orders", "types"):
            until(partial(self._equal, name), f"equal rows of {name}", self.said, SECONDS)

    def _equal(self, name: str) -> bool:
        return not self._differing(name)

    def said(self) -> str:
        """Return rows that differ, dead letters, and the ends of the logs."""
        names = ("order_details", "top_orders", "types")
        differing = [line[:1000] for name in names for line in self._differing(name)]
        job = self._rowkind.error[-3000:] if self._rowkind else ""
        return "\n".join([*differing, self.rowkind("dead-letters", "list"), job, self.connect.said()])

    def _differing(self, name: str) -> list[str]:
        """Return the rows that only the view or only the result table has; a message before there is a table."""
        columns = "SELECT string_agg(format('%I::%s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum)"
        (listed,) = self.postgres.rows(
            f"{columns} FROM pg_attribute WHERE attrelid = 'expected.{name}'::regclass AND attnum > 0"
        )
        sides = [f"SELECT ROW({listed})::text AS r FROM {schema}.{name}" for schema in ("expected", "results")]
        parts = [
            f"(SELECT '{only}', r FROM ({one} EXCEPT ALL {other}) AS d)"
            for only, one, other in (("missing", *sides), ("wrong", *reversed(sides)))
        ]
        if not self.postgres.rows(f"SELECT to_regclass('results.{name}')")[0]:
            return [f"no table {name}"]
        return self.postgres.rows(" UNION ALL ".join(parts))


@contextmanager
def pipeline(broker: Broker, folder: Path) -> Iterator[Pipeline]:
    """Start what `docker compose up connect` starts: PostgreSQL with the tables, Kafka Connect, and the topics."""
    with postgres_server() as postgres, connect_worker(broker, folder) as connect:
        postgres.run_file(EXAMPLE / "tables.sql")
        postgres.run("CREATE SCHEMA expected")
        environment = {"KAFKA": broker.bootstrap_servers, "CHECKPOINT": str(folder / "checkpoint")}
        running = Pipeline(postgres, connect, folder, environment)
        running.show()
        running.rowkind("topics", "create")
        try:
            yield running
        finally:
            running.close()
