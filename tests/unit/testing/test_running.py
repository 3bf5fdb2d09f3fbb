"""`rowkind test`: what passes, what fails, and what a failure prints."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rowkind.operators.columns.changes import Changes, Rows
from rowkind.service.cli import main
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.testing.run import few_collections
from tests.unit.testing.suites import DEBTS, ORDER, ran


def test_a_test_passes_with_the_short_form(tmp_path: Path) -> None:
    """Rows of a list and of CSV are given, and only the named columns are compared."""
    done = ran(
        tmp_path,
        f"""
  - name: payments reduce the debt
    given:
      {ORDER}
      payments: |
        id, order_id, paid
        7,  1,        4.00
        8,  1,
    expect: {{debts: [{{id: 1, debt: 6}}]}}
""",
    )
    assert (done.code, done.output, done.errors) == (0, "1 test passed.\n", "")


def test_a_failure_is_a_table_of_differences(tmp_path: Path) -> None:
    """A pair has its differing cells marked; rows without a counterpart are missing or unexpected."""
    done = ran(
        tmp_path,
        """
  - name: debts
    description: Orders without payments.
    given:
      orders: [{id: 1, customer: Ada, amount: 10}, {id: 2, amount: null}, {id: 3, customer: Eve, amount: 3}]
    expect:
      debts:
        - {id: 1, customer: Ada, debt: 10.50}
        - {id: 2, customer: "", debt: null}
        - {id: 4, customer: Max, debt: 1}
""",
    )
    assert done.code == 1
    assert done.output.splitlines() == [
        "FAILED debts",
        "  Orders without payments.",
        "  job.tests.yaml:7: the rows of sink debts: 1 different, 1 missing, 1 unexpected; 1 row as expected",
        "                  id  customer  debt",
        "      expected    1   Ada       10.50",
        "      actual      1   Ada       10.00",
        "                                ^^^^^",
        "      missing     4   Max       1.00",
        "      unexpected  3   Eve       3.00",
        "",
        "0 tests passed, 1 failed.",
    ]


def test_values_are_compared_by_the_types_of_the_result(tmp_path: Path) -> None:
    """Decimals of other scales, times in other forms, close floats and NULLs are equal; NULL equals nothing else."""
    visits = (
        "visits: [{page: a, at: 2026-01-01T12:00:01Z, seconds: 0.1}, {page: a, at: 2026-01-01T12:00:02Z, seconds: 0.2}]"
    )
    expected = "[{minute: '2026-01-01 12:00:00.000', seconds: 0.3}]"
    alike = f"  - name: times\n    given: {{{visits}}}\n    end: true\n    expect: {{minutes: {expected}}}"
    other = f"  - name: other\n    given: {{{visits}}}\n    end: true\n    expect: {{minutes: [{{seconds: null}}]}}"
    assert ran(tmp_path, alike).code == 0
    assert "expected  NULL\n" in ran(tmp_path, other).output


def test_rows_are_a_multiset(tmp_path: Path) -> None:
    """Equal rows count, and their order does not."""
    test = """
  - name: payers
    given:
      payments: [{id: 1, order_id: 5}, {id: 2, order_id: 6}, {id: 3, order_id: 5}]
    expect: {payers: [{order_id: 5}, %s{order_id: 6}]}
"""
    assert ran(tmp_path, test % "{order_id: 5}, ").code == 0
    done = ran(tmp_path, test % "")
    assert "1 unexpected; 2 rows as expected" in done.output


def test_changes_are_those_of_the_step(tmp_path: Path) -> None:
    """A step's changes are its net changes; a change that is not emitted and one that is not expected fail."""
    test = f"""
  - name: changes
    steps:
      - given: {{{ORDER}}}
      - given: {{payments: [{{id: 7, order_id: 1, paid: 4}}, {{id: 8, order_id: 1, paid: 1}}]}}
        expect: {{debts: {{changes: [{{op: OP, id: 1, debt: 5}}]}}}}
"""
    assert ran(tmp_path, test.replace("OP", "+U")).code == 0
    done = ran(tmp_path, test.replace("OP", "+I"))
    assert "step 2: the changes of sink debts: 1 different" in done.output
    assert "expected  +I  1   5.00" in done.output


def test_the_changes_of_a_key_have_an_order(tmp_path: Path) -> None:
    """With several batches in a step, changes of one key in another order fail, and changes of other keys do not."""
    test = """
  - name: order
    cut: each
    given: {orders: [{id: 1, amount: 1}, {op: +U, id: 1, amount: 2}, {id: 2, amount: 5}]}
    expect: {debts: {changes: [%s]}}
"""
    right = ["{op: +I, id: 2}", "{op: +I, id: 1, debt: 1}", "{op: +U, id: 1, debt: 2}"]
    assert ran(tmp_path, test % ", ".join(right)).code == 0
    done = ran(tmp_path, test % ", ".join(reversed(right)))
    assert "the order differs: {op: +I, id: 1, customer: , debt: 1.00} was emitted before {op: +U" in done.output


def test_a_retraction_needs_only_its_key(tmp_path: Path) -> None:
    """The other columns of a retracted row are those of the last row with its key; the key itself must be given."""
    test = """
  - name: moved
    given:
      payments: [{id: 7, order_id: 1, paid: 4}, {op: -U, %s}, {op: +U, id: 7, order_id: 2}]
    expect: {payers: [{order_id: 2}]}
"""
    assert ran(tmp_path, test % "id: 7").code == 0
    done = ran(tmp_path, test % "order_id: 1")
    assert (done.code, done.errors) == (
        2,
        "rowkind: job.tests.yaml:4: tests.0.given.payments.1: id is missing: a row of payments needs its primary key\n",
    )


def test_late_rows_are_named(tmp_path: Path) -> None:
    """Late rows are compared, even if several of one group are late in one batch; other late rows fail."""
    test = """
  - name: late
    steps:
      - given: {visits: [{page: a, at: 2026-01-01T12:00:20Z}, {page: a, at: 2026-01-01T12:01:05Z}]}
      - given:
          visits:
            - {page: a, at: 2026-01-01T12:00:50Z, seconds: 1}
            - {page: a, at: 2026-01-01T12:00:51Z, seconds: 2}
            - {page: a, at: 2026-01-01T12:01:00Z, seconds: 3}
        expect_late: {visits: [%s]}
        expect: {minutes: [{visits: 1}]}
"""
    assert ran(tmp_path, test % "{seconds: 1}, {seconds: 2}").code == 0
    done = ran(tmp_path, test % "{seconds: 1}")
    assert "step 2: the late rows of table visits: 1 unexpected; 1 row as expected" in done.output


def test_an_error_is_expected_by_a_part_of_its_message(tmp_path: Path) -> None:
    """The expected error passes; another one, none, and an unexpected one fail with the message."""
    test = "  - name: error\n    sink: shares\n    given: {orders: [{id: 1, amount: %s}]}\n    %s"
    assert ran(tmp_path, test % (0, "expect_error: zero")).code == 0
    assert "with the text: zero" in ran(tmp_path, test % (1, "expect_error: zero")).output
    assert "The error is: " in ran(tmp_path, test % (0, "expect_error: other")).output
    assert "the job failed: " in ran(tmp_path, test % (0, "expect: []")).output


def test_a_step_restarts_and_moves_the_clock(tmp_path: Path) -> None:
    """State survives a restart, and a row expires when the clock has moved past its TTL."""
    job = "ttl: 1h\n"
    test = f"""
  - name: ttl
    steps:
      - given: {{{ORDER}}}
      - restart: true
        at: +59m
        given: {{payments: [{{id: 7, order_id: 1, paid: 4}}]}}
        expect: {{debts: [{{debt: 6}}]}}
      - at: +2h
        given: {{payments: [{{id: 8, order_id: 1, paid: 1}}]}}
        expect: {{debts: [{{debt: %s}}]}}
"""
    assert ran(tmp_path, test % 6, job=DEBTS.replace("job: debts\n", f"job: debts\n{job}")).code == 0
    assert ran(tmp_path, test % 6).code == 1
    assert ran(tmp_path, test % 5).code == 0


def test_a_result_that_depends_on_the_batches_fails(tmp_path: Path) -> None:
    """The failure names the cut and shows both results; with `cut`, the test runs only as written."""
    test = """
  - name: processing time
    %sgiven:
      visits: [{page: "1"}]
      orders: [{id: 1, customer: Ada}]
    expect: {known: [{page: "1", customer: Ada}]}
"""
    done = ran(tmp_path, test % "")
    assert done.code == 1
    assert "with each row in its own batch, the rows of sink known are not those of one batch per step" in done.output
    assert "one batch per step  1     Ada\n      this cut            1     NULL\n" in done.output
    assert ran(tmp_path, test % "cut: one\n    ").code == 0


def test_steps_at_one_time_are_also_run_as_one_batch(tmp_path: Path) -> None:
    """Steps without `at` between them are joined, so a result that needs several batches fails."""
    test = """
  - name: processing time
    steps:
      - given: {visits: [{page: "1"}]}
      - %sgiven: {orders: [{id: 1, customer: Ada}]}
        expect: {known: [{page: "1", customer: null}]}
"""
    assert "step 2: with all rows at one time in one batch, the rows" in ran(tmp_path, test % "").output
    assert ran(tmp_path, test % "at: +1s\n        ").code == 0


def test_tests_are_chosen_and_the_first_failure_ends_the_run(tmp_path: Path) -> None:
    """-k runs the tests whose name contains a text, and -x stops after the first failed test."""
    tests = "\n".join(
        f"  - name: {name}\n    given: {{{ORDER}}}\n    expect: {{debts: [{{debt: {debt}}}]}}"
        for name, debt in (("one", 1), ("Ten", 10), ("two", 2))
    )
    assert ran(tmp_path, tests).output.endswith("1 test passed, 2 failed.\n")
    assert ran(tmp_path, tests, "-k", "ten").output == "1 test passed.\n"
    assert ran(tmp_path, tests, "-x").output.endswith("0 tests passed, 1 failed.\n")
    none = ran(tmp_path, tests, "-k", "eleven")
    assert (none.code, none.errors) == (2, "rowkind: no test of job.yaml has a name that contains 'eleven'\n")


def test_one_test_covers_several_sinks_and_a_column_named_op(tmp_path: Path) -> None:
    """Sinks are named in `expect`, even one named `rows`; where a column is `op`, the row kind is `__op`."""
    job = """
job: j
tables: {t: {mode: retract, primary_key: id, columns: {id: INT, op: STRING, tags: ARRAY<STRING>}}}
sinks:
  rows: {mode: retract, sql: "SELECT op, COUNT(*) AS n FROM t GROUP BY op"}
  tags: {mode: retract, sql: "SELECT id, op, tags FROM t"}
"""
    test = """
  - name: ops
    given:
      t: |
        __op, id, op, tags
        +I,   1,  x,  "[""a"", ""b""]"
        +I,   2,  y,
        -D,   2
    expect:
      rows: [{op: x, n: 1}]
      tags: {changes: [{__op: +I, op: x, tags: [a, b]}]}
"""
    bad = ran(tmp_path, test, job=job)
    assert "job.tests.yaml:8: tests.0.given.t.2: the line has 2 cells, but the header has 4" in bad.errors
    assert ran(tmp_path, test.replace("-D,   2\n", "-D,   2,  ,\n"), job=job).output == "1 test passed.\n"
    wrong = test.replace("        -D,   2\n", "").replace("[a, b]", "[a, c]")
    assert 'expected    +I  x   ["a", "c"]' in ran(tmp_path, wrong, job=job).output


def test_a_terminal_shows_colours(tmp_path: Path) -> None:
    """On a terminal the table has colours, and its columns are aligned as without them."""
    text = f"tests:\n  - name: t\n    given: {{{ORDER}}}\n    expect: {{debts: [{{id: 1, debt: 1}}]}}\n"
    (tmp_path / "job.yaml").write_text(DEBTS)
    (tmp_path / "job.tests.yaml").write_text(text)
    done = CliRunner().invoke(main, ["test", str(tmp_path / "job.yaml")], prog_name="rowkind", color=True)
    assert "\x1b[33m\x1b[1m10.00\x1b[0m" in done.output
    assert "  expected  1   1.00\n" in click.unstyle(done.output)


def test_a_test_has_a_batch_per_step_a_batch_per_row_and_one_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of batches, and with it the time of a test, is the smallest that the three cuts allow."""
    counts: list[int] = []
    batch = MemoryEngine.batch

    def counted(self: MemoryEngine, rows: Mapping[str, Rows], now: int, *, ended: bool = False) -> dict[str, Changes]:
        counts.append(sum(map(len, rows.values())))
        return batch(self, rows, now, ended=ended)

    monkeypatch.setattr(MemoryEngine, "batch", counted)
    one = "{given: {orders: [{id: 1, amount: 10}, {id: 2, amount: 3}]}, expect: {debts: [{id: 1}, {id: 2}]}}"
    two = "{given: {orders: [{id: 3, amount: 1}]}, expect: {debts: [{id: 1}, {id: 2}, {id: 3}]}}"
    assert ran(tmp_path, f"  - name: one step\n    steps: [{one}]").code == 0
    assert counts == [2, 1, 1]
    counts.clear()
    assert ran(tmp_path, f"  - name: two steps\n    steps: [{one}, {two}]").code == 0
    assert counts == [2, 1, 1, 1, 1, 3]
    counts.clear()
    assert ran(tmp_path, f"  - name: as written\n    cut: one\n    steps: [{one}, {two}]").code == 0
    assert counts == [2, 1]


def test_the_settings_of_garbage_collection_are_restored() -> None:
    """During the tests, Python rarely looks for unreachable objects; afterwards, as often as before."""
    before = gc.get_threshold()
    with few_collections():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
