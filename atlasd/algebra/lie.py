r"""Matrix Lie algebras as subspaces, and the matrices among which searches look for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from atlasd.algebra import structure
from atlasd.errors import InputError
from atlasd.runtime.codec import storable

# A generator that float32 cannot tell from a combination of the others is not a new direction. The tolerance is just
# above its rounding: a conjugation of condition 1,000 leaves singular values of 1e-6.
_RANK_TOLERANCE = 3e-7


@storable()
@dataclass(frozen=True, eq=False)
class LieAlgebra:
    r"""A subspace of :math:`\mathfrak{gl}(n)`, named by one of its bases.

    The basis is evidence, the span is the claim: every method except :meth:`exp` gives the same
    answer for any basis of the same span. Methods that decide a rank take a `tolerance` on the scale
    of an orthonormal frame, where brackets have norm of order one; the defaults bear a few per cent
    of noise in the basis.

    Arguments:
        basis: Generators, with shape `(k, n, n)`, stored in float64. `k = 0` is the trivial algebra.

    Example:
        >>> rotation = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]])
        >>> so2 = LieAlgebra(rotation)
        >>> so2
        LieAlgebra(dimension=1, size=2)
        >>> so2.exp(torch.tensor([[torch.pi / 2]])).round() + 0.0
        tensor([[[ 0., -1.],
                 [ 1.,  0.]]], dtype=torch.float64)
        >>> so2.distance(LieAlgebra(-3 * rotation)) < 1e-12
        True
    """

    basis: Tensor

    def __post_init__(self) -> None:
        try:
            basis = torch.as_tensor(self.basis).detach().to(torch.float64)
        except (TypeError, ValueError, RuntimeError) as cause:
            raise InputError(
                f"`basis` must be an array of numbers, got {type(self.basis).__name__}; pass a tensor (k, n, n)."
            ) from cause
        if basis.ndim != 3 or basis.shape[-2] != basis.shape[-1] or basis.shape[-1] == 0:
            raise InputError(
                f"`basis` must have shape (k, n, n), got {tuple(basis.shape)}; "
                "stack the generators along the first axis."
            )
        if not torch.isfinite(basis).all():
            raise InputError("`basis` must be finite, got NaN or infinite entries; check the search that produced it.")
        object.__setattr__(self, "basis", basis)

    def __repr__(self) -> str:
        return f"LieAlgebra(dimension={self.dimension}, size={self.size})"

    @property
    def size(self) -> int:
        r"""The size `n` of the matrices."""
        return int(self.basis.shape[-1])

    @property
    def dimension(self) -> int:
        r"""The rank of the span."""
        return int(self._frame.shape[0])

    @cached_property
    def _frame(self) -> Tensor:
        r"""Orthonormal generators as rows, with shape `(dimension, n * n)`."""
        return structure.orthonormal_rows(self.basis.flatten(1), _RANK_TOLERANCE)

    @cached_property
    def _constants(self) -> Tensor:
        return structure.structure_constants(self.frame())

    def frame(self) -> Tensor:
        r"""Orthonormal generators of the span, with shape `(dimension, n, n)`."""
        return self._frame.unflatten(1, (self.size, self.size))

    def exp(self, coefficients: Tensor) -> Tensor:
        r"""Maps coefficients `(*, k)` with respect to `basis` to group elements `(*, n, n)`."""
        coefficients = torch.as_tensor(coefficients, device=self.basis.device).to(torch.float64)
        if coefficients.ndim == 0 or coefficients.shape[-1] != self.basis.shape[0]:
            raise InputError(
                f"`coefficients` must have shape (*, {len(self.basis)}), got {tuple(coefficients.shape)}; "
                "give one coefficient per generator."
            )
        return torch.matrix_exp(torch.einsum("...k,kij->...ij", coefficients, self.basis))

    def angles(self, other: LieAlgebra) -> Tensor:
        r"""Principal angles between the spans in radians, ascending, `(min(dimensions),)`."""
        self._check_size(other)
        return structure.principal_angles(self._frame, other._frame)

    def distance(self, other: LieAlgebra) -> float:
        r"""Sine of the largest principal angle between the spans, 1 if the ranks differ."""
        self._check_size(other)
        if self.dimension != other.dimension:
            return 1.0
        return float(self.angles(other).sin().max()) if self.dimension else 0.0

    def contains(self, matrix: Tensor, tolerance: float = 1e-6) -> bool:
        r"""Whether `matrix`, with shape `(n, n)`, lies in the span up to a relative `tolerance`."""
        vector = torch.as_tensor(matrix, device=self.basis.device).to(torch.float64).flatten()
        if vector.numel() != self.size**2:
            raise InputError(
                f"`matrix` must have shape ({self.size}, {self.size}), got {vector.numel()} entries; "
                "it must act on the same space as the algebra."
            )
        outside = vector - (vector @ self._frame.mT) @ self._frame
        return bool(outside.norm() <= tolerance * vector.norm())

    def closure_error(self) -> float:
        r"""Share of the brackets of an orthonormal frame that lies outside the span, 0 to 1.

        The share is taken of the brackets' size, or of the size brackets usually have where these
        nearly vanish, so that a noisy commuting algebra counts as nearly closed.
        """
        return structure.closure_error(self.frame())

    def derived_series(self, tolerance: float = 0.1) -> list[LieAlgebra]:
        r""":math:`g, [g, g], [[g, g], [g, g]], \ldots` until it stops shrinking."""
        return [self._part(rows) for rows in structure.derived_series(self._constants, tolerance)]

    def centre(self, tolerance: float = 0.1) -> LieAlgebra:
        r"""The elements that commute with the whole algebra."""
        return self._part(structure.centre(self._constants, tolerance))

    def killing_signature(self, tolerance: float = 0.05) -> tuple[int, int, int]:
        r"""Numbers of positive, negative and zero eigenvalues of the Killing form."""
        values = torch.linalg.eigvalsh(structure.killing_form(self._constants))
        # A nilpotent algebra has a form of pure noise, which must not set the scale.
        limit = tolerance * max(float(values.abs().max()) if values.numel() else 0.0, 0.5)
        positive, negative = int((values > limit).sum()), int((values < -limit).sum())
        return positive, negative, self.dimension - positive - negative

    def sum(self, other: LieAlgebra, tolerance: float = 1e-6) -> LieAlgebra:
        r"""The span of both algebras together."""
        self._check_size(other)
        rows = structure.significant_rows(torch.cat([self._frame, other._frame]), tolerance)
        return LieAlgebra(rows.unflatten(1, (self.size, self.size)))

    def adjoint(self, g: Tensor) -> LieAlgebra:
        r"""The algebra of all :math:`g A g^{-1}`, for a group element `g` with shape `(n, n)`."""
        g = torch.as_tensor(g, device=self.basis.device).to(torch.float64)
        if g.shape != (self.size, self.size):
            raise InputError(
                f"`g` must have shape ({self.size}, {self.size}), got {tuple(g.shape)}; "
                "it must act on the same space as the algebra."
            )
        return LieAlgebra(torch.linalg.solve(g.mT, (g @ self.basis).mT).mT)

    def conjugate(self, g: Tensor) -> LieAlgebra:
        r"""Alias of :meth:`adjoint`."""
        return self.adjoint(g)

    def nearest_algebra(self, iterations: int = 40) -> LieAlgebra:
        r"""Moves the span as little as it can to one that is closed under the bracket.

        A span that is near no algebra is moved to wherever closure was best; see :meth:`closure_error`.
        """
        return LieAlgebra(structure.close_brackets(self.frame(), iterations))

    def _check_size(self, other: LieAlgebra) -> None:
        if other.size != self.size:
            raise InputError(
                f"`other` must hold {self.size} x {self.size} matrices, got {other.size} x {other.size}; "
                "compare algebras that act on the same space."
            )

    def _part(self, rows: Tensor) -> LieAlgebra:
        r"""The subalgebra with frame coordinates `rows`, with shape `(m, dimension)`."""
        return LieAlgebra((rows @ self._frame).unflatten(1, (self.size, self.size)))


@dataclass(frozen=True)
class Ambient:
    r"""GL(n), or the affine maps of n - 1 coordinates as homogeneous matrices of size n.

    Arguments:
        affine: Whether the last row is that of a homogeneous matrix.

    Example:
        >>> len(Ambient(3).directions), len(Ambient(3, affine=True).directions)
        (9, 6)
    """

    size: int
    affine: bool = False

    @property
    def block(self) -> int:
        r"""Size of the linear part."""
        return self.size - int(self.affine)

    @property
    def directions(self) -> Tensor:
        r"""Unit matrices that span all generators, with shape `(m, n, n)`."""
        n = self.size
        units = torch.eye(n * n, dtype=torch.float64).view(n, n, n, n)
        return units[: self.block].flatten(0, 1)

    @property
    def translations(self) -> Tensor:
        r"""Generators of translations along every axis, with shape `(n - 1, n, n)`; none among linear maps."""
        n = self.size
        return self.directions[n - 1 :: n] if self.affine else torch.zeros(0, n, n, dtype=torch.float64)

    @property
    def scaling(self) -> Tensor:
        r"""The generator of scalings, of unit norm, with shape `(n, n)`."""
        return self._linear_identity() / self.block**0.5

    def unit_determinant(self, c: Tensor) -> Tensor:
        r"""Elements `(*, n, n)` scaled to :math:`|det| = 1`; singular ones become infinite or NaN."""
        scale = torch.linalg.det(c).abs()[..., None, None] ** (-1 / self.block)
        return torch.cat([scale * c[..., : self.block, :], c[..., self.block :, :]], dim=-2)

    def traceless(self, a: Tensor) -> Tensor:
        r"""Generators `(*, n, n)` without their trace."""
        trace = a.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        return a - trace / self.block * self._linear_identity()

    def tidy_generators(self, a: Tensor) -> Tensor:
        r"""Generators `(*, n, n)` whose last row is exactly that of a homogeneous one."""
        return torch.cat([a[..., : self.block, :], torch.zeros_like(a[..., self.block :, :])], dim=-2)

    def tidy_elements(self, g: Tensor) -> Tensor:
        r"""Elements `(*, n, n)` whose last row is exactly that of a homogeneous one."""
        last = torch.eye(self.size, dtype=g.dtype)[self.block :].expand(*g.shape[:-2], -1, -1)
        return torch.cat([g[..., : self.block, :], last], dim=-2)

    def random(self, count: int, generator: torch.Generator) -> Tensor:
        r"""Random elements with determinant 1 or -1, every second one orthogonal, `(count, n, n)`.

        Affine ones have a random fixed point, about as far from the origin as data in standard units are.
        """
        linear = _gaussian(count, self.block, generator)
        u, _, v = torch.linalg.svd(linear[::2])
        linear[::2] = u @ v
        if not self.affine:
            return linear
        c = torch.eye(self.size, dtype=torch.float64).repeat(count, 1, 1)
        fixed = torch.randn(count, self.block, 1, generator=generator, dtype=torch.float64)
        c[:, :-1, :-1], c[:, :-1, -1:] = linear, fixed - linear @ fixed
        return c

    def _linear_identity(self) -> Tensor:
        one = torch.eye(self.size, dtype=torch.float64)
        one[self.block :] = 0.0
        return one


def _gaussian(count: int, n: int, generator: torch.Generator) -> Tensor:
    r"""Gaussian matrices scaled to |det| = 1; nearly singular ones are drawn again."""
    drawn = torch.randn(count, n, n, generator=generator, dtype=torch.float64)
    while bool((bad := torch.linalg.det(drawn).abs() < 1e-3).any()):
        drawn[bad] = torch.randn(int(bad.sum()), n, n, generator=generator, dtype=torch.float64)
    return Ambient(n).unit_determinant(drawn)
