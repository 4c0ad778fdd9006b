"""Text for messages and consoles: names near a wrong one, and text that a terminal must not obey."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean ...?`, or a full stop where no known name is near.

    Example:
        >>> did_you_mean("Samples", ["sample", "rate"]), did_you_mean("x", ["rate"])
        (", did you mean 'sample'?", '.')
    """
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=3, cutoff=0.65)
    return f", did you mean {' or '.join(repr(by_lower[n]) for n in near)}?" if near else "."


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


def counted(number: int, noun: str) -> str:
    """A number of things in words, with the plural in s.

    Example:
        >>> counted(1, "component"), counted(2, "component")
        ('1 component', '2 components')
    """
    return f"{number} {noun}" + ("" if number == 1 else "s")


class EscapingConsole(Console):
    """Colours and bars are rich's own; text inside them is escaped."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:  # type: ignore[override]
        """The segments of something that is shown, with their text escaped."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escaped(segment.text), segment.style)
