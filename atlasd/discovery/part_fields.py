"""The residual of fields: as many elements at once as memory allows, all samples and charts of a block together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from atlasd.discovery.problem import Function, Part, looked_at, null_loss
from atlasd.geometry.actions import GridAction
from atlasd.geometry.resample import FieldSpan, pixel_grid
from atlasd.geometry.splines import FieldSpline
from atlasd.prediction.skill import Products, explained
from atlasd.prediction.trivial import centre_crop

Spline: TypeAlias = FieldSpan | FieldSpline

_VALUES = 1 << 21
"""Numbers of transformed fields in memory at a time: a few arrays of that size fit into the cache."""
_NEIGHBOURHOOD = 7
"""Width in pixels of the neighbourhoods whose products are looked at."""


@dataclass(frozen=True, eq=False)
class _Moved:
    """Transformed inputs.

    Arguments:
        values: The inputs `(M, B, K, C, *S)`, or the few fields `(M, R, *S)` that they are mixtures of.
        span: The mixtures; `None` for the inputs themselves.
    """

    values: Tensor
    span: FieldSpan | None = None

    def middle(self, shape: tuple[int, ...]) -> Tensor:
        """The middle of the inputs, `(M, B, K, C, *shape)`."""
        middle = centre_crop(self.values, shape)
        return middle if self.span is None else self.span.mixed(middle.flatten(2)).unflatten(-1, shape)


class FieldPart(Part):
    """Fields: as many elements at a time as memory allows, all samples and charts of the block together."""

    def forget(self) -> None:
        """Drops the data; they are read again when needed."""
        self._data, self._splines = None, None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None, "_splines": None}

    _splines: tuple[Spline, Spline, Spline] | None = None

    @property
    def splines(self) -> tuple[Spline, Spline, Spline]:
        """Inputs, labels and predictions side by side, and predictions alone, ready to be transformed."""
        if self._splines is None:
            x, y, p = self.data
            action = self.problem.action
            assert isinstance(action, GridAction)
            self._splines = action.span(x), action.span(torch.cat([y, p], dim=2)), action.span(p)
        return self._splines

    def _chunks(self, g: Tensor) -> tuple[Tensor, ...]:
        """Elements `(M, *, n, n)` in parts whose transformed inputs fit into the cache."""
        x, _, _ = self.data
        size = x.shape[:3].numel() * math.prod(looked_at(self.problem, x))
        return g.split(max(1, _VALUES // max(size * (g.shape[1] if g.ndim > 3 else 1), 1)))

    def _moved(self, g: Tensor, shape: tuple[int, ...]) -> _Moved:
        """The middle of inputs, transformed by elements `(M, n, n)`, or `(M, K, n, n)` with one for each chart."""
        action, x = self.problem.action, self.splines[0]
        assert isinstance(action, GridAction)
        points = pixel_grid(shape, dtype=torch.float64)
        if isinstance(x, FieldSpan) and g.ndim == 3 and action.rho_in is None:
            return _Moved(action.input_at(g, x.basis, points).unflatten(-1, shape), x)
        each = g[:, None, None] if g.ndim == 3 else g[:, None]
        moved = action.input_at(each, x, points).unflatten(-1, shape)
        return _Moved(moved.expand(len(g), *self.data[0].shape[:3], *shape))

    def _outputs(self, moved: _Moved, functions: Sequence[Function]) -> Tensor:
        """Outputs for transformed inputs, `(M, B, K, C', *out)`, by the map that each sample was held out of."""
        responses = [getattr(f, "responses", None) for f in functions]
        if moved.span is None or None in responses:
            whole = moved.middle(tuple(moved.values.shape[-self.problem.samples.size :]))
            return self.predict(whole.flatten(0, 1), functions).unflatten(0, (len(whole), -1))
        # Linear maps are asked for the few fields that all are mixtures of.
        mixture, fold = moved.span.mixture, self.problem.fold[self.index] % len(functions)
        count, few = moved.values.shape[:2]
        out: Tensor | None = None
        for k, function in enumerate(functions):
            mine = (fold == k).nonzero().flatten()
            answers = responses[k](moved.values.flatten(0, 1)).unflatten(0, (count, few))  # type: ignore[misc]
            shape = (answers.shape[3], *answers.shape[5:])
            answers = answers.movedim(4, 1).movedim(3, 1).flatten(2, 3).flatten(3)  # (M, K, C R, C' Q)
            part = mixture[mine].transpose(0, 1).flatten(2) @ answers  # (M, K, b, C' Q)
            part = part.unflatten(-1, shape).transpose(1, 2)
            part = part + function.bias.to(part.dtype).reshape(*function.bias.shape, *[1] * (len(shape) - 1))  # type: ignore[attr-defined]
            if len(functions) == 1:
                return part
            out = part.new_empty(count, len(fold), *part.shape[2:]) if out is None else out
            out[:, mine] = part
        assert out is not None
        return out

    def _sides(
        self, g: Tensor, functions: Sequence[Function], *, labels: bool = True
    ) -> tuple[_Moved, Tensor, Tensor, Tensor]:
        """Transformed inputs, outputs for them, transformed labels and predictions, and the window.

        Elements are `(M, n, n)`, or one for each chart, `(M, K, n, n)`; all answers have leading axes `(M, B, K)`.
        Without `labels`, predictions alone are transformed.
        """
        problem, d = self.problem, self.problem.samples.size
        x, y, p = self.data
        action = problem.action
        assert isinstance(action, GridAction)
        moved = self._moved(g, looked_at(problem, x))
        left, out = self._outputs(moved, functions), tuple(p.shape[-d:])
        if problem.pointwise is not None:
            base = problem.pointwise(moved.middle(out).flatten(0, 1), out)
            left = left - base.unflatten(0, (len(g), -1))
        each = g[:, None, None] if g.ndim == 3 else g[:, None]
        points = pixel_grid(out, dtype=torch.float64)
        if action.rho_out is None:
            sides = [action.output_at(each, self.splines[1 if labels else 2], points)]
        else:
            # Channels of labels and of predictions transform apart.
            sides = [action.output_at(each, action.spline(z), points) for z in ((y, p) if labels else (p,))]
        right = torch.cat([z.expand(len(g), *x.shape[:2], *z.shape[3:]) for z in sides], dim=3).unflatten(-1, out)
        mask = problem.window(out, g, tuple(x.shape[-d:])).to(left.dtype)
        mask = mask[:, None, None, None] if g.ndim == 3 else mask[:, None, :, None]  # (M, 1, 1 or K, 1, *out)
        return moved, left, right, mask / mask.flatten(-d).sum(-1)[(..., *[None] * d)].clamp_min(1e-9)

    def losses(self, g: Tensor, unrelated: bool = False) -> tuple[Tensor, ...]:
        """Fields of `Losses`."""
        rows = [self._losses(part) for part in self._chunks(g)]
        return tuple(torch.cat(column) for column in zip(*rows, strict=True))

    def _losses(self, g: Tensor) -> tuple[Tensor, ...]:
        problem, d = self.problem, self.problem.samples.size
        x, y, _ = self.data
        moved, left, both, weight = self._sides(g, problem.functions)
        right, guess = both.split(y.shape[2], dim=3)
        if problem.background is not None:
            # Edges of the background move by interpolation alone: what counts are the pixels of other classes.
            weight = weight * (1 - right[:, :, :, problem.background]).clamp(0.0, 1.0).unsqueeze(3)

        def total(z: Tensor) -> Tensor:
            return (z * weight).flatten(3).sum(-1).double()

        through, plain = total((left - right).square()), total((guess - right).square())
        covered = self._covered(moved)
        number = covered.sum(1, keepdim=True)  # (M, 1, K)
        c = covered.to(left.dtype)[(..., *[None] * (d + 1))]
        n = number.clamp_min(1.0).to(left.dtype)[(..., *[None] * (d + 1))]

        def mean(z: Tensor) -> Tensor:
            return (c * z).sum(1, keepdim=True) / n

        squares = total(right.square() - 2 * right * mean(left) + mean(left.square()))
        wide = weight.expand_as(right)
        pulls = mean(wide * right.square()) - 2 * left * mean(wide * right) + mean(wide) * left.square()
        null = null_loss(squares, pulls.flatten(3).sum(-1).double(), (covered, number), through)
        shape = tuple(weight.shape[-d:])
        before, after = centre_crop(x, shape), moved.middle(shape)
        step = ((after - before).square() * weight).flatten(1).sum(1).double()
        spread = ((before - before.mean(0)).square() * weight).flatten(1).sum(1).double()
        displaced = step / (2 * spread).clamp_min(1e-300)
        return through, plain, null, covered, displaced[:, None].expand(-1, through.shape[-1])

    def _covered(self, moved: _Moved) -> Tensor:
        """Whether transformed inputs lie where data are, as 0 or 1, `(M, B, K)`."""
        if self.coverage is None:
            return torch.ones(len(moved.values), *self.data[0].shape[:2], dtype=torch.float64)
        covered: Tensor = self.coverage(moved.middle(self.coverage.shape))
        return covered.double()

    def inner(self, g: Tensor, labels: bool = False) -> tuple[Tensor, Tensor]:
        """Inner products of residuals, `(M, B, K, p, p)`, and what moves under the first elements, `(M, B, K)`.

        Elements are `(M, p, n, n)`, or `(M, p, K, n, n)` with one for each chart. With `labels`, what is predicted is
        held against transformed labels in place of transformed predictions.
        """
        still = self.data[1 if labels else 2]
        linear = self._linear() if g.ndim == 4 and not labels else None
        products, levels = [], []
        for near in self._chunks(g):
            if linear is not None:
                r, moves = self._mixed_residuals(near, *linear)
            else:
                _, left, right, weight = self._sides(near.flatten(0, 1), self.problem.functions, labels=labels)
                right = right[:, :, :, : still.shape[2]]
                left, right, root = (z.unflatten(0, near.shape[:2]) for z in (left, right, weight.sqrt()))
                r = ((left - right) * root).flatten(4).movedim(1, 3)  # (M, B, K, p, Q)
                moves = [((side[:, 0] - still) * root[:, 0]).flatten(3) for side in (left, right)]
            products.append((r @ r.mT).double())
            levels.append((moves[0].square().sum(-1) + moves[1].square().sum(-1)).double())
        return torch.cat(products), torch.cat(levels)

    def _linear(self) -> tuple[FieldSpan, Any] | None:
        """Inputs as mixtures of a few, and one stencil less its part of one pixel, where the maps are stencils.

        Searches have no say in the verdict: they may look at the mean of the maps of all folds.
        """
        problem, x = self.problem, self.splines[0]
        action, functions = problem.action, problem.functions
        assert isinstance(action, GridAction)
        if not isinstance(x, FieldSpan) or not all(hasattr(f, "responses") for f in functions):
            return None
        if action.rho_in is not None or action.rho_out is not None or problem.pointwise is None:
            return None
        mean = functions[0].mean(functions)  # type: ignore[attr-defined]
        return x, mean.without_centre(problem.pointwise.linear)

    def _mixed_residuals(self, g: Tensor, x: FieldSpan, map_: Any) -> tuple[Tensor, list[Tensor]]:
        """Residuals `(M, B, K, p, Q)` of elements `(M, p, n, n)`, and changes of both sides, `(M, B, K, Q)` each."""
        problem, action, d = self.problem, self.problem.action, self.problem.samples.size
        assert isinstance(action, GridAction) and problem.radius is not None
        inside = tuple(self.data[0].shape[-d:])
        near = map_.narrowed(2 * math.ceil(problem.radius) + 1)
        seen = tuple(min(a, b) for a, b in zip(near.need, inside, strict=True))

        here = map_.responses(x.basis.values)  # (R, K, C', C, *S)
        few = here.shape[:4]
        lifted = action.spline(here.flatten(0, 3))
        elements = g.flatten(0, 1)
        moved = action.input_at(elements, x.basis, pixel_grid(seen, dtype=torch.float64)).unflatten(-1, seen)
        left = near.responses(moved.flatten(0, 1)).unflatten(0, moved.shape[:2]).flatten(5)
        right = action.output_at(elements, lifted, pixel_grid(near.shape, dtype=torch.float64)).unflatten(1, few)
        mask = problem.window(near.shape, elements, inside).to(left.dtype).flatten(1)
        root = (mask / mask.sum(-1, keepdim=True).clamp_min(1e-9)).sqrt()[:, None, None, None, None]
        mixture = x.mixture.transpose(0, 1).flatten(2)  # (K, B, C R)

        def mixed(z: Tensor) -> Tensor:
            """Answers `(E, R, K, C', C, Q)` to the few fields as those to all, `(E, K, B, C' Q)`."""
            return mixture @ z.permute(0, 2, 4, 1, 3, 5).flatten(2, 3).flatten(3)

        first = slice(None, None, g.shape[1])
        still = centre_crop(here, near.shape).flatten(4)
        moves = [mixed((side[first] - still) * root[first]).transpose(1, 2) for side in (left, right)]
        return mixed((left - right) * root).unflatten(0, g.shape[:2]).permute(0, 3, 2, 1, 4), moves

    def recovered(self, g: Tensor, planted: Sequence[tuple[Any, Sequence[Function]]]) -> Tensor:
        """See `Residual.recovered`; sums over samples, `(P, M, K, 4)`."""
        x, _, p = self.data
        shape, problem, d = tuple(p.shape[3:]), self.problem, self.problem.samples.size
        base = 0.0 if problem.pointwise is None else problem.pointwise(x, shape)

        def added(plant: Any, z: Tensor, before: Tensor) -> Tensor:
            """The planted functions; for classes, their change of the predicted probabilities."""
            if problem.classes:
                shifted: Tensor = plant.shift(z, before)
                return shifted
            return plant.size * centre_crop(plant.function(z), shape)

        action = problem.action
        assert isinstance(action, GridAction)
        grid, whole = pixel_grid(shape, dtype=torch.float64), tuple(x.shape[3:])
        afters = [self.predict(x, functions) - base - p for _, functions in planted]
        heres = [added(plant, x, p + base).to(p.dtype) for plant, _ in planted]
        splines = [[action.span(z) for z in both] for both in zip(afters, heres, strict=True)]
        row = []
        for element in g:
            each = element[None, None, None]
            transformed = self._moved(element[None], whole)
            moved, before = transformed.middle(whole)[0], self._outputs(transformed, problem.functions)[0]
            mask = problem.window(shape, element, tuple(x.shape[-d:])).to(p.dtype)
            weight = mask / mask.sum().clamp_min(1e-9)
            covered = self._covered(transformed)[0]
            counts = covered.to(p.dtype)[(..., *[None] * (d + 1))]
            for (plant, functions), after, here, lifted in zip(planted, afters, heres, splines, strict=True):
                right, planted_right = (action.output_at(each, z, grid).unflatten(-1, shape)[0] for z in lifted)
                seen = self._outputs(transformed, functions)[0] - before - right
                there = added(plant, moved, before) - planted_right
                pairs = ((seen, there), (there, there), (seen - there,) * 2, (after - here,) * 2)
                sums = [(counts * a * b * weight).double().transpose(0, 1).flatten(1).sum(-1) for a, b in pairs]
                row.append(torch.stack(sums, dim=-1))
        return torch.stack(row).unflatten(0, (len(g), len(planted))).transpose(0, 1)

    def hidden(self, plants: Sequence[Function]) -> Tensor:
        """What products of neighbouring values tell of the errors of the map, and of plants, `(1 + P, K, 2)`.

        Each by the share of a square: explained, and all.
        """
        x, y, p = self.data
        shape = tuple(p.shape[3:])
        products = Products.of(x, min(_NEIGHBOURHOOD, *(s - o + 1 for s, o in zip(x.shape[3:], shape, strict=True))))
        window = self.problem.window(shape).to(p.dtype) > 0.5
        window[(torch.stack(torch.meshgrid(*map(torch.arange, shape), indexing="ij")) % 2 != 0).any(0)] = False

        def rows(z: Tensor) -> Tensor:
            return z.flatten(3)[..., window.flatten()]

        features, out = rows(products(x, shape)), []
        for z in (y - p, *(centre_crop(h(x), shape) for h in plants)):
            z = rows(z).double()
            z = z - z.mean((0, 3), keepdim=True)
            told = explained(features, z)
            seen = z.square() - (z - told).square()
            out.append(torch.stack([q.transpose(0, 1).flatten(1).sum(-1) for q in (seen, z.square())], dim=-1))
        return torch.stack(out)

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
