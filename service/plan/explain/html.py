"""Renders descriptions as one self-contained HTML page: the tree of each sink, its SQL, and advice.

Other pages embed the tree by calling `tree`, and add their own content to each step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from string import Template
from urllib.parse import quote

from rowkind.quantities import counted
from rowkind.service.plan.explain.description import Description, Fact, QueryDescription, Step, StepState
from rowkind.service.plan.explain.display_names import display_text
from rowkind.service.plan.explain.records import TIED
from rowkind.service.plan.explain.values import Advice

_WORDS = {
    "scan": "table",
    "over": "window functions",
    "match": "pattern",
    "asof_join": "as-of join",
    "stamp": "processing time",
}
"""Display names for those step kinds that are not displayed under the kind itself."""
_MODES = {"append": "+I", "retract": "+I -U +U -D", "upsert": "+I +U -D"}
_SQL = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<string>'(?:[^'\\]|\\.|'')*')|(?P<number>\b\d[\d.]*\b)"
    r"|(?P<word>\b(?:SELECT|DISTINCT|FROM|WHERE|GROUP|BY|HAVING|ORDER|PARTITION|OVER|ROW_NUMBER|DENSE_RANK|RANK|JOIN"
    r"|INNER|LEFT|RIGHT|FULL|OUTER|CROSS|SEMI|ANTI|ON|USING|AND|OR|NOT|IN|EXISTS|IS|NULL|AS|UNION|ALL|WITH|CASE|WHEN"
    r"|THEN|ELSE|END|CAST|BETWEEN|LIKE|RLIKE|TRUE|FALSE|ASC|DESC|NULLS|FIRST|LAST|FILTER|QUALIFY|COUNT|SUM|MIN|MAX"
    r"|AVG|COALESCE)\b)",
    re.IGNORECASE | re.DOTALL,
)


ICON = "data:image/svg+xml," + quote(
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><rect width='16' height='16' rx='3' fill='#2459c4'/>"
    "<path d='M2 6h5M4.5 3.5v5M9 10.5h5' stroke='#fff' stroke-width='2'/></svg>"
)
"""The icon, which is embedded in every page: a plus for inserted rows and a minus for retracted rows."""

Beside = Callable[[Step], str]
"""A function that returns additional HTML for a step."""


def style() -> str:
    """Return the style sheet for everything that this module renders."""
    return (resources.files("rowkind.service.plan.explain") / "plan.css").read_text()


def page(job: str, views: Mapping[str, str], queries: Sequence[QueryDescription], *, runs: bool = False) -> str:
    """Return the plans of the given queries as an HTML page. If `runs` is set, the page links to the status page."""
    descriptions = [each for query in queries for each in query.sinks]
    template = Template((resources.files("rowkind.service.plan.explain") / "page.html").read_text())
    names = [each.root.name for each in descriptions]
    links = "".join(f'<a href="#{anchor(name)}">{escape(name)}</a>' for name in names) if len(names) > 1 else ""
    plans = "\n".join(
        part for query in queries for part in (_query(query, len(descriptions)), *map(_plan, query.sinks))
    )
    back = '<a href="./">Status</a>' if runs else ""
    return template.substitute(
        job=escape(job), links=back + links, plans=plans, views=_views(views), icon=ICON, style=style()
    )


def anchor(*names: str) -> str:
    """Return the HTML anchor of a sink, or of a step of its plan."""
    return escape(".".join(re.sub(r"[^\w.-]", "_", name) for name in names))


def _query(query: QueryDescription, sinks: int) -> str:
    if sinks == 1:
        return ""
    return f'<p class="query"><b>query {escape(query.name)}</b>: {escape(query.title)}</p>'


def _plan(description: Description) -> str:
    root = description.root
    kept = sum(bool(step.state) for step in root.walk())
    stages = len({step.stage for step in root.walk()} - {None})
    counts = f"{counted(kept, 'step')} with state in {counted(stages, 'stage')}" if kept else "no state"
    return f"""<section id="{anchor(root.name)}">
<h2>{escape(root.name)} <small>{escape(root.title)} · {counts}</small></h2>
{coloured(description.sql)}
{advised(description)}
{tree(description)}
</section>"""


def tree(description: Description, beside: Beside | None = None) -> str:
    """Return a sink's steps as an HTML tree, down to the tables.

    If the function `beside` is given, its HTML is added to each step, and plan details are collapsed.
    """
    about: dict[str, int] = {}
    for each in description.advice:
        about[each.about] = about.get(each.about, 0) + 1
    drawn = _step(description.root, description.root.name, about, beside)
    return f'<div class="scroll"><ul class="tree">{drawn}</ul></div>'


def advised(description: Description) -> str:
    """Return the advice about a sink's plan as HTML, which is empty if there is none."""
    root = description.root.name
    items = "".join(f"<li>{_linked(root, each)}</li>" for each in description.advice)
    return f'<div class="advice"><h3>Advice</h3><ul>{items}</ul></div>' if items else ""


def _linked(root: str, advice: Advice) -> str:
    """Return the advice as HTML, with the step it concerns as a link."""
    about = escape(advice.about)
    link = f'<a href="#{anchor(root, advice.about)}">{about}</a>'
    text = _code(advice.text)
    # A sink may have any name, including a word that occurs in the text.
    words = re.compile(rf"\b{re.escape(about)}\b")
    if advice.about == root or not words.search(text):
        return f"{link}: {text}"
    return words.sub(link, text, count=1)


def _code(text: str) -> str:
    """Return the text as HTML, with text in backticks marked as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _step(step: Step, root: str, about: Mapping[str, int], beside: Beside | None) -> str:
    inputs = "".join(_step(each, root, about, beside) for each in step.inputs)
    noted = f'<span class="note">{counted(about[step.name], "note")}</span>' if step.name in about else ""
    stage = f'<span class="stage">stage {step.stage}</span>' if step.stage else ""
    mode = f'<span class="mode" title="{step.way.mode}">{_MODES[step.way.mode]}</span>' if step.way else ""
    kind = _WORDS.get(step.kind, step.kind.replace("_", " "))
    # A step that has already been drawn under this name has no anchor, but links to its first occurrence.
    place = f' id="{anchor(root, step.name)}"' if step.same_as != (root, step.name) else ""
    planned = f"{_states(step)}<dl>{''.join(map(_fact, _shown(step)))}</dl>"
    if beside is not None:
        folded = f'<details id="plan.{anchor(root, step.name)}"><summary>Details</summary>{planned}</details>'
        planned = f"{beside(step)}{folded}"
    return f"""<li>{_way(step)}<article class="{step.kind}"{place}>
<header><b>{escape(step.name)}</b><span class="kind">{kind}</span>{stage}{mode}{noted}</header>
<p>{escape(step.title)}{_same(step)}</p>
{planned}
</article>{f"<ul>{inputs}</ul>" if inputs else ""}</li>"""


def _same(step: Step) -> str:
    if step.same_as is None:
        return ""
    return f', the same as <a href="#{anchor(*step.same_as)}">{escape(" of ".join(step.same_as[::-1]))}</a>'


def _shown(step: Step) -> Iterator[Fact]:
    # These facts appear elsewhere: the exchange on the line to the next step, and the stage next to the step's name.
    return (fact for fact in step.facts if fact.label not in ("exchange", "same as", "stage"))


def _fact(fact: Fact) -> str:
    return f"<div><dt>{escape(fact.label)}</dt><dd>{escape(fact.text.replace(TIED, ' '))}</dd></div>"


def _states(step: Step) -> str:
    return f'<div class="states">{"".join(map(_state, step.state))}</div>' if step.state else ""


def _state(state: StepState) -> str:
    because = f" <i>because {escape(state.reason)}</i>" if state.reason else ""
    order = f" · {state.order}" if state.order else ""
    endless = ' class="endless"' if state.endless else ""
    return f"""<div class="state"><h4>keeps {escape(state.of)} <span>{escape(state.name)}</span></h4>
<div>{escape(state.layout)}{because}</div><small{endless}>{escape(state.kept)}{order}</small></div>
"""


def _way(step: Step) -> str:
    """Return the label of the line to the next step.

    A union itself does not move rows. Each input of the union sends its rows to the union's consumer.
    """
    way = step.way
    if way is None:
        return ""
    if step.kind == "union":
        return '<div class="way unmoved">each input separately</div>'
    key = display_text(", ".join(way.by))
    words = {
        "shuffled": (f"shuffled by <code>{escape(key)}</code>" if key else "shuffled into one shard")
        + (f" and {way.salted}" if way.salted else ""),
        "same stage": "in the same stage, without a shuffle",
        "every shard": "to every shard",
        "unmoved": "without a shuffle",
    }[way.how]
    role = f"{way.role}, " if way.role != "input" else ""
    first = f"{way.first_step} in each task, then " if way.first_step else ""
    return f'<div class="way {way.how.replace(" ", "-")}">{role}{first}{words}</div>'


def _views(views: Mapping[str, str]) -> str:
    if not views:
        return ""
    items = "".join(f"<h3>{escape(name)}</h3>{coloured(sql)}" for name, sql in views.items())
    return f'<section class="views"><h2>Views</h2>{items}</section>'


def coloured(sql: str) -> str:
    """Return an SQL text as HTML with syntax highlighting."""
    found, end = "", 0
    for match in _SQL.finditer(sql):
        found += f'{escape(sql[end : match.start()])}<span class="{match.lastgroup}">{escape(match.group())}</span>'
        end = match.end()
    return f"<pre>{found}{escape(sql[end:])}</pre>" if sql else ""
