"""Builds a query's initial logical plan, and resolves every name in the query."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.query import SkewHint, TtlHint
from rowkind.service.plan.sql.context import Catalog, Context, Names, Selected
from rowkind.service.plan.sql.empty_groups import in_each_group
from rowkind.service.plan.sql.hints import by_path, read_hints
from rowkind.service.plan.sql.one_select import OneSelect
from rowkind.service.plan.sql.parse import query
from rowkind.service.plan.sql.relations import with_queries
from rowkind.service.plan.sql.scope import Unreachable
from rowkind.service.plan.sql.select_without_from import over_a_table
from rowkind.service.plan.sql.session_ends import with_ends
from rowkind.service.plan.sql.time_order import in_time_order, time_order
from rowkind.service.plan.sql.top_rows import top_of_result
from rowkind.service.plan.sql.unions import set_operation

__all__ = ["Builder", "Catalog"]

_DEEPEST = 20


@dataclass
class Builder:
    """Builds the plan of one query, and collects the query's hints."""

    catalog: Catalog
    _times: dict[str, TtlHint] = field(default_factory=dict)
    _skews: dict[str, SkewHint] = field(default_factory=dict)
    _paths: set[str] = field(default_factory=set)
    _invented: set[str] = field(default_factory=set)

    def query(self, tree: exp.Expr) -> LogicalProject:
        """Return the plan of a whole query. Raises Refusal."""
        tree, order = time_order(tree)
        built = self.select(tree, Context())
        root = with_ends(LogicalProject(built.input, built.outputs))
        assert isinstance(root, LogicalProject), "the root is still a projection"
        root = over_a_table(root, self)
        return root if order is None else in_time_order(root, order)

    @property
    def ttl_hints(self) -> dict[str, TtlHint]:
        """The STATE_TTL hints, keyed by the paths of the relations to which they apply."""
        return by_path(self._times, self._paths, self._invented)

    @property
    def skew_hints(self) -> dict[str, SkewHint]:
        """The SKEW hints, keyed by the paths of the relations to which they apply."""
        return by_path(self._skews, self._paths, self._invented)

    def select(self, tree: exp.Expr, context: Context) -> Selected:
        """Return the rows and columns of a query. Raises Refusal."""
        if context.path.count(".") > _DEEPEST:
            raise Refusal("views and derived tables are nested too deeply: check whether a view reads itself", tree)
        tree = query(tree)
        context = replace(context, with_=with_queries(tree, context))
        while True:
            known = set(self._paths), set(self._invented)
            try:
                return self._selected(tree, context)
            except Unreachable as refusal:
                self._paths, self._invented = known
                context = _with_domain(context, refusal)

    def _selected(self, tree: exp.Expr, context: Context) -> Selected:
        if isinstance(tree, exp.Select):
            hints = read_hints(tree)
            self._times |= {f"{context.path}{alias}".lower(): hint for alias, hint in hints.times.items()}
            self._skews |= {f"{context.path}{alias}".lower(): hint for alias, hint in hints.skews.items()}
            return OneSelect(tree, context, hints, self).built()
        if isinstance(tree, exp.SetOperation):
            return top_of_result(set_operation(tree, context, self), tree, Names(context.path))
        inner = in_each_group(self.select(tree.this, context), context, self, tree)
        return top_of_result(inner, tree, Names(context.path))

    def invent(self, path: str, stem: str) -> str:
        """Return an unused path, such as `exists_1.`, for a query without an alias."""
        number = 1
        while f"{path}{stem}_{number}".lower() in self._paths:
            number += 1
        invented = f"{path}{stem}_{number}"
        self.note(invented)
        self._invented.add(f"{invented}.".lower())
        return f"{invented}."

    def note(self, path: str) -> None:
        """Record the path of a relation, so that hints can name it."""
        self._paths.add(path.lower())


def _with_domain(context: Context, refusal: Unreachable) -> Context:
    """Return a subquery's context with its domain extended by the outer columns in `refusal`.

    Planned again in this context, the subquery joins its rows with the values of these columns. If the domain cannot be
    extended, raises `refusal`.
    """
    around = {} if context.around is None else columns(context.around)
    domain = tuple(name for name in around if name in {*context.domain, *refusal.columns})
    if domain == context.domain:
        raise refusal
    return replace(context, domain=domain)
