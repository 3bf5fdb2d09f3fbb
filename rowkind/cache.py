"""Folders for files that Rowkind can create or download again: the embedded broker's jars, the Java class archive."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache() -> Path:
    """Return this user's cache folder, `$XDG_CACHE_HOME/rowkind` or `~/.cache/rowkind`. It may not exist."""
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home or Path.home() / ".cache") / "rowkind"


def installed() -> Path:
    """Return the folder in which a container image has these files preinstalled. Elsewhere it does not exist."""
    return Path(sys.prefix, "share", "rowkind")
