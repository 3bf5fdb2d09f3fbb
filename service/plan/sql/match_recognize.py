"""FROM t MATCH_RECOGNIZE (…): finds rows that match a pattern, and computes measures over each match.

In a condition or measure, each call over a match, such as `LAST(B.price, 1)` or `SUM(B.price)`, becomes a column. So a
condition in DEFINE reads the columns of a row and the columns for calls, and MEASURES is a projection over the
operator's output. Outside of calls, a column of a variable, such as `B.price`, refers to the variable's last row. In
the condition that defines the variable, such a column refers to the row being tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.match.pattern import Program, Skip, program, resumed
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.physical.matching import SoughtPattern
from rowkind.service.plan.calls import LogicalDefine
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.grouping import LogicalMatch
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.scalar.conjuncts import conjuncts
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.sql.match_calls import Calls
from rowkind.service.plan.sql.row_pattern import NamedPattern, row_pattern
from rowkind.service.plan.sql.scope import Relation, Scope, near
from rowkind.service.plan.sql.time_windows import length_of
from rowkind.service.plan.syntax import MatchClause, sql_text


def matched(
    clause: MatchClause, rows: LogicalNode, relation: Relation, path: str
) -> tuple[LogicalNode, dict[str, str]]:
    """Return the matches of a pattern in a relation's rows, and the result's columns by name. Raises Refusal."""
    return _Matched(clause, rows, relation, path).build()


@dataclass
class _Matched:
    clause: MatchClause
    rows: LogicalNode
    relation: Relation
    path: str
    types: Mapping[str, Type] = field(init=False)
    pattern: NamedPattern = field(init=False)
    steps: Program = field(init=False)

    def __post_init__(self) -> None:
        self.types = columns(self.rows)
        self.pattern = row_pattern(self.clause.args["pattern"])
        self.steps = program(self.pattern.pattern)

    def build(self) -> tuple[LogicalNode, dict[str, str]]:
        clause = self.clause
        partition = tuple(self._column(each, "PARTITION BY") for each in clause.args.get("partition") or ())
        order = self._order()
        time = order[0].column or ""
        names = self._names()
        calls = Calls(self.path, self.pattern, names, self.steps, Scope((self.relation,)), self.types, time)
        all_rows = self._all_rows()
        conditions = self._conditions(calls, names)
        measures = self._measures(calls, all_rows=all_rows)
        rows = self.rows
        if calls.computed:
            rows = LogicalProject(rows, {**{name: resolved(name) for name in self.types}, **calls.computed})
        match = LogicalMatch(
            input=LogicalInput(rows),
            partition=partition,
            order=order,
            sought=self._sought(names, all_rows=all_rows),
            defines=conditions,
            carried=tuple(self.types) if all_rows else partition,
            calls=tuple(calls.measured.values()),
            at=clause.args["word"],
        )
        spelled = {name: own for own, name in self.relation.columns.items()}
        first = dict.fromkeys([*partition, *(each.column for each in order if each.column)] if all_rows else partition)
        outputs: dict[str, exp.Expr] = {spelled[name]: resolved(name) for name in first if name in spelled}
        for name, measure in measures.items():
            if any(name.lower() == other.lower() for other in outputs):
                raise Refusal(f"there is already a column {name}: give the measure another name", measure)
            outputs[name] = measure
        if all_rows:
            taken = {name.lower() for name in outputs}
            more = ((own, name) for own, name in self.relation.columns.items() if name not in first)
            outputs |= {own: resolved(name) for own, name in more if own.lower() not in taken}
        named = {name: f"{self.path}.{name}" for name in outputs}
        return LogicalProject(match, dict(zip(named.values(), outputs.values(), strict=True))), named

    def _column(self, node: exp.Expr, clause: str) -> str:
        """Return the plan's column that an item of PARTITION BY or ORDER BY names. Raises Refusal."""
        found = Scope((self.relation,)).resolve(node).unnest()
        if not isinstance(found, exp.Column):
            raise Refusal(f"{clause} takes columns here: compute the expression in a derived table", node)
        if not self.types[found.name].orderable:
            raise Refusal(
                f"{clause} cannot use type {self.types[found.name].sql}: use one of the value's fields, or a key", node
            )
        return found.name

    def _order(self) -> tuple[OrderColumn, ...]:
        order = self.clause.args.get("order")
        if order is None:
            raise Refusal(
                "MATCH_RECOGNIZE needs ORDER BY, starting with the column of a table's watermark",
                self.clause.args["word"],
            )
        found = []
        for each in order.expressions:
            nulls_first = bool(each.args.get("nulls_first"))
            found.append(OrderColumn(self._column(each.this, "ORDER BY"), bool(each.args.get("desc")), nulls_first))
        first, time = order.expressions[0], found[0].column or ""
        if found[0].descending:
            raise Refusal("MATCH_RECOGNIZE reads rows in ascending order of time: remove DESC", first)
        if family(self.types[time]) not in ("timestamp", "local"):
            raise Refusal(
                "ORDER BY must start with the time column of a table's watermark, but this column has type "
                f"{self.types[time].sql}",
                first,
            )
        return tuple(found)

    def _names(self) -> dict[str, tuple[int, ...]]:
        """Map each name in PATTERN and SUBSET, in lower case, to the variables that the name stands for."""
        names: dict[str, tuple[int, ...]] = {name.lower(): (number,) for number, name in enumerate(self.pattern.names)}
        for subset in self.clause.args.get("subsets") or ():
            if subset.name.lower() in names:
                raise Refusal(f"{subset.name} is already a variable: give the subset another name", subset)
            parts = [self._variable(each) for each in subset.expressions]
            names[subset.name.lower()] = tuple(sorted({number for part in parts for number in part}))
        return names

    def _variable(self, node: exp.Expr) -> tuple[int, ...]:
        number = self.pattern.number(node.name)
        if number is None:
            raise Refusal(f"there is no variable {node.name} in PATTERN{near(node.name, self.pattern.names)}", node)
        return (number,)

    def _all_rows(self) -> bool:
        rows = self.clause.args.get("rows")
        text = "ONE ROW" if rows is None else rows.name
        if text.endswith("WITH UNMATCHED ROWS"):
            raise Refusal(
                "WITH UNMATCHED ROWS is not supported: write ALL ROWS PER MATCH, and add an alternative to the "
                "pattern that matches all remaining rows, as in (A B+ | OTHER)",
                rows,
            )
        # SHOW EMPTY MATCHES and OMIT EMPTY MATCHES make no difference, because no match is empty.
        return text.startswith("ALL ROWS")

    def _sought(self, names: Mapping[str, tuple[int, ...]], *, all_rows: bool) -> SoughtPattern:
        within = self.clause.args.get("within")
        length = None if within is None else _length(within)
        text = " ".join(self.clause.args["pattern"].name.split())
        skip, shown = self._skip(names)
        return SoughtPattern(text, self.pattern.names, self.steps, skip, shown, length, all_rows)

    def _skip(self, names: Mapping[str, tuple[int, ...]]) -> tuple[Skip, str]:
        skip = self.clause.args.get("skip")
        if skip is None or skip.args["to"] == "PAST LAST ROW":
            return Skip(), "PAST LAST ROW"
        if skip.args["to"] == "TO NEXT ROW":
            return Skip("next row"), "TO NEXT ROW"
        variables = names.get(skip.name.lower())
        if variables is None:
            raise Refusal(f"there is no variable {skip.name} in PATTERN{near(skip.name, self.pattern.names)}", skip)
        last = skip.args["to"] == "LAST"
        which: Literal["first", "last"] = "last" if last else "first"
        if not resumed(self.steps, frozenset(variables), last=last).possible:
            raise Refusal(
                f"the {which} row of {skip.name} can only be the first row of a match, so the same match would "
                "be found again indefinitely: write TO NEXT ROW",
                skip,
            )
        return Skip(which, variables), f"TO {which.upper()} {skip.name}"

    def _conditions(self, calls: Calls, names: Mapping[str, tuple[int, ...]]) -> tuple[LogicalDefine | None, ...]:
        found: dict[int, LogicalDefine | None] = {}
        for each in self.clause.args.get("define") or ():
            name = each.args["alias"]
            number = self.pattern.number(name.name)
            if number is None:
                what = "is a subset, but" if name.name.lower() in names else "is not in PATTERN, but"
                raise Refusal(f"{name.name} {what} DEFINE takes only variables of the pattern", name)
            if number in found:
                raise Refusal(f"{name.name} is already defined: combine both conditions with AND", name)
            found[number] = self._condition(calls, number, each.this)
        return tuple(found.get(number) for number in range(len(self.pattern.names)))

    @staticmethod
    def _condition(calls: Calls, number: int, node: exp.Expr) -> LogicalDefine | None:
        if isinstance(node, exp.Boolean) and node.this:
            return None
        condition, called = calls.condition(node, number)
        return LogicalDefine(sql_text(node), tuple(conjuncts(condition)), called)

    def _measures(self, calls: Calls, *, all_rows: bool) -> dict[str, exp.Expr]:
        found: dict[str, exp.Expr] = {}
        written: Sequence[exp.Expr] = self.clause.args.get("measures") or ()
        if not written and not all_rows:
            raise Refusal(
                "MATCH_RECOGNIZE needs MEASURES … AS name, which are the columns of the result",
                self.clause.args["word"],
            )
        for each in written:
            if not isinstance(each, exp.Alias):
                raise Refusal("a measure needs a name: write … AS name", each)
            if any(each.alias.lower() == name.lower() for name in found):
                raise Refusal(f"two measures are named {each.alias}: give one of them another name", each.args["alias"])
            found[each.alias] = calls.measure(each.this, all_rows=all_rows)
        return found


def _length(within: exp.Expr) -> int:
    """Return the maximum duration of a match, in microseconds. Raises Refusal."""
    try:
        length = length_of(within)
    except Refusal:
        length = 0
    if length <= 0:
        raise Refusal(
            "WITHIN must be followed by an INTERVAL literal in days or shorter units: WITHIN INTERVAL '1' HOUR", within
        )
    return length
