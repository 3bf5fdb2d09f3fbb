"""Time windows as functions in GROUP BY or in the SELECT list.

    GROUP BY window(ts, '10 minutes'[, '5 minutes'[, '1 minute']])       Spark: window.start, window.end, the struct
    GROUP BY session_window(ts, '5 minutes'), k                          Spark: sessions within the other group columns
    GROUP BY TUMBLE(ts, INTERVAL '10' MINUTE)                            Flink: TUMBLE_START, TUMBLE_END, TUMBLE_ROWTIME
    GROUP BY HOP(ts, slide, size) or SESSION(ts, gap), k                 Flink: likewise
    window_time(window)                                                  the last time in a window

A SELECT can have only one window, but may repeat it. The window's start and end are added as columns to the rows of
FROM. Before names are resolved, calls such as TUMBLE_START are replaced with expressions over these columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.service.plan.columns import by_name, columns
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.job_functions import function_of
from rowkind.service.plan.scalar.scalars import type_of
from rowkind.service.plan.scalar.time_windows import WindowTime, interval
from rowkind.service.plan.sql.context import Context, Queries
from rowkind.service.plan.sql.scope import Relation, Scope, outside_queries
from rowkind.service.plan.sql.time_windows import InWindows, TimeWindow, WindowKind, time_window

_PARAMETERS: Mapping[str, tuple[WindowKind, tuple[str, ...], int]] = {
    "WINDOW": ("HOP", ("SIZE", "SLIDE", "OFFSET"), 1),
    "SESSION_WINDOW": ("SESSION", ("GAP",), 1),
    "TUMBLE": ("TUMBLE", ("SIZE",), 1),
    "HOP": ("HOP", ("SLIDE", "SIZE"), 2),
    "SESSION": ("SESSION", ("GAP",), 1),
}
"""For each function, the kind of window, the names of the lengths that follow the time, and the number of required
lengths.
"""

_OF_SPARK = ("WINDOW", "SESSION_WINDOW")
_PARTS = {"START": "start", "END": "end", "ROWTIME": "time", "PROCTIME": ""}
_WINDOW_TIME = "WINDOW_TIME"
_CLAUSES = ("having", "qualify", "order")


@dataclass(frozen=True)
class GroupWindow:
    """A SELECT's window: the rule that assigns rows to windows, and columns for the start and end, not resolved yet."""

    windows: InWindows
    start: exp.Expr
    end: exp.Expr

    @property
    def is_session(self) -> bool:
        """Whether the window is a session."""
        return self.windows.window.kind == "SESSION"

    @property
    def struct(self) -> exp.Expr:
        """The whole window as a struct, as in Spark."""
        parts = [exp.Literal.string("start"), self.start.copy(), exp.Literal.string("end"), self.end.copy()]
        return exp.Anonymous(this="NAMED_STRUCT", expressions=parts)

    def part(self, name: str) -> exp.Expr:
        """Return the window's start, its end, or its time. As in Flink, the time is 1 ms before the end."""
        if name == "time":
            return WindowTime(this=self.end.copy(), by=interval(1_000))
        return (self.start if name == "start" else self.end).copy()


def group_window(
    tree: exp.Select, rows: LogicalNode, scope: Scope, context: Context, queries: Queries
) -> tuple[exp.Select, Scope, GroupWindow | None]:
    """Replace a SELECT's time window functions with columns; return the SELECT, the scope, and the window or None.

    Raises Refusal.
    """
    called = [each for clause in _clauses(tree) for each in outside_queries(clause) if _is_called(each)]
    if not called:
        return tree, scope, None
    found: dict[tuple[TimeWindow, exp.Expr], exp.Expr] = {}
    for call in called:
        if isinstance(call, exp.Func) and word(call) != _WINDOW_TIME:
            window, time = _window(call)
            time = time.transform(_WindowRewriting(scope, None, frozenset()).meant)
            found.setdefault((window, _moment(scope.resolve(time), rows)), call)
    if len(found) > 1:
        raise Refusal(
            "a SELECT can have only one time window, because with two, each row would belong to pairs of windows: "
            "compute the other window in a derived table",
            list(found.values())[1],
        )
    placed = None
    for (window, time), call in found.items():
        path = queries.invent(context.path, "window")
        alias = path.removeprefix(context.path).rstrip(".")
        names = {"start": f"{path}start", "end": f"{path}end"}
        scope = replace(scope, relations=(*scope.relations, Relation(alias, names, hidden=True)))
        placed = GroupWindow(
            InWindows(window, time, names["start"], names["end"], call),
            _column("start", alias, call),
            _column("end", alias, call),
        )
    return _WindowRewriting(scope, placed, _names(called, scope)).select(tree), scope, placed


def _clauses(tree: exp.Select) -> Iterator[exp.Expr]:
    yield from tree.expressions
    for name in ("group", *_CLAUSES):
        if (clause := tree.args.get(name)) is not None:
            yield from clause.iter_expressions()


def _is_called(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Anonymous) or function_of(node) is not None:
        return False
    name = word(node)
    return name in _PARAMETERS or name == _WINDOW_TIME or _auxiliary(name) is not None


def _auxiliary(name: str) -> tuple[str, str] | None:
    """Return the kind of window and the part that a function such as TUMBLE_START means, or None for any other."""
    kind, _, part = name.rpartition("_")
    return (kind, part) if kind in _PARAMETERS and kind not in _OF_SPARK and part in _PARTS else None


def _window(call: exp.Expr) -> tuple[TimeWindow, exp.Expr]:
    """Return the window in a call, and the expression for the time by which rows are assigned to it. Raises Refusal."""
    assert isinstance(call, exp.Anonymous), "sqlglot parses window functions as unknown functions"
    name = word(call)
    if (about := _auxiliary(name)) is not None:
        name, part = about
        if part == "PROCTIME":
            raise Refusal("functions such as TUMBLE_PROCTIME are not supported: write PROCTIME() instead", call)
    kind, lengths, least = _PARAMETERS[name]
    given = call.expressions[1:]
    if not least <= len(given) <= len(lengths):
        shown = [each.lower() for each in lengths[:least]] + [f"[{each.lower()}]" for each in lengths[least:]]
        raise Refusal(f"{name} must be written {name}(time, {', '.join(shown)})", call)
    return time_window(kind, dict(zip(lengths, given, strict=False)), call), call.expressions[0]


def _moment(time: exp.Expr, rows: LogicalNode) -> exp.Expr:
    """Return a row's time. As in Spark, if the time is a window struct, this is the last time in that window."""
    type_ = type_of(time, by_name(columns(rows)))
    if type_.kind == "record" and [field.name for field in type_.fields] == ["start", "end"]:
        return WindowTime(this=exp.Dot(this=time, expression=exp.to_identifier("end")), by=interval(1))
    return time


def _names(called: Sequence[exp.Expr], scope: Scope) -> frozenset[str]:
    """Return the names that, as in Spark, refer to the window, except names that a relation or column already has."""
    names = {word(each).lower() for each in called if isinstance(each, exp.Func) and word(each) in _OF_SPARK}
    aliases = {relation.alias.lower() for relation in scope.relations}
    return frozenset(name for name in names - aliases if not scope.knows(exp.column(name)))


def _column(name: str, table: str, like: exp.Expr) -> exp.Column:
    column = exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(table, quoted=True))
    column.this.meta.update(next((each.meta for each in like.walk() if "start" in each.meta), {}))
    return column


@dataclass(frozen=True)
class _WindowRewriting:
    """Rewrites time window functions, and names that refer to the window, in a SELECT."""

    scope: Scope
    window: GroupWindow | None
    names: frozenset[str]

    def select(self, tree: exp.Select) -> exp.Select:
        """Return the SELECT with time window functions replaced by columns."""
        tree = tree.copy()
        tree.set("expressions", [self._item(each) for each in tree.expressions])
        if (group := tree.args.get("group")) is not None:
            group.set("expressions", [part for each in group.expressions for part in self._group(each)])
            for name in ("grouping_sets", "rollup", "cube"):
                if isinstance(sets := group.args.get(name), list):
                    group.set(name, [self._within(each) for each in sets])
        for name in _CLAUSES:
            if (clause := tree.args.get(name)) is not None:
                tree.set(name, clause.transform(self.meant))
        return tree

    def _item(self, item: exp.Expr) -> exp.Expr:
        named = self._is_window(item)
        meant = item.transform(self.meant)
        if named and self.window is not None:
            name = item.name if isinstance(item, exp.Column) else word(item).lower()  # type: ignore[arg-type]
            return exp.alias_(meant, name, quoted=True)
        return meant

    def _group(self, each: exp.Expr) -> list[exp.Expr]:
        """Return what replaces an item of GROUP BY. A window is replaced by its start and its end."""
        if self.window is not None and self._is_window(each.unnest()):
            return [self.window.part("start"), self.window.part("end")]
        return [self._within(each)]

    def _within(self, each: exp.Expr) -> exp.Expr:
        """Return the replacement for an item of GROUPING SETS. A window becomes its start and end, as one item."""
        if isinstance(each, exp.Tuple | exp.GroupingSets | exp.Rollup | exp.Cube):
            each.set("expressions", [part for inner in each.expressions for part in self._in_set(inner, each)])
            return each
        return each.transform(self.meant)

    def _in_set(self, inner: exp.Expr, around: exp.Expr) -> list[exp.Expr]:
        parts = self._group(inner)
        return parts if len(parts) == 1 or isinstance(around, exp.Tuple) else [exp.Tuple(expressions=parts)]

    def _is_window(self, node: exp.Expr) -> bool:
        """Return whether an expression is the whole window, either as a function call or by name."""
        if isinstance(node, exp.Column):
            return not node.table and node.name.lower() in self.names
        return isinstance(node, exp.Anonymous) and function_of(node) is None and word(node) in _PARAMETERS

    def meant(self, node: exp.Expr) -> exp.Expr:
        """Return what replaces a node. sqlglot's `transform` calls this method for each node."""
        if isinstance(node, exp.Query):
            # A subquery has its own window. `transform` does not descend into a replaced node, such as this copy.
            return node.copy()
        if isinstance(node, exp.Anonymous) and function_of(node) is None and word(node) == _WINDOW_TIME:
            return self._time(node)
        if self.window is None:
            return node
        if isinstance(node, exp.Dot) and self._is_window(node.this.unnest()) and node.expression.name.lower() in _EDGES:
            return self.window.part(node.expression.name.lower())
        if isinstance(node, exp.Column) and node.table.lower() in self.names and node.name.lower() in _EDGES:
            return self.window.part(node.name.lower())
        if isinstance(node, exp.Anonymous) and function_of(node) is None and (about := _auxiliary(word(node))):
            return self.window.part(_PARTS[about[1]])
        if isinstance(node, exp.Window) and (parts := node.args.get("partition_by")):
            return self._partitioned(node, parts)
        return self.window.struct if self._is_window(node) else node

    def _partitioned(self, node: exp.Window, parts: Sequence[exp.Expr]) -> exp.Expr:
        if any(self._is_window(each.unnest()) for each in parts):
            node = node.copy()
            node.set("partition_by", [part for each in parts for part in self._group(each.copy())])
            return node.transform(self.meant)
        return node

    def _time(self, node: exp.Anonymous) -> exp.Expr:
        """Return the time that WINDOW_TIME yields for its argument: the last microsecond of the window, as in Spark."""
        if len(node.expressions) != 1:
            raise Refusal(f"{_WINDOW_TIME} takes one argument, a window", node)
        given = node.expressions[0].unnest()
        if self.window is not None and self._is_window(given):
            return WindowTime(this=self.window.part("end"), by=interval(1))
        return WindowTime(
            this=exp.Dot(this=given.transform(self.meant), expression=exp.to_identifier("end")), by=interval(1)
        )


_EDGES = ("start", "end")
