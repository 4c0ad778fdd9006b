r"""Conserved quantities: functions of a library that are constant along a flow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.algebra.basis import standard_form
from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.geometry.monomials import LEAST, Monomials, variables, write_sum
from atlasd.limits import APART
from atlasd.prediction.crossfit import cross_fit
from atlasd.prediction.predictor import PredictorSpec
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

Function = Callable[[Tensor], Tensor]
_DEGREE, _MOST = 4, 200
"""Highest degree, and the most functions, of a library that is chosen by itself."""
_LEVEL, _BLIND = 0.05, 1e-8
_EXACT = 0.1
"""Share of the tolerance below which a change counts as none."""
_ONE_LEVEL = 0.05
"""Spread of a function over states, as a share of what its slopes suggest, below which they lie on one level of it."""
_UNRELATED, _LOOKED = 9, 12
"""Flows that have nothing to do with the states, and the most combinations that are judged."""


@dataclass(frozen=True, eq=False)
class Conserved:
    """A function that is constant along the flow.

    Arguments:
        formula: How it is written, without terms that are as small as what is not known of it; a constant may be added
            to it, and it may be multiplied.
        coefficients: Of the functions of the library, `(m,)`.
        names: Of the functions of the library.
        strength: Change along the flow, as a share of the change along unrelated velocities.
        upper: Upper end of its confidence interval.
    """

    formula: str
    coefficients: Tensor
    names: tuple[str, ...]
    strength: float
    upper: float

    def __str__(self) -> str:
        return f"{self.formula}  (changes at most {self.upper:.1%} as much as along unrelated velocities)"


def find_conserved(
    x: Tensor,
    dx: Tensor,
    *,
    predictor: PredictorSpec,
    degree: int | None,
    functions: Mapping[str, Function],
    tolerance: float,
    seed: int,
    progress: Progress,
    letters: Sequence[str] | None = None,
) -> tuple[tuple[Conserved, ...], str]:
    r"""Functions I of a library with :math:`\nabla I \cdot F = 0`, and what was concluded, in a sentence.

    Degree by degree, the null space of :math:`\nabla I \cdot F` is taken on held-out predictions of the velocities and
    judged on the velocities themselves. Functions of those found before are left out: their gradients span nothing new.

    Arguments:
        x: States, `(N, n)`.
        dx: Velocities, `(N, n)`.
        functions: Further functions of the library, by name.
        letters: Names of the components; x, y, z, or x1, x2, ... by default.
    """
    if degree == 0 and not functions:
        return (), "Conserved quantities were not asked for."
    n = x.shape[1]
    degree = _room(len(x), n, len(functions)) if degree is None else degree
    if degree < 0 or math.comb(n + degree, degree) > max(len(x) // 2, _MOST):
        raise InputError(
            f"`degree` must leave fewer functions than half the states: degree {degree} has "
            f"{math.comb(n + max(degree, 0), max(degree, 0))} monomials for {len(x)} states; "
            f"{_room(len(x), n, len(functions))} would fit."
        )
    full = _Library(tuple(letters or variables(n)), degree, dict(functions))
    speeds, elsewhere = _held_out(x, dx, full, predictor, seed, progress)
    order = torch.randperm(len(x), generator=stream(seed, "conserved"))
    halves = order[::2], order[1::2]
    found, still, other = _at_rest(x, dx, _EXACT * tolerance, full.letters)
    # A sum of coordinates that hardly changes beside the noise may be conserved as well.
    least = 0.0 if other <= tolerance else math.inf
    rank, limit, closed = len(found), tolerance, ("", 0.0)
    spanned = still.expand(len(x), -1, -1)
    for d in range(1, max(degree, 1) + 1):
        library = replace(full, degree=d if degree else 0)
        gradients, frame, sizes = library.independent(x)
        # What a library of this size holds for flows that have nothing to do with the states is no discovery.
        chance = [min(j.strength for j in _judge(gradients, v, v, halves)[0]) for v in elsewhere]
        limit = min(tolerance, sorted(chance)[len(chance) // 2] / APART)
        judged, free = _judge(gradients, dx, speeds, halves)
        least = min(least, min(j.low for j in judged))
        if least > _EXACT * tolerance:
            closed = library.size, least
        # What changes little, yet clearly, is not conserved.
        passed = [j for j in judged if j.high <= limit and j.low <= _EXACT * tolerance]
        worst = max((j.strength for j in passed), default=0.0), max((j.high for j in passed), default=0.0)
        # What no velocity changes may be added to a quantity, and makes some read better: the shortest come first.
        plain = _plain([*(j.direction for j in passed), *(free if passed else ())], frame)
        felt = (plain @ frame.mT * sizes).abs()
        for direction in plain[(felt > LEAST * felt.amax(1, keepdim=True)).sum(1).argsort(stable=True)]:
            slope = torch.einsum("m,bmi->bi", direction, gradients)[:, None]
            more = torch.cat([spanned, slope / slope.norm(dim=-1, keepdim=True).clamp_min(1e-300)], dim=1)
            if _rank(more) > rank:
                spanned, rank = more, rank + 1
                found.append(library.describe(frame @ direction, sizes, *worst))
    if found:
        count = "1 quantity" if len(found) == 1 else f"{len(found)} quantities"
        reason = f"Conserved among {library.size}: {count}."
        if same := sum(full.on_one_level(c, x) for c in found):
            of = "it" if len(found) == 1 else f"{same} of them"
            reason += f" All states lie on one level of {of}: what holds on these states, such as "
            reason += "those of one orbit, need not be conserved on others."
        return tuple(found), reason
    said = []
    if closed[0]:
        said = [f"Nothing is conserved among {closed[0]}: the least changing one changes by at least {closed[1]:.1%}."]
    if closed[0] != library.size:
        alike = f"changes below {limit:.1%} all look alike"
        said.append(f"Cannot tell whether anything is conserved among {library.size}: {alike}.")
    return (), " ".join(said)


def _at_rest(x: Tensor, dx: Tensor, limit: float, letters: tuple[str, ...]) -> tuple[list[Conserved], Tensor, float]:
    """Sums of coordinates that stay as they are, their gradients `(k, n)`, and by how much the next one changes.

    Those have the same gradient everywhere, so that it does not matter which state a velocity belongs to: they are
    judged by the velocities alone, in units of the states, with all their noise.
    """
    library = _Library(letters, 1, {})
    gradients, frame, sizes = library.independent(x)
    apart = (x - x.mean(0)) / len(x) ** 0.5
    across = torch.linalg.svd(apart @ frame, full_matrices=False)
    white = across.Vh.mT / across.S.clamp_min(_BLIND * across.S.max())
    values, mixes = torch.linalg.eigh(((dx @ frame @ white).mT @ (dx @ frame @ white)) / len(x))
    shares = (values.clamp_min(0.0) / values.mean().clamp_min(1e-300)).sqrt()
    worst = max((s for s in shares.tolist() if s <= limit), default=0.0)
    plain = _plain(list((white @ mixes).mT[shares <= limit]), frame)
    slopes = functional.normalize(torch.einsum("kr,ri->ki", plain, gradients[0]), dim=-1)
    others = [s for s in shares.tolist() if s > limit]
    return [library.describe(frame @ p, sizes, worst, worst) for p in plain], slopes, min(others, default=math.inf)


def _room(states: int, n: int, others: int) -> int:
    """The highest degree, up to four, with fewer functions than a quarter of the states."""
    sizes = [d for d in range(1, _DEGREE + 1) if math.comb(n + d, d) + others <= min(states // 4, _MOST)]
    return max(sizes, default=1)


def _held_out(
    x: Tensor, dx: Tensor, library: _Library, predictor: PredictorSpec, seed: int, progress: Progress
) -> tuple[Tensor, list[Tensor]]:
    """Velocities `(N, n)` of every state as predicted from other folds, and those of states rotated at random.

    The better of two predictors: the given one, and a regression on what gradients of the library are made of.
    """
    samples = Samples.check(x, dx, None, minimum=20).standard(centred=True, velocities=True)
    units = samples.units
    assert units is not None
    fits = cross_fit(predictor, samples, (), seed=seed, progress=progress)
    generator = stream(seed, "conserved", "unrelated")
    turns = torch.linalg.qr(torch.randn(_UNRELATED, *[x.shape[1]] * 2, generator=generator, dtype=torch.float64)).Q
    # No farther out than data are. A flow that is only rotated may conserve something of its own.
    turns = turns * torch.rand(_UNRELATED, x.shape[1], 1, generator=generator, dtype=torch.float64)
    turns = torch.cat([torch.eye(x.shape[1], dtype=torch.float64)[None], turns])
    made: list[list[Tensor]] = [[torch.zeros_like(dx) for _ in turns] for _ in range(2)]
    for k, member in enumerate(fits.members):
        mine, others = (fits.fold == k).nonzero().flatten(), (fits.fold != k).nonzero().flatten()
        weights = _regress(library.forces(x[others]), dx[others])
        z = samples.inputs(mine)
        with torch.no_grad():
            for t, turn in enumerate(turns):
                made[0][t][mine] = units.raw_targets(member.function(z @ turn)[:, 0].double())
                made[1][t][mine] = library.forces(units.raw_inputs(z @ turn)[:, 0]) @ weights
    best = min(made, key=lambda guesses: float(units.targets(guesses[0] - dx).square().mean()))
    return best[0], best[1:]


def _regress(columns: Tensor, y: Tensor) -> Tensor:
    """Weights `(m, n)` of a regression with as much ridge as rounding asks for."""
    size = columns.square().mean(0).sqrt().clamp_min(1e-300)
    gram = (columns / size).mT @ (columns / size) / len(columns)
    right = (columns / size).mT @ y / len(columns)
    return torch.linalg.solve(gram + _BLIND * torch.eye(len(gram), dtype=gram.dtype), right) / size[:, None]


@dataclass(frozen=True, eq=False)
class _Library:
    """Monomials without the constant, and further functions."""

    letters: tuple[str, ...]
    degree: int
    functions: dict[str, Function]

    @property
    def n(self) -> int:
        """Number of components."""
        return len(self.letters)

    @property
    def size(self) -> str:
        """What is in it, for people."""
        own = f"functions of degree up to {self.degree}"
        return (own + " with the given ones" if self.functions else own) if self.degree else "the given functions"

    @property
    def names(self) -> list[str]:
        monomials = Monomials(self.n, self.degree, least=1).names(self.letters) if self.degree else []
        return [*monomials, *self.functions]

    def independent(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients `(N, r, n)` of combinations that differ on the data, those `(m, r)`, and sizes of gradients."""
        parts = [Monomials(self.n, self.degree, least=1).gradients(x)] if self.degree else []
        parts += [_gradient(name, f, x)[:, None] for name, f in self.functions.items()]
        rows = torch.cat(parts, dim=1)  # (N, m, n)
        size = rows.square().sum(-1).mean(0).sqrt().clamp_min(1e-300)
        gram = torch.einsum("bmi,bki->mk", rows / size[:, None], rows / size[:, None]) / len(x)
        values, vectors = torch.linalg.eigh(gram)
        keep = values > _BLIND * values.max()
        frame = vectors[:, keep] / values[keep].sqrt() / size[:, None]
        return torch.einsum("bmi,mr->bri", rows, frame), frame, size

    def on_one_level(self, found: Conserved, x: Tensor) -> bool:
        """Whether a function hardly varies over all states: far less than its slopes and their spread would let it."""
        place = {name: k for k, name in enumerate(self.names)}
        c = torch.zeros(len(place), dtype=torch.float64)
        c[[place[name] for name in found.names]] = found.coefficients
        z = x.clone().requires_grad_()
        columns = [Monomials(self.n, self.degree, least=1)(z)] if self.degree else []
        with torch.enable_grad():
            value = torch.cat([*columns, *(f(z)[:, None] for f in self.functions.values())], dim=1) @ c
            (slope,) = torch.autograd.grad(value.sum(), z)
        could = float((slope.square().mean(0) * x.var(0)).sum())
        return float(value.detach().var()) < _ONE_LEVEL**2 * could

    def forces(self, x: Tensor) -> Tensor:
        """What velocities of states `(N, n)` may be made of, `(N, k)`: monomials, and derivatives of the functions."""
        slopes = [_gradient(name, f, x) for name, f in self.functions.items()]
        return torch.cat([Monomials(self.n, max(self.degree, 1))(x), *slopes], dim=1)

    def describe(self, coefficients: Tensor, sizes: Tensor, strength: float, upper: float) -> Conserved:
        """The function in words, its largest coefficient 1."""
        c = coefficients / coefficients[coefficients.abs().argmax()]
        felt = (c * sizes).abs()
        shown = torch.where(felt >= max(upper, LEAST) * felt.max(), c, 0.0)
        return Conserved(write_sum(shown.tolist(), self.names, least=0.0), c, tuple(self.names), strength, upper)


def _gradient(name: str, function: Function, x: Tensor) -> Tensor:
    """Derivative of a function of states `(N, n)`."""
    with torch.enable_grad():
        z = x.clone().requires_grad_()
        y: Any = function(z)
        if not isinstance(y, Tensor) or y.shape != x.shape[:1] or not y.requires_grad:
            raise InputError(f"`functions` must map states (N, n) to differentiable values (N,); {name!r} does not.")
        (slope,) = torch.autograd.grad(y.sum(), z)
    if not bool(slope.isfinite().all()):
        raise InputError(f"`functions` must be finite on the states; the derivative of {name!r} is not.")
    return slope


@dataclass(frozen=True, eq=False)
class _Judged:
    """A combination `(r,)` of the library, its strength, and both ends of the interval of that."""

    direction: Tensor
    strength: float
    low: float
    high: float


def _judge(
    gradients: Tensor, dx: Tensor, speeds: Tensor, halves: tuple[Tensor, Tensor]
) -> tuple[list[_Judged], Tensor]:
    """Combinations of the library, the least changing first: chosen on one half of the states, judged on the other.

    Those that no velocity of any state changes are left out, and come second, `(f, r)`.

    Noise of a label is unrelated to what other labels predict: the product of both has no part of it.
    """
    rates, labels = (torch.einsum("bri,bi->br", gradients, v) for v in (speeds, dx))
    both = (dx.mT @ speeds + speeds.mT @ dx) / (2 * len(dx))
    first, second = halves
    unrelated = torch.einsum("bri,ij,bqj->rq", gradients[first], both, gradients[first]) / len(first)
    sizes, vectors = torch.linalg.eigh(unrelated)
    keep = sizes > _BLIND * sizes.max()
    white = vectors[:, keep] / sizes[keep].sqrt()
    change = white.mT @ (labels[first].mT @ rates[first]) @ white / len(first)
    values, mixes = torch.linalg.eigh((change + change.mT) / 2)
    levels = torch.tensor([1 - _LEVEL, 1 - _LEVEL / len(values)])
    single, all_together = torch.distributions.Normal(0.0, 1.0).icdf(levels).tolist()
    out = []
    for direction in (white @ mixes).mT[values.abs().argsort()[:_LOOKED]]:
        e = (labels[second] @ direction) * (rates[second] @ direction)
        slope = torch.einsum("bri,r->bi", gradients[second], direction)
        # Every state counts alike, however steep the function is there: few would decide otherwise.
        share = e / torch.einsum("bi,ij,bj->b", slope, both, slope).clamp_min(1e-300)
        ratio, error = abs(float(share.mean())), float(share.std()) / len(e) ** 0.5
        ends = (math.sqrt(max(v, 0.0)) for v in (ratio, ratio - single * error, ratio + all_together * error))
        out.append(_Judged(direction, *ends))
    return out, vectors[:, ~keep].mT


def _plain(directions: list[Tensor], frame: Tensor) -> Tensor:
    """Combinations `(k, r)` with the same span that have few functions of the library each, and share few.

    Arguments:
        directions: Combinations of independent functions, each `(r,)`.
        frame: These as combinations of the functions of the library, `(m, r)`.
    """
    if len(directions) < 2:
        return torch.stack(directions) if directions else frame.new_zeros(0, frame.shape[1])
    size = 1 / frame.norm(dim=1).clamp_min(1e-300)  # a function as large as the others counts as much
    rows = (torch.stack(directions) @ frame.mT) * size
    side = math.ceil(rows.shape[1] ** 0.5)
    square = functional.pad(rows, (0, side * side - rows.shape[1])).unflatten(1, (side, side))
    plain = standard_form(square).flatten(1)[:, : rows.shape[1]] / size
    return torch.linalg.lstsq(frame, plain.mT).solution.mT


def _rank(slopes: Tensor) -> int:
    """Rank of gradients `(N, k, n)` at most states."""
    values = torch.linalg.svdvals(slopes)
    return int((values > 0.05).sum(-1).median())
