r"""The catalogue of known algebras and groups as values, seen by users as `atlasd.known`."""

from __future__ import annotations

__all__ = [
    "affine",
    "borel",
    "euclidean",
    "galilei",
    "gl",
    "heisenberg",
    "scaling",
    "shear",
    "sl",
    "so",
    "sp",
    "su",
    "trivial",
    "u",
]

from atlasd.algebra.known_algebras import (
    affine,
    borel,
    euclidean,
    galilei,
    gl,
    heisenberg,
    scaling,
    shear,
    sl,
    so,
    sp,
    su,
    trivial,
    u,
)
