"""Functions that turn one row into several, such as UNNEST and explode, in FROM, LATERAL VIEW and the SELECT list.

    FROM t CROSS JOIN UNNEST(t.tags) WITH ORDINALITY AS u(tag, n)     a row for each element, numbered from 1
    FROM t LEFT JOIN UNNEST(t.tags) AS u(tag) ON TRUE                 keeps a row without elements, with NULLs
    FROM t LEFT JOIN UNNEST(t.tags) AS u(tag) ON u.tag > t.least      also keeps a row of which no element matches
    FROM t, LATERAL posexplode(t.tags) AS u(n, tag)                   elements numbered from 0
    FROM t LATERAL VIEW OUTER explode(t.counts) u AS name, number     keys and values of a map
    SELECT id, inline(items) FROM t                                   the fields of structs as columns
    FROM t, LATERAL words(t.text) AS w(word, n)                       the rows of a table function of the job

As in the SQL standard, UNNEST expands structs into columns. As in Spark, explode does not, but inline does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.plan.columns import by_name, columns, parts_of
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.conjuncts import conjuncts
from rowkind.service.plan.scalar.functions import REFUSED
from rowkind.service.plan.scalar.job_functions import ROWS, function_of
from rowkind.service.plan.scalar.scalars import compile_condition, type_of
from rowkind.service.plan.sql.context import Context, Queries, alias_for
from rowkind.service.plan.sql.grouping import calls, no_aggregates
from rowkind.service.plan.sql.scope import Relation, Scope

PLACES = ("POSEXPLODE", "POSEXPLODE_OUTER")
OUTER = ("EXPLODE_OUTER", "POSEXPLODE_OUTER", "INLINE_OUTER")
INLINE = ("INLINE", "INLINE_OUTER")
NAMES = tuple(dict.fromkeys(("EXPLODE", *PLACES, *OUTER, *INLINE)))
_PLACE = "pos"
_SINGLE = "put GROUP BY, window functions and functions that return several rows into separate SELECTs"


@dataclass(frozen=True)
class Generator:
    """A call that turns one row into several.

    - `array`: the expression whose elements become rows.
    - `ordinality`: the name of the last column, which numbers the elements. The name is empty if the SQL has none, and
      None if there is no such column.
    - `names`: the column names after the alias.
    - `outer`: a row without elements is kept, with NULL in place of an element.
    - `on`: the join's condition, if any. If `left` is set, the join is a LEFT JOIN.
    """

    call: exp.Func
    array: exp.Expr
    alias: str = ""
    names: tuple[str, ...] = ()
    ordinality: str | None = None
    outer: bool = False
    left: bool = False
    on: exp.Expr | None = None

    @property
    def word(self) -> str:
        """The function's name."""
        return "UNNEST" if isinstance(self.call, exp.Unnest) else word(self.call)


def generator(at: exp.Expr) -> Generator | None:
    """Return the generator in an item of FROM or the SELECT list, or None if there is none. Raises Refusal."""
    match at:
        case exp.Join():
            found = generator(at.this)
            left = found is not None and _keeps_rows(at)
            return found and replace(found, outer=found.outer or left, left=left, on=at.args.get("on"))
        case exp.Table() if isinstance(at.this, exp.Anonymous):
            # As in PostgreSQL, a function in FROM can read the relations before it, with or without the word LATERAL.
            found = generator(at.this)
            return found and replace(found, alias=at.alias, names=_names(at))
        case exp.Unnest():
            return _unnested(at)
        case exp.Lateral() if isinstance(at.this, exp.Func):
            return _lateral(at)
        case exp.Anonymous():
            return _called(at)
    return None


def _unnested(at: exp.Unnest) -> Generator:
    offset = at.args.get("offset")
    ordinality = None if not offset else offset.name if isinstance(offset, exp.Expr) else ""
    if len(at.expressions) != 1:
        raise Refusal("UNNEST takes one array or map here: for several columns, unnest an array of structs", at)
    return Generator(at, at.expressions[0], at.alias, _names(at), ordinality)


def _lateral(at: exp.Lateral) -> Generator:
    call = at.this
    if isinstance(call, exp.Anonymous) and word(call) == "TABLE" and len(call.expressions) == 1:
        call = call.expressions[0]
    found = generator(call)
    if found is None:
        reason = REFUSED.get(word(at.this))
        said = f"is not supported: {reason}" if reason else f"is unknown; available: {', '.join(NAMES)}"
        raise Refusal(f"the table function {word(at.this)} {said}", at.this)
    if at.args.get("ordinality"):
        raise Refusal("WITH ORDINALITY is allowed only with UNNEST: write POSEXPLODE here, which counts from 0", at)
    return replace(found, alias=at.alias, names=_names(at), outer=found.outer or bool(at.args.get("outer")))


def _called(at: exp.Anonymous) -> Generator | None:
    if (function := function_of(at)) is not None and function.kind == "table":
        rows = at.copy()
        rows.set(ROWS, value=True)
        return Generator(at, rows)
    if word(at) not in NAMES:
        return None
    if len(at.expressions) != 1:
        raise Refusal(f"{word(at)} takes one array or map", at)
    return Generator(at, at.expressions[0], outer=word(at) in OUTER)


def in_from(
    found: Generator, rows: LogicalNode, scope: Scope, context: Context, queries: Queries
) -> tuple[LogicalNode, Scope]:
    """Return the FROM clause's rows so far, repeated for each of their elements, and the scope with the new columns.

    Raises Refusal.
    """
    alias = found.alias or alias_for(queries, context, found.word.lower())
    taken = [*(other.alias for other in scope.relations), *scope.spent]
    if alias.lower() in map(str.lower, taken):
        raise Refusal(f"two tables in FROM have the alias {alias}: give one of them another alias", found.call)
    expand, relation = _expanded(found, alias, rows, scope, context)
    scope = replace(scope, relations=(*scope.relations, relation))
    conditions = conjuncts(scope.resolve(found.on) if found.on is not None else None)
    if not conditions:
        return expand, scope
    if not found.left:
        return LogicalFilter(expand, conditions), scope
    # A LEFT JOIN also keeps a row if the condition is not true for any of its elements.
    compile_condition(conditions, by_name(columns(expand)))
    return replace(expand, condition=conditions), scope


def in_select(
    tree: exp.Select, rows: LogicalNode, scope: Scope, context: Context, queries: Queries
) -> tuple[exp.Select, LogicalNode, Scope]:
    """Replace the generators in a SELECT list with columns; return the SELECT, the expanded rows, and the scope.

    Raises Refusal.
    """
    items: list[exp.Expr] = []
    for item in tree.expressions:
        found = generator(item.this if isinstance(item, exp.Alias | exp.Aliases) else item)
        if found is None:
            items.append(item)
            continue
        _stands_alone(tree, found)
        names = [item.alias] if isinstance(item, exp.Alias) else [name.name for name in item.expressions]
        if not isinstance(item, exp.Alias | exp.Aliases):
            names = []
        rows, relation = _expanded(
            replace(found, names=tuple(names)), alias_for(queries, context, found.word.lower()), rows, scope, context
        )
        scope = replace(scope, relations=(*scope.relations, replace(relation, hidden=True)))
        items += [_item(relation, name, found.call) for name in relation.columns]
    if items != tree.expressions:
        tree = tree.copy()
        tree.set("expressions", items)
    return tree, rows, scope


def _expanded(
    found: Generator, alias: str, rows: LogicalNode, scope: Scope, context: Context
) -> tuple[LogicalExpand, Relation]:
    no_aggregates(found.array, found.word)
    no_aggregates(found.on, "the ON clause")
    array = scope.resolve(found.array)
    type_ = type_of(array, by_name(columns(rows)))
    inline = _takes_apart(found, type_)
    parts = [part.name for part in parts_of(type_, inline=inline)]
    place = "ordinality" if found.ordinality is not None else _PLACE
    shown = [*([place] if found.word in PLACES else []), *parts]
    if found.ordinality is not None:
        shown = [*parts, place]
    names = _spelled(found, shown)
    path = f"{context.path}{alias}"
    own = {name: f"{path}.{spelled}" for name, spelled in zip(shown, names, strict=True)}
    expand = LogicalExpand(
        rows,
        array,
        {own[name]: number for number, name in enumerate(parts)},
        # No query can refer to this name.
        own.get(place, f"{path}.#{_PLACE}"),
        found.array,
        first=0 if found.ordinality is None else 1,
        inline=inline,
        outer=found.outer,
    )
    return expand, Relation(alias, {spelled: own[name] for name, spelled in zip(shown, names, strict=True)})


def _takes_apart(found: Generator, type_: Type) -> bool:
    """Return whether the elements are structs that the generator expands into columns.

    Raises Refusal for a value that has no elements.
    """
    if type_.kind not in ("array", "map"):
        raise Refusal(f"{found.word} takes an array or a map, not {type_.sql}", found.array)
    structs = type_.kind == "array" and type_.element.kind == "record"
    if found.word in INLINE and not structs:
        raise Refusal(f"{found.word} takes an array of structs, not {type_.sql}: write EXPLODE", found.array)
    return structs and (found.word in (*INLINE, "UNNEST") or function_of(found.call) is not None)


def _spelled(found: Generator, shown: Sequence[str]) -> Sequence[str]:
    """Return a generator's column names: the names after the alias, or Spark's default names. Raises Refusal."""
    names = found.names + ((found.ordinality,) if found.ordinality and found.names else ())
    if not names and isinstance(found.call, exp.Unnest):
        # If a table has only one column, its alias is also the column's name.
        return [found.alias if name == "col" and found.alias else name for name in shown]
    if not names:
        return shown
    if len(names) != len(shown):
        raise Refusal(
            f"the number of columns that {found.word} returns is {len(shown)} ({', '.join(shown)}), but the number of "
            f"column names after the alias is {len(names)}",
            found.call,
        )
    for name in names:
        if sum(name.lower() == other.lower() for other in names) > 1:
            raise Refusal(f"two columns are named {name}: give one of them another name", found.call)
    return names


def _keeps_rows(join: exp.Join) -> bool:
    """Return whether a join with a generator keeps rows without elements.

    Raises Refusal for joins other than CROSS JOIN, an inner join and LEFT JOIN.
    """
    side, kind, method = (str(join.args.get(name) or "").upper() for name in ("side", "kind", "method"))
    if method or kind not in ("", "INNER", "OUTER", "CROSS") or side not in ("", "LEFT") or join.args.get("using"):
        words = " ".join(each for each in (method, side, kind) if each)
        raise Refusal(
            f"a function that returns several rows must follow CROSS JOIN or LEFT JOIN, not {words} JOIN", join
        )
    if side == "LEFT" and join.args.get("on") is None:
        # In Spark, a LEFT JOIN without ON drops the rows that a LEFT JOIN should keep.
        raise Refusal(
            "LEFT JOIN with a function that returns several rows needs an ON clause: write ON TRUE", join.this
        )
    return side == "LEFT"


def _stands_alone(tree: exp.Select, found: Generator) -> None:
    grouped = tree.args.get("group") or tree.args.get("having")
    if grouped or any(any(calls(each)) or each.find(exp.Window) for each in tree.expressions):
        raise Refusal(f"{found.word} would multiply rows before they are grouped: {_SINGLE}", found.call)


def _item(relation: Relation, name: str, at: exp.Expr) -> exp.Expr:
    column = exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(relation.alias, quoted=True))
    column.this.meta.update(next((each.meta for each in at.walk() if "start" in each.meta), {}))
    return exp.alias_(column, name, quoted=True)


def _names(at: exp.Expr) -> tuple[str, ...]:
    alias = at.args.get("alias")
    return tuple(column.name for column in alias.args.get("columns") or []) if alias is not None else ()
