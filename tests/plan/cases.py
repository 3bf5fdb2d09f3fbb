"""Cases of planning: each is a text file that reads as a specification.

First line: the description of the case.
sink: retract | append | upsert (key, …)
(more settings of the sink or the job, as YAML)

SQL, up to a line of dashes

the outline of the plan (`tests.plan.outline`); or `refused:` and the place in the job

The wording of plans and refusals is in two files for all cases (`tests.plan.wording`). A few plans are also stored as
the whole JSON document (`tests.plan.documents`).
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from rowkind.service.job.errors import JobError
from rowkind.service.job.load import read
from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.explain.json_document import PROSE
from rowkind.service.plan.explain.render import render
from rowkind.service.plan.pipeline import plan
from tests.plan.outline import outline

FOLDER = Path(__file__).parent / "cases"
TABLES = Path(__file__).parent / "tables.yaml"
REFUSED = "refused:"
_RULE = "-" * 8
_LAST_WORDS = re.compile(r", (?=line \d+, column \d+\n)")


@dataclass(frozen=True)
class Case:
    """One parsed file."""

    path: Path
    head: str
    sql: str
    expected: str

    @classmethod
    def read(cls, path: Path) -> Case:
        """Read the case in a file."""
        above, _, expected = path.read_text().partition(f"\n{_RULE}\n")
        head, _, sql = above.partition("\n\n")
        return cls(path, head, sql.strip("\n"), expected.strip("\n"))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings in the head below its first line."""
        return dict(YAML(typ="safe").load("\n".join(self.head.splitlines()[1:])) or {})

    def job(self, folder: Path) -> Job:
        """Return the job of the case, as a file in `folder`."""
        settings = dict(self.settings)
        mode, key = re.fullmatch(r"(\w+)\s*(?:\((.*)\))?", settings.pop("sink")).groups()  # type: ignore[union-attr]
        sink = {"mode": mode, "sql": self.sql} | ({"key": re.split(r"\s*,\s*", key)} if key else {})
        sink |= {name: settings.pop(name) for name in ("emit", "on_conflict") if name in settings}
        own = {"views": settings.pop("views", {}), "sinks": {"result": sink}}
        own |= {
            name: settings.pop(name) for name in ("ttl", "on_expire", "tables", "functions", "code") if name in settings
        }
        assert not settings, f"unknown settings {settings}"
        # JSON is valid YAML.
        return read(_merged(_tables(), _parsed(json.dumps(own, ensure_ascii=False))), folder / "job.yaml")

    @property
    def is_refused(self) -> bool:
        """Whether the file expects a refusal."""
        return self.expected.startswith(REFUSED)

    def outcome(self) -> str:
        """Return the outline of the plan, or the place of the refusal."""
        try:
            return outline(self.document(), _tables()["tables"])
        except (PlanError, JobError) as error:
            return f"{REFUSED} " + "\n".join(place for place, _ in refusal(error))

    def document(self) -> Any:
        """Return the plan of the sink as JSON, without sentences and without the SQL, which is in the case already."""
        job, sink = planned(self)
        ((document,),) = (each["sinks"] for each in json.loads(render(job, {"main": [sink]}, "json"))["queries"])
        return without_prose({key: value for key, value in document.items() if key != "sql"})

    def write(self, outcome: str) -> None:
        """Write an outcome into the file, replacing the expected one."""
        self.path.write_text(f"{self.head}\n\n{self.sql}\n{_RULE}\n{outcome}\n")


def _parsed(text: str) -> CommentedMap:
    return YAML(typ="rt").load(text)


@cache
def _tables() -> CommentedMap:
    """Return the settings that all jobs share; they are cached, because parsing is slower than most planning."""
    return _parsed(TABLES.read_text())


def _merged(shared: CommentedMap, own: CommentedMap) -> CommentedMap:
    """Return one document with the settings of both; `own` has precedence, and null in it removes a setting."""
    merged = CommentedMap({name: value for name, value in {**shared, **own}.items() if value is not None})
    for name in merged:
        merged.lc.add_kv_line_col(name, (own if name in own else shared).lc.data[name])
    return merged


def cases() -> list[Case]:
    """Return all cases, sorted by name."""
    return [Case.read(path) for path in sorted(FOLDER.glob("*.txt"))]


@cache
def planned(case: Case) -> tuple[Job, PhysicalSink]:
    """Return the job of a case and its plan, cached for all tests. Raise the errors of planning."""
    with tempfile.TemporaryDirectory() as folder:
        job = case.job(Path(folder))
    return job, plan(job, "result")


def refusal(error: PlanError | JobError) -> Iterator[tuple[str, str]]:
    """Yield the place (field and line of SQL) and the wording of each problem of a refusal."""
    for problem in re.split(r"^\S*job\.yaml(?::\d+)?: ", str(error), flags=re.MULTILINE)[1:]:
        field, _, text = problem.rstrip("\n").partition(": ")
        wording, *shown = _LAST_WORDS.split(text)
        yield ", ".join([field, *shown]), wording


def without_prose(value: Any) -> Any:
    """Return a document without the keys whose values are sentences, and without empty values."""
    match value:
        case dict():
            bare = {key: without_prose(each) for key, each in value.items() if key not in PROSE}
            return {key: each for key, each in bare.items() if each is not False and each not in (None, [], {})}
        case list():
            return [without_prose(each) for each in value]
    return value
