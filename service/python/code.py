"""The code of a job's Python functions, which is a folder or a wheel, and how processes import it.

If the job runs on one machine, every process imports the code from its original path. For the machines of a cluster,
the code is shipped as an archive whose name contains a digest of its content. Python imports directly from the archive,
which takes precedence if it exists.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowkind.service.python.errors import FunctionError

_LEFT_OUT = ("__pycache__",)


@dataclass(frozen=True)
class Code:
    """The path of the code on the driver's machine, and the digest of its content."""

    path: str
    digest: str

    @classmethod
    def at(cls, path: Path) -> Code:
        """Return the code in a folder or a wheel. Raises FunctionError if there is none."""
        if not path.exists():
            raise FunctionError(f"the folder or wheel {path} does not exist")
        if path.is_file() and path.suffix != ".whl":
            raise FunctionError(f"{path} is neither a folder nor a wheel (.whl)")
        digest = hashlib.sha256()
        for name, file in [("", path)] if path.is_file() else _files(path):
            digest.update(f"{name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
        return cls(str(path.resolve()), digest.hexdigest()[:16])

    @property
    def archive(self) -> str:
        """The name of the shipped archive."""
        return f"functions-{self.digest}.zip"

    def pack(self, target: Path) -> None:
        """Write the archive."""
        path = Path(self.path)
        if path.is_file():
            target.write_bytes(path.read_bytes())
            return
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in _files(path):
                archive.write(file, name)

    def load(self, module: str, attribute: str) -> Any:
        """Import a module and return its attribute. Raises FunctionError."""
        place = self.place
        _make_way(place, self.digest)
        # Do not write bytecode. Python recognises outdated bytecode by the source's size and modification time in
        # seconds, so a later change in the same second would be missed. Also, the folder belongs to the user.
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            found = importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 -- whatever the module does while it is imported
            raise FunctionError(f"{module} cannot be imported: {describe(error, place)}") from None
        finally:
            sys.dont_write_bytecode = writes
        origin = str(getattr(found, "__file__", None) or getattr(found, "__path__", [""])[0])
        if not _is_in(origin, place):
            raise FunctionError(
                f"{module} is a module of Python or of a library, {origin}: use another name for your module"
            )
        if not hasattr(found, attribute):
            raise FunctionError(f"{module} has no {attribute}")
        return getattr(found, attribute)

    @property
    def place(self) -> str:
        """The path from which this process imports the code: the shipped archive if it exists, else the original."""
        shipped = [*(entry for entry in sys.path if entry.endswith(self.archive)), str(Path.cwd() / self.archive)]
        return next((each for each in shipped if Path(each).exists()), self.path)


def describe(error: BaseException, place: str) -> str:
    """Describe an error in one line, with the last line of its traceback that is in the code at `place`."""
    import linecache  # noqa: PLC0415 -- only needed after an error
    import traceback  # noqa: PLC0415 -- as above

    text = " ".join(str(error).split())
    what = f"{type(error).__name__}{f': {text}' if text else ''}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{what} ({error.filename}, line {error.lineno})"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if _is_in(each.filename, place)]
    if not frames:
        return what
    last = frames[-1]
    name = os.path.relpath(last.filename, place)
    line = (last.line or linecache.getline(last.filename, last.lineno or 0)).strip()
    return f"{what}, at {name}:{last.lineno}{f': {line}' if line else ''}"


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(part in _LEFT_OUT or part.startswith(".") for part in parts):
            yield "/".join(parts), file


def _is_in(file: str, place: str) -> bool:
    """Return whether a module's file is in a folder or an archive. Both paths may be relative to the current folder."""
    return bool(file) and Path(file).resolve().is_relative_to(Path(place).resolve())


_loaded: dict[str, str] = {}
"""The digest of the code that this process imports, by its path."""


def _make_way(place: str, digest: str) -> None:
    """Add a path to the end of `sys.path`, and unload the modules of code that has changed or belongs to another job.

    The path comes last, so that a job's module cannot replace one of Python's.
    """
    if _loaded.get(place) == digest and place in sys.path:
        return
    for other in [*_loaded]:
        del _loaded[other]
        sys.path[:] = [entry for entry in sys.path if entry != other]
        for name, module in [*sys.modules.items()]:
            if str(getattr(module, "__file__", None) or "").startswith(other + os.sep):
                del sys.modules[name]
    importlib.invalidate_caches()
    sys.path.append(place)
    _loaded[place] = digest
