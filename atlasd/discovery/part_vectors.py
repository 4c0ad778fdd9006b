"""The residual of vectors: many elements at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.discovery.problem import Function, Part, null_loss
from atlasd.geometry.polynomial import PolynomialAction
from atlasd.runtime.random import stream

_ROWS = 1 << 16
"""Rows of vector data evaluated together."""


def _harmonics(size: int) -> tuple[Function, ...]:
    """Kernels of harmonic polynomials of degree 1, 2 and 3 on a sphere: none holds what one of lower degree does."""
    return lambda t: t, lambda t: t**2 - 1 / size, lambda t: t**3 - 3 / (size + 2) * t


class VectorPart(Part):
    """Vectors: many elements at once."""

    _here: Tensor | None = None  # number of the sample of the coverage that is nearest to each

    def _sides(self, g: Tensor, functions: Sequence[Function], unrelated: bool = False) -> tuple[Tensor, Tensor]:
        """Transformed inputs `(M, B, *in)` and predictions transformed back, `(M, B, O)`."""
        x, action = self.data[0], self.problem.action
        moved, back = [], []
        for part in g.split(max(1, _ROWS // max(len(x), 1))):
            many = part[:, None, None].expand(len(part), *x.shape[:2], *g.shape[1:]).flatten(0, 1).to(x.dtype)
            here = x.expand(len(part), *x.shape).flatten(0, 1)
            there = action.on_input(many, here)
            if unrelated:
                step = there.unflatten(0, (len(part), -1)) - x
                there = (x + self._unrelated(step)).flatten(0, 1)
            y = self._brought_back(many, here, self.predict(there, functions))
            moved.append(there.squeeze(1).unflatten(0, (len(part), -1)))
            back.append(y.flatten(1).double().unflatten(0, (len(part), -1)))
        return torch.cat(moved), torch.cat(back)

    def _brought_back(self, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Outputs `(B, 1, O)` that belong to vectors transformed by `g` `(B, 1, n, n)`, as they are at `x` itself."""
        action = self.problem.action
        if isinstance(action, PolynomialAction):
            return action.bring_back(g, x, y)
        if getattr(action, "rho_out", True) is None:
            return y
        return action.on_output(torch.linalg.inv(g.double()).to(y.dtype), y)

    def _unrelated(self, step: Tensor) -> Tensor:
        """Displacements `(M, B, *in)` as long as given ones that have nothing to do with the samples they displace.

        Each is that of another sample. Of a translation all are alike: what they have in common is turned into a random
        direction for every sample.
        """
        if not self.problem.shifts:
            return step.roll(1, dims=1)
        common = step.mean(1, keepdim=True)
        drawn = torch.randn(step.shape[1:], generator=stream(0, "unrelated"), dtype=torch.float64)
        drawn = drawn / drawn.flatten(1).norm(dim=1).reshape(-1, *[1] * (drawn.ndim - 1))
        length = common.flatten(2).norm(dim=2).reshape(-1, *[1] * (step.ndim - 1))
        return (step - common).roll(1, dims=1) + length * drawn.to(step.dtype)

    def losses(self, g: Tensor, unrelated: bool = False) -> tuple[Tensor, ...]:
        """Fields of `Losses`."""
        x, y, p = self.data
        y, p = y.flatten(1).double(), p.flatten(1).double()
        moved, b = self._sides(g, self.problem.functions, unrelated)
        covered = b.isfinite().all(-1)
        b = torch.where(covered[..., None], b, 0.0)
        through = (y - b).square().sum(-1)
        plain = (y - p).square().sum(-1).expand_as(through)
        if self.coverage is not None and not unrelated:
            near, there = (z.unflatten(0, moved.shape[:2]) for z in self.coverage(moved.flatten(0, 1)))
            covered = covered & near
            # The errors of a map cancel only where they are equal: it may clearly be worse where it is asked.
            if self._here is None:
                self._here = self.coverage.nearest(x[:, 0])[1]
            plain = plain + self.coverage.worse(there, self._here, covered.double())
        c = covered.double()
        number = c.sum(1, keepdim=True)  # (M, 1)

        def mean(z: Tensor) -> Tensor:
            return torch.einsum("mb,mb...->m...", c, z.expand(len(g), *z.shape[-y.ndim :])) / number.clamp_min(
                1.0
            ).reshape(-1, *[1] * (y.ndim - 1))

        mean_b, mean_y = mean(b)[:, None], mean(y)[:, None]  # (M, 1, O)
        size_b, size_y = mean(b.square())[:, None], mean(y.square())[:, None]
        squares = (y.square() - 2 * y * mean_b + size_b).sum(-1)
        pulls = (size_y - 2 * b * mean_y + b.square()).sum(-1)
        null = null_loss(squares, pulls, (c, number), through)
        variance = (x - x.mean(0)).double().square().sum() / len(x)
        step = (moved.unflatten(1, (len(x), -1)).squeeze(2) - x.squeeze(1)).double().flatten(2).square().sum(-1)
        displaced = step.nan_to_num(0.0, 0.0, 0.0).mean(1) / (2 * variance).clamp_min(1e-300)
        return tuple(z.unsqueeze(-1) for z in (through, plain, null, c, displaced))

    def fit_variance(self, g: Tensor) -> Tensor:
        """See `Residual.fit_variance`; `(M, B, 1)`, where data are."""
        x, functions = self.data[0], self.problem.functions
        moved, _ = self._sides(g, functions[:1])
        covered = torch.ones(moved.shape[:2], dtype=torch.bool)
        if self.coverage is not None:
            covered = self.coverage(moved.flatten(0, 1))[0].unflatten(0, moved.shape[:2])
        here = torch.stack([self.predict(x, [f]).flatten(1).double() for f in functions])  # (F, B, O)
        there = torch.stack([self._sides(g, [f])[1] for f in functions])  # (F, M, B, O)
        more = there.var(0, correction=0).sum(-1) - here.var(0, correction=0).sum(-1)
        return (covered * (len(functions) - 1) * more.nan_to_num(0.0, 0.0, 0.0)).unsqueeze(-1)

    def permuted(self, projectors: Tensor) -> Tensor:
        """Excess loss when the part of each input in the span of a projector is that of another sample, `(M, B, 1)`."""
        x, y, p = self.data
        y, p = y.flatten(1).double(), p.flatten(1).double()
        plain = (y - p).square().sum(-1)
        rows = []
        for q in projectors.to(x.dtype):
            swapped = self.predict(x + (x.roll(1, dims=0) - x) @ q.mT, self.problem.functions)
            rows.append((y - swapped.flatten(1).double()).square().sum(-1) - plain)
        return torch.stack(rows).nan_to_num(1e30).unsqueeze(-1)

    def inner(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Inner products of residuals near each other, `(M, B, 1, p, p)`, and the level of the first, `(M, B, 1)`."""
        p = self.data[2].flatten(1).double()
        _, b = self._sides(g.flatten(0, 1), self.problem.functions)
        r = (b - p).unflatten(0, g.shape[:2])  # (M, p, B, O)
        r = r.nan_to_num(1e3, 1e3, -1e3).clamp(-1e3, 1e3)
        spread = 2 * (p - p.mean(0)).square().sum(-1).mean().clamp_min(1e-300)
        level = spread.expand(len(g), p.shape[0])
        return torch.einsum("mpbo,mqbo->mbpq", r, r).unsqueeze(2), level.unsqueeze(-1)

    def recovered(self, g: Tensor, planted: Sequence[tuple[Any, Sequence[Function]]]) -> Tensor:
        """See `Residual.recovered`; sums over samples, `(P, M, 1, 4)`."""
        x, _, p = self.data
        moved, base = self._sides(g, self.problem.functions)
        covered = torch.ones(moved.shape[:2], dtype=torch.bool)
        if self.coverage is not None:
            covered = self.coverage(moved.flatten(0, 1))[0].unflatten(0, moved.shape[:2])
        p = p.flatten(1).double()
        rows = []
        for plant, functions in planted:
            after, added = self.predict(x, functions).flatten(1).double() - p, self._added(plant)
            seen = self._sides(g, functions)[1] - base - after
            here = added(x).flatten(1).double()
            there = self._sides(g, [added])[1] - here
            # Where g stretches outputs, it stretches errors of any place alike.
            error = torch.stack([self._stretched(one, after - here) for one in g])
            pairs = ((seen, there), (there, there), (seen - there,) * 2, (error,) * 2)
            rows.append(torch.stack([(covered[..., None] * a * b).sum((1, 2)) for a, b in pairs], dim=-1))
        return torch.stack(rows).unsqueeze(2)

    def _stretched(self, g: Tensor, y: Tensor) -> Tensor:
        """Outputs `(B, O)` as the inverse of an element `(n, n)` transforms them."""
        x = self.data[0]
        y = y.reshape(self.data[1].shape)
        many = g.expand(*x.shape[:2], *g.shape).to(x.dtype)
        return self._brought_back(many, x, y.to(x.dtype)).flatten(1).double()

    def error_change(self, g: Tensor) -> Tensor:
        """See `Residual.error_change`; `(M, 3)`, for monomials of degree 1, 2 and 3."""
        x, y, p = self.data
        left = (y - p).flatten(1).double()
        left = left / left.square().mean(0).sqrt().clamp_min(1e-300)
        both = (left @ left.mT).fill_diagonal_(0.0)  # a sample is never paired with itself
        moved, _ = self._sides(g, self.problem.functions)
        here = functional.normalize(x.flatten(1).double(), dim=1)
        rows = []
        for there in functional.normalize(moved.flatten(2).double(), dim=2):
            same, cross, other = here @ here.mT, here @ there.mT, there @ there.mT
            # Inner products of what features of one degree change by under g.
            kernels = [k(same) - k(cross) - k(cross.mT) + k(other) for k in _harmonics(here.shape[1])]
            terms = torch.stack([both * k for k in kernels]).flatten(1)
            rows.append(terms.sum(1) / (2 * terms.square().sum(1)).sqrt().clamp_min(1e-300))
        return torch.stack(rows)

    def _added(self, plant: Any) -> Function:
        """What was added to the targets, as a map of inputs."""
        if not self.problem.classes:
            return lambda x: plant.size * plant.function(x)
        # Of classes, what would have been added to labels as they are predicted.
        return lambda x: plant.shift(x, self.predict(x, self.problem.functions))

    def slopes(self) -> tuple[Tensor, Tensor]:
        """Gram matrices of the residual at first order and of what unrelated samples give, each `(1, n^2, n^2)`."""
        x, _, p = self.data
        n, action = self.problem.size, self.problem.action
        basis = torch.eye(n * n, dtype=torch.float64).reshape(-1, n, n)
        tokens = x if x.ndim == 4 else x.unsqueeze(2)
        slope = self._gradients(tokens, x.ndim == 4)  # (O, B, P, n)
        v = tokens[:, 0].double()
        steepness = float(slope.square().sum((0, 2, 3)).mean()) / v.shape[-1]
        if self.problem.shifts:
            slope, v = functional.pad(slope, (0, n - v.shape[-1])), action.columns(v)  # type: ignore[attr-defined]
        j = torch.einsum("obpi,bpj->boij", slope, v).flatten(2)  # (B, O, n^2)
        if isinstance(action, PolynomialAction):
            t = torch.stack([action.output_change(a, x, p)[:, 0] for a in basis], dim=-1).double()
        else:
            t = torch.stack([action.output_generator(a.to(p.dtype), p)[:, 0] for a in basis], dim=-1).double()
        r = j - t.flatten(1, -2) if t.ndim > 3 else j - t
        count = len(x)
        residual = torch.einsum("boa,boc->ac", r, r) / count
        # Gradients of one sample met by inputs of another, never by its own.
        both = torch.einsum("obpi,obqk->piqk", slope, slope), torch.einsum("bpj,bql->pjql", v, v)
        pairs = torch.einsum("piqk,pjql->ijkl", *both).reshape(n * n, n * n)
        own = torch.einsum("obpi,obqk,bpj,bql->ijkl", slope, slope, v, v).reshape(n * n, n * n) if count < 200 else 0.0
        null = (pairs - own) / (count * (count - 1))
        if self.problem.shifts:
            null = self._null_with_shifts(slope, v, steepness)
        null = null + torch.einsum("boa,boc->ac", t, t) / count
        return residual[None], null[None]

    def _null_with_shifts(self, slope: Tensor, v: Tensor, steepness: float) -> Tensor:
        """Null level `(n^2, n^2)` of generators that may displace all vectors alike: see `_unrelated`.

        Arguments:
            slope: Derivatives of all outputs, `(O, B, P, n)`.
            v: What generators multiply, `(B, P, n)`.
            steepness: Mean square of the derivative along a random direction, of all tokens together.
        """
        n, common = v.shape[-1], v.mean((0, 1))
        v = v - common
        both = torch.einsum("obpi,obqk->piqk", slope, slope), torch.einsum("bpj,bql->pjql", v, v)
        null = torch.einsum("piqk,pjql->ijkl", *both) / len(v) ** 2
        felt = torch.zeros(n, dtype=torch.float64)
        felt[: self.problem.samples.size] = steepness
        null = null + torch.einsum("ik,j,l->ijkl", torch.diag(felt), common, common)
        return null.reshape(n * n, n * n)

    def _gradients(self, tokens: Tensor, is_set: bool) -> Tensor:
        """Derivatives of all outputs, `(O, B, P, n)`; by differences where a function has none."""
        with torch.enable_grad():
            z = tokens.detach().clone().requires_grad_()
            fold = self.problem.fold[self.index]
            rows: list[Tensor] = []
            for k, function in enumerate(self.problem.functions):
                mine = (fold == k).nonzero().flatten() if len(self.problem.functions) > 1 else torch.arange(len(z))
                if len(mine):
                    y = function((z if is_set else z.squeeze(2))[mine]).flatten(1)
                    rows.append(torch.stack([self._pull(y[:, o], z) for o in range(y.shape[1])]))
            slope = torch.stack(rows).sum(0)[:, :, 0].double()
        if bool(slope.isfinite().all()) and float(slope.abs().max()) > 0:
            return slope
        step = 1e-4 if tokens.dtype == torch.float64 else 1e-2
        out = []
        for q in range(tokens.shape[2] * tokens.shape[3]):
            e = torch.zeros_like(tokens[:1]).flatten()
            e[q] = step
            pair = [tokens + s * e.reshape(tokens[:1].shape) for s in (1.0, -1.0)]
            up, down = (self.predict(z if is_set else z.squeeze(2), self.problem.functions) for z in pair)
            out.append((up - down).flatten(1).double() / (2 * step))
        return torch.stack(out, dim=-1).movedim(1, 0).unflatten(-1, tokens.shape[2:]).nan_to_num(0.0, 0.0, 0.0)

    @staticmethod
    def _pull(y: Tensor, z: Tensor) -> Tensor:
        if not y.requires_grad:
            return torch.zeros_like(z)
        (slope,) = torch.autograd.grad(y.sum(), z, retain_graph=True, allow_unused=True)
        return torch.zeros_like(z) if slope is None else slope
