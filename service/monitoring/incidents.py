"""The recent incidents of a job, each with its remedy."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field, replace

from rowkind.errors import RowkindError
from rowkind.service.monitoring.status import Incident
from rowkind.service.query.errors import QueryFailedError

_MOST = 20

_SENTENCE = re.compile(r"(?<=[.:]) +(?=[A-Z`])")


@dataclass
class Incidents:
    """The last 20 incidents. A repeated incident is counted but not listed again."""

    _found: list[Incident] = field(default_factory=list)

    def add(self, found: Incident) -> None:
        """Add an incident."""
        same = next((each for each in self._found if (each.query, each.what) == (found.query, found.what)), None)
        if same is not None:
            self._found.remove(same)
            found = replace(found, times=same.times + found.times)
        self._found = [*self._found, found][-_MOST:]

    def latest(self) -> tuple[Incident, ...]:
        """Return the incidents, newest first."""
        return tuple(reversed(self._found))


def incident(now: float, query: str, error: RowkindError) -> Incident:
    """Return the incident for the error that ended a query; `now` is Unix time in seconds."""
    return Incident(now, query, wrong(error), remedy(error))


def wrong(error: RowkindError) -> str:
    """Return the first line of an error's message. For a failed query, the prefix that names the query is left out."""
    return (error.reason if isinstance(error, QueryFailedError) else str(error)).partition("\n")[0]


def remedy(error: RowkindError) -> str:
    """Return what to do about an error: the rest of its message after the first line, or else its class's advice.

    The docstring of an error class says in its first sentence what is wrong. Its other sentences are the advice for
    the operator on call.
    """
    if isinstance(error, QueryFailedError):
        said = error.reason.partition("\n")[2] or ("" if error.error is None else _advice(error.error))
        return " ".join(filter(None, (said, str(error).rpartition("\n")[2])))
    return str(error).partition("\n")[2] or _advice(type(error))


def _advice(kind: type[RowkindError]) -> str:
    text = " ".join((inspect.getdoc(kind) or "").split())
    _, *advice = _SENTENCE.split(text)
    return " ".join(advice)
