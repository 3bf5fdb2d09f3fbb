"""A plan for people and for programs (`rowkind explain`).

It says for every step what comes out of it, which kinds of changes, under which keys, and where there is state: how it
is laid out, for how long it is kept, and why. One description is made of the plan, and each format is written from it.
"""

from __future__ import annotations

from service.plan.explain_facts import describe
from service.plan.explain_text import text
from service.plan.physical import Sink


def explain(sink: Sink) -> str:
    """The plan as a tree, with advice below it."""
    return text(describe(sink))
