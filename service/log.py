"""What the service says to whoever runs it: a line for each thing that happens, on standard error.

The driver and the process in which Spark asks a source for offsets both speak; workers do not, what they have to say
comes back as errors and counters.
"""

from __future__ import annotations

import logging
import sys


def to_standard_error() -> None:
    """Show our lines from INFO on, and the libraries' from WARNING on, unless this process logs already."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("rowkind").setLevel(logging.INFO)
