"""The description of a plan: the one form from which text, JSON, Mermaid and HTML are written.

A description is a tree of steps from the sink down to the topics. A step has a title, facts, the state that it keeps,
and the way its rows take to the next step. Everything is there twice: in words for people, and as values for programs
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
    """State of a step: rows that it keeps.

    - `name`: the operator's name for the state. `of`: where the rows come from.
    - `layout`: how the rows are kept. `reason`: why, or None if the reason is obvious.
    - `ttl_ms`: milliseconds after the last change until a row expires; None for never. `kept` says the same in words.
    - `order`: says that changes count in their order of arrival; empty if they do not.
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
        """The whole state in words."""
        because = f", because {self.reason}" if self.reason else ""
        return f"{self.of}: {self.layout}{because}; {self.kept}{'; ' if self.order else ''}{self.order}"


@dataclass(frozen=True)
class NodeDescription:
    """Description of a node of a physical plan, independent of its consumer.

    For programs, `values` has the content of the title, and `details` the content of the facts.
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
    role: Annotated[
        Role, "the role of the rows in the next step; `fact`: the facts that a NOT IN needs about its whole right side"
    ]
    how: Annotated[How, "whether they are shuffled"]
    by: Annotated[Sequence[str], "the columns by which they are shuffled; empty if they all go to one shard"]
    mode: str
    first_step: Annotated[
        FirstStep | None, "what each task does with its rows before they are shuffled; null if nothing"
    ] = None
    spread_over: Annotated[
        int | None, "the number of shards over which the rows of one key are spread; null if one"
    ] = None
    copied_to: Annotated[int | None, "the number of shards to which each row is copied; null if one"] = None

    @property
    def salted(self) -> str:
        """The effect of a salt on the rows, in words; empty without a salt."""
        if self.spread_over is not None:
            return f"spread over {self.spread_over} shards"
        return f"copied to {self.copied_to} shards" if self.copied_to is not None else ""


@dataclass(frozen=True)
class Step:
    """A node of the plan, as its consumer sees it.

    `stage` is the number of the stage that the step runs in, counted from the topics; None for steps without state.
    `same_as` is the sink and the name under which the same step has already been described. That step and all steps
    below it exist only once.
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
        """Return the value of one of the keys of `values`."""
        return next(getattr(each, key) for each in self.values if hasattr(each, key))

    def walk(self) -> Iterator[Step]:
        """Yield this step and all steps below it, a consumer before its inputs."""
        yield self
        for each in self.inputs:
            yield from each.walk()


@dataclass(frozen=True)
class Description:
    """The plan of one sink, with the sink as its root. `sql` is its query as the user wrote it, empty if not known."""

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
