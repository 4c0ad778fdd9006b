"""Where tensors live: one word for a whole discovery or run."""

from __future__ import annotations

__all__ = ["find_device", "on_device"]

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from atlasd.errors import InputError


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
    current = torch.get_default_device()
    device = current if name is None else find_device(name)
    if device == current:
        yield device
        return
    with device:
        yield device
