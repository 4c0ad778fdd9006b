r"""The polarization matrix of LieGG: one linear equation in the generator for every output of every sample.

A generator h is a symmetry when the matrix times h is zero; its singular values say how far from zero each
direction stays. The matrix itself needs memory in proportion to the number of outputs; the triangular factor of its
Gram matrix, updated as the rows come, needs n^2 x n^2 numbers and has the same right singular vectors.
"""

from __future__ import annotations

__all__ = ["dense_spectrum", "field_rows", "streamed_spectrum", "vector_rows"]

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from atlasd.errors import InputError
from atlasd.geometry.resample import pixel_grid
from atlasd.studies.rivals.null_space import Spectrum

# Central differences of orders 2 to 8: weights of the pixels at distance 1, 2, ... on either side.
_CENTRAL = {
    2: (1 / 2,),
    4: (2 / 3, -1 / 12),
    6: (3 / 4, -3 / 20, 1 / 60),
    8: (4 / 5, -1 / 5, 4 / 105, -1 / 280),
}


def vector_rows(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    r"""Rows for the invariance of a function of vectors: :math:`\sum_{ij} h_{ij}\, x_j\, \partial F / \partial x_i`.

    Every output has its own row; outputs are not added up.

    Arguments:
        function: Maps vectors `(B, n)` or sets of vectors `(B, P, n)` to `(B,)` or `(B, O)`.
        x: The samples.

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
        x: The fields F.
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
    tangents = torch.stack(_motions(x, p, d, order))  # (d^2, *L, C, *S)
    y, pushed = _push_forward(function, x, tangents)
    del tangents
    shape = tuple(y.shape[-d:])
    keep = reachable(shape, order) if inside is None else inside & reachable(shape, order)
    moved = _motions(y, pixel_grid(shape, dtype=y.dtype), d, order)
    rows = torch.stack([(a - b)[..., keep].double().flatten() for a, b in zip(pushed, moved, strict=True)], dim=-1)
    return rows, y


def reachable(shape: tuple[int, ...], order: int) -> Tensor:
    """Pixels far enough from the border for a central difference, boolean, with shape `shape`."""
    keep = torch.zeros(shape, dtype=torch.bool)
    reach = order // 2
    keep[tuple(slice(reach, s - reach) for s in shape)] = True
    return keep


def dense_spectrum(rows: Iterable[Tensor], size: int) -> Spectrum:
    """Singular values of the whole matrix, which is kept in memory, as its authors do.

    Arguments:
        rows: Pieces of the matrix, each `(R, n^2)`.
        size: The size n of the matrices.

    Returns:
        Root mean squares of the rows along orthonormal directions `(n^2, n, n)`, ascending.
    """
    matrix = torch.cat(list(rows))
    return _spectrum(matrix, len(matrix), size)


def streamed_spectrum(rows: Iterable[Tensor], size: int) -> Spectrum:
    """The same from the triangular factor of the Gram matrix, updated as rows come: memory does not grow with them."""
    factor, count = torch.zeros(size * size, size * size, dtype=torch.float64), 0
    for part in rows:
        # The factor in place of the sum of products: squares would lose every value below 1e-8.
        factor = torch.linalg.qr(torch.cat([factor, part]), mode="r").R
        count += len(part)
    return _spectrum(factor, count, size)


def _spectrum(matrix: Tensor, count: int, size: int) -> Spectrum:
    _, values, right = torch.linalg.svd(matrix, full_matrices=False)
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


def _motions(field: Tensor, p: Tensor, d: int, order: int) -> list[Tensor]:
    """First-order motions of a field along the d^2 elementary matrices: entry (k, j) is -p_j d_k field."""
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
