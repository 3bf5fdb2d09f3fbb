"""A plan described: the one form that text, JSON, Mermaid and HTML are written from.

It is a tree of steps from the sink down to the topics. A step has a title, facts, the state that it keeps, and the way
that its rows take to the next step. Everything is said twice: in words for people, and as values for programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

StepKind = Literal[
    "sink",
    "scan",
    "join",
    "semi_join",
    "anti_join",
    "mark_join",
    "aggregate",
    "rank",
    "deduplicate",
    "session",
    "over",
    "asof_join",
    "lookup",
    "normalize",
    "expiry",
    "temporal_filter",
    "stamp",
    "match",
    "union",
]
How = Literal["shuffled", "same stage", "every shard", "unmoved"]
FirstStep = Literal["added up", "ranked"]
Role = Literal["left", "right", "input", "fact"]
AdviceCode = Literal[
    "no equal key",
    "not in with nulls",
    "no primary key",
    "no watermark",
    "all values kept",
    "one shard",
    "every row kept",
    "old rows kept",
    "no ttl",
    "no within",
    "shuffle to the sink",
    "sink without key",
]
StepValues = Mapping[str, Any]
"""What JSON can hold, by the keys that `explain.json_document` documents."""


@dataclass(frozen=True)
class Fact:
    """One thing to know of a step. `values` is what it says, for programs; without a text it is for them only."""

    label: str
    text: str
    values: StepValues = field(default_factory=dict)


@dataclass(frozen=True)
class StepState:
    """Rows that a step keeps.

    `name` is what the operator calls them, `of` where they come from, `layout` how they are kept and `reason` why, None
    where that goes without saying. `ttl_ms` is how long after the last change, None for ever; `kept` says so.
    `order` says whether changes count in their order of arrival. `endless`: it grows for ever, and a ttl would help.
    `values` is what `of` and `layout` say, for programs.
    """

    name: str
    of: str
    layout: str
    reason: str | None
    ttl_ms: int | None
    kept: str
    order: str = ""
    endless: bool = False
    values: StepValues = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """All of it in words."""
        because = f", because {self.reason}" if self.reason else ""
        return f"{self.of}: {self.layout}{because}; {self.kept}{'; ' if self.order else ''}{self.order}"


@dataclass(frozen=True)
class Way:
    """How a step's rows come to the next one: `by` which columns, all to one shard if there are none.

    `role` is what they are to it. `first_step` is what each task does to its rows before they are shuffled.
    Rows of one key are dealt out to so many shards as `spread_over`, or each goes to so many as `copied_to`.
    """

    to: str
    role: Role
    how: How
    by: tuple[str, ...]
    mode: str
    first_step: FirstStep | None = None
    spread_over: int | None = None
    copied_to: int | None = None

    @property
    def salted(self) -> str:
        """What a salt does, in words; nothing where there is none."""
        if self.spread_over is not None:
            return f"dealt out to {self.spread_over} shards"
        return f"copied to {self.copied_to} shards" if self.copied_to is not None else ""


@dataclass(frozen=True)
class Step:
    """One node of the plan.

    `stage` is the number of the stage that it runs in, from the topics on; None where nothing is kept. `same_as` is the
    sink and the name under which the same step was described before: it is there once, and so is all below it.
    """

    name: str
    kind: StepKind
    title: str
    facts: tuple[Fact, ...]
    state: tuple[StepState, ...] = ()
    inputs: tuple[Step, ...] = ()
    way: Way | None = None
    stage: int | None = None
    same_as: tuple[str, str] | None = None
    values: StepValues = field(default_factory=dict)

    def walk(self) -> Iterator[Step]:
        """The step and all below it, the consumer before its inputs."""
        yield self
        for each in self.inputs:
            yield from each.walk()


@dataclass(frozen=True)
class Advice:
    """What could be cheaper or is to be watched, and the step that it is about; `code` is what programs know it by."""

    about: str
    code: AdviceCode
    text: str


@dataclass(frozen=True)
class Description:
    """The plan of one sink: its root is the sink. `sql` is its query as the user wrote it, empty if not known."""

    root: Step
    advice: tuple[Advice, ...]
    sql: str = ""


@dataclass(frozen=True)
class QueryDescription:
    """The plans of all sinks that run in one query, how many stages it has, and the tables that it reads."""

    name: str
    sinks: tuple[Description, ...]
    stages: int
    tables: tuple[str, ...]

    @property
    def title(self) -> str:
        """One line about it."""
        kept = sum(bool(step.state) for each in self.sinks for step in each.root.walk())
        state = f"{_count(kept, 'step')} with state in {_count(self.stages, 'stage')}" if kept else "nothing is kept"
        return f"{_count(len(self.sinks), 'sink')} over {_count(len(self.tables), 'table')}, {state}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
