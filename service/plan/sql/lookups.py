"""Temporal joins: a left row is joined with the right row valid at its time, or the right rows present on its arrival.

    JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency        the key's version at that time
    JOIN last_rates FOR SYSTEM_TIME AS OF o.ts AS r ON …                         the same, for a view of last rows
    JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON …                        the rows present at its arrival
    JOIN rates FOR SYSTEM_TIME AS OF o.p AS r ON …                               the same, if p is PROCTIME()
    ASOF JOIN rates AS r ON o.currency = r.currency AND o.ts >= r.ts             the nearest row, as in DuckDB
    ASOF JOIN rates AS r MATCH_CONDITION (o.ts >= r.ts) ON …                     as in Snowflake

With LEFT, a row without a match is null-padded. Other conditions in ON are evaluated after the lookup if the key
determines at most one right row. With LEFT, if these conditions are not true, the left row has no match. If the key can
match several right rows, conditions on the right side alone are evaluated before the lookup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.physical.time_match import Comparison, TimeMatch
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalLookup
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalScan
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.scalars import resolved, type_of
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.sql.versioned_views import history
from rowkind.service.plan.traits.derived_times import is_processing_time
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.plan.traits.unique_keys import meets_one

_COMPARISONS: Mapping[type[exp.Expr], tuple[Comparison, Comparison]] = {
    exp.GTE: (">=", "<="),
    exp.GT: (">", "<"),
    exp.LTE: ("<=", ">="),
    exp.LT: ("<", ">"),
}
"""For each comparison, the operator as written, and the operator after swapping the two sides."""

_Compared = tuple[exp.Expr, Comparison, exp.Expr]
"""A left-side time, the comparison operator, and a right-side time."""

_PROCESSING = ("PROCTIME", "NOW", "CURRENT_TIMESTAMP")


@dataclass(frozen=True)
class Lookup:
    """A JOIN's time clauses.

    - `at`: the time after FOR SYSTEM_TIME AS OF; None for an ASOF JOIN.
    - `match`: the MATCH_CONDITION of an ASOF JOIN.
    - `pads`: the join is a LEFT JOIN, which null-pads left rows without a match.
    """

    join: exp.Join
    at: exp.Expr | None
    match: exp.Expr | None
    pads: bool

    @property
    def by_arrival(self) -> bool:
        """Whether the lookup is by processing time."""
        at = self.at
        return isinstance(at, exp.CurrentTimestamp) or (
            isinstance(at, exp.Anonymous) and not at.expressions and at.name.upper() in _PROCESSING
        )


def lookup(join: exp.Join) -> tuple[Lookup, exp.Join] | None:
    """Return a join's time clauses, and the join without these clauses, or None if there are none. Raises Refusal."""
    version = join.this.args.get("version")
    asof = str(join.args.get("method") or "").upper() == "ASOF"
    if version is None and not asof:
        return None
    plain = join.copy()
    plain.set("method", None)
    plain.set("match_condition", None)
    plain.this.set("version", None)
    side, kind = (str(join.args.get(name) or "").upper() for name in ("side", "kind"))
    what = "ASOF" if asof else "FOR SYSTEM_TIME AS OF"
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
        raise Refusal(f"{what} is allowed only with JOIN and LEFT JOIN, because it looks up each left row", join.this)
    at = None
    if version is not None:
        if asof:
            raise Refusal("ASOF JOIN and FOR SYSTEM_TIME AS OF cannot be combined: use one of them", join.this)
        at = version.args.get("expression")
        if version.name.upper() != "TIMESTAMP" or version.args.get("kind") != "AS OF" or at is None:
            raise Refusal(
                "FOR SYSTEM_TIME AS OF must be followed by a time column of the left side, or PROCTIME()", join.this
            )
    found = Lookup(join, at, join.args.get("match_condition"), side == "LEFT")
    return found, plain


def looked_up(
    said: Lookup, left: LogicalNode, right: LogicalNode, on: Sequence[exp.Expr], at: exp.Expr | None
) -> LogicalNode:
    """Return the rows of a lookup: each left row, combined with each right row that the lookup finds for it.

    `on` are the conditions of the ON or USING clause. `at` is the resolved time after FOR SYSTEM_TIME AS OF, and None
    for an ASOF JOIN or a lookup by processing time. Raises Refusal.
    """
    equal = tuple(each for each in on if _is_equality(each, left, right))
    if said.at is None:
        others = tuple(each for each in on if each not in equal)
        return _by_time(said, left, right, equal, _one_comparison(said, others, left, right))
    found = _found(said, left, right, equal, at)
    others = tuple(each for each in on if each not in found.condition)
    if not others:
        return found
    if not said.pads:
        return LogicalFilter(found, others)
    if not meets_one(found):
        return _with_fewer(found, others)
    holds = exp.and_(*others)
    kept: dict[str, exp.Expr] = {name: resolved(name) for name in columns(left)}
    met = {name: exp.case().when(holds.copy(), resolved(name)) for name in columns(found.right.input)}
    return LogicalProject(found, {**kept, **met})


def _with_fewer(found: LogicalLookup, others: Sequence[exp.Expr]) -> LogicalLookup:
    """Return a null-padding lookup, restricted to right rows for which the conditions `others` are true.

    Raises Refusal if a condition reads the left side.
    """
    theirs = columns(found.right.input).keys()
    for each in others:
        if not reads(each) <= theirs:
            raise Refusal(
                "the ON clause of a LEFT JOIN … FOR SYSTEM_TIME AS OF PROCTIME() that can match several rows may "
                "contain only equalities and conditions on right-side columns",
                each,
            )
    return replace(found, right=LogicalInput(LogicalFilter(found.right.input, tuple(others))))


def _found(
    said: Lookup, left: LogicalNode, right: LogicalNode, equal: tuple[exp.Expr, ...], at: exp.Expr | None
) -> LogicalLookup:
    """Return each left row, combined with the rows that FOR SYSTEM_TIME AS OF finds for its key. Raises Refusal."""
    if said.by_arrival or (at is not None and _is_processing_time(at, left)):
        return _by_arrival(said, left, right, equal)
    assert at is not None, "a lookup that is not by processing time has a time of the left side"
    if not reads(at):
        raise Refusal(
            "FOR SYSTEM_TIME AS OF must be followed by a time column of the left side, such as o.ts, or by PROCTIME(): "
            "each left row matches the right row that is valid at that time",
            said.join.this,
        )
    return _by_version(said, left, right, equal, at)


def _is_processing_time(at: exp.Expr, left: LogicalNode) -> bool:
    """Return whether a time of the left side is the left row's processing time."""
    time = event_times(left).get(at.unnest().name) if isinstance(at.unnest(), exp.Column) else None
    return time is not None and time.kind == "time" and is_processing_time(time)


def _is_equality(condition: exp.Expr, left: LogicalNode, right: LogicalNode) -> bool:
    """Return whether a condition is an equality between the two sides of the join."""
    node = condition.unnest()
    if not isinstance(node, exp.EQ | exp.NullSafeEQ):
        return False
    return _sides(node, left, right) is not None


def _sides(node: exp.Expr, left: LogicalNode, right: LogicalNode) -> bool | None:
    """Return whether a comparison's sides are swapped, that is, the join's left side is on the right of the operator.

    Return None if it does not compare the join's two sides.
    """
    a, b = reads(node.this), reads(node.expression)
    mine, theirs = columns(left).keys(), columns(right).keys()
    if a and b and a <= mine and b <= theirs:
        return False
    return True if a and b and a <= theirs and b <= mine else None


def _one_comparison(said: Lookup, others: Sequence[exp.Expr], left: LogicalNode, right: LogicalNode) -> _Compared:
    """Return the parts of an ASOF JOIN's time comparison: the left time, the operator, and the right time.

    Raises Refusal.
    """
    written = [*others, *([said.match] if said.match is not None else [])]
    for each in written:
        node = each.unnest()
        turned = _sides(node, left, right) if type(node) in _COMPARISONS else None
        if turned is None:
            raise Refusal(
                "ASOF JOIN can have only equalities between the two sides and one comparison of their times, "
                "such as a.ts >= b.ts: move this condition to WHERE, or into a subquery",
                each,
            )
    if len(written) != 1:
        raise Refusal(
            "ASOF JOIN needs exactly one comparison between the times of the two sides, such as a.ts >= b.ts, but "
            f"there {'is none' if not written else f'are {len(written)}'}",
            written[1] if written else said.join.this,
        )
    node = written[0].unnest()
    turned = _sides(node, left, right)
    comparison = _COMPARISONS[type(node)][turned is True]
    return (node.expression, comparison, node.this) if turned else (node.this, comparison, node.expression)


def _by_time(
    said: Lookup,
    left: LogicalNode,
    right: LogicalNode,
    equal: tuple[exp.Expr, ...],
    times: _Compared,
) -> LogicalLookup:
    time, comparison, other = times
    left, own = _with_time(left, time)
    right, theirs = _with_time(right, other)
    _check_line(columns(left)[own], columns(right)[theirs], time)
    if not said.pads:
        left = _timed(left, own)
    match = TimeMatch(own, comparison, theirs)
    return LogicalLookup(LogicalInput(left), LogicalInput(_timed(right, theirs)), equal, match, said.pads, said.join)


def _by_version(
    said: Lookup, left: LogicalNode, right: LogicalNode, equal: tuple[exp.Expr, ...], at: exp.Expr
) -> LogicalLookup:
    """Look up the version of a row, found by its key, that is valid at a time.

    If the table's key contains the time, look up rows by time. For a view, look up rows of its history. Raises Refusal.
    """
    if not isinstance(right, LogicalScan):
        return _by_history(said, left, right, equal, at)
    source = right.source
    if source.watermark is None or source.watermark.time.column is None:
        raise Refusal(
            f"FOR SYSTEM_TIME AS OF needs the time from which each row of {source.table} is valid: set the "
            "table's `watermark` to that column, or write ASOF JOIN … MATCH_CONDITION (left.time >= right.time)",
            said.join.this,
        )
    time = right.name(source.watermark.time.column)
    key = frozenset(map(right.name, source.primary_key))
    equal, given = _of_key(equal, right, key - {time})
    if key == given | {time} and given:
        return _by_time(said, left, right, equal, (at, ">=", resolved(time)))
    if not key or key != given:
        wanted = (
            f"its primary key ({', '.join(source.primary_key)})"
            if key
            else "a primary_key, which the table does not have"
        )
        raise Refusal(
            f"FOR SYSTEM_TIME AS OF finds a row of {source.table} by {wanted}: compare every column of the key "
            "with = in the ON clause",
            said.join.this,
        )
    left, own = _with_time(left, at)
    _check_line(columns(left)[own], columns(right)[time], at)
    left = left if said.pads else _timed(left, own)
    match = TimeMatch(own, ">=", time, versions=True)
    return LogicalLookup(LogicalInput(left), LogicalInput(right), equal, match, said.pads, said.join)


def _by_history(
    said: Lookup, left: LogicalNode, right: LogicalNode, equal: tuple[exp.Expr, ...], at: exp.Expr
) -> LogicalLookup:
    """Look up the row that a view contained at a time. The view must select each key's last row. Raises Refusal."""
    found = history(right)
    if found is None:
        raise Refusal(
            "FOR SYSTEM_TIME AS OF with a time needs a table with a primary_key and a watermark, or a view that "
            "selects the last row of each key by ROW_NUMBER() OVER (PARTITION BY key ORDER BY time DESC) = 1 "
            "and contains the key and the time. For other tables, write ASOF JOIN … MATCH_CONDITION "
            "(left.time >= right.time)",
            said.join.this,
        )
    equal, given = _of_key(equal, right, found.key)
    if given != found.key:
        raise Refusal(
            "FOR SYSTEM_TIME AS OF finds a row of the view by its PARTITION BY columns: compare all of them "
            "with = in the ON clause",
            said.join.this,
        )
    return _by_time(said, left, found.rows, equal, (at, ">=", found.time))


def _by_arrival(said: Lookup, left: LogicalNode, right: LogicalNode, equal: tuple[exp.Expr, ...]) -> LogicalLookup:
    return LogicalLookup(LogicalInput(left), LogicalInput(right), equal, None, said.pads, said.join)


def _of_key(
    equal: Sequence[exp.Expr], right: LogicalNode, key: AbstractSet[str]
) -> tuple[tuple[exp.Expr, ...], frozenset[str]]:
    """Return one equality for each column of the right side's key that `equal` compares, and these key columns."""
    found: dict[str, exp.Expr] = {}
    for each in equal:
        for side in (each.unnest().this.unnest(), each.unnest().expression.unnest()):
            if isinstance(side, exp.Column) and side.name in key and side.name in columns(right):
                found.setdefault(side.name, each)
    return tuple(found.values()), frozenset(found)


def _with_time(node: LogicalNode, time: exp.Expr) -> tuple[LogicalNode, str]:
    """Return the rows with a column that holds a time or number, and the name of this column. Raises Refusal."""
    below = columns(node)
    found = type_of(time, {name: (name, type_) for name, type_ in below.items()})
    if family(found) not in ("timestamp", "local", "date", "integer"):
        raise Refusal(f"ASOF JOIN compares TIMESTAMP, DATE or INT values, not {found.sql}", time)
    if found.sql == "BIGINT":
        raise Refusal("ASOF JOIN cannot compare BIGINT values: convert them with TIMESTAMP_MICROS(…)", time)
    bare = time.unnest()
    if isinstance(bare, exp.Column):
        return node, bare.name
    name = f"{min(reads(time))}#time"
    while name in below:
        name += "'"
    return LogicalProject(node, {**{each: resolved(each) for each in below}, name: time}), name


def _check_line(left: Type, right: Type, at: exp.Expr) -> None:
    """Check that both values are times, or both are numbers. Raises Refusal."""
    if (family(left) == "integer") != (family(right) == "integer"):
        raise Refusal(f"{left.sql} and {right.sql} cannot be compared: compare two times, or two INT values", at)


def _timed(node: LogicalNode, time: str) -> LogicalNode:
    """Return the rows whose time is not NULL, because a row whose time is NULL matches no row."""
    if not columns(node)[time].nullable:
        return node
    return LogicalFilter(node, (exp.Not(this=exp.Is(this=resolved(time), expression=exp.Null())),))
