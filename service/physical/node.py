"""The physical plan: what runs, as plain frozen values that pickle.

A plan is a tree with a `PhysicalSink` at its root. Each edge carries `Rows` out of a node and `Changes` into the next
node. The calc of the lower node turns the rows into changes. Spark (`service.query.streaming`) and the in-memory engine
(`service.query.memory`) both execute this tree and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.operators.changelog import ChangelogMode
from rowkind.operators.field_roles import ASIDE, CHILD
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.clocks import Closing
from rowkind.service.physical.row_kind import DEFAULT_HEADER, RowKindHeader
from rowkind.service.physical.source_table import SourceTable

InputLayout = Literal["one row per key", "unique key", "multiset"]


@dataclass(frozen=True)
class Traits:
    """The plan's facts about the rows that leave a node's calc, for explain and tests.

    Execution uses two of them: the graph reads `needs_before` to decide whether a sink's changes may be netted before
    the shuffle, and a lookup reads the `mode` of its left side.

    - `mode`: which kinds of changes occur. `unique_keys`: sets of columns that each identify at most one live row.
    - `upsert_key`: the key by which updates stay in order. `partition_key`: rows with equal values in it share a shard.
      It is empty for a scan, whose rows follow the topic's partitions.
    - `needs_before`: whether a downstream operator must see the -U of updates.
    """

    mode: ChangelogMode = "retract"
    unique_keys: tuple[tuple[str, ...], ...] = ()
    upsert_key: tuple[str, ...] = ()
    partition_key: tuple[str, ...] = ()
    needs_before: bool = True


@dataclass(frozen=True)
class PhysicalScan:
    """One table read from its topic, for one consumer. `calc.input` has the columns that are read.

    `alias` is the table's name in the query.
    """

    node: str = field(metadata=ASIDE)
    source: SourceTable
    calc: Calc = field(metadata=ASIDE)
    alias: str = field(default="", metadata=ASIDE)
    traits: Traits = field(default=Traits(), metadata=ASIDE)


@dataclass(frozen=True)
class PhysicalInput:
    """The plan's choices for one input of an operator.

    `by_seq`: changes of one key are applied in arrival order. This is needed for a source with a primary key, where a
    bare `+U` replaces, and for one that may retract rows that were never sent. Otherwise the batch is an exact multiset
    of signed rows. `exact`: a retraction carries the row as it was sent; if it finds a different row under its key,
    that row's +U arrived first. `closing` says when rows are evicted by an event time. `remade`: rows are not stored,
    but recomputed from the state of the join that feeds this input.
    """

    layout: InputLayout
    ttl_ms: int | None
    by_seq: bool
    exact: bool = False
    closing: Closing | None = field(default=None, repr=False)
    remade: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class PhysicalOperator(ABC):
    """A node that runs in the shards of a stage. Its calc leads to its consumer.

    `fused`: the node runs in its consumer's stage, because its rows are already partitioned as the consumer needs.
    Nothing is shuffled between the two.
    """

    node: str = field(metadata=ASIDE)
    calc: Calc = field(kw_only=True, metadata=ASIDE)
    traits: Traits = field(default=Traits(), kw_only=True, metadata=ASIDE)
    fused: bool = field(default=False, kw_only=True, metadata=ASIDE)

    @property
    @abstractmethod
    def sides(self) -> tuple[PhysicalNode, ...]:
        """The inputs by side, left before right."""

    @property
    @abstractmethod
    def closings(self) -> tuple[Closing | None, ...]:
        """Per side, when its rows are evicted by an event time; None for never."""


@dataclass(frozen=True)
class PhysicalUnary(PhysicalOperator):
    """An operator over one input."""

    input: PhysicalNode = field(metadata=CHILD)

    @property
    def sides(self) -> tuple[PhysicalNode, ...]:
        """The input."""
        return (self.input,)


@dataclass(frozen=True)
class PhysicalBinary(PhysicalOperator):
    """An operator over two inputs."""

    left: PhysicalNode = field(metadata=CHILD)
    right: PhysicalNode = field(metadata=CHILD)

    @property
    def sides(self) -> tuple[PhysicalNode, ...]:
        """Left and right."""
        return self.left, self.right


@dataclass(frozen=True)
class PhysicalUnion:
    """All inputs as one: each has a calc that leads to the same consumer. A union has no state and computes nothing."""

    node: str = field(metadata=ASIDE)
    inputs: tuple[PhysicalNode, ...] = field(metadata=CHILD)
    traits: Traits = field(default=Traits(), metadata=ASIDE)

    @property
    def calc(self) -> Calc:
        """The calc of the first input: all inputs have the same output, key, sub-key and side."""
        return self.inputs[0].calc


PhysicalNode = PhysicalScan | PhysicalOperator | PhysicalUnion


@dataclass(frozen=True)
class PhysicalSink:
    """The root: where the changes go.

    `key` names the columns of the topic's key and the sink's unique key. It is empty for a retract or append topic
    without a key. `exchange`: the changes must be shuffled by that key before they are written, because rows with one
    key may come from several shards of the input. `fixes` are parts of the input's partition key that do not cause this
    although the key does not name them: all rows that ever have one key have equal values there. `ordered`: the rows of
    a batch are written in the order of their sub-key, then of their arrival. `value` and `key_record` are the schemas
    of the topic. `format` and `connect_schema` say how rows are written.
    """

    name: str
    topic: str
    mode: ChangelogMode
    input: PhysicalNode = field(metadata=CHILD)
    key: tuple[str, ...]
    value: Record
    key_record: Record | None
    exchange: bool
    row_kind: RowKindHeader = DEFAULT_HEADER
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    fixes: tuple[str, ...] = ()
    ordered: bool = False
    format: Literal["avro", "json"] = "avro"
    connect_schema: bool = False

    @property
    def by_seq(self) -> bool:
        """Whether the changes come straight from a table whose rows replace each other, so a key's last change wins."""
        scan = self.input
        return (
            self.mode == "upsert" and isinstance(scan, PhysicalScan) and scan.source.replaces and not scan.calc.expands
        )
