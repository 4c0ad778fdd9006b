"""What it costs to make a model symmetric."""

from __future__ import annotations

__all__ = ["fix_price"]

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from atlasd.algebra.group import Group
from atlasd.errors import InputError
from atlasd.geometry.actions import Action
from atlasd.nn.averaging import symmetrize
from atlasd.nn.canonical import canonicalize
from atlasd.nn.checks import evaluating
from atlasd.nn.compact import invariant_form
from atlasd.nn.tensor_types import TensorType


class _Wrapped(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.forward = function


def fix_price(
    model: Callable[[Tensor], Any],
    x: Tensor,
    group: Group,
    y: Tensor | None,
    action: Action | None,
    outputs: TensorType | None,
) -> tuple[tuple[float, float], str]:
    """Errors of a model before and after it was made symmetric, with words for how and which errors these are."""
    if y is None:
        raise InputError("`fix` must have targets in `data` to show its price, got none; give them.")
    inner = model if isinstance(model, nn.Module) else _Wrapped(model)
    fixed: nn.Module
    if invariant_form(group) is not None:
        fixed, how = symmetrize(inner, group, action=action, outputs=outputs), "averaged over the group"
    else:
        fixed, how = canonicalize(inner, group, x, action=action, outputs=outputs), "brought to a standard pose"
    errors = []
    for one in (model, fixed):
        with evaluating(one), torch.no_grad():
            made = one(x)
        if y.is_floating_point():
            errors.append(float((made.reshape(y.shape) - y).square().mean()))
        else:
            errors.append(float((made.argmax(1) != y).double().mean()))
    measure = "mean squared error" if y.is_floating_point() else "share of wrong classes"
    return (errors[0], errors[1]), f"{how}: {measure}"
