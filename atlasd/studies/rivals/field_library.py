"""The vector-field method: a library of functions, and least squares on the gradient of a function that is learned.

A polynomial is fitted to the data. The fields that it does not change along, or that commute with it, are the null
space of a matrix with one column for each function of the library. A rule says how many singular values are zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.errors import InputError
from atlasd.geometry.monomials import Monomials
from atlasd.studies.rivals.null_space import Rule, Spectrum, fixed_threshold, solve_spectrum, wald_p_value

_LOOKED, _TESTED = 1000, 150
"""Samples at which residuals are formed, and tested: more than a polynomial of these degrees can tell apart."""
_UNFELT = 1e-3
"""Size of a field, in spreads of the data, that counts where the map feels nothing of it."""


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A polynomial fitted by least squares, in units of the spread of the inputs about their mean.

    Arguments:
        shift: Mean of the inputs, `(n,)`.
        scale: Their spread, `(n,)`.
        coefficients: Of every monomial in every output, `(m, O)`.
        covariance: Of the coefficients of one output at noise 1, `(m, m)`.
        noise: Standard deviation of what is left of every output, `(O,)`.
    """

    shift: Tensor
    scale: Tensor
    degree: int
    coefficients: Tensor
    covariance: Tensor
    noise: Tensor

    @classmethod
    def fit(cls, x: Tensor, y: Tensor, most: int) -> Polynomial:
        """Fits inputs `(N, n)` and targets `(N, O)`; the degree is the one with the least error on a fifth held out."""
        some = len(x) // 5
        errors = {}
        for degree in range(1, most + 1):
            if math.comb(x.shape[1] + degree, degree) > (len(x) - some) // 2:
                break
            part = cls.of_degree(x[some:], y[some:], degree)
            errors[degree] = float(((part(x[:some]) - y[:some]) / y.std(0).clamp_min(1e-300)).square().mean())
        if not errors:
            raise InputError(f"`x` must have at least {4 * (x.shape[1] + 1)} samples, got {len(x)}.")
        # The lowest degree that does as well, up to the error of a mean of squares, and to rounding.
        least = min(errors.values()) * (1 + math.sqrt(2 / (some * y.shape[1]))) + 1e-20
        return cls.of_degree(x, y, next(d for d, e in errors.items() if e <= least))

    @classmethod
    def of_degree(cls, x: Tensor, y: Tensor, degree: int) -> Polynomial:
        """Fits one degree."""
        shift, scale = x.mean(0), x.std(0).clamp_min(1e-300)
        columns = Monomials(x.shape[1], degree)((x - shift) / scale)
        u, s, v = torch.linalg.svd(columns, full_matrices=False)
        s = torch.where(s > 1e-10 * s.max(), s, torch.inf)
        coefficients = v.mT @ ((u.mT @ y) / s[:, None])
        left = y - columns @ coefficients
        free = max(len(x) - columns.shape[1], 1)
        noise = (left.square().sum(0) / free).sqrt().clamp_min(1e-9 * float(y.std()))
        return cls(shift, scale, degree, coefficients, (v.mT / s**2) @ v, noise)

    @property
    def monomials(self) -> Monomials:
        """Its monomials."""
        return Monomials(len(self.shift), self.degree)

    def values(self, x: Tensor) -> Tensor:
        """Values of the monomials, `(N, m)`."""
        return self.monomials((x - self.shift) / self.scale)

    def slopes(self, x: Tensor) -> Tensor:
        """Derivatives of the monomials, `(N, m, n)`."""
        return self.monomials.gradients((x - self.shift) / self.scale) / self.scale

    def __call__(self, x: Tensor) -> Tensor:
        """Values at inputs `(N, n)`, with shape `(N, O)`."""
        return self.values(x) @ self.coefficients


@dataclass(frozen=True, kw_only=True)
class VectorFields:
    """Finds fields whose components are polynomials along which a learned polynomial does not change.

    Arguments:
        library: Highest degree of the monomials of the fields.
        least: Lowest degree of them; 1 leaves out translations.
        equivariant: Whether targets are velocities, which transform with the fields, in place of invariants.
        rule: How the dimension of the null space is decided.

    Example:
        >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> fields = VectorFields(library=1).find(x, x.square().sum(-1))
        >>> (fields / fields[0, 0, 2]).round(decimals=6).abs().tolist()
        [[[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]]

    References:
        Shaw, Magner and Moon, Symmetry discovery beyond affine transformations (2024); the rules are those that
        certified symmetry discovery (2026) is compared with.
    """

    library: int = 1
    least: int = 0
    equivariant: bool = False
    degree: int = 6
    rule: Rule = fixed_threshold

    def find(self, x: Tensor, y: Tensor) -> Tensor:
        """Fields from inputs `(N, n)` and targets `(N,)` or `(N, O)`: coefficients `(k, n, m)` of raw monomials."""
        x, y = x.double(), y.double().reshape(len(x), -1)
        learned = Polynomial.fit(x, y, self.degree)
        terms = Monomials(x.shape[1], self.library, self.least)
        along, across = self._parts(learned, x[:_LOOKED], terms)
        spectrum = self._spectrum(learned, along, across, x[:_LOOKED], terms)
        count = self.rule(spectrum, lambda k: _p_value(learned, along - across, spectrum.directions, k))
        return spectrum.directions[:count].unflatten(1, (x.shape[1], len(terms)))

    def _spectrum(self, learned: Polynomial, along: Tensor, across: Tensor, x: Tensor, terms: Monomials) -> Spectrum:
        """Singular values of the residual, as shares of the sizes of its two parts."""
        # Velocities transform together, and have one unit.
        unit = learned(x).std(0).clamp_min(1e-300)[:, None]
        spread = unit.square().mean().sqrt() if self.equivariant else unit
        first, second = (torch.einsum("bopqc,pq->boc", part, learned.coefficients) / spread for part in (along, across))
        field = torch.einsum("bm,ij->bijm", terms(x), torch.diag(1 / learned.scale)).flatten(2)  # (b, n, c)
        if not self.equivariant:
            # What a field of the same size along the gradient would change.
            slope = torch.einsum("bpi,po->boi", learned.slopes(x), learned.coefficients) / spread * learned.scale
            second = slope.flatten(1).norm(dim=1)[:, None, None] * field
            return solve_spectrum(first.flatten(0, 1), torch.cat([second, _UNFELT * field]).flatten(0, 1))
        sizes = torch.cat([p.flatten(0, 1) for p in (first, second, _UNFELT * field)])
        return solve_spectrum((first - second).flatten(0, 1), sizes)

    def _parts(self, learned: Polynomial, x: Tensor, terms: Monomials) -> tuple[Tensor, Tensor]:
        """Derivatives of the map along the fields, and of the fields along the map.

        Both are linear in the learned coefficients and in those of the library: samples, outputs, (m, O), library.
        """
        n, outputs = x.shape[1], learned.coefficients.shape[1]
        along = torch.einsum("bpi,bm->bpim", learned.slopes(x), terms(x)).flatten(2)  # (b, p, n * m)
        along = torch.einsum("bpc,oq->bopqc", along, torch.eye(outputs, dtype=x.dtype))
        if not self.equivariant:
            return along, torch.zeros_like(along)
        across = torch.einsum("bmq,bp,oi->bopqim", terms.gradients(x), learned.values(x), torch.eye(n, dtype=x.dtype))
        return along, across.flatten(4)


def _p_value(learned: Polynomial, parts: Tensor, directions: Tensor, count: int) -> float:
    """The test of the first of directions `(r, c)`; residuals are linear in both sets of coefficients of `parts`."""
    some = parts[:_TESTED].flatten(0, 1)  # residuals (R), learned coefficients (m, O), library (c)
    rows = torch.einsum("rpqc,pq->rc", some, learned.coefficients) @ directions.mT  # (R, r)
    slopes = torch.einsum("rpqc,kc->rkpq", some, directions[:count]).flatten(2)  # (R, k, m * O)
    values, vectors = torch.linalg.eigh(learned.covariance)
    root = torch.kron((vectors * values.clamp_min(0.0).sqrt()).contiguous(), torch.diag(learned.noise))
    return wald_p_value(rows[:, :count], slopes, rows[:, count:], root)


def homogeneous_to_fields(basis: Tensor) -> Tensor:
    """Homogeneous generators `(k, n + 1, n + 1)` as coefficients `(k, n, n + 1)` of 1 and the components."""
    n = basis.shape[-1] - 1
    return torch.cat([basis[:, :n, n:], basis[:, :n, :n]], dim=-1)
