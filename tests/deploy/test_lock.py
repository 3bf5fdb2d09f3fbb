"""The image's lock file, compared with the lock file for development."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def _pins(file: Path) -> dict[str, str]:
    """Return each requirement with its markers and hashes, by `name==version`."""
    entries = re.split(r"\n(?=\S)", file.read_text().strip())
    return {entry.split()[0]: entry for entry in entries}


def test_the_image_holds_the_very_files_that_were_tested() -> None:
    """Every pin of the image's lock file is in the development lock file with the same hashes."""
    tested = _pins(ROOT / "requirements.lock")
    for pin, entry in _pins(ROOT / "deploy" / "requirements.lock").items():
        assert pin in tested, f"{pin} is not in requirements.lock: run `make lock`"
        assert set(re.findall(r"sha256:\w+", entry)) == set(re.findall(r"sha256:\w+", tested[pin])), pin
        assert "--hash=sha256:" in entry, pin


def test_every_dependency_of_the_package_is_in_the_image() -> None:
    """The image's lock file pins every dependency that pyproject.toml names."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split(r"[\[<>=~! ]", requirement)[0].lower().replace(".", "-") for requirement in declared}
    pinned = {pin.partition("==")[0] for pin in _pins(ROOT / "deploy" / "requirements.lock")}
    assert names <= pinned


def test_the_licences_are_of_what_the_image_holds() -> None:
    """The page of licences has each package that is installed on this platform, with its version."""
    page = (ROOT / "docs" / "reference" / "licences.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("|")]
    told = {(canonicalize_name(name.strip()), version.strip()) for _, name, version, *_ in rows}
    for entry in _pins(ROOT / "deploy" / "requirements.lock").values():
        pin = Requirement(entry.partition("\\")[0])
        if pin.marker is None or pin.marker.evaluate():
            version = str(pin.specifier).removeprefix("==")
            assert (canonicalize_name(pin.name), version) in told, (
                f"{pin} is not in docs/reference/licences.md: run `make licences`"
            )
