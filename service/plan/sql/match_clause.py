"""The parser for MATCH_RECOGNIZE. Its clauses become nodes of sqlglot's tree.

    FROM t MATCH_RECOGNIZE (
        PARTITION BY …  ORDER BY …  MEASURES … AS …, …
        [ONE ROW PER MATCH | ALL ROWS PER MATCH]  [AFTER MATCH SKIP …]
        PATTERN (…)  [WITHIN INTERVAL …]  [SUBSET u = (a, b), …]  DEFINE a AS …, …
    ) [AS] m

sqlglot supports most of these clauses, but not WITHIN and SUBSET, and does not record the clauses' positions in the
text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from rowkind.service.plan.syntax import MatchClause, MatchFrame, MatchSkip, MatchSubset

FRAMES = ("FINAL", "RUNNING")


class MatchParser(SparkParser):
    """A parser that supports the clauses of MATCH_RECOGNIZE."""

    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        token: parse
        for token, parse in SparkParser.QUERY_MODIFIER_PARSERS.items()
        if token != TokenType.MATCH_RECOGNIZE
    }

    def _parse_table(self, *arguments: Any, **named: Any) -> exp.Expr | None:
        """Parse an item of FROM, and the MATCH_RECOGNIZE clauses that follow it."""
        rows: exp.Expr | None = super()._parse_table(*arguments, **named)
        while rows is not None and self._match(TokenType.MATCH_RECOGNIZE):
            rows = self._match_clause(rows)
        return rows

    def _parse_unary(self) -> exp.Expr | None:
        """Parse an operand, which may be a call preceded by FINAL or RUNNING."""
        frame = self._curr.text.upper() if self._curr else ""
        name, open_ = (*self._tokens[self._index + 1 : self._index + 3], None, None)[:2]
        if frame in FRAMES and name and open_ and open_.token_type == TokenType.L_PAREN and name.text.isidentifier():
            self._advance()
            return MatchFrame(this=super()._parse_unary(), frame=frame)
        return super()._parse_unary()

    def _match_clause(self, rows: exp.Expr) -> MatchClause:
        """Parse the clauses after the keyword MATCH_RECOGNIZE, which has been read already. They apply to `rows`."""
        word = _placed(exp.Var(this=self._prev.text), self._prev, self._prev)
        self._match_l_paren()
        partition = self._parse_partition_by()
        order = self._parse_order()
        measures = self._parse_csv(self._match_measure) if self._match_text_seq("MEASURES") else []
        per_match = self._match_rows()
        skip = self._match_skip()
        if not self._match_text_seq("PATTERN"):
            self.raise_error("the PATTERN clause is missing here, as in PATTERN (A B+)", self._curr)
        pattern = self._match_pattern()
        within = self._parse_interval() if self._match_text_seq("WITHIN") else None
        subsets = self._parse_csv(self._match_subset) if self._match_text_seq("SUBSET") else []
        define = self._parse_csv(self._parse_name_as_expression) if self._match_text_seq("DEFINE") else []
        self._match_r_paren()
        return MatchClause(
            this=rows,
            partition=partition,
            order=order,
            measures=measures,
            rows=per_match,
            skip=skip,
            pattern=pattern,
            within=within,
            subsets=subsets,
            define=define,
            alias=self._parse_table_alias(),
            word=word,
        )

    def _match_measure(self) -> exp.Expr | None:
        """Parse an expression, AS and a name. If AS is missing, a name is not an alias, but begins the next clause."""
        measure: exp.Expr | None = self._parse_alias(self._parse_disjunction(), explicit=True)
        return measure

    def _match_rows(self) -> exp.Expr | None:
        first = self._curr
        if not (self._match_text_seq("ONE", "ROW") or self._match_text_seq("ALL", "ROWS")):
            return None
        text = "ONE ROW" if first.text.upper() == "ONE" else "ALL ROWS"
        if not self._match_text_seq("PER", "MATCH"):
            self.raise_error(f"expected {text} PER MATCH", self._curr)
        for more in ("SHOW EMPTY MATCHES", "OMIT EMPTY MATCHES", "WITH UNMATCHED ROWS"):
            if self._match_text_seq(*more.split()):
                text += f" {more}"
        return _placed(exp.Var(this=text), first, self._prev)

    def _match_skip(self) -> MatchSkip | None:
        if not self._match_text_seq("AFTER", "MATCH", "SKIP"):
            return None
        for to in ("PAST LAST ROW", "TO NEXT ROW"):
            if self._match_text_seq(*to.split()):
                return MatchSkip(to=to)
        if not self._match_text_seq("TO"):
            self.raise_error("after SKIP, expected PAST LAST ROW, TO NEXT ROW, TO FIRST x or TO LAST x", self._curr)
        to = "FIRST" if self._match_text_seq("FIRST") else "LAST"
        self._match_text_seq("LAST")
        return MatchSkip(to=to, this=self._parse_id_var())

    def _match_pattern(self) -> exp.Expr:
        """Parse the text between the parentheses of PATTERN."""
        self._match_l_paren()
        first, open_ = self._curr, 1
        while self._curr and open_:
            open_ += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
            if open_:
                self._advance()
        if open_ or self._curr is first:
            self.raise_error("the pattern must be in parentheses, as in PATTERN (A B+)", self._curr)
        last = self._prev
        pattern = _placed(exp.Var(this=self.sql[first.start : last.end + 1]), first, last)
        self._match_r_paren()
        return pattern

    def _match_subset(self) -> MatchSubset:
        name = self._parse_id_var()
        self._match(TokenType.EQ)
        return MatchSubset(this=name, expressions=self._parse_wrapped_csv(self._parse_id_var))


def _placed(node: exp.Expr, first: Any, last: Any) -> exp.Expr:
    node.meta.update({"start": first.start, "end": last.end})
    return node
