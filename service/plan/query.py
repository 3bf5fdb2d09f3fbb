"""What the passes of the plan hand on."""

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
    """One entry of a STATE_TTL hint, and where it stands; `on_expire` is None where it does not say."""

    ttl_ms: int
    at: exp.Expr
    on_expire: OnExpire | None = None


@dataclass(frozen=True)
class SkewHint:
    """One entry of a SKEW hint: over how many shards the rows of one key are to be spread, and where it stands."""

    shards: int
    at: exp.Expr


@dataclass(frozen=True)
class Query:
    """What the passes hand on: the tree, whose root is the SELECT list, where it comes from and where it goes.

    `ttl_hints` are the STATE_TTL hints of the query by alias, `skew_hints` those that are called SKEW. `recorded` are
    the facts of the checkpoint that the plan is to go on from (`service.plan.fingerprint`), None for none.
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
        """The SELECT list: what defines each column of the result."""
        assert isinstance(self.root, LogicalProject), "the root is the SELECT list"
        return self.root.outputs
