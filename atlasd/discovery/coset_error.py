"""How far many matrices at once are from being symmetries, on one scale."""

from __future__ import annotations

__all__ = ["CosetError", "unit_determinant"]

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.blocks import ChartCriterion
from atlasd.discovery.problem import Problem

_ROWS = 1 << 17  # rows of vector data evaluated together
_TRIM = 0.1
_SEEN = 0.2
_SIZES = (-1.0, -0.5, -0.25, 0.25, 0.5, 1.0)


def unit_determinant(c: Tensor) -> Tensor:
    """Matrices `(*, n, n)` scaled to :math:`|det| = 1`; singular ones become infinite or NaN."""
    return c / torch.linalg.det(c).abs()[..., None, None] ** (1 / c.shape[-1])


@dataclass(frozen=True, eq=False)
class Normal:
    """A least-squares model: cost `(M,)`, gradient `(M, p)` and Gauss-Newton matrix `(M, p, p)`."""

    cost: Tensor
    gradient: Tensor
    curvature: Tensor


class CosetError:
    r"""The relative error of candidates on a fixed set of samples: 0 is exact, 1 is chance.

    On fields, miss and chance are those of :func:`atlasd.discovery.criterion.halves`. On vectors, chance is
    twice the variance of the outputs: what two unrelated samples differ by. The largest tenth of the misses
    counts no more than the rest, so that a jump of the function, such as that of arctan, does not decide.

    Arguments:
        problem: Map, action and data.
        samples: The most samples of the search split to look at.
    """

    def __init__(self, problem: Problem, samples: int) -> None:
        self.problem = problem
        self.size = problem.size
        index = problem.search[:samples]
        self.weights = problem.chart_weights() / problem.chart_weights().sum()
        if problem.is_field:
            self.fields = ChartCriterion(problem, index, ())
            return
        with torch.no_grad():
            self.x, self.y = _widest(problem, problem.patches(index))
        y = self.y.double().flatten(2) if self.y.ndim > 2 else self.y.double()[..., None]
        spread = y.var(dim=0).mean(-1) * self.weights  # (K,)
        self.chance = float((2 * spread.sum()).clamp_min(1e-300))

    def __call__(self, g: Tensor) -> Tensor:
        """Relative errors of matrices `(M, n, n)`, with shape `(M,)`."""
        with torch.no_grad():
            if not len(g):
                return g.new_zeros(0)
            if self.problem.is_field:
                return self._field_errors(g)
            return self._pooled(self._misses(g).square().mean(-1))

    @property
    def tokens(self) -> int:
        """How many vectors each sample holds; 1 on fields."""
        return 1 if self.problem.is_field or self.x.ndim < 4 else int(self.x.shape[2])

    def plain(self, g: Tensor) -> Tensor:
        """Relative errors of `(M, n, n)` in which every sample counts in full, with shape `(M,)`."""
        if self.problem.is_field:
            return self(g)
        with torch.no_grad():
            return self._misses(g).square().mean((1, 2))

    def contrast(self, g: Tensor, algebra: LieAlgebra) -> Tensor:
        """Misses of `g`, `(M, n, n)`, relative to those of wrong matrices near by, with shape `(M,)`.

        The yardstick is the least felt of all directions outside the algebra, moved along by up to 1. A
        function that hardly depends on the angle makes every turn look right on the scale of its variance.
        On fields this is the error itself, whose chance level takes the size of the motion into account.
        """
        errors = self(g)
        return errors if self.problem.is_field else errors / self._yardstick(algebra)

    def normal(self, c: Tensor, step: float = 1e-4) -> Normal:
        """Linearises the misses of `c exp(d)` in d, with shape `(M, n, n)`, by differences."""
        n = self.size
        if self.problem.is_field:
            return self._field_normal(c)
        step = step if self.x.dtype == torch.float64 else 1e-2
        moves = torch.eye(n, dtype=torch.float64) + step * torch.eye(n * n, dtype=torch.float64).view(-1, n, n)
        with torch.no_grad():
            base = self._misses(unit_determinant(c))  # (M, B, Q)
            moved = self._misses(unit_determinant(c[:, None] @ moves).flatten(0, 1)).unflatten(0, (len(c), -1))
        slopes = ((moved - base[:, None]) / step).flatten(2)  # (M, p, B Q)
        flat = base.flatten(1)
        # Cauchy weights: a jump of the function pulls no more than a smooth miss.
        scale = flat.abs().median(dim=1, keepdim=True).values * 3 + 1e-9
        weight = 1 / (1 + (flat / scale).square())
        count = flat.shape[1]
        gradient = torch.einsum("mpr,mr->mp", slopes, weight * flat) / count
        curvature = torch.einsum("mpr,mqr->mpq", slopes * weight[:, None], slopes) / count
        return Normal(self._pooled(base.square().mean(-1)), gradient, curvature)

    def _misses(self, g: Tensor) -> Tensor:
        """Signed misses of vectors in units of chance, `(M, B, K * outputs)`."""
        m, b = len(g), len(self.x)
        parts = []
        for part in g.split(max(1, _ROWS // max(b, 1))):
            each = part.to(self.x.dtype)
            x = self.x.expand(len(part), *self.x.shape).flatten(0, 1)
            y = self.y.expand(len(part), *self.y.shape).flatten(0, 1)
            many = each[:, None, None].expand(len(part), b, self.x.shape[1], *g.shape[1:]).flatten(0, 1)
            miss = self.problem.outputs(self.problem.action.on_input(many, x)) - self.problem.action.on_output(many, y)
            miss = miss.flatten(2) if miss.ndim > 2 else miss[..., None]  # (M B, K, outputs)
            miss = miss.double() * (self.weights * len(self.weights)).sqrt()[:, None]
            parts.append(miss.flatten(1).unflatten(0, (len(part), b)))
        out = torch.cat(parts) if parts else self.x.new_zeros(m, b, 1).double()
        return torch.nan_to_num(out / self.chance**0.5, nan=1e3, posinf=1e3, neginf=-1e3).clamp(-1e3, 1e3)

    @staticmethod
    def _pooled(squares: Tensor) -> Tensor:
        """Means of `(M, B)` in which the largest tenth counts like the largest of the rest."""
        limit = squares.quantile(1 - _TRIM, dim=1, keepdim=True)
        return torch.minimum(squares, limit).mean(1)

    def _yardstick(self, algebra: LieAlgebra) -> float:
        n = self.size
        identity = torch.eye(n, dtype=torch.float64)
        known = torch.cat([algebra.frame().flatten(1), identity.flatten()[None] / n**0.5])
        outside = torch.linalg.svd(known, full_matrices=True).Vh[torch.linalg.matrix_rank(known) :]
        if not len(outside):
            return 1.0
        curvature = self.normal(identity[None]).curvature[0]
        _, vectors = torch.linalg.eigh(outside @ curvature @ outside.mT)
        directions = (vectors.mT @ outside).unflatten(1, (n, n))
        directions = directions / torch.linalg.matrix_norm(directions, ord=2)[:, None, None]
        sizes = torch.tensor(_SIZES, dtype=torch.float64)
        g = torch.matrix_exp(sizes[:, None, None, None] * directions)  # (T, D, n, n)
        felt = self(g.flatten(0, 1)).unflatten(0, (len(sizes), -1)).mean(0)
        felt = felt[felt > 1e-5]  # what is not felt at all is not testable, and no yardstick
        return min(1.0, float(felt.min())) if len(felt) else 1.0

    def _field_errors(self, g: Tensor) -> Tensor:
        miss, chance, spread = (self.fields.elements(g) * self.weights).sum(-1).mean(-1).unbind(1)  # each (M,)
        seen = self.fields.seen(g)
        # Where nothing moves, as under the identity, there is nothing to miss.
        errors = torch.where(chance > 2e-9 * spread, miss / chance.clamp_min(1e-300), 0.0)
        # Nearly all has left the patch: a large miss was only not seen.
        return torch.where(seen < _SEEN, 1.0, errors)

    def _field_normal(self, c: Tensor, step: float = 2e-2) -> Normal:
        """Least squares on misses in units of what moves, which is that of all charts together."""
        n = self.size
        moves = torch.cat([torch.zeros(1, n * n), step * torch.eye(n * n)]).double().view(-1, n, n)
        g = unit_determinant(c[:, None] @ (torch.eye(n, dtype=torch.float64) + moves))  # (M, p + 1, n, n)
        # Inner products of the first miss and of the differences from it, and what moves; sums over blocks.
        products, moved, count = self.fields.misses(g, (self.weights * len(self.weights)).sqrt())
        unit = 1 / (moved / count).clamp_min(1e-30).sqrt()  # (M, p + 1)
        # The slope along k is (u_k d_k + (u_k - u_0) r_0) / step, with d_k = r_k - r_0.
        mix = torch.diag_embed(unit)
        mix[:, 1:, 0] = unit[:, 1:] - unit[:, :1]
        inner = mix @ products @ mix.mT / count
        return Normal(self(unit_determinant(c)), inner[:, 1:, 0] / step, inner[:, 1:, 1:] / step**2)


def _widest(problem: Problem, x: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs and outputs in float64 where the map takes it, as exact functions do."""
    if not problem.is_field:
        try:
            return x.double(), problem.outputs(x.double())
        except RuntimeError:  # the weights of a fitted network are float32
            pass
    return x, problem.outputs(x)
