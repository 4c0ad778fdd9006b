r"""Makes any trained model equivariant by averaging it over a group."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from atlasd.errors import InputError
from atlasd.geometry.actions import Action
from atlasd.nn.checks import default_action, map_leaves
from atlasd.nn.groups import GroupLike, as_group, haar_sample, invariant_form, unbounded_direction
from atlasd.nn.tensor_types import TensorType, scalar
from atlasd.runtime.random import stream


class Symmetrized(nn.Module):
    r"""The mean of :math:`g^{-1} \Phi(g x)` over elements of a group.

    Arguments:
        model: The map :math:`\Phi`; its outputs may be tensors in tuples, lists and dictionaries.
        elements: The elements, with shape `(M, n, n)`.
        action: How they act; by default fields move on their grid and other outputs are invariant.
        outputs: How outputs that are not fields transform, such as `vector()`.
    """

    elements: Tensor

    def __init__(
        self, model: nn.Module, elements: Tensor, action: Action | None = None, outputs: TensorType | None = None
    ) -> None:
        super().__init__()
        self.model, self.action, self.outputs = model, action, outputs
        self.register_buffer("elements", elements)
        # A wrapper of a model in evaluation mode is in evaluation mode; the model itself keeps the modes of its parts.
        self.training = model.training

    def forward(self, x: Tensor) -> Any:
        """Inputs and outputs are those of the model."""
        total: Any = None
        for g in self.elements:
            y = self.model(self.moved(g, x))
            back = map_leaves(lambda z, g=g: self.back(g, x, z), y)
            total = back if total is None else map_leaves(torch.add, total, back)
        return map_leaves(lambda z: z / len(self.elements), total)

    def moved(self, g: Tensor, x: Tensor) -> Tensor:
        """The inputs under elements `(n, n)` or `(B, n, n)`."""
        # Inputs move alike whatever the outputs are: scalars stand in for them.
        action = self.action or default_action(g.shape[-1], x, x.new_zeros(1), scalar())
        return action.on_input(g, x)

    def back(self, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """An output for inputs under such elements, brought back."""
        action = self.action or default_action(g.shape[-1], x, y, self.outputs)
        return action.on_output(torch.linalg.inv(g).to(y), y)


def symmetrize(
    model: nn.Module,
    group: GroupLike,
    *,
    action: Action | None = None,
    outputs: TensorType | None = None,
    samples: int = 16,
    seed: int = 0,
) -> Symmetrized:
    r"""Wraps a trained model into an equivariant one.

    A finite group is averaged over exactly, which costs one evaluation for each element. A compact one is
    sampled: evenly on the circle of a single generator, at random otherwise, the same elements at every call.

    Arguments:
        model: Any module, trained or not. Class outputs are best averaged as probabilities: put a softmax last.
        group: The group.
        action: How the group acts on inputs and outputs; by default fields `(B, C, H, W)` rotate on their grid,
            vectors are multiplied, and outputs without places are invariant.
        outputs: How outputs that are not fields transform, such as `vector()`.
        samples: Elements for each component of a continuous group.
        seed: The seed of the random ones.

    Raises:
        InputError: The group is not compact, so that there is no average over it.

    Example:
        >>> from atlasd.algebra import known
        >>> x = torch.randn(1, 1, 5, 5, generator=torch.Generator().manual_seed(0))
        >>> even = symmetrize(torch.nn.Conv2d(1, 1, 3, padding=1), known.cyclic(4))
        >>> torch.allclose(even(x.rot90(dims=(2, 3))), even(x).rot90(dims=(2, 3)), atol=1e-6)
        True
        >>> symmetrize(torch.nn.Identity(), known.general_linear_plus(2))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        atlasd.errors.InputError: `group` must be compact to be averaged over, got GL+(2)...
    """
    group = as_group(group)
    if invariant_form(group) is None:
        raise InputError(
            f"`group` must be compact to be averaged over, got {group}: {unbounded_direction(group)}; "
            "average over a compact subgroup, or use `ad.canonicalize`."
        )
    return Symmetrized(model, haar_sample(group, samples, generator=stream(seed, "symmetrize")), action, outputs)
