"""Representations of the rotations and reflections of the plane on channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_NAMES = {0: "scalar", 1: "vector", 2: "symmetric tensor without trace"}


@dataclass(frozen=True, eq=False)
class Weights:
    r"""A representation of the rotations of the plane on channels: :math:`\rho(\theta) = \exp(\theta R)`.

    Arguments:
        matrix: R, whose eigenvalues are whole multiples of i, `(c, c)`.
        mirror: How channels mix when the second axis is reflected, `(c, c)`; `None` where nobody asked.

    Example:
        >>> both = Weights(torch.block_diag(torch.zeros(1, 1), torch.tensor([[0.0, -1.0], [1.0, 0.0]])))
        >>> both.name
        'scalar + vector'
        >>> both.mirrored([torch.pi, 0.0]).name
        'pseudo-scalar + vector'
    """

    matrix: Tensor
    mirror: Tensor | None = None

    @property
    def values(self) -> tuple[int, ...]:
        """Weights, ascending: 0 for a scalar, and k once for every pair of channels that rotates k times as fast."""
        found = sorted(round(abs(v)) for v in torch.linalg.eigvals(self.matrix.double()).imag.tolist())
        turning = [k for k in found if k]
        return tuple([0] * found.count(0) + turning[::2])

    @property
    def name(self) -> str:
        """What the channels are; a scalar that changes its sign under reflections is a pseudo-scalar."""
        names = [_NAMES.get(k, f"weight {k}") for k in self.values]
        if self.mirror is not None:
            # Pairs of channels have trace 0: what is left is the number of scalars less that of pseudo-scalars.
            scalars = self.values.count(0)
            odd = (scalars - round(float(self.mirror.trace()))) // 2
            names[scalars - odd : scalars] = ["pseudo-scalar"] * odd
        return " + ".join(names)

    @property
    def phases(self) -> tuple[tuple[float, ...], ...]:
        """What may be chosen for a reflection: a sign for each scalar, an axis for each pair of channels."""
        turns = tuple(m * torch.pi / 8 for m in range(16))
        return tuple((0.0, torch.pi) if k == 0 else turns for k in self.values)

    def mirrored(self, phases: Sequence[float]) -> Weights:
        r"""The same with a reflection M, such that :math:`M^2 = 1` and :math:`M R M = -R`.

        Arguments:
            phases: For each scalar 0, or pi for a pseudo-scalar; for each pair of channels twice the angle of the axis
                that is kept, 0 for the components of a vector along the axes.
        """
        kernel, turning = self._split()
        both = torch.cat([kernel, turning, turning.conj()], dim=1)
        factors = torch.exp(1j * torch.tensor(phases, dtype=torch.float64))
        s, t = kernel.shape[1], turning.shape[1]
        images = torch.cat([kernel, turning.conj(), turning], dim=1)
        images = images * torch.cat([factors[:s], factors[s:], factors[s:].conj()])
        assert len(factors) == s + t
        return replace(self, mirror=(images @ torch.linalg.inv(both)).real)

    def _split(self) -> tuple[Tensor, Tensor]:
        """Scalars `(c, s)` that are single channels where that is possible, and eigenvectors `(c, t)` of pairs."""
        values, vectors = torch.linalg.eig(self.matrix.double())
        weights = values.imag.round()
        inverse = torch.linalg.inv(vectors)
        project = (vectors[:, weights == 0] @ inverse[weights == 0]).real
        kernel, rest = [], project
        for _ in range(int((weights == 0).sum())):
            kernel.append(project[:, int(rest.norm(dim=0).argmax())])
            frame = torch.linalg.qr(torch.stack(kernel, dim=1)).Q
            rest = project - frame @ (frame.mT @ project)
        order = [int(i) for i in weights.argsort() if weights[i] > 0]
        turning = [_along_axes(vectors[:, i]) for i in order]
        empty = vectors.new_zeros(len(values), 0)
        return (
            torch.stack(kernel, dim=1).to(vectors.dtype) if kernel else empty,
            torch.stack(turning, dim=1) if turning else empty,
        )

    def __call__(self, g: Tensor) -> Tensor:
        """Matrices `(*, c, c)` of rotations and reflections `(*, 2, 2)`: of what is left without stretching."""
        flipped = (torch.linalg.det(g.double()) < 0)[..., None, None]
        g = torch.where(flipped, g * g.new_tensor([1.0, -1.0]), g)
        angle = torch.atan2(g[..., 1, 0] - g[..., 0, 1], g[..., 0, 0] + g[..., 1, 1])
        out = torch.matrix_exp(angle[..., None, None] * self.matrix.to(g.dtype))
        return out if self.mirror is None else torch.where(flipped, out @ self.mirror.to(g.dtype), out)


def _along_axes(vector: Tensor) -> Tensor:
    """An eigenvector `(c,)` with the phase that it has for the components of a vector along the axes, in any order."""
    a, b = vector.abs().topk(2).indices.sort().values
    real = a if float((vector[b] * vector[a].conj()).imag) < 0 else b
    return vector * (vector[real].conj() / vector[real].abs())
