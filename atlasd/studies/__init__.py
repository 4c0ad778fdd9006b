"""Experiments that can be run by name; each one is imported only when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atlasd.errors import InputError
from atlasd.runtime.text import did_you_mean

if TYPE_CHECKING:
    from atlasd.studies.config import Config
    from atlasd.studies.record import Run


@dataclass(frozen=True)
class Experiment:
    """One entry of the register.

    Arguments:
        name: What to write after `atlasd run`.
        description: One line for `atlasd list`.
        module: Where `CONFIG`, the class of its configuration, and `run` are.
    """

    name: str
    description: str
    module: str

    def config(self) -> type[Config]:
        """The class of its configuration."""
        return importlib.import_module(self.module).CONFIG

    def configure(self, settings: Sequence[str] = ()) -> Config:
        """Its configuration, from `key=value` texts."""
        from atlasd.studies.config import parse_settings

        return parse_settings(self.config(), settings)

    def runner(self) -> Run:
        """The function that does the work."""
        return importlib.import_module(self.module).run


EXPERIMENTS: tuple[Experiment, ...] = tuple(
    Experiment(name, description, f"atlasd.studies.{module}")
    for name, module, description in (
        ("heat", "heat.run", "heat flow around a hot block: O(2) in every chart, nothing globally"),
        ("d4", "toys.d4", "abs(x) + abs(y): the eight symmetries of the square"),
        ("arctan", "toys.arctan", "arctan((y + 0.1) / x): the identity and an approximate half-turn"),
        ("toy", "toys.run", "functions with a known exact group, chosen by name=..."),
        ("dimuons", "dimuons.run", "muon pairs of real collisions: the Lorentz group from their invariant mass"),
        ("top-tagging", "jets.run", "jets of top quarks: the Lorentz group, its metric and parity from the labels"),
        (
            "liegg-heat", "rivals.liegg",
            "the rival LieGG on the heat equation: a global symmetry without the hot block, none with it",
        ),
        (
            "top-tagging-downstream", "jets.downstream",
            "taggers of top quarks on the discovered metric, on the exact one, and on others",
        ),
        (
            "sphere-mnist", "digits.run",
            "digits on a sphere: each may be rotated by itself, up to about 60 degrees; the sphere may not",
        ),
        (
            "sphere-mnist-downstream", "digits.downstream",
            "digits on a sphere, rotated beyond the training data: CNNs with the discovered group against a plain one",
        ),
        (
            "climate", "climate.run",
            "cyclones and atmospheric rivers: GL+(2) in every chart, or what the labels leave of it",
        ),
        (
            "climate-downstream", "climate.downstream",
            "cyclones and rivers on an icosahedral grid: a network with SO(2) against a flat one with GL+(2)",
        ),
    )
)  # fmt: skip

OWN = Experiment("discover", "your own data: `atlasd discover FILE`", "atlasd.studies.own_data.run")
"""Found by name like the others, so that its runs can be read and resumed, but not listed: it needs a file."""


def find_experiment(name: str) -> Experiment:
    """The experiment of that name.

    Example:
        >>> find_experiment("d4").description
        'abs(x) + abs(y): the eight symmetries of the square'
        >>> find_experiment("heet")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        atlasd.errors.InputError: unknown experiment 'heet', did you mean 'heat'? ...
    """
    names = [e.name for e in EXPERIMENTS]
    for experiment in (*EXPERIMENTS, OWN):
        if experiment.name == name:
            return experiment
    hint = did_you_mean(name, names)
    raise InputError(f"unknown experiment {name!r}{hint} `atlasd list` shows all: {', '.join(names)}.")
