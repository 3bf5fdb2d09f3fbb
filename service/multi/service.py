"""Run a multi-job service: supervise the jobs until a signal, then drain all of them and end."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from rowkind.service.machine.signals import SERVICE_SECONDS, Signals
from rowkind.service.multi.multi_job import Several
from rowkind.service.multi.pages import SeveralPages
from rowkind.service.query.errors import JobsError
from rowkind.service.web.http import serving

_POLL_SECONDS = 0.5
_LAST_POLL_SECONDS = 0.1

log = logging.getLogger("rowkind")


def run_together(path: Path, *, upgrades: bool, options: Sequence[str], host: str, port: int) -> None:
    """Run the jobs of a folder, or the job of a file, until a signal ends them.

    `upgrades`: whether a job is upgraded when its file changes. `options`: additional options of each `rowkind run`.

    Raises:
        JobsError: There is no job that can be run.
        StartError: The port is not available.
    """
    with Signals(drains=True) as signals:
        signals.end_within(SERVICE_SECONDS)
        several = Several(path, upgrades, options)
        several.look()
        if not several.members:
            raise JobsError("\n".join(several.refused.values()) or f"there is no job file, *.yaml or *.yml, in {path}")
        try:
            with serving(SeveralPages(several), several.all()[0].job, host, port) as server:
                log.info("status, metrics and health at %s://%s:%d", server.scheme, host, server.port)
                while not signals.count:
                    time.sleep(_POLL_SECONDS)
                    several.look()
                log.info("finishing the batch of every job")
                several.end()
                asked = signals.count
                while several.runs:
                    if signals.count > asked:
                        asked = signals.count
                        several.end()
                    time.sleep(_LAST_POLL_SECONDS)
                    several.look_after()
        finally:
            several.end()
    log.info("stopped")
