"""The tutorials, carried out as they are written: their files, their commands, and what the commands print.

A code block with a title is a file. A `console` block is a command with its output on a terminal. Files named
`test_*.py` are run with pytest.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from rowkind.service.cli import main
from tests.deploy.chart import NEEDS_HELM, objects

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```console\n\$ rowkind ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["late-data", "test-your-sql", "top-n"])
def test_a_tutorial_works_as_written(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command prints what the page shows, and every test on the page passes."""
    monkeypatch.chdir(tmp_path)
    text = (TUTORIALS / f"{page}.md").read_text()
    for name, content in FILE.findall(text):
        Path(name).write_text(content)
    commands = COMMAND.findall(text)
    for command, output in commands:
        on_a_terminal = ["--output", "table"] if command.startswith("try ") else []
        arguments = [*shlex.split(command), *on_a_terminal]
        done = CliRunner().invoke(main, arguments, prog_name="rowkind", catch_exceptions=False)
        assert done.stdout == output, f"{command}\n{done.output}"
    tests = sorted(each.name for each in tmp_path.glob("test_*.py"))
    assert commands or tests, "the page shows no command and no test"
    if tests:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *tests], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout


@NEEDS_HELM
def test_the_release_of_the_kubernetes_tutorial(tmp_path: Path) -> None:
    """The job can run, helm accepts the values, and the page's commands name the pod of the release."""
    text = (TUTORIALS / "kubernetes.md").read_text()
    files = dict(FILE.findall(text))
    job = tmp_path / "job.yaml"
    job.write_text(files["job.yaml"])
    checked = CliRunner(env={"KAFKA_PASSWORD": "unused"}).invoke(main, ["check", str(job)], prog_name="rowkind")
    assert checked.exit_code == 0, checked.output
    values = YAML(typ="safe").load(files["values.yaml"])
    made = objects(**values, job=files["job.yaml"], schemas={}, secretFiles=[])
    (name,) = (each["metadata"]["name"] for each in made if each["kind"] == "StatefulSet")
    assert set(re.findall(r"\bshop-[\w-]*\d\b", text)) == {f"{name}-0"}
    assert f"statefulset {name}\n" in text
