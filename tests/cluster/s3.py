"""An in-memory server with S3's API and credentials: S3Proxy from Maven Central."""

from __future__ import annotations

import hashlib
import hmac
import os
import subprocess
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from rowkind.service.machine.jars import fetched, java
from rowkind.service.machine.ports import free_port
from tests.run.process import until

_VERSION = "2.7.0"
_KEY, _SECRET, _REGION = "rowkind", "a secret", "us-east-1"
_SETTINGS = """
s3proxy.endpoint=http://{address}
s3proxy.authorization=aws-v4
s3proxy.identity={key}
s3proxy.credential={secret}
jclouds.provider=transient
jclouds.identity=none
jclouds.credential=none
"""
_QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_QUIET = '<configuration><root level="WARN"/></configuration>'


class S3:
    """The server, as a context manager, with one bucket.

    With another `host`, other machines or containers can reach it.
    """

    bucket = "checkpoints"

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self._folder = folder
        self._address = f"{host}:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that Amazon's tools read."""
        return {
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": _REGION,
            "AWS_ENDPOINT_URL_S3": f"http://{self._address}",
        }

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        settings, quiet = self._folder / "s3proxy.conf", self._folder / "logback.xml"
        settings.write_text(_SETTINGS.format(address=self._address, key=_KEY, secret=_SECRET))
        quiet.write_text(_QUIET)
        jars = fetched(f"S3Proxy {_VERSION}", [("org.gaul", "s3proxy", _VERSION)])
        options = [*_QUICK, f"-Dlogback.configurationFile={quiet}", "-Xmx512m"]
        command = [java(), *options, "-cp", f"{jars}{os.sep}*"]
        self._process = subprocess.Popen([*command, "org.gaul.s3proxy.Main", "--properties", str(settings)])
        until(self._made, "a bucket")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None, "it was started"
        self._process.kill()
        self._process.wait()

    def _made(self) -> bool:
        """Create the bucket with a request signed by Amazon's signature version 4, and return whether that worked."""
        at, nothing = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}", hashlib.sha256(b"").hexdigest()
        headers = {"host": self._address, "x-amz-content-sha256": nothing, "x-amz-date": at}
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        request = f"PUT\n/{self.bucket}\n\n{lines}\n{names}\n{nothing}"
        scope = [at[:8], _REGION, "s3", "aws4_request"]
        key = f"AWS4{_SECRET}".encode()
        for part in scope:
            key = hmac.digest(key, part.encode(), "sha256")
        text = "\n".join(["AWS4-HMAC-SHA256", at, "/".join(scope), hashlib.sha256(request.encode()).hexdigest()])
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={_KEY}/{'/'.join(scope)}, SignedHeaders={names}, "
            f"Signature={hmac.digest(key, text.encode(), 'sha256').hex()}"
        )
        asked = urllib.request.Request(f"http://{self._address}/{self.bucket}", headers=headers, method="PUT")
        with suppress(OSError), urllib.request.urlopen(asked) as answer:
            return bool(answer.status == 200)
        return False
