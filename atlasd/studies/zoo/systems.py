"""The zoo: systems with exactly known groups, and at least as many without any."""

from __future__ import annotations

__all__ = ["foreign_systems", "zoo_systems"]

from atlasd.studies.zoo.field_systems import field_systems
from atlasd.studies.zoo.foreign_fields import foreign_fields
from atlasd.studies.zoo.foreign_vectors import foreign_vectors
from atlasd.studies.zoo.negatives import negative_systems
from atlasd.studies.zoo.system import System
from atlasd.studies.zoo.vector_systems import vector_systems


def zoo_systems() -> tuple[System, ...]:
    """Every system that is the same for all seeds, positives first.

    Example:
        >>> systems = zoo_systems()
        >>> positives = [system for system in systems if system.positive]
        >>> len(systems) >= 2 * len(positives) >= 44
        True
    """
    positives = (*vector_systems(), *field_systems())
    return (*positives, *negative_systems(positives))


def foreign_systems(seed: int) -> tuple[System, ...]:
    """Families as they come from elsewhere, with parameters drawn for a seed, each followed by its control.

    Example:
        >>> names = [system.name for system in foreign_systems(0)]
        >>> "thin_cone" in names and "thin_cone_control" in names
        True
    """
    return (*foreign_vectors(seed), *foreign_fields(seed))
