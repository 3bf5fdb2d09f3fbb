"""The table of the Helm chart's values, generated from the comments in values.yaml.

python -m tests.deploy.values_reference
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML

from tests.deploy.chart import CHART

README = CHART / "README.md"
BEGIN, END = "<!-- values -->\n", "<!-- end of values -->\n"

_KEY = re.compile(r"^( *)([a-zA-Z]+):")


def values() -> Iterator[tuple[str, Any, str]]:
    """Yield path, default and comment of every value, including mappings and their members."""
    text = (CHART / "values.yaml").read_text()
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        if found := _KEY.match(line):
            path[len(found[1]) // 2 :] = [found[2]]
            yield ".".join(path), _default(text, path), " ".join(comment)
            comment = []
        elif line.lstrip().startswith("# "):
            comment.append(line.lstrip().removeprefix("# "))
        else:
            comment = []


def table() -> str:
    """Return the Markdown table: a line for each comment; a mapping whose members have lines shows no default."""
    every = list(values())
    told = {path for path, _, comment in every if comment}
    lines = ["| value | default | description |", "|---|---|---|"]
    for path, default, comment in every:
        if comment:
            inside = any(other.startswith(f"{path}.") for other in told)
            lines.append(f"| `{path}` | {'' if inside else f'`{json.dumps(default)}`'} | {_escaped(comment)} |")
    return "\n".join(lines) + "\n"


def readme() -> str:
    """Return the README with the current table."""
    before, _, rest = README.read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def _default(text: str, path: list[str]) -> Any:
    found = YAML(typ="safe").load(text)
    for name in path:
        found = found[name]
    return found


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    README.write_text(readme())
