"""Errors that are the user's to mend; the command line shows them as one line."""

from __future__ import annotations


class AtlasdError(Exception):
    """Base of every error that atlasd raises on purpose."""


class InputError(AtlasdError, ValueError):
    """An argument does not fit; the message says what was expected, what was found and the remedy."""


class DataError(AtlasdError, ValueError):
    """A file is missing, truncated or not of the expected form."""
