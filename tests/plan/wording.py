"""The wording of plans and refusals, in two files, so that a change of wording affects no other file.

`wording/plans.txt`: some cases as `rowkind explain` prints them, which together contain every kind of text
`wording/refusals.txt`: the message of every refused case, without the place, which the case itself has
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

from rowkind.service.job.errors import JobError
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.explain.render import explain
from tests.plan.cases import Case, cases, planned, refusal

FOLDER = Path(__file__).parent / "wording"
PLANS = (
    "asof_join",
    "chain_join_of_ranks",
    "chain_one_key",
    "exists_asked_for",
    "expire_append",
    "expire_left_join",
    "filter_without_key",
    "fixed_by_deduplicated",
    "fixed_not_by_pads",
    "global_with_having",
    "in_columns",
    "in_having",
    "in_selected",
    "intersect",
    "interval_join_left",
    "interval_join_one_bound",
    "interval_join_without_watermark",
    "limit_of_union",
    "lookup_of_many_by_updates",
    "lookup_of_updates",
    "mark_below_join",
    "match_skip_may_fail",
    "not_in",
    "not_in_below_join",
    "now_between",
    "on_not_null_in",
    "only_counted",
    "order_filter_first",
    "order_looked_up_first",
    "order_multiplied_last",
    "order_one_stage",
    "order_without_cross",
    "over_final",
    "over_running",
    "over_two_orders",
    "rank_append",
    "rank_dense_offset",
    "rank_improving",
    "rank_variable",
    "right_chain",
    "scalar_over_group",
    "scalar_counted",
    "semi_below_join",
    "semi_join_condition",
    "sort_by_time",
    "unnest_left",
    "upsert_sink_longer_key",
    "upsert_table_to_retract",
    "versions_final",
    "window_cumulate",
    "window_hop_panes",
    "window_hop_rows",
    "window_join",
    "window_join_left_final",
    "window_session_final",
    "window_session_top",
    "window_top_n_of_groups",
    "window_tumble_final",
)


def plans() -> str:
    """Return the text form of the plans of some cases."""
    named = {case.path.stem: case for case in cases()}
    texts = {name: explain([planned(named[name])[1]]) for name in PLANS}
    return "\n".join(f"{name}\n{'=' * len(name)}\n{text}\n" for name, text in texts.items())


def refusals() -> str:
    """Return the messages of all refused cases."""
    worded = {case.path.stem: refused_for(case) for case in cases() if case.is_refused}
    return "".join(f"{name}\n{textwrap.indent(text, '    ')}\n" for name, text in worded.items())


FILES: Mapping[str, Callable[[], str]] = {"plans.txt": plans, "refusals.txt": refusals}


def refused_for(case: Case) -> str:
    """Return the reason why a case is refused, in words."""
    try:
        planned(case)
    except (PlanError, JobError) as error:
        return "\n".join(wording for _, wording in refusal(error))
    raise AssertionError(f"{case.path.stem} is planned, but its file says that it is refused")
