"""What docs/explanation/time.md shows is what there is."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from rowkind.service.cli import main
from rowkind.service.execute.metrics import METRICS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "time.md").read_text()
EXAMPLE = ROOT / "examples" / "takings"


@pytest.mark.parametrize(("sink", "column"), [("so_far", 2), ("final", 3)])
def test_the_sales_of_the_page_give_what_its_table_says(sink: str, column: int) -> None:
    """Row by row, the table on the page has the changes of each sink and the watermark."""
    arguments = [
        "try",
        str(EXAMPLE / "job.yaml"),
        "--changes",
        str(EXAMPLE / "changes.jsonl"),
        "--sink",
        sink,
        "--open",
    ]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    said = [json.loads(line) for line in result.stdout.splitlines()]
    sales = [json.loads(line)["row"] for line in (EXAMPLE / "changes.jsonl").read_text().splitlines()]
    shown = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in re.findall(r"^\| \d+ at .*", PAGE, re.MULTILINE)
    ]
    assert len(shown) == len(sales)
    watermark = datetime.min.replace(tzinfo=UTC)
    for number, (sale, cells) in enumerate(zip(sales, shown, strict=True)):
        at = datetime.fromisoformat(sale["at"])
        watermark = max(watermark, at - timedelta(seconds=5))
        changes = [
            f"`{each['op']}` {each['row']['minute'][11:16]} → {each['row']['amount']}"
            for each in said
            if each["batch"] == number
        ]
        assert cells[:2] == [f"{sale['amount']} at {at:%H:%M:%S}", f"{watermark:%H:%M:%S}"]
        assert [cells[column]] == (changes or [cells[column] if cells[column] in ("", "nothing, it is late") else ""])


def test_what_the_page_shows_of_the_job_and_its_plan_is_there() -> None:
    """The YAML on the page is part of the example, and its plan is part of the output of `explain --full`."""
    (yaml,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    job = (EXAMPLE / "job.yaml").read_text()
    assert all(line.strip() in job for line in yaml.splitlines())
    (plan,) = re.findall(r"```\n(└─.*?)```", PAGE, re.DOTALL)
    result = CliRunner().invoke(main, ["explain", "--full", str(EXAMPLE / "job.yaml")], catch_exceptions=False)
    assert plan in result.stdout


def test_every_metric_and_file_that_the_page_names_exists() -> None:
    """Every metric and file that the page mentions exists."""
    assert set(re.findall(r"\browkind_[a-z_]+", PAGE)) <= {metric.name for metric in METRICS}
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / "explanation" / target).exists(), target
