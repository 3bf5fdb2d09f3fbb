"""Count how many Spark functions Rowkind supports, for the reference and for a test that every function is covered.

`spark_functions.tsv` has the name and the kind of each function that Spark's `SHOW FUNCTIONS` lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rowkind.service.plan.scalar.functions import FUNCTIONS, REFUSED
from rowkind.service.plan.scalar.functions.refused import SENSELESS

LIST = Path(__file__).with_name("spark_functions.tsv")

CONSTRUCTS = frozenset(
    [
        "!",
        "!=",
        "%",
        "&",
        "*",
        "+",
        "-",
        "/",
        "<",
        "<<",
        "<=",
        "<=>",
        "<>",
        "=",
        "==",
        ">",
        ">=",
        ">>",
        "^",
        "and",
        "between",
        "case",
        "cast",
        "coalesce",
        "div",
        "if",
        "ilike",
        "in",
        "like",
        "not",
        "nullif",
        "or",
        "smallint",
        "tinyint",
        "when",
        "|",
        "||",
        "~",
    ]
)
"""Constructs with their own syntax that Spark lists as functions. The reference has them in its table of operators."""


@dataclass(frozen=True)
class Coverage:
    """Spark's scalar functions by support.

    `senseless` functions are refused because they cannot be supported, for example because they depend on chance or the
    session. `refused` functions are refused for other reasons. `missing` functions are neither supported nor refused by
    name.
    """

    supported: tuple[str, ...]
    senseless: tuple[str, ...]
    refused: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def share(self) -> float:
        """The share of supported functions among those that could be supported."""
        return len(self.supported) / (len(self.supported) + len(self.refused) + len(self.missing))


def spark_functions() -> dict[str, str]:
    """Return the kind of each Spark function by its name."""
    return dict(line.split("\t") for line in LIST.read_text(encoding="utf-8").splitlines())


def coverage() -> Coverage:
    """Return the coverage of Spark's scalar functions."""
    names = [name for name, kind in spark_functions().items() if kind == "scalar"]
    supported = [name for name in names if name in CONSTRUCTS or name.upper() in FUNCTIONS]
    left = [name for name in names if name not in supported]
    refused = {name: REFUSED[name.upper()] for name in left if name.upper() in REFUSED}
    return Coverage(
        tuple(supported),
        tuple(name for name, reason in refused.items() if reason in SENSELESS),
        tuple(name for name, reason in refused.items() if reason not in SENSELESS),
        tuple(name for name in left if name not in refused),
    )
