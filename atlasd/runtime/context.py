"""What surrounds work: its device, its workers, the stages that it keeps, and where its files were named from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlasd.errors import InputError

if TYPE_CHECKING:
    import torch

    from atlasd.runtime.executor import Workers
    from atlasd.runtime.stages import Stages


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name; one clear line where this machine does not have it.

    Example:
        >>> find_device("cpu")
        device(type='cpu')
        >>> find_device("abacus")
        Traceback (most recent call last):
            ...
        atlasd.errors.InputError: `device` must be a name such as cpu, cuda or cuda:1, got 'abacus'; write device=cpu.
    """
    import torch

    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"`device` must be a name such as cpu, cuda or cuda:1, got {name!r}; write device=cpu."
        ) from error
    try:
        # Doubles are needed, and some devices have none.
        there = device.type != "meta" and bool((torch.ones(1, dtype=torch.float64, device=device) == 1).all())
    except Exception:  # every backend that is missing has its own complaint
        there = False
    if not there:
        raise InputError(
            f"`device` must be one that this machine has, with double precision, got {str(device)!r}; write device=cpu."
        )
    return device


@contextmanager
def on_device(name: str | torch.device | None) -> Iterator[torch.device]:
    """Lets all tensors inside be created on a device; `None` leaves it where it is."""
    import torch

    current = torch.get_default_device()
    device = current if name is None else find_device(name)
    if device == current:
        yield device
        return
    with device:
        yield device


@dataclass(frozen=True)
class Context:
    """What is not passed from call to call.

    Arguments:
        stages: Finished stages of the run that is under way; `None` where nothing is kept.
        origin: The directory from which the files of a resumed run were named; `None` for a new run.
        unfinished: Stages of the run that is under way, for the thread that watches for interrupts, which this does not
            reach: whoever starts it gives the list.
    """

    workers: Workers | None = None
    stages: Stages | None = None
    origin: Path | None = None
    unfinished: list[Stages] = field(default_factory=list, compare=False)


_context: ContextVar[Context | None] = ContextVar("atlasd", default=None)


def current_context() -> Context:
    """What surrounds the caller."""
    return _context.get() or Context()


@contextmanager
def within(**changes: Any) -> Iterator[None]:
    """Changes the surroundings of what happens inside.

    Arguments:
        changes: Fields of `Context`.
    """
    token = _context.set(replace(current_context(), **changes))
    try:
        yield
    finally:
        _context.reset(token)
