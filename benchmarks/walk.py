"""The walk of one call: which files and functions of the package it passes, and how deep it goes.

Two calls are traced: `ad.discover` on fields (the README's ten lines, with fewer samples) and `atlasd run heat`.
Counted are files, functions, the largest number of functions of the package on the stack, and pairs of files whose
functions call each other both ways. Such a pair is a callback if one of the two files does not know the other: a pool
calls the task that it was given, a fit calls the data that it was given. The core is everything but the studies and
the command line. Modules are imported beforehand: to import a file is not to call it.

Run: python benchmarks/walk.py [--pairs] [--files] [--deepest] [discover] [run]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import pkgutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import atlasd

ROOT = f"{Path(atlasd.__file__).parent}/"
OUTSIDE = ("studies/", "cli/", "__init__.py", "__main__.py")
INLINE = ("<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")


class Walk:
    """Collects what is called while it is the profiler: `with Walk() as walk: ...`."""

    def __init__(self):
        self.functions, self.calls, self.deepest, self._stack = set(), defaultdict(set), [], []

    def __enter__(self):
        for module in pkgutil.walk_packages(atlasd.__path__, "atlasd."):
            if module.name != "atlasd.__main__":
                importlib.import_module(module.name)
        sys.setprofile(self)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def __call__(self, frame, event, _):
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(ROOT) or code.co_name in INLINE:
            return
        place = (code.co_filename.removeprefix(ROOT), code.co_qualname)
        if event == "return":
            if self._stack and self._stack[-1] == place:
                self._stack.pop()
            return
        if self._stack and self._stack[-1][0] != place[0]:
            self.calls[self._stack[-1][0], place[0]].add((self._stack[-1][1], place[1]))
        self._stack.append(place)
        self.functions.add(place)
        if len(self._stack) > len(self.deepest):
            self.deepest = list(self._stack)

    def files(self, core=True):
        """Files that were passed, of the core or of the whole package."""
        return sorted({f for f, _ in self.functions if not (core and f.startswith(OUTSIDE))})

    def pairs(self):
        """Pairs of files of the core that call each other both ways."""
        inside = set(self.files())
        return sorted((a, b) for a, b in self.calls if a < b and (b, a) in self.calls and {a, b} <= inside)

    def by_name(self):
        """Those pairs in which each file imports the other."""
        return [(a, b) for a, b in self.pairs() if _imports(a, b) and _imports(b, a)]

    def depth(self):
        """Functions of the core on the deepest stack."""
        return sum(not f.startswith(OUTSIDE) for f, _ in self.deepest)


def _imports(file, other):
    module = "atlasd." + other.removesuffix(".py").replace("/", ".")
    return f"from {module} import" in Path(ROOT, file).read_text()


def discover():
    from atlasd.runtime.random import stream
    from atlasd.studies.heat.data import heat_atlas, heat_fields, simulate_heat

    x = heat_fields(80, generator=stream(0, "walk"))
    y = simulate_heat(x)
    with Walk() as walk:
        atlasd.discover(x, y, atlas=heat_atlas("three"), progress=False)
    return walk


def run():
    from atlasd.cli import main

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SystemExit), Walk() as walk:
        main(["run", "heat", "--set", "samples=80", "--quiet", "--out", f"{folder}/run"])
    return walk


CALLS = {"discover": discover, "run": run}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("calls", nargs="*", help="discover, run  [default: both]")
    parser.add_argument("--pairs", action="store_true", help="name the pairs and the calls")
    parser.add_argument("--files", action="store_true", help="name the files")
    parser.add_argument("--deepest", action="store_true", help="name the functions of the deepest stack")
    options = parser.parse_args()
    walks = {name: CALLS[name]() for name in options.calls or CALLS}
    form = "{:<10}{:>8}{:>8}{:>11}{:>8}{:>8}{:>16}{:>10}"
    print(form.format("call", "files", "core", "functions", "depth", "core", "two-way pairs", "by name"))
    for name, walk in walks.items():
        counts = (len(walk.files(core=False)), len(walk.files()), len(walk.functions), len(walk.deepest))
        ways = (walk.depth(), len(walk.pairs()), len(walk.by_name()))
        print(form.format(name, *counts, *ways))
    for name, walk in walks.items():
        if options.files:
            print(f"\n{name}: files", *walk.files(core=False), sep="\n  ")
        if options.deepest:
            print(f"\n{name}: deepest stack", *("  ".join(place) for place in walk.deepest), sep="\n  ")
        for a, b in walk.pairs() if options.pairs else ():
            print(f"\n{name}: {a} and {b}" + ("" if (a, b) in walk.by_name() else " (callback)"))
            for first, second in ((a, b), (b, a)):
                print(*(f"  {first} {f} -> {second} {g}" for f, g in sorted(walk.calls[first, second])), sep="\n")


if __name__ == "__main__":
    main()
