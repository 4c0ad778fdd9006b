"""Ways from a discovery to the rooms that are built on it."""

from __future__ import annotations

__all__ = ["Doors"]

from typing import Any


class Doors:
    """What a discovery can be turned into; rooms above are imported when they are asked for."""

    def network(self, x: Any, y: Any, **options: Any) -> Any:
        """A network that commutes with the group, for these inputs and targets; options as in `atlasd.nn.network`."""
        from atlasd.nn.build import network

        return network(self, x, y, **options)  # type: ignore[arg-type]
