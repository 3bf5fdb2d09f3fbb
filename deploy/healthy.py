"""Whether the service of this container is healthy, as the image's health check asks: `python healthy.py [CMDLINE]`.

The port is what the container's first process was told, whose words are in the file CMDLINE. A certificate is not
looked at, for it is that of the service itself.
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
    """The exit code: 0 where it is."""
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
            # Whoever speaks TLS hangs up on HTTP.
            continue
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
