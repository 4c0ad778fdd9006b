"""Text from files and names, made safe to show: a terminal must not obey what it is shown."""

from __future__ import annotations

__all__ = ["escaped"]

import unicodedata


def escaped(text: str) -> str:
    r"""The text with control, format and unassigned characters written as escapes; line feeds and tabs stay.

    Escape sequences recolour or rewrite a terminal, and bidirectional marks reorder what is read.

    Example:
        >>> print(escaped("a\x1b[2Jb \u202e txt"))
        a\x1b[2Jb \u202e txt
        >>> escaped("ω₀ über")
        'ω₀ über'
    """
    if text.isprintable():
        return text
    return "".join(c if _harmless(c) else c.encode("unicode_escape").decode() for c in text)


def _harmless(character: str) -> bool:
    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"
