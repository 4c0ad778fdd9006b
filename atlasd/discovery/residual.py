r"""The residual :math:`f(g x) - \rho(g) f(x)`: the one place where it is written.

For elements of a group, or for generators at first order, it gives what searches, cosets, the verdict, the pictures of
the report and the audit of a model reduce. Charts are worked on block by block, wherever the workers are.
"""

from __future__ import annotations

__all__ = ["Losses", "Residual", "equivariance_error", "scaled", "sides"]

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.coverage import FieldCoverage, VectorCoverage, disc_rows
from atlasd.discovery.problem import Function, Problem
from atlasd.errors import InputError
from atlasd.geometry.actions import Action, GridAction
from atlasd.geometry.resample import pixel_grid
from atlasd.prediction.predictor import needed
from atlasd.prediction.trivial import centre_crop
from atlasd.runtime.executor import About, Shared, current_workers

_ROWS = 1 << 16
"""Rows of vector data evaluated together."""
_VALUES = 1 << 23
"""Numbers of transformed fields in memory at a time."""
_LIVE = 8
"""Blocks of charts whose data stay in memory between questions."""


def scaled(a: Tensor) -> Tensor:
    """Generators `(*, n, n)` with operator norm 1: a rotation's t is then its angle in radians."""
    return a / torch.linalg.matrix_norm(a, ord=2)[..., None, None].clamp_min(1e-300)


def sides(function: Function, action: Action, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    r"""The two sides of the question, :math:`f(g x)` and :math:`\rho(g) y`.

    Arguments:
        function: The map f.
        action: How g transforms inputs and outputs.
        x: Inputs.
        y: Outputs that belong to them: labels, or f(x).
        g: One matrix `(n, n)`, or one for each leading axis of `x`.
    """
    return function(action.on_input(g, x)), action.on_output(g, y)


def equivariance_error(
    function: Callable[[Tensor], Tensor],
    action: Action,
    x: Tensor,
    g: Tensor,
    *,
    distance: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    r"""Measures how far :math:`f(g \cdot x)` lies from :math:`g \cdot f(x)`.

    Arguments:
        function: The map f.
        action: How g transforms inputs and outputs.
        x: Inputs, with shape `(B, *)` or `(B, K, *)`; whatever the function takes.
        g: One matrix `(n, n)`, or one for each leading axis of `x`.
        distance: Maps two outputs to one error per sample (and chart); the mean squared difference by default.

    Returns:
        The errors, differentiable with respect to `g`.

    Example:
        >>> from atlasd.geometry.actions import VectorAction
        >>> rotation = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> norm = lambda x: x.norm(dim=-1)
        >>> equivariance_error(norm, VectorAction(), torch.tensor([[3.0, 4.0]]), rotation)
        tensor([0.])
    """
    if g.shape[-1] != g.shape[-2]:
        raise InputError(f"`g` must have shape (..., n, n), got {tuple(g.shape)}.")
    # The second side does not depend on g through the function: its graph would cost memory for nothing.
    with torch.no_grad():
        y = function(x)
    left, right = sides(function, action, x, y, g)
    if distance is not None:
        return distance(left, right)
    squares = (left - right).square()
    return squares if squares.ndim < 3 else squares.flatten(2).mean(-1)


@dataclass(frozen=True, eq=False)
class Losses:
    r"""Squared losses of every element, sample and chart, `(M, B, K)`.

    Arguments:
        through: Of the label, when one predicts through g: :math:`|y - g^{-1} f(g x)|^2`.
        plain: Of the label, when one predicts plainly: :math:`|y - f(x)|^2`.
        null: The same as `through` with inputs and labels of different samples. The mean over samples is that over
            all pairs; single values are such that their spread is that of the mean.
        covered: Whether the transformed input lies where data are, as 0 or 1.
        displaced: How far inputs are moved: the mean squared change over twice their variance, `(M,)`.
    """

    through: Tensor
    plain: Tensor
    null: Tensor
    covered: Tensor
    displaced: Tensor

    @property
    def excess(self) -> Tensor:
        """What predicting through g costs beyond predicting plainly; only where covered."""
        return self.covered * (self.through - self.plain)

    @property
    def scale(self) -> Tensor:
        """What it costs to know nothing; only where covered."""
        return self.covered * (self.null - self.plain)

    def strength(self, weights: Tensor | None = None) -> Tensor:
        """Strength of every element, `(M,)`: a ratio of amplitudes, 0 for a symmetry, 1 for what takes no notice of g.

        Arguments:
            weights: Weights of the charts, `(K,)`.
        """
        w = torch.ones(self.plain.shape[-1], dtype=torch.float64) if weights is None else weights
        ratio = (self.excess @ w).sum(-1) / (self.scale @ w).sum(-1).clamp_min(1e-300)
        return ratio.clamp_min(0.0).sqrt()


def _null(squares: Tensor, pulls: Tensor, counts: tuple[Tensor, Tensor], through: Tensor) -> Tensor:
    """Loss over pairs of different samples, from sums that know no pairs.

    Arguments:
        squares: Loss of each label against all predictions, in the mean, `(M, B, K)`.
        pulls: Loss of each prediction against all labels, in the mean, `(M, B, K)`.
        counts: Whether a sample counts, `(M, B, K)`, and how many do, `(M, 1, K)`.
        through: Loss of each label against its own prediction, `(M, B, K)`.
    """
    covered, number = counts
    other = (number - 1).clamp_min(1.0)
    # A sample is never paired with itself.
    squares, pulls = (number * squares - through) / other, (number * pulls - through) / other
    mean = (covered * squares).sum(1, keepdim=True) / number.clamp_min(1.0)
    return squares + pulls - mean


class _Part:
    """One block of charts with its data, which are read where they are needed."""

    def __init__(self, problem: Problem, index: Tensor, coverage: Any) -> None:
        self.problem, self.index, self.coverage = problem, index, coverage
        self._data: tuple[Tensor, Tensor, Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None}

    def forget(self) -> None:
        """Drops the data; they are read again when needed."""
        self._data = None

    @property
    def data(self) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs `(B, K, *in)`, labels and predictions `(B, K, *out)`, both without the pointwise part."""
        if self._data is None:
            x = self.problem.inputs(self.index)
            y = self.problem.labels(self.index, x)
            p = self.predict(x, self.problem.functions)
            if self.problem.pointwise is not None:
                y = centre_crop(y, tuple(p.shape[3:]))
                base = self.problem.pointwise(x, tuple(p.shape[3:]))
                y, p = y - base, p - base
            elif self.problem.is_field:
                y = centre_crop(y, tuple(p.shape[3:]))
            self._data = x, y.to(p.dtype), p
        return self._data

    def predict(self, x: Tensor, functions: Sequence[Function]) -> Tensor:
        """Outputs for inputs `(B, K, *in)` or `(M B, K, *in)` by the map that each sample was held out of."""
        with torch.no_grad():
            if len(functions) == 1:
                return functions[0](x)
            fold = self.problem.fold[self.index]
            fold = fold.repeat(len(x) // len(fold))
            out: Tensor | None = None
            for k, function in enumerate(functions):
                mine = (fold == k).nonzero().flatten()
                if not len(mine):
                    continue
                part = function(x[mine])
                out = part.new_zeros(len(x), *part.shape[1:]) if out is None else out
                out[mine] = part
            assert out is not None
            return out


class _VectorPart(_Part):
    """Vectors: many elements at once."""

    def _sides(self, g: Tensor, functions: Sequence[Function], astray: bool = False) -> tuple[Tensor, Tensor]:
        """Transformed inputs `(M, B, *in)` and predictions transformed back, `(M, B, O)`."""
        x, action = self.data[0], self.problem.action
        moved, back = [], []
        for part in g.split(max(1, _ROWS // max(len(x), 1))):
            many = part[:, None, None].expand(len(part), *x.shape[:2], *g.shape[1:]).flatten(0, 1).to(x.dtype)
            there = action.on_input(many, x.expand(len(part), *x.shape).flatten(0, 1))
            if astray:
                step = there.unflatten(0, (len(part), -1)) - x
                there = (x + step.roll(1, dims=1)).flatten(0, 1)
            y = self.predict(there, functions)
            if getattr(action, "rho_out", True) is not None:
                y = action.on_output(torch.linalg.inv(many.double()).to(y.dtype), y)
            moved.append(there.squeeze(1).unflatten(0, (len(part), -1)))
            back.append(y.flatten(1).double().unflatten(0, (len(part), -1)))
        return torch.cat(moved), torch.cat(back)

    def losses(self, g: Tensor, astray: bool = False) -> tuple[Tensor, ...]:
        """Fields of `Losses`."""
        x, y, p = self.data
        y, p = y.flatten(1).double(), p.flatten(1).double()
        moved, b = self._sides(g, self.problem.functions, astray)
        covered = b.isfinite().all(-1)
        b = torch.where(covered[..., None], b, 0.0)
        if self.coverage is not None and not astray:
            near = self.coverage(moved.flatten(0, 1)).unflatten(0, moved.shape[:2])
            covered = covered & near
        c = covered.double()
        through = (y - b).square().sum(-1)
        plain = (y - p).square().sum(-1).expand_as(through)
        number = c.sum(1, keepdim=True)  # (M, 1)

        def mean(z: Tensor) -> Tensor:
            return torch.einsum("mb,mb...->m...", c, z.expand(len(g), *z.shape[-y.ndim :])) / number.clamp_min(
                1.0
            ).reshape(-1, *[1] * (y.ndim - 1))

        mean_b, mean_y = mean(b)[:, None], mean(y)[:, None]  # (M, 1, O)
        size_b, size_y = mean(b.square())[:, None], mean(y.square())[:, None]
        squares = (y.square() - 2 * y * mean_b + size_b).sum(-1)
        pulls = (size_y - 2 * b * mean_y + b.square()).sum(-1)
        null = _null(squares, pulls, (c, number), through)
        variance = (x - x.mean(0)).double().square().sum() / len(x)
        step = (moved.unflatten(1, (len(x), -1)).squeeze(2) - x.squeeze(1)).double().flatten(2).square().sum(-1)
        displaced = step.nan_to_num(0.0, 0.0, 0.0).mean(1) / (2 * variance).clamp_min(1e-300)
        return tuple(z.unsqueeze(-1) for z in (through, plain, null, c, displaced))

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
        """What is seen of what was planted, and its square, `(P, M, 2)`."""
        x, _, p = self.data
        base = self._sides(g, self.problem.functions)[1] - p.flatten(1).double()
        rows = []
        for plant, functions in planted:
            seen = self._sides(g, functions)[1] - self.predict(x, functions).flatten(1).double() - base
            truth = [self._added(plant)]
            there = self._sides(g, truth)[1] - truth[0](x).flatten(1).double()
            rows.append(torch.stack([(seen * there).sum((1, 2)), there.square().sum((1, 2))], dim=-1))
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
        j = torch.einsum("obpi,bpj->boij", slope, v).flatten(2)  # (B, O, n^2)
        t = torch.stack([action.output_generator(a.to(p.dtype), p)[:, 0] for a in basis], dim=-1).double()
        r = j - t.flatten(1, -2) if t.ndim > 3 else j - t
        count = len(x)
        residual = torch.einsum("boa,boc->ac", r, r) / count
        # Gradients of one sample met by inputs of another, never by its own.
        both = torch.einsum("obpi,obqk->piqk", slope, slope), torch.einsum("bpj,bql->pjql", v, v)
        pairs = torch.einsum("piqk,pjql->ijkl", *both).reshape(n * n, n * n)
        own = torch.einsum("obpi,obqk,bpj,bql->ijkl", slope, slope, v, v).reshape(n * n, n * n) if count < 200 else 0.0
        null = (pairs - own) / (count * (count - 1)) + torch.einsum("boa,boc->ac", t, t) / count
        return residual[None], null[None]

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


class _FieldPart(_Part):
    """Fields: as many elements at a time as memory allows, all samples and charts of the block together."""

    def forget(self) -> None:
        """Drops the data; they are read again when needed."""
        self._data, self._splines = None, None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None, "_splines": None}

    _splines: tuple[Any, Any, tuple[int, ...]] | None = None

    @property
    def splines(self) -> tuple[Any, Any, tuple[int, ...]]:
        """Coefficients of inputs, and of labels, predictions and their difference; shape of the inputs that count."""
        if self._splines is None:
            x, y, p = self.data
            action = self.problem.action
            assert isinstance(action, GridAction)
            shape = looked_at(self.problem, x)
            self._splines = action.spline(x), action.spline(torch.cat([y, p], dim=2)), shape
        return self._splines

    def _chunks(self, g: Tensor) -> list[Tensor]:
        x, _, _ = self.data
        room = math.prod(self.splines[2])
        return list(g.split(max(1, _VALUES // max(x.shape[0] * x.shape[1] * x.shape[2] * room, 1))))

    def _sides(self, g: Tensor, functions: Sequence[Function]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Transformed inputs, outputs for them, transformed labels and predictions, and the window.

        Elements are `(M, n, n)`, or one for each chart, `(M, K, n, n)`; all answers have leading axes `(M, B, K)`.
        """
        problem, d = self.problem, self.problem.size
        x, _, p = self.data
        action, (fields, sides_, shape) = problem.action, self.splines
        assert isinstance(action, GridAction)
        each = g[:, None, None] if g.ndim == 3 else g[:, None]
        moved = action.input_at(each, fields, pixel_grid(shape, dtype=torch.float64)).unflatten(-1, shape)
        moved = moved.expand(len(g), *x.shape[:3], *shape)
        left = self.predict(moved.flatten(0, 1), functions)
        out = tuple(p.shape[-d:])
        if problem.pointwise is not None:
            left = left - problem.pointwise(moved.flatten(0, 1), out)
        left = left.unflatten(0, (len(g), -1))
        right = action.output_at(each, sides_, pixel_grid(out, dtype=torch.float64)) if action.rho_out is None else None
        if right is None:
            two = self._both(each, out)
        else:
            two = right.unflatten(-1, out).expand(len(g), *x.shape[:2], 2 * p.shape[2], *out)
        mask = problem.window(out, g, tuple(x.shape[-d:])).to(left.dtype)
        mask = mask[:, None, None, None] if g.ndim == 3 else mask[:, None, :, None]  # (M, 1, 1 or K, 1, *out)
        return moved, left, two, mask / mask.flatten(-d).sum(-1)[(..., *[None] * d)].clamp_min(1e-9)

    def _both(self, each: Tensor, out: tuple[int, ...]) -> Tensor:
        """Labels and predictions with channels that transform, side by side."""
        action = self.problem.action
        assert isinstance(action, GridAction)
        _, y, p = self.data
        points = pixel_grid(out, dtype=torch.float64)
        parts = [action.output_at(each, action.spline(z), points).unflatten(-1, out) for z in (y, p)]
        shape = (each.shape[0], *y.shape[:2])
        return torch.cat([z.expand(*shape, *z.shape[3:]) for z in parts], dim=3)

    def losses(self, g: Tensor, astray: bool = False) -> tuple[Tensor, ...]:
        """Fields of `Losses`."""
        rows = [self._losses(part) for part in self._chunks(g)]
        return tuple(torch.cat(column) for column in zip(*rows, strict=True))

    def _losses(self, g: Tensor) -> tuple[Tensor, ...]:
        problem, d = self.problem, self.problem.size
        x, y, _ = self.data
        moved, left, both, weight = self._sides(g, problem.functions)
        right, guess = both.split(y.shape[2], dim=3)
        if problem.background is not None:
            # Edges of the background move by interpolation alone: what counts are the pixels of other classes.
            weight = weight * (1 - right[:, :, :, problem.background]).clamp(0.0, 1.0).unsqueeze(3)

        def total(z: Tensor) -> Tensor:
            return (z * weight).flatten(3).sum(-1).double()

        through, plain = total((left - right).square()), total((guess - right).square())
        covered = torch.ones_like(through)
        if self.coverage is not None:
            covered = self.coverage(disc_rows(moved.flatten(0, 1), d)).unflatten(0, through.shape[:2]).double()
        number = covered.sum(1, keepdim=True)  # (M, 1, K)
        c = covered.to(left.dtype)[(..., *[None] * (d + 1))]
        n = number.clamp_min(1.0).to(left.dtype)[(..., *[None] * (d + 1))]

        def mean(z: Tensor) -> Tensor:
            return (c * z).sum(1, keepdim=True) / n

        squares = total(right.square() - 2 * right * mean(left) + mean(left.square()))
        wide = weight.expand_as(right)
        pulls = mean(wide * right.square()) - 2 * left * mean(wide * right) + mean(wide) * left.square()
        null = _null(squares, pulls.flatten(3).sum(-1).double(), (covered, number), through)
        shape = tuple(weight.shape[-d:])
        before, after = centre_crop(x, shape), centre_crop(moved, shape)
        step = ((after - before).square() * weight).flatten(1).sum(1).double()
        spread = ((before - before.mean(0)).square() * weight).flatten(1).sum(1).double()
        displaced = step / (2 * spread).clamp_min(1e-300)
        return through, plain, null, covered, displaced[:, None].expand(-1, through.shape[-1])

    def inner(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Inner products of residuals, `(M, B, K, p, p)`, and what moves under the first elements, `(M, B, K)`.

        Elements are `(M, p, n, n)`, or `(M, p, K, n, n)` with one for each chart.
        """
        _, y, p = self.data
        products, levels = [], []
        for near in g:
            rows, level = [], None
            for part in self._chunks(near):
                _, left, both, weight = self._sides(part, self.problem.functions)
                right, root = both[:, :, :, y.shape[2] :], weight.sqrt()
                rows.append(((left - right) * root).flatten(3))
                if level is None:
                    moves = ((left[:1] - p) * root[:1]).square() + ((right[:1] - p) * root[:1]).square()
                    level = moves.flatten(3).sum(-1).double()[0]
            r = torch.cat(rows).movedim(0, 2)  # (B, K, p, Q)
            products.append((r @ r.mT).double())
            assert level is not None
            levels.append(level)
        return torch.stack(products), torch.stack(levels)

    def recovered(self, g: Tensor, planted: Sequence[tuple[Any, Sequence[Function]]]) -> Tensor:
        """What is seen of what was planted, and its square, `(P, M, 2)`."""
        x, y, p = self.data
        shape, problem = tuple(p.shape[3:]), self.problem
        rows = []
        for plant, functions in planted:

            def truth(z: Tensor, plant: Any = plant) -> Tensor:
                if problem.classes:
                    added: Tensor = plant.shift(z, self.predict(z, problem.functions))
                    return added
                return plant.size * centre_crop(plant.function(z), shape)

            base = 0.0 if problem.pointwise is None else problem.pointwise(x, shape)
            after = self.predict(x, functions) - base
            row = []
            for element in g:
                _, left, both, weight = self._sides(element[None], problem.functions)
                _, left_after, _, _ = self._sides(element[None], functions)
                right, right_after = both[0, :, :, y.shape[2] :], problem.action.on_output(element, after)
                seen = (left_after[0] - right_after) - (left[0] - right)
                there, back = sides(truth, problem.action, x, truth(x), element)
                there = there - back
                row.append(torch.stack([(z * there * weight[0]).double().sum() for z in (seen, there)]))
            rows.append(torch.stack(row))
        return torch.stack(rows)

    def slopes(self) -> tuple[Tensor, Tensor]:
        """Gram matrices of the residual at first order and of what moves, each `(K, n^2, n^2)`."""
        problem, n = self.problem, self.problem.size
        x, _, p = self.data
        shape = tuple(p.shape[3:])
        mask = problem.window(shape).to(p.dtype).sqrt()
        j, t = [], []
        for a in torch.eye(n * n, dtype=x.dtype).reshape(-1, n, n):
            flow = problem.action.input_generator(a, x)
            step = 1e-2 * float(x.std()) / max(float(flow.std()), 1e-30)
            up, down = (self._pure(x + s * step * flow, shape) for s in (1.0, -1.0))
            j.append(((up - down) / (2 * step) * mask).flatten(2).double())
            t.append((problem.action.output_generator(a, p) * mask).flatten(2).double())
        left, right = torch.stack(j), torch.stack(t)  # (n^2, B, K, Q)
        r = left - right
        moves = torch.einsum("abkq,cbkq->kac", left, left) + torch.einsum("abkq,cbkq->kac", right, right)
        return torch.einsum("abkq,cbkq->kac", r, r) / len(x), moves / len(x)

    def _pure(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        y = self.predict(x, self.problem.functions)
        return y if self.problem.pointwise is None else y - self.problem.pointwise(x, shape)


def looked_at(problem: Problem, x: Tensor) -> tuple[int, ...]:
    """Spatial shape of the middle of inputs `(B, K, C, *S)` that the maps look at."""
    whole = tuple(x.shape[3:])
    need = needed(problem.functions)
    return whole if need is None else tuple(min(a, b) for a, b in zip(need, whole, strict=True))


def _ask(part: Shared[_Part], method: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(part.value, method)(*arguments)


class Residual:
    """Answers for some samples of a problem, block by block of its charts.

    Arguments:
        problem: Maps, action, data and window.
        index: The samples, `(B,)`.
        coverage: Where data are; `None` where the map is known everywhere, or where nobody asks.
    """

    def __init__(self, problem: Problem, index: Tensor, coverage: FieldCoverage | VectorCoverage | None = None) -> None:
        self.problem, self.index, self.coverage = problem, index, coverage
        self.ranges = problem.blocks()
        kind = _FieldPart if problem.is_field else _VectorPart
        self._parts: list[Shared[_Part]] = [Shared(kind(problem.part(r), index, coverage)) for r in self.ranges]

    def few(self, samples: int) -> Residual:
        """The same on the first samples."""
        return self if samples >= len(self.index) else Residual(self.problem, self.index[:samples], self.coverage)

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        """Answers of every block; an argument of type `_Each` has one value for each."""
        each = [tuple(a[i] if isinstance(a, _Each) else a for a in arguments) for i in range(len(self._parts))]
        tasks = [(part, method, given) for part, given in zip(self._parts, each, strict=True)]
        answers = []
        for i, answer in enumerate(current_workers().stream(_ask, tasks, [About(r) for r in self.ranges], quick=True)):
            answers.append(answer)
            if i >= _LIVE:
                self._parts[i].value.forget()
        return answers

    def losses(self, elements: Tensor, *, astray: bool = False) -> Losses:
        """Losses of elements `(M, n, n)`; with `astray`, each vector is displaced as another sample would be."""
        columns = zip(*self._all("losses", elements.double(), astray), strict=True)
        through, plain, null, covered, displaced = (torch.cat(parts, dim=-1) for parts in columns)
        return Losses(through, plain, null, covered, displaced.mean(-1))

    def inner(self, elements: Tensor) -> tuple[Tensor, Tensor]:
        """Inner products `(M, B, K, p, p)` of residuals of elements `(M, p, n, n)`, and levels `(M, B, K)`.

        Elements may differ from chart to chart: `(M, p, K, n, n)`.
        """
        given = elements if elements.ndim == 4 else _Each(elements[:, :, r.start : r.stop] for r in self.ranges)
        products, levels = zip(*self._all("inner", given), strict=True)
        return torch.cat(products, dim=2), torch.cat(levels, dim=2)

    def recovered(self, elements: Tensor, planted: Sequence[tuple[Any, Sequence[Function]]]) -> Tensor:
        """What is seen of each plant under each element times what was planted, and its square, `(P, M, 2)`.

        Both are means over samples of sums over charts; their ratio is the share of the amplitude that is seen.
        """
        given = _Each([(p, [_of_block(f, r, self.problem) for f in fs]) for p, fs in planted] for r in self.ranges)
        return torch.stack(self._all("recovered", elements.double(), given)).sum(0) / len(self.index)

    def slopes(self) -> tuple[Tensor, Tensor]:
        """Gram matrices over generators at first order: of the residual and of its null level, each `(K, n^2, n^2)`."""
        residual, null = zip(*self._all("slopes"), strict=True)
        return torch.cat(residual), torch.cat(null)


def _of_block(function: Function, charts: range, problem: Problem) -> Function:
    return function if len(charts) == problem.charts else function.part(charts)  # type: ignore[attr-defined, no-any-return]


class _Each(list[Any]):
    """Arguments of which every block has its own."""


def known_inputs(problem: Problem, most: int = 1500) -> FieldCoverage | VectorCoverage | None:
    """Where the data of a problem are; nothing for a function that is known everywhere."""
    if problem.known:
        return None
    if not problem.is_field:
        return VectorCoverage(problem.inputs(problem.pick(most))[:, 0])
    index = problem.pick(96)
    rows = []
    for block in problem.blocks()[:4]:
        part = problem.part(block)
        x = part.inputs(index)
        rows.append(disc_rows(centre_crop(x, looked_at(part, x)), problem.size).flatten(0, 1))
    stacked = torch.cat(rows)
    return FieldCoverage.of(stacked[torch.randperm(len(stacked), generator=torch.Generator().manual_seed(0))])
