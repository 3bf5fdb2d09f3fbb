"""The physical plan: what runs, as plain frozen values that pickle.

A plan is a tree with a `PhysicalSink` at its root. Each edge carries `Rows` out of a node and `Changes` into the next
one; the calc of the lower node makes the one out of the other. Spark (`service.query.streaming`) and the in-memory
engine (`service.query.memory`) both execute this tree and nothing else.
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
    """What the plan knows of the rows that leave a node's calc; for explain and for tests, nothing runs by it.

    - `mode`: which kinds of changes there are; `unique_keys`: columns that identify at most one live row each.
    - `upsert_key`: the key by which updates stay in order. `partition_key`: what equal rows share a shard by; empty for
      a scan, whose rows come as the topic's partitions have them.
    - `needs_before`: whether somebody further down must see the -U of updates.
    """

    mode: ChangelogMode = "retract"
    unique_keys: tuple[tuple[str, ...], ...] = ()
    upsert_key: tuple[str, ...] = ()
    partition_key: tuple[str, ...] = ()
    needs_before: bool = True


@dataclass(frozen=True)
class PhysicalScan:
    """One table read from its topic, for one consumer; `calc.input` is the part of it that somebody reads.

    `alias` is what the query calls the table.
    """

    node: str = field(metadata=ASIDE)
    source: SourceTable
    calc: Calc = field(metadata=ASIDE)
    alias: str = field(default="", metadata=ASIDE)
    traits: Traits = field(default=Traits(), metadata=ASIDE)


@dataclass(frozen=True)
class PhysicalInput:
    """What the plan chose for one input of an operator.

    `by_seq` says that changes of one key are to be taken in arrival order (a source with a primary key, where a bare
    `+U` replaces, or one that may take back what was never sent); otherwise the batch is an exact multiset of signed
    rows. `exact` says that retractions are of rows as they were sent, so that one which meets another row under its key
    has been overtaken by the +U. `closing` is when its rows are let go of because of their own time. `remade`: they are
    not kept, but made anew of what the join that feeds the input keeps.
    """

    layout: InputLayout
    ttl_ms: int | None
    by_seq: bool
    exact: bool = False
    closing: Closing | None = field(default=None, repr=False)
    remade: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class PhysicalOperator(ABC):
    """A node that runs in the shards of a stage; its calc leads to its consumer.

    `fused`: the node runs in its consumer's stage, because its rows are partitioned as the consumer wants them; nothing
    is shuffled between the two.
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
        """By side, when its rows are dropped because of their own time."""


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
    """All inputs as one: each has a calc that leads to the same consumer. A union keeps nothing and does nothing."""

    node: str = field(metadata=ASIDE)
    inputs: tuple[PhysicalNode, ...] = field(metadata=CHILD)
    traits: Traits = field(default=Traits(), metadata=ASIDE)

    @property
    def calc(self) -> Calc:
        """That of the first input: all have the same output, key, sub-key and side."""
        return self.inputs[0].calc


PhysicalNode = PhysicalScan | PhysicalOperator | PhysicalUnion


@dataclass(frozen=True)
class PhysicalSink:
    """The root: where the changes go.

    `key` names the columns of the topic's key and the sink's unique key; empty for a retract or append topic without
    one. `exchange` says that the changes must be shuffled by that key before they are written, because rows with one
    key may come from several shards of the input. `ordered` says that the rows of a batch are written in the order of
    their sub-key and, where that is the same, of their arrival. `fixes` are the parts of the input's partition key for
    which that is not so although the key does not name them: they are the same in all rows that ever have one key.
    `value` and `key_record` are the schemas of the topic, `format` and `connect_schema` are how rows are written.
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
        """Whether the changes come straight from a table whose rows replace each other: the last of a key wins."""
        scan = self.input
        return (
            self.mode == "upsert" and isinstance(scan, PhysicalScan) and scan.source.replaces and not scan.calc.expands
        )
