"""The SQL tests of the examples, which pytest collects with Rowkind's plugin."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.examples.jobs import EXAMPLES

JOBS = sorted(EXAMPLES.glob("*/job.yaml"))
PLUGIN = "rowkind.service.testing.pytest_plugin"


def pytest_on(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin alone, whether or not it is installed as an entry point."""
    plugin = ["-p", "no:rowkind", "-p", PLUGIN, "-p", "no:cacheprovider", "-v"]
    command = [sys.executable, "-m", "pytest", *plugin, f"--rootdir={folder}", "-c", "/dev/null"]
    return subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)


def test_the_tests_of_all_examples_pass() -> None:
    """Each example has at least two tests, and all of them pass."""
    done = pytest_on(EXAMPLES)
    assert done.returncode == 0, done.stdout + done.stderr
    for job in JOBS:
        passed = re.findall(rf"^\S*{job.parent.name}/job\.tests\.yaml::.* PASSED", done.stdout, re.MULTILINE)
        assert len(passed) >= 2, f"{job.parent.name}: {done.stdout}"


JOB = """
job: j
tables: {t: {mode: append, columns: {a: INT}}}
sinks: {s: {mode: retract, sql: SELECT SUM(a) AS total FROM t}}
"""


def test_pytest_shows_a_failed_sql_test(tmp_path: Path) -> None:
    """A failure is the table of differences without a stack trace, and Spark is not loaded."""
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "job.tests.yaml").write_text(
        "tests:\n"
        "  - {name: the sum, given: {t: [{a: 1}, {a: 2}]}, expect: [{total: 3}]}\n"
        "  - {name: a wrong sum, given: {t: [{a: 1}, {a: 2}]}, expect: [{total: 4}]}\n"
    )
    (tmp_path / "other.yaml").write_text("tests: []")
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_sessionfinish(session):\n    assert 'pyspark' not in sys.modules, 'Spark is loaded'\n"
    )
    done = pytest_on(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "job.tests.yaml:3: the rows of sink s: 1 different; 0 rows as expected" in done.stdout
    assert "expected  4\n" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "run.py" not in done.stdout


def test_pytest_reports_a_file_that_is_not_valid(tmp_path: Path) -> None:
    """A mistake in a file of tests, a job with a mistake, and a file without a job are errors of the collection."""
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "job.tests.yaml").write_text("tests:\n  - {name: the sum, expect: [{sum: 3}]}\n")
    (tmp_path / "bad.yaml").write_text(JOB.replace("SUM(a)", "SUM(b)"))
    (tmp_path / "bad.tests.yaml").write_text("tests:\n  - {name: the sum, expect: [{total: 3}]}\n")
    (tmp_path / "lost.tests.yaml").write_text("tests: []")
    done = pytest_on(tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "job.tests.yaml:2: tests.0.expect.0: there is no column 'sum'; the columns are total" in done.stdout
    assert "bad.yaml:4: sinks.s.sql: " in done.stdout
    assert "lost.tests.yaml has no job: there is no " in done.stdout
    assert "Traceback" not in done.stdout


def test_pytest_loads_little_of_rowkind_without_such_files(tmp_path: Path) -> None:
    """The plugin is loaded in every run of pytest, so it imports the rest of Rowkind only for files of tests."""
    (tmp_path / "test_loaded.py").write_text(
        "import sys\ndef test_loaded():\n"
        "    own = {each for each in sys.modules if each.startswith('rowkind.')}\n"
        "    assert own <= {'rowkind.errors', 'rowkind.version', 'rowkind.service', 'rowkind.service.testing',\n"
        "                   'rowkind.service.testing.pytest_plugin'}, own\n"
        "    assert not {'pyarrow', 'duckdb', 'pyspark', 'ruamel'} & {*sys.modules}\n"
    )
    done = pytest_on(tmp_path)
    assert done.returncode == 0, done.stdout
