"""`rowkind test --update` and `--junit`."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from tests.unit.testing.suites import ORDER, ran

TESTS = f"""
  # A comment.
  - name: written   # stays
    given: {{{ORDER}}}
    expect:   # of the only sink that is named
      debts:
        - {{id: 1, debt: 9}}
        - {{id: 2, debt: 9}}

  # The next one.
  - name: empty
    sink: minutes
    given:
      visits: [{{page: "null", at: 2026-01-01T12:00:00Z, seconds: 1.5}}, {{page: a b, at: 2026-01-01T12:00:00Z}}]
    end: true
    expect:
  - name: passes
    given: {{{ORDER}}}
    expect: {{debts: [{{debt: 10.0}}]}}   # not rewritten
  - {{name: one line, given: {{{ORDER}}}, expect: {{debts: {{changes: [{{op: -D, id: 1}}], rows: [{{debt: 1}}]}}}}}}
  - name: late
    sink: minutes
    steps:
      - given: {{visits: [{{page: a, at: 2026-01-01T12:01:05Z}}]}}
      - given: {{visits: [{{page: b, at: 2026-01-01T12:00:00Z, seconds: 1}}]}}
        expect_late:
          visits: []
"""

UPDATED = f"""
  # A comment.
  - name: written   # stays
    given: {{{ORDER}}}
    expect:   # of the only sink that is named
      debts:
        - {{id: 1, debt: 10.00}}

  # The next one.
  - name: empty
    sink: minutes
    given:
      visits: [{{page: "null", at: 2026-01-01T12:00:00Z, seconds: 1.5}}, {{page: a b, at: 2026-01-01T12:00:00Z}}]
    end: true
    expect:
      - {{page: a b, minute: 2026-01-01T12:00:00Z, visits: 1, seconds: null}}
      - {{page: "null", minute: 2026-01-01T12:00:00Z, visits: 1, seconds: 1.5}}
  - name: passes
    given: {{{ORDER}}}
    expect: {{debts: [{{debt: 10.0}}]}}   # not rewritten
  - {{name: one line, given: {{{ORDER}}}, expect: {{debts: {{changes: [{{op: +I, id: 1}}], rows: [{{debt: 10.00}}]}}}}}}
  - name: late
    sink: minutes
    steps:
      - given: {{visits: [{{page: a, at: 2026-01-01T12:01:05Z}}]}}
      - given: {{visits: [{{page: b, at: 2026-01-01T12:00:00Z, seconds: 1}}]}}
        expect_late:
          visits:
            - {{page: b, at: 2026-01-01T12:00:00Z, seconds: 1.0}}
"""


def test_update_writes_the_rows_that_were_found(tmp_path: Path) -> None:
    """Only failed expectations are replaced; comments, passing expectations and all other lines stay."""
    done = ran(tmp_path, TESTS, "--update")
    assert done.output == "job.tests.yaml: 5 expectations updated.\n5 tests passed.\n"
    assert done.text.strip() == f"tests:\n{UPDATED.strip(chr(10))}".strip()
    assert ran(tmp_path, UPDATED, "--update").output == "5 tests passed.\n"


def test_update_leaves_errors_and_cuts_alone(tmp_path: Path) -> None:
    """A test that fails for another reason than its expectations still fails, and the file stays as it was."""
    test = """
  - name: error
    sink: shares
    given: {orders: [{id: 1, amount: 0}]}
    expect: []
  - name: cut
    given: {visits: [{page: "1"}], orders: [{id: 1, customer: Ada}]}
    expect: {known: [{page: "1", customer: Ada}]}
"""
    done = ran(tmp_path, test, "--update")
    assert (done.code, done.output.splitlines()[-1]) == (1, "0 tests passed, 2 failed.")
    assert done.text == f"tests:\n{test.strip(chr(10))}\n"


def test_junit_has_every_test(tmp_path: Path) -> None:
    """The XML has the tests of the file with their lines, and the table of a failure as its text."""
    test = f"""
  - name: good
    given: {{{ORDER}}}
    expect: {{debts: [{{debt: 10}}]}}
  - name: a < b
    given: {{{ORDER}}}
    expect: {{debts: [{{debt: 11}}]}}
"""
    done = ran(tmp_path, test, "--junit", str(tmp_path / "results.xml"))
    assert done.code == 1
    (suite,) = ET.parse(tmp_path / "results.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    good, bad = suite
    assert (good.get("name"), good.get("line"), list(good)) == ("good", "2", [])
    assert (bad.get("name"), bad.get("line")) == ("a < b", "5")
    assert bad[0].get("message") == "the rows of sink debts: 1 different; 0 rows as expected"
    assert "expected  11.00" in str(bad[0].text)
