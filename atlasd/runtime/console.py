"""A console that shows characters which a terminal would obey; imported only where something is shown."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from atlasd.runtime.text import escaped


class EscapingConsole(Console):
    """Colours and bars are rich's own; text inside them is escaped."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:  # type: ignore[override]
        """The segments of something that is shown, with their text escaped."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escaped(segment.text), segment.style)
