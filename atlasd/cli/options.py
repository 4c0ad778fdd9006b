"""Options of a command, derived from the settings that they fill in."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import typer

from atlasd.cli.common import Running
from atlasd.studies.config import Config


def options_of(
    kind: type[Config], *, arguments: Sequence[str] = (), required: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command an option for every setting, in place of its `**settings`.

    Settings check their own values, so that a choice is a text here and a wrong one is told in their words.

    Arguments:
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
        return _with_parameters(command, [*added, *(p for p in own if p.kind is not p.VAR_KEYWORD)])

    return decorate


def running_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `Running`, which it gets as `running`."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "running"]
    hints = typing.get_type_hints(Running, include_extras=True)
    fields = dataclasses.fields(Running)

    @functools.wraps(command)
    def told(*arguments: Any, **options: Any) -> None:
        given = {f.name: options.pop(f.name) for f in fields}
        command(*arguments, running=Running(**given), **options)

    added = [inspect.Parameter(f.name, _BY_NAME, default=f.default, annotation=hints[f.name]) for f in fields]
    rest = [p for p in own if p.kind is p.VAR_KEYWORD]
    return _with_parameters(told, [*(p for p in own if p not in rest), *added, *rest])


_BY_NAME = inspect.Parameter.KEYWORD_ONLY


def _with_parameters(command: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """The command with a signature that shows these parameters."""
    named = [p if p.kind is p.VAR_KEYWORD else p.replace(kind=_BY_NAME) for p in parameters]
    command.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in named}
    return command


def _parameter(field: dataclasses.Field[Any], hint: Any, by_place: bool, required: bool) -> inspect.Parameter:
    words = field.metadata["help"]
    shown: dict[str, Any] = {"help": f"{words[0].upper()}{words[1:]}.", "metavar": field.metadata["metavar"]}
    flag = "--" + field.name.replace("_", "-")
    info = typer.Argument(**shown) if by_place else typer.Option(flag, **shown)
    default = inspect.Parameter.empty if required else field.default
    annotation: Any = str if typing.get_origin(hint) is Literal else hint
    marked = Annotated[annotation, info]
    return inspect.Parameter(field.name, _BY_NAME, default=default, annotation=marked)
