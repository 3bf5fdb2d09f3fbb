"""The hooks of the documentation site, which are modules in docs/, which is no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


def hook(name: str) -> ModuleType:
    """Return the module `docs/NAME.py`."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
