"""Hints: `/*+ STATE_TTL('orders' = '7d'), SPLIT_DISTINCT */` behind SELECT."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from rowkind.service.job import duration
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import TtlHint

_KNOWN = "STATE_TTL('alias' = '7d') and SPLIT_DISTINCT are"


def read_hints(tree: exp.Select) -> tuple[dict[str, TtlHint], exp.Expr | None]:
    """The STATE_TTL hints of a SELECT by alias in lower case, and its SPLIT_DISTINCT. Raises Refusal."""
    times: dict[str, TtlHint] = {}
    split: exp.Expr | None = None
    hints = tree.args.get("hint")
    for each in hints.expressions if hints is not None else []:
        name = each.name.upper() if isinstance(each, exp.Var | exp.Anonymous) else ""
        if name == "STATE_TTL" and isinstance(each, exp.Anonymous):
            times |= _times(each)
        elif name == "SPLIT_DISTINCT":
            if each.expressions:
                raise Refusal("the hint SPLIT_DISTINCT is written without arguments", each)
            split = each
        elif not isinstance(each, exp.Expr):
            raise Refusal(f"the hint {each!s} is not understood; {_KNOWN}", hints)
        else:
            raise Refusal(f"the hint {each.sql('spark')} is not supported; {_KNOWN}", each)
    return times, split


def no_split(split: exp.Expr | None) -> None:
    """Refuse the hint SPLIT_DISTINCT where nothing is there to split."""
    if split is not None:
        raise Refusal("SPLIT_DISTINCT is for COUNT, SUM or AVG with DISTINCT, of which there is none here", split)


def _times(hint: exp.Anonymous) -> dict[str, TtlHint]:
    times = {}
    for pair in hint.expressions:
        if not (isinstance(pair, exp.EQ) and pair.right.is_string):
            raise Refusal("the hint STATE_TTL is written STATE_TTL('alias' = '7d')", hint)
        try:
            times[pair.left.name.lower()] = TtlHint(duration.parse(str(pair.right.this)), pair.left)
        except ValueError as error:
            raise Refusal(f"STATE_TTL: {error}", pair.right) from None
    return times


def spoken(path: str, invented: set[str]) -> str:
    """A relation's path as the user knows it: without the parts that no alias stands for."""
    kept, so_far = [], ""
    for part in path.split("."):
        so_far += f"{part}."
        if so_far not in invented:
            kept.append(part)
    return ".".join(kept)


def spread(hints: Mapping[str, TtlHint], paths: set[str], invented: set[str]) -> dict[str, TtlHint]:
    """Hints by the paths of relations: those that are called so, or are so in a subquery or in an input of a UNION."""
    found: dict[str, TtlHint] = {}
    for name, hint in hints.items():
        meant = {name} & paths or {path for path in paths if spoken(path, invented) == spoken(name, invented)}
        found |= dict.fromkeys(sorted(meant) or [name], hint)
    return found
