"""LieGG: generators from the null space of the polarization matrix, as a search beside ours."""

from __future__ import annotations

__all__ = ["LieGG"]

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.discovery.problem import Problem
from atlasd.discovery.search import Found
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction, VectorAction
from atlasd.runtime.progress import Progress
from atlasd.studies.rivals.null_space import Spectrum
from atlasd.studies.rivals.polarization import dense_spectrum, field_rows, streamed_spectrum, vector_rows


@dataclass(frozen=True, kw_only=True)
class LieGG:
    """Reads generators off the singular vectors of a predictor's polarization matrix.

    It has no null level, no finite size and no discrete part: directions are compared with the largest
    singular value only, so that directions that nothing feels bend its answer.

    Arguments:
        threshold: Singular values up to this share of the largest count as zero: what LieGG itself claims.
        generators: Takes this many of the smallest instead.
        dense: Keeps the whole matrix in memory, as in the paper, in place of a factor that is updated as rows come.
        samples: The most samples looked at; `None` for all that a search may see.
        order: Order of differences across pixels, on fields.
        batch: Samples evaluated together.

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
    dense: bool = False
    samples: int | None = None
    order: int = 8
    batch: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise InputError(f"`threshold` must lie between 0 and 1, got {self.threshold}.")
        if self.generators is not None and self.generators < 0:
            raise InputError(f"`generators` must not be negative, got {self.generators}.")

    def find(self, problem: Problem, *, seed: int, progress: Progress) -> Found:
        """The directions with the smallest singular values; the seed changes nothing."""
        spectrum = self.spectrum(problem, progress)
        values = spectrum.values
        few = int((values <= self.threshold * values.max()).sum()) if self.generators is None else self.generators
        notes = () if few else ("no singular value is near zero",)
        return Found(spectrum.directions[:few], tuple(values.tolist()), notes=notes, fixed=True)

    def spectrum(self, problem: Problem, progress: Progress) -> Spectrum:
        """All singular values, as root mean squares over the rows in units of the spread of the outputs."""
        spread = _Spread()
        rows = self._rows(problem, spread, progress)
        solve = dense_spectrum if self.dense else streamed_spectrum
        raw = solve(rows, problem.size)
        return Spectrum(raw.values / max(spread.value(), 1e-300), raw.directions, raw.rows)

    def _rows(self, problem: Problem, spread: _Spread, progress: Progress) -> Iterator[Tensor]:
        """The rows of one batch after the other."""
        _check_action(problem)
        index = problem.search if self.samples is None else problem.search[: self.samples]
        parts = index.split(self.batch or (16 if problem.is_field else 512))
        for part in progress.track(parts, "polarization matrix"):
            x = problem.patches(part)
            if not problem.is_field:
                one = x[:, 0]
                with torch.no_grad():
                    spread.add(problem.outputs(x)[:, 0].flatten(1))
                yield vector_rows(lambda z: problem.outputs(z.unsqueeze(1))[:, 0], one)
                continue
            window = problem.window(_output_shape(problem, x)) > 0.5
            rows, y = field_rows(problem.outputs, x, dimensions=problem.size, inside=window, order=self.order)
            spread.add(y[..., window].reshape(-1, 1))
            yield rows


class _Spread:
    """Standard deviation of outputs that come in batches."""

    def __init__(self) -> None:
        self._sums: Tensor | None = None
        self._count = 0

    def add(self, y: Tensor) -> None:
        """Takes outputs `(B, O)`."""
        y = y.detach().double()
        sums = torch.stack([y.sum(0), y.square().sum(0)])
        self._sums = sums if self._sums is None else self._sums + sums
        self._count += len(y)

    def value(self) -> float:
        """Root of the mean variance."""
        if self._sums is None:
            return 0.0
        mean, square = self._sums / self._count
        return float((square - mean.square()).clamp_min(0.0).mean().sqrt())


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
