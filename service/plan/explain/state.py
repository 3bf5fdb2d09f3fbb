"""Where a plan keeps rows: which, how, why, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rowkind.operators.aggregate_function import ARRIVALS, EXTREMES, GATHERED, MOMENTS, keeps_values
from rowkind.operators.match_calls import MatchNumber
from rowkind.service.aggregation import AggregateCall, Aggregation
from rowkind.service.clocks import Clock, Closing, ColumnTime
from rowkind.service.job.duration import show
from rowkind.service.physical import (
    PhysicalAggregate,
    PhysicalInput,
    PhysicalJoin,
    PhysicalLookup,
    PhysicalMatch,
    PhysicalNode,
    PhysicalNormalize,
    PhysicalOver,
    PhysicalRank,
    PhysicalScan,
    PhysicalSession,
    PhysicalStamp,
    PhysicalTemporalFilter,
    PhysicalUnion,
)
from rowkind.service.physical_tree import inputs
from rowkind.service.plan.explain.description import StepState, StepValues
from rowkind.service.python.function import PythonFunction
from rowkind.service.time_match import TimeMatch

_BACK = ", then it expires and is taken back with all that was made of it"


def kept(node: PhysicalNode) -> tuple[StepState, ...]:
    """What a node keeps; nothing for scans, stamps and unions."""
    match node:
        case PhysicalScan() | PhysicalStamp() | PhysicalUnion():
            return ()
        case PhysicalJoin():
            return tuple(_join(node))
        case PhysicalAggregate():
            return tuple(_aggregate(node))
        case PhysicalRank():
            return (_rank(node),)
        case PhysicalSession():
            return (_session(node),)
        case PhysicalOver():
            return _over(node)
        case PhysicalLookup():
            return tuple(_lookup(node))
        case PhysicalNormalize():
            return (_normalize(node),)
        case PhysicalTemporalFilter():
            return (_agenda(node),)
        case PhysicalMatch():
            return tuple(_match(node))


def called(node: PhysicalNode) -> str:
    """What an operator's input is, in a sentence."""
    below = _origin(node)
    return below.source.table if isinstance(below, PhysicalScan) else f"the result of {below.node}"


def alias(node: PhysicalNode) -> str:
    """What a hint in the same SELECT calls an operator's input, if that is a table."""
    below = _origin(node)
    return below.alias.rpartition(".")[2] if isinstance(below, PhysicalScan) else ""


def _origin(node: PhysicalNode) -> PhysicalNode:
    """The input as the query has it: a Normalize stands for its table."""
    return _origin(node.input) if isinstance(node, PhysicalNormalize) else node


def _values(node: PhysicalNode, layout: str, closing: Closing | None = None, **more: list[str]) -> StepValues:
    """Whose rows are kept and how, for programs."""
    below = _origin(node)
    of = below.source.table if isinstance(below, PhysicalScan) else below.node
    closes = (
        {}
        if closing is None or closing.kept is None
        else {"closes": {"clock": closing.clock.name, "at": moment(closing.kept)}}
    )
    return {"of": of, "layout": layout, **closes, **more}


def _join(node: PhysicalJoin) -> Iterator[StepState]:
    for name, below, chosen in (("left", node.left, node.left_input), ("right", node.right, node.right_input)):
        if chosen.remade:
            continue
        layout, reason = _layout(below, chosen)
        # Of a row that has expired nobody could say whether it is in there.
        whole, ttl = node.kind in ("not in", "in") and name == "right", chosen.ttl_ms
        alive, kept = comes_alive(below), f"for ever: {node.kind.upper()} has to know all of them"
        kept = kept if whole and not alive else _for_long(ttl, below, chosen.closing)
        endless = ttl is None and not _is_let_go(chosen.closing) and not whole and not alive
        sub_key = {"sub_key": _sub_key(below)} if chosen.layout == "unique key" else {}
        values = _values(below, chosen.layout, chosen.closing, **sub_key)
        yield StepState(name, called(below), layout, reason, ttl, kept, _order(chosen), endless, values)
    if node.facts:
        layout = "on every shard, whether there is a row at all and whether one of them is NULL"
        reason, values = f"{node.kind.upper()} depends on it", _values(node.right, "facts")
        yield StepState("facts", called(node.right), layout, reason, None, "for ever", values=values)


def _lookup(node: PhysicalLookup) -> Iterator[StepState]:
    yield from _by_arrival(node) if node.match is None else _by_time(node, node.match)


def _by_arrival(node: PhysicalLookup) -> Iterator[StepState]:
    left, right = node.left_input, node.right_input
    if node.left.traits.mode != "append" or node.calc.refreshes:
        layout, reason = "every row with what it has met", "what is taken back is what was put out"
        kept, values = "as long as it is there", _values(node.left, "every row")
        yield StepState("left", called(node.left), layout, reason, None, kept, _order(left), values=values)
    layout, _ = _layout(node.right, right)
    reason, ttl, values = (
        "a left row meets what is there when it comes",
        right.ttl_ms,
        _values(node.right, right.layout),
    )
    kept, endless = _for_long(ttl, node.right), ttl is None and not comes_alive(node.right)
    yield StepState("right", called(node.right), layout, reason, ttl, kept, _order(right), endless, values)


def _by_time(node: PhysicalLookup, match: TimeMatch) -> Iterator[StepState]:
    left, right, closing = node.left_input, node.right_input, node.left_input.closing
    layout, reason = "every row by key, in the order of time", "what is nearest to it may change"
    ttl, kept, values = left.ttl_ms, _for_long(left.ttl_ms, node.left, closing), _values(node.left, "every row")
    if closing is not None and not match.looks_back:
        late = moment(closing.late)
        kept = f"each until {by(closing.clock)} passes the row that it takes, for ever where none comes"
        kept += f"; late once it passes {late}"
    endless = ttl is None and closing is None and not comes_alive(node.left)
    yield StepState("left", called(node.left), layout, reason, ttl, kept, _order(left), endless, values)
    what = "version" if match.versions else "row"
    kept = "for ever: no watermark says that no left row of an earlier time comes"
    if closing is not None and match.looks_back:
        kept = f"each until {by(closing.clock)} passes the next {what} of its key"
    elif right.closing is not None and right.closing.kept is not None:
        kept = _until(right.closing.clock, right.closing.kept)
    layout, reason = f"every {what} by key, in the order of time", "a left row takes the one that is nearest to it"
    values = _values(node.right, "versions" if match.versions else "every row")
    yield StepState("right", called(node.right), layout, reason, None, kept, _order(right), values=values)


def _layout(below: PhysicalNode, chosen: PhysicalInput) -> tuple[str, str | None]:
    match chosen.layout:
        case "one row per key":
            return "one row per key", "the join's key contains a unique key"
        case "unique key":
            return f"rows by join key and unique key ({', '.join(_sub_key(below))})", None
        case "multiset":
            return f"rows by join key, equal ones {_equal_ones(chosen)}", "no unique key is known"


def _equal_ones(chosen: PhysicalInput) -> str:
    """With a ttl, each expires by its own age."""
    return "counted" if chosen.ttl_ms is None else "kept one by one"


def _sub_key(below: PhysicalNode) -> list[str]:
    return [each.expression.text for each in below.calc.sub_key]


def _aggregate(node: PhysicalAggregate) -> Iterator[StepState]:
    of, ttl = called(node.input), node.aggregation.ttl_ms
    groups = _values(node.input, "one row per key", node.aggregation.closing)
    if node.aggregation.is_global:
        what = f"one row, with what has been added up so far{_told_apart(node.aggregation)}"
        yield StepState("groups", of, what, None, None, "for ever", values=groups)
    else:
        what = "one row per group"
        what += ", with what has been added up so far" if node.aggregation.calls else ", with how many rows it has"
        what += _told_apart(node.aggregation)
        closing, ending = node.aggregation.closing, node.aggregation.ending
        endless = ttl is None and closing is None and ending is None and not comes_alive(node.input)
        kept = _for_long(ttl, node.input, closing) if ending is None else _until(ending.clock, ending.at)
        yield StepState("groups", of, what, None, ttl, kept, endless=endless, values=groups)
    retracts = node.aggregation.retracts
    for call in node.aggregation.calls:
        own = call.function
        if isinstance(own, PythonFunction) and own.views:
            texts = [f"{view.kind} {view.name}" for view in own.views]
            layout = f"the {' and the '.join(texts)} of {own.name}, in each group, an entry for each element"
            shown = _values(node.input, "views", calls=[call.text])
            yield StepState("views", of, layout, "the function keeps them", ttl, "as long as their group", values=shown)
    calls = [
        call
        for call in node.aggregation.calls
        if not isinstance(call.function, PythonFunction)
        and keeps_values(call.function, distinct=call.distinct, retracts=retracts and not call.grows)
    ]
    if calls:
        texts = list(dict.fromkeys(call.text for call in calls))
        reasons = list(dict.fromkeys(map(_why_all, calls)))
        where = "" if node.aggregation.is_global else " in each group"
        layout = f"all different values for {', '.join(texts)}{where}"
        values = _values(node.input, "values", calls=texts)
        yield StepState("values", of, layout, ", and ".join(reasons), ttl, "as long as their group", values=values)


def _why_all(call: AggregateCall) -> str:
    """Why all values of a call are kept."""
    if call.function in ARRIVALS:
        return "the row may be taken back, and then the next one to have arrived is needed"
    if call.function in EXTREMES:
        return "the value may be taken back, and then the next one is needed"
    if call.function in GATHERED:
        return "the result is made of all of them, anew for each group that changes"
    return "DISTINCT has to know how often each value is there"


def _told_apart(aggregation: Aggregation) -> str:
    """What the row of a group has besides plain sums: the extremes that are one value, and why, and sums of powers."""
    extremes = [call for call in aggregation.calls if call.function in EXTREMES]
    one = [call for call in extremes if not aggregation.retracts or call.grows]
    moments = [call for call in aggregation.calls if call.function in MOMENTS and not call.distinct]
    told = ""
    if one:
        why = "a row is only replaced by one with a better value" if aggregation.retracts else "rows only come"
        told += f"; one value for {_texts(one)}, because {why}"
    return told + (f"; exact sums of powers for {_texts(moments)}" if moments else "")


def _texts(calls: Sequence[AggregateCall]) -> str:
    return ", ".join(dict.fromkeys(call.text for call in calls))


def _rank(node: PhysicalRank) -> StepState:
    kind = "every row" if node.strategy == "retract" else "one row per key" if node.ranking.takes_one else "top rows"
    if node.strategy == "retract":
        layout = "every row, in the order of its partition" if node.partition else "every row, in order"
        if node.state.ttl_ms is None and node.ranking.function != "row_number" and not node.input.traits.unique_keys:
            layout += ", equal ones counted"
    elif node.ranking.takes_one:
        layout = "one row per partition" if node.partition else "one row"
    else:
        layout = f"{'of each partition ' if node.partition else ''}the rows whose number is up to {node.ranking.last}"
    return _rows(node, node.state, layout, node.reason, _values(node.input, kind, node.state.closing))


def _session(node: PhysicalSession) -> StepState:
    layout = "every row, in the order of its time" + (" in its partition" if node.partition else "")
    reason, state = "a row may come between two sessions and make them one", node.state
    reason = "they come again when the end of their session moves" if node.ends else reason
    if node.ends and state.closing is not None and state.closing.kept is None:
        over = ColumnTime(node.schema.names[-1], state.closing.late.later_us - node.gap)
        state = replace(state, closing=replace(state.closing, kept=over))
    return _rows(node, state, layout, reason, _values(node.input, "every row", state.closing if node.ends else None))


def concerned(node: PhysicalOver) -> str:
    """Which rows are sent again with a change, in a sentence."""
    frames = [call.frame for call in node.calls]
    if any(each.end is None for each in frames):
        return "concerns all rows of its partition, or all before it"
    if any(each.start is None for each in frames):
        return "concerns the rows behind it; a row that comes last reads the one before it only"
    return "concerns the rows in whose frames it is"


def _over(node: PhysicalOver) -> tuple[StepState, ...]:
    layout = "every row, in order" + (" in its partition" if node.partition else "")
    values = _values(node.input, "every row")
    if node.ahead is not None:
        layout = "the last rows" + (" of each partition" if node.partition else "") + " with their results"
        last = _rows(node, node.state, layout, "rows come in the order of their time", _values(node.input, "last rows"))
        kept = last.kept
        if node.passes:
            kept = f"each until rows come that are {show(_reach(node) // 1000)} later, in whatever partition"
        elif node.state.ttl_ms is None:
            kept = "for ever, as many of each partition as rows that follow may see"
        return (replace(last, name="results", kept=kept, endless=False),)
    rows = _rows(node, node.state, layout, "a row may be taken back", values)
    reason = "what is around a change is read, and what was sent is taken back"
    return rows, replace(rows, name="results", layout="the same with its results", reason=reason)


def _reach(node: PhysicalOver) -> int:
    """How far apart rows are that see each other by their frames' lengths of time, in microseconds."""
    frames, ahead = [call.frame for call in node.calls], node.ahead or 0
    return ahead + max(-edge for each in frames for edge in (0, each.start, each.end) if edge is not None)


def _normalize(node: PhysicalNormalize) -> StepState:
    if node.only_comes:
        layout, reason = "all rows, in the order in which they came", None
        kept, values = _for_long(node.state.ttl_ms, node.input), _values(node.input, "timed")
        return StepState(
            "agenda", called(node.input), layout, reason, node.state.ttl_ms, f"{kept}{_BACK}", values=values
        )
    if node.state.layout == "one row per key":
        layout = f"the last row of each ({', '.join(part.text for part in node.input.calc.key.parts)})"
    else:
        layout = f"all rows, equal ones {_equal_ones(node.state)}"
    reason = "that is where old rows are found"
    if node.takes_back:
        layout += ", and when each was written"
        reason = "a row that is written again lives longer"
    return _rows(node, node.state, layout, reason, _values(node.input, node.state.layout))


def _rows(
    node: PhysicalRank | PhysicalSession | PhysicalOver | PhysicalNormalize,
    state: PhysicalInput,
    layout: str,
    reason: str,
    values: StepValues,
) -> StepState:
    """The rows of an operator with one input."""
    ttl, endless = state.ttl_ms, state.ttl_ms is None and state.closing is None and not comes_alive(node.input)
    kept = _for_long(ttl, node.input, state.closing)
    kept += _BACK if isinstance(node, PhysicalNormalize) and node.takes_back else ""
    return StepState("rows", called(node.input), layout, reason, ttl, kept, _order(state), endless, values)


def _agenda(node: PhysicalTemporalFilter) -> StepState:
    begins, ends = (None if each is None else moment(each) for each in (node.begins, node.ends))
    layout = "the rows whose time is to come, in the order of their time"
    if ends is not None:
        layout = "the rows whose time is not over, in the order in which it ends"
    kept = f"each until {by(node.clock)} passes {ends or begins}"
    return StepState("agenda", called(node.input), layout, None, None, kept, values=_values(node.input, "timed"))


def _match(node: PhysicalMatch) -> Iterator[StepState]:
    of, passes = called(node.input), f"{by(node.closing.clock)} passes {moment(node.closing.late)}"
    layout = "the rows that are not in their place yet, in the order of their time"
    yield StepState("waiting", of, layout, None, None, f"each until {passes}", values=_values(node.input, "timed"))
    within = node.matching.sought.within
    kept = (
        "for ever, where a match that has begun neither ends nor fails: there is no WITHIN"
        if within is None
        else f"each for {show(within // 1000)} of time: that is how long a match may take (WITHIN)"
    )
    layout = f"{'of each partition ' if node.partition else ''}the rows from the first on that may begin a match"
    values = _values(node.input, "begun")
    yield StepState("begun", of, layout, "how it goes on is not known", None, kept, values=values)
    if any(isinstance(each.call, MatchNumber) for each in node.matching.calls):
        layout = f"how many matches {'each partition' if node.partition else 'there'} had"
        values = _values(node.input, "one row per key")
        yield StepState("numbers", of, layout, "MATCH_NUMBER() counts on", None, "for ever", values=values)


def by(clock: Clock) -> str:
    """Whose time it is, in a sentence."""
    tables = [table for table, _ in clock.tables]
    which = {0: "the clock", 1: "the watermark of ", 2: "the lesser watermark of "}.get(
        len(tables), "the least watermark of "
    )
    return which + " and ".join(tables)


def moment(time: ColumnTime) -> str:
    """The time that a row has, in a sentence."""
    # Whether a watermark has come to a time or has passed it is a microsecond, which is not told.
    later = (time.later_us + 500) // 1000
    return time.column.rpartition(".")[2] + (f" + {show(later)}" if later > 0 else f" - {show(-later)}" * (later < -1))


def _until(clock: Clock, time: ColumnTime) -> str:
    return f"each until {by(clock)} passes {moment(time)}"


def _is_let_go(closing: Closing | None) -> bool:
    """Whether a watermark lets go of rows, and does not only say which are late."""
    return closing is not None and closing.kept is not None


def comes_alive(node: PhysicalNode) -> bool:
    """Whether all that an input is made of is taken back when it expires."""
    if isinstance(node, PhysicalNormalize) and node.takes_back:
        return True
    if isinstance(node, PhysicalLookup) and node.match is not None and node.match.versions:
        return comes_alive(node.left)
    return not isinstance(node, PhysicalScan) and all(map(comes_alive, inputs(node)))


def _for_long(ttl_ms: int | None, below: PhysicalNode, closing: Closing | None = None) -> str:
    if closing is not None and closing.kept is None:
        late = f"late once {by(closing.clock)} passes {moment(closing.late)}"
        return f"for ever: no condition bounds how much later a match may be; {late}"
    if closing is not None and closing.kept is not None:
        late = f", late once it passes {moment(closing.late)}" if closing.late != closing.kept else ""
        return _until(closing.clock, closing.kept) + late
    if ttl_ms is None and comes_alive(below):
        return "as long as they are there: what expires is taken back"
    return "for ever: there is no ttl" if ttl_ms is None else f"each for {show(ttl_ms)} after its last change"


def _order(chosen: PhysicalInput) -> str:
    if not chosen.by_seq:
        return ""
    keyed = chosen.layout != "multiset"
    return "the last change of a key counts" if keyed else "changes count in the order of arrival"
