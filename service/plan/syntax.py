"""Pieces of SQL that sqlglot does not know, and the text of any expression, in which they may stand.

sqlglot's writers fail on a node that they do not know. So a text of SQL is always made by `sql_text`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Dialect, ErrorLevel, exp
from sqlglot.generators.spark import SparkGenerator


class TableArgument(exp.Expression):
    """TABLE name, or a query in parentheses, as an argument of a table function, and what is behind PARTITION BY."""

    arg_types = {"this": True, "expressions": False}  # noqa: RUF012 -- as sqlglot has it


class WatermarkClause(exp.Expression):
    """WATERMARK time [AS alias] DELAY OF delay, in FROM: the `watermark` of a `TableAlias`, before which it stands."""

    arg_types = {"this": True, "alias": False, "delay": True}  # noqa: RUF012 -- as sqlglot has it


class MatchFrame(exp.Expression):
    """FINAL or RUNNING, and the call behind it."""

    arg_types = {"this": True, "frame": True}  # noqa: RUF012 -- as sqlglot has it


class MatchSubset(exp.Expression):
    """A name for several variables."""

    arg_types = {"this": True, "expressions": True}  # noqa: RUF012 -- as sqlglot has it


class MatchSkip(exp.Expression):
    """AFTER MATCH SKIP: `to` is what stands behind SKIP, `this` the variable that is named there."""

    arg_types = {"to": True, "this": False}  # noqa: RUF012 -- as sqlglot has it


class MatchClause(exp.Expression):
    """MATCH_RECOGNIZE over `this`; `pattern` is the text of the pattern, `rows` what stands before PER MATCH."""

    arg_types = {  # noqa: RUF012 -- as sqlglot has it
        "this": True,
        "partition": False,
        "order": False,
        "measures": False,
        "rows": False,
        "skip": False,
        "pattern": True,
        "within": False,
        "subsets": False,
        "define": False,
        "alias": False,
        "word": True,
    }


# By its name, sqlglot makes the dialect anew for each text.
_SPARK = Dialect.get_or_raise("spark")


class _Writer(SparkGenerator):
    """Spark's SQL."""

    def tablealias_sql(self, node: exp.TableAlias) -> str:
        """The alias; a watermark before it is left out, and may stand there without one."""
        return super().tablealias_sql(node) if node.this or not node.args.get("watermark") else ""


def _table(writer: _Writer, node: TableArgument) -> str:
    table = "TABLE " if isinstance(node.this, exp.Table) else ""
    by = f" PARTITION BY ({writer.expressions(node, flat=True)})" if node.expressions else ""
    return f"{table}{writer.sql(node, 'this')}{by}"


def _watermark(writer: _Writer, node: WatermarkClause) -> str:
    alias = f" AS {name}" if (name := writer.sql(node, "alias")) else ""
    return f"WATERMARK {writer.sql(node, 'this')}{alias} DELAY OF {writer.sql(node, 'delay')}"


def _frame(writer: _Writer, node: MatchFrame) -> str:
    return f"{node.args['frame']} {writer.sql(node, 'this')}"


def _subset(writer: _Writer, node: MatchSubset) -> str:
    return f"{writer.sql(node, 'this')} = ({writer.expressions(node, flat=True)})"


def _skip(writer: _Writer, node: MatchSkip) -> str:
    to = f"TO {node.args['to']} {writer.sql(node, 'this')}" if node.args.get("this") else node.args["to"]
    return f"AFTER MATCH SKIP {to}"


def _match(writer: _Writer, node: MatchClause) -> str:
    within, (one, row, *more) = writer.sql(node, "within"), (writer.sql(node, "rows") or "ONE ROW").split(" ", 2)
    order = node.args.get("order")
    clauses = [
        _listed(writer, "PARTITION BY", node.args.get("partition")),
        _listed(writer, "ORDER BY", order.expressions if order else None),
        _listed(writer, "MEASURES", node.args.get("measures")),
        " ".join([one, row, "PER MATCH", *more]),
        writer.sql(node, "skip"),
        f"PATTERN ({writer.sql(node, 'pattern')})",
        f"WITHIN {within}" if within else "",
        _listed(writer, "SUBSET", node.args.get("subsets")),
        _listed(writer, "DEFINE", [_defined(writer, each) for each in node.args.get("define") or ()]),
    ]
    alias = f" AS {name}" if (name := writer.sql(node, "alias")) else ""
    return f"{writer.sql(node, 'this')} MATCH_RECOGNIZE ({' '.join(each for each in clauses if each)}){alias}"


def _listed(writer: _Writer, word: str, nodes: Sequence[str | exp.Expr] | None) -> str:
    return f"{word} {writer.expressions(sqls=nodes, flat=True)}" if nodes else ""


def _defined(writer: _Writer, node: exp.Expr) -> str:
    return f"{writer.sql(node, 'alias')} AS {writer.sql(node, 'this')}"


# sqlglot finds methods only for the nodes that it knows.
_Writer.TRANSFORMS = {
    **SparkGenerator.TRANSFORMS,
    TableArgument: _table,
    WatermarkClause: _watermark,
    MatchFrame: _frame,
    MatchSubset: _subset,
    MatchSkip: _skip,
    MatchClause: _match,
}


def sql_text(node: exp.Expr) -> str:
    """The text of a piece of SQL, without its comments."""
    return _Writer(dialect=_SPARK, comments=False, unsupported_level=ErrorLevel.IGNORE).generate(node)
