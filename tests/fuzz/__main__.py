"""`python -m tests.fuzz SEEDS`: whole jobs against DuckDB, or with `--of cuts` the split law; `make fuzz` runs both.

SEEDS is a number, for the seeds below it, or a range such as 5000-7000. Each finding is shrunk, printed with its seed,
and written to a file in the format of `tests/defects`. A finding of the split law has no `expected`, but the results of
two ways to compute the job. The table at the end counts the cases that agreed, that were refused (by reason) and that
are wrong. The exit code is 1 if any case is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path

from rowkind.service.plan.pipeline import plan
from tests.bench.compare import page
from tests.fuzz import cuts, records, scalars, texts
from tests.fuzz.case import SINK, Case, random_case
from tests.fuzz.cut_jobs import random_cut_case
from tests.fuzz.cuts_on_spark import look_on_spark
from tests.fuzz.on_spark import spark_engine
from tests.fuzz.running import Engine, Outcome, in_memory, run, shown
from tests.fuzz.shrinking import shrink

_CHUNK = 20
_REPORT = 200
_FINDINGS = ("wrong", "failed")
_PAGE = Path("docs/explanation/tested-faults.md")


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Random jobs against an oracle.")
    parser.add_argument("seeds", type=_seeds, help="how many, or a range such as 5000-7000")
    parser.add_argument(
        "--of", choices=("jobs", "cuts", "scalars", "inputs"), default="jobs", help="what is made at random"
    )
    parser.add_argument("--engine", choices=("memory", "spark"), default="memory", help="spark takes seconds a case")
    parser.add_argument("--processes", type=int, default=1, help="of the memory engine")
    parser.add_argument("--findings", type=Path, default=Path(".rowkind/fuzz"), help="where files of findings go")
    parser.add_argument("--write", action="store_true", help=f"put what became of the inputs into {_PAGE}")
    chosen = parser.parse_args()
    match chosen.of:
        case "scalars":
            return 0 if scalars.look(chosen.seeds) else 1
        case "inputs":
            return _inputs(chosen.seeds, write=chosen.write)
    started = time.monotonic()
    counts: Counter[tuple[str, str]] = Counter()
    try:
        for seed, outcome, smaller in _looked_at(chosen.seeds, chosen):
            counts[outcome.verdict, outcome.reason] += 1
            if smaller is not None:
                chosen.findings.mkdir(parents=True, exist_ok=True)
                file = chosen.findings / f"seed-{seed}.json"
                file.write_text(smaller)
                print(f"seed {seed}: {outcome.verdict}, {outcome.reason}: {file}\n{smaller}", flush=True)
            if counts.total() % _REPORT == 0:
                wrong = sum(count for (verdict, _), count in counts.items() if verdict in _FINDINGS)
                print(f"{counts.total()} cases up to seed {seed}, {wrong} wrong", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    print(_table(counts, time.monotonic() - started))
    return 1 if any(verdict in _FINDINGS for verdict, _ in counts) else 0


def _inputs(seeds: range, *, write: bool) -> int:
    """Try hundreds of bad records and a few bad texts per seed; return the exit code."""
    found = records.look(seeds) | texts.look(seeds)
    names = ("rows", "refused", "crashes", "hangs")
    lines = [(surface, *(f"{counts[name]:,}" for name in names)) for surface, counts in found.items()]
    sums = [sum(counts[name] for counts in found.values()) for name in names]
    lines.append(("all", *(f"{each:,}" for each in sums)))
    note = f"{sum(sums):,} inputs of seeds {seeds.start} to {seeds.stop - 1}. {page.machine()}."
    table = page.Table("Bad inputs", ("input", "accepted", "refused", "crashes", "hangs"), lines, note)
    print(table.text())
    if write:
        page.write("inputs", [table], _PAGE)
    return 1 if sums[2] or sums[3] else 0


def _seeds(text: str) -> range:
    first, _, last = text.rpartition("-")
    return range(int(first or 0), int(last))


def _looked_at(seeds: range, chosen: argparse.Namespace) -> Iterator[_Looked]:
    """Yield each seed with its outcome and, for a finding, the text of the shrunk case's file."""
    if chosen.engine == "spark":
        with spark_engine() as engine:
            for seed in seeds:
                if chosen.of == "cuts":
                    yield _look_at_cuts_on_spark(seed, engine)
                elif not random_case(seed).clock:
                    yield _look(seed, engine)
        return
    look = _look_at_cuts if chosen.of == "cuts" else _look_in_memory
    chunks = [range(at, min(at + _CHUNK, seeds.stop)) for at in range(seeds.start, seeds.stop, _CHUNK)]
    with ExitStack() as stack:
        mapped: Callable[..., Iterable[list[_Looked]]] = map
        if chosen.processes > 1:
            mapped = stack.enter_context(ProcessPoolExecutor(chosen.processes)).map
        yield from chain.from_iterable(mapped(partial(_look_at_all, look), chunks))


_Looked = tuple[int, Outcome, str | None]


def _look_at_all(look: Callable[[int], _Looked], seeds: range) -> list[_Looked]:
    return [look(seed) for seed in seeds]


def _look_in_memory(seed: int) -> _Looked:
    return _look(seed, in_memory)


def _look_at_cuts(seed: int) -> _Looked:
    case, outcome = cuts.look(random_cut_case(seed))
    if not outcome.is_finding:
        return seed, outcome, None
    case = shrink(case, outcome, partial(cuts.run, only=outcome.reason))
    return seed, outcome, json.dumps(cuts.document(case), indent=1, ensure_ascii=False) + "\n"


def _look_at_cuts_on_spark(seed: int, engine: Engine) -> _Looked:
    case, outcome = look_on_spark(random_cut_case(seed), engine)
    if not outcome.is_finding:
        return seed, outcome, None
    got = {"reason": outcome.reason, "settings": outcome.settings}
    return seed, outcome, json.dumps(case.document(got=got), indent=1, ensure_ascii=False) + "\n"


def _look(seed: int, engine: Engine) -> _Looked:
    case = random_case(seed)
    outcome = run(case, engine)
    if not outcome.is_finding:
        return seed, outcome, None
    smaller = shrink(case, outcome, partial(run, engine=engine))
    return seed, outcome, json.dumps(_document(smaller, run(smaller, engine)), indent=1, ensure_ascii=False) + "\n"


def _document(case: Case, outcome: Outcome) -> dict[str, object]:
    """Return the file of a finding: the case, the expected result and the found one."""
    if outcome.verdict == "failed":
        return case.document(got=outcome.reason)
    sink = plan(case.job, SINK)
    return case.document(expected=shown(outcome.expected, sink), got=shown(outcome.found, sink))


def _table(counts: Counter[tuple[str, str]], seconds: float) -> str:
    """Return a table of cases by verdict, with the reasons of those that do not agree."""
    total = counts.total()
    lines = [f"{total} cases in {seconds:.0f} s, {total / max(seconds, 0.001):.1f} a second"]
    for verdict in ("agreed", "refused", "not compared", "wrong", "failed"):
        own = {reason: count for (other, reason), count in counts.items() if other == verdict}
        lines.append(f"{sum(own.values()):8} {verdict}")
        lines += [f"{count:14} {reason}" for reason, count in sorted(own.items(), key=lambda each: -each[1]) if reason]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
