"""docs/explanation/row-patterns.md and the example that it describes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from rowkind.service.cli import main
from rowkind.service.job.load import load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "row-patterns.md").read_text()
EXAMPLE = ROOT / "examples" / "dips"


def test_the_query_of_the_page_is_that_of_the_example() -> None:
    """The page has the SQL of the example, and the example has the watermark that the page mentions."""
    (sql,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    assert load(EXAMPLE / "job.yaml", {}).sinks["dips"].sql.strip() == sql.strip()
    assert "watermark: {column: at, delay: 2s}" in (EXAMPLE / "job.yaml").read_text()


def test_the_prices_of_the_page_give_what_its_table_says() -> None:
    """The drawing has the prices of the changes, and `try` gives the page's row with the eleventh change."""
    changes = [json.loads(line)["row"] for line in (EXAMPLE / "changes.jsonl").read_text().splitlines()]
    drawn = {
        (round((place - 2) / 4), int(price))
        for price, line in re.findall(r"^ (\d+) \|(.*)$", PAGE, re.MULTILINE)
        for place, mark in enumerate(line)
        if mark == "*"
    }
    assert drawn == {(int(each["at"][17:19]), each["price"]) for each in changes}
    arguments = ["try", str(EXAMPLE / "job.yaml"), "--changes", str(EXAMPLE / "changes.jsonl")]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    (found,) = map(json.loads, result.stdout.splitlines())
    assert (found["batch"], changes[10]["at"]) == (10, "2026-01-01T12:00:11Z")
    assert f"| {' | '.join(map(str, found['row'].values()))} |" in PAGE


def test_every_file_that_the_page_names_exists() -> None:
    """Every file that the page links to exists."""
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / "explanation" / target).exists(), target
