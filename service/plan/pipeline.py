"""From the SQL of sinks to their physical plans: the passes, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from sqlglot import exp

from rowkind.avro.schema import Record
from rowkind.service import physical
from rowkind.service.job.columns import as_written, declared
from rowkind.service.job.model import Job
from rowkind.service.plan.errors import PlanError, Refusal, span
from rowkind.service.plan.fingerprint import Fingerprint
from rowkind.service.plan.passes.add_arrival_ids import add_arrival_ids
from rowkind.service.plan.passes.add_row_digests import add_row_digests
from rowkind.service.plan.passes.aggregate_panes import aggregate_panes
from rowkind.service.plan.passes.apply_allowed_lateness import apply_allowed_lateness
from rowkind.service.plan.passes.buffer_until_watermark import buffer_until_watermark
from rowkind.service.plan.passes.check_functions import check_functions
from rowkind.service.plan.passes.check_sink import check_sink
from rowkind.service.plan.passes.choose_extremes import choose_extremes
from rowkind.service.plan.passes.choose_layouts import choose_layouts
from rowkind.service.plan.passes.choose_rank_strategies import choose_rank_strategies
from rowkind.service.plan.passes.compare_with_clock import compare_with_clock
from rowkind.service.plan.passes.delay_null_padding import delay_null_padding
from rowkind.service.plan.passes.delay_until_final import delay_until_final
from rowkind.service.plan.passes.derive_state_cleanup import derive_state_cleanup
from rowkind.service.plan.passes.extract_equal_keys import extract_equal_keys
from rowkind.service.plan.passes.factor_alternatives import factor_alternatives
from rowkind.service.plan.passes.filter_by_clock import filter_by_clock
from rowkind.service.plan.passes.limit_time import check_numbers, limit_time
from rowkind.service.plan.passes.mark_joins_to_semi_joins import mark_joins_to_semi_joins
from rowkind.service.plan.passes.merge_equivalent_operators import merge_equivalent_operators
from rowkind.service.plan.passes.narrow_groups import narrow_groups
from rowkind.service.plan.passes.narrow_joins import narrow_joins
from rowkind.service.plan.passes.normalize_inputs import normalize_inputs
from rowkind.service.plan.passes.order_joins import order_joins
from rowkind.service.plan.passes.order_matches import order_matches
from rowkind.service.plan.passes.prune_columns import prune_columns
from rowkind.service.plan.passes.push_filters import push_filters
from rowkind.service.plan.passes.push_semi_joins import push_semi_joins
from rowkind.service.plan.passes.release_all_due_below_windows import release_all_due_below_windows
from rowkind.service.plan.passes.resolve_conflicts import resolve_conflicts
from rowkind.service.plan.passes.retract_expired_rows import retract_expired_rows
from rowkind.service.plan.passes.reuse_join_state import reuse_join_state
from rowkind.service.plan.passes.rewrite_ranks import rewrite_ranks
from rowkind.service.plan.passes.share_views import Kept, columns_read, share_views, shared_views
from rowkind.service.plan.passes.sort_by_time import sort_by_time
from rowkind.service.plan.passes.split_distinct import split_distinct
from rowkind.service.plan.passes.spread_hot_keys import spread_hot_keys
from rowkind.service.plan.passes.stamp_arrivals import stamp_arrivals
from rowkind.service.plan.passes.stamp_rows import stamp_rows
from rowkind.service.plan.query import Query
from rowkind.service.plan.sql.build import Builder, Catalog
from rowkind.service.plan.sql.job_functions import job_functions, with_functions
from rowkind.service.plan.sql.parse import parse
from rowkind.service.plan.sql.watermark_clause import table_watermarks
from rowkind.service.plan.translate.translate import translate
from rowkind.service.plan.watermarks import watermark, with_clauses
from rowkind.service.source_table import SourceTable, Watermark

_Done = TypeVar("_Done")

PASSES: tuple[Callable[[Query], Query], ...] = (
    compare_with_clock,
    factor_alternatives,
    narrow_groups,
    narrow_joins,
    push_filters,
    mark_joins_to_semi_joins,
    push_semi_joins,
    order_joins,
    filter_by_clock,
    aggregate_panes,
    rewrite_ranks,
    split_distinct,
    extract_equal_keys,
    resolve_conflicts,
    retract_expired_rows,
    add_arrival_ids,
    delay_null_padding,
    stamp_arrivals,
    buffer_until_watermark,
    order_matches,
    sort_by_time,
    stamp_rows,
    delay_until_final,
    normalize_inputs,
    check_sink,
    choose_rank_strategies,
    choose_extremes,
    spread_hot_keys,
    choose_layouts,
    limit_time,
    derive_state_cleanup,
    apply_allowed_lateness,
    release_all_due_below_windows,
    prune_columns,
    merge_equivalent_operators,
    add_row_digests,
    reuse_join_state,
    check_numbers,
    check_functions,
)


@dataclass(frozen=True)
class PlannedQuery:
    """The plans of sinks that run in one query, and the views that they share, with the columns that are kept."""

    sinks: tuple[physical.PhysicalSink, ...]
    views: Kept


def plan(job: Job, sink: str) -> physical.PhysicalSink:
    """The physical plan of one sink alone. Raises as `plan_query`."""
    return plan_query(job, [sink]).sinks[0]


def plan_query(
    job: Job, sinks: Sequence[str], views: Kept | None = None, facts: Mapping[str, Fingerprint] | None = None
) -> PlannedQuery:
    """The physical plans of sinks that run in one query.

    `views` are those that they share if that is known: a query whose sinks have become fewer keeps what it has. `facts`
    are those of the checkpoints that sinks go on from.

    Raises PlanError, and JobError for a table whose columns cannot be known.
    """
    built = [replace(_told(job, sink, partial(logical, job, sink)), recorded=(facts or {}).get(sink)) for sink in sinks]
    if views is None:
        views = {name: frozenset() for name in shared_views(built)}
        if views:
            views = columns_read([_optimized(job, share_views(query, views)) for query in built])
    queries = [_optimized(job, share_views(query, views)) for query in built]
    plans = tuple(_told(job, query.name, partial(translate, query)) for query in queries)
    return PlannedQuery(plans, views)


def _optimized(job: Job, query: Query) -> Query:
    def passes() -> Query:
        after = query
        for each in PASSES:
            after = each(after)
        return after

    return _told(job, query.name, passes)


def _told(job: Job, sink: str, do: Callable[[], _Done]) -> _Done:
    """What is done for a sink; a refusal is told with its place."""
    try:
        return do()
    except Refusal as refusal:
        raise _error(job, sink, texts(job), refusal) from None
    except RecursionError:
        raise PlanError(place(job, f"sinks.{sink}.sql"), "the query is nested too deeply") from None


def logical(job: Job, sink: str) -> Query:
    """The logical plan before any pass. Raises Refusal, PlanError, JobError."""
    origin = f"sinks.{sink}.sql"
    functions = job_functions(job)

    def parsed(sql: str, origin: str) -> exp.Expr:
        return with_functions(parse(sql, origin, place(job, origin)), functions)

    tree = parsed(job.sinks[sink].sql, origin)
    catalog = Catalog(
        tables=tuple(job.tables),
        source=partial(source_table, job),
        views={name: partial(parsed, sql, f"views.{name}") for name, sql in job.views.items()},
    )
    builder = Builder(catalog)
    root = builder.query(tree)
    return Query(job, sink, job.sinks[sink], root, builder.ttl_hints, builder.skew_hints, tree)


def source_table(job: Job, table: str) -> SourceTable:
    """A table of the job as the plan and the readers know it. Raises JobError, PlanError or a RegistryError."""
    of = job.tables[table]
    columns = declared(job, table)
    return SourceTable(
        table=table,
        topic=of.topic,
        mode=of.changelog,
        declared=columns,
        primary_key=of.primary_key,
        ttl_ms=of.ttl,
        on_expire=of.on_expire,
        row_kind=of.row_kind.physical(of.changelog),
        start=of.start.physical(),
        exact=of.exact and not of.repeats,
        truncates=of.on_truncate == "empty",
        unavailable=of.unavailable,
        on_bad_update=of.on_bad_update,
        format=of.format,
        debezium=of.mode == "debezium",
        written=as_written(job, table) if of.format == "plain_avro" else None,
        watermark=_watermark(job, table, columns),
        key_format=of.key_format,
        units=tuple(of.units.items()),
        record=of.record,
        known_as=columns.name if of.columns is None and of.schema_file is None else None,
    )


def _watermark(job: Job, table: str, columns: Record) -> Watermark | None:
    """The watermark of a table, as the job file or the SQL of any query declares it. Raises PlanError."""
    said = job.tables[table].watermark
    try:
        known = None if said is None else watermark(table, said, columns)
    except Refusal as refusal:
        raise PlanError(place(job, f"tables.{table}.watermark.{refusal.field}"), refusal.text) from None
    all_ = texts(job)
    try:
        found = [
            each
            for origin, sql in all_.items()
            if "watermark" in sql.lower()
            for each in table_watermarks(parse(sql, origin, place(job, origin)), job.tables, origin)
        ]
        return with_clauses(table, known, [each for each in found if each.table == table], columns)
    except Refusal as refusal:
        raise _error(job, "", all_, refusal) from None


def texts(job: Job) -> dict[str, str]:
    """All SQL of a job, by the field that it stands in."""
    sinks = {f"sinks.{name}.sql": sink.sql for name, sink in job.sinks.items()}
    return sinks | {f"views.{name}": sql for name, sql in job.views.items()}


def place(job: Job, field: str) -> str:
    """A field of the job file, as messages begin with it."""
    return f"{job.file}:{job.line(*field.split('.'))}: {field}"


def _error(job: Job, sink: str, found_in: dict[str, str], refusal: Refusal) -> PlanError:
    at, found = refusal.at, None
    while at is not None and (found := span(at)) is None:
        at = at.parent
    if found is None:
        return PlanError(place(job, f"sinks.{sink}.{refusal.field}"), refusal.text)
    return PlanError(place(job, found.origin), refusal.text, found, found_in[found.origin])
