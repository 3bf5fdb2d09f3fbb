"""The tutorials, carried out as they are written: their files, their commands, and what the commands print.

A code block with a title is a file. A `console` block is a command with its output. Files named `test_*.py` are run
with pytest.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rowkind.service.cli import main

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```console\n\$ rowkind (.*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["late-data", "test-your-sql", "top-n"])
def test_a_tutorial_works_as_written(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command prints what the page shows, and every test on the page passes."""
    monkeypatch.chdir(tmp_path)
    text = (TUTORIALS / f"{page}.md").read_text()
    for name, content in FILE.findall(text):
        Path(name).write_text(content)
    commands = COMMAND.findall(text)
    for command, output in commands:
        done = CliRunner().invoke(main, shlex.split(command), prog_name="rowkind", catch_exceptions=False)
        assert done.stdout == output, command
    tests = sorted(each.name for each in tmp_path.glob("test_*.py"))
    assert commands or tests, "the page shows no command and no test"
    if tests:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *tests], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout
