"""Spark's SQL dialect for sqlglot, with function calls left as the user wrote them.

sqlglot parses the functions of every dialect into nodes that all dialects share, and may rewrite the arguments. Rowkind
looks up functions by their Spark names (`service.plan.scalar.functions`). So this dialect parses a call into an
`exp.Anonymous` with the arguments as written. Only aggregates, window functions and constructs with special syntax are
parsed into sqlglot's own nodes. Unlike sqlglot's Spark dialect, this dialect distinguishes CAST, which fails on a value
that it cannot convert, from TRY_CAST.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from rowkind.service.plan.sql.match_clause import MatchParser
from rowkind.service.plan.sql.unsupported_dialects import TO_UNIT
from rowkind.service.plan.syntax import TableArgument, WatermarkClause

_WINDOW = ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD", "NTH_VALUE")
_AGGREGATES = (
    "COUNT", "ANY_VALUE", "FIRST", "FIRST_VALUE", "LAST", "LAST_VALUE", "ARRAY_AGG", "COLLECT_LIST", "COLLECT_SET",
    "PERCENTILE_APPROX", "APPROX_PERCENTILE",
)  # fmt: skip
_AS_WRITTEN = ("PERCENTILE", "GROUP_CONCAT")
"""sqlglot drops the n of PERCENTILE(x, p, n), and parses GROUP_CONCAT as LISTAGG, whose default separator is not a
comma.
"""
_CONDITIONALS = ("COALESCE", "NULLIF", "IF")
_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING", "SUBSTR", "OVERLAY", "LISTAGG", "STRING_AGG",
           "PERCENTILE_APPROX", "APPROX_PERCENTILE", "MAX_BY", "MIN_BY", "BROADCAST", "BROADCASTJOIN",
           "MAPJOIN", "MERGE", "MERGEJOIN", "SHUFFLEMERGE", "SHUFFLE_HASH", "SHUFFLE_REPLICATE_NL")  # fmt: skip


_TAKE_UNITS = ("DATEADD", "DATE_ADD", "TIMESTAMPADD", "DATEDIFF", "DATE_DIFF", "TIMESTAMPDIFF")


def _with_unit(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    """Return a builder for calls whose first argument, if there are three, is a unit of time and not a column."""

    def build(arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) == 3 and isinstance(arguments[0], exp.Column) and not arguments[0].table:
            arguments = [exp.Var(this=arguments[0].name), *arguments[1:]]
        return exp.Anonymous(this=name, expressions=arguments)

    return build


def _with_offset(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    """Return a builder for FIRST or LAST that, unlike sqlglot's, accepts an offset, as in row patterns."""
    build = SparkParser.FUNCTIONS[name]

    def with_offset(arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) == 2 and not isinstance(arguments[1], exp.Boolean):
            return (exp.First if name == "FIRST" else exp.Last)(this=arguments[0], expression=arguments[1])
        made: exp.Expr = build(arguments)
        return made

    return with_offset


def _of_many_rows(name: str, build: Any) -> bool:
    made = getattr(build, "__self__", None)
    return name in _WINDOW + _AGGREGATES or (isinstance(made, type) and issubclass(made, exp.AggFunc))


class RowkindParser(MatchParser):
    """The parser for `RowkindSql`."""

    STRICT_CAST = True
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: build
        for name, build in SparkParser.FUNCTIONS.items()
        if name in _CONDITIONALS or (_of_many_rows(name, build) and name not in _AS_WRITTEN)
    }
    FUNCTIONS |= {name: _with_unit(name) for name in _TAKE_UNITS}
    FUNCTIONS |= {name: _with_offset(name) for name in ("FIRST", "LAST")}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name in _SYNTAX
    }

    LAMBDAS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        **SparkParser.LAMBDAS,
        TokenType.FARROW: lambda self, names: exp.Kwarg(this=exp.var(names[0].name), expression=self._parse_lambda()),
    }

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        """Parse the statements.

        Before a parenthesis, WINDOW and SESSION are function names, and MATCH_CONDITION is a keyword. Elsewhere, WINDOW
        and SESSION are keywords, and MATCH_CONDITION is an ordinary name.
        """
        for token, after in pairwise(raw_tokens):
            if token.text.upper() in ("WINDOW", "SESSION") and after.token_type == TokenType.L_PAREN:
                token.token_type = TokenType.VAR
            if token.text.upper() == "MATCH_CONDITION" and after.token_type == TokenType.L_PAREN:
                token.token_type = TokenType.MATCH_CONDITION
        return super().parse(raw_tokens, sql)

    def _parse_function_call(self, *arguments: Any, **named: Any) -> exp.Expr | None:
        """Parse a call. If the call has no parentheses, also record its position, which sqlglot does not do."""
        first = self._curr
        found = super()._parse_function_call(*arguments, **named)
        if isinstance(found, exp.CurrentDate | exp.CurrentTimestamp):
            found.update_positions(first)
        return found

    def _parse_function_args(self, alias: bool = False) -> list[exp.Expr]:
        """Parse a function's arguments. FLOOR(t TO HOUR) is accepted here, and refused later with a helpful message."""
        found: list[exp.Expr] = super()._parse_function_args(alias)
        if found and self._match_text_seq(TO_UNIT):
            found.append(exp.Kwarg(this=exp.var(TO_UNIT), expression=self._parse_var(any_token=True)))
        return found

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        """Parse a function's argument, which may also be a table, optionally followed by PARTITION BY."""
        if self._curr.token_type == TokenType.TABLE and self._next.token_type != TokenType.L_PAREN:
            self._advance()
            rows: exp.Expr | None = self._parse_table_parts()
        else:
            rows = super()._parse_lambda(alias)
        by = self._parse_disjunction() if self._match(TokenType.PARTITION_BY) else None
        if isinstance(rows, exp.Table) or (by is not None and isinstance(rows, exp.Subquery)):
            columns = by.expressions if isinstance(by, exp.Tuple) else [by.unnest()] if by is not None else []
            return TableArgument(this=rows, expressions=columns)
        return rows

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        """Parse a relation's alias, and a WATERMARK clause before the alias, which sqlglot does not support."""
        clause = self._parse_watermark()
        found = super()._parse_table_alias(alias_tokens)
        if clause is None:
            return found
        alias = found or exp.TableAlias()
        alias.set("watermark", clause)
        return alias

    def _parse_table_parts(self, *arguments: Any, **named: Any) -> exp.Table | exp.Dot | None:
        """Parse a table name in FROM.

        Spark's STREAM t and STREAM(t) are parsed as t, because every table is a stream here.
        """
        if self._curr.token_type != TokenType.VAR or self._curr.text.upper() != "STREAM":
            return super()._parse_table_parts(*arguments, **named)
        after = self._next.token_type if self._next else None
        if after == TokenType.L_PAREN:
            self._advance(2)
            found = super()._parse_table_parts(*arguments, **named)
            self._match_r_paren()
            return found
        if after in (TokenType.VAR, TokenType.IDENTIFIER) and self._next.text.upper() != "WATERMARK":
            self._advance()
        return super()._parse_table_parts(*arguments, **named)

    def _parse_watermark(self) -> WatermarkClause | None:
        """Parse a WATERMARK clause. Return None if there is none; WATERMARK may also be the relation's alias."""
        begin = self._index
        if self._curr.token_type != TokenType.VAR or not self._match_text_seq("WATERMARK"):
            return None
        time = self._parse_disjunction()
        if time is None or isinstance(time, exp.Paren | exp.Tuple):
            self._retreat(begin)
            return None
        alias = self._parse_id_var(any_token=True) if self._match(TokenType.ALIAS) else None
        if not self._match_text_seq("DELAY", "OF") or (delay := self._parse_interval()) is None:
            self.raise_error("expected a time and a delay, as in WATERMARK ts DELAY OF INTERVAL 5 SECONDS")
        return WatermarkClause(this=time, alias=alias, delay=delay)

    def _replace_lambda(self, node: exp.Expr | None, expressions: list[exp.Expr]) -> exp.Expr | None:
        """Parse parameter names in a lambda's body as parameters, not as columns. The names are case-insensitive."""
        spelled = {parameter.name.lower(): parameter.name for parameter in expressions}
        for column in node.find_all(exp.Column) if node else ():
            first = column.parts[0]
            first.set("this", spelled.get(first.name.lower(), first.name))
        return super()._replace_lambda(node, expressions)

    def _parse_join(self, *arguments: Any, **named: Any) -> exp.Join | None:
        """Parse a join. If a join with a function has no ON clause, remove the ON TRUE that sqlglot adds."""
        begin = self._index
        found = super()._parse_join(*arguments, **named)
        call = found.this.this if found is not None and isinstance(found.this, exp.Lateral) else found and found.this
        written = {token.token_type.name for token in self._tokens[begin : self._index]}
        if found is not None and isinstance(call, exp.Func) and "ON" not in written:
            found.set("on", None)
        return found

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        kinds: dict[str, type[exp.Cube | exp.Rollup]] = {"CUBE": exp.Cube, "ROLLUP": exp.Rollup}
        kind = kinds.get(self._curr.token_type.name if self._curr else "")
        if with_prefix or kind is None:
            return super()._parse_cube_or_rollup(with_prefix=with_prefix)
        self._advance()
        # sqlglot does not accept comparisons here.
        return kind(expressions=self._parse_wrapped_csv(self._parse_disjunction))


class RowkindSql(Spark):
    """Spark's dialect, with function calls left as the user wrote them."""

    class Tokenizer(Spark.Tokenizer):
        """A tokenizer that recognizes Spark's keywords and MATCH_RECOGNIZE."""

        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **Spark.Tokenizer.KEYWORDS,
            "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
        }

    Parser = RowkindParser
