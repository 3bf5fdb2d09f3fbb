"""The query that passes receive and return, and its hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from rowkind.service.job.model import Job
from rowkind.service.job.model import Sink as JobSink
from rowkind.service.physical.source_table import OnExpire
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.node import LogicalNode


@dataclass(frozen=True)
class TtlHint:
    """One entry of a STATE_TTL hint, and its place in the SQL; `on_expire` is None if the hint does not set it."""

    ttl_ms: int
    at: exp.Expr
    on_expire: OnExpire | None = None


@dataclass(frozen=True)
class SkewHint:
    """One entry of a SKEW hint: over how many shards the rows of one key are spread, and its place in the SQL."""

    shards: int
    at: exp.Expr


@dataclass(frozen=True)
class Query:
    """A query as passes receive and return it: the plan tree, whose root is the SELECT list, its job and its sink.

    `ttl_hints` are the STATE_TTL hints of the query by alias, `skew_hints` the SKEW hints. `recorded` are the facts of
    the checkpoint from which the plan continues (`service.plan.fingerprint`); None if there is no checkpoint.
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
        """The SELECT list: the expression of each column of the result."""
        assert isinstance(self.root, LogicalProject), "the root of a query is a projection"
        return self.root.outputs
