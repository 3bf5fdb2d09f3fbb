"""A plan described: the one form that text, JSON, Mermaid and HTML are written from.

It is a tree of steps from the sink down to the topics. A step has a title, facts, the state that it keeps, and the way
of its rows to the next step. Everything is said twice: in words for people, and as values for programs
(`explain.values`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from rowkind.service.plan.explain.values import (
    NO_VALUES,
    Advice,
    FirstStep,
    How,
    Role,
    StateValues,
    StepValues,
)


@dataclass(frozen=True)
class Fact:
    """One thing to know of a step, in words."""

    label: str
    text: str


@dataclass(frozen=True)
class StepState:
    """Rows that a step keeps.

    `name` is what the operator calls them, `of` where they come from, `layout` how they are kept and `reason` why, None
    where that goes without saying. `ttl_ms` is how long after the last change, None for ever; `kept` says so.
    `order` says whether changes count in their order of arrival. `endless`: it grows for ever, and a ttl would help.
    """

    name: str
    values: StateValues
    of: str
    layout: str
    reason: str | None
    ttl_ms: int | None
    kept: str
    order: str = ""
    endless: bool = False

    @property
    def sentence(self) -> str:
        """All of it in words."""
        because = f", because {self.reason}" if self.reason else ""
        return f"{self.of}: {self.layout}{because}; {self.kept}{'; ' if self.order else ''}{self.order}"


@dataclass(frozen=True)
class NodeDescription:
    """What there is to know of a node of a physical plan, whoever consumes it.

    `values` are what the title says, `details` what the facts say, for programs.
    """

    kind: str
    title: str
    values: StepValues = NO_VALUES
    details: StepValues = NO_VALUES
    facts: tuple[Fact, ...] = ()
    state: tuple[StepState, ...] = ()
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True)
class Way:
    """How a step's rows reach the next one."""

    to: Annotated[str, "the next step"]
    role: Annotated[Role, "what the rows are to it; `fact`: what a NOT IN must know of its right side as a whole"]
    how: Annotated[How, "whether they are shuffled"]
    by: Annotated[Sequence[str], "the columns that they are shuffled by; none if they all go to one shard"]
    mode: str
    first_step: Annotated[
        FirstStep | None, "what each task does to its rows before they are shuffled, null for nothing"
    ] = None
    spread_over: Annotated[int | None, "over how many shards the rows of one key are spread, null for one"] = None
    copied_to: Annotated[int | None, "to how many shards each row goes, null for one"] = None

    @property
    def salted(self) -> str:
        """What a salt does, in words; nothing where there is none."""
        if self.spread_over is not None:
            return f"dealt out to {self.spread_over} shards"
        return f"copied to {self.copied_to} shards" if self.copied_to is not None else ""


@dataclass(frozen=True)
class Step:
    """One node of the plan, as its consumer sees it.

    `stage` is the number of the stage that it runs in, from the topics on; None where nothing is kept. `same_as` is the
    sink and the name under which the same step was described before: it is there once, and so is all below it.
    """

    name: str
    kind: str
    title: str
    values: tuple[StepValues, ...] = ()
    facts: tuple[Fact, ...] = ()
    state: tuple[StepState, ...] = ()
    inputs: tuple[Step, ...] = ()
    way: Way | None = None
    stage: int | None = None
    same_as: tuple[str, str] | None = None

    def value(self, key: str) -> Any:
        """The value of one of the keys of `values`."""
        return next(getattr(each, key) for each in self.values if hasattr(each, key))

    def walk(self) -> Iterator[Step]:
        """The step and all below it, the consumer before its inputs."""
        yield self
        for each in self.inputs:
            yield from each.walk()


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
