"""What the tutorial names exists: files, services, connectors, settings, and the versions of the compose file."""

from __future__ import annotations

import json
import re
from typing import Any

from click.testing import CliRunner
from ruamel.yaml import YAML

from rowkind.service.cli import main
from rowkind.service.dev.jars import KAFKA
from rowkind.service.job.load import load
from tests.cdc.connect import DEBEZIUM
from tests.cdc.pipeline import EXAMPLE
from tests.cdc.tutorial import PAGE, steps

TEXT = PAGE.read_text()


def compose() -> dict[str, Any]:
    """The services of the compose file."""
    services: dict[str, Any] = YAML(typ="safe").load(EXAMPLE / "compose.yaml")["services"]
    return services


def test_the_job_is_valid() -> None:
    """`rowkind check` accepts it with nothing set in the environment."""
    done = CliRunner().invoke(main, ["check", str(EXAMPLE / "job.yaml")], env={"KAFKA": None, "CHECKPOINT": None})
    assert done.exit_code == 0, done.output


def test_files_and_services_of_the_page_exist() -> None:
    """The files that it links to, those that curl sends, and the services that Compose starts or enters."""
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (PAGE.parent / target).is_file(), target
    for step in steps():
        for file in re.findall(r"--data @(\S+)", step.command):
            json.loads((EXAMPLE / file).read_text())
        for service in re.findall(r"^docker compose (?:up.* |exec |restart )(\w+)(?: |$)", step.command):
            assert service in compose(), step.command
    assert {each.name for each in EXAMPLE.iterdir()} == set(re.findall(r"^\| \[([\w.]+)\]", TEXT, re.MULTILINE))


def test_the_query_of_the_page_is_the_jobs() -> None:
    """It differs in line breaks at most."""
    (shown,) = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)
    assert load(EXAMPLE / "job.yaml", {}).sinks["top_orders"].sql.split() == shown.split()


def test_settings_of_the_page_are_in_the_files() -> None:
    """`name: value` in the text is a setting of a connector or of each table of the job."""
    settings = json.loads((EXAMPLE / "source.json").read_text()) | json.loads((EXAMPLE / "sink.json").read_text())
    shown = re.findall(r"`([\w.]+\.[\w.]+): (\w+)`", TEXT)
    assert len(shown) >= 4
    assert all(settings[name] == value for name, value in shown)
    assert "stringtype=unspecified" in settings["connection.url"]
    assert all(table.on_truncate == "empty" for table in load(EXAMPLE / "job.yaml", {}).tables.values())


def test_the_containers_are_what_the_tests_start() -> None:
    """The broker, Debezium and the command of the job are those that `test_postgres_debezium.py` runs."""
    services = compose()
    assert services["kafka"]["image"].endswith(f":{KAFKA}")
    assert services["connect"]["image"].endswith(f":{DEBEZIUM}")
    assert services["postgres"]["command"] == ["-c", "wal_level=logical"]
    assert services["rowkind"]["command"] == ["run", "/etc/rowkind/job.yaml", "--upgrade", "--port", "8080"]


def test_the_job_reads_a_column_of_every_type() -> None:
    """The job declares each column of the table `types`."""
    (table,) = re.findall(r"CREATE TABLE types \((.*?)\n\);", (EXAMPLE / "tables.sql").read_text(), re.DOTALL)
    columns = re.findall(r"^    (\w+) ", table, re.MULTILINE)
    assert list(load(EXAMPLE / "job.yaml", {}).tables["types"].columns) == columns
