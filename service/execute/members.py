"""The members of a stage: operators of one level of a graph, and how changes are addressed to them.

Each operator and each sink of a graph has sides of its own. On its way a change's side says both: it is the side under
which the consumer knows it, and `SIDES` times the consumer's place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from rowkind.operators.operator import Operator
from rowkind.service.calc import OnError
from rowkind.service.clocks import Clock
from rowkind.service.execute.delete_times import DeleteTimes
from rowkind.service.execute.failures import LeftOut, OnFailure
from rowkind.service.execute.lateness import Lateness
from rowkind.service.execute.watermarks import Passing
from rowkind.service.graph import Exit
from rowkind.service.source_table import SourceTable

SIDES = 4
"""How many sides a consumer may have."""

MOST_PLACES = (1 << 15) // SIDES
"""How many consumers a graph may have, so that an address fits into a side's sixteen bits."""

Wrap = Callable[[Changes], pa.BinaryArray]
"""The dead letter record of each of these unmatched retractions."""

Tell = Callable[[Changes, int], pa.BinaryArray]
"""The dead letter record of each of these changes, which come too late when the watermark, in ms, has come so far."""

Explain = Callable[[LeftOut], pa.BinaryArray]
"""The dead letter record of each of these rows that come, not of those that go."""


@dataclass(frozen=True)
class Member:
    """An operator in a stage.

    - `place`: its own in the graph. `sink`, `node`: its name in the plan, which labels its counters.
    - `state`: begins the names of its state. It is part of the checkpoint.
    - `reads`: what it calls state of other members of its stage, and what that is called in the state of the stage.
    - `exits`: where its rows go. `sides`: what its inputs are called, for errors.
    - `sources`: the tables whose changes come by them as they were sent, None elsewhere.
    - `failure`: how errors name the operator, and what becomes of rows on which an expression fails.
    - `always_runs`: the shard in which it has something to emit also where there are no changes.
    - `clock`: the time that it goes by where its rows have times of their own. `waits`: it has something to do when
      time has passed, without changes. `lateness`: says which changes are late. `delete_times`: gives deletes a time.
    - `on_error`: what becomes of rows that fail in it, and `misfit` what is wrong with them.
    - `wrap`: makes dead letters of its unmatched retractions; `explain`: of rows on which an expression fails; `tell`:
      of late changes. None where the job asks for none.
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
        """The time at which it processes a batch.

        What time lets go of is still there for the rows of the batch that moves it; what time brings comes with them.
        """
        return time.after if self.waits else time.before

    @property
    def arrangements(self) -> Mapping[str, str]:
        """What each of the arrangements that the operator has or reads is called in the state of the stage."""
        return {**{name: arrangement(self.state, name) for name in self.operator.arrangements}, **self.reads}


def arrangement(state: str, name: str) -> str:
    """What an arrangement is called in the state of a stage, by the name of its operator's state."""
    return f"{state}.{name}"


def address(batch: Batch, place: int) -> Batch:
    """The batch, which has a consumer's own sides, with its address."""
    assert place < MOST_PLACES, "a graph has more operators and sinks than fit into an address"
    changes, refreshes = (
        replace(part, side=part.side.astype(np.int16) + np.int16(SIDES * place))
        for part in (batch.changes, batch.refreshes)
    )
    truncations = {side + SIDES * place: seq for side, seq in batch.truncations.items()}
    return replace(batch, changes=changes, refreshes=refreshes, truncations=truncations)


def addressed(batch: Batch, place: int) -> Batch:
    """What of the batch is for a consumer, with its own sides."""
    changes, refreshes = (part.filter(part.side // SIDES == place) for part in (batch.changes, batch.refreshes))
    return Batch(
        replace(changes, side=(changes.side % SIDES).astype(np.int8)),
        replace(refreshes, side=(refreshes.side % SIDES).astype(np.int8)),
        {side % SIDES: seq for side, seq in batch.truncations.items() if side // SIDES == place},
    )
