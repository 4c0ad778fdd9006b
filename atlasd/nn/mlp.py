r"""Perceptrons on vectors and tensors that commute with any matrix group, for ordered inputs and for sets."""

from __future__ import annotations

import math
import warnings
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from atlasd.algebra.group import Group
from atlasd.errors import InputError
from atlasd.nn.covariants import Covariants, find_covariants
from atlasd.nn.groups import GroupLike, as_group
from atlasd.nn.intertwiners import Intertwiners
from atlasd.nn.tensor_types import TensorType, scalar, tensor, vector

_SPEED = 0.1
"""Unit of learned changes of coordinates: of the size of the noise of an algebra, so that steps do not shake them."""
_SMALL = 512
"""Numbers in the largest tensors that a default degree asks for: a null space of a tenth of a second."""
_ROWS = 10
"""Least number of targets for each coefficient that least squares may fit to them."""


class EquivariantMLP(nn.Module):
    r"""A perceptron whose outputs follow its inputs under a group: :math:`\sum_k f_k(I(x))\, C_k(x)`.

    I are the generating invariants of the inputs, C the covariants of the type of the outputs, both found for the group
    by null spaces; f is a plain perceptron beside a linear map. Invariants are computed in double precision and brought
    to their units; f sees each as it is, since many functions are polynomials of them, and its asinh, since they have
    long tails. `standardise` starts the linear map at its least-squares solution: what is left for the perceptron
    does not grow with the invariants, whose tails hold little data.

    Arguments:
        group: A group or an algebra, known or discovered.
        inputs: What comes in, such as `3 * vector()`.
        outputs: What goes out, such as `scalar()`.
        width: Width of the hidden layers.
        depth: Number of hidden layers.
        degree: Highest degree of the invariants, and one more than that of the covariants. By default the size of the
            matrices, at least 2 and more than the order of the outputs; for a finite group its order, which is enough
            (Noether, 1916), as far as tensors of that degree stay small.
        adapt: Whether to learn small changes of the coordinates along with the weights. The network then commutes with
            the group in these coordinates: what is left of the noise of a discovered algebra is learned away.
        generator: Source of the initial weights; the global one of torch if left out.

    Raises:
        InputError: The group leaves no invariants, so that outputs could only be constant.

    Example:
        >>> from atlasd.algebra import known
        >>> network = EquivariantMLP(known.lorentz(1), 3 * vector(), scalar(), width=16)
        >>> len(network.invariants)  # six scalar products
        6
        >>> network(torch.randn(5, 3, 4)).shape
        torch.Size([5, 1])
    """

    shift: Tensor
    scale: Tensor
    shift_out: Tensor
    scale_out: Tensor

    def __init__(
        self,
        group: GroupLike,
        inputs: TensorType,
        outputs: TensorType,
        width: int = 64,
        *,
        depth: int = 2,
        degree: int | None = None,
        adapt: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if width < 1 or depth < 1:
            raise InputError(f"`width` and `depth` must be at least 1, got {width} and {depth}; 64 and 2 are usual.")
        group = as_group(group)
        maps = Intertwiners(group)
        n = group.size
        self.group, self.inputs, self.outputs = group, inputs, outputs
        if degree is None:
            small = int(math.log(_SMALL) / math.log(max(n, 2)) + 1e-9)
            highest = 1 + max(p + q for _, p, q in outputs.parts)
            degree = max(2, n, highest, 0 if group.dimension else min(group.order, small))
        kinds = [(p, q) for c, p, q in inputs.parts for _ in range(c) if p + q]
        scalars = sum(c for c, p, q in inputs.parts if not p + q)
        invariants = find_covariants(maps, kinds, (0, 0), degree) if kinds else []
        self.invariants = Covariants(invariants, 1)
        features = len(self.invariants) + scalars
        if not features:
            raise InputError(
                f"{group} leaves no polynomial of {inputs} up to degree {degree} invariant, so that a network could "
                "only be constant; raise `degree`, or take a smaller group."
            )
        if kinds and not group.dimension and _annihilated(self.invariants, kinds, n):
            warnings.warn(
                f"invariants of {inputs} up to degree {max(self.invariants.degrees)} are those of a larger group than "
                f"{group.name}, whose own have degrees up to {group.order}: raise `degree`, or take a plain "
                "network in `ad.symmetrize`.",
                stacklevel=2,
            )
        heads = {}
        for k, (_, p, q) in enumerate(outputs.parts):
            if p + q:
                terms = find_covariants(maps, kinds, (p, q), max(1, degree - 1), invariants)
                if not terms:
                    raise InputError(
                        f"no polynomial of {inputs} up to degree {degree - 1} transforms as {tensor(p, q)}; "
                        "raise `degree`."
                    )
                heads[str(k)] = Covariants(terms, n ** (p + q))
        self.covariants = nn.ModuleDict(heads)
        self.frame = nn.Parameter(torch.zeros(n, n)) if adapt else None
        self.register_buffer("shift", torch.zeros(features, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(features, dtype=torch.float64))
        self.register_buffer("shift_out", torch.zeros(outputs.size(n), dtype=torch.float64))
        self.register_buffer("scale_out", torch.ones(outputs.size(n), dtype=torch.float64))
        for name, head in heads.items():
            self.register_buffer(f"unit{name}", torch.ones(len(head), dtype=torch.float64))
        sizes = [2 * features, *[width] * depth]
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [linear(a, b, generator), nn.SiLU()]
        self.trunk = nn.Sequential(*layers)
        counts = [c * (len(heads[str(k)]) if str(k) in heads else 1) for k, (c, _, _) in enumerate(outputs.parts)]
        self.heads = nn.ModuleList(linear(width, count, generator) for count in counts)
        self.direct = nn.ModuleList(skip_init(nn.Linear, features, count, bias=False) for count in counts)
        for parameter in self.direct.parameters():
            nn.init.zeros_(parameter)
        self.standardise(torch.randn(256, inputs.size(n), generator=torch.Generator().manual_seed(0)))

    def standardise(self, x: Tensor, y: Tensor | None = None) -> None:
        """Takes units from data, and starts the linear map of the invariants at its least-squares solution.

        Invariants, covariants and norms of targets do not transform: no symmetry breaks.

        Arguments:
            x: Some inputs, with shape `(B, size)` or `(B, P, n)`.
            y: Their targets, with shape `(B,)` or `(B, size of outputs)`; classes have no units and are left out.
        """
        with torch.no_grad():
            blocks, plain = self._split(x)
            values = self._features(blocks, plain)
            self.shift.copy_(values.mean(0))
            self.scale.copy_(values.std(0, correction=0).clamp_min(1e-9))
            for name, head in self.covariants.items():
                self.get_buffer(f"unit{name}").copy_(head(blocks).square().mean((0, 2)).sqrt().clamp_min(1e-9))
            if y is not None and y.is_floating_point():
                self._fit(blocks, plain, y.double().reshape(len(x), -1))

    def _fit(self, blocks: list[Tensor], plain: Tensor, y: Tensor) -> None:
        n = self.group.size
        if y.shape[1] != len(self.scale_out):
            raise InputError(f"`y` must have {len(self.scale_out)} numbers for {self.outputs}, got {y.shape[1]}.")
        for (count, p, q), start in zip(self.outputs.parts, self.outputs.offsets(n), strict=True):
            size = n ** (p + q)
            place = slice(start, start + count * size)
            part = y[:, place].unflatten(1, (count, size))
            if not p + q:
                self.shift_out[place] = part.mean((0, 2))
            unit = (part - self.shift_out[place].reshape(count, size)).square().mean((0, 2)).sqrt().clamp_min(1e-12)
            self.scale_out[place] = unit.repeat_interleave(size)
        for parameter in self.direct.parameters():
            nn.init.zeros_(parameter)
        left = (y - self.shift_out) / self.scale_out - self._standard(blocks, plain)
        z = (self._features(blocks, plain) - self.shift) / self.scale
        z = torch.cat([z, torch.ones_like(z[:, :1])], 1)
        for k, ((count, p, q), start) in enumerate(zip(self.outputs.parts, self.outputs.offsets(n), strict=True)):
            size = n ** (p + q)
            target = left[:, start : start + count * size].unflatten(1, (count, size)).movedim(1, -1).flatten(0, 1)
            along = self._along(blocks, k)  # (B, F, size); one row for each target, one column for each coefficient
            rows = (along.mT.unsqueeze(-1) * z[:, None, None]).flatten(2).flatten(0, 1)
            if _ROWS * rows.shape[1] > len(rows):
                continue
            found = torch.linalg.lstsq(rows, target, driver="gelsd").solution.mT.reshape(-1, z.shape[1])
            self.direct.get_parameter(f"{k}.weight").copy_(found[:, :-1])
            self.heads.get_parameter(f"{k}.bias").add_(found[:, -1])

    def _along(self, blocks: list[Tensor], k: int) -> Tensor:
        """What the coefficients of outputs k multiply, with shape `(B, F, size)`: covariants, or 1 for scalars."""
        if str(k) not in self.covariants:
            return self.shift.new_ones(1, 1, 1)
        return self.covariants[str(k)](blocks) / self.get_buffer(f"unit{k}")[:, None]

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(B, size)` or, for vectors, `(B, P, n)` to `(B, size of outputs)`."""
        blocks, plain = self._split(x)
        return (self._standard(blocks, plain) * self.scale_out + self.shift_out).to(x.dtype)

    def _standard(self, blocks: list[Tensor], plain: Tensor) -> Tensor:
        """Outputs in their units."""
        z = (self._features(blocks, plain) - self.shift) / self.scale
        like = next(self.heads.parameters())
        h = self.trunk(torch.cat([z, torch.asinh(z)], 1).to(like))
        parts = []
        for k, (count, p, q) in enumerate(self.outputs.parts):
            coefficients = self.heads[k](h) + self.direct[k](z.to(like))
            if p + q:
                along = self._along(blocks, k).to(like)
                coefficients = (coefficients.unflatten(1, (count, -1)) @ along).flatten(1)
                if self.frame is not None:
                    back = torch.linalg.inv(self._change())
                    coefficients = coefficients @ TensorType(((count, p, q),)).matrix(back).mT.to(like)
            parts.append(coefficients)
        return torch.cat(parts, 1)

    @property
    def conjugated(self) -> Group:
        """The group that the network commutes with: `group`, in the coordinates that were learned."""
        if self.frame is None:
            return self.group
        change = self._change().detach()
        back = torch.linalg.inv(change)
        return Group(back @ self.group.algebra.basis @ change, back @ self.group.cosets @ change)

    def _change(self) -> Tensor:
        assert self.frame is not None
        return torch.matrix_exp(_SPEED * self.frame.double())

    def _features(self, blocks: list[Tensor], plain: Tensor) -> Tensor:
        return torch.cat([self.invariants(blocks)[:, :, 0], plain], 1) if blocks else plain

    def _split(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """Tensors, each `(B, size)`, and scalars `(B, s)`, in double precision."""
        n = self.group.size
        size = self.inputs.size(n)
        x = x.flatten(1).double()
        if x.shape[1] != size:
            raise InputError(f"`x` must have {size} numbers for {self.inputs}, got {x.shape[1]}; check the inputs.")
        blocks, plain, start = [], [x[:, :0]], 0
        for count, p, q in self.inputs.parts:
            width = n ** (p + q)
            part = x[:, start : start + count * width].unflatten(1, (count, width))
            start += count * width
            if not p + q:
                plain.append(part[:, :, 0])
                continue
            if self.frame is not None:
                part = part @ TensorType(((1, p, q),)).matrix(self._change()).mT
            blocks += part.unbind(1)
        return blocks, torch.cat(plain, 1)


class EquivariantSetMLP(nn.Module):
    r"""The same for sets of vectors: neither their order nor padding matters.

    Weights :math:`w_q` of every vector, functions of its invariants with the sum of the set, give pooled vectors
    :math:`V_q = \sum_i w_q x_i` and pooled scalars; an :class:`EquivariantMLP` takes these on.

    Arguments:
        group: A group or an algebra, known or discovered.
        outputs: What goes out, such as `scalar()`.
        width: Width of the hidden layers.
        pooled: Number of pooled vectors.
        degree: As in :class:`EquivariantMLP`; by default 2, and as there for finite groups.
        adapt: As in :class:`EquivariantMLP`.
        generator: Source of the initial weights.

    Example:
        >>> from atlasd.algebra import known
        >>> network = EquivariantSetMLP(known.lorentz(1), 2 * scalar(), width=16)
        >>> network(torch.randn(5, 9, 4)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        group: GroupLike,
        outputs: TensorType,
        width: int = 64,
        *,
        pooled: int = 4,
        degree: int | None = None,
        adapt: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        group = as_group(group)
        degree = 2 if degree is None and group.dimension else degree
        make = partial(EquivariantMLP, degree=degree, generator=generator)
        self.pooled = pooled
        self.weigh = make(group, 2 * vector(), (pooled + width) * scalar(), width, depth=1)
        inner = (pooled + 1) * vector() + width * scalar()
        self.core = make(group, inner, outputs, width)
        n = self.core.group.size
        self.frame = nn.Parameter(torch.zeros(n, n)) if adapt else None
        if adapt and any(p + q for _, p, q in outputs.parts):
            raise InputError("`adapt` must be False for outputs that transform, got True; leave it out.")

    def standardise(self, x: Tensor, y: Tensor | None = None, mask: Tensor | None = None) -> None:
        """Takes the units from some sets `(B, P, n)` and their targets, as :class:`EquivariantMLP` does."""
        with torch.no_grad():
            x, present = self._moved(x, mask)
            self.weigh.standardise(self._pairs(x)[present[..., 0] > 0])
            self.core.standardise(self._pool(x, present), y)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Maps sets `(B, P, n)`, padded with zeros, to `(B, size of outputs)`."""
        kind = x.dtype
        x, present = self._moved(x, mask)
        return self.core(self._pool(x, present)).to(kind)

    def _moved(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if x.ndim != 3 or x.shape[-1] != self.core.group.size:
            raise InputError(
                f"`x` must have shape (B, P, {self.core.group.size}), got {tuple(x.shape)}; pad with zeros."
            )
        present = ((x != 0).any(-1) if mask is None else mask).unsqueeze(-1).to(torch.float64)
        x = x.double() * present
        return (x if self.frame is None else x @ torch.matrix_exp(_SPEED * self.frame.double()).mT), present

    def _pairs(self, x: Tensor) -> Tensor:
        """Each vector beside the sum of its set, `(B, P, 2 n)`."""
        return torch.cat([x, x.sum(1, keepdim=True).expand_as(x)], -1)

    def _pool(self, x: Tensor, present: Tensor) -> Tensor:
        weights = self.weigh(self._pairs(x).flatten(0, 1)).unflatten(0, x.shape[:2]) * present
        count = present.sum(1)
        vectors = torch.einsum("bpq,bpn->bqn", weights[..., : self.pooled], x)
        vectors = torch.cat([x.sum(1, keepdim=True), vectors], 1)
        return torch.cat([vectors.flatten(1), weights[..., self.pooled :].sum(1) / count.clamp_min(1.0)], 1)


def _annihilated(invariants: Covariants, kinds: list[tuple[int, int]], n: int, step: float = 1e-4) -> bool:
    """Whether some generator of GL(n) changes no invariant: of a finite group, some are then missing."""
    generator = torch.Generator().manual_seed(0)
    x = [torch.randn(64, n ** (p + q), generator=generator, dtype=torch.float64) for p, q in kinds]
    rows = []
    for unit in torch.eye(n * n, dtype=torch.float64).unflatten(1, (n, n)):
        ends = []
        for sign in (1, -1):
            g = torch.matrix_exp(sign * step * unit)
            ends.append(
                invariants([b @ TensorType(((1, p, q),)).matrix(g).mT for b, (p, q) in zip(x, kinds, strict=True)])
            )
        rows.append(((ends[0] - ends[1]) / (2 * step)).flatten())
    values = torch.linalg.svdvals(torch.stack(rows))
    return float(values[-1]) < 1e-6 * float(values[0])


def linear(inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Linear:
    """A linear layer as torch starts it, but from an explicit generator."""
    layer = skip_init(nn.Linear, inputs, outputs)
    assert isinstance(layer, nn.Linear)
    bound = 1 / math.sqrt(inputs)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer
