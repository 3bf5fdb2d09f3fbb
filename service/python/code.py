"""The code of a job's functions: a folder or a wheel beside the job file, and how a process comes by it.

Where the job runs on one machine everybody imports it from where it is. To the machines of a cluster it is shipped as
an archive with the digest of its content in its name, which Python imports from; that goes first wherever it is.
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
    """Where the code lies on the machine of the driver, and the digest of all that is there."""

    path: str
    digest: str

    @classmethod
    def at(cls, path: Path) -> Code:
        """The code in a folder or a wheel. Raises FunctionError if there is none."""
        if not path.exists():
            raise FunctionError(f"there is no folder or wheel {path}")
        if path.is_file() and path.suffix != ".whl":
            raise FunctionError(f"{path} is no folder and no wheel (.whl)")
        digest = hashlib.sha256()
        for name, file in [("", path)] if path.is_file() else _files(path):
            digest.update(f"{name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
        return cls(str(path.resolve()), digest.hexdigest()[:16])

    @property
    def archive(self) -> str:
        """What the shipped archive is called."""
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
        """What a module has under a name. Raises FunctionError."""
        place = self.place
        _make_way(place, self.digest)
        # Bytecode knows its source by size and second: written now, it would also stand for what the second has yet to
        # bring, and it is nobody's business to write into the folder.
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            found = importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 -- whatever the module does while it is imported
            raise FunctionError(f"{module} cannot be imported: {describe(error, place)}") from None
        finally:
            sys.dont_write_bytecode = writes
        origin = str(getattr(found, "__file__", None) or getattr(found, "__path__", [""])[0])
        if not _is_in(origin, place):
            raise FunctionError(f"{module} is a module of Python or of a library, {origin}: give yours another name")
        if not hasattr(found, attribute):
            raise FunctionError(f"{module} has no {attribute}")
        return getattr(found, attribute)

    @property
    def place(self) -> str:
        """Where this process imports it from."""
        shipped = [*(entry for entry in sys.path if entry.endswith(self.archive)), str(Path.cwd() / self.archive)]
        return next((each for each in shipped if Path(each).exists()), self.path)


def describe(error: BaseException, place: str) -> str:
    """What went wrong, in one line, with the last line of the code at `place` on the way there."""
    import linecache  # noqa: PLC0415 -- only who fails needs it
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
    """Whether a module's file lies in a folder or an archive, each perhaps seen from where the process is."""
    return bool(file) and Path(file).resolve().is_relative_to(Path(place).resolve())


_loaded: dict[str, str] = {}
"""The digest of the code that this process imports from a place."""


def _make_way(place: str, digest: str) -> None:
    """Add a place to the end of `sys.path`, and drop the modules of code that has changed or belongs to another job.

    The place comes last, so that no module of a job replaces one of Python's.
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
