"""The members of a stage, which are the operators of one graph level, and the addresses of changes.

Each operator and each sink of a graph numbers its own sides. In transit, a change's side contains an address: the
consumer's own side plus `SIDES` times the consumer's position in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from rowkind.operators.operator import Operator
from rowkind.service.execute.delete_times import DeleteTimes
from rowkind.service.execute.failures import LeftOut, OnFailure
from rowkind.service.execute.lateness import Lateness
from rowkind.service.execute.watermarks import Passing
from rowkind.service.physical.calc import OnError
from rowkind.service.physical.clocks import Clock
from rowkind.service.physical.graph import Exit
from rowkind.service.physical.source_table import SourceTable

SIDES = 4
"""The maximum number of sides of a consumer."""

MOST_PLACES = (1 << 15) // SIDES
"""The maximum number of consumers in a graph. An address must fit into the 16 bits of a side."""

Wrap = Callable[[Changes], pa.BinaryArray]
"""A function that returns one dead letter record per unmatched retraction."""

Tell = Callable[[Changes, int], pa.BinaryArray]
"""A function that returns one dead letter record per late change, given the watermark in ms."""

Explain = Callable[[LeftOut], pa.BinaryArray]
"""A function that returns one dead letter record per omitted row that was inserted. Retracted rows have none."""


@dataclass(frozen=True)
class Member:
    """An operator in a stage.

    - `place`: the operator's position in the graph. `sink`, `node`: its name in the plan, which labels its counters.
    - `state`: the prefix of the operator's state names, which is part of the checkpoint.
    - `reads`: the state of other members of the stage that the operator reads. It maps the operator's name for that
      state to the state's name in the stage.
    - `exits`: where the operator's rows go. `sides`: the names of its inputs, for error messages.
    - `sources`: for each side, the table whose changes arrive as they were sent, or None for other inputs.
    - `failure`: how error messages name the operator, and the policy for rows on which an expression fails.
    - `always_runs`: the shard in which the operator emits rows even if there are no changes.
    - `clock`: the clock that the operator follows. `waits`: whether the operator has work to do as time passes, even
      without changes. `lateness`: decides which changes are late. `delete_times`: sets the times of deletes.
    - `on_error`: the policy for rows that fail in the operator. `misfit`: the reason that is reported for these rows.
    - `wrap`, `explain`, `tell`: functions that turn unmatched retractions, rows on which an expression fails, and late
      changes into dead letters, or None if the job does not want these dead letters.
    """

    place: int
    sink: str
    node: str
    state: str
    operator: Operator
    exits: tuple[Exit, ...] = ()
    sides: tuple[str, ...] = ("its input",)
    sources: tuple[SourceTable | None, ...] = ()
    failure: OnFailure = field(default=OnFailure("an operator"))
    always_runs: int | None = None
    wrap: Wrap | None = None
    explain: Explain | None = None
    clock: Clock | None = None
    waits: bool = False
    lateness: Lateness | None = None
    delete_times: DeleteTimes | None = None
    tell: Tell | None = None
    on_error: OnError = "fail"
    misfit: str = ""
    reads: Mapping[str, str] = field(default_factory=dict)

    def moment(self, time: Passing) -> int:
        """Return the time at which the operator processes a batch.

        An operator that waits uses the time after the batch, so that rows that become due are emitted with that batch.
        Other operators use the time before the batch. Rows that this batch's time evicts are then still in the state
        while the batch's own rows are processed.
        """
        return time.after if self.waits else time.before

    @property
    def arrangements(self) -> Mapping[str, str]:
        """The arrangements that the operator owns or reads, each with its name in the stage's state."""
        return {**{name: arrangement(self.state, name) for name in self.operator.arrangements}, **self.reads}


def arrangement(state: str, name: str) -> str:
    """Return an arrangement's name in the stage's state, given the operator's state name."""
    return f"{state}.{name}"


def address(batch: Batch, place: int) -> Batch:
    """Return the batch with the consumer's own sides replaced by addresses."""
    assert place < MOST_PLACES, "a graph has more operators and sinks than fit into an address"
    changes, refreshes = (
        replace(part, side=part.side.astype(np.int16) + np.int16(SIDES * place))
        for part in (batch.changes, batch.refreshes)
    )
    truncations = {side + SIDES * place: seq for side, seq in batch.truncations.items()}
    return replace(batch, changes=changes, refreshes=refreshes, truncations=truncations)


def addressed(batch: Batch, place: int) -> Batch:
    """Return the part of the batch that is addressed to a consumer, with addresses replaced by the consumer's sides."""
    changes, refreshes = (part.filter(part.side // SIDES == place) for part in (batch.changes, batch.refreshes))
    return Batch(
        replace(changes, side=(changes.side % SIDES).astype(np.int8)),
        replace(refreshes, side=(refreshes.side % SIDES).astype(np.int8)),
        {side % SIDES: seq for side, seq in batch.truncations.items() if side // SIDES == place},
    )
