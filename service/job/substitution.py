"""Replacement of `${NAME}`, `${NAME:-default}`, `${file:/path}` and `{file: /path}` when a job file is loaded.

In the sections for Kafka, the registry and the status port, the replaced values are `Secret`, so that printing a job
does not print them. `$${` is an escaped `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

HIDDEN = "***"

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_PUBLIC = re.compile(
    r"(bootstrap\.servers|url|security\.protocol|sasl\.mechanisms?|client\.id|folder|.*\.(location|ms|bytes|max|min))"
)


class Secret(str):
    """Text whose `repr` is `***`; as a string it is the text itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(HIDDEN)


class Settings(dict[str, str]):
    """Settings by name. Their printed form hides passwords, and values from the environment or from files."""

    def __repr__(self) -> str:
        return repr(self.shown())

    __str__ = __repr__

    def shown(self) -> dict[str, str]:
        """Return the settings with secrets hidden."""
        return {
            name: HIDDEN if isinstance(value, Secret) or is_sensitive(name) else str(value)
            for name, value in self.items()
        }


def is_sensitive(name: str) -> bool:
    """Return whether a setting of this name is usually a secret."""
    return bool(re.search(r"password|secret|token|user\.info|jaas|key\.pem|credential", name))


class SubstitutionError(ValueError):
    """A reference that cannot be replaced."""


def substitute(text: str, environment: Mapping[str, str], folder: Path) -> str:
    """Return the text with its references replaced; file paths are relative to `folder`. Raises SubstitutionError."""

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        if match[2].startswith("file:"):
            return read_secret(match[2].removeprefix("file:"), folder)
        name = _NAME.fullmatch(match[2])
        if name is None:
            raise SubstitutionError(
                f"{match[0]!r} is not valid: expected ${{NAME}}, ${{NAME:-default}} or ${{file:/path}}"
            )
        # As in a shell, `:-` also replaces an empty variable.
        value = environment.get(name[1])
        if name[2] is not None:
            return value or name[2]
        if value is None:
            raise SubstitutionError(
                f"the environment variable {name[1]} is not set: set it, or give a default as ${{{name[1]}:-…}}"
            )
        return value

    return _REFERENCE.sub(replace, text)


def read_secret(path: str, folder: Path) -> str:
    """Return the content of a file without trailing line breaks. Raises SubstitutionError if it cannot be read."""
    try:
        return (folder / path.strip()).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SubstitutionError(f"the secret file {path.strip()} cannot be read: {reason}") from None


def references(text: str) -> bool:
    """Return whether the text has references."""
    return _REFERENCE.search(text) is not None


def protect(name: str, value: str) -> str:
    """Return the value of the setting `name`, as a Secret unless the setting is known to be harmless."""
    return value if _PUBLIC.fullmatch(name) and not is_sensitive(name) else Secret(value)
