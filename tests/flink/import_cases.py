"""Scripts in Flink SQL and the expected job files: `scripts/<name>.sql` and `scripts/<name>.yaml`."""

from __future__ import annotations

from pathlib import Path

from rowkind.service.flink.job_file import Imported, imported

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.sql"))


def made_of(script: Path) -> Imported:
    """Return the result of importing a script."""
    return imported(script.name, script.read_text())
