"""A registry that does not answer the tasks of a query: said in a file, for the driver on the same machine.

The tasks' error says it too, but only once Spark has given up on the batch. On other machines that has to do.
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
    """A registry at an address has not answered for so many seconds, and why."""

    address: str
    seconds: float
    why: str


def writing(file: str) -> Unanswered:
    """Whoever is told of a registry writes it to the file, and removes it when the registry answers."""
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
    """What a task of the batch that is under way has said last, and how long it is now."""
    try:
        said = RegistryOutage(**json.loads(file.read_text("utf-8")))
        return replace(said, seconds=said.seconds + max(0.0, time.time() - file.stat().st_mtime))
    except OSError:
        return None
