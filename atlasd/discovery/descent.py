"""Finite size: Gauss-Newton on the residual of group elements, for generators on fields and for cosets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.discovery.problem import Problem, Proposal, solve
from atlasd.discovery.residual import Residual, known_inputs, scaled
from atlasd.limits import MOST
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

_FLOOR = 3e-4
"""Residuals below this are interpolation; they do not count as better."""
_STEP = 1e-3
_SMALL, _COARSE, _FINE = (0.3, -0.6), (0.6, -math.pi / 2), (0.8, -0.8, math.pi / 2, -math.pi / 2)
"""Sizes t that lead from random starts, of the first steps, and of the last ones."""
_JUDGED = (math.pi / 2, -math.pi / 2, 1.0, -1.0, 0.5, -0.5)
"""Sizes of the last refinement, as far as data cover them."""
_POLISHED = 64
"""Fields that it looks at."""
_FAN = 12
_HOPELESS = 0.3
"""Relative residual beyond which no further generator is looked for."""
_UNLIKE = 0.02
"""How much an input that is unlike the data counts, beside one that is like them."""
_STRAIGHT = 0.8
"""Share of what a straight line promises above which the next step is longer; a parabola gives half."""
_ITERATIONS = 12
_DISTINCT = math.cos(math.radians(25))


@dataclass(frozen=True, eq=False)
class Model:
    """First-order model of the relative residual of every sample and chart.

    Arguments:
        error: With shape `(M, B, K)`.
        slope: With shape `(M, B, K, s)`.
        curve: Gauss-Newton second derivative, `(M, B, K, s, s)`.
    """

    error: Tensor
    slope: Tensor
    curve: Tensor

    def pooled(self, weights: Tensor) -> Tensor:
        """Mean logarithm over samples and charts, `(M,)`: no sample and no chart can bend the answer alone."""
        return (self.error + _FLOOR).log().mean(1) @ weights / weights.sum()


def model(
    residual: Residual, elements: Tensor, step: float = _STEP, shares: Tensor | None = None, *, labels: bool = False
) -> Model:
    """Model from residuals of elements `(M, T, 1 + s, n, n)`: the first, and those a step away along s directions.

    Arguments:
        shares: How much each size counts for a sample and chart, `(T, B, K)`; all alike by default.
        labels: See `Residual.inner`.
    """
    products, level = residual.inner(elements.flatten(0, 1), labels)
    products, level = (z.unflatten(0, elements.shape[:2]) for z in (products, level))  # (M, T, B, K, p, p)
    # A sample that hardly moves is measured against the others, not against its own noise.
    level = level.clamp_min(1e-300) + 0.1 * level.mean(2, keepdim=True)
    error = products[..., 0, 0] / level
    cross = products[..., 0, 1:] - products[..., :1, 0]
    slope = 2 * cross / step / level[..., None]
    both = products[..., 1:, 1:] - products[..., 1:, :1] - products[..., :1, 1:] + products[..., :1, :1]
    curve = 2 * both / step**2 / level[..., None, None]
    if shares is None:
        return Model(error.mean(1), slope.mean(1), curve.mean(1))
    return Model((error * shares).sum(1), (slope * shares[..., None]).sum(1), (curve * shares[..., None, None]).sum(1))


def _elements(a: Tensor, sizes: tuple[float, ...], directions: Tensor | None = None) -> Tensor:
    """Elements `(M, T, 1 + s, n, n)` for generators `(M, n, n)` and their neighbours along `(M, s, n, n)`."""
    steps = torch.tensor(sizes, dtype=torch.float64)
    near = a[:, None] if directions is None else torch.cat([a[:, None], a[:, None] + _STEP * directions], dim=1)
    return torch.matrix_exp(steps[None, :, None, None, None] * near[:, None])


class FieldSearch:
    """Generators on fields, one after the other, each the best at right angles to those before it.

    Arguments:
        weights: Weights of the charts, `(K,)`, where they are known: 0 for those that are left out.
    """

    def __init__(
        self,
        problem: Problem,
        index: Tensor,
        samples: int,
        starts: int,
        seed: int,
        progress: Progress,
        weights: Tensor | None = None,
    ) -> None:
        self.problem, self.starts, self.progress = problem, starts, progress
        self.fine = Residual(problem, index[:samples], known_inputs(problem, weights=weights), weights)
        self.coarse = self.fine.few(12)
        sharp = problem.sharp
        self.last: Residual | None = None
        if sharp is not problem:
            self.last = Residual(sharp, problem.pick(_POLISHED), self.fine.coverage, weights)
        self.generator = stream(seed, "search", "starts")
        self.weights = torch.ones(problem.charts, dtype=torch.float64) if weights is None else weights
        self.given = weights is not None

    def find(self, first: tuple[Tensor, Tensor] | None, wanted: int | None) -> Proposal:
        """Proposes generators.

        Arguments:
            first: Gram matrices of every chart at first order, `(K, n^2, n^2)` each, or `None` for random starts alone.
            wanted: How many, or `None` for as long as they are promising.
        """
        n = self.problem.size
        everything = self.problem.ambient.directions
        values, hints, untested = torch.zeros(0), torch.zeros(0, n * n, dtype=torch.float64), 0
        if first is not None:
            unit = first[1].diagonal(dim1=-2, dim2=-1).sum(-1).clamp_min(1e-300)
            pooled = [torch.einsum("k,kab->ab", self.weights / unit, part) for part in first]
            values, directions, blind = solve(*pooled)
            untested = len(blind) - n * n + len(everything)
            hints = _mixtures(directions)
            for k in (self.weights > 0).nonzero().flatten()[:6].tolist():
                hints = torch.cat([hints, _mixtures(solve(first[0][k], first[1][k])[1])[:4]])
        found: list[Tensor] = []
        own: Tensor | None = None
        most = len(everything) if wanted is None else min(wanted, len(everything))
        for _ in self.progress.track(range(most), "finite size"):
            span = orthogonal_complement(everything, found)
            a, error = self._best(span, hints)
            if not found and self.problem.charts > 1:
                a, error, own = self._without_outliers(a, error, span)
            if wanted is None and error > _HOPELESS:
                break
            found.append(self._polished(a, span))
        basis = torch.stack(found) if found else torch.zeros(0, n, n, dtype=torch.float64)
        return Proposal(
            basis,
            tuple(values.tolist()),
            chart_basis=None if own is None else own.unsqueeze(1),
            weights=self.weights,
            untested=untested,
            fixed=wanted is not None,
        )

    def _best(self, span: Tensor, hints: Tensor) -> tuple[Tensor, float]:
        """The best generator inside a span `(s, n, n)`, and its pooled relative residual."""
        frame = span.flatten(1)
        random = torch.randn(self.starts, len(span), generator=self.generator, dtype=torch.float64)
        mixes = torch.cat([hints @ frame.mT, random])
        mixes = mixes[mixes.norm(dim=-1) > 1e-3]
        mixes = mixes / mixes.norm(dim=-1, keepdim=True)
        trials = scaled(torch.einsum("ms,sij->mij", mixes, span))
        values = model(self.coarse, _elements(trials, _COARSE)).pooled(self.weights)
        chosen: list[int] = []
        for k in values.argsort().tolist():
            if len(chosen) < 2 and all(abs(float(mixes[k] @ mixes[c])) < _DISTINCT for c in chosen):
                chosen.append(k)
        starts = [trials[k] for k in chosen]
        if not len(hints):
            # At small sizes there are few minima, and at large ones many. First order is the limit of small ones.
            starts += [self._descend(self.coarse, start, span, _SMALL, _ITERATIONS)[0] for start in starts]
        rough = [self._descend(self.coarse, start, span, _COARSE, _ITERATIONS) for start in starts]
        a, error = min(rough, key=lambda pair: pair[1])
        if error > 2 * _HOPELESS:
            return a, error
        return self._descend(self.fine, a, span, _FINE, _ITERATIONS)

    def _polished(self, a: Tensor, span: Tensor) -> Tensor:
        """A generator moved to where the sharpest maps commute best with elements that keep data among data."""
        if self.last is None:
            return a
        covered = self.last.losses(_elements(a[None], _JUDGED).flatten(0, 2)).covered  # (T, B, K)
        share = (covered @ self.weights).mean(1)
        kept = share >= MOST * share.max()
        sizes = tuple(t for t, keep in zip(_JUDGED, kept.tolist(), strict=True) if keep)
        return self._descend(self.last, a, span, sizes, _ITERATIONS, covered[kept], 1e-4)[0]

    def _descend(
        self,
        residual: Residual,
        start: Tensor,
        span: Tensor,
        sizes: tuple[float, ...],
        iterations: int,
        covered: Tensor | None = None,
        enough: float = 1e-3,
    ) -> tuple[Tensor, float]:
        """Damped Gauss-Newton inside a span; the generator, of operator norm 1, and its pooled relative residual."""
        frame, n = span.flatten(1), start.shape[-1]
        c = frame @ start.flatten()
        c = c / c.norm().clamp_min(1e-300)

        def matrix(coefficients: Tensor) -> Tensor:
            return scaled((coefficients @ frame).reshape(n, n))

        if covered is None:
            # A map says most about transformed inputs that are like the data.
            covered = residual.losses(_elements(matrix(c)[None], sizes).flatten(0, 2)).covered + _UNLIKE  # (T, B, K)
        shares = covered / covered.sum(0).clamp_min(1e-3)

        def at(coefficients: Tensor) -> tuple[Model, Tensor]:
            """The model there, and the directions along which it is one."""
            tangent = torch.linalg.svd(coefficients[None])[2][1:]  # the scale of a generator is fixed
            norm = torch.linalg.matrix_norm((coefficients @ frame).reshape(n, n), ord=2)
            along = (tangent @ frame).reshape(1, -1, n, n) / norm
            return model(
                residual,
                _elements(matrix(coefficients)[None], sizes, along),
                shares=shares,
                labels=residual is self.last,
            ), tangent

        damping, stretch = 1e-3, 1.0
        here, tangent = at(c)
        value = float(here.pooled(self.weights)[0])
        for _ in range(iterations if len(span) > 1 else 0):
            level = here.error[0] + _FLOOR
            share = self.weights / self.weights.sum()
            slope = share @ (here.slope[0] / level[..., None]).mean(0)
            curve = torch.einsum("k,kij->ij", share, (here.curve[0] / level[..., None, None]).mean(0))
            size = curve.diagonal().mean().abs().clamp_min(1e-12)
            moved = False
            for _ in range(4):
                step = -torch.linalg.solve(curve + damping * size * torch.eye(len(slope), dtype=torch.float64), slope)
                if float(-(slope @ step) - 0.5 * step @ curve @ step) < enough:
                    break
                step = stretch * step
                step = step * (0.5 / step.norm().clamp_min(0.5))
                trial = c + step @ tangent
                trial = trial / trial.norm()
                there, axes = at(trial)
                new = float(there.pooled(self.weights)[0])
                if new < value:
                    moved = value - new > enough
                    # Edges of classes make residuals that fall in proportion, far beyond what their slopes promise.
                    stretch = 4 * stretch if value - new > -_STRAIGHT * float(slope @ step) else 1.0
                    c, value, here, tangent = trial, new, there, axes
                    damping = max(0.2 * damping, 1e-8)
                    break
                damping, stretch = (damping, 1.0) if stretch > 1 else (min(8 * damping, 1e6), 1.0)
            if not moved:
                break
        return matrix(c), math.exp(value)

    def _without_outliers(self, a: Tensor, error: float, span: Tensor) -> tuple[Tensor, float, Tensor]:
        """Leaves out charts on which the generator that most charts share does not hold, and descends without them.

        The last answer are generators of single charts, `(K, n, n)`.
        """
        own = self._apart(a, span)
        for _ in range(0 if self.given else 3):
            trials = torch.cat([a[None], own[self.weights > 0]])
            errors = model(self.coarse, _elements(trials, _COARSE)).error.add(_FLOOR).log().mean(1)  # (M, K)
            # Charts are counted: the generator that holds on most of them is the one to start from.
            best = int(errors.median(1).values.argmin())
            typical = float(errors[best][self.weights > 0].median())
            bad = (errors[best] > max(typical + math.log(20.0), math.log(0.1))) & (self.weights > 0)
            if not bool(bad.any()) or 2 * int(((self.weights > 0) & ~bad).sum()) < len(self.weights):
                break
            self.weights = torch.where(bad, 0.0, self.weights)
            a, error = self._descend(self.coarse, trials[best], span, _COARSE, _ITERATIONS)
            a, error = self._descend(self.fine, a, span, _FINE, _ITERATIONS)
            own = self._apart(a, span)
        return a, error, own

    def _apart(self, a: Tensor, span: Tensor, iterations: int = 4) -> Tensor:
        """Each chart's own generator near `a`, `(K, n, n)`: one Gauss-Newton problem for each chart."""
        charts, n = self.problem.charts, self.problem.size
        frame = span.flatten(1)
        c = (frame @ a.flatten()).expand(charts, -1).clone()
        c = c / c.norm(dim=-1, keepdim=True)
        for _ in range(iterations):
            tangent = torch.linalg.svd(c[:, None])[2][:, 1:]  # (K, s - 1, s)
            here = scaled((c @ frame).reshape(-1, n, n))
            norm = torch.linalg.matrix_norm((c @ frame).reshape(-1, n, n), ord=2)
            along = torch.einsum("kij,jm->ikm", tangent, frame).reshape(-1, charts, n, n) / norm[:, None, None]
            near = torch.cat([here[None], here + _STEP * along])  # (1 + s, K, n, n)
            steps = torch.tensor(_COARSE, dtype=torch.float64)
            elements = torch.matrix_exp(steps[:, None, None, None, None] * near)[None]
            there = model(self.coarse, elements)
            level = there.error[0] + _FLOOR
            slope = (there.slope[0] / level[..., None]).mean(0)
            curve = (there.curve[0] / level[..., None, None]).mean(0)
            size = curve.diagonal(dim1=-2, dim2=-1).mean(-1).abs().clamp_min(1e-12)
            eye = torch.eye(slope.shape[-1], dtype=torch.float64)
            step = -torch.linalg.solve(curve + 1e-2 * size[:, None, None] * eye, slope.unsqueeze(-1)).squeeze(-1)
            step = step * (0.3 / step.norm(dim=-1, keepdim=True).clamp_min(0.3))
            c = c + torch.einsum("ki,kij->kj", step, tangent)
            c = c / c.norm(dim=-1, keepdim=True)
        return scaled((c @ frame).reshape(-1, n, n))


def _mixtures(directions: Tensor) -> Tensor:
    """All directions of the plane of the two best, which first order often leaves open, and the next few."""
    if len(directions) < 2:
        return directions
    a, b = torch.linalg.qr(directions[:2].mT).Q.mT
    angles = torch.arange(_FAN, dtype=torch.float64) * (math.pi / _FAN)
    plane = angles.cos()[:, None] * a + angles.sin()[:, None] * b
    pairs = torch.stack([a, b, (a + b) / 2**0.5, (a - b) / 2**0.5])
    return torch.cat([pairs, plane, directions[2:6]])


def orthogonal_complement(span: Tensor, found: list[Tensor]) -> Tensor:
    """Orthonormal basis of the part of `span` orthogonal to what was found."""
    if not found:
        return span
    frame = span.flatten(1)
    taken = torch.linalg.qr(torch.stack(found).flatten(1).mT).Q.mT
    _, s, v = torch.linalg.svd(frame - frame @ taken.mT @ taken, full_matrices=False)
    return v[s > 1e-6].reshape(-1, *span.shape[1:])
