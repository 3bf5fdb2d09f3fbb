"""Files of tests that are not valid: exit code 2, and a message with file and line for each problem."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rowkind.service.cli import main
from rowkind.service.multi.multi_job import Several
from tests.unit.testing.suites import ORDER, ran

HEAD = "  - name: t\n    sink: debts\n"


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("  - given: {}", "job.tests.yaml:2: tests.0: name is missing: a sentence that says what the test shows"),
        ("  - {name: t}", "2: tests.0: set `sink`: the test names none of the sinks debts, payers,"),
        ("  - {name: t, sink: debt}", "2: tests.0.sink: there is no sink 'debt'; did you mean debts?"),
        (f"{HEAD}    expects: []", "4: tests.0.expects: unknown setting 'expects'; did you mean expect?"),
        (f"{HEAD}    steps: []\n    at: 2026-01-02", "at belongs to a step here, because the test has steps"),
        (
            f"{HEAD}    given: {{order: []}}",
            "4: tests.0.given.order: there is no table 'order'; did you mean orders?",
        ),
        (f"{HEAD}    given:\n      orders:\n        - 5", "6: tests.0.given.orders.0: found 5: expected a row"),
        (f"{HEAD}    given: {{orders: [{{id: x}}]}}", 'tests.0.given.orders.0: id: "x" is not BIGINT'),
        (
            f"{HEAD}    given: {{orders: [{{id: 1, name: x}}]}}",
            "there is no column 'name'; the columns are id, customer",
        ),
        (f"{HEAD}    given: {{orders: [{{id: 1, op: -U}}]}}", "op '-U' is not allowed in a table with mode upsert"),
        (f"{HEAD}    given: {{orders: [{{id: 1, customer: 2026-01-01}}]}}", "is not STRING: put the text in quotes"),
        (
            f"{HEAD}    given:\n      orders: |\n        id,amount\n        1,2\n        3",
            "8: tests.0.given.orders.1: the line has 1 cells, but the header has 2",
        ),
        (f"{HEAD}    expect: [{{debt: x}}]", '4: tests.0.expect.0: debt: "x" is not DECIMAL'),
        (f"{HEAD}    expect: [{{dept: 1}}]", "there is no column 'dept'; the columns are id, customer, debt"),
        (f"{HEAD}    expect: [{{id: 1}}, {{debt: 1}}]", "all rows of a result must name the same columns"),
        (f"{HEAD}    expect: {{changes: [{{id: 1}}]}}", "op is missing: the row kind of the change"),
        (f"{HEAD}    expect: [{{}}]", "the row names no column"),
        (
            "  - {name: t, expect: [{id: 1}]}",
            "these rows belong to no sink: set `sink` in the test, or write them below the name of a sink: debts,",
        ),
        (f"{HEAD}    at: soon", '"soon" is not a time such as 2026-01-31T12:00:00Z'),
        (f"{HEAD}    at: +soon", "'soon' is not a length of time such as 30d"),
        (f"{HEAD}    steps: [{{at: 2026-01-02}}, {{at: 2026-01-01}}]", "the clock must not go back"),
        (f"{HEAD}    cut: 0", "found 0: expected each, one, or a number of rows per batch"),
        (f"{HEAD}    restart: soon", "found 'soon': expected true or false"),
        (f"{HEAD}    steps: [{{end: true}}, {{given: {{}}}}]", "no step may follow a step with `end`"),
        (f"{HEAD}    expect: []\n    expect_error: x", "a step with `expect_error` has no result"),
        (f"{HEAD}\n{HEAD}", "5: tests.1: there are two tests named 't': give each its own name"),
        ("  []", "tests is missing or empty: a list of tests, each with a name"),
        ("  - [", "the file is not valid YAML"),
    ],
)
def test_a_mistake_in_a_file_has_its_line(test: str, message: str, tmp_path: Path) -> None:
    """The message names the file, the line, the place in the document and what is expected."""
    done = ran(tmp_path, test)
    assert done.code == 2, done.output
    assert "rowkind: job.tests.yaml:" in done.errors
    assert message in done.errors


def test_all_mistakes_are_reported(tmp_path: Path) -> None:
    """Problems of several tests are reported at once, in the order of their lines."""
    done = ran(tmp_path, f"{HEAD}    cut: no\n  - name: u\n    {ORDER}\n  - {{name: v, given: {{orders: [{{}}]}}}}")
    first, second, third = (line.removeprefix("rowkind: ") for line in done.errors.splitlines())
    assert first == "job.tests.yaml:4: tests.0.cut: found 'no': expected each, one, or a number of rows per batch"
    assert second.startswith(
        "job.tests.yaml:6: tests.1.orders: unknown setting 'orders'; available: name, description, "
    )
    assert third == "job.tests.yaml:7: tests.2.given.orders.0: id is missing: a row of orders needs its primary key"


def test_a_job_without_tests_says_where_they_belong(tmp_path: Path) -> None:
    """Without a file beside the job, the message names the file to write."""
    (tmp_path / "job.yaml").write_text(
        "job: j\ntables: {t: {mode: append, columns: {a: INT}}}\nsinks: {s: {mode: append, sql: SELECT a FROM t}}\n"
    )
    done = CliRunner().invoke(main, ["test", str(tmp_path / "job.yaml")], prog_name="rowkind")
    assert done.exit_code == 2
    assert f"has no tests: write them in {tmp_path / 'job.tests.yaml'}, or name a file of tests" in done.stderr


def test_a_job_has_several_files_of_tests(tmp_path: Path) -> None:
    """`job.tests.yaml` and `job.*.tests.yaml` are run, and other files only if they are named."""
    for name in ("job.more.tests.yaml", "other.tests.yaml"):
        (tmp_path / name).write_text(f"tests:\n{HEAD}    given: {{{ORDER}}}\n    expect: [{{debt: 10}}]\n")
    assert ran(tmp_path, HEAD).output == "2 tests passed.\n"
    assert ran(tmp_path, HEAD, str(tmp_path / "other.tests.yaml")).output == "1 test passed.\n"


def test_a_service_of_several_jobs_ignores_files_of_tests(tmp_path: Path) -> None:
    """In a folder of jobs, only the other YAML files are jobs. A named file is read, and refused by name."""
    for name in ("a.yaml", "a.tests.yaml", "a.more.tests.yaml", "b.yml"):
        (tmp_path / name).touch()
    assert [file.name for file, _ in Several(tmp_path, upgrades=False)._texts()] == ["a.yaml", "b.yml"]
    named = tmp_path / "a.tests.yaml"
    assert [file for file, _ in Several(named, upgrades=False)._texts()] == [named]
