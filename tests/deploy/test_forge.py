"""The files that GitHub reads are valid, and refer only to targets and files that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORGE = ROOT / ".github"
WORKFLOWS = sorted((FORGE / "workflows").glob("*.yaml"))
FORMS = sorted((FORGE / "ISSUE_TEMPLATE").glob("*.yaml"))


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("custom.github-workflows-require-timeout", WORKFLOWS),
        ("vendor.github-workflows", WORKFLOWS),
        ("vendor.github-issue-forms", FORMS),
        ("vendor.github-issue-config", [FORGE / "ISSUE_TEMPLATE" / "config.yml"]),
        ("vendor.dependabot", [FORGE / "dependabot.yml"]),
        ("vendor.compose-spec", [ROOT / "deploy" / "compose.yaml"]),
    ],
)
def test_it_is_what_its_schema_says(schema: str, files: list[Path]) -> None:
    """An invalid workflow would otherwise be noticed only when a release is due."""
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_its_steps_call_what_is_there(workflow: Path) -> None:
    """Each make target and each file in a workflow exists, and actions are pinned to commits."""
    text = workflow.read_text()
    assert not re.findall(r"uses: (?!\S+@[0-9a-f]{40} # v).*", text)
    targets = set(
        re.findall(r"^([\w./-]+):(?!=)", (ROOT / "Makefile").read_text().replace("$(VENV)", ".venv"), re.MULTILINE)
    )
    called = set(re.findall(r"\bmake ([\w./-]+)", text))
    files = set(re.findall(r"(?<![\w/.])(?:tests|deploy|examples|\.ci)/[\w./-]*\w", text))
    assert called <= targets
    assert all((ROOT / name).exists() for name in files), files
    assert called or files
