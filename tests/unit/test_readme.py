"""The README and the docs, compared with the code and the examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rowkind.service.cli import main
from rowkind.service.execute.metrics import METRICS
from rowkind.service.job.load import load
from rowkind.service.verify.report import write_metrics

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCS = sorted((ROOT / "docs").rglob("*.md"))
EXAMPLE = ROOT / "examples" / "orders-payments" / "job.yaml"
EXAMPLES = sorted((ROOT / "examples").glob("*/job.yaml"))
ON_EXAMPLES = sorted(
    {
        command.strip()
        for page in [ROOT / "README.md", *DOCS, *EXAMPLES]
        for command in re.findall(r"\b(rowkind (?:check|explain|try) examples/.*)$", page.read_text(), re.MULTILINE)
    }
)
"""Commands on an example in the docs and the examples that need no other service."""


def yaml(document: str) -> str:
    """Return the first YAML block of a document."""
    return re.findall(r"```yaml\n(.*?)```", document, re.DOTALL)[0]


def test_the_readme_is_one_page() -> None:
    """The README has at most 90 lines."""
    assert len(README.splitlines()) <= 90


def test_the_job_in_the_readme_is_the_one_that_the_first_hour_runs() -> None:
    """The README's job is that of the page on the first hour, whose test runs it with rows."""
    assert yaml(README) == yaml((ROOT / "docs" / "tutorials" / "first-hour.md").read_text())


def test_the_job_of_the_page_on_jobs_is_the_example() -> None:
    """The YAML on the page equals the example's file without its leading comment."""
    text = EXAMPLE.read_text()
    assert yaml((ROOT / "docs" / "tutorials" / "a-job.md").read_text()) == text[text.index("job: ") :]


def test_the_example_is_a_valid_job_with_nothing_set() -> None:
    """All references of the example have defaults, so it loads in an empty environment."""
    job = load(EXAMPLE, {})
    assert job.name == "orders-payments"
    assert set(job.sinks) == {"order_payments", "paid_orders"}


def test_every_metric_that_the_docs_name_exists(tmp_path: Path) -> None:
    """Every metric that the docs mention exists, of the job or in the file of `rowkind verify`."""
    write_metrics(tmp_path / "audit", "job", [])
    audited = set(re.findall(r"^# HELP (\S+)", (tmp_path / "audit").read_text(), re.MULTILINE))
    named = {name for page in DOCS for name in re.findall(r"\browkind_[a-z_]+", page.read_text())}
    assert named
    assert {name.removesuffix("_bucket") for name in named} <= audited | {metric.name for metric in METRICS}


def test_every_command_of_the_docs_exists() -> None:
    """Every `rowkind` command line in the docs has an existing command and existing options."""
    known = {name: {each for option in command.params for each in option.opts} for name, command in _commands("", main)}
    for page in [ROOT / "README.md", *DOCS]:
        for line in re.findall(r"^(?:    |\$ |    \$ )?(rowkind [a-z].*)$", page.read_text(), re.MULTILINE):
            words = line.partition("#")[0].split("   ")[0].split()
            name = next((each for each in (" ".join(words[1:3]), words[1]) if each in known), None)
            assert name is not None, f"{page.name}: {line}"
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert options <= known[name], f"{page.name}: {line}"


def _commands(prefix: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{prefix}{name}", command
        if isinstance(command, click.Group):
            yield from _commands(f"{prefix}{name} ", command)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", ON_EXAMPLES)
def test_what_the_docs_do_with_an_example_can_be_done(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command on an example in the docs succeeds and prints something."""
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(main, command.split()[1:], prog_name="rowkind", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.output


def test_the_first_hour_tells_of_every_example() -> None:
    """The table on the page has a line for each example."""
    page = (ROOT / "docs" / "tutorials" / "first-hour.md").read_text()
    assert not [file.parent.name for file in EXAMPLES if f"[{file.parent.name}](../../examples/" not in page]


def test_every_command_is_on_the_page_of_commands() -> None:
    """Every visible command is on the page of commands."""
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    missing = [name for name, command in main.commands.items() if not command.hidden and f"`rowkind {name}" not in page]
    assert not missing


def test_every_link_to_a_file_leads_somewhere() -> None:
    """Every file that the README, CONTRIBUTING.md and CHANGELOG.md link to exists."""
    for document in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / document).read_text()):
            assert (ROOT / target).exists(), f"{document}: {target}"
