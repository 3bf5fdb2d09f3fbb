"""The subjects of the laws: operators with the random changelogs that they accept. A new operator adds a line here."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinKind, JoinSpec
from rowkind.operators.operator import Operator
from rowkind.operators.over.framing import Frame
from rowkind.operators.over.over import Over
from rowkind.operators.over.window_call import OverCall
from rowkind.operators.rank.rank import Rank, RankSpec
from rowkind.operators.rank.ranking import RankFunction, Ranking, Strategy
from rowkind.operators.temporal_join.asof import AsofJoin
from rowkind.operators.time.session import Session
from tests import changelogs
from tests.changelogs import Change, pack
from tests.oracle.asof import COMPARISONS, Comparison, complete
from tests.oracle.asof import spec as asof
from tests.oracle.inputs import Batches, Input, Materialised, PartitionedInput, random_batches, retractions
from tests.oracle.overs import OverInput
from tests.oracle.overs import call as over
from tests.oracle.overs import spec as overs
from tests.oracle.ranked import (
    CONDITIONS,
    RankInput,
    RowFilter,
    changelog,
    deduplication,
    identity,
    numbered,
    partition_bound,
)
from tests.oracle.sessions import spec as sessions


@dataclass(frozen=True)
class Subject:
    """An operator and its inputs, which define the changelogs that it accepts."""

    name: str
    operator: Operator
    inputs: tuple[Input, ...]

    def __str__(self) -> str:
        return self.name

    def batches(self, seed: str, *, batches: int = 6, changes: int = 12) -> Batches:
        """Return a random changelog as an upstream operator or a source would send it."""
        return self._regroup([[batch] for batch in random_batches(self.inputs, seed, batches, changes)])

    def in_one_batch(self, batches: Batches) -> Batches:
        """Return the same changelog as a single batch."""
        return self._regroup([batches])

    def in_single_changes(self, batches: Batches) -> Batches:
        """Return the same changelog with one change per batch, in a valid order."""
        return [[change] for batch in batches for change in sorted(batch, key=self._order)]

    def retracting(self, batches: Batches) -> list[Change]:
        """Return a batch that retracts every row that is left after these batches."""
        return retractions(self.inputs, batches)

    def columns(self, batch: Sequence[Change]) -> Batch:
        """Return a batch in the form that the operator takes."""
        return changelogs.packed(batch, [of.table for of in self.inputs])

    def _order(self, change: Change) -> tuple[int, int]:
        return (change.seq, 0) if self.inputs[change.side].by_seq else (-1, change.sign)

    def _regroup(self, groups: Sequence[Batches]) -> Batches:
        """Return each group of batches as one batch; changes of an unordered input need not be net."""
        states = [Materialised(of) for of in self.inputs]
        seq = max((change.seq for batches in groups for batch in batches for change in batch), default=0)
        result: Batches = []
        for batches in groups:
            sent: list[Change] = []
            for batch, (side, state) in itertools.product(batches, enumerate(states)):
                changes, before = [change for change in batch if change.side == side], Counter(state.rows)
                state.apply(changes)
                if self.inputs[side].by_seq:
                    sent += changes
                    continue
                after = Counter(state.rows)
                gone, come = (before - after).elements(), (after - before).elements()
                for row, kind in [*((r, RowKind.DELETE) for r in gone), *((r, RowKind.INSERT) for r in come)]:
                    seq += 1
                    sent.append(Change(side, kind, row, seq))
            result.append(sent)
        return result


def _join(kind: JoinKind, left: Input, right: Input) -> Subject:
    sides = (Side(of.layout, by_seq=of.by_seq) for of in (left, right))
    pads = (pack(of.table.project((None, None, None))) for of in (left, right))
    name = f"{kind} join of {', '.join(f'{of.layout} {_ORDER[of.by_seq]}' for of in (left, right))}"
    return Subject(name, Join(JoinSpec(kind, *sides, None, *pads)), (left, right))


_ORDER = {True: "by seq", False: "net"}
_LAYOUTS: tuple[Layout, ...] = ("one row per key", "unique key", "multiset")
_KINDS: tuple[JoinKind, ...] = ("inner", "left", "right", "full")

JOINS: tuple[Subject, ...] = tuple(
    _join(
        kind,
        Input(left, by_seq=by_seq, key_in_payload=by_seq),
        Input(right, by_seq=(left == right) != by_seq),
    )
    for kind in _KINDS
    for left, right in itertools.product(_LAYOUTS, repeat=2)
    for by_seq in (True, False)
)


@dataclass(frozen=True)
class RankSubject(Subject):
    """A rank or a deduplication over an input that its strategy accepts."""

    spec: RankSpec

    @property
    def _of(self) -> RankInput:
        of = self.inputs[0]
        assert isinstance(of, RankInput)
        return of

    def batches(self, seed: str, *, batches: int = 6, changes: int = 12) -> Batches:
        """Return a random changelog that the strategy accepts, from a source: it includes the order of changes."""
        return changelog(self.spec, self._of, seed, batches, changes)

    def columns(self, batch: Sequence[Change]) -> Batch:
        """Return a batch in the form that the operator takes."""
        return self._of.columns(batch)


def _rank(function: RankFunction, strategy: Strategy, *, with_number: bool) -> RankSubject:
    improving = strategy == "improving"
    spec = RankSpec(
        Ranking(function, 2, 3, strategy=strategy),
        numbered=numbered if with_number else None,
        identity=identity if improving else None,
        by_seq=True,
    )
    of = RankInput("unique key" if improving else "multiset", by_seq=True, stretch=2)
    return RankSubject(f"{function} {'with its number ' * with_number}of {strategy}", Rank(spec), (of,), spec)


def _unbounded(admits: RowFilter | None, *, settled: int | None, functions: tuple[RankFunction, ...]) -> RankSubject:
    bound = partition_bound if admits is not None and admits.sql == "n <= k" else None
    spec = RankSpec(
        Ranking(functions[0], 1, None, settled=settled),
        numbered=numbered if len(functions) > 1 else None,
        numbers=functions if len(functions) > 1 else (),
        admits=admits,
        asked=() if admits is None else (admits.function,),
        bound=bound,
        by_seq=True,
    )
    what = "all rows" if admits is None else f"rows with {admits.sql}"
    return RankSubject(
        f"{', '.join(functions)} of {what}", Rank(spec), (RankInput("multiset", by_seq=True, stretch=2),), spec
    )


def _deduplicate(keep: Literal["first", "last"], strategy: Literal["append", "retract"], *, by_time: bool) -> Subject:
    spec = deduplication(keep, strategy)
    of = RankInput("multiset", by_seq=True, descending=keep == "last", ordered=by_time)
    name = f"deduplicate, {keep} by {'time' if by_time else 'arrival'} of {strategy}"
    return RankSubject(name, Rank(spec), (of,), spec)


_FUNCTIONS: tuple[RankFunction, ...] = ("row_number", "rank", "dense_rank")
_STRATEGIES: tuple[Strategy, ...] = ("append", "improving", "retract")

RANKS: tuple[Subject, ...] = tuple(
    _rank(function, strategy, with_number=with_number)
    for function, strategy in itertools.product(_FUNCTIONS, _STRATEGIES)
    if (function, strategy) != ("dense_rank", "improving")
    for with_number in (True, False)
)

UNBOUNDED_RANKS: tuple[Subject, ...] = (
    _unbounded(None, settled=2, functions=("row_number", "rank")),
    _unbounded(None, settled=None, functions=("rank", "dense_rank")),
    *(_unbounded(RowFilter("rank", *each), settled=None, functions=("rank",)) for each in CONDITIONS[:-1]),
)

DEDUPLICATIONS: tuple[Subject, ...] = tuple(
    _deduplicate(keep, strategy, by_time=by_time)
    for keep in get_args(Literal["first", "last"])
    for strategy in get_args(Literal["append", "retract"])
    for by_time in (True, False)
)


@dataclass(frozen=True)
class SessionSubject(Subject):
    """Sessions over a partitioned input."""

    def columns(self, batch: Sequence[Change]) -> Batch:
        """Return a batch in the form that the operator takes."""
        (of,) = self.inputs
        assert isinstance(of, PartitionedInput)
        return of.columns(batch)


def _session(gap: int, *, by_seq: bool, ends: bool = False) -> Subject:
    of = PartitionedInput("multiset", by_seq=by_seq)
    name = f"sessions with a gap of {gap}{' and ends' * ends} {_ORDER[by_seq]}"
    return SessionSubject(name, Session(sessions(gap, of, ends=ends)), (of,))


SESSIONS: tuple[Subject, ...] = (
    *(_session(gap, by_seq=by_seq) for gap in (2, 7) for by_seq in (True, False)),
    *(_session(7, by_seq=by_seq, ends=True) for by_seq in (True, False)),
)


@dataclass(frozen=True)
class OverSubject(Subject):
    """OVER with an ORDER BY."""

    def columns(self, batch: Sequence[Change]) -> Batch:
        """Return a batch in the form that the operator takes."""
        (of,) = self.inputs
        assert isinstance(of, OverInput)
        return of.columns(batch)


def _over(name: str, *calls: OverCall, by_seq: bool) -> Subject:
    of = OverInput("multiset", by_seq=by_seq)
    return OverSubject(f"{name} {_ORDER[by_seq]}", Over(overs(calls, of)), (of,))


OVERS: tuple[Subject, ...] = tuple(
    _over(name, *calls, by_seq=by_seq)
    for by_seq in (True, False)
    for name, calls in {
        "a running sum and minimum": (over("sum", Frame("rows", None, 0)), over("min", Frame("range", None, 0))),
        "frames of rows and values": (over("avg", Frame("rows", -2, 1)), over("count", Frame("range", -3, 2))),
        "neighbours and numbers": (over("lag", Frame("rows", -1, -1)), over("rank", Frame("rows", None, 0))),
        "places and values that are there": (
            over("ntile", Frame("rows", None, None), 3),
            over("last_value", Frame("rows", None, -1), skips=True),
        ),
        "the value before the last": (over("lag", Frame("rows", None, -1), 2, skips=True),),
        "the second value so far": (over("nth_value", Frame("range", None, 0), 2, skips=True),),
    }.items()
)


@dataclass(frozen=True)
class AsofSubject(Subject):
    """An as-of join; of rows with one time the latest to arrive counts, so that its inputs are ordered."""

    def batches(self, seed: str, *, batches: int = 6, changes: int = 12) -> Batches:
        """Return a random changelog without the right rows that the plan filters."""
        return complete(super().batches(seed, batches=batches, changes=changes))


def _asof(comparison: Comparison, *, padded: bool) -> Subject:
    sides = Input("multiset", by_seq=True), Input("multiset", by_seq=True)
    name = f"{'left ' * padded}as-of join by {comparison}"
    return AsofSubject(name, AsofJoin(asof(comparison, *sides, padded=padded)), sides)


ASOF_JOINS: tuple[Subject, ...] = tuple(
    _asof(comparison, padded=padded) for comparison in COMPARISONS for padded in (True, False)
)

SUBJECTS: tuple[Subject, ...] = (*JOINS, *RANKS, *UNBOUNDED_RANKS, *DEDUPLICATIONS, *SESSIONS, *OVERS, *ASOF_JOINS)
