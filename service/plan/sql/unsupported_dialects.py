"""Refuses constructs of other SQL dialects that Spark does not support, and names a replacement for each.

    ARRAY[1, 2]                 ARRAY(1, 2)
    js ->> 'a'                  GET_JSON_OBJECT(js, '$.a')
    FLOOR(t TO HOUR)            DATE_TRUNC('HOUR', t)
    MAX(STRUCT(t, x)).x         MAX_BY(x, t), since rows and structs have no order here
    FROM t PIVOT (…)            FILTER and GROUP BY

The parser accepts these constructs, so that the message can be more helpful than a syntax error would be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.sql.generators import NAMES
from rowkind.service.plan.syntax import sql_text

TO_UNIT = "TO"
"""The argument name under which the parser stores the unit after TO, as in FLOOR(t TO HOUR)."""

_IN_FROM = "expected a table, a view or (SELECT …) AS name in FROM"
_SCRIPT = "`rowkind import` converts a script to a job file"
_STATEMENTS: Mapping[type[exp.Expr], str] = {
    exp.Insert: "the SQL of a sink is only a query, because the job file says where its rows are written: remove "
    f"INSERT INTO; {_SCRIPT}",
    exp.Create: f"the SQL of a sink is one query: declare tables under `tables:` in the job file; {_SCRIPT}",
}
_VIEW = f"the SQL of a sink is one query: define views and their queries under `views:` in the job file; {_SCRIPT}"
_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("BYTES", "BLOB", "VARBYTE"), "BINARY"),
    **dict.fromkeys(("NUMBER", "MONEY"), "DECIMAL(p,s)"),
    **dict.fromkeys(("CLOB", "NTEXT"), "STRING"),
}


def no_statement(tree: exp.Expr, expected: str) -> Refusal:
    """Return the error for a statement that is not a query."""
    said = _STATEMENTS.get(type(tree), f"this is not a query: expected {expected}")
    view = isinstance(tree, exp.Create) and str(tree.args.get("kind")).upper() == "VIEW"
    return Refusal(_VIEW if view else said, tree)


def no_relation(at: exp.Expr) -> Refusal:
    """Return the error for an item of FROM that is not a relation."""
    call = at.this if isinstance(at, exp.Table) else at
    if isinstance(call, exp.Anonymous) and word(call) in ("RANGE", "GENERATE_SERIES"):
        numbers = "(SELECT EXPLODE(SEQUENCE(1, 3)) AS n) AS name"
        return Refusal(f"{word(call)} is not supported: generate rows of numbers with {numbers}", at)
    if isinstance(call, exp.Anonymous) and word(call) in NAMES:
        return Refusal(
            f"{word(call)} must be applied to values of another table: write FROM …, LATERAL {word(call)}(…) AS name",
            at,
        )
    if isinstance(call, exp.Anonymous):
        return Refusal(f"there is no table function {word(call)}: {_IN_FROM}", at)
    return Refusal(_IN_FROM, at)


def no_type(written: str) -> str | None:
    """Return the message for a type that has a different name in Spark, or None for any other type."""
    meant = _TYPES.get(written.upper())
    return None if meant is None else f"there is no type {written.upper()}: write {meant}"


def check_dialect(tree: exp.Expr) -> None:
    """Refuse a query that contains a construct of another dialect, naming the first one. Raises Refusal."""
    for node in tree.walk():
        for kinds, refusal in _RULES.items():
            if isinstance(node, kinds) and (found := refusal(node)) is not None:
                # For a clause after a table, the parser records only the position of the clause's parentheses.
                raise Refusal(found, node.parent if isinstance(node, exp.Pivot | exp.TableSample) else node)


def _array(node: exp.Array) -> str | None:
    if isinstance(node.parent, exp.Func) and "PERCENTILE" in word(node.parent):
        # The fractions of a percentile are not a value of type ARRAY, so both forms are accepted.
        return None
    arguments = ", ".join(sql_text(each) for each in node.expressions)
    return f"an array must be written in parentheses: ARRAY({arguments})"


def _map(node: exp.Bracket) -> str | None:
    if isinstance(node.this, exp.Column) and node.this.name.upper() == "MAP" and len(node.expressions) > 1:
        arguments = ", ".join(sql_text(each) for each in node.expressions)
        return f"a map must be written in parentheses: MAP({arguments})"
    return None


def _json(node: exp.Binary) -> str | None:
    plain = isinstance(node.expression, exp.JSONPath) and not isinstance(
        node, exp.JSONBExtract | exp.JSONBExtractScalar
    )
    path = sql_text(node.expression) if plain else "'$.a.b'"
    return f"JSON operators are not supported, as in Spark: write GET_JSON_OBJECT({sql_text(node.this)}, {path})"


def _similar(_: exp.SimilarTo) -> str | None:
    return (
        "SIMILAR TO is not supported: write RLIKE, which takes a Java pattern and matches anywhere in the text "
        "unless it has ^ and $"
    )


def _pivot(node: exp.Pivot) -> str | None:
    if node.args.get("unpivot"):
        return "UNPIVOT is not supported: write one SELECT for each column, and UNION ALL between them"
    return "PIVOT is not supported: write SUM(x) FILTER (WHERE …) AS name for each column, and GROUP BY"


def _sample(_: exp.TableSample) -> str | None:
    return "TABLESAMPLE is not supported: when a row is retracted, it might not be in the sample again"


def _to_unit(node: exp.Anonymous) -> str | None:
    last = node.expressions[-1] if node.expressions else None
    if not isinstance(last, exp.Kwarg) or last.name != TO_UNIT:
        return None
    time, unit = sql_text(node.expressions[0]), last.expression.name.upper()
    up = "" if word(node) == "FLOOR" else f", and add INTERVAL '1' {unit} if the result is earlier than the time"
    return f"{word(node)} takes numbers here: write DATE_TRUNC('{unit}', {time}){up}"


def _extreme(node: exp.Max | exp.Min) -> str | None:
    parts = _fields(node.this)
    if len(parts) < 2:
        return None
    first, *rest = parts
    value = rest[0] if len(rest) == 1 else f"STRUCT({', '.join(rest)})"
    return f"{word(node)} cannot use rows or structs, which have no order here: write {word(node)}_BY({value}, {first})"


def _extreme_by(node: exp.ArgMax | exp.ArgMin) -> str | None:
    parts = _fields(node.expression)
    if len(parts) < 2:
        return None
    name, descending = ("MAX_BY", " DESC") if isinstance(node, exp.ArgMax) else ("MIN_BY", "")
    order = ", ".join(f"{each}{descending}" for each in parts)
    return (
        f"{name} can order by only one value, because rows and structs have no order here: write ROW_NUMBER() "
        f"OVER (PARTITION BY … ORDER BY {order}) AS n in a derived table, and WHERE n = 1 outside"
    )


def _fields(node: exp.Expr | None) -> Sequence[str]:
    """Return the SQL of each value in a row or STRUCT, or an empty sequence for any other node."""
    node = node.unnest() if node is not None else None
    if isinstance(node, exp.Tuple) or (isinstance(node, exp.Anonymous) and word(node) == "STRUCT"):
        return [sql_text(each.unalias()) for each in node.expressions]
    if isinstance(node, exp.Anonymous) and word(node) == "NAMED_STRUCT":
        return [sql_text(each) for each in node.expressions[1::2]]
    return ()


_RULES: Mapping[type[exp.Expr] | tuple[type[exp.Expr], ...], Callable[..., str | None]] = {
    exp.Array: _array,
    exp.Bracket: _map,
    (exp.JSONExtract, exp.JSONExtractScalar, exp.JSONBExtract, exp.JSONBExtractScalar): _json,
    exp.SimilarTo: _similar,
    exp.Pivot: _pivot,
    exp.TableSample: _sample,
    exp.Anonymous: _to_unit,
    (exp.Max, exp.Min): _extreme,
    (exp.ArgMax, exp.ArgMin): _extreme_by,
}
