"""The pages of Flink's documentation as files in `pages`: the examples of each, and their results in Rowkind.

A file's `pages` are paths below `docs/content/docs` in Flink's repository. `tables` has the DDL that its scripts share,
and `rows` the changes of these tables in order: text tables with a header, in which a column `op` has the row kind.
`clock` sets the logged time of the following rows. Each of its `cases` has a `query`, whose result goes to a print
sink, or a `script` with its own sinks. It also has either `result`, the rows that the page shows (`results`: by the
names of sinks), or `refused`, the reason why there is no such sink. Instead, a case can have `expressions` over the
table `one`, each with its value. A case can also have tables and rows of its own.

`notes` are parts of the notes that the import prints. With `open`, the input does not end after the rows. `differs`
gives the reason why a result is not the one on the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rowkind.avro.schema import Type
from rowkind.service.job.columns import declared
from rowkind.service.job.model import Job
from tests.trying import Change

PAGES = sorted((Path(__file__).parent / "pages").glob("*.yaml"))
WITHOUT_CASES = Path(__file__).parent / "pages_without_cases.yaml"
PRINTED = "printed"
"""The sink of a `query`."""
_YAML = YAML(typ="safe")
_MINUTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:\d\d(?:\.\d+)?)?Z?")


@dataclass(frozen=True)
class PageCase:
    """One script of a page: its text, the changes of its tables, and the rows of its sinks or the refusal."""

    page: str
    name: str
    script: str
    rows: Sequence[Mapping[str, str]]
    results: Mapping[str, str]
    refused: str
    notes: Sequence[str]
    ended: bool

    def changes(self, job: Job) -> Iterator[Change]:
        """Yield the changes of its tables, with the job's types."""
        for part in self.rows:
            for table, text in part.items():
                if table == "clock":
                    yield {"clock": text}
                    continue
                source = table if table in job.tables else f"{table}_topic"
                if source not in job.tables:
                    continue
                types = declared(job, source)
                for row in text_table(text):
                    kind = row.pop("op", "+I")
                    values = {name: _read(types.type(name), cell) for name, cell in row.items() if name in types.names}
                    yield {"table": source, "op": kind, "row": values}


def cases() -> list[PageCase]:
    """Return every case of every page."""
    return [case for file in PAGES for case in _of_page(file)]


def pages() -> set[str]:
    """Return the pages that have cases."""
    return {page for file in PAGES for page in _YAML.load(file.read_text())["pages"]}


def pages_without_cases() -> dict[str, str]:
    """Return the pages that have SQL but no cases, with the reasons."""
    found: dict[str, str] = _YAML.load(WITHOUT_CASES.read_text())
    return found


def text_table(text: str) -> list[dict[str, str]]:
    """Return the rows of a text table, whose first line has the names of the columns."""
    header, *lines = ([cell.strip() for cell in line.split("|")] for line in text.strip().splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


def shown(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a row of a result in the form of a text table."""
    return {name: _shown(value) for name, value in row.items()}


def _of_page(file: Path) -> Iterator[PageCase]:
    page = _YAML.load(file.read_text())
    for case in page["cases"]:
        query, results = case.get("query"), case.get("results", {PRINTED: case["result"]} if "result" in case else {})
        if "expressions" in case:
            named = {f"v{number}": each for number, each in enumerate(case["expressions"].items(), 1)}
            query = f"SELECT {', '.join(f'{each} AS {name}' for name, (each, _) in named.items())} FROM one"
            results = {PRINTED: f"{' | '.join(named)}\n{' | '.join(value for _, value in named.values())}"}
        own = case.get("script") or f"CREATE TABLE {PRINTED} WITH ('connector' = 'print') AS\n{query};"
        yield PageCase(
            page=file.stem,
            name=case["name"],
            script="\n".join([page.get("tables", ""), case.get("tables", ""), own]),
            rows=[*page.get("rows", ()), *case.get("rows", ())],
            results=results,
            refused=case.get("refused", ""),
            notes=case.get("notes", ()),
            ended=not case.get("open", False),
        )


def _read(type_: Type, cell: str) -> Any:
    if cell == "NULL":
        return None
    match type_.kind:
        case "int" | "long" | "float" | "double" | "boolean" | "array" | "map" | "record" if type_.logical is None:
            return json.loads(cell)
    return f"{cell.replace(' ', 'T')}:00" if _MINUTE.fullmatch(cell) else cell


def _shown(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            found = _MOMENT.fullmatch(value)
            return value if found is None else f"{found[1]} {found[2]}{'' if found[3] == ':00' else found[3] or ''}"
    return json.dumps(value, ensure_ascii=False)
