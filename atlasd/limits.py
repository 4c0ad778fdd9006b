"""The numbers that decide an answer; settings and commands know them without loading the rest of the library."""

from __future__ import annotations

from statistics import NormalDist

TOLERANCE = 0.2
"""The largest strength of a breaking, as a ratio of amplitudes, that counts as a symmetry."""
LEVEL = 0.05
"""Probability, over all directions together, that an interval misses the truth at one of its ends.

The same share of the data counts as lying where no data are.
"""
TWO_SIDED = NormalDist().inv_cdf(1 - LEVEL / 2)
"""Standard errors of a difference that is not zero, at that level."""
MOST = 0.5
"""The greater part: of samples that data must cover, of a planted breaking that must show, of what others cost."""
FEWEST = 12
"""Samples below which nothing is claimed: a bootstrap of fewer means nothing."""
APART = 3.0
"""Strengths whose intervals lie a factor of this apart are of different classes."""
EXACT = 1 / APART**2
"""Share of the tolerance below which a breaking is not told from none: two classes below."""
CLEAR = 4.0
"""Standard deviations of what is no accident among thousands of looks, as at waves in errors."""
