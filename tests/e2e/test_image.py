"""The product's image as a cluster would run it: without rights, without a writable root, stopped by SIGTERM."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.e2e.containers import ROOT

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers")]

# Everything that a pod of the Helm chart takes away.
CONFINED = ("--rm", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


def test_the_image_runs_as_a_numbered_user_without_rights(rowkind_image: str) -> None:
    """The user is a number that is not 0, so that Kubernetes can check it before it starts the container."""
    assert _inspect(rowkind_image)["Config"]["User"] == "10001:10001"


def test_the_image_prints_its_help_on_a_read_only_root_without_network(rowkind_image: str) -> None:
    """The command works with nothing writable but /tmp and no capability."""
    done = _docker("run", *CONFINED, "--network", "none", rowkind_image, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: rowkind" in done.stdout


def test_a_job_file_that_is_not_there_is_refused_with_code_2(rowkind_image: str) -> None:
    """The command's exit code is the container's."""
    done = _docker("run", *CONFINED, "--network", "none", rowkind_image, "check", "/nowhere/job.yaml")
    assert done.returncode == 2, done.stderr
    assert "/nowhere/job.yaml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("engine", ["memory", "spark"])
def test_the_image_tries_the_example_on_either_engine(rowkind_image: str, engine: str) -> None:
    """The image has what a job needs: for Spark that is Java, a name for the user, and RocksDB with /tmp noexec."""
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
    """Labels, the exec form of the entry point and a health check that asks /healthz are part of the image."""
    config = _inspect(rowkind_image)["Config"]
    assert config["Entrypoint"] == ["rowkind"]
    assert config["Labels"]["org.opencontainers.image.title"] == "Rowkind"
    assert "/healthz" in " ".join(config["Healthcheck"]["Test"])


def test_no_test_tool_is_in_the_image(rowkind_image: str) -> None:
    """Only what a job runs with is installed: no pip, no pytest, no linters."""
    program = """if True:
        from importlib.util import find_spec
        print([tool for tool in ("pip", "pytest", "mypy", "ruff", "testcontainers") if find_spec(tool)])
    """
    done = _docker("run", *CONFINED, "--network", "none", "--entrypoint", "python3", rowkind_image, "-c", program)
    assert done.stdout.strip() == "[]", done.stderr


def _docker(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], input=text, capture_output=True, text=True, check=False, timeout=300)


def _inspect(image: str) -> dict[str, dict[str, object]]:
    (found,) = json.loads(_docker("image", "inspect", image).stdout)
    return found
