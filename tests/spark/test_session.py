from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rowkind.service.spark.session import archive


def test_executors_get_the_packages_as_they_run_here(tmp_path: Path) -> None:
    """The archive sent to a cluster's executors has everything that Python needs to import Rowkind's packages."""
    archive(tmp_path / "rowkind.zip")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import rowkind.operators.columns.changes, rowkind.avro, rowkind.service.spark.cache\n"
        "from importlib import resources\n"
        "assert (resources.files('rowkind.service.spark') / 'log4j2.properties').is_file()\n"
        "print(rowkind.operators.columns.changes.__file__, rowkind.avro.__file__, rowkind.service.spark.cache.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "rowkind.zip")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("rowkind.zip") == 3
