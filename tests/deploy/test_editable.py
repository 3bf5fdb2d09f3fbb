"""An editable installation, as a developer makes it: type checkers see the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.deploy.building import PARTS, ROOT, run

PROGRAM = """
import rowkind
from rowkind.client import Producer

job = rowkind.Job("job.yaml")
reveal_type(job.try_([]).to_arrow)
reveal_type(job.start().wait_ready())
reveal_type(job.changes("orders").follow)
rowkind.Nope
"""


def test_mypy_sees_an_editable_installation(tmp_path: Path) -> None:
    """A type checker finds the package and its types through the installation, and refuses an unknown name."""
    source, program, place = tmp_path / "source", tmp_path / "program.py", tmp_path / "venv"
    source.mkdir()
    for part in PARTS:
        (source / part).symlink_to(ROOT / part) if part != "rowkind" else shutil.copytree(
            ROOT / part, source / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    program.write_text(PROGRAM)
    run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, place)
    (packages,) = place.glob("lib/python3.*/site-packages")
    # The build tool and the libraries come from this environment, so that nothing is downloaded.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    python = place / "bin" / "python"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--python", python]
    run(sys.executable, "-m", "uv", "pip", "install", *options, "--editable", source)
    command = [sys.executable, "-m", "mypy", "--python-executable", python, "--cache-dir", tmp_path / "cache", program]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    said = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    ).stdout
    assert "def () -> Any" in said, said
    assert '"rowkind.service.library.running_job.StartedJob"' in said
    assert '"bool"' in said, said
    assert 'Module has no attribute "Nope"' in said
    assert "Found 1 error in 1 file" in said
