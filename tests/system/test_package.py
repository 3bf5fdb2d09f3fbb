"""`import rowkind`: its contents for programs, for interactive use and for type checkers."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_both_doors_are_there_after_one_import() -> None:
    """After `import rowkind`, `rowkind.client`, `Job` and the version are available and listed by `dir`."""
    assert _python("import rowkind; print(rowkind.client.Producer.__name__)") == "Producer"
    assert _python("import rowkind; print({'Job', 'client', '__version__'} <= {*dir(rowkind)})") == "True"
    assert _python("from rowkind import *; print(Job.__name__, client.__name__)") == "LoadedJob rowkind.client"


def test_the_version_is_that_of_the_installation() -> None:
    """The version is that of the installed package."""
    assert _python("import rowkind; print(rowkind.__version__)") == metadata.version("rowkind")


def test_little_is_loaded_before_it_is_asked_for() -> None:
    """Importing the package loads neither its service modules nor Arrow or sqlglot."""
    assert _python("import rowkind, sys; print([each for each in sys.modules if 'rowkind.service' in each])") == "[]"
    code = "import sys, rowkind; print('pyarrow' in sys.modules, 'sqlglot' in sys.modules)"
    assert _python(code) == "False False"


def test_a_name_that_is_not_there_is_a_mistake() -> None:
    """An unknown attribute raises AttributeError."""
    with pytest.raises(AssertionError, match="has no attribute 'Jbo'"):
        _python("import rowkind; rowkind.Jbo")


def test_a_type_checker_knows_what_is_there(tmp_path: Path) -> None:
    """From outside, mypy accepts existing names and refuses unknown ones."""
    program = tmp_path / "program.py"
    program.write_text(
        "import rowkind\n"
        "from rowkind import Nope\n"
        "rowkind.Jbo\n"
        "job: rowkind.Job = rowkind.Job('job.yaml')\n"
        "producer: rowkind.client.Producer = rowkind.client.Producer('job.yaml', 'orders')\n"
        "version: str = rowkind.__version__\n"
    )
    face = ROOT / "rowkind" / "__init__.py"
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=skip", program, face]
    # Only the package's `__init__` is checked, and MYPYPATH is needed because mypy ignores editable installations.
    environment = os.environ | {"MYPYPATH": str(ROOT), "MYPY_CACHE_DIR": str(tmp_path)}
    said = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    lines = [line.partition(": error: ") for line in said.stdout.splitlines() if line.startswith(program.name)]
    assert [(place.rpartition(":")[2], what.rpartition("[")[2]) for place, _, what in lines if what] == [
        ("2", "attr-defined]"),
        ("3", "attr-defined]"),
    ], said.stdout
