"""Load a job file: parse the YAML, replace references to the environment, and validate the model.

All problems are reported at once, each with its line.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.file_lines import FileLines
from rowkind.service.job.functions import JobFunction
from rowkind.service.job.generation import GeneratedColumn, GenerateSettings
from rowkind.service.job.model import BatchSettings, DeadLetterSettings, Job
from rowkind.service.job.sink import Sink
from rowkind.service.job.substitution import SubstitutionError, protect, read_secret, references, substitute
from rowkind.service.job.table import From, RowKindSettings, Table

Path_ = tuple[str | int, ...]

_SECRETIVE = ("kafka", "registry", "status")
"""Sections in which values from the environment and from files are hidden, and `{file: path}` reads a secret."""


def load(path: str | Path, environment: Mapping[str, str] | None = None) -> Job:
    """Load the job from a file. Raises JobError with all problems."""
    file = Path(path)
    return loaded(text_of(file), file, environment)


def loaded(text: str, file: Path, environment: Mapping[str, str] | None = None) -> Job:
    """Load the job from a string; `file` need not exist. Raises JobError with all problems."""
    return read(parsed(text, file), file, environment, text)


def read(document: CommentedMap, file: Path, environment: Mapping[str, str] | None = None, text: str = "") -> Job:
    """Load the job from a parsed document of this text. Raises JobError with all problems."""
    reading = _Reading(file, os.environ if environment is None else environment)
    values = reading.values(document)
    try:
        job = Job.model_validate(values)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            reading.found(each)
    if reading.problems:
        raise JobError(str(file), reading.problems)
    return job.read_from(file, FileLines(reading.lines, text))


def named(file: Path, *sections: str) -> list[str]:
    """Return the names in these sections of a job file, even if the job is not valid.

    Raises JobError if the file cannot be read or is not YAML.
    """
    document = parsed(text_of(file), file)
    found = (document.get(section) for section in sections)
    return [str(name) for section in found if isinstance(section, Mapping) for name in section]


def generate_settings(given: Mapping[str, Any], columns: Iterable[str]) -> GenerateSettings:
    """Return the settings `given` for a generated table. `columns`: each column in YAML, as `name: settings`.

    Raises ValueError with all problems.
    """
    values: dict[str, Any] = {**given, "columns": {}}
    for text in columns:
        try:
            values["columns"] |= YAML(typ="safe").load(text)
        except (YAMLError, TypeError, ValueError):
            raise ValueError(
                f"{text!r} is not a column with its settings: expected `name: {{min: 1, max: 9}}`"
            ) from None
    reading, path = _Reading(Path(), {}), ("tables", "", "generate")
    try:
        return GenerateSettings.model_validate(values)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            reading.found({**each, "loc": (*path, *each["loc"])})
    raise ValueError(
        "; ".join(f"{each.field.removeprefix(_dotted(path) + '.')}: {each.text}" for each in reading.problems)
    )


def text_of(file: Path, what: str = "job file") -> str:
    """Return the text of a file. Raises JobError, whose message calls it `what`, if it cannot be read."""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise JobError(str(file), [Problem(0, "", f"the {what} cannot be read: {reason}")]) from None


def parsed(text: str, file: Path, sections: str = "job, tables and sinks") -> CommentedMap:
    """Parse a YAML text whose top level is a mapping with these sections. Raises JobError."""
    try:
        document = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 0
        raise JobError(str(file), [Problem(line, "", f"the file is not valid YAML: {_first_line(error)}")]) from None
    except (YAMLError, NotImplementedError, ValueError, AttributeError, LookupError, TypeError) as error:
        # For some texts that are not YAML, the parser raises errors that are not YAMLErrors.
        raise JobError(str(file), [Problem(0, "", f"the file is not valid YAML: {error}")]) from None
    if not isinstance(document, CommentedMap):
        raise JobError(str(file), [Problem(1, "", f"expected a mapping with {sections}")])
    return document


def _first_line(error: MarkedYAMLError) -> str:
    return str(error.problem or error.context or "it cannot be parsed").partition("\n")[0]


class _Reading:
    """The conversion of a YAML document to plain values. It collects the line of each value, and all problems."""

    def __init__(self, file: Path, environment: Mapping[str, str]) -> None:
        self._folder = file.parent
        self._environment = environment
        self.lines: dict[Path_, int] = {(): 1}
        self.problems: list[Problem] = []
        self._failed: set[Path_] = set()
        self._cut: dict[Path_, tuple[str, str]] = {}

    def values(self, node: Any, path: Path_ = ()) -> Any:
        """Return the value of a node, with its references replaced."""
        match node:
            case CommentedMap():
                for name in node:
                    self.lines[(*path, name)] = node.lc.key(name)[0] + 1
                if path and path[0] in _SECRETIVE and list(node) == ["file"]:
                    return self._guarded(path, lambda: protect(str(path[-1]), read_secret(node["file"], self._folder)))
                self._find_cut(node, path)
                return {name: self.values(value, (*path, name)) for name, value in node.items()}
            case CommentedSeq():
                for number in range(len(node)):
                    self.lines[(*path, number)] = node.lc.item(number)[0] + 1
                return [self.values(value, (*path, number)) for number, value in enumerate(node)]
            case str() if references(node):
                return self._guarded(path, lambda: self._replaced(str(node), path))
            case str():
                return str(node)
            case _:
                return node

    def _find_cut(self, node: CommentedMap, path: Path_) -> None:
        """Find texts with commas and without quotes. In braces, a comma ends a value, so the rest looks like a key."""
        setting, text = "", None
        for name, value in node.items():
            rest = str(name)
            if value is None and text and (" " in rest or rest.count(")") > rest.count("(") or rest.endswith(">")):
                text = f"{text}, {rest}"
                self._cut[(*path, name)] = setting, text
            else:
                setting, text = name, value if isinstance(value, str) else None

    def _replaced(self, text: str, path: Path_) -> str:
        value = substitute(text, self._environment, self._folder)
        return protect(str(path[-1]), value) if path[0] in _SECRETIVE else value

    def _guarded(self, path: Path_, make: Callable[[], str]) -> str | None:
        try:
            return make()
        except SubstitutionError as error:
            self.problems.append(Problem(self._line(path), _dotted(path), str(error)))
            self._failed.add(path)
            return None

    def _line(self, path: Path_) -> int:
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]

    def found(self, error: ErrorDetails) -> None:
        """Record a pydantic error as a problem of the job file."""
        path = tuple(part for part in error["loc"] if part != "[key]")
        if path in self._failed:
            return
        match error["type"]:
            case _ if path in self._cut:
                setting, cut = self._cut[path]
                text = f'text with a comma must be in quotes here: {setting}: "{cut}"'
                path = (*path[:-1], setting)
            case "extra_forbidden":
                text = f"unknown setting{_nearest(str(path[-1]), _settings(path[:-1]))}"
            case "missing":
                text = f"{path[-1]} is missing{_EXPECTED.get(str(path[-1]), '')}"
                path = path[:-1]
            case "value_error":
                text = str(error["ctx"]["error"])
            case kind:
                secret = bool(path) and path[0] in _SECRETIVE
                text = f"{'' if secret else _short(error['input'])}expected {_expected(kind, error)}"
        self.problems.append(Problem(self._line(path), _dotted(path), text))


_EXPECTED = {
    "job": ": the job's name, which is also used for its transactions and metrics",
    "tables": ": the source topics, by their names in the SQL",
    "sinks": ": the result topics, each with its sql",
    "mode": ": append, retract or upsert",
    "sql": ": the query whose result is written to the topic",
    "column": ": the column with the time of a row, or an SQL expression over the columns",
    "python": ": the location of the function, as module:name",
    "arguments": ": the SQL types of its arguments",
    "returns": ": the SQL type of its result, or the columns of a table function",
    "deterministic": ": whether equal arguments always give equal results",
}


_EXPECTED_OF_KIND = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number"),
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    "string_type": "text",
    "string_too_long": "at most {max_length} characters",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "is_instance_of"), "a mapping"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    "too_short": "at least one entry",
    **dict.fromkeys(
        ("datetime_parsing", "datetime_type", "datetime_from_date_parsing"), "a time such as 2026-01-31T12:00:00Z"
    ),
}
"""What is expected, by pydantic's type of error. The error's context fills the placeholders."""


def _expected(kind: str, error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    match kind:
        case "literal_error":
            return str(context["expected"]).replace("'", "")
        case "string_pattern_mismatch" if ":" in context["pattern"]:
            return "module:name"
        case "string_pattern_mismatch":
            return (
                "letters, digits and _ only"
                if "A-Za-z_]" in context["pattern"]
                else ("letters, digits, . _ and - only")
            )
        case _ if kind in _EXPECTED_OF_KIND:
            return _EXPECTED_OF_KIND[kind].format_map(context)
        case _:
            return error["msg"][:1].lower() + error["msg"][1:]


def _short(value: Any) -> str:
    if value is None:
        return "the value is missing: "
    if isinstance(value, dict | list):
        return "found a mapping: " if isinstance(value, dict) else "found a list: "
    text = str(value)
    return f"{text[:40] + '…' if len(text) > 40 else text!r}: "


def _dotted(path: Path_) -> str:
    return ".".join(str(part) for part in path)


def _settings(path: Path_) -> list[str]:
    """Return the settings that are allowed at a path."""
    model: type[BaseModel] = Job
    names = iter(path)
    for name in names:
        if (named := _NAMED.get((model, str(name)))) is not None:
            model = named
            next(names, None)
        else:
            model = _PARTS.get(str(name), model)
    return [field.alias or name for name, field in model.model_fields.items()]


_NAMED: Mapping[tuple[type[BaseModel], str], type[BaseModel]] = {
    (Job, "tables"): Table,
    (Job, "functions"): JobFunction,
    (Job, "sinks"): Sink,
    (GenerateSettings, "columns"): GeneratedColumn,
}
"""Sections with one entry per name, by the section that contains them."""

_PARTS: Mapping[str, type[BaseModel]] = {
    "batch": BatchSettings,
    "dead_letters": DeadLetterSettings,
    "row_kind": RowKindSettings,
    "start": From,
    "generate": GenerateSettings,
}


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; available: {', '.join(known)}"
