"""The zoo: systems with exactly known algebras, and at least as many without any."""

from __future__ import annotations

__all__ = ["zoo_systems"]

from atlasd.datasets.field_systems import field_systems
from atlasd.datasets.negatives import negative_systems
from atlasd.datasets.system import System
from atlasd.datasets.vector_systems import vector_systems


def zoo_systems() -> tuple[System, ...]:
    """Every system, positives first.

    Example:
        >>> systems = zoo_systems()
        >>> positives = [system for system in systems if system.positive]
        >>> len(systems) >= 2 * len(positives) >= 44
        True
    """
    positives = (*vector_systems(), *field_systems())
    return (*positives, *negative_systems(positives))
