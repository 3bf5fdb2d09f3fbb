"""What the image does not have of the libraries that it is built of."""

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
    """A new version of Spark or pyarrow that calls it otherwise would bring it back unnoticed."""
    assert list(PACKAGES.glob(pattern))


def test_rocksdb_keeps_its_classes_and_one_library(tmp_path: Path) -> None:
    """The library lies in the folder for it, and the jar has nothing but the rest."""
    packages, native = tmp_path / "packages", tmp_path / "native"
    jars = packages / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (whole,) = (PACKAGES / "pyspark" / "jars").glob("rocksdbjni-*.jar")
    shutil.copy(whole, jars)
    unused = jars / "spark-mllib_2.13-4.3.0.jar"
    unused.touch()

    _script().prune(packages, native)

    assert not unused.exists()
    (jar,) = jars.iterdir()
    assert jar.name == whole.name
    with zipfile.ZipFile(whole) as before, zipfile.ZipFile(jar) as after:
        gone = {name for name in before.namelist() if name.startswith("librocksdbjni-")}
        assert set(after.namelist()) == set(before.namelist()) - gone
        entry = "org/rocksdb/RocksDB.class"
        assert after.read(entry) == before.read(entry)
    (library,) = native.iterdir()
    assert library.name in gone
