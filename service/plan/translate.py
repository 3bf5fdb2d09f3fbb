"""The logical plan as a physical one.

Filters and projections are merged into the calc of the node below them, names of the plan become records of edges,
expressions become DuckDB SQL, and there is an exchange where the partitioning changes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from rowkind.avro.schema import Record, Type
from rowkind.operators.facts import HAS_NULL, NOT_EMPTY
from rowkind.service import physical
from rowkind.service.aggregation import AggregateCall, Aggregation, GatheredOrder
from rowkind.service.keys import Salt
from rowkind.service.physical import ROW_DIGEST
from rowkind.service.plan.calcs import Edge, calc, rank_condition, record_of
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalCall,
    LogicalExpand,
    LogicalFilter,
    LogicalInput,
    LogicalJoin,
    LogicalNode,
    LogicalNormalize,
    LogicalProject,
    LogicalRank,
    LogicalScan,
    LogicalSession,
    LogicalTemporalFilter,
    LogicalUnion,
    LogicalWindow,
    OrderColumn,
    Query,
)
from rowkind.service.plan.scalar.scalars import Columns, compile_condition, resolved, show
from rowkind.service.plan.scalar.types import BIGINT, BINARY, INT
from rowkind.service.plan.traits.aliases import sides
from rowkind.service.plan.traits.changelog_modes import bare_scan, base, produced
from rowkind.service.plan.traits.emptiness import is_empty
from rowkind.service.plan.traits.partitioning import (
    already_partitioned,
    normalize_key,
    partitioning,
    temporal_key,
    together,
)
from rowkind.service.plan.traits.unique_keys import in_order, keeps_key, unique_keys


def translate(query: Query) -> physical.PhysicalSink:
    """The physical plan. Raises Refusal for an expression that cannot be translated."""
    sink, result = query.sink, columns(query.root)
    key_record = record_of(f"{_identifier(query.name)}_key", {name: result[name] for name in sink.key})
    edge = Edge(
        types=result,
        key=tuple((resolved(name), result[name], True) for name in sink.key),
        key_record=key_record if sink.key else None,
        needs_before=sink.mode != "upsert" or frozenset(sink.key) not in unique_keys(query.root),
    )
    node = _Translator(query.job.on_error).node(query.root, edge, _identifier(query.name))
    keyed = bool(sink.key) and sink.mode != "append"
    unmoved = keyed and together(query.root, frozenset(sink.key))
    return physical.PhysicalSink(
        name=query.name,
        topic=sink.topic,
        mode=sink.mode,
        input=node,
        key=sink.key,
        value=node.calc.output,
        key_record=edge.key_record,
        exchange=keyed and not unmoved,
        row_kind=sink.row_kind.physical(sink.mode),
        delivery=sink.delivery,
        fixes=_fixed(query, node) if unmoved else (),
        format=sink.format,
    )


def _fixed(query: Query, node: physical.PhysicalNode) -> tuple[str, ...]:
    """The parts of the partition key of what comes to the sink that the sink's key does not name, as in the SQL."""
    parts = partitioning(query.root) or ()
    named = zip(parts, node.traits.partition_key, strict=True)
    return tuple(text for part, text in named if not part.columns & set(query.sink.key))


@dataclass
class _Translator:
    """One walk over the tree; nodes are numbered from the inputs up, so that each has a name of its own.

    What is walked several times, for the facts of a NOT IN, is the same each time, with the same name.
    """

    on_error: physical.OnError
    _names: Counter[str] = field(default_factory=Counter)
    _known: dict[int, tuple[LogicalNode, str]] = field(default_factory=dict)
    """Names by identity; what is named is held, so that no other node can have its identity."""

    def node(self, top: LogicalNode, edge: Edge, record: str = "Row") -> physical.PhysicalNode:
        """The physical node for `top` with everything below it; its calc leads to where `edge` says."""
        match base(top):
            case LogicalScan() as scan:
                return self._scan(scan, top, edge, record)
            case LogicalJoin() as join:
                return self._join(join, top, edge, record)
            case LogicalAggregate() as aggregate:
                return self._aggregate(aggregate, top, edge, record)
            case LogicalRank() as rank:
                return self._rank(rank, top, edge, record)
            case LogicalSession() as session:
                return self._session(session, top, edge, record)
            case LogicalNormalize() as normalize:
                return self._normalize(normalize, top, edge, record)
            case LogicalTemporalFilter() as passing:
                return self._temporal_filter(passing, top, edge, record)
            case LogicalUnion() as union:
                inputs = tuple(self.node(_over(top, each), edge, record) for each in union.inputs)
                return physical.PhysicalUnion(self._name("union", union), inputs, _traits(top, (), edge.needs_before))
            case LogicalFilter() | LogicalProject() | LogicalExpand() | LogicalWindow():
                raise AssertionError("a window is a rank by now, and the others are part of a calc")

    def _calc(
        self, top: LogicalNode, edge: Edge, input_: Record, below: Columns, record: str, **said: Any
    ) -> physical.Calc:
        return replace(calc(top, edge, input_, below, record, **said), on_error=self.on_error)

    def _name(self, word: str, node: LogicalNode) -> str:
        if id(node) not in self._known:
            self._names[word] += 1
            self._known[id(node)] = node, f"{word}_{self._names[word]}"
        return self._known[id(node)][1]

    def _scan_name(self, scan: LogicalScan) -> str:
        if id(scan) not in self._known:
            name = f"scan_{scan.path}"
            self._names[name] += 1
            self._known[id(scan)] = scan, name if self._names[name] == 1 else f"{name}_{self._names[name]}"
        return self._known[id(scan)][1]

    def _scan(self, scan: LogicalScan, top: LogicalNode, edge: Edge, record: str) -> physical.PhysicalScan:
        source, bare = scan.source, bare_scan(top) is not None
        input_ = source.declared.select(scan.used)
        below = {scan.name(name): (name, source.declared.type(name)) for name in scan.used}
        below |= {scan.name(ROW_DIGEST): (ROW_DIGEST, BINARY)} if scan.digested else {}
        needs_before = edge.needs_before if source.exact else not source.replaces
        empty = is_empty(top)
        return physical.PhysicalScan(
            node=self._scan_name(scan),
            source=source,
            calc=self._calc(
                top,
                edge,
                input_,
                below,
                record,
                replaced_by=source.primary_key if source.replaces and not source.exact and not empty else (),
                upsert=source.mode == "upsert" and not empty,
                nets=not (source.ordered and bare),
            ),
            alias=scan.path,
            traits=_traits(top, (), needs_before),
        )

    def _join(self, join: LogicalJoin, top: LogicalNode, edge: Edge, record: str) -> physical.PhysicalJoin:
        left = self._join_side(join, join.left, 0, edge)
        right = self._join_side(join, join.right, 1, edge)
        both = left.calc.output.concat(right.calc.output)
        answer = {} if join.answer is None else {join.answer: columns(join)[join.answer]}
        schema = left.calc.output.concat(record_of("Row", answer)) if join.keeps_left else both
        return physical.PhysicalJoin(
            node=self._name(physical.JOIN_NAMES[join.kind], join),
            kind=join.kind,
            left=left,
            right=right,
            left_input=_input(join.left),
            right_input=_input(join.right),
            schema=schema,
            condition=compile_condition(join.condition, _named(both)),
            calc=self._calc(top, edge, schema, _named(schema), record),
            facts=self._facts(join) if join.counts_right else (),
            on_error=self.on_error,
            traits=_traits(
                top,
                (*_shown(key.left if join.kind != "right" else key.right for key in join.keys), *_salts(join)),
                edge.needs_before,
            ),
        )

    def _join_side(self, join: LogicalJoin, side: LogicalInput, number: int, above: Edge) -> physical.PhysicalNode:
        # Nothing that an anti join emits is made of right rows.
        made_of_it = number == 0 or join.kind not in ("anti", "not in")
        edge = Edge(
            types=_carried(side),
            key=tuple((key.left if number == 0 else key.right, key.type, key.null_safe) for key in join.keys),
            sub_key=tuple((name, False, True) for name in side.sub_key),
            drop_null=join.kind in ("inner", "semi", "right") if number == 0 else not join.pads_right,
            padded=join.pads_right if number == 0 else join.pads_left,
            side=number,
            needs_before=not keeps_key(join, side),
            refreshes=_refreshes(side, above) if made_of_it else side.ttl_ms is not None,
            salt=_salt(side),
        )
        return self._input(side, edge)

    def _facts(self, join: LogicalJoin) -> tuple[physical.PhysicalNode, ...]:
        """What a NOT IN must know of its right side as a whole: whether it has a row, and whether one is NULL."""
        (key,) = join.keys
        null = exp.Is(this=key.right.copy(), expression=exp.Null())
        about = ((join.right.input, NOT_EMPTY), (LogicalFilter(join.right.input, (null,)), HAS_NULL))
        return tuple(self._fact(node, fact) for node, fact in about)

    def _fact(self, node: LogicalNode, fact: bytes) -> physical.PhysicalNode:
        at = exp.Count(this=exp.Star())
        count = LogicalAggregate(
            LogicalInput(node), (), {"rows": LogicalCall("count", (), BIGINT, at)}, is_global=True, at=at
        )
        some = exp.GT(this=resolved("rows"), expression=exp.Literal.number(0))
        return self.node(LogicalFilter(count, (some,)), Edge(types={}, side=2, constant=fact))

    def _aggregate(
        self, aggregate: LogicalAggregate, top: LogicalNode, edge: Edge, record: str
    ) -> physical.PhysicalAggregate:
        side, below = aggregate.input, columns(aggregate.input.input)
        key = tuple((resolved(name), below[name], True) for name in aggregate.group)
        node = self._input(side, Edge(types=_carried(side), key=key, refreshes=_refreshes(side, edge)))
        output = record_of("Row", columns(aggregate))
        calls = tuple(_call(name, call) for name, call in aggregate.calls.items())
        aggregation = Aggregation(
            input=node.calc.output,
            group=aggregate.group,
            calls=calls,
            output=output,
            retracts=produced(side.input) != "append",
            is_global=aggregate.is_global,
            ttl_ms=side.ttl_ms,
            closing=side.closing,
        )
        return physical.PhysicalAggregate(
            node=self._name("aggregate", aggregate),
            input=_with_first_step(node, aggregation) if aggregation.adds_up else node,
            aggregation=aggregation,
            calc=self._calc(top, edge, output, _named(output), record),
            traits=_traits(top, _shown(map(resolved, aggregate.group)), edge.needs_before),
        )

    def _rank(self, rank: LogicalRank, top: LogicalNode, edge: Edge, record: str) -> physical.PhysicalRank:
        side, below = rank.input, columns(rank.input.input)
        given = Edge(
            types=_carried(side),
            key=tuple((resolved(name), below[name], True) for name in rank.partition),
            sub_key=tuple((each.column, each.descending, each.nulls_first) for each in rank.order if each.column),
            refreshes=_refreshes(side, edge),
            salt=_salt(side),
        )
        node = self._input(side, given)
        if _holds_contests(rank):
            node = _with_first_step(node, physical.Contest(rank.ranking, rank.identity))
        schema = node.calc.output.concat(record_of("Row", dict.fromkeys(rank.numbers, INT)))
        scan = bare_scan(side.input)
        return physical.PhysicalRank(
            node=self._name("deduplicate" if rank.ranking.takes_one else "rank", rank),
            input=node,
            state=physical.PhysicalInput(
                "multiset", side.ttl_ms, scan is not None and scan.source.mode == "retract", closing=side.closing
            ),
            ranking=rank.ranking,
            numbers=rank.numbers,
            strategy=rank.strategy,
            reason=rank.reason,
            identity=rank.identity,
            partition=_shown(map(resolved, rank.partition)),
            order=tuple(map(_ordered, rank.order)),
            schema=schema,
            calc=self._calc(top, edge, schema, _named(schema), record),
            condition=rank_condition(rank, node.calc.output, self.on_error),
            settled=rank.settled,
            traits=_traits(top, (*_shown(map(resolved, rank.partition)), *_salts(rank)), edge.needs_before),
        )

    def _session(self, session: LogicalSession, top: LogicalNode, edge: Edge, record: str) -> physical.PhysicalSession:
        side, below = session.input, columns(session.input.input)
        given = Edge(
            types=_carried(side),
            key=tuple((resolved(name), below[name], True) for name in session.partition),
            refreshes=_refreshes(side, edge),
        )
        node = self._input(side, given)
        schema = node.calc.output.concat(record_of("Row", {session.start: columns(session)[session.start]}))
        scan = bare_scan(side.input)
        return physical.PhysicalSession(
            node=self._name("session", session),
            input=node,
            state=physical.PhysicalInput("multiset", side.ttl_ms, scan is not None and scan.source.mode == "retract"),
            time=session.time,
            gap=session.gap,
            partition=_shown(map(resolved, session.partition)),
            order=show(resolved(session.time)),
            schema=schema,
            calc=self._calc(top, edge, schema, _named(schema), record),
            traits=_traits(top, _shown(map(resolved, session.partition)), edge.needs_before),
        )

    def _normalize(
        self, normalize: LogicalNormalize, top: LogicalNode, edge: Edge, record: str
    ) -> physical.PhysicalNormalize:
        side, below = normalize.input, columns(normalize.input.input)
        key = normalize_key(normalize)
        given = Edge(
            types=_carried(side),
            key=tuple((resolved(name), below[name], True) for name in key),
            needs_before=False,
            refreshes=_refreshes(side, edge),
        )
        node = self._input(side, given)
        schema = node.calc.output
        return physical.PhysicalNormalize(
            node=self._name("normalize", normalize),
            input=node,
            state=_input(side),
            reason=normalize.reason,
            calc=self._calc(top, edge, schema, _named(schema), record),
            traits=_traits(top, _shown(map(resolved, key)), edge.needs_before),
        )

    def _temporal_filter(
        self, passing: LogicalTemporalFilter, top: LogicalNode, edge: Edge, record: str
    ) -> physical.PhysicalTemporalFilter:
        side, below = passing.input, columns(passing.input.input)
        key = temporal_key(passing)
        given = Edge(
            types=_carried(side),
            key=tuple((resolved(name), below[name], True) for name in key),
            refreshes=_refreshes(side, edge),
        )
        node = self._input(side, given)
        schema = node.calc.output
        return physical.PhysicalTemporalFilter(
            node=self._name("temporal_filter", passing),
            input=node,
            clock=passing.clock,
            begins=passing.begins,
            ends=passing.ends,
            reason=passing.reason,
            calc=self._calc(top, edge, schema, _named(schema), record),
            closing=side.closing,
            most=passing.most,
            traits=_traits(top, _shown(map(resolved, key)), edge.needs_before),
        )

    def _input(self, side: LogicalInput, edge: Edge) -> physical.PhysicalNode:
        """The node that feeds an operator, in its stage if nothing needs to be shuffled."""
        node = self.node(side.input, edge)
        if isinstance(node, physical.PhysicalOperator):
            fused = already_partitioned(side.input, [(expression, type_) for expression, type_, _ in edge.key])
            return replace(node, fused=fused and edge.salt is None)
        return node


def _over(top: LogicalNode, input_: LogicalNode) -> LogicalNode:
    """The filters and projections above a union, above one of its inputs."""
    match top:
        case LogicalFilter() | LogicalProject() | LogicalExpand():
            return replace(top, input=_over(top.input, input_))
        case _:
            return input_


def _call(name: str, call: LogicalCall) -> AggregateCall:
    plain = (name, call.function, call.type, call.arguments, call.filter, call.distinct, show(call.at))
    order = tuple(GatheredOrder(str(o.column), o.descending, o.nulls_first) for o in call.order)
    return AggregateCall(*plain, order, call.constants, call.grows, call.stage, call.types)


def _with_first_step(node: physical.PhysicalNode, step: Aggregation | physical.Contest) -> physical.PhysicalNode:
    """The input of an aggregate or a rank with what is done to its rows before they are shuffled, if they are."""
    if isinstance(node, physical.PhysicalUnion):
        return replace(node, inputs=tuple(_with_first_step(each, step) for each in node.inputs))
    if not isinstance(node, physical.PhysicalScan) and node.fused:
        return node
    return replace(node, calc=replace(node.calc, partial=step))


def _holds_contests(rank: LogicalRank) -> bool:
    """Whether what cannot reach a rank's range within a batch cannot reach it at all.

    A group that has expired begins again: its row gets worse, which must take the old one's place.
    """
    below = base(rank.input.input)
    return rank.strategy == "append" or (
        rank.strategy == "improving" and isinstance(below, LogicalAggregate) and below.input.ttl_ms is None
    )


def _identifier(name: str) -> str:
    """A sink's name as the name of an Avro record."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return plain if not plain[0].isdigit() else f"_{plain}"


def _named(record: Record) -> Columns:
    return {each.name: (each.name, each.type) for each in record.fields}


def _carried(side: LogicalInput) -> Mapping[str, Type]:
    below = columns(side.input)
    return {name: below[name] for name in side.carried}


def _input(side: LogicalInput) -> physical.PhysicalInput:
    scan = bare_scan(side.input)
    if scan is None:
        return physical.PhysicalInput(side.layout, side.ttl_ms, by_seq=False, closing=side.closing)
    source = scan.source
    return physical.PhysicalInput(
        side.layout,
        side.ttl_ms,
        by_seq=source.ordered,
        exact=source.replaces and source.exact,
        closing=side.closing,
    )


def _salt(side: LogicalInput) -> Salt | None:
    if side.copies > 1:
        return Salt(side.copies, "copies")
    if side.spread > 1:
        return Salt(side.spread, "by sub-key" if side.layout == "unique key" else "by row")
    return None


def _salts(node: LogicalJoin | LogicalRank) -> tuple[str, ...]:
    """What the partition key of a node has besides, where rows of one key are in several shards."""
    return ("salt",) if any(side.spread > 1 for side in sides(node)) else ()


def _refreshes(side: LogicalInput, edge: Edge) -> bool:
    """Whether an operator must be told of rows of this side that are written again; `edge` leads on from it."""
    return side.ttl_ms is not None or edge.refreshes


def _traits(node: LogicalNode, partition_key: tuple[str, ...], needs_before: bool) -> physical.Traits:
    keys = in_order(unique_keys(node), node)
    return physical.Traits(produced(node), keys, keys[0] if keys else (), partition_key, needs_before)


def _shown(expressions: Iterable[exp.Expr]) -> tuple[str, ...]:
    return tuple(map(show, expressions))


def _ordered(order: OrderColumn) -> str:
    column = "arrival" if order.column is None else show(resolved(order.column))
    nulls = (
        ""
        if order.column is None or order.nulls_first != order.descending
        else (" NULLS FIRST" if order.nulls_first else " NULLS LAST")
    )
    return f"{column}{' DESC' if order.descending else ''}{nulls}"
