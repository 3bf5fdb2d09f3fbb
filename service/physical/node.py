"""The nodes of a physical plan, as plain, frozen, picklable values.

A plan is a tree with a `PhysicalSink` at its root. On each edge, `Rows` leave the lower node and `Changes` reach the
upper node. The calc of the lower node turns the rows into changes. Spark (`service.query.streaming`) and the in-memory
engine (`service.query.memory`) both execute exactly this tree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.operators.changelog import ChangelogMode
from rowkind.operators.field_roles import ASIDE, CHILD
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.clocks import Closing
from rowkind.service.physical.row_kind import DEFAULT_HEADER, RowKindHeader
from rowkind.service.physical.sink_target import SinkTarget
from rowkind.service.physical.source_table import SourceTable

InputLayout = Literal["one row per key", "unique key", "multiset"]


@dataclass(frozen=True)
class Traits:
    """Facts about the rows that leave a node's calc, for explain and tests.

    Execution uses only two of these facts: the graph reads `needs_before` to decide whether a sink's changes may be
    netted before the shuffle, and a lookup reads the `mode` of its left side.

    - `mode`: the kinds of changes that occur. `unique_keys`: sets of columns. For each set, at most one live row has
      the same values.
    - `upsert_key`: the key whose updates remain in order. `partition_key`: rows with equal values in these columns are
      in the same shard. It is empty for a scan, whose rows follow the topic's partitions.
    - `needs_before`: whether a downstream operator must see the -U of updates.
    """

    mode: ChangelogMode = "retract"
    unique_keys: tuple[tuple[str, ...], ...] = ()
    upsert_key: tuple[str, ...] = ()
    partition_key: tuple[str, ...] = ()
    needs_before: bool = True


@dataclass(frozen=True)
class PhysicalScan:
    """The scan of a table's topic for one consumer. `calc.input` contains the columns that are read.

    `alias` is the table's name in the query.
    """

    node: str = field(metadata=ASIDE)
    source: SourceTable
    calc: Calc = field(metadata=ASIDE)
    alias: str = field(default="", metadata=ASIDE)
    traits: Traits = field(default=Traits(), metadata=ASIDE)


@dataclass(frozen=True)
class PhysicalInput:
    """The settings that the planner has chosen for one input of an operator.

    - `by_seq`: whether changes with the same key are applied in arrival order. This is needed for a source with a
      primary key, where a `+U` alone replaces a row, and for a source that may retract rows that were never sent.
      Otherwise, the batch is an exact multiset of signed rows.
    - `exact`: whether a retraction carries the row as it was sent. If it does and the state contains a different row
      under the same key, that row's +U arrived before the retraction.
    - `closing`: when rows are evicted according to an event time.
    - `remade`: whether rows are recomputed from the state of the join that feeds this input instead of being stored.
    """

    layout: InputLayout
    ttl_ms: int | None
    by_seq: bool
    exact: bool = False
    closing: Closing | None = field(default=None, repr=False)
    remade: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class PhysicalOperator(ABC):
    """A node that runs in the shards of a stage. Its calc prepares the node's rows for the consumer.

    If `fused` is set, the node runs in the consumer's stage without a shuffle in between, because the node's rows are
    already partitioned as the consumer needs.
    """

    node: str = field(metadata=ASIDE)
    calc: Calc = field(kw_only=True, metadata=ASIDE)
    traits: Traits = field(default=Traits(), kw_only=True, metadata=ASIDE)
    fused: bool = field(default=False, kw_only=True, metadata=ASIDE)

    @property
    @abstractmethod
    def sides(self) -> tuple[PhysicalNode, ...]:
        """The input nodes, left before right."""

    @property
    @abstractmethod
    def closings(self) -> tuple[Closing | None, ...]:
        """For each side, the rule by which event time evicts the side's rows, or None if there is no rule."""


@dataclass(frozen=True)
class PhysicalUnary(PhysicalOperator):
    """An operator with one input."""

    input: PhysicalNode = field(metadata=CHILD)

    @property
    def sides(self) -> tuple[PhysicalNode, ...]:
        """The only input node."""
        return (self.input,)


@dataclass(frozen=True)
class PhysicalBinary(PhysicalOperator):
    """An operator with two inputs."""

    left: PhysicalNode = field(metadata=CHILD)
    right: PhysicalNode = field(metadata=CHILD)

    @property
    def sides(self) -> tuple[PhysicalNode, ...]:
        """The left and the right input node."""
        return self.left, self.right


@dataclass(frozen=True)
class PhysicalUnion:
    """A union of inputs, each with its own calc for the same consumer. It has no state and computes nothing."""

    node: str = field(metadata=ASIDE)
    inputs: tuple[PhysicalNode, ...] = field(metadata=CHILD)
    traits: Traits = field(default=Traits(), metadata=ASIDE)

    @property
    def calc(self) -> Calc:
        """The calc of the first input. All inputs have the same output, key, sub-key and side."""
        return self.inputs[0].calc


PhysicalNode = PhysicalScan | PhysicalOperator | PhysicalUnion


@dataclass(frozen=True)
class PhysicalSink:
    """The root of a plan: the topic to which the changes are written, or another destination (`to`).

    - `topic`: the topic's name; empty if the sink has no topic. `prefix`: the beginning of each printed line.
    - `key`: the columns of the topic's key, which are the sink's unique key. For a retract or append topic without a
      key, it is empty. For a sink without a topic, it is the result's own unique key, by which an update is recognised.
    - `value`, `key_record`: the schemas of the topic's values and keys.
    - `exchange`: whether changes must be shuffled by the key before they are written, because rows with the same key
      may come from several shards of the input.
    - `fixes`: parts of the input's partition key that the sink's key does not contain but determines: all rows that
      ever have the same key have equal values in these parts, so they need no shuffle.
    - `ordered`: whether the rows of a batch are written in sub-key order and, for equal sub-keys, in arrival order.
    - `format`, `connect_schema`: how rows are written.
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
    to: SinkTarget = "topic"
    prefix: str = ""

    @property
    def keyed(self) -> bool:
        """Whether changes are netted by the key. The key is empty if the result has at most one row."""
        return bool(self.key) or (self.to != "topic" and () in self.input.traits.unique_keys)

    @property
    def by_seq(self) -> bool:
        """Whether a key's last change wins because changes come directly from a table whose rows replace each other."""
        scan = self.input
        return (
            self.mode == "upsert" and isinstance(scan, PhysicalScan) and scan.source.replaces and not scan.calc.expands
        )


def topic_sinks(sinks: Iterable[PhysicalSink]) -> list[PhysicalSink]:
    """Return the sinks that write to a topic."""
    return [sink for sink in sinks if sink.to == "topic"]
