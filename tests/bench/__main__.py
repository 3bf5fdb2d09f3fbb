"""All benchmarks, one after the other: `make bench`. Each is its own module with its own options."""

from __future__ import annotations

import subprocess
import sys

COMMANDS = (
    ["operator_join"],
    ["operator_rank"],
    ["operator_aggregate"],
    ["state_store"],
    ["first_result"],
    ["compare", "--engines", "rowkind", "--only", "throughput"],
)

if __name__ == "__main__":
    for module, *arguments in COMMANDS:
        print(f"\n== {module}", flush=True)
        subprocess.run([sys.executable, "-m", f"tests.bench.{module}", *arguments], check=True)
