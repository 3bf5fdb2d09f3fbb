"""What a checkpoint is of: its note `rowkind.json`, by which a changed job is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from rowkind.service.plan.fingerprint import Fingerprint, differences

VERSION = 1
"""From here on a promise: what is written under a version is read by all later releases (`tests.upgrade`), or, where an
operator keeps something else now, is known by it and rebuilt by `--upgrade`."""

_UNKNOWN = (
    "an earlier version wrote the checkpoint, and did not note what the query was: if it is the same, it is planned "
    "otherwise by this one"
)


@dataclass(frozen=True)
class Contents:
    """What a checkpoint is of.

    - `version`: of the format of this note and of what operators keep. Another one of the latter is another plan.
    - `sinks`: the fingerprint of each. `shards`, `levels`: how many shards and how many stages there are.
    - `parallelism`: in how many partitions the shards lie; `service.checkpoint.rescale` changes it.
    - `exchange`: rows are shuffled before they are written. `atomic`: one task writes all of them. A batch that was
      written in part is completed by the other tasks, so each row must be in the same one again.
    - `views`: those that stand by themselves, each with the places of the columns that are kept of it.
    - `states`: what the state of each operator is called, by `<sink>.<node>`.
    - `ahead`: by how much Spark's numbers of batches are behind those under which they are written, since a batch that
      was done again for the state alone may have taken the place of several.
    - `release`: the version of Rowkind that planned it, empty where it did not note that. `asked`: what the job asked
      of each sink (`service.checkpoint.job_digest`).
    - `excused`: rows that are left out where an expression fails on them (`service.checkpoint.skip`).
    - `filling`: if anything, the state is being filled beside result topics that hold something already, and the names
      of the topics that have the result meanwhile end so (`service.checkpoint.cut_over`).
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
    version: int = VERSION

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Self:
        """What a note says, whichever version has written it."""
        # Once each partition was a shard.
        return cls(**{"shards": note["parallelism"], **note, "excused": tuple(note.get("excused", ()))})

    @property
    def common(self) -> Fingerprint:
        """The facts that concern all sinks."""
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
        """What a query with this checkpoint is planned by: its sinks, and the views that stand by themselves."""
        return list(self.sinks), {view: frozenset(columns) for view, columns in self.views.items()}

    def changes(self, before: Self, sink: str) -> tuple[str, ...]:
        """What of a sink's plan is not what it was, one a line; first of all, if so, that a version has changed it."""
        lines = differences(before.sinks[sink], self.sinks[sink])
        return (*self._planned_otherwise(before, sink), *lines) if lines else ()

    def differs(self, before: Self) -> list[str]:
        """All facts that are not what they were, behind the sinks whose plan a version has changed."""
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
            yield f"the query is what it was, and planned otherwise {other}"

    def after(self, before: Self) -> Self:
        """These, where a checkpoint has more stages or a shuffle: it had sinks that are gone, or gone deeper.

        What its states are called stays, and where they lie.
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
        )
