"""Translation of the logical plan to a physical plan.

Filters and projections are merged into the calc of the node below them. Column names become fields of the records that
pass along edges, and expressions become DuckDB SQL. Rows are shuffled wherever the partitioning changes.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from rowkind.avro.schema import Record
from rowkind.service.physical.calc import ARRIVAL, ROW_DIGEST, Calc, OnError
from rowkind.service.physical.node import PhysicalNode, PhysicalOperator, PhysicalScan, PhysicalSink, PhysicalUnion
from rowkind.service.plan.calcs import Edge, calc, record_of
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.calc import LogicalProject, LogicalScan, LogicalUnion
from rowkind.service.plan.logical.node import LogicalCalc, LogicalInput, LogicalNode
from rowkind.service.plan.logical.subset import LogicalTemporalFilter
from rowkind.service.plan.operators import TRANSLATIONS
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.scalars import Columns, resolved
from rowkind.service.plan.scalar.types import BIGINT, BINARY
from rowkind.service.plan.traits.changelog_modes import bare_scan, base
from rowkind.service.plan.traits.emptiness import is_empty
from rowkind.service.plan.traits.partitioning import already_partitioned, partitioning, together
from rowkind.service.plan.traits.unique_keys import in_order, unique_keys
from rowkind.service.plan.translate.nodes import traits


def translate(query: Query) -> PhysicalSink:
    """Translate a query to a physical plan. Raises Refusal for an expression that cannot be translated."""
    sink, result = query.sink, columns(query.root)
    key = sink.key if sink.to == "topic" else _own_key(query)
    key_record = record_of(f"{_identifier(query.name)}_key", {name: result[name] for name in key})
    top, sub_key = _in_order(query)
    edge = Edge(
        types=result,
        key=tuple((resolved(name), result[name], True) for name in key),
        sub_key=sub_key,
        key_record=key_record if key else None,
        needs_before=sink.mode != "upsert" or frozenset(key) not in unique_keys(query.root),
    )
    node = _Translator(query.job.on_error).node(top, edge, _identifier(query.name))
    if sub_key:
        of = node.traits
        node = replace(node, traits=traits(query.root, of.partition_key, of.needs_before))
    keyed = bool(key) and sink.mode != "append"
    unmoved = keyed and together(query.root, frozenset(key))
    return PhysicalSink(
        name=query.name,
        topic=sink.topic,
        mode=sink.mode,
        input=node,
        key=key,
        value=node.calc.output,
        key_record=edge.key_record,
        exchange=keyed and not unmoved,
        row_kind=sink.row_kind.physical(sink.mode),
        delivery=sink.delivery,
        fixes=_fixed(query, node) if unmoved and sink.to == "topic" else (),
        ordered=bool(sub_key),
        format=sink.format,
        connect_schema=sink.connect_schema,
        to=sink.to,
        prefix=sink.prefix,
    )


def _own_key(query: Query) -> tuple[str, ...]:
    """Return a unique key of the result by which rows are already partitioned, or an empty key if there is none.

    With this key, an update is one -U and one +U, and no shuffle is needed to recognise it.
    """
    result = columns(query.root)
    keys = in_order(unique_keys(query.root), query.root)
    fitting = (key for key in keys if together(query.root, frozenset(key)))
    return next((key for key in fitting if all(result[name].orderable for name in key)), ())


def _in_order(query: Query) -> tuple[LogicalNode, tuple[tuple[str, bool, bool], ...]]:
    """Add the columns by which the query's result is ordered, if any. Return the plan, and how each column sorts."""
    root = query.root
    if not isinstance(root, LogicalProject) or not isinstance(root.input, LogicalTemporalFilter):
        return root, ()
    order = {f"#order_{number}": each for number, each in enumerate(root.input.order) if each.column is not None}
    columns_ = {name: resolved(str(each.column)) for name, each in order.items()}
    return (
        replace(root, outputs={**root.outputs, **columns_}),
        tuple((name, each.descending, each.nulls_first) for name, each in order.items()),
    )


def _fixed(query: Query, node: PhysicalNode) -> tuple[str, ...]:
    """Return the parts of the input's partition key that the sink's key does not contain, as the user wrote them."""
    parts = partitioning(query.root) or ()
    named = zip(parts, node.traits.partition_key, strict=True)
    return tuple(text for part, text in named if not part.columns & set(query.sink.key))


@dataclass
class _Translator:
    """A walk over one plan. Nodes are numbered, inputs first, so that each node has a unique name.

    For the facts of a NOT IN, a subtree is walked several times. Its nodes get the same names each time.
    """

    on_error: OnError
    _names: Counter[str] = field(default_factory=Counter)
    _known: dict[int, tuple[LogicalNode, str]] = field(default_factory=dict)
    """Node names by object ID. References to the nodes prevent other nodes from getting the same IDs."""

    def node(self, top: LogicalNode, edge: Edge, record: str = "Row") -> PhysicalNode:
        """Translate `top` and everything below it to a physical node whose calc meets the requirements of `edge`."""
        found = base(top)
        if isinstance(found, LogicalScan):
            return self._scan(found, top, edge, record)
        if isinstance(found, LogicalUnion):
            inputs = tuple(self.node(_over(top, each), edge, record) for each in found.inputs)
            return PhysicalUnion(self.name("union", found), inputs, traits(top, (), edge.needs_before))
        return TRANSLATIONS[type(found)](self, found, top, edge, record)

    def calc(self, top: LogicalNode, edge: Edge, input_: Record, below: Columns, record: str) -> Calc:
        return replace(calc(top, edge, input_, below, record), on_error=self.on_error)

    def name(self, word: str, node: LogicalNode) -> str:
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

    def _scan(self, scan: LogicalScan, top: LogicalNode, edge: Edge, record: str) -> PhysicalScan:
        source, bare = scan.source, bare_scan(top) is not None
        input_ = source.declared.select(scan.used)
        below = {scan.name(name): (name, source.declared.type(name)) for name in scan.used}
        below |= {scan.name(ROW_DIGEST): (ROW_DIGEST, BINARY)} if scan.digested else {}
        below |= {scan.name(ARRIVAL): (ARRIVAL, BIGINT)} if scan.numbered else {}
        needs_before = edge.needs_before if source.exact else not source.replaces
        empty = is_empty(top)
        by_key = source.mode == "upsert" and not empty
        time = source.watermark.time.column if source.watermark is not None else None
        return PhysicalScan(
            node=self._scan_name(scan),
            source=source,
            calc=replace(
                self.calc(top, edge, input_, below, record),
                replaced_by=source.primary_key if source.replaces and not source.exact and not empty else (),
                upsert=by_key,
                delete_time=time if by_key and edge.times_deletes else None,
                nets=not (bare and (source.ordered or edge.rewrites)),
            ),
            alias=scan.path,
            traits=traits(top, (), needs_before),
        )

    def input(self, side: LogicalInput, edge: Edge) -> PhysicalNode:
        """Return the node that feeds an operator. The node runs in the operator's stage if no shuffle is needed."""
        node = self.node(side.input, edge)
        if isinstance(node, PhysicalOperator):
            fused = already_partitioned(side.input, edge.decisive)
            return replace(node, fused=fused and edge.salt is None)
        return node


def _over(top: LogicalNode, input_: LogicalNode) -> LogicalNode:
    """Copy the filters and projections above a union onto one of its inputs."""
    return replace(top, input=_over(top.input, input_)) if isinstance(top, LogicalCalc) else input_


def _identifier(name: str) -> str:
    """Convert a sink's name to a valid Avro record name."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return plain if not plain[0].isdigit() else f"_{plain}"
