"""Write an image's bill of materials, as CycloneDX: `cyclonedx-py environment … | python sbom.py JAVA JARS… > FILE`.

cyclonedx-py lists the Python packages. This script adds Java, Spark's jars and Debian's packages. Jars have their names
in Maven's repositories, if they contain them.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Component = dict[str, Any]

_NAMED = re.compile(r"(?P<artifact>.+?)-(?P<version>\d.*)")
_SAID = re.compile(r"META-INF/maven/(?P<group>[^/]+)/(?P<artifact>[^/]+)/pom\.properties")


def jars(folder: Path) -> Iterator[Component]:
    """Yield each jar in the folder, with its digest."""
    for jar in sorted(folder.glob("*.jar")):
        named = _NAMED.fullmatch(jar.stem)
        artifact, version = (named["artifact"], named["version"]) if named else (jar.stem, "")
        group = _group(jar, artifact)
        purl = f"pkg:maven/{group}/{artifact}@{version}" if group else f"pkg:generic/{jar.name}"
        digest = {"alg": "SHA-256", "content": hashlib.sha256(jar.read_bytes()).hexdigest()}
        yield _component(artifact, version, purl) | {"hashes": [digest]} | ({"group": group} if group else {})


def java(home: Path) -> Component:
    """Return the Java runtime, which jlink has made for the image, so it belongs to no package."""
    said = re.search(r'^JAVA_VERSION="(.+)"$', (home / "release").read_text(), re.MULTILINE)
    assert said is not None, "every runtime says its version"
    return _component("openjdk", said[1], f"pkg:generic/openjdk@{said[1]}")


def debian_packages() -> Iterator[Component]:
    """Yield the packages that dpkg lists as installed."""
    command = ["/usr/bin/dpkg-query", "--show", "--showformat=${Package} ${Version} ${Architecture}\n"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 -- our own command line
    for line in listed.stdout.splitlines():
        name, version, architecture = line.split(" ")
        yield _component(name, version, f"pkg:deb/debian/{name}@{version}?arch={architecture}")


def _group(jar: Path, artifact: str) -> str:
    with zipfile.ZipFile(jar) as content:
        said = [found for name in content.namelist() if (found := _SAID.fullmatch(name))]
    # A jar that includes other jars also has their names.
    return next((found["group"] for found in said if found["artifact"] == artifact), "")


def _component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


if __name__ == "__main__":
    bill = json.load(sys.stdin)
    home, *folders = (Path(argument) for argument in sys.argv[1:])
    bill["components"] += [java(home), *(jar for folder in folders for jar in jars(folder)), *debian_packages()]
    json.dump(bill, sys.stdout, indent=1)
