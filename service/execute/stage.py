"""The stage loop, which runs the operators of a stage over one batch of one shard. All engines use this loop.

The loop visits the stage's members in graph order, so that each operator runs after the operators that feed it:

    changes for the member ─▶ delete times ─▶ late changes dropped ─▶ operator ─▶ a calc for each exit
             ▲                                                                           │
             └─────────────── changes for a member of the same stage ◀───────────────────┤
                                                                    all other exits: the engine

The engine provides the batch's changes and watermarks, and the state. It also handles the outputs: the Spark engine
cuts them into blocks and creates dead letters, and the in-memory engine nets the result and calls a callback.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from rowkind.operators.arrangement.arrangement import StateSize, kept
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.operators.errors import RowFailed
from rowkind.operators.operator import Output
from rowkind.service.execute.blocks import Tally
from rowkind.service.execute.delete_times import DeleteTimes
from rowkind.service.execute.failures import LeftOut, OnFailure, failed_in_operator, misfits
from rowkind.service.execute.lateness import Lateness, may_be_late
from rowkind.service.execute.members import Member, arrangement
from rowkind.service.execute.operators import operator, sources, tables
from rowkind.service.execute.overflow_checks import misfit
from rowkind.service.execute.promises import Broken, broken
from rowkind.service.execute.route import leave, shard_without_key
from rowkind.service.execute.watermarks import Passing, Watermarks, passing
from rowkind.service.physical.graph import Exit, Graph, always_runs, waits


class ShardState(Protocol):
    """The state of one shard of a stage during one batch."""

    @property
    def seconds(self) -> float:
        """The seconds spent so far on reading and writing state."""

    def store(self, name: str) -> BlobStore:
        """Return the blob store of the arrangement that has this name in the stage."""


@dataclass(frozen=True, slots=True)
class ShardBatch:
    """One batch of one shard.

    - `now`: the time of the batch in ms. `before`, `after`: the watermarks before and after the batch.
    - `inbox`: the changes for each member, keyed by the member's position. The loop removes the changes that it
      processes, and adds the changes that members send to each other.
    - `reports`: whether every member reports the size of its state, even if the member has nothing to do.
    """

    shard: int
    now: int
    before: Watermarks
    after: Watermarks
    inbox: dict[int, list[Batch]]
    reports: bool = False


@dataclass(frozen=True, slots=True)
class MemberOutput:
    """The output of one member in a batch.

    - `sent`: the batch for each exit, including exits to members of the same stage.
    - `late`: changes that were late. `watermark`: the watermark before the batch, in ms.
    - `broken`: violations of table constraints in the batch. `left_out`: rows on which an expression failed.
    - `emitted`: what the operator emitted, before the calcs of the exits.
    """

    member: Member
    tally: Tally
    state: StateSize
    sent: Sequence[tuple[Exit, Batch]] = ()
    late: Changes = field(default_factory=Changes.empty)
    watermark: int = 0
    unmatched: Changes = field(default_factory=Changes.empty)
    broken: Sequence[Broken] = ()
    left_out: Sequence[LeftOut] = ()
    emitted: Emitted = field(default_factory=lambda: Emitted(Rows.empty()))


def members(of: Graph, shards: int) -> list[Member]:
    """Return a graph's operators in order of position, each as a member of its level's stage."""
    return [
        Member(
            place=place,
            sink=each.sink,
            node=each.node.node,
            state=each.state,
            operator=operator(each.node, refreshes=each.refreshes),
            exits=each.exits,
            sources=sources(each.node),
            failure=OnFailure(f"{each.sink}.{each.node.node}", tables=tables(each.node)),
            always_runs=shard_without_key(shards) if always_runs(each.node) else None,
            clock=each.clock,
            waits=waits(each.node),
            lateness=Lateness(each.node) if may_be_late(each.node) else None,
            delete_times=DeleteTimes.of(each.node),
            on_error=each.node.calc.on_error,
            misfit=misfit(each.node),
            reads={name: arrangement(of.operators[at].state, known) for name, (at, known) in each.reads.items()},
        )
        for place, each in enumerate(of.operators)
    ]


def run(stage: Sequence[Member], batch: ShardBatch, state: ShardState) -> Iterator[MemberOutput]:
    """Run a stage's members in order, and yield the output of each member with work to do. Raises ExpressionError."""
    places = {member.place for member in stage}
    for member in stage:
        own = Batch.concat(batch.inbox.pop(member.place, []))
        if len(own) or member.always_runs == batch.shard or member.waits:
            output = _run_member(member, own, batch, state)
            for way, sent in output.sent:
                if way.to in places:
                    batch.inbox.setdefault(way.to, []).append(sent)
            yield output
        elif batch.reports:
            size, tally = _kept(member, state), Tally(member.sink, member.node)
            tally.set_state(batch.shard, size)
            yield MemberOutput(member, tally, size)


def _run_member(member: Member, own: Batch, batch: ShardBatch, state: ShardState) -> MemberOutput:
    changes = own.changes
    if member.delete_times is not None:
        changes = member.delete_times(changes, batch.before)
    clock = member.clock
    moved = Passing(batch.now, batch.now) if clock is None else passing(batch.before, batch.after, clock)
    changes, late = _without_late(member, changes, moved.before)
    # A refresh may be late too, because its row has already been evicted.
    refreshes, _ = _without_late(member, own.refreshes, moved.before)
    tally = Tally(member.sink, member.node)
    if len(late):
        tally.add_late(len(late))
    output = _process(member, replace(own, changes=changes, refreshes=refreshes), member.moment(moved), state, tally)
    tally.set_state(batch.shard, output.state)
    if member.waits and clock is not None:
        tally.set_due(batch.shard, batch.after.due_ms(clock, output.due))
    found = tuple(broken(output, member.sources))
    for each in found:
        tally.add_broken(each)
    started = time.perf_counter()
    left_out: list[LeftOut] = []
    failure = replace(member.failure, tell=left_out.append)
    misfits(output.failed, member.misfit, member.on_error, failure)
    sent = [(way, leave(way, output.emitted, failure)) for way in member.exits]
    tally.add_seconds("calc", time.perf_counter() - started)
    for way, batch_sent in sent:
        tally.add_sent(way.into, len(batch_sent.changes))
    tally.add_failed(sum(len(each.reasons) for each in left_out))
    return MemberOutput(
        member, tally, output.state, sent, late, moved.before, output.unmatched, found, left_out, output.emitted
    )


def _without_late(member: Member, changes: Changes, watermark: int) -> tuple[Changes, Changes]:
    """Split the changes into changes on time and late changes."""
    if member.lateness is None:
        return changes, Changes.empty()
    late = member.lateness(changes, watermark)
    if not late.any():
        return changes, Changes.empty()
    return changes.filter(~late), changes.filter(late)


def _process(member: Member, batch: Batch, now: int, state: ShardState, tally: Tally) -> Output:
    """Run a member's operator and count its work."""
    tally.add_rows_in(batch.changes.kind)
    started, before = time.perf_counter(), state.seconds
    stores: Mapping[str, BlobStore] = {name: state.store(known) for name, known in member.arrangements.items()}
    try:
        output = member.operator.process(batch, stores, now)
    except RowFailed as error:
        raise failed_in_operator(error, member.failure) from None
    seconds = state.seconds - before
    tally.add_seconds("state", seconds)
    tally.add_seconds("operator", time.perf_counter() - started - seconds)
    tally.add_rows_out(output.emitted)
    tally.add_merged(output.merged_rows)
    tally.add_unmatched(len(output.unmatched))
    tally.add_expired(output.expired)
    return output


def _kept(member: Member, state: ShardState) -> StateSize:
    """Return the size of a member's state for a batch in which the member has nothing to do."""
    names = [arrangement(member.state, name) for name in member.operator.arrangements]
    return sum((kept(state.store(name), name) for name in names), StateSize())
