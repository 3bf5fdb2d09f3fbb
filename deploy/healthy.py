"""Check whether the service of this container is healthy, for the image's health check: `python healthy.py [CMDLINE]`.

The port is read from the command line of the container's first process, in the file CMDLINE. The certificate is not
verified, because it belongs to the service itself.
"""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

_USUAL = "8080"
_SECONDS = 4


def main(cmdline: str = "/proc/1/cmdline") -> int:
    """Return the exit code: 0 if the service is healthy, 1 if not."""
    words = Path(cmdline).read_text("utf-8").replace("--port=", "--port\0").split("\0")
    port = words[words.index("--port") + 1] if "--port" in words else _USUAL
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for scheme in ("http", "https"):
        try:
            url = f"{scheme}://127.0.0.1:{port}/healthz"
            with urllib.request.urlopen(url, timeout=_SECONDS, context=context):  # noqa: S310 -- one of these schemes
                return 0
        except urllib.error.HTTPError as error:
            error.close()
            return 1
        except OSError:
            # A server with TLS closes the connection when it receives HTTP.
            continue
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
