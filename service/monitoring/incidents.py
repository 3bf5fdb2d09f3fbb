"""What went wrong in a job of late, with what to do about it."""

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
    """The last ones; one that happens again is the same, so many times."""

    _found: list[Incident] = field(default_factory=list)

    def add(self, found: Incident) -> None:
        """Something has gone wrong."""
        same = next((each for each in self._found if (each.query, each.what) == (found.query, found.what)), None)
        if same is not None:
            self._found.remove(same)
            found = replace(found, times=same.times + found.times)
        self._found = [*self._found, found][-_MOST:]

    def latest(self) -> tuple[Incident, ...]:
        """The newest first."""
        return tuple(reversed(self._found))


def incident(now: float, query: str, error: RowkindError) -> Incident:
    """What has ended a query, now in Unix time."""
    return Incident(now, query, wrong(error), remedy(error))


def wrong(error: RowkindError) -> str:
    """What is wrong, in the first line of its message; of a query that failed without saying that it did."""
    return (error.reason if isinstance(error, QueryFailedError) else str(error)).partition("\n")[0]


def remedy(error: RowkindError) -> str:
    """What to do about an error: what its message says below the first line, or else its class.

    The docstring of an error says in its first sentence what is wrong, and then what the person on call should do.
    """
    if isinstance(error, QueryFailedError):
        said = error.reason.partition("\n")[2] or ("" if error.error is None else _advice(error.error))
        return " ".join(filter(None, (said, str(error).rpartition("\n")[2])))
    return str(error).partition("\n")[2] or _advice(type(error))


def _advice(kind: type[RowkindError]) -> str:
    text = " ".join((inspect.getdoc(kind) or "").split())
    _, *advice = _SENTENCE.split(text)
    return " ".join(advice)
