"""SQL constructs that sqlglot does not know, and a generator that writes them as SQL.

sqlglot's own generators fail on unknown nodes, so always use `sql_text` to generate SQL text.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Dialect, ErrorLevel, exp
from sqlglot.generators.spark import SparkGenerator


class TableArgument(exp.Expression):
    """A table argument of a table function: `TABLE name` or a query in parentheses, with its PARTITION BY columns."""

    arg_types = {"this": True, "expressions": False}  # noqa: RUF012 -- as sqlglot has it


class WatermarkClause(exp.Expression):
    """A clause `WATERMARK time [AS alias] DELAY OF delay`, stored as `watermark` of the `TableAlias` after it."""

    arg_types = {"this": True, "alias": False, "delay": True}  # noqa: RUF012 -- as sqlglot has it


class MatchFrame(exp.Expression):
    """A call that is preceded by FINAL or RUNNING."""

    arg_types = {"this": True, "frame": True}  # noqa: RUF012 -- as sqlglot has it


class MatchSubset(exp.Expression):
    """An item of a SUBSET clause, which gives several pattern variables a common name."""

    arg_types = {"this": True, "expressions": True}  # noqa: RUF012 -- as sqlglot has it


class MatchSkip(exp.Expression):
    """An AFTER MATCH SKIP clause. `to` is the text after SKIP, and `this` is the variable in that text, if any."""

    arg_types = {"to": True, "this": False}  # noqa: RUF012 -- as sqlglot has it


class MatchClause(exp.Expression):
    """A MATCH_RECOGNIZE clause over the relation `this`.

    `pattern` is the text of the pattern, and `rows` is the text before PER MATCH.
    """

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


# If this were the dialect's name, sqlglot would build the dialect again for each text.
_SPARK = Dialect.get_or_raise("spark")


class _Writer(SparkGenerator):
    """A generator of Spark SQL that can also write the constructs of this module."""

    def tablealias_sql(self, node: exp.TableAlias) -> str:
        """Return the alias without its watermark clause, or an empty string if there is only a watermark clause."""
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


# sqlglot finds generator methods only for its own node classes, so the functions above are registered here.
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
    """Return a parsed expression or query as SQL text, without comments."""
    return _Writer(dialect=_SPARK, comments=False, unsupported_level=ErrorLevel.IGNORE).generate(node)
