"""Pieces of SQL that sqlglot does not know, and the text of any expression, in which they may stand.

sqlglot's writers fail on a node that they do not know. So a text of SQL is always made by `sql_text`.
"""

from __future__ import annotations

from sqlglot import ErrorLevel, exp
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


class _Writer(SparkGenerator):
    """Spark's SQL, and these pieces; sqlglot finds the method of a node by the name of its class."""

    def tableargument_sql(self, node: TableArgument) -> str:
        table = "TABLE " if isinstance(node.this, exp.Table) else ""
        by = f" PARTITION BY ({self.expressions(node, flat=True)})" if node.expressions else ""
        return f"{table}{self.sql(node, 'this')}{by}"

    def tablealias_sql(self, node: exp.TableAlias) -> str:
        return super().tablealias_sql(node) if node.this or not node.args.get("watermark") else ""

    def watermarkclause_sql(self, node: WatermarkClause) -> str:
        alias = f" AS {name}" if (name := self.sql(node, "alias")) else ""
        return f"WATERMARK {self.sql(node, 'this')}{alias} DELAY OF {self.sql(node, 'delay')}"

    def matchframe_sql(self, node: MatchFrame) -> str:
        return f"{node.args['frame']} {self.sql(node, 'this')}"

    def matchsubset_sql(self, node: MatchSubset) -> str:
        return f"{self.sql(node, 'this')} = ({self.expressions(node, flat=True)})"

    def matchskip_sql(self, node: MatchSkip) -> str:
        to = f"TO {node.args['to']} {self.sql(node, 'this')}" if node.args.get("this") else node.args["to"]
        return f"AFTER MATCH SKIP {to}"

    def matchclause_sql(self, node: MatchClause) -> str:
        within, (one, row, *more) = self.sql(node, "within"), (self.sql(node, "rows") or "ONE ROW").split(" ", 2)
        order = node.args.get("order")
        by = self.expressions(sqls=node.args.get("partition"), flat=True)
        clauses = [
            f"PARTITION BY {by}" if by else "",
            f"ORDER BY {self.expressions(order, flat=True)}" if order else "",
            self._listed("MEASURES", node.args.get("measures")),
            " ".join([one, row, "PER MATCH", *more]),
            self.sql(node, "skip"),
            f"PATTERN ({self.sql(node, 'pattern')})",
            f"WITHIN {within}" if within else "",
            self._listed("SUBSET", node.args.get("subsets")),
            self._listed("DEFINE", node.args.get("define")),
        ]
        alias = f" AS {name}" if (name := self.sql(node, "alias")) else ""
        return f"{self.sql(node, 'this')} MATCH_RECOGNIZE ({' '.join(each for each in clauses if each)}){alias}"

    def _listed(self, word: str, nodes: list[exp.Expr] | None) -> str:
        return f"{word} {self.expressions(sqls=nodes, flat=True)}" if nodes else ""


def sql_text(node: exp.Expr) -> str:
    """The text of a piece of SQL, without its comments."""
    return _Writer(dialect="spark", comments=False, unsupported_level=ErrorLevel.IGNORE).generate(node)
