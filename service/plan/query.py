"""The query that passes receive and return, with its hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from rowkind.service.job.model import Job
from rowkind.service.job.sink import Sink as JobSink
from rowkind.service.physical.source_table import OnExpire
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.node import LogicalNode


@dataclass(frozen=True)
class TtlHint:
    """One entry of a STATE_TTL hint, with its position in the SQL. `on_expire` is None if the entry does not set it."""

    ttl_ms: int
    at: exp.Expr
    on_expire: OnExpire | None = None


@dataclass(frozen=True)
class SkewHint:
    """One entry of a SKEW hint, with its position in the SQL.

    `shards` is the number of shards over which rows with the same key are spread.
    """

    shards: int
    at: exp.Expr


@dataclass(frozen=True)
class Query:
    """A query in the form that passes receive and return: its job, its sink, and the plan tree.

    The root of the tree is the SELECT list. `ttl_hints` are the query's STATE_TTL hints and `skew_hints` its SKEW
    hints, keyed by alias. `recorded` contains the facts (`service.plan.fingerprint`) in the checkpoint from which the
    query continues, or None if there is no checkpoint.
    """

    job: Job
    name: str
    sink: JobSink
    root: LogicalNode
    ttl_hints: Mapping[str, TtlHint]
    skew_hints: Mapping[str, SkewHint]
    select: exp.Expr
    recorded: Mapping[str, str] | None = None

    @property
    def outputs(self) -> Mapping[str, exp.Expr]:
        """The SELECT list, which has an expression for each result column."""
        assert isinstance(self.root, LogicalProject), "the root of a query is a projection"
        return self.root.outputs
