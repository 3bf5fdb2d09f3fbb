"""Random calls of aggregate functions."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.fuzz.expressions import Expressions, Name
from tests.fuzz.schemas import Kind

SUMMED: tuple[Kind, ...] = ("int", "decimal", "double")
"""The kinds of columns that SUM and AVG accept."""


def aggregate_call(rng: random.Random, names: Sequence[Name]) -> tuple[str, Kind]:
    """Return a random aggregate of columns, and its kind."""
    expressions = Expressions(rng, names)
    read = rng.choice(names)
    text = expressions.value(read.kind, 1) if rng.random() < 0.2 else read.text
    distinct = "DISTINCT " if rng.random() < 0.2 else ""
    choices: list[tuple[str, Kind]] = [
        ("COUNT(*)", "int"),
        (f"COUNT({distinct}{text})", "int"),
        (f"{rng.choice(('MIN', 'MAX'))}({text})", read.kind),
        (f"COUNT_IF({expressions.condition(0)})", "int"),
        (f"{rng.choice(('BOOL_AND', 'BOOL_OR'))}({expressions.condition(0)})", "boolean"),
    ]
    # With equal arguments, MIN_BY and MAX_BY have only one possible result.
    choices.append((f"{rng.choice(('MIN_BY', 'MAX_BY'))}({text}, {text})", read.kind))
    if read.kind == "int":
        choices.append((f"MEDIAN({text})", "ratio"))
        choices.append((f"{rng.choice(('BIT_AND', 'BIT_OR', 'BIT_XOR'))}({text})", "int"))
    if read.kind == "string":
        ordered = f"DISTINCT {text}, ',') WITHIN GROUP (ORDER BY {text}{rng.choice(('', ' DESC'))}"
        choices.append((f"{rng.choice(('LISTAGG', 'STRING_AGG'))}({ordered})", "string"))
    if read.kind in SUMMED:
        choices += [(f"SUM({distinct}{text})", read.kind)] * 3
        # DuckDB's average of decimals is a DOUBLE.
        average = f"CAST(AVG({distinct}CAST({text} AS DECIMAL(10,2))) AS DECIMAL(18,6))"
        choices.append((average, "decimal") if read.kind == "decimal" else (f"AVG({distinct}{text})", "ratio"))
    if len(names) > 1 and rng.random() < 0.1:
        other = rng.choice(names)
        choices = [(f"COUNT(DISTINCT {read.text}, {other.text})", "int")]
    call, kind = rng.choice(choices)
    if rng.random() < 0.2 and not call.startswith("CAST"):
        call = f"{call} FILTER (WHERE {expressions.condition()})"
    if rng.random() < 0.1:
        divisor = expressions.name("int")
        call, kind = f"MAX(6 / {divisor}) FILTER (WHERE {divisor} <> 0)", "ratio"
    return call, kind
