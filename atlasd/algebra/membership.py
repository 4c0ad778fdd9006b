"""Whether a matrix lies in the connected group that an algebra generates, also where exp is not onto."""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from atlasd.algebra.invariants import well_conditioned
from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError

Array: TypeAlias = npt.NDArray[np.float64]


def gap(d: Array) -> Array:
    r"""How far `d`, `(*, n, n)`, is from the identity, the same for `d` and its inverse."""
    differences = np.stack([d, _inverse(d)]) - np.eye(d.shape[-1])
    differences = np.nan_to_num(differences, nan=1e9, posinf=1e9, neginf=-1e9)
    return np.asarray(np.linalg.norm(differences, ord=2, axis=(-2, -1)).max(axis=0), dtype=np.float64)


def _inverse(d: Array) -> Array:
    r"""Inverse of each matrix, very large instead of an error where there is none."""
    # Relative to each matrix: beside entries of 1e9, an absolute 1e-12 is lost.
    size = np.maximum(np.abs(d).max(axis=(-2, -1), keepdims=True), 1.0) * np.eye(d.shape[-1])
    for share in (0.0, 1e-12, 1e-9, 1e-6):
        try:
            return np.asarray(np.linalg.inv(d + share * size), dtype=np.float64)
        except np.linalg.LinAlgError:
            continue
    return np.full_like(d, 1e9)


def orthogonal_form(frame: Array) -> tuple[Array, Array] | None:
    r"""Finds the symmetric form of which an algebra is the whole orthogonal algebra.

    Arguments:
        frame: Orthonormal generators, with shape `(k, n, n)`.

    Returns:
        The matrix `(n, n)` that brings the form to a diagonal of signs, and the signs `(n,)`, ascending;
        `None` where there is no such form.
    """
    k, n = len(frame), frame.shape[-1]
    if n < 2 or k != n * (n - 1) // 2:
        return None
    i, j = np.triu_indices(n)
    forms = np.zeros((len(i), n, n))
    forms[range(len(i)), i, j] = forms[range(len(i)), j, i] = np.where(i == j, 1.0, np.sqrt(0.5))
    images = frame.transpose(0, 2, 1)[None] @ forms[:, None] + forms[:, None] @ frame[None]
    images = images.reshape(len(i), -1)
    squares, v = np.linalg.eigh(images @ images.T)
    if squares[0] > 0.1**2 or squares[0] > 0.3**2 * squares[1]:
        return None
    values, vectors = np.linalg.eigh(np.tensordot(v[:, 0], forms, axes=1))
    if np.abs(values).min() < 0.1 * np.abs(values).max():
        return None
    return np.sqrt(np.abs(values))[:, None] * vectors.T, np.sign(values)


def orthogonal_parts(g: Array, coordinates: Array, signs: Array) -> tuple[Array, Array]:
    r"""Compares matrices with the nearest that preserve a form.

    Arguments:
        g: Matrices, with shape `(M, n, n)`.
        coordinates: Matrix that brings the form to `diag(signs)`, with shape `(n, n)`.
        signs: -1 and 1, with shape `(n,)`.

    Returns:
        What is left over, :math:`h^{-1} g` for the nearest h, with shape `(M, n, n)`, and whether h keeps
        the orientation of the negative and of the positive part, with shape `(M, 2)`; together the two
        answers name its component.
    """
    back = np.linalg.inv(coordinates)
    g = coordinates @ g @ back
    h = g
    # Newton's iteration for the generalised polar factor: the fixed points preserve the form.
    for _ in range(8):
        h = 0.5 * (h + signs[:, None] * _inverse(h).swapaxes(-2, -1) * signs)
    blocks = [h[:, signs == sign][:, :, signs == sign] for sign in (-1, 1)]
    oriented = np.stack([np.linalg.det(block) > 0 for block in blocks], axis=1)
    return back @ _inverse(h) @ g @ coordinates, oriented


def starting_points(frame: Array, count: int = 48) -> Array:
    r"""Inverses of group elements to start from, with shape `(count, n, n)`, the identity first."""
    k, n = len(frame), frame.shape[-1]
    if not k:
        return np.eye(n)[None]
    random = np.random.default_rng(0)
    steps = random.standard_normal((count, k))
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    # Far enough for the slowest rotation to reach 180 degrees; where there is none, for a fair stretch.
    rates = np.abs(np.linalg.eigvals(np.tensordot(steps, frame, axes=1)).imag)
    slowest = rates[rates > 0.15].min(initial=1.0)
    reach = np.pi * max(np.sqrt(2), 1 / slowest)
    steps *= np.linspace(0.0, reach, count)[:, None]
    if k == 1:
        steps = np.linspace(-reach, reach, count)[:, None] * (np.arange(count) > 0)[:, None]
    return _exp(np.tensordot(steps, frame, axes=1))


def _exp(a: Array) -> Array:
    r"""Exponential of matrices `(*, n, n)`, to about 1e-7; not scipy's, whose threads cost far more."""
    squarings = 5 + max(0, int(np.ceil(np.log2(np.abs(a).sum(axis=-1).max() + 1e-300))))
    x = a / 2**squarings
    square = x @ x
    one = np.eye(a.shape[-1])
    result = one + 0.5 * square @ (one + square / 12) + x @ (one + square / 6)
    for _ in range(squarings):
        result = result @ result
    return result


def search(g: Array, frame: Array, starts: Array) -> Array:
    r"""Looks for the nearest product h of exponentials to each of several matrices.

    Arguments:
        g: Matrices, with shape `(M, n, n)`.
        frame: Orthonormal generators, with shape `(k, n, n)`.
        starts: Elements to start from, with shape `(S, n, n)`.

    Returns:
        What is left over, :math:`h^{-1} g`, with shape `(M, n, n)`.
    """
    found = _descend(starts @ g[:, None], frame)
    return np.where((_cost(found) < _cost(g))[:, None, None], found, g)


def _descend(d: Array, frame: Array, keep: int = 6, steps: int = 24) -> Array:
    r"""Brings `d`, `(M, S, n, n)`, as near to the identity as the group can, `(M, n, n)`."""
    cost = _cost(d)
    best = np.argsort(cost, axis=1)[:, :keep]
    d = np.take_along_axis(d, best[:, :, None, None], axis=1)
    cost = np.take_along_axis(cost, best, axis=1)
    damping = np.full(cost.shape, 1e-3)
    active, previous = np.arange(len(d)), cost.min(axis=1)
    for step in range(steps):
        trial = _step(d[active], frame, damping[active])
        trial_cost = _cost(trial)
        better = trial_cost < cost[active]
        d[active] = np.where(better[:, :, None, None], trial, d[active])
        cost[active] = np.where(better, trial_cost, cost[active])
        damping[active] *= np.where(better, 0.2, 10.0)
        if step % 3 == 2:
            now = cost[active].min(axis=1)
            going = (now > 1e-4) & (now < 0.97 * previous[active])
            previous[active] = now
            active = active[going]
            if not len(active):
                break
    return d[np.arange(len(d)), cost.argmin(axis=1)]


def approach(g: Array, h: Array, frame: Array, steps: int = 8) -> Array:
    r"""Moves elements h, `(M, n, n)`, along the group to lower the plain distance from `g`, `(M, n, n)`."""
    k = len(frame)
    distance = np.linalg.norm(g - h, axis=(-2, -1))
    for _ in range(steps):
        moves = (h[:, None] @ frame).reshape(len(h), k, -1)
        gram = moves @ moves.swapaxes(-2, -1)
        ridge = 1e-6 * np.trace(gram, axis1=-2, axis2=-1)[:, None, None] * np.eye(k)
        a = np.linalg.solve(gram + ridge, moves @ (g - h).reshape(len(h), -1, 1))[..., 0]
        a *= np.minimum(1.0, 4.0 / np.maximum(np.linalg.norm(a, axis=-1, keepdims=True), 1e-12))
        trial = h @ _exp(np.tensordot(a, frame, axes=1))
        trial_distance = np.linalg.norm(g - trial, axis=(-2, -1))
        h = np.where((trial_distance < distance)[:, None, None], trial, h)
        distance = np.minimum(distance, trial_distance)
    return h


def _cost(d: Array) -> Array:
    r"""Squared distance of `d` and of its inverse from the identity, infinite where it overflows."""
    one = np.eye(d.shape[-1])
    with np.errstate(all="ignore"):
        cost = ((d - one) ** 2).sum(axis=(-2, -1)) + ((_inverse(d) - one) ** 2).sum(axis=(-2, -1))
    return np.where(np.isfinite(cost), cost, np.inf)


def _step(d: Array, frame: Array, damping: Array) -> Array:
    r"""One damped Gauss-Newton step `d -> exp(-A) d` for the cost above, A in the span of `frame`."""
    one = np.eye(d.shape[-1])
    inverse = _inverse(d)
    k, shape = len(frame), d.shape[:-2]
    left = (frame @ d[..., None, :, :]).reshape(*shape, k, -1)
    right = (inverse[..., None, :, :] @ frame).reshape(*shape, k, -1)
    gram = left @ left.swapaxes(-2, -1) + right @ right.swapaxes(-2, -1)
    slope = left @ (d - one).reshape(*shape, -1, 1) - right @ (inverse - one).reshape(*shape, -1, 1)
    ridge = damping * np.trace(gram, axis1=-2, axis2=-1) / k + 1e-12
    a = np.linalg.solve(gram + ridge[..., None, None] * np.eye(k), slope)[..., 0] @ frame.reshape(k, -1)
    a *= np.minimum(1.0, 2.0 / np.maximum(np.linalg.norm(a, axis=-1, keepdims=True), 1e-12))
    return _exp(-a.reshape(d.shape)) @ d


TOLERANCE = 0.25
"""Default largest residual of a member; noise of 3 % stays below it, a wrong component is near 2."""


class Membership:
    r"""The connected group :math:`G_0` generated by the exponentials of an algebra.

    The matrix is compared with the nearest element h of the group that can be found. Closed forms give h
    for GL+(n), SL(n), SO(n) and SO+(p, q), each also with scalings. Any other algebra goes through
    Gauss-Newton on :math:`h \leftarrow h \exp(A)`, which never leaves the group and does not ask
    for the matrix to be a single exponential. Ill-conditioned reductive algebras, such as the rotations of a long
    ellipsoid, are first brought into a well-conditioned frame; see :mod:`atlasd.algebra.invariants`.

    Arguments:
        algebra: The algebra, whose basis may be noisy.

    Example:
        >>> rotation = LieAlgebra(torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.float64))
        >>> rotations = Membership(rotation)
        >>> bool(rotations.residuals(-torch.eye(2)) < 0.01), bool(rotations.residuals(torch.eye(2) * 3) < 1)
        (True, False)
    """

    def __init__(self, algebra: LieAlgebra) -> None:
        self.size: int = algebra.size
        n = self.size
        self._change = well_conditioned(algebra)
        self._back = torch.linalg.inv(self._change)
        frame = _closed(LieAlgebra(self.framed(algebra.frame().cpu()))).frame().numpy().reshape(-1, n * n)
        self.dimension: int = len(frame)
        one = np.eye(n).reshape(-1) / np.sqrt(n)
        self._scales = len(frame) > 0 and bool(np.linalg.norm(one - frame.T @ (frame @ one)) < 0.15)
        if self._scales:
            # The scalings are split off: what is left is tested at determinant 1.
            frame = np.linalg.svd(frame - np.outer(frame @ one, one), full_matrices=False)[2][:-1]
        self._frame: Array = frame.reshape(-1, n, n)
        self._special = len(frame) == n * n - 1 and bool(np.abs(frame @ one).max(initial=0.0) < 0.15)
        self._form = None if self._special else orthogonal_form(self._frame)

    @cached_property
    def _starts(self) -> Array:
        return starting_points(self._frame)

    def framed(self, matrices: Tensor) -> Tensor:
        r"""Matrices, with shape `(*, n, n)`, in the frame in which they are compared."""
        return self._change @ matrices @ self._back

    def residuals(self, matrices: Tensor) -> Tensor:
        r"""Measures how far matrices are from the group.

        Arguments:
            matrices: Matrices g, with shape `(*, n, n)`.

        Returns:
            The larger of the spectral norms of :math:`h^{-1} g - 1` and :math:`g^{-1} h - 1` for the
            nearest h found, in the well-conditioned frame, with shape `(*,)`; infinite where a closed form
            rules g out. Where h is so near that only its inverse makes the norms large, twice the relative
            norm of :math:`g - h` instead.
        """
        if matrices.ndim < 2 or matrices.shape[-2:] != (self.size, self.size):
            raise InputError(
                f"`matrices` must have shape (*, {self.size}, {self.size}), got {tuple(matrices.shape)}; "
                "pass matrices of the size of the algebra."
            )
        g = self.framed(matrices.detach().cpu().double()).numpy().reshape(-1, self.size, self.size)
        return matrices.new_tensor(self._residuals(g)).double().reshape(matrices.shape[:-2])

    def _residuals(self, g: Array) -> Array:
        out = np.full(len(g), np.inf)
        g = np.nan_to_num(g, nan=0.0, posinf=0.0, neginf=0.0)
        values = np.linalg.svd(g, compute_uv=False)
        possible = values[:, -1] > 1e-9 * values[:, 0]
        # exp(A) has a positive determinant, whatever A.
        possible[possible] = np.linalg.det(g[possible]) > 0
        if not possible.any():
            return out
        g = g[possible]
        roots = np.linalg.det(g)[:, None, None] ** (1 / self.size)
        if self._scales:
            g, roots = g / roots, np.ones_like(roots)
        excluded: npt.NDArray[np.bool_] = np.zeros(len(g), dtype=bool)
        if self._special:
            left_over = roots * np.eye(self.size)
        elif not len(self._frame):
            left_over = g
        elif self._form is not None:
            left_over, oriented = orthogonal_parts(g, *self._form)
            excluded = ~np.asarray(oriented.all(axis=1))
        else:
            left_over = search(g, self._frame, self._starts)
        out[possible] = np.where(excluded, np.inf, _residual(g, left_over, self._frame))
        return out


def _closed(algebra: LieAlgebra) -> LieAlgebra:
    r"""The nearest algebra: a noisy span that is not closed would generate a far larger group."""
    if algebra.dimension < 2 or algebra.closure_error() < 1e-6:
        return algebra
    nearest = algebra.nearest_algebra()
    return nearest if nearest.closure_error() < 1e-6 and nearest.distance(algebra) < 0.2 else algebra


def _residual(g: Array, left_over: Array, frame: Array) -> Array:
    r"""The residual of `g` = h `left_over`, each `(M, n, n)`, with h in the group."""
    residuals = gap(left_over)
    ill = (np.linalg.cond(g) > 4) & (residuals > 0.1)
    if not ill.any() or not len(frame):
        return residuals
    # Noise is a share of g, and the inverse of an ill-conditioned h makes much more of it: what counts
    # here is g - h, as long as nothing is turned over, as it would be in another component.
    g, h = g[ill], approach(g[ill], (g @ np.linalg.inv(left_over))[ill], frame)
    upright = (np.linalg.eigvals(np.linalg.solve(h, g)).real > 0).all(axis=-1)
    shares = np.linalg.norm(g - h, axis=(-2, -1)) / np.linalg.norm(g, axis=(-2, -1))
    residuals[ill] = np.where(upright, np.minimum(residuals[ill], 2 * shares), residuals[ill])
    return residuals
