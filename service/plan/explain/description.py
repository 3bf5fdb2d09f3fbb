"""The description of a plan, from which text, JSON, Mermaid and HTML are rendered.

A description is a tree of steps from the sink down to the topics. Each step has a title, facts, its state, and the way
in which its rows reach the next step. Everything is described twice: in words for people, and as values for programs
(`explain.values`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from rowkind.quantities import counted
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
    """A fact about a step, in words."""

    label: str
    text: str


@dataclass(frozen=True)
class StepState:
    """Rows that a step keeps as state.

    - `name`: the operator's name for the state. `of`: where the rows come from.
    - `layout`: how the rows are stored. `reason`: why they are stored in this way, or None if the reason is obvious.
    - `ttl_ms`: how many milliseconds after its last change a row expires, or None if it never does. `kept` says in
      words how long rows are kept.
    - `order`: text saying that changes count in order of arrival, or empty if their order does not matter.
    - `endless`: whether the state grows without bound, so that a TTL would help.
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
        """A sentence that describes the whole state."""
        because = f", because {self.reason}" if self.reason else ""
        return f"{self.of}: {self.layout}{because}; {self.kept}{'; ' if self.order else ''}{self.order}"


@dataclass(frozen=True)
class NodeDescription:
    """The description of a physical plan node, which does not depend on the node's consumer.

    For programs, `values` and `details` contain the same information as the title and the facts.
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
    """How a step's rows reach the next step."""

    to: Annotated[str, "the next step"]
    role: Annotated[
        Role, "the role of the rows in the next step; `fact`: the facts that a NOT IN needs about its whole right side"
    ]
    how: Annotated[How, "whether the rows are shuffled"]
    by: Annotated[Sequence[str], "the columns by which rows are shuffled; empty if all rows go to one shard"]
    mode: str
    first_step: Annotated[
        FirstStep | None, "what each task does with its rows before they are shuffled; null if nothing"
    ] = None
    spread_over: Annotated[
        int | None, "the number of shards over which rows with the same key are spread; null if one"
    ] = None
    copied_to: Annotated[int | None, "the number of shards to which each row is copied; null if one"] = None

    @property
    def salted(self) -> str:
        """The effect of a salt on the rows, in words, or an empty string without a salt."""
        if self.spread_over is not None:
            return f"spread over {self.spread_over} shards"
        return f"copied to {self.copied_to} shards" if self.copied_to is not None else ""


@dataclass(frozen=True)
class Step:
    """A plan node from the point of view of its consumer.

    `stage` is the number of the stage in which the step runs, counted from the topics, or None for a step without
    state. If the same step has already been described, `same_as` is the sink and the name of that description. The step
    and all steps below it run only once.
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
        """Return the value of `key` from the first of `values` that contains this key."""
        return next(getattr(each, key) for each in self.values if hasattr(each, key))

    def walk(self) -> Iterator[Step]:
        """Yield this step and all steps below it. A consumer comes before its inputs."""
        yield self
        for each in self.inputs:
            yield from each.walk()


@dataclass(frozen=True)
class Description:
    """The plan of one sink, with the sink as its root. `sql` is the query as the user wrote it, or empty if unknown."""

    root: Step
    advice: tuple[Advice, ...]
    sql: str = ""


@dataclass(frozen=True)
class QueryDescription:
    """The plans of all sinks of one query, the number of its stages, and the tables that it reads."""

    name: str
    sinks: tuple[Description, ...]
    stages: int
    tables: tuple[str, ...]

    @property
    def title(self) -> str:
        """A summary of the query in one line."""
        kept = sum(bool(step.state) for each in self.sinks for step in each.root.walk())
        state = f"{counted(kept, 'step')} with state in {counted(self.stages, 'stage')}" if kept else "no state"
        return f"{counted(len(self.sinks), 'sink')} over {counted(len(self.tables), 'table')}, {state}"
