"""The image has the same files if it is built twice from nothing (ROWKIND_REPRODUCIBLE=1; takes ten minutes)."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tarfile

import pytest

from tests.e2e.containers import BASE_IMAGE, ROOT, require_daemon

pytestmark = [
    pytest.mark.containers,
    pytest.mark.skipif(os.environ.get("ROWKIND_REPRODUCIBLE") != "1", reason="ROWKIND_REPRODUCIBLE=1 runs it"),
]

_BUILD = ("--quiet", "--no-cache", "--file", "deploy/Dockerfile", "--build-arg", f"BASE={BASE_IMAGE}")

# Java's class archives differ because several threads write to them. They are made of the files below.
_ARCHIVE = re.compile(r"opt/java/lib/server/classes\.jsa|opt/rowkind/share/rowkind/classes-\w+\.jsa\.zst")
_TIMED = re.compile(r"opt/java/bin/java|opt/java/lib/modules|.*/pyspark/jars/.*\.jar")
_TIME = 315532800
"""1980, in seconds of Unix time."""


def test_whoever_builds_the_image_again_has_the_same_files() -> None:
    """Names, permissions and contents agree; times of Java and the jars are fixed, as their archives depend on them."""
    require_daemon()
    first, second = (_files() for _ in range(2))
    assert first.keys() == second.keys()
    assert [name for name, what in first.items() if what != second[name] and not _ARCHIVE.fullmatch(name)] == []


def _files() -> dict[str, tuple[int, int, str]]:
    """Return mode, owner and digest of each file of an image that is built without cached layers."""
    container = _docker("create", _docker("build", *_BUILD, "."))
    found = {}
    with (
        subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as exported,
        tarfile.open(fileobj=exported.stdout, mode="r|") as files,
    ):
        for file in files:
            content = files.extractfile(file) if file.isreg() else None
            digest = hashlib.file_digest(content, "sha256").hexdigest() if content else file.linkname
            found[file.name] = (file.mode, file.uid, digest)
            assert file.mtime == _TIME or not _TIMED.fullmatch(file.name), file.name
    _docker("rm", container)
    return found


def _docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]
