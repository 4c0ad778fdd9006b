r"""LieGG: generators from the null space of the polarization matrix, as a search beside ours.

The matrix has one linear equation in the generator for every output of every sample. A generator h is a symmetry when
the matrix times h is zero; its singular values say how far from zero each direction stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from atlasd.algebra.known import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.discover import discover
from atlasd.discovery.prepare import prepare
from atlasd.discovery.problem import Problem, Proposal
from atlasd.discovery.result import Discovery
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction, VectorAction
from atlasd.geometry.atlas import Atlas
from atlasd.geometry.resample import pixel_grid
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.studies.config import RunConfig, asking, option, tolerance_option
from atlasd.studies.heat.data import heat_fields, heat_rate, simulate_heat
from atlasd.studies.heat.run import span_angle
from atlasd.studies.record import Extras
from atlasd.studies.rivals.null_space import Spectrum

# Central differences of orders 2 to 8: weights of the pixels at distance 1, 2, ... on either side.
_CENTRAL = {
    2: (1 / 2,),
    4: (2 / 3, -1 / 12),
    6: (3 / 4, -3 / 20, 1 / 60),
    8: (4 / 5, -1 / 5, 4 / 105, -1 / 280),
}


@dataclass(frozen=True, kw_only=True)
class LieGG:
    """Reads generators off the singular vectors of a predictor's polarization matrix.

    It has no null level, no finite size and no discrete part: directions are compared with the largest
    singular value only, so that directions that nothing feels bend its answer.

    Arguments:
        threshold: Singular values up to this share of the largest count as zero: what LieGG itself claims.
        generators: Takes this many of the smallest instead.
        samples: The most samples looked at; `None` for all that a search may see.
        order: Order of differences across pixels, on fields.

    Example:
        >>> import atlasd as ad
        >>> points = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
        >>> found = ad.discover(points, function=lambda p: p.norm(dim=-1), search=LieGG(), progress=False)
        >>> found.algebra.basis.round(decimals=3).abs().tolist()
        [[[0.0, 1.0], [1.0, 0.0]]]

    References:
        Moskalev, Sepliarskaia, Sosnovik and Smeulders, LieGG: studying learned Lie group generators (2022);
        its extension to equivariance is appendix D.5 of the paper.
    """

    threshold: float = 0.05
    generators: int | None = None
    samples: int | None = None
    order: int = 8
    batch: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise InputError(f"`threshold` must lie between 0 and 1, got {self.threshold}.")
        if self.generators is not None and self.generators < 0:
            raise InputError(f"`generators` must not be negative, got {self.generators}.")

    def find(self, problem: Problem, *, seed: int, progress: Progress) -> Proposal:
        """The directions with the smallest singular values; the seed changes nothing."""
        spectrum = self.spectrum(problem, progress)
        values = spectrum.values
        few = int((values <= self.threshold * values.max()).sum()) if self.generators is None else self.generators
        notes = () if few else ("no singular value is near zero",)
        return Proposal(spectrum.directions[:few], tuple(values.tolist()), notes=notes, fixed=True)

    def spectrum(self, problem: Problem, progress: Progress) -> Spectrum:
        """All singular values, as root mean squares over the rows in units of the spread of the outputs."""
        sums: list[Tensor] = []
        raw = spectrum_of(self._rows(problem, sums, progress), problem.size)
        count, mean, square = torch.stack(sums).sum(0)  # each (O,)
        spread = float((square / count - (mean / count).square()).clamp_min(0.0).mean().sqrt())
        return Spectrum(raw.values / max(spread, 1e-300), raw.directions, raw.rows)

    def _rows(self, problem: Problem, sums: list[Tensor], progress: Progress) -> Iterator[Tensor]:
        """The rows of one batch after the other; number, sum and squares of the outputs of each are noted."""
        _check_action(problem)
        index = problem.search if self.samples is None else problem.search[: self.samples]
        parts = index.split(self.batch or (16 if problem.is_field else 512))
        for part in progress.track(parts, "polarization matrix"):
            x = problem.patches(part)
            if not problem.is_field:
                one = x[:, 0]
                with torch.no_grad():
                    sums.append(_sums(problem.outputs(x)[:, 0].flatten(1)))
                yield vector_rows(lambda z: problem.outputs(z.unsqueeze(1))[:, 0], one)
                continue
            window = problem.window(_output_shape(problem, x)) > 0.5
            rows, y = field_rows(problem.outputs, x, dimensions=problem.size, inside=window, order=self.order)
            sums.append(_sums(y[..., window].reshape(-1, 1)))
            yield rows


def _sums(y: Tensor) -> Tensor:
    """Number, sum and sum of squares of outputs `(B, O)`, with shape `(3, O)`."""
    y = y.detach().double()
    return torch.stack([torch.full_like(y[0], len(y)), y.sum(0), y.square().sum(0)])


def _output_shape(problem: Problem, x: Tensor) -> tuple[int, ...]:
    with torch.no_grad():
        return tuple(problem.outputs(x[:1]).shape[3:])


def _check_action(problem: Problem) -> None:
    action = problem.action
    plain = isinstance(action, VectorAction) and action.rho_out is None
    plain |= isinstance(action, GridAction) and action.rho_in is None and action.rho_out is None
    if not plain:
        raise InputError(
            "`search` LieGG knows invariant outputs of vectors and scalar fields, got an action with its own "
            "representation; use SpectralSearch."
        )


def vector_rows(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    r"""Rows for the invariance of a function of vectors: :math:`\sum_{ij} h_{ij}\, x_j\, \partial F / \partial x_i`.

    Every output has its own row; outputs are not added up.

    Arguments:
        function: Maps vectors `(B, n)` or sets of vectors `(B, P, n)` to `(B,)` or `(B, O)`.

    Returns:
        Rows, with shape `(B * O, n^2)`, in float64.
    """
    gradient = _gradients(function, x)  # (O, B, *x)
    tokens = x if x.ndim == 3 else x.unsqueeze(1)
    gradient = gradient.reshape(len(gradient), *tokens.shape)
    rows = torch.einsum("obpi,bpj->boij", gradient.double(), tokens.double())
    return rows.flatten(2).flatten(0, 1)


def field_rows(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    dimensions: int = 2,
    inside: Tensor | None = None,
    order: int = 8,
) -> tuple[Tensor, Tensor]:
    r"""Rows for the equivariance of a map from fields to fields: the paper's equation with x_p, F_l and G_l.

    Each output pixel of each sample gives the row
    :math:`p_j\, \partial_k G(p) - \sum_q q_j\, \partial_k F(q)\, \partial G(p) / \partial F(q)`, up to sign.

    Arguments:
        function: Maps fields `(*L, C, *S)` to fields `(*L, C', *S')`.
        dimensions: The number d of spatial axes.
        inside: Which output pixels count, boolean, with shape `S'`; those that a difference can reach by default.
        order: Order of the differences across pixels.

    Returns:
        Rows, with shape `(*L * C' * pixels, d^2)` in float64, and the outputs `(*L, C', *S')`.

    References:
        The paper, appendix D.5; Moskalev et al., LieGG, equation 3.
    """
    d = dimensions
    p = pixel_grid(tuple(x.shape[-d:]), dtype=x.dtype)
    tangents = torch.stack(_first_order(x, p, d, order))  # (d^2, *L, C, *S)
    y, pushed = _push_forward(function, x, tangents)
    del tangents
    shape = tuple(y.shape[-d:])
    keep = _reachable(shape, order) if inside is None else inside & _reachable(shape, order)
    moved = _first_order(y, pixel_grid(shape, dtype=y.dtype), d, order)
    rows = torch.stack([(a - b)[..., keep].double().flatten() for a, b in zip(pushed, moved, strict=True)], dim=-1)
    return rows, y


def _reachable(shape: tuple[int, ...], order: int) -> Tensor:
    """Pixels far enough from the border for a central difference, boolean, with shape `shape`."""
    keep = torch.zeros(shape, dtype=torch.bool)
    reach = order // 2
    keep[tuple(slice(reach, s - reach) for s in shape)] = True
    return keep


def spectrum_of(rows: Iterable[Tensor], size: int) -> Spectrum:
    """Singular values of a matrix that comes in pieces, as root mean squares over its rows, ascending.

    Arguments:
        rows: Pieces of the matrix, each `(R, n^2)`.
    """
    factor, count = torch.zeros(size * size, size * size, dtype=torch.float64), 0
    for part in rows:
        # The triangular factor: memory does not grow, and a sum of products would lose every value below 1e-8.
        factor = torch.linalg.qr(torch.cat([factor, part]), mode="r").R
        count += len(part)
    _, values, right = torch.linalg.svd(factor)
    return Spectrum(values.flip(0) / max(count, 1) ** 0.5, right.flip(0).reshape(-1, size, size), count)


def slopes(field: Tensor, axis: int, order: int) -> Tensor:
    """Central differences along one axis; values of the border are repeated outwards."""
    if order not in _CENTRAL:
        raise InputError(f"`order` must be one of {', '.join(map(str, _CENTRAL))}, got {order}.")
    size, reach = field.shape[axis], order // 2
    index = torch.arange(-reach, size + reach).clamp(0, size - 1)
    wide = field.index_select(axis, index)
    out = torch.zeros_like(field)
    for step, weight in enumerate(_CENTRAL[order], start=1):
        ahead = wide.narrow(axis, reach + step, size)
        out = out + weight * (ahead - wide.narrow(axis, reach - step, size))
    return out


def _first_order(field: Tensor, p: Tensor, d: int, order: int) -> list[Tensor]:
    """First-order changes of a field along the d^2 elementary matrices: entry (k, j) is -p_j d_k field."""
    shape = field.shape[-d:]
    slope = [slopes(field, axis - d, order) for axis in range(d)]
    return [-slope[k] * p[:, j].reshape(shape) for k in range(d) for j in range(d)]


def _gradients(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Gradients of every output, with shape `(O, B, *x)`."""

    def outputs(z: Tensor) -> Tensor:
        y = function(z)
        return y.unsqueeze(-1) if y.ndim == 1 else y.flatten(1)

    y, pull = vjp(outputs, x)[:2]
    count = y.shape[-1]
    seeds = torch.eye(count, dtype=y.dtype)[:, None, :].expand(count, *y.shape)
    (gradient,) = vmap(pull)(seeds)
    return gradient.detach()


def _push_forward(function: Callable[[Tensor], Tensor], x: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    """Value and derivatives of a function along a stack of tangents, batched where the function allows it."""
    with torch.no_grad():
        try:
            y = jvp(function, (x,), (tangents[0],))[0]
            return y, vmap(lambda v: jvp(function, (x,), (v,))[1])(tangents)
        except (RuntimeError, NotImplementedError):  # an operation without a forward derivative
            step = 1e-3 * float(x.std()) / max(float(tangents.std()), 1e-30)
            slopes_along = [(function(x + step * v) - function(x - step * v)) / (2 * step) for v in tangents]
            return function(x), torch.stack(slopes_along)


@dataclass(frozen=True, kw_only=True)
class LieGGHeatConfig(RunConfig):
    """Settings of LieGG on the heat equation."""

    initial: Literal["isotropic", "separable"] = option("isotropic", "fields: plane waves, or the paper's")
    samples: int = option(60, "fields", least=20)
    operator: Literal["equation", "step"] = option("equation", "the Laplacian of order 8, or one simulated step")
    tolerance: float = tolerance_option()


CONFIG = LieGGHeatConfig
REPORTED = {"smallest_without": 1.137e-6, "smallest_with": "much higher", "generator": "SO(2)"}
"""What the paper reports, for comparison only."""


def run(config: LieGGHeatConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Singular values of the polarization matrix of the operator over the whole field, without and with source."""
    x = heat_fields(config.samples, initial=config.initial, generator=stream(seed, "heat", "fields")).double()
    # One chart as large as the field: the outermost pixels belong to the differences.
    atlas = Atlas.at([(64, 64)], in_radius=63, out_radius=59)
    search = LieGG()
    rows: list[dict[str, Any]] = []
    for source in (False, True):
        progress.say(f"LieGG {'with' if source else 'without'} the heat source")
        started = time.perf_counter()
        problem, _ = prepare(x, function=_operator(config, source), atlas=atlas, seed=seed, progress=progress)
        found = search.spectrum(problem, progress)
        rows.append(
            {
                "source": "with" if source else "without",
                **{f"singular value {i + 1}": v for i, v in enumerate(found.values.tolist())},
                "angle_deg": span_angle(LieAlgebra(found.directions[:1]), so(2)),
                "rows": found.rows,
                "seconds": time.perf_counter() - started,
            }
        )
    smallest = [row["singular value 1"] for row in rows]
    metrics = {
        "smallest_without": smallest[0],
        "smallest_with": smallest[1],
        "times_larger": smallest[1] / max(smallest[0], 1e-300),
        "angle_deg": rows[0]["angle_deg"],
        "rows": rows,
    }
    function = _operator(config, False)
    discovery = discover(
        x, function=function, atlas=atlas, search=search, cosets=False, **asking(config, seed, progress)
    )
    return discovery, Extras(metrics, REPORTED, {"input": x[0], "output": function(x[:1])[0]})


def _operator(config: LieGGHeatConfig, source: bool) -> Callable[[Tensor], Tensor]:
    if config.operator == "equation":
        return lambda u: heat_rate(u, source=source)
    return lambda u: simulate_heat(u, steps=1, source=source)
