"""The CronJob of the chart that audits the result topics: its command lines are those of `rowkind verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from click.testing import CliRunner

from rowkind.errors import REFUSED, UNREACHABLE
from rowkind.service.cli.commands import main
from tests.deploy.chart import JOB, NEEDS_HELM, Manifest, objects

pytestmark = NEEDS_HELM

SCHEDULE = {"schedule": "17 3 * * *"}
RELEASES: dict[str, Manifest] = {
    "a schedule alone": {"verify": SCHEDULE},
    "arguments": {"verify": {**SCHEDULE, "arguments": ["totals", "--sample", "0.1", "--memory", "2GB", "-o", "json"]}},
    "since": {"verify": {**SCHEDULE, "arguments": ["--since", "2026-05-01T00:00:00"]}},
    "resources": {
        "verify": {**SCHEDULE, "resources": {"limits": {"memory": "4Gi"}}},
        "podSecurityContext": {"runAsUser": None},
        "imagePullSecrets": [{"name": "registry"}],
        "extraVolumes": [{"name": "code", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "code", "mountPath": "/code", "readOnly": True}],
        "nodeSelector": {"disk": "fast"},
    },
}
VALID = """\
job: shop
kafka: {bootstrap.servers: "127.0.0.1:1"}
registry: {folder: schemas}
tables:
  orders: {topic: orders, mode: append, columns: {order_id: BIGINT, customer: STRING, amount: BIGINT}}
sinks:
  totals: {mode: retract, sql: "SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer"}
"""


def pods(**values: Any) -> list[Manifest]:
    """Return the pod specs of the CronJobs of a release, which is valid for Kubernetes."""
    found = [each for each in objects(**values) if each["kind"] == "CronJob"]
    for each in found:
        kubernetes_validate.validate(each, "1.36", strict=True)
    return [each["spec"]["jobTemplate"]["spec"]["template"]["spec"] for each in found]


@pytest.mark.parametrize("values", RELEASES.values(), ids=RELEASES)
def test_the_command_line_is_accepted(values: Manifest, tmp_path: Path) -> None:
    """The command reads the job file that is mounted and all arguments, and fails only because there is no broker."""
    (pod,) = pods(**values)
    (container,) = pod["containers"]
    command, file, *arguments = container["args"]
    assert command == "verify"
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert str(Path(file).parent) in mounts
    assert "/tmp" in mounts, "DuckDB has a folder for what it spills"
    job = tmp_path / Path(file).name
    job.write_text(VALID)
    ended = CliRunner().invoke(main, [command, str(job), *arguments])
    assert ended.exit_code == UNREACHABLE, ended.output


def test_each_job_has_a_container() -> None:
    """A release with several jobs audits each of them, in containers whose names are different."""
    (pod,) = pods(job="", jobs={"totals": JOB, "by-day": JOB}, verify=SCHEDULE)
    assert {each["name"]: each["args"][1] for each in pod["containers"]} == {
        "verify-totals": "/etc/rowkind/jobs/totals.yaml",
        "verify-by-day": "/etc/rowkind/jobs/by-day.yaml",
    }


def test_a_wrong_argument_is_refused() -> None:
    """What the chart passes on is checked by the command."""
    (pod,) = pods(verify={**SCHEDULE, "arguments": ["--samples", "0.1"]})
    command, *arguments = pod["containers"][0]["args"]
    assert CliRunner().invoke(main, [command, *arguments]).exit_code == REFUSED


def test_without_a_schedule_there_is_no_audit() -> None:
    """The values of the chart as they are create no CronJob."""
    assert not pods()
