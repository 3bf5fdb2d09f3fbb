"""Compiles function calls. Functions are looked up by the name in the SQL, whichever node the parser created."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeGuard

from sqlglot import exp

from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.scalar import job_functions
from rowkind.service.plan.scalar.compiler import Compiler, Rule
from rowkind.service.plan.scalar.functions import FUNCTIONS, REFUSED
from rowkind.service.plan.scalar.functions.function import call
from rowkind.service.plan.scalar.job_functions import FUNCTION, ROWS, function_of
from rowkind.service.plan.scalar.typed import Typed
from rowkind.service.plan.scalar.types import STRING


def _called(compiler: Compiler, node: exp.Func) -> Typed:
    if isinstance(node, exp.Anonymous) and (function := function_of(node)) is not None:
        return job_functions.call(compiler, node, function)
    name = word(node)
    parts = list(node.expressions) if isinstance(node, exp.Anonymous) else []
    known = FUNCTIONS.get(name)
    if name in ("TINYINT", "SMALLINT") and len(parts) == 1:
        return compiler.compile(exp.Cast(this=parts[0], to=exp.DataType.build(name)))
    if name == "STRUCT":
        name, parts = "NAMED_STRUCT", _with_names(parts)
        known = FUNCTIONS[name]
    if name == "ARRAYS_ZIP":
        parts = _with_names(parts)
    if known is None or (not parts and name in REFUSED):
        raise no_function(node)
    return call(compiler, node, name, parts, known)


def no_function(node: exp.Func) -> Refusal:
    """Return the error for a function that is not supported."""
    name = word(node)
    reason = REFUSED.get(name)
    near = difflib.get_close_matches(name, FUNCTIONS, n=1, cutoff=0.75)
    said = f": {reason}" if reason else f"; did you mean {near[0]}?" if near else ""
    return Refusal(f"the function {name} is not supported{said}", node)


def is_unknown(node: exp.Expr) -> TypeGuard[exp.Anonymous]:
    """Return whether a node calls a function that is neither a scalar function nor defined by the job.

    The call may still be an aggregate function.
    """
    if not isinstance(node, exp.Anonymous) or function_of(node) is not None:
        return False
    return word(node) not in FUNCTIONS and word(node) not in ("STRUCT", "TINYINT", "SMALLINT")


def _with_names(parts: list[exp.Expr]) -> list[exp.Expr]:
    """Return the fields of a STRUCT, each preceded by its name.

    The name is the field's alias, or the name of the column or field that it reads, or `col` followed by a number.
    """
    named: list[exp.Expr] = []
    for number, part in enumerate(parts, 1):
        inner = part.unnest()
        name = f"col{number}"
        if isinstance(part, exp.Alias):
            name, inner = part.alias, part.this
        elif isinstance(inner, exp.Column):
            name = inner.name.rpartition(".")[2]
        elif isinstance(inner, exp.Dot | exp.Identifier):
            name = inner.name
        named += [exp.Literal.string(name), inner]
    return named


def _spelled(compiler: Compiler, node: exp.Expr) -> Typed:
    """Compile a function that has special syntax."""
    name, parts = _named(node)
    return call(compiler, node, name, parts, FUNCTIONS[name])


def _named(node: exp.Expr) -> tuple[str, list[exp.Expr]]:
    if isinstance(node, exp.Trim):
        return _trimmed(node)
    name, parts = _SPELLED[type(node)]
    given = [node.args[part] for part in parts if node.args.get(part) is not None]
    return name, [each for part in given for each in (part if isinstance(part, list) else [part])]


def _trimmed(node: exp.Trim) -> tuple[str, list[exp.Expr]]:
    side = str(node.args.get("position") or "BOTH").upper()
    name = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(side, "BTRIM")
    taken = node.args.get("expression")
    if taken is None:
        return name, [node.this]
    return name, [node.this, taken] if name == "BTRIM" else [taken, node.this]


def _variable(compiler: Compiler, node: exp.Identifier) -> Typed:
    return compiler.variable(node)


def _unit(_: Compiler, node: exp.Var) -> Typed:
    return Typed("", STRING, node.name)


_SPELLED: Mapping[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Substring: ("SUBSTRING", ("this", "start", "length")),
    exp.StrPosition: ("POSITION", ("substr", "this", "position")),
    exp.Overlay: ("OVERLAY", ("this", "expression", "from_", "for_")),
    exp.RegexpLike: ("RLIKE", ("this", "expression")),
    exp.DPipe: ("CONCAT", ("this", "expression")),
    exp.Concat: ("CONCAT", ("expressions",)),
    exp.Extract: ("EXTRACT", ("this", "expression")),
    exp.Transform: ("TRANSFORM", ("this", "expression")),
}
"""Functions with special syntax: for each kind of node, the function's name, and the parts of the node that hold the
function's arguments.
"""

RULES: Mapping[type[exp.Expr], Rule] = {
    **dict.fromkeys(
        (exp.Anonymous, exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentUser),
        (_called, ("this", "expressions", FUNCTION, ROWS)),
    ),
    exp.Trim: (_spelled, ("this", "expression", "position")),
    **{of: (_spelled, parts) for of, (_, parts) in _SPELLED.items()},
    exp.Identifier: (_variable, ("this",)),
    exp.Var: (_unit, ("this",)),
}
