"""The rank and the deduplication against DuckDB: after every batch the output equals SQL over the input so far.

Each case is a random changelog over a function, a range, a strategy and a direction, with or without the number in the
output. There are few values, so that ties, NULLs and duplicates occur, strong and weak hashes, order keys that share
their code, and segments of a few rows. DuckDB numbers the folded input of all batches at once, by batch number. These
tests detect wrong rows or numbers in any batch, retractions of rows that are not in the output, output that is not net,
and retractions wrongly counted, or not counted, as unmatched.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import duckdb
import pytest

from rowkind.operators.arrangement import compaction, prefix_scan
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from rowkind.operators.operator import Operator
from rowkind.operators.rank import local_top_k, rank
from rowkind.operators.rank.rank import Rank, RankSpec
from rowkind.operators.rank.ranking import RankFunction, Ranking, Strategy
from tests import changelogs
from tests.oracle.inputs import Batches
from tests.oracle.naive_join import NaiveSide
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
from tests.oracle.trials import Table, Work, finding, registered, trials, views_differ, views_of
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)

CASES_EACH = seeds(15)
CONDITIONS_EACH = seeds(25)
DEDUPLICATIONS_EACH = seeds(25)
FUNCTIONS: tuple[tuple[RankFunction, Strategy], ...] = (
    ("row_number", "append"),
    ("row_number", "improving"),
    ("row_number", "retract"),
    ("rank", "append"),
    ("rank", "improving"),
    ("rank", "retract"),
    ("dense_rank", "append"),
    ("dense_rank", "retract"),
)
RANGES = ((1, 1), (1, 2), (2, 2), (3, 5), (2, 3))
NUMBERS: tuple[RankFunction, ...] = ("row_number", "rank", "dense_rank")


@dataclass(frozen=True)
class Case:
    """The operator, its input, and the equivalent SQL; with `tasks`, each task sends only its local top-k."""

    operator: Operator
    of: RankInput
    rank: RankSpec
    tasks: int

    def sent(self, batch: Batch) -> Batch:
        """Return the part of a batch that reaches the operator."""
        if not self.tasks or self.rank.ranking.strategy == "retract":
            return batch
        changes = batch.changes
        parts = [changes.filter(changes.seq % self.tasks == task) for task in range(self.tasks)]
        sent = [local_top_k.local_top_k(self.rank.ranking, part, self.rank.identity) for part in parts]
        return replace(batch, changes=Changes.concat(sent))

    @property
    def sql(self) -> str:
        """Return the SQL for the rows in the range, by batch."""
        spec, own = self.rank, self._number(self.rank.ranking.function)
        numbers = "".join(f", {self._number(each)}" for each in spec.emitted)
        last = "" if spec.ranking.last is None else f"AND {own} <= {spec.ranking.last}"
        admits = spec.admits
        condition = f"AND ({admits.sql.replace('n', self._number(admits.function), 1)})" if admits else ""
        functions = ", ".join(f"{self._windowed(each)} {each}" for each in NUMBERS)
        return (
            f"SELECT batch, id, k, v {numbers} FROM (SELECT *, {functions} FROM t) "
            f"WHERE {own} >= {spec.ranking.first} {last} {condition}"
        )

    def _number(self, function: RankFunction) -> str:
        settled = self.rank.ranking.settled
        return function if settled is None else f"least({function}, {settled + 1})"

    def _windowed(self, function: RankFunction) -> str:
        order = ["v DESC NULLS LAST" if self.of.descending else "v ASC NULLS FIRST"] if self.of.ordered else []
        if function == "row_number":
            order.append("seq" if self.rank.ranking.ties == "earliest first" else "seq DESC")
        by = f"ORDER BY {', '.join(order)}" if order else "ORDER BY 1"
        return f"{function}() OVER (PARTITION BY batch, k {by})"


@pytest.mark.parametrize(("function", "strategy"), FUNCTIONS)
def test_the_rank_is_what_sql_says_after_every_batch(
    function: RankFunction,
    strategy: Strategy,
    database: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Folding the output after each batch gives SQL's result over the folded input."""

    def case(generator: random.Random) -> Case:
        of = _random_input(generator, strategy)
        first, last = generator.choice(RANGES)
        spec = RankSpec(
            Ranking(function, first, last, strategy=strategy),
            numbered=generator.choice([None, numbered]),
            identity=identity if strategy == "improving" else None,
            by_seq=of.by_seq,
        )
        return Case(Rank(spec), of, spec, generator.choice([0, 1, 3]))

    _run(database, monkeypatch, f"{function}, {strategy}", CASES_EACH, case)


@pytest.mark.parametrize(("function", "strategy"), FUNCTIONS)
def test_conditions_and_further_numbers_are_what_sql_says_after_every_batch(
    function: RankFunction,
    strategy: Strategy,
    database: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Conditions on numbers and rows, and several number functions, give SQL's result, bounded or unbounded."""

    def case(generator: random.Random) -> Case:
        of = _random_input(generator, strategy)
        first, last = generator.choice(RANGES)
        bounded = strategy != "retract" or generator.random() < 0.4
        sql, holds = generator.choice(CONDITIONS)
        asked = generator.choice(NUMBERS)
        admits = generator.choice([None, RowFilter(asked, sql, holds)])
        settles = not bounded and (admits is None or sql == CONDITIONS[-1][0]) and generator.random() < 0.7
        settled = max(first - 1, 1) if settles else None
        spec = RankSpec(
            Ranking(function, first, last if bounded else None, strategy=strategy, settled=settled),
            numbered=generator.choice([None, numbered]),
            numbers=tuple(generator.sample(NUMBERS, generator.randint(1, 3))),
            identity=identity if strategy == "improving" else None,
            by_seq=of.by_seq,
            admits=admits,
            asked=(asked,) if admits else (),
            bound=partition_bound if admits and not bounded and sql == "n <= k" else None,
        )
        return Case(Rank(spec), of, spec, generator.choice([0, 1, 3]))

    _run(database, monkeypatch, f"conditions, {function}, {strategy}", CONDITIONS_EACH, case)


@pytest.mark.parametrize("strategy", ["append", "retract"])
@pytest.mark.parametrize("keep", ["first", "last"])
def test_the_deduplication_is_what_sql_says_after_every_batch(
    keep: Literal["first", "last"],
    strategy: Literal["append", "retract"],
    database: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Folding the output after each batch gives the first or last row of each key of the folded input."""

    def case(generator: random.Random) -> Case:
        by_time = generator.random() < 0.7
        of = _random_input(generator, strategy, ordered=by_time, descending=keep == "last")
        spec = deduplication(keep, strategy, by_seq=of.by_seq)
        return Case(Rank(spec), of, spec, generator.choice([0, 1, 3]))

    _run(database, monkeypatch, f"{keep}, {strategy}", DEDUPLICATIONS_EACH, case)


def _random_input(
    generator: random.Random, strategy: Strategy, *, ordered: bool = True, descending: bool | None = None
) -> RankInput:
    return RankInput(
        "unique key" if strategy == "improving" else "multiset",
        by_seq=generator.random() < 0.5,
        stretch=generator.choice([1, 2]),
        descending=generator.random() < 0.5 if descending is None else descending,
        ordered=ordered,
        hashed=generator.choice(changelogs.HASHES),
    )


def _run(
    database: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    cases: Iterable[int],
    new: Callable[[random.Random], Case],
) -> None:
    whole = compaction.MOST_IN_VAIN, local_top_k.WORTH, prefix_scan.MANY
    for trial in trials(name, cases, monkeypatch):
        generator, case = trial.generator, new(trial.generator)
        monkeypatch.setattr(compaction, "MOST_IN_VAIN", generator.choice([0, whole[0]]))
        monkeypatch.setattr(local_top_k, "WORTH", generator.choice([whole[1], float("inf")]))
        monkeypatch.setattr(rank, "MARGIN", generator.choice([0, 1]))
        monkeypatch.setattr(prefix_scan, "MANY", generator.choice([0, 1, whole[2]]))
        batches = changelog(case.rank, case.of, trial.seed, 8, 14)
        trial.check(functools.partial(_difference, database, case), batches, case)


@finding
def _difference(database: duckdb.DuckDBPyConnection, case: Case, batches: Batches) -> str | None:
    """Return how the operator's output is wrong on these batches; None if it is right."""
    work, folded, table, views = Work(case.operator), NaiveSide(case.of, None), Table(), []
    for number, batch in enumerate(batches):
        output = work.process(case.sent(case.of.columns(batch)), number)
        before = len(folded.stored)
        folded.apply(batch, number)
        matched = before + sum(change.sign > 0 for change in batch) - len(folded.stored)
        unmatched = sum(change.sign < 0 for change in batch) - matched
        if case.rank.ranking.strategy == "improving":
            unmatched = len(output.unmatched)
        if wrong := work.differs(output, unmatched):
            return wrong
        views.append(work.view.copy())
        table += [(number, one.seq, *one.row) for one in folded.stored]
    registered(database, "t", table, "seq", "id", "k", "v")
    return views_differ(views, views_of(database.sql(case.sql).fetchall()))
