"""Where Rowkind keeps what it can make or fetch again: jars of the embedded broker, the archive of Java classes."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache() -> Path:
    """This user's folder: `$XDG_CACHE_HOME/rowkind`, or `~/.cache/rowkind`. It need not be there."""
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home or Path.home() / ".cache") / "rowkind"


def installed() -> Path:
    """The folder in which an image has the same from the start. Elsewhere it is not there."""
    return Path(sys.prefix, "share", "rowkind")
