"""What networks take as a group."""

from __future__ import annotations

__all__ = ["GroupLike", "as_group"]

from typing import TypeAlias

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.result import Discovery
from atlasd.errors import InputError

GroupLike: TypeAlias = Group | LieAlgebra | Discovery
"""A group, an algebra for the connected group that it generates, or a discovery for the group that was found."""


def as_group(value: GroupLike) -> Group:
    """The group that is meant.

    Example:
        >>> from atlasd.algebra import known
        >>> as_group(known.so(3)).components
        1
    """
    if isinstance(value, Discovery):
        return value.group
    if isinstance(value, LieAlgebra):
        return Group(value)
    if not isinstance(value, Group):
        raise InputError(
            f"`group` must be a group, an algebra or a discovery, got {type(value).__name__}; "
            "make one by `ad.Group(generators)`, or take one of `ad.known`."
        )
    return value
