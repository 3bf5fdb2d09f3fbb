"""What the README shows is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from rowkind.service.job.load import load
from rowkind.service.metrics import METRICS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples" / "orders-payments" / "job.yaml"


def test_the_job_in_the_readme_is_the_example() -> None:
    """The YAML of the README is the example's file without the comment at its head."""
    (_, shown) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    text = EXAMPLE.read_text()
    assert shown == text[text.index("job: ") :]


def test_the_example_is_a_valid_job_with_nothing_set() -> None:
    """Its references have defaults, so that it loads in an empty environment."""
    job = load(EXAMPLE, {})
    assert job.name == "orders-payments"
    assert set(job.sinks) == {"order_payments", "paid_orders"}


def test_every_metric_that_the_readme_names_exists() -> None:
    """No name of a metric is misspelled or outlived."""
    named = set(re.findall(r"\browkind_[a-z_]+", README))
    assert named
    assert named <= {metric.name for metric in METRICS}


def test_every_link_to_a_file_leads_somewhere() -> None:
    """The files that the documents link to exist."""
    for document in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / document).read_text()):
            assert (ROOT / target).exists(), f"{document}: {target}"
