"""Whether an action fits the data."""

from __future__ import annotations

__all__ = ["checked_action"]

import torch

from atlasd.errors import InputError
from atlasd.geometry.actions import Action, GridAction, Representation, VectorAction
from atlasd.prediction.samples import Samples


def checked_action(samples: Samples, action: Action | None) -> Action:
    """The action, or the usual one for these data; raises where it does not fit them."""
    if action is None:
        return GridAction(dimensions=samples.size) if samples.is_field else VectorAction()
    if isinstance(action, GridAction) != samples.is_field:
        kind = "GridAction" if samples.is_field else "VectorAction"
        raise InputError(
            f"`action` must be a {kind} for x of shape {tuple(samples.x.shape)}, got {type(action).__name__}."
        )
    if isinstance(action, GridAction):
        if action.dimensions != samples.size:
            raise InputError(f"`action` must have dimensions={samples.size}, got {action.dimensions}.")
        _check_rho("rho_in", action.rho_in, samples.size, samples.x.shape[1])
    if isinstance(action, GridAction | VectorAction) and samples.y is not None and not samples.classes:
        size = action.matrix_size(samples.size) if isinstance(action, VectorAction) else samples.size
        _check_rho("rho_out", action.rho_out, size, samples.outputs)
    return action


def _check_rho(name: str, rho: Representation | None, size: int, channels: int) -> None:
    """Raises if a representation does not fit the channels that it transforms."""
    if rho is not None and (shape := tuple(rho(torch.eye(size, dtype=torch.float64)).shape)) != (channels, channels):
        raise InputError(f"`{name}` must give matrices of shape {(channels, channels)}, got {shape}.")
