"""Translates calls in DEFINE and MEASURES into columns that the operator computes for a match.

    B.price                       the same as LAST(B.price); in the condition of B, the current row's price
    FIRST(B.price, 2)             a Navigation over a column; an expression becomes a column below the operator
    SUM(B.price * B.size)         a MatchAggregate over such a column
    CLASSIFIER(), MATCH_NUMBER()  a Classifier, a MatchNumber; MATCH_ROWTIME() is the time of the last row

A call without a variable covers all rows of the match. FINAL and RUNNING differ only with ALL ROWS PER MATCH.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.match.calls import Classifier, MatchAggregate, MatchCall, MatchFunction, MatchNumber, Navigation
from rowkind.operators.match.pattern import Program, resumed
from rowkind.service.physical.matching import CalledColumn
from rowkind.service.plan.columns import by_name
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.scalar.scalars import resolved, type_of
from rowkind.service.plan.scalar.types import BIGINT, STRING, family
from rowkind.service.plan.sql.aggregates import ParsedCall, aggregate_type, is_aggregate
from rowkind.service.plan.sql.row_pattern import NamedPattern
from rowkind.service.plan.sql.scope import Scope, is_subquery, near, no_subquery
from rowkind.service.plan.syntax import MatchFrame, sql_text

_AGGREGATES: Mapping[type[exp.Expr], MatchFunction] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
_OF_MATCHES = ("CLASSIFIER", "MATCH_NUMBER", "MATCH_ROWTIME")
_PHYSICAL = ("PREV", "NEXT")


@dataclass
class Calls:
    """Collects the calls in one MATCH_RECOGNIZE clause.

    - `names`: maps each variable or subset name, in lower case, to the variables that the name stands for.
    - `computed`: the columns to be computed below the operator.
    - `measured`: the columns that the operator adds to a row for calls in MEASURES, keyed by call.
    - `time`: the column that holds a row's time.
    """

    path: str
    pattern: NamedPattern
    names: Mapping[str, tuple[int, ...]]
    steps: Program
    scope: Scope
    types: Mapping[str, Type]
    time: str
    computed: dict[str, exp.Expr] = field(default_factory=dict)
    measured: dict[MatchCall, CalledColumn] = field(default_factory=dict)
    _defined: int = 0

    def condition(self, node: exp.Expr, variable: int) -> tuple[exp.Expr, tuple[CalledColumn, ...]]:
        """Return a variable's condition, in which columns replace the calls, and these columns.

        Raises Refusal.
        """
        called: dict[MatchCall, CalledColumn] = {}

        def replaced(each: exp.Expr) -> exp.Expr:
            if isinstance(each, MatchFrame):
                raise Refusal(
                    f"{each.args['frame']} is allowed only in MEASURES, because DEFINE sees only the rows so far", each
                )
            if isinstance(each, exp.Anonymous) and word(each) in _OF_MATCHES:
                raise Refusal(
                    f"{word(each)}() is allowed only in MEASURES, because a match is known only when it is complete",
                    each,
                )
            if isinstance(each, exp.Column | exp.Last):
                variables, value, offset = self._navigated(each)
                if offset == 0 and (not variables or variable in variables):
                    return value if isinstance(value, exp.Column) else exp.Paren(this=value)
            call = self._call(each, final=False, variable=variable)
            if call is None:
                return each
            if call not in called:
                self._defined += 1
                name = f"{self.path}.#so far {self._defined}"
                called[call] = CalledColumn(name, call, self._type(call, each, sure=False), sql_text(each))
            return resolved(called[call].name, like=each)

        return node.transform(replaced), tuple(called.values())

    def measure(self, node: exp.Expr, *, all_rows: bool) -> exp.Expr:
        """Return a measure as an expression over the columns that the operator emits. Raises Refusal."""

        def replaced(each: exp.Expr) -> exp.Expr:
            framed = isinstance(each, MatchFrame)
            final = each.args["frame"] == "FINAL" if framed else False
            asked = each.this if framed else each
            call = self._call(asked, final=final and all_rows)
            if call is None:
                if framed:
                    raise Refusal(
                        f"{each.args['frame']} must be followed by FIRST, LAST or an aggregate function", each
                    )
                return each
            if call not in self.measured:
                name = f"{self.path}.#{len(self.measured) + 1}"
                type_ = self._type(call, asked, sure=call.final or not all_rows)
                self.measured[call] = CalledColumn(name, call, type_, sql_text(each))
            return resolved(self.measured[call].name, like=each)

        return node.transform(replaced)

    def _call(self, node: exp.Expr, *, final: bool, variable: int | None = None) -> MatchCall | None:
        """Translate a call over the rows of a match. Return None if the expression is not such a call. Raises Refusal.

        In DEFINE, `variable` is the variable being defined.
        """
        if is_subquery(node):
            no_subquery(node)
        if isinstance(node, exp.Window | exp.Filter | exp.Distinct):
            raise Refusal(f"{_kind(node)} is not supported in a row pattern", node)
        if isinstance(node, exp.Anonymous):
            return self._named(node, final=final, variable=variable)
        if isinstance(node, exp.Column | exp.First | exp.Last):
            variables, value, offset = self._navigated(node)
            return Navigation(variables, self._computed(value), isinstance(node, exp.First), offset, final)
        if type(node) in _AGGREGATES:
            return self._aggregate(node, final=final)
        if is_aggregate(node):
            raise Refusal(
                f"{word(node) if isinstance(node, exp.Func) else 'this'} is not supported over the rows of a "
                "match: use COUNT, SUM, AVG, MIN, MAX, FIRST or LAST",
                node,
            )
        return None

    def _named(self, node: exp.Anonymous, *, final: bool, variable: int | None = None) -> MatchCall | None:
        name = word(node)
        if name in _PHYSICAL:
            raise Refusal(
                f"{name} is not supported, because it reads rows outside the match: {self._instead(node, variable)}",
                node,
            )
        if name not in _OF_MATCHES:
            return None
        if node.expressions:
            raise Refusal(f"{name}() takes no arguments", node)
        match name:
            case "CLASSIFIER":
                return Classifier(self.pattern.names, final)
            case "MATCH_NUMBER":
                return MatchNumber()
            case _:
                return Navigation((), self.time, final=True)

    def _instead(self, node: exp.Anonymous, variable: int | None) -> str:
        """Return advice on how to replace PREV or NEXT."""
        if word(node) == "NEXT":
            return (
                "test the next row in the condition of the next variable, as in PATTERN (A B) DEFINE B AS B.x > "
                "A.x, and write AFTER MATCH SKIP TO B if that row may begin the next match"
            )
        value, *more = node.expressions or [exp.column("x")]
        offset = sql_text(more[0]) if more else "1"
        of = {self._variables(each) for each in value.find_all(exp.Column)}
        bare = sql_text(value.transform(lambda each: self._bare(each) if isinstance(each, exp.Column) else each))
        lag = (
            f"compute LAG({bare}{f', {offset}' if more else ''}) OVER (PARTITION BY … ORDER BY …) in a derived "
            "table, which returns the previous row of the partition"
        )
        if variable is not None and all(not each or variable in each for each in of):
            return (
                f"for the previous row of the match, write LAST({bare}, {offset}); for a row that may be in no "
                f"match, {lag}"
            )
        return lag

    def _navigated(self, node: exp.Expr) -> tuple[tuple[int, ...], exp.Expr, int]:
        """Return the variables in a call, the call's expression over one of their rows, and the offset of that row.

        The offset is counted from the first or last row.

        Raises Refusal.
        """
        if isinstance(node, exp.Column):
            return *self._of_row(node, node), 0
        offset = node.args.get("expression")
        if offset is not None and not (isinstance(offset, exp.Literal) and offset.is_int):
            raise Refusal("the number of rows must be an integer literal, as in LAST(A.x, 1)", offset)
        return *self._of_row(node.this, node), 0 if offset is None else int(offset.name)

    def _aggregate(self, node: exp.Expr, *, final: bool) -> MatchAggregate:
        function, argument = _AGGREGATES[type(node)], node.this
        if isinstance(argument, exp.Distinct) or node.args.get("expressions"):
            raise Refusal(f"{function.upper()} over the rows of a match takes one argument, without DISTINCT", node)
        if function == "count" and isinstance(argument, exp.Star | exp.Literal):
            return MatchAggregate("count", (), None, final=final)
        if isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star):
            if function != "count":
                raise Refusal("* is allowed only in COUNT(…)", node)
            return MatchAggregate("count", self._variables(argument), None, final=final)
        variables, value = self._of_row(argument, node)
        type_ = self._result(function, value, node)
        decimal = (type_.precision, type_.scale) if family(type_) == "decimal" and function in ("sum", "avg") else None
        return MatchAggregate(function, variables, self._computed(value), decimal, final)

    def _result(self, function: MatchFunction, value: exp.Expr, at: exp.Expr) -> Type:
        return aggregate_type(ParsedCall(function, (value,)), (self._scalar(value),), at)

    def _of_row(self, node: exp.Expr, call: exp.Expr) -> tuple[tuple[int, ...], exp.Expr]:
        """Resolve an expression over one row; return the variables whose rows it reads, and the expression.

        Raises Refusal.
        """
        found: dict[tuple[int, ...], exp.Expr] = {}

        def replaced(each: exp.Expr) -> exp.Expr:
            if isinstance(each, exp.Column):
                found.setdefault(self._variables(each), each)
                return self.scope.resolve(self._bare(each))
            if isinstance(each, exp.Anonymous) and word(each) in _PHYSICAL:
                self._named(each, final=False)
            if isinstance(each, exp.First | exp.Last | exp.AggFunc | MatchFrame):
                raise Refusal("calls cannot be nested here: the argument must be an expression over one row", each)
            return each

        value = node.transform(replaced)
        if len(found) > 1:
            first, second = list(found.values())[:2]
            names = f"{sql_text(first)} and {sql_text(second)}"
            raise Refusal(f"{names} refer to different rows: write a separate call for each", call)
        if not found:
            raise Refusal(
                "this call contains no column, so it refers to no row: use a column of a variable, as in LAST(A.x)",
                call,
            )
        return next(iter(found)), value

    def _variables(self, column: exp.Column) -> tuple[int, ...]:
        """Return the variables to whose rows a column refers. An empty tuple means all rows of the match.

        Raises Refusal.
        """
        if len(column.parts) == 1:
            return ()
        first = column.parts[0]
        if first.name.lower() in self.names:
            return self.names[first.name.lower()]
        (relation,) = self.scope.relations
        if first.name.lower() != relation.alias.lower() and not relation.find(first.name):
            known = near(first.name, self.pattern.names)
            raise Refusal(f"there is no variable {first.name} in PATTERN{known}", first)
        return ()

    def _bare(self, column: exp.Column) -> exp.Column:
        """Return a column without the variable that qualifies it."""
        parts = column.parts
        if len(parts) == 1 or parts[0].name.lower() not in self.names:
            return column
        rest = [each.copy() for each in parts[1:]]
        return exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(rest), strict=False)))

    def _computed(self, value: exp.Expr) -> str:
        """Return the column that holds the value of an expression over one row. The column is added if necessary."""
        bare = value.unnest()
        if isinstance(bare, exp.Column):
            return bare.name
        known = {expression: name for name, expression in self.computed.items()}
        if value not in known:
            self._scalar(value)
            self.computed[f"{self.path}.#row {len(self.computed) + 1}"] = value
            return next(reversed(self.computed))
        return known[value]

    def _scalar(self, value: exp.Expr) -> Type:
        return type_of(value, by_name(self.types))

    def _type(self, call: MatchCall, at: exp.Expr, *, sure: bool) -> Type:
        """Return a call's result type. `sure` is True if the call is evaluated over a whole match."""
        match call:
            case Classifier():
                return STRING
            case MatchNumber():
                return BIGINT
            case MatchAggregate():
                if call.column is None:
                    return BIGINT
                return self._result(call.function, self._value(call.column), at)
        type_ = self._scalar(self._value(call.column))
        there = not call.variables or (sure and not resumed(self.steps, frozenset(call.variables), last=False).missing)
        return type_ if there and call.offset == 0 else type_.as_nullable()

    def _value(self, column: str) -> exp.Expr:
        return self.computed.get(column, resolved(column))


def _kind(node: exp.Expr) -> str:
    return "OVER" if isinstance(node, exp.Window) else "FILTER" if isinstance(node, exp.Filter) else "DISTINCT"
