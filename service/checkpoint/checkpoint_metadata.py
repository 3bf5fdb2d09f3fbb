"""The metadata of a checkpoint, `rowkind.json`, by which Rowkind detects changes to the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from rowkind.service.plan.fingerprint import Fingerprint, differences

VERSION = 1
"""The current version, which is a promise: later releases can read everything written with it (`tests.upgrade`). If an
operator's state format has changed since then, the release detects this by the version, and `--upgrade` rebuilds the
state.
"""

_UNKNOWN = (
    "an earlier version wrote the checkpoint and did not record the query: if the query is unchanged, its plan differs "
    "in this version"
)


@dataclass(frozen=True)
class Contents:
    """The metadata of a checkpoint.

    - `version`: the version of the formats of this metadata and of the operators' state. Plans with different state
      versions count as different.
    - `sinks`: each sink's fingerprint. `shards`, `levels`: the numbers of shards and of stages.
    - `parallelism`: the number of partitions that contain the shards. `service.checkpoint.rescale` changes it.
    - `exchange`: rows are shuffled before they are written. `atomic`: a single task writes all rows. If only some tasks
      have written a batch, the other tasks complete it, so each row must be in the same task as before.
    - `views`: the views that are planned separately, each with the positions of its stored columns.
    - `states`: the state name of each operator, by `<sink>.<node>`.
    - `ahead`: by how much the numbers under which batches are written exceed Spark's batch numbers. A batch that was
      repeated only for its state may have replaced several.
    - `release`: the version of Rowkind that planned the query, empty if not recorded. `asked`: the job digest of each
      sink (`service.checkpoint.job_digest`).
    - `excused`: rows that are left out if an expression fails on them (`service.checkpoint.skip`).
    - `begun`: when the job first began, Unix time in ms; 0 if not recorded. Generated tables begin then.
    - `filling`: if not empty, the query fills its state while the result topics already have rows. Until then, the
      result is written to temporary topics whose names end with this token (`service.checkpoint.cut_over`).
    """

    sinks: Mapping[str, Fingerprint]
    shards: int
    parallelism: int
    levels: int
    exchange: bool = False
    atomic: bool = False
    views: Mapping[str, Sequence[int]] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    filling: str = ""
    ahead: int = 0
    excused: Sequence[str] = ()
    release: str = ""
    asked: Mapping[str, str] = field(default_factory=dict)
    begun: int = 0
    version: int = VERSION

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Self:
        """Return the metadata from a file's content, written by any version."""
        # In early versions each partition was a shard.
        return cls(**{"shards": note["parallelism"], **note, "excused": tuple(note.get("excused", ()))})

    @property
    def common(self) -> Fingerprint:
        """The facts that apply to all sinks."""
        return {
            "version": str(self.version),
            "shards": str(self.shards),
            "atomic": str(self.atomic).lower(),
        }

    @property
    def facts(self) -> Fingerprint:
        """All facts, by `<sink>.<node>.<fact>`."""
        of_sinks = {f"{sink}.{fact}": value for sink, facts in self.sinks.items() for fact, value in facts.items()}
        return {**self.common, **of_sinks}

    @property
    def planned_by(self) -> tuple[list[str], dict[str, frozenset[int]]]:
        """The inputs for planning a query with this checkpoint: its sinks, and its separately planned views."""
        return list(self.sinks), {view: frozenset(columns) for view, columns in self.views.items()}

    def changes(self, before: Self, sink: str) -> tuple[str, ...]:
        """Return the differences in a sink's plan, one line per fact.

        If a different version of Rowkind caused the change, the first line says so.
        """
        lines = differences(before.sinks[sink], self.sinks[sink])
        return (*self._planned_otherwise(before, sink), *lines) if lines else ()

    def differs(self, before: Self) -> list[str]:
        """Return all facts that differ. Sinks whose plans changed because of a new version of Rowkind come first."""
        changed = [sink for sink in self.sinks if sink in before.sinks and self.changes(before, sink)]
        told = [f"{sink}: {line}" for sink in changed for line in self._planned_otherwise(before, sink)]
        return [*told, *differences(before.facts, self.facts)]

    def _planned_otherwise(self, before: Self, sink: str) -> Iterator[str]:
        was, now = before.asked.get(sink), self.asked.get(sink)
        if now is None:
            return
        if was is None:
            yield f"{_UNKNOWN}, {self.release}"
        elif was == now:
            other = f"by {self.release} than by {before.release}" if self.release != before.release else "than before"
            yield f"the query is unchanged, but planned differently {other}"

    def after(self, before: Self) -> Self:
        """Return this metadata merged with that of the existing checkpoint, `before`.

        The checkpoint may have more stages or a final shuffle, from sinks that were removed or whose plans were deeper.
        State names and the number of partitions are kept.
        """
        return replace(
            self,
            levels=max(self.levels, before.levels),
            exchange=self.exchange or before.exchange,
            states={node: before.states.get(node, state) for node, state in self.states.items()},
            filling=before.filling,
            parallelism=before.parallelism,
            ahead=before.ahead,
            excused=before.excused,
            begun=before.begun,
        )
