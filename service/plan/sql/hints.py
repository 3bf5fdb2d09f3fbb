"""The hints that may follow SELECT.

SELECT /*+ STATE_TTL('orders' = '7d retract'), SKEW('orders'), ORDERED, SPLIT_DISTINCT, UNBOUNDED_RANK */ …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, get_args

from sqlglot import exp

from rowkind.service.job import duration
from rowkind.service.physical.keys import MOST_SALTS
from rowkind.service.physical.source_table import OnExpire
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.query import SkewHint, TtlHint
from rowkind.service.plan.syntax import sql_text

_KNOWN = "supported hints are STATE_TTL('alias' = '7d'), SKEW('alias'), ORDERED, SPLIT_DISTINCT and UNBOUNDED_RANK"
_BARE = ("ORDERED", "SPLIT_DISTINCT", "UNBOUNDED_RANK")
_SHARDS_OF_A_HOT_KEY = 8

_Hint = TypeVar("_Hint")


@dataclass(frozen=True)
class Hints:
    """The hints of a SELECT.

    `times` and `skews` are the STATE_TTL and SKEW hints, keyed by alias in lower case. `split` and `unbounded` are the
    nodes of the SPLIT_DISTINCT and UNBOUNDED_RANK hints, or None.
    """

    times: Mapping[str, TtlHint]
    skews: Mapping[str, SkewHint]
    split: exp.Expr | None
    unbounded: exp.Expr | None


def read_hints(tree: exp.Select) -> Hints:
    """Return the hints of a SELECT. Raises Refusal."""
    times: dict[str, TtlHint] = {}
    skews: dict[str, SkewHint] = {}
    split: exp.Expr | None = None
    unbounded: exp.Expr | None = None
    hints = tree.args.get("hint")
    for each in hints.expressions if hints is not None else []:
        name = each.name.upper() if isinstance(each, exp.Var | exp.Anonymous) else ""
        if name == "STATE_TTL" and isinstance(each, exp.Anonymous):
            times |= _times(each)
        elif name == "SKEW" and isinstance(each, exp.Anonymous):
            skews |= _skews(each)
        elif name in _BARE:
            if each.expressions:
                raise Refusal(f"the hint {name} takes no arguments", each)
            split = each if name == "SPLIT_DISTINCT" else split
            unbounded = each if name == "UNBOUNDED_RANK" else unbounded
        elif not isinstance(each, exp.Expr):
            raise Refusal(f"the hint {each!s} cannot be parsed; {_KNOWN}", hints)
        else:
            raise Refusal(f"the hint {sql_text(each)} is not supported; {_KNOWN}", each)
    return Hints(times, skews, split, unbounded)


def is_ordered(at: exp.Expr) -> bool:
    """Return whether a join or subquery is in a SELECT with the hint ORDERED, which keeps the written join order."""
    select = at.parent_select
    hints = None if select is None else select.args.get("hint")
    return hints is not None and any(each.name.upper() == "ORDERED" for each in hints.expressions)


def no_split(split: exp.Expr | None) -> None:
    """Refuse the hint SPLIT_DISTINCT in a SELECT that has no aggregate with DISTINCT."""
    if split is not None:
        raise Refusal("SPLIT_DISTINCT needs COUNT, SUM or AVG with DISTINCT, but this SELECT has none", split)


def _times(hint: exp.Anonymous) -> dict[str, TtlHint]:
    times = {}
    for pair in hint.expressions:
        if not (isinstance(pair, exp.EQ) and pair.right.is_string):
            raise Refusal(
                "the hint STATE_TTL must be written STATE_TTL('alias' = '7d'), or '7d retract' to retract expired rows",
                hint,
            )
        length, _, word = str(pair.right.this).strip().rpartition(" ")
        said = next((each for each in get_args(OnExpire) if each == word.lower()), None)
        try:
            ttl = duration.parse(length if said is not None else str(pair.right.this))
            times[pair.left.name.lower()] = TtlHint(ttl, pair.left, said)
        except ValueError as error:
            raise Refusal(f"STATE_TTL: {error}", pair.right) from None
    return times


def _skews(hint: exp.Anonymous) -> dict[str, SkewHint]:
    skews = {}
    for each in hint.expressions:
        name, shards = (each.left, each.right) if isinstance(each, exp.EQ) else (each, None)
        if not name.is_string or not (shards is None or shards.is_int):
            raise Refusal(
                "the hint SKEW must be written SKEW('alias'), or SKEW('alias' = 32) to set the number of shards", hint
            )
        count = _SHARDS_OF_A_HOT_KEY if shards is None else int(shards.name)
        if not 2 <= count <= MOST_SALTS:
            raise Refusal(f"SKEW: the number of shards must be from 2 to {MOST_SALTS}", shards)
        skews[name.name.lower()] = SkewHint(count, name)
    return skews


def spoken(path: str, invented: set[str]) -> str:
    """Return a relation's path as the user knows it, that is, without the parts that the planner invented."""
    kept, so_far = [], ""
    for part in path.split("."):
        so_far += f"{part}."
        if so_far not in invented:
            kept.append(part)
    return ".".join(kept)


def by_path(hints: Mapping[str, _Hint], paths: set[str], invented: set[str]) -> dict[str, _Hint]:
    """Return the hints, keyed by the paths of the relations to which the hints apply.

    A hint applies to the relation whose path it names. If there is no such relation, the hint's path is compared with
    the other paths, without the parts that the planner invented for subqueries and inputs of a UNION.
    """
    found: dict[str, _Hint] = {}
    for name, hint in hints.items():
        meant = {name} & paths or {path for path in paths if spoken(path, invented) == spoken(name, invented)}
        found |= dict.fromkeys(sorted(meant) or [name], hint)
    return found
