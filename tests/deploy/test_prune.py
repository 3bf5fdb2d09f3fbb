"""What the image omits of the libraries that it installs."""

from __future__ import annotations

import shutil
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pyspark
import pytest

PACKAGES = Path(pyspark.__file__).parents[1]
SCRIPT = Path(__file__).parents[2] / "deploy" / "prune.py"


def _script() -> ModuleType:
    spec = spec_from_file_location("prune", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.parametrize("pattern", _script().NEVER_LOADED)
def test_every_pattern_finds_something(pattern: str) -> None:
    """If a new version of Spark or pyarrow renamed a file, the image would contain it again unnoticed."""
    assert list(PACKAGES.glob(pattern))


def test_jars_keep_their_classes_and_what_is_for_this_machine(tmp_path: Path) -> None:
    """RocksDB's library is moved to the given folder, and the other jars keep one library for this machine."""
    script = _script()
    packages, native = tmp_path / "packages", tmp_path / "native"
    jars = packages / "pyspark" / "jars"
    jars.mkdir(parents=True)
    whole = {
        name: next((PACKAGES / "pyspark" / "jars").glob(f"{name}-*.jar"))
        for name in ("rocksdbjni", *script.MANY_MACHINES)
    }
    for jar in whole.values():
        shutil.copy(jar, jars)
    unused = jars / "spark-mllib_2.13-4.3.0.jar"
    unused.touch()

    script.prune(packages, native)

    assert {jar.name for jar in jars.iterdir()} == {jar.name for jar in whole.values()}
    for name, jar in whole.items():
        with zipfile.ZipFile(jar) as before, zipfile.ZipFile(jars / jar.name) as after:
            libraries = {entry for entry in before.namelist() if entry.endswith(script.NATIVE)}
            left = libraries & set(after.namelist())
            assert set(after.namelist()) == set(before.namelist()) - libraries | left
            assert all(after.read(entry) == before.read(entry) for entry in after.namelist())
        assert len(left) == (name != "rocksdbjni"), (name, left)
    (library,) = native.iterdir()
    assert library.name.startswith("librocksdbjni-")
