"""The group that a model has, discovered from the model itself."""

from __future__ import annotations

__all__ = ["found_action", "model_group"]

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.discover import discover
from atlasd.discovery.result import Discovery
from atlasd.discovery.targets import as_said
from atlasd.geometry.actions import Action, GridAction, VectorAction
from atlasd.nn.checks import evaluating, leaves
from atlasd.nn.model_files import any_batch
from atlasd.nn.tensor_types import TensorType


def model_group(
    model: Callable[[Tensor], Any], x: Tensor, action: Action | None, outputs: TensorType | None, seed: int
) -> Discovery:
    """The group of the first output. Numbers that belong to a whole field are taken as a field that is even."""

    asked = any_batch(model)

    def function(z: Tensor) -> Tensor:
        with evaluating(model):
            y = asked(z)
        made = leaves(y)[0][1](y)
        return made.reshape(len(z), -1, 1, 1).expand(-1, -1, *z.shape[2:]) if z.ndim == 4 and made.ndim < 4 else made

    rho_out: Any = "auto"
    if action is None and x.ndim == 4:
        with evaluating(model), torch.no_grad():
            y = model(x)
        rho_out = "trivial" if leaves(y)[0][1](y).ndim < 4 else rho_out
    if action is None and outputs is not None:
        rho_out = outputs.matrix
    return discover(x, function=function, action=action, rho_out=rho_out, seed=seed, progress=False)


def found_action(found: Discovery, model: Callable[[Tensor], Any], x: Tensor) -> Action | None:
    """How inputs and outputs transform, where the discovery found that they are components of vectors."""
    with evaluating(model), torch.no_grad():
        y = model(x)
    made = leaves(y)[0][1](y)
    count = 1 if made.ndim == 1 else made.shape[1 if made.ndim == 4 else -1]
    said = str(found.config.get("targets", ""))
    rho_in, rho_out = as_said(said, found.group.size, x.shape[1] if x.ndim == 4 else 0, count)
    if x.ndim == 4:
        return GridAction(fill="zeros", rho_in=rho_in, rho_out=rho_out) if rho_in or rho_out else None
    return VectorAction(rho_out=rho_out) if rho_out or "invariant" in said else None
