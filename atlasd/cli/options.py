"""Options of a command, derived from the settings that they fill in."""

from __future__ import annotations

__all__ = ["options_of"]

import dataclasses
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import typer

from atlasd.studies.config import Config


def options_of(
    kind: type[Config], *, arguments: Sequence[str] = (), required: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command an option for every setting, in place of its `**settings`.

    Settings check their own values, so that a choice is a text here and a wrong one is told in their words.

    Arguments:
        kind: The settings.
        arguments: Settings that are given by place.
        required: Those of them that must be given.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = typing.get_type_hints(kind)
        own = inspect.signature(command, eval_str=True).parameters.values()
        added = [
            _parameter(field, hints[field.name], field.name in arguments, field.name in required)
            for field in sorted(dataclasses.fields(kind), key=lambda f: f.name not in arguments)
        ]
        together = [*added, *(p for p in own if p.kind is not p.VAR_KEYWORD)]
        together = [p.replace(kind=p.KEYWORD_ONLY) for p in together]
        command.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in together}
        return command

    return decorate


def _parameter(field: dataclasses.Field[Any], hint: Any, by_place: bool, required: bool) -> inspect.Parameter:
    words = field.metadata["help"]
    shown: dict[str, Any] = {"help": f"{words[0].upper()}{words[1:]}.", "metavar": field.metadata["metavar"]}
    flag = "--" + field.name.replace("_", "-")
    info = typer.Argument(**shown) if by_place else typer.Option(flag, **shown)
    default = inspect.Parameter.empty if required else field.default
    annotation: Any = str if typing.get_origin(hint) is Literal else hint
    marked = Annotated[annotation, info]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=marked)
