"""The one tolerance; settings and commands know it without loading the rest of the library."""

from __future__ import annotations

__all__ = ["TOLERANCE"]

TOLERANCE = 0.2
"""The largest strength of a breaking, as a ratio of amplitudes, that counts as a symmetry."""
