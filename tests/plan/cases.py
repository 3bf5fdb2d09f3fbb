"""Cases of planning: a text file each, that reads as a specification.

First line: what the case shows.
sink: retract | append | upsert (key, …)
(more settings of the sink or the job, as YAML)

SQL, up to a line of dashes

the plan as `rowkind explain` prints it, or `refused:` and the message
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rowkind.service.job.errors import JobError
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.explain.render import explain
from rowkind.service.plan.pipeline import plan

FOLDER = Path(__file__).parent / "cases"
TABLES = Path(__file__).parent / "tables.yaml"
_RULE = "-" * 8


@dataclass(frozen=True)
class Case:
    """One file, taken apart."""

    path: Path
    head: str
    sql: str
    expected: str

    @classmethod
    def read(cls, path: Path) -> Case:
        """The case in a file."""
        above, _, expected = path.read_text().partition(f"\n{_RULE}\n")
        head, _, sql = above.partition("\n\n")
        return cls(path, head, sql.strip("\n"), expected.strip("\n"))

    @property
    def settings(self) -> dict[str, Any]:
        """What the head says below its first line."""
        return dict(YAML(typ="safe").load("\n".join(self.head.splitlines()[1:])) or {})

    def job(self, folder: Path) -> Job:
        """The job of the case, as a file in `folder`."""
        document = YAML(typ="safe").load(TABLES.read_text())
        settings = self.settings
        mode, key = re.fullmatch(r"(\w+)\s*(?:\((.*)\))?", settings.pop("sink")).groups()  # type: ignore[union-attr]
        sink = {"mode": mode, "sql": self.sql} | ({"key": re.split(r"\s*,\s*", key)} if key else {})
        document["views"] = settings.pop("views", {})
        document["sinks"] = {"result": sink}
        if "ttl" in settings:
            document["ttl"] = settings.pop("ttl")
        assert not settings, f"unknown settings {settings}"
        file = folder / "job.yaml"
        with file.open("w") as stream:
            YAML().dump(document, stream)
        return load(file)

    def outcome(self, folder: Path) -> str:
        """What the planner makes of it: the explained plan or the refusal."""
        try:
            return explain(plan(self.job(folder), "result"))
        except (PlanError, JobError) as error:
            return "refused:\n" + re.sub(r"^\S*job\.yaml:\d+: ", "", str(error))

    def write(self, outcome: str) -> None:
        """Put an outcome into the file in the place of what was expected."""
        self.path.write_text(f"{self.head}\n\n{self.sql}\n{_RULE}\n{outcome}\n")


def cases() -> list[Case]:
    """All cases by name."""
    return [Case.read(path) for path in sorted(FOLDER.glob("*.txt"))]
