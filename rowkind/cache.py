"""Folders for files that Rowkind can create or download again: the embedded broker's jars, the Java class archive."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NO_NEW_ARCHIVE = "ROWKIND_NO_NEW_ARCHIVE"
"""Name of the environment variable that keeps a JVM from writing a class archive.

Writing one takes about 20 s on two cores, in part at the start. A job that runs only once does not benefit from it.
"""


def cache() -> Path:
    """Return this user's cache folder, `$XDG_CACHE_HOME/rowkind` or `~/.cache/rowkind`. It may not exist."""
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home or Path.home() / ".cache") / "rowkind"


def installed() -> Path:
    """Return the folder in which a container image has these files preinstalled. Elsewhere it does not exist."""
    return Path(sys.prefix, "share", "rowkind")
