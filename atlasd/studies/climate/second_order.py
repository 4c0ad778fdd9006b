"""Pixel classes: what each says by itself, and a logistic regression on the neighbourhood to second order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from atlasd.algebra.known import gl
from atlasd.data.samples import Samples
from atlasd.discovery.residual import scaled, sides
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction
from atlasd.prediction.predictor import FittedPredictor, with_skill
from atlasd.prediction.trivial import centre_crop
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.studies.networks import class_weights

ACTIONS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "as it is": ((1.0, 0.0), (0.0, 1.0)),
    "rotated": ((0.7071, -0.7071), (0.7071, 0.7071)),
    "enlarged": ((1.35, 0.0), (0.0, 1.35)),
    "stretched": ((1.4, 0.0), (0.0, 0.75)),
    "sheared": ((1.0, 0.6), (0.0, 1.0)),
}
"""Linear actions of the paper's figure."""
_SIZE = 0.6


def class_findings(
    fitted: FittedPredictor, samples: Samples, index: Tensor, action: GridAction, names: tuple[str, ...]
) -> list[dict[str, Any]]:
    """For every class its share, the skill of its probability, and its breaking under all of gl(2).

    Arguments:
        index: Samples that it was not fitted to.

    Returns:
        Rows with `class`, `share`, `skill`, `spread`, and `strengths` of the breaking by the four generators, empty
        where the probability is constant.
    """
    x, y = samples.inputs(index), samples.targets(index)
    basis = [scaled(a) for a in gl(2).basis.double()]
    with torch.no_grad():
        chances = fitted.outputs(x)
    strengths = _strengths(fitted.outputs, action, x, basis)
    rows = []
    for c, name in enumerate(names):
        there = (y == c).double()
        share = float(there.mean())
        p = chances[:, :, c].double() if c < chances.shape[2] else torch.zeros_like(there)
        variance = share * (1 - share)
        told = float(p.std()) > 1e-4  # what breaks a constant is rounding
        rows.append(
            {
                "class": name,
                "share": share,
                "skill": 1 - float((p - there).square().mean()) / variance if variance > 1e-6 else 0.0,
                "spread": float(p.std()),
                "strengths": strengths[:, c].tolist() if told else [],
            }
        )
    return rows


def _strengths(function: Callable[[Tensor], Tensor], action: GridAction, x: Tensor, basis: list[Tensor]) -> Tensor:
    """Breaking of each generator and class, `(4, classes)`, as ratios of amplitudes, on a disc that stays inside."""
    rows = []
    with torch.no_grad():
        p = function(x)
        side = p.shape[-1]
        grid = torch.linspace(-1, 1, side, dtype=torch.float64)
        disc = (grid[:, None].square() + grid.square() <= 0.45**2).to(p.dtype)
        for a in basis:
            residual = moved = torch.zeros(p.shape[2], dtype=torch.float64)
            for sign in (1.0, -1.0):
                g = torch.matrix_exp(sign * _SIZE * a)
                left, right = sides(function, action, x, p, g)
                residual = residual + ((left - right).square() * disc).double().sum((0, 1, 3, 4))
                both = (left - p).square() + (right - p).square()
                moved = moved + (both * disc).double().sum((0, 1, 3, 4))
            rows.append((residual / moved.clamp_min(1e-12)).sqrt())
    return torch.stack(rows)


def pictures(fitted: FittedPredictor, samples: Samples, index: Tensor, action: GridAction) -> Tensor:
    """The paper's figure: the first variable, f(g x) and g f(x) of one chart under several linear actions.

    Returns:
        With shape `(actions, 3, h, w)`: standardised moisture, and expected classes from 0 to 2.
    """
    x = samples.inputs(index[:1])
    rows = []
    with torch.no_grad():
        p = fitted.outputs(x)
        weight = torch.arange(p.shape[2], dtype=p.dtype)[:, None, None]
        for matrix in ACTIONS.values():
            g = torch.tensor(matrix, dtype=torch.float64)
            moved = action.on_input(g, x)
            views = [(fitted.outputs(moved) * weight).sum(2), (action.on_output(g, p) * weight).sum(2)]
            first = centre_crop(moved[:, :, 0], tuple(p.shape[-2:]))
            rows.append(torch.stack([first[0, 0], *(view[0, 0] for view in views)]))
    return torch.stack(rows)


@dataclass(frozen=True, kw_only=True)
class SecondOrderPredictor:
    """Whether a pixel is background, and if not, what: each of second order in its neighbourhood, for all pixels alike.

    Squared gradients, curvatures and the brackets of two fields are of second order in the leading components of
    each channel's neighbourhood. Few of the products matter: a first fit with an absolute penalty finds which, and
    a second one without it finds how much, so that outlines come out sharp. It is fitted to pixels drawn at random;
    class 0 is the background.

    Arguments:
        width: Width of the neighbourhood in pixels, odd.
        components: Principal components of the neighbourhood in each channel; 6 hold the second order.
        pixels: Pixels drawn for each chart.
        kept: The most terms of a chart that the second fit keeps.
        penalty: Weight of the absolute penalty.
    """

    width: int = 5
    components: int = 6
    pixels: int = 12_000
    kept: int = 40
    penalty: float = 2e-3
    iterations: int = 60

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Fits all charts together."""
        class_weights(samples)
        radii = samples.atlas.radii
        if radii is None:
            raise InputError("`atlas` must have charts for this predictor, got the whole field; use another predictor.")
        started = time.perf_counter()
        width = min(self.width, 2 * (radii[0] - radii[1]) + 1)
        x, y = _draw(samples, train, width, self.pixels, stream(seed, "fit", "pixels"))
        shape = tuple(samples.targets(train[:1]).shape[-2:])
        made = _SecondOrder(x, samples.classes, width, shape, self.components)
        made.fit(x, y, self, progress)
        return with_skill(
            [made], samples, train, held_out, kind=f"second order on {width}-pixel patches",
            reach=math.sqrt(2.0) * (width // 2), seconds=time.perf_counter() - started,
        )[0]  # fmt: skip


def _draw(
    samples: Samples, index: Tensor, width: int, pixels: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Neighbourhoods `(K, M, C, width^2)` and classes `(K, M)` of pixels drawn from samples `index`."""
    per = max(1, -(-pixels // len(index)))
    rows, values = [], []
    for part in index.split(32):
        y = samples.targets(part)  # (B, K, *shape)
        if y.is_floating_point():  # something was planted: classes are drawn from probabilities
            odds = y.movedim(2, -1)
            y = torch.multinomial(odds.flatten(0, -2), 1, generator=generator).reshape(odds.shape[:-1])
        patches = centre_crop(samples.inputs(part), tuple(s + width - 1 for s in y.shape[2:]))
        patches = patches.unfold(3, width, 1).unfold(4, width, 1).movedim(2, 4)  # (B, K, *shape, C, w, w)
        where = [torch.randint(s, (*y.shape[:2], per), generator=generator) for s in y.shape[2:]]
        b, k = torch.arange(len(part))[:, None, None], torch.arange(y.shape[1])[None, :, None]
        rows.append(patches[(b, k, *where)].flatten(4).movedim(1, 0).flatten(1, 2))
        values.append(y[(b, k, *where)].movedim(1, 0).flatten(1))
    return torch.cat(rows, dim=1), torch.cat(values, dim=1)


class _SecondOrder(nn.Module):
    """Patches `(B, K, C, *in)` to logits `(B, K, classes, *out)`, without padding."""

    def __init__(self, x: Tensor, classes: int, width: int, shape: tuple[int, ...], components: int) -> None:
        super().__init__()
        self.width, self.shape, self.classes = width, shape, classes
        x = x.double()
        self.mean = x.mean((1, 3))  # (K, C)
        centred = x - self.mean[:, None, :, None]
        values, vectors = torch.linalg.eigh(torch.einsum("kmcf,kmcg->kcfg", centred, centred) / x.shape[1])
        rank = min(components, x.shape[-1])
        size = values[..., None, -rank:].clamp_min(1e-10 * values.amax().clamp_min(1e-30)).sqrt()
        self.frame = vectors[..., -rank:] / size  # (K, C, F, R), all of one size
        self.terms = x.shape[2] * rank
        self.linear = x.new_zeros(len(x), self.terms + 1, classes)
        self.form = x.new_zeros(len(x), classes, self.terms, self.terms)

    def fit(self, x: Tensor, y: Tensor, recipe: SecondOrderPredictor, progress: Progress) -> None:
        """Finds the terms of every chart, then their weights: event or background first, then which event."""
        i, j = torch.triu_indices(self.terms, self.terms)
        for k in progress.track(range(len(x)), "fit predictors"):
            z = self._components(x[k], k)
            wide = torch.cat([z, torch.ones_like(z[:, :1]), z[:, i] * z[:, j]], dim=1)
            event = y[k] > 0
            found = _sparse(wide, event.long(), 2, self.terms, recipe)
            weight = torch.zeros(wide.shape[1], self.classes)
            weight[:, 0] = found[:, 1] - found[:, 0]
            if self.classes > 2 and int(event.sum()) > 100:
                weight[:, 1:] = _sparse(wide[event], y[k][event] - 1, self.classes - 1, self.terms, recipe)
            self.linear[k] = weight[: self.terms + 1].double()
            self.form[k][:, i, j] = weight[self.terms + 1 :].mT.double()

    def _components(self, x: Tensor, chart: int) -> Tensor:
        """Components of one chart's neighbourhoods `(M, C, F)`, with shape `(M, Z)`."""
        centred = x - self.mean[chart][None, :, None].to(x.dtype)
        return torch.einsum("mcf,cfr->mcr", centred, self.frame[chart].to(x.dtype)).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        b, charts, channels = x.shape[:3]
        x = centre_crop(x, tuple(s + self.width - 1 for s in self.shape))
        rank = self.frame.shape[-1]
        kernel = self.frame.movedim(-1, 2).reshape(charts * channels * rank, 1, self.width, self.width).to(x.dtype)
        flat = (x - self.mean[..., None, None].to(x.dtype)).flatten(1, 2)
        z = functional.conv2d(flat, kernel, groups=charts * channels)
        z = z.unflatten(1, (charts, -1)).movedim((1, 2), (0, -1)).flatten(1, -2)  # (K, B * Q, Z)
        form, linear = self.form.to(x.dtype), self.linear.to(x.dtype)
        second = torch.stack([((z @ form[:, c]) * z).sum(-1) for c in range(self.classes)], dim=-1)
        score = second + z @ linear[:, :-1] + linear[:, -1:]
        event = functional.logsigmoid(score[..., :1])
        which = torch.log_softmax(score[..., 1:], dim=-1)
        y = torch.cat([functional.logsigmoid(-score[..., :1]), event + which], dim=-1)
        return y.unflatten(1, (b, *self.shape)).movedim((0, -1), (1, 2))


def _sparse(wide: Tensor, classes: Tensor, count: int, free: int, recipe: SecondOrderPredictor) -> Tensor:
    """Weights `(F, count)`: which terms matter, with a penalty; then how much, without it."""
    rough = _regress(wide, classes, wide.new_zeros(wide.shape[1], count), recipe.penalty, free, recipe.iterations)
    strength = rough.abs().amax(1)
    most = strength[torch.arange(len(strength)) != free].max()
    strength[free] = math.inf  # the constant
    keep = strength.topk(min(recipe.kept, len(strength))).indices
    keep = keep[strength[keep] > 0.02 * most]
    fine = torch.zeros_like(rough)
    fine[keep] = _regress(wide[:, keep], classes, rough[keep], 0.0, None, recipe.iterations)
    return fine


def _regress(
    features: Tensor, classes: Tensor, start: Tensor, penalty: float, free: int | None, iterations: int
) -> Tensor:
    """Weights `(F, classes)` of a logistic regression; the row `free` is not penalised."""
    weight = start.clone().requires_grad_(True)
    charge = torch.full((len(start), 1), penalty)
    if free is not None:
        charge[free] = 0.0
    optimiser = torch.optim.LBFGS([weight], max_iter=iterations, history_size=10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(features @ weight, classes)
        # A rounded absolute value, and a trace of a square so that separable classes stay finite.
        loss = loss + (charge * (weight.square() + 1e-6).sqrt()).sum() + 1e-6 * weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call, arg-type]
    return weight.detach()
