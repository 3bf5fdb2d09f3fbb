"""The documentation site."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUIET = {"NO_MKDOCS_2_WARNING": "1"}


def test_the_site_is_built_and_no_link_leads_nowhere(tmp_path: Path) -> None:
    """`make docs` succeeds, including its checks of links to headings and to files of the repository."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **QUIET})
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (ROOT / "docs").glob("*.md"):
        assert (tmp_path / page.stem / "index.html").exists()
