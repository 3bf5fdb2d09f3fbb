"""Lints, which `rowkind check` reports: parts of a query that probably have a different meaning than intended.

A query with a lint can still be planned. There is only one lint so far: text in double quotes that equals a column's
name. Rowkind reads it as a string, but other systems would read it as the column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from rowkind.service.job.columns import declared
from rowkind.service.job.model import Job
from rowkind.service.plan.errors import span, written
from rowkind.service.plan.pipeline import place, texts
from rowkind.service.plan.sql.parse import parse

_STANDS = (exp.Predicate, exp.Select, exp.Alias, exp.Group, exp.Ordered, exp.AggFunc, exp.Window, exp.Connector)
"""Parent nodes of a string literal that may be meant as a column. In other functions, it may be a field name."""


def lints(job: Job) -> Iterator[str]:
    """Yield each lint with its position. Raises PlanError or JobError if the job cannot be planned at all."""
    trees = {origin: parse(sql, origin, place(job, origin)) for origin, sql in texts(job).items()}
    views = {name: tuple(_names(trees[f"views.{name}"])) for name in job.views}
    columns = {name: declared(job, name).names for name in job.tables}
    for origin, tree in trees.items():
        known = _known(tree, {name.lower(): names for name, names in (columns | views).items()})
        for text in tree.find_all(exp.Literal):
            if not (text.is_string and written(text).startswith('"') and isinstance(text.parent, _STANDS)):
                continue
            if (column := known.get(text.name.lower())) is not None and (at := span(text)) is not None:
                sql = texts(job)[origin]
                yield (
                    f'{place(job, origin)}: "{text.name}" is text, because Spark reads double quotes as text, '
                    f"but there is a column {column}: write {column} for the column, or '{text.name}' "
                    f"for text, {at.show(sql)}"
                )


def _known(tree: exp.Expr, columns: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the columns of the tables, views and subqueries that a query may refer to, keyed by lowercase name."""
    read = [name for table in tree.find_all(exp.Table) for name in columns.get(table.name.lower(), ())]
    inner = [name for query in tree.find_all(exp.Query) if query is not tree for name in _names(query)]
    return {name.lower(): name for name in (*read, *inner)}


def _names(query: exp.Expr) -> Iterator[str]:
    """Yield the names of a query's result columns, except columns that come from `*`."""
    if isinstance(query, exp.Query):
        yield from (name for name in query.named_selects if name != "*")
