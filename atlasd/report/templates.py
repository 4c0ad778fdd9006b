"""Templates of the pages; whatever they are given is escaped, unless a template made it."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from atlasd.runtime.text import escaped


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("atlasd.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else escaped(value),
    )


def render(template: str, **values: Any) -> Markup:
    """A whole template, filled in."""
    return Markup(_environment().get_template(template).render(**values))


def part(template: str, macro: str, *values: Any) -> Markup:
    """One macro of a template, filled in."""
    return getattr(_environment().get_template(template).module, macro)(*values)
