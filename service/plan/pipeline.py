"""The planning pipeline, which turns the SQL of sinks into physical plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from sqlglot import exp

from rowkind.avro.schema import Record
from rowkind.service.job.columns import as_written, declared
from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.generation import GenerateSettings
from rowkind.service.job.model import Job
from rowkind.service.physical.generation import generated_topic
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.physical.source_table import SourceTable, Watermark
from rowkind.service.plan.errors import PlanError, Refusal, enclosing_span
from rowkind.service.plan.fingerprint import Fingerprint
from rowkind.service.plan.passes.share_views import Kept, columns_read, share_views, shared_views
from rowkind.service.plan.phases import PHASES
from rowkind.service.plan.query import Query
from rowkind.service.plan.sql.build import Builder, Catalog
from rowkind.service.plan.sql.job_functions import job_functions, with_functions
from rowkind.service.plan.sql.parse import parse
from rowkind.service.plan.sql.scope import near
from rowkind.service.plan.sql.watermark_clause import table_watermarks
from rowkind.service.plan.translate.translate import translate
from rowkind.service.plan.watermarks import watermark, with_clauses

_Done = TypeVar("_Done")


def check_sink(job: Job, name: str) -> None:
    """Check that the job has a sink of this name. Raises JobError."""
    if name not in job.sinks:
        problem = Problem(job.line("sinks"), "sinks", f"there is no sink {name!r}{near(name, job.sinks)}")
        raise JobError(str(job.file), [problem])


@dataclass(frozen=True)
class PlannedQuery:
    """The plans of a query's sinks. `views` maps each view that the sinks share to the columns that the view keeps."""

    sinks: tuple[PhysicalSink, ...]
    views: Kept


def plan(job: Job, sink: str) -> PhysicalSink:
    """Return the physical plan of a single sink.

    Raises JobError if the job does not have the sink, and the same errors as `plan_query`.
    """
    check_sink(job, sink)
    return plan_query(job, [sink]).sinks[0]


def plan_query(
    job: Job, sinks: Sequence[str], views: Kept | None = None, facts: Mapping[str, Fingerprint] | None = None
) -> PlannedQuery:
    """Return the physical plans of sinks that run in one query.

    `views` are the shared views of an earlier plan. If they are given, the plan stays the same even if some of the
    query's sinks have been removed since. `facts` maps each sink that continues from a checkpoint to the facts in that
    checkpoint.

    Raises PlanError, or JobError for a table whose columns cannot be determined.
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
        for phase in PHASES:
            after = phase(after)
        return after

    return _told(job, query.name, passes)


def _told(job: Job, sink: str, do: Callable[[], _Done]) -> _Done:
    """Run a planning step for a sink and return its result. A Refusal becomes a PlanError with a position."""
    try:
        return do()
    except Refusal as refusal:
        raise _error(job, sink, texts(job), refusal) from None
    except RecursionError:
        raise PlanError(place(job, f"sinks.{sink}.sql"), "the query is nested too deeply") from None


def logical(job: Job, sink: str) -> Query:
    """Return a sink's logical plan before any pass. Raises Refusal, PlanError or JobError."""
    origin = f"sinks.{sink}.sql"
    functions = job_functions(job)

    def parsed(sql: str, origin: str) -> exp.Expr:
        return with_functions(parsed_text(job, origin, sql), functions)

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
    """Return one of the job's tables in the form that plans and readers use.

    Raises JobError, PlanError or RegistryError.
    """
    of = job.tables[table]
    columns = declared(job, table)
    if of.generate is not None:
        return _generated(job, table, columns, of.generate)
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


def _generated(job: Job, table: str, columns: Record, settings: GenerateSettings) -> SourceTable:
    """Return a table that the job generates. Its records have the form of a topic's records in plain Avro."""
    of = job.tables[table]
    return SourceTable(
        table=table,
        topic=generated_topic(table),
        mode=of.changelog,
        declared=columns,
        primary_key=of.primary_key,
        ttl_ms=of.ttl,
        on_expire=of.on_expire,
        exact=of.mode == "retract",
        format="plain_avro",
        written=columns,
        row_kind=of.row_kind.physical(of.changelog),
        watermark=_watermark(job, table, columns),
        generation=settings.physical(),
    )


def _watermark(job: Job, table: str, columns: Record) -> Watermark | None:
    """Return a table's watermark. The job file or any of the job's queries may declare it. Raises PlanError."""
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
            for each in table_watermarks(parsed_text(job, origin, sql), job.tables, origin)
        ]
        return with_clauses(table, known, [each for each in found if each.table == table], columns)
    except Refusal as refusal:
        raise _error(job, "", all_, refusal) from None


def texts(job: Job) -> dict[str, str]:
    """Return all SQL texts of a job, keyed by the job file field that contains them."""
    sinks = {f"sinks.{name}.sql": sink.sql for name, sink in job.sinks.items()}
    return sinks | {f"views.{name}": sql for name, sql in job.views.items()}


def place(job: Job, field: str, sql: str = "", at: int = 0) -> str:
    """Return the position of a job file field, as the beginning of a message.

    If the field contains `sql`, return the position of its character `at`.
    """
    section, _, rest = field.partition(".")
    # The name of a sink may contain dots.
    path = rest.rsplit(".", 1) if section == "sinks" else rest.split(".")
    return f"{job.file}:{job.line(section, *path, sql=sql, at=at)}: {field}"


def parsed_text(job: Job, origin: str, sql: str) -> exp.Expr:
    """Parse one of the job's SQL texts. Raises PlanError with the line of the job file, and Refusal."""
    try:
        return parse(sql, origin, place(job, origin))
    except PlanError as error:
        if error.span is None:
            raise
        raise PlanError(place(job, origin, sql, error.span.first), error.text, error.span, sql) from None


def _error(job: Job, sink: str, found_in: dict[str, str], refusal: Refusal) -> PlanError:
    found = enclosing_span(refusal.at)
    if found is None:
        return PlanError(place(job, f"sinks.{sink}.{refusal.field}"), refusal.text)
    sql = found_in[found.origin]
    return PlanError(place(job, found.origin, sql, found.first), refusal.text, found, sql)
