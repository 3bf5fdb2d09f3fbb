"""Report that a registry does not answer a query's tasks, through a file that the driver on the same machine reads.

The tasks' error reports the outage too, but only when Spark has given up on the batch. For tasks on other machines, the
error is the only report.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rowkind.avro.registry import Unanswered


@dataclass(frozen=True)
class RegistryOutage:
    """An outage of the registry at `address`. `seconds`: how long it has not answered; `why`: the reason."""

    address: str
    seconds: float
    why: str


def writing(file: str) -> Unanswered:
    """Return a listener that writes an outage to the file, and removes the file when the registry answers again."""
    path = Path(file)

    def told(address: str, seconds: float | None, why: str) -> None:
        with suppress(OSError):
            if seconds is None:
                path.unlink(missing_ok=True)
            elif path.parent.is_dir():
                draft = path.with_name(f"{path.name}.{os.getpid()}")
                draft.write_text(json.dumps(asdict(RegistryOutage(address, seconds, why))), "utf-8")
                draft.replace(path)

    return told


def registry_outage(file: Path) -> RegistryOutage | None:
    """Return the outage that the current batch's tasks last reported, with its duration up to now, or None."""
    try:
        said = RegistryOutage(**json.loads(file.read_text("utf-8")))
        return replace(said, seconds=said.seconds + max(0.0, time.time() - file.stat().st_mtime))
    except OSError:
        return None
