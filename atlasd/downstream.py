"""The former name of `atlasd.nn`: the same modules, under the names they had."""

from __future__ import annotations

import importlib
import pkgutil
import sys

from atlasd import nn

# The same module objects, so that a class has one identity whichever name it was imported by.
for _entry in pkgutil.iter_modules(nn.__path__):
    sys.modules[f"{__name__}.{_entry.name}"] = importlib.import_module(f"atlasd.nn.{_entry.name}")
sys.modules[__name__] = nn
