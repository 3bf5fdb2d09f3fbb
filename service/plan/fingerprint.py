"""What a checkpoint's state depends on, so that a changed query is never run over the state of another.

The fingerprint of a plan is a flat mapping of readable facts: per node the layout, keys and schemas that decided
which bytes went into which shard. Two plans with equal fingerprints may share a checkpoint. Names, comments, filters
below the state and anything above the last operator may change freely only if no fact changes.
"""

from __future__ import annotations

from service.plan.physical import Calc, Input, Join, Key, Scan, Sink, walk

Fingerprint = dict[str, str]


def fingerprint(sink: Sink, parallelism: int) -> Fingerprint:
    """The facts of `sink`, by `<node>.<fact>`."""
    facts = {"parallelism": str(parallelism), "sink.topic": sink.topic, "sink.mode": sink.mode}
    for node in walk(sink):
        match node:
            case Scan():
                facts[f"{node.node}.topic"] = node.topic
                facts[f"{node.node}.mode"] = node.mode
                facts |= _calc(node.node, node.calc)
            case Join():
                facts[f"{node.node}.kind"] = node.kind
                facts[f"{node.node}.condition"] = node.condition.text if node.condition else "none"
                facts[f"{node.node}.left"] = _input(node.left_input)
                facts[f"{node.node}.right"] = _input(node.right_input)
                facts |= _calc(node.node, node.calc)
            case Sink():
                facts["sink.key"] = ", ".join(node.key) or "none"
    return facts


def differences(before: Fingerprint, after: Fingerprint) -> list[str]:
    """One line per fact that differs, naming it with both values."""
    return [
        f"{fact}: {before.get(fact, 'absent')} -> {after.get(fact, 'absent')}"
        for fact in sorted(before.keys() | after.keys())
        if before.get(fact) != after.get(fact)
    ]


def _calc(node: str, calc: Calc) -> Fingerprint:
    return {
        f"{node}.columns": ", ".join(
            f"{expression.text} AS {field.name} {field.type.sql}{'' if field.type.nullable else ' NOT NULL'}"
            for expression, field in zip(calc.columns, calc.output.fields, strict=True)
        ),
        f"{node}.filter": calc.predicate.text if calc.predicate else "none",
        f"{node}.key": _key(calc.key),
        f"{node}.sub-key": ", ".join(part.expression.text for part in calc.sub) or "none",
    }


def _key(key: Key) -> str:
    parts = [
        f"{part.text} {part.type.sql}{' (NULL = NULL)' if null_safe else ''}"
        for part, null_safe in zip(key.parts, key.null_safe, strict=True)
    ]
    return ", ".join(parts) or "none"


def _input(side: Input) -> str:
    # The TTL is left out: it may be changed at any time, rows then expire by the new one.
    return f"{side.layout}, {'by arrival' if side.by_seq else 'as a multiset'}"
