"""The lines of a job file's fields, and of the words in its SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_VALUE = re.compile(r"[\w.-]+[\"']?\s*:\s*(?:[|>][-+0-9]*[ \t]*(?:#.*)?\n|[\"'])?")
"""The name of a field in quotes or without, and what comes before its text in any of YAML's styles."""


@dataclass(frozen=True)
class FileLines:
    """`lines`: the line of each field's name, from 1. `text`: the whole job file."""

    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=dict)
    text: str = ""

    def of(self, path: tuple[str | int, ...], sql: str = "", at: int = 0) -> int:
        """Return the line of a field, or of the nearest enclosing field in the file; 0 if unknown.

        If the field contains `sql`, return the line of the character at position `at` of the SQL. YAML may fold the
        lines of the SQL and indent them, so white space is not compared.
        """
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        line = self.lines.get(known, 0)
        if not sql or known != path or not self.text or not line:
            return line
        source = "".join(self.text.splitlines(keepends=True)[line - 1 :])
        name = source.find(str(path[-1]))
        begin = _VALUE.match(source, max(name, 0))
        if name < 0 or begin is None:
            return line
        place = begin.end()
        for character in "".join(sql[: at + 1].split()):
            # What is in the file but not in the SQL is white space, or an escape in a quoted text.
            found = source.find(character, place)
            place = (found if found >= 0 else place) + 1
        return line + source.count("\n", 0, place - 1)
