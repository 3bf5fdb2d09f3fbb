"""The image, built twice from nothing, has the same files: ROWKIND_REPRODUCIBLE=1 asks for it, ten minutes."""

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

# Java's archives of classes: threads write into them. They belong to the files below.
_ARCHIVE = re.compile(r"opt/java/lib/server/classes\.jsa|opt/rowkind/share/rowkind/classes-\w+\.jsa\.zst")
_TIMED = re.compile(r"opt/java/bin/java|opt/java/lib/modules|.*/pyspark/jars/.*\.jar")
_TIME = 315532800
"""1980, in Unix time."""


def test_whoever_builds_the_image_again_has_the_same_files() -> None:
    """Names, rights and contents; and the times of Java and the jars, which a build of another day must not change."""
    require_daemon()
    first, second = (_files() for _ in range(2))
    assert first.keys() == second.keys()
    assert [name for name, what in first.items() if what != second[name] and not _ARCHIVE.fullmatch(name)] == []


def _files() -> dict[str, tuple[int, int, str]]:
    """Mode, owner and digest of each file of an image that is built with no layer of an earlier one."""
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
