"""The product's image as a cluster runs it: without privileges, with a read-only root, stopped by SIGTERM."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.e2e.containers import BASE_IMAGE, ROOT

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers")]

JARS = "/opt/rowkind/lib/python3*/site-packages/pyspark/jars/*.jar /opt/rowkind/share/rowkind/s3a-*/*.jar"
LARGEST = 910_000_000
"""The limit for the size of all layers together, unpacked, in bytes."""

# All restrictions of a pod of the Helm chart.
CONFINED = ("--rm", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


def test_the_image_runs_as_a_numbered_user_without_rights(rowkind_image: str) -> None:
    """The user is a number other than 0, so that Kubernetes can check it before it starts the container."""
    assert _inspect(rowkind_image)["Config"]["User"] == "10001:10001"


def test_the_image_prints_its_help_on_a_read_only_root_without_network(rowkind_image: str) -> None:
    """The command works without capabilities and with only /tmp writable."""
    done = _docker("run", *CONFINED, "--network", "none", rowkind_image, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: rowkind" in done.stdout


def test_a_job_file_that_is_not_there_is_refused_with_code_2(rowkind_image: str) -> None:
    """The container has the command's exit code."""
    done = _docker("run", *CONFINED, "--network", "none", rowkind_image, "check", "/nowhere/job.yaml")
    assert done.returncode == 2, done.stderr
    assert "/nowhere/job.yaml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("engine", ["memory", "spark"])
def test_the_image_tries_the_example_on_either_engine(rowkind_image: str, engine: str) -> None:
    """The image has everything that a job needs; for Spark: Java, a user name, and RocksDB with /tmp noexec."""
    example = f"{ROOT / 'examples' / 'orders-payments'}:/etc/rowkind:ro"
    changes = [
        {"table": "orders", "op": "+I", "row": {"order_id": 1, "customer": "Ada", "amount": "10.00", "status": "new"}},
        {"table": "payments", "op": "+I", "row": {"payment_id": 7, "order_id": 1, "paid": "9.00"}},
    ]
    lines = "".join(json.dumps(change) + "\n" for change in changes)
    told = ("try", "/etc/rowkind/job.yaml", "--sink", "paid_orders", "--changes", "-", "--engine", engine, "--fold")
    done = _docker("run", "--interactive", *CONFINED, "--volume", example, rowkind_image, *told, text=lines)
    assert done.returncode == 0, done.stderr[-3000:]
    row = {"payment_id": 7, "order_id": 1, "customer": "Ada", "paid": "9.00", "remaining": "1.00"}
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"row": row}]


def test_the_image_says_what_it_is_and_how_to_ask_for_its_health(rowkind_image: str) -> None:
    """Labels, an entry point in exec form and a health check are part of the image."""
    config = _inspect(rowkind_image)["Config"]
    assert config["Entrypoint"] == ["rowkind"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert labels["title"] == "Rowkind"
    assert labels["licenses"] == "Apache-2.0"
    assert labels["base.name"] == BASE_IMAGE
    assert {"description", "source", "documentation", "version", "revision"} <= labels.keys()
    asks, *check = config["Healthcheck"]["Test"]
    assert asks == "CMD"
    done = _docker("run", "--rm", "--network", "none", "--entrypoint", check[0], rowkind_image, *check[1:])
    assert (done.returncode, done.stderr) == (1, ""), "nobody listens here"


def test_a_read_only_root_leaves_what_the_image_names(rowkind_image: str) -> None:
    """The user can write to the image's two volumes, and nowhere else."""
    assert _inspect(rowkind_image)["Config"]["Volumes"].keys() == {"/var/lib/rowkind", "/tmp"}
    script = "touch /var/lib/rowkind/a /tmp/a && ! touch /opt/rowkind/a /etc/a /a 2> /dev/null && id -u"
    done = _docker("run", "--rm", "--read-only", "--network", "none", "--entrypoint", "sh", rowkind_image, "-c", script)
    assert (done.returncode, done.stdout) == (0, "10001\n"), done.stderr


def test_nothing_that_builds_or_installs_is_in_the_image(rowkind_image: str) -> None:
    """The image has no compiler, no pip of the base or of Rowkind, and no test tool."""
    script = """
        for tool in cc gcc g++ clang make javac pip pip3 wheel pytest mypy ruff; do command -v $tool; done
        find / -xdev \\( -path /proc -o -path /sys \\) -prune -o \\
            \\( -name 'pip' -o -name 'pip-*' -o -name 'ensurepip' -o -name 'setuptools' \\) -path '*python*' -print
    """
    confined = ("--network", "none", "--user", "0", "--entrypoint", "sh")
    done = _docker("run", *CONFINED, *confined, rowkind_image, "-c", script)
    assert done.stdout.split() == [], done.stderr


def test_the_image_is_no_larger_than_it_has_to_be(rowkind_image: str) -> None:
    """All layers together, unpacked, stay below the limit with a base like the official slim image."""
    assert _inspect(rowkind_image)["Size"] < LARGEST


def test_the_image_has_its_bill_of_materials(rowkind_image: str) -> None:
    """It lists every Python package of the lock file, every jar in the image, and Debian's packages."""
    where = "/opt/rowkind/share/rowkind/sbom.json"
    bill = json.loads(_docker("run", *CONFINED, "--entrypoint", "cat", rowkind_image, where).stdout)
    assert bill["bomFormat"] == "CycloneDX"
    purls = [component.get("purl", "") for component in bill["components"]]
    named = {purl.partition("@")[0] for purl in purls}
    packages = {canonicalize_name(name.removeprefix("pkg:pypi/")) for name in named if name.startswith("pkg:pypi/")}
    pinned = re.findall(r"^([\w.-]+==.*?) *\\\\$", (ROOT / "deploy" / "requirements.lock").read_text(), re.MULTILINE)
    wanted = [each for each in map(Requirement, pinned) if each.marker is None or each.marker.evaluate()]
    assert {canonicalize_name(each.name) for each in wanted} <= packages
    assert {"pkg:maven/org.apache.spark/spark-sql_2.13", "pkg:deb/debian/libc6", "pkg:generic/openjdk"} <= named
    listed = _docker("run", *CONFINED, "--entrypoint", "sh", rowkind_image, "-c", f"ls {JARS}").stdout.split()
    jars = [purl for purl in purls if purl.startswith("pkg:maven/") or purl.endswith(".jar")]
    assert len(jars) == len(listed)


def test_spark_starts_with_the_classes_that_the_image_has_ready(rowkind_image: str) -> None:
    """The class archive in the image belongs to its Java and its jars, so Spark creates no other one."""
    script = "rowkind try /opt/rowkind/lib/python3*/site-packages/rowkind/examples/shop/job.yaml --sink top_products "
    changes = "/opt/rowkind/lib/python3*/site-packages/rowkind/examples/shop/changes.jsonl"
    script += f"--changes {changes} --engine spark > /dev/null && ls .cache/rowkind /opt/rowkind/share/rowkind"
    done = _docker("run", *CONFINED, "--entrypoint", "sh", rowkind_image, "-c", script)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.findall(r"(classes-\w+\.jsa)", done.stdout)
    assert len(found) == 2, done.stdout
    assert len(set(found)) == 1, done.stdout


def _docker(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], input=text, capture_output=True, text=True, check=False, timeout=300)


def _inspect(image: str) -> dict[str, Any]:
    (found,) = json.loads(_docker("image", "inspect", image).stdout)
    return found
