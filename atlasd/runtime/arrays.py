"""Arrays with a mask, which most libraries drop without a word."""

from __future__ import annotations

__all__ = ["unmasked"]

from typing import Any

import numpy as np

from atlasd.errors import InputError


def unmasked(array: Any, name: str) -> np.ndarray:
    """The array with masked numbers as NaN; masked integers are refused, since they have no NaN.

    Arguments:
        array: Anything that numpy takes.
        name: What to call it in messages.

    Example:
        >>> unmasked(np.ma.masked_equal([1.0, 9.0], 9.0), "x")
        array([ 1., nan])
        >>> unmasked(np.ma.masked_equal([1, 9], 9), "x")
        Traceback (most recent call last):
            ...
        atlasd.errors.InputError: `x` must have no masked entries, got 1 of 2; fill or drop them.
    """
    if not isinstance(array, np.ma.MaskedArray):
        return np.asarray(array)
    masked = int(np.ma.count_masked(array))
    if not masked:
        return np.asarray(array)
    if array.dtype.kind != "f":
        raise InputError(f"`{name}` must have no masked entries, got {masked} of {array.size}; fill or drop them.")
    return np.asarray(array.filled(np.nan))
