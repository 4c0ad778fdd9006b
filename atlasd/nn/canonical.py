r"""Makes any trained model equivariant under a group without bound, by bringing inputs to a standard pose.

With M the second moments of an input, the pose is the element of the group that minimises
:math:`\operatorname{tr}(h M h^T) - 2 \log \det h`: the maximum of the likelihood of a normal distribution whose
covariance lies in the orbit of the identity. The minimum is unique up to the largest compact subgroup. Over a circle
and over components the model is averaged; larger rotation groups are settled by turning sums of the vectors, weighted
by powers of their lengths, towards the axes. Second moments of sets of vectors, and of the squares of fields about
their centre, transform alike.

References:
    Améndola, Kohn, Reichenbach, Seigal, Invariant theory and scaling algorithms for maximum likelihood estimation,
    SIAM Journal on Applied Algebra and Geometry 5 (2021).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.data.cleaning import whole_tensor
from atlasd.errors import InputError
from atlasd.geometry.actions import Action
from atlasd.geometry.resample import pixel_grid
from atlasd.nn.averaging import Symmetrized
from atlasd.nn.checks import map_leaves
from atlasd.nn.groups import GroupLike, as_group, haar_sample, straight_frame
from atlasd.nn.tensor_types import TensorType
from atlasd.runtime.random import stream

_STEPS = 60
_REDUCTIVE = 0.1
"""Largest distance of an algebra from its transpose, in its best coordinates, that still counts as noise."""


class Canonicalized(nn.Module):
    r"""The map :math:`x \mapsto h^{-1} \bar\Phi(h x)`, with h the pose of x and the model averaged over poses alike.

    Arguments are those of `canonicalize`.
    """

    straighten: Tensor
    stretches: Tensor
    turns: Tensor
    starts: Tensor
    size: Tensor

    def __init__(
        self,
        model: nn.Module,
        group: Group,
        x: Tensor,
        action: Action | None,
        outputs: TensorType | None,
        samples: int,
        seed: int,
    ) -> None:
        super().__init__()
        change, stretches, compact = _split(group)
        settled = compact.dimension > 1 and x.ndim != group.size + 2
        self.register_buffer("straighten", change)
        self.register_buffer("stretches", stretches)
        self.register_buffer("turns", compact.algebra.frame() if settled else compact.algebra.basis[:0])
        self.register_buffer("starts", haar_sample(Group(compact.algebra), 24, generator=stream(seed, "starts")))
        alike = compact.cosets if settled else haar_sample(compact, samples, generator=stream(seed, "canonicalize"))
        self.averaged = Symmetrized(model, torch.linalg.inv(change) @ alike @ change, action, outputs)
        sizes = self._moments(x).diagonal(dim1=1, dim2=2).mean(1)
        self.register_buffer("size", (sizes.log().mean() / 2).exp())
        self.training = model.training

    def forward(self, x: Tensor) -> Any:
        """Inputs and outputs are those of the model."""
        h = self.pose(x)
        y = self.averaged(self.averaged.moved(h.to(x), x))
        return map_leaves(lambda z: self.averaged.back(h, x, z), y)

    def pose(self, x: Tensor) -> Tensor:
        """The elements `(B, n, n)` that bring inputs to the standard pose."""
        with torch.no_grad():
            moments = self._moments(x) / self.size.square()
            n, e = moments.shape[-1], self.stretches

            def likelihood(h: Tensor) -> tuple[Tensor, Tensor]:
                here = h @ moments @ h.mT
                slope = 2 * torch.einsum("kij,bji->bk", e, here) - 2 * e.diagonal(dim1=1, dim2=2).sum(1)
                return slope, 4 * torch.einsum("kij,ljm,bmi->bkl", e, e, here)

            total = _descend(likelihood, e, torch.eye(n).to(moments).expand(len(x), n, n))
            if len(self.turns):
                total = self._turned(x.double().reshape(len(x), -1, n) @ (total @ self.straighten).mT) @ total
            return torch.linalg.inv(self.straighten) @ total @ self.straighten

    def _turned(self, z: Tensor) -> Tensor:
        """Elements k `(B, n, n)` of the compact subgroup that maximise the trace of k V, for sums V of vectors."""
        t, length = self.turns, z.norm(dim=-1, keepdim=True)
        length = length / length.mean(1, keepdim=True).clamp_min(1e-300)
        v = torch.stack([(length**q * z).mean(1) for q in range(z.shape[-1])], -1)  # (B, n, n), one sum in each column
        v = v / v.norm(dim=(1, 2), keepdim=True).clamp_min(1e-300)

        def trace(k: Tensor) -> tuple[Tensor, Tensor]:
            return -torch.einsum("kij,bji->bk", t, k @ v), -torch.einsum("kij,ljm,bmi->bkl", t, t, k @ v)

        return _descend(trace, t, self.starts[torch.einsum("sij,bji->bs", self.starts, v).argmax(1)])

    def _moments(self, x: Tensor) -> Tensor:
        """Second moments `(B, n, n)` in the straight coordinates."""
        z = x.double()
        if x.ndim == len(self.straighten) + 2:
            p = pixel_grid(tuple(x.shape[2:]), dtype=torch.float64).to(x.device)
            weight = z.square().sum(1).flatten(1)
            weight = weight / weight.sum(1, keepdim=True).clamp_min(1e-300)
            moments = torch.einsum("bp,pi,pj->bij", weight, p, p)
        else:
            rows = z.reshape(len(z), -1, z.shape[-1])
            moments = rows.mT @ rows / rows.shape[1]
        return self.straighten @ moments @ self.straighten.mT


def canonicalize(
    model: nn.Module,
    group: GroupLike,
    x: Tensor,
    *,
    action: Action | None = None,
    outputs: TensorType | None = None,
    samples: int = 16,
    seed: int = 0,
) -> Canonicalized:
    """Wraps a trained model into one that commutes with a group that has no average, such as boosts or scalings.

    Inputs are brought to a standard pose, and the outputs back; over a circle and over components, the model is
    averaged as by `symmetrize`. Fields should have an empty background: poses are read off where they are not zero. An
    input whose orbit has no least size, such as a single light-like vector, has no pose.

    Arguments:
        model: The map; its outputs may be tensors in tuples, lists, dictionaries and dataclasses.
        group: The group; in some coordinates it must contain the transpose of each of its elements.
        x: Typical inputs `(B, *)`: poses are brought to their mean size.
        action: How the group acts; by default fields move on their grid and other outputs are invariant.
        outputs: How outputs that are not fields transform, such as `vector()`.
        samples: Elements of each component of the compact subgroup.
        seed: The seed of these.

    Raises:
        InputError: No coordinates make the group contain its transposes, as for shears.

    Example:
        >>> from atlasd.algebra import known
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch._C.Generator object at ...>
        >>> x = torch.randn(8, 5, 2, dtype=torch.float64)
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(10, 1)).double()
        >>> even = canonicalize(model, Group(known.so(1, 1)), x)
        >>> boost = torch.matrix_exp(torch.tensor([[0.0, 2.0], [2.0, 0.0]], dtype=torch.float64))
        >>> torch.allclose(even(x @ boost.mT), even(x)), torch.allclose(model(x @ boost.mT), model(x))
        (True, False)
    """
    return Canonicalized(model, as_group(group), whole_tensor(x, "x"), action, outputs, samples, seed)


def _descend(derivatives: Callable[[Tensor], tuple[Tensor, Tensor]], generators: Tensor, start: Tensor) -> Tensor:
    """Elements `(B, n, n)` that minimise a function on a group by Newton's method, never uphill.

    Arguments:
        derivatives: The slope `(B, k)` and the second derivatives `(B, k, k)` along the generators.
        generators: With shape `(k, n, n)`.
        start: Where to begin, with shape `(B, n, n)`.
    """
    h = start
    for _ in range(_STEPS if len(generators) else 0):
        slope, bend = derivatives(h)
        values, frames = torch.linalg.eigh((bend + bend.mT) / 2)
        floor = 1e-9 * values.abs().mean(1, keepdim=True) + 1e-30
        along = frames.mT @ slope.unsqueeze(-1) / values.abs().maximum(floor).unsqueeze(-1)
        step = -(frames @ along)[..., 0]
        step = step / step.norm(dim=1, keepdim=True).clamp_min(1.0)
        h = torch.matrix_exp(torch.einsum("bk,kij->bij", step, generators)) @ h
        if float(step.abs().max()) < 1e-10:
            break
    return h


def _split(group: Group) -> tuple[Tensor, Tensor, Group]:
    """Straight coordinates `(n, n)`, symmetric generators `(k, n, n)` in them, and the compact subgroup."""
    n = group.size
    if not group.dimension:
        return torch.eye(n, dtype=torch.float64), torch.zeros(0, n, n, dtype=torch.float64), group
    change = straight_frame(group)
    back = torch.linalg.inv(change)
    straight = group.algebra.adjoint(change)
    if straight.distance(LieAlgebra(straight.basis.mT)) > _REDUCTIVE:
        raise InputError(
            f"`group` must contain the transposes of its elements in some coordinates, got {group}; "
            "take its semisimple part, or a compact subgroup for `symmetrize`."
        )
    frame = straight.frame()
    symmetric, skew = _span(frame + frame.mT), _span(frame - frame.mT)
    cosets = change @ group.cosets @ back
    u, _, v = torch.linalg.svd(cosets)
    return change, symmetric, Group(LieAlgebra(skew), u @ v)


def _span(matrices: Tensor) -> Tensor:
    """An orthonormal basis of what is clearly there, `(k, n, n)`."""
    _, values, rows = torch.linalg.svd(matrices.flatten(1), full_matrices=False)
    return rows[values > _REDUCTIVE * 2].unflatten(1, matrices.shape[1:])
