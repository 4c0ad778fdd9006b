r"""From noisy elements to a closed, clean group: products, inverses, duplicates and averaging."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from atlasd.algebra.finite import FiniteGroup
from atlasd.algebra.membership import Membership
from atlasd.errors import InputError

Accept: TypeAlias = Callable[[Tensor], Tensor]
Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.int64]
_LARGEST = 1e6


def locate(membership: Membership, cosets: Tensor, matrices: Tensor, tolerance: float) -> Tensor:
    r"""Finds the component that each matrix lies in.

    Arguments:
        membership: The test for the identity component.
        cosets: One representative per component, with shape `(m, n, n)`.
        matrices: Matrices, with shape `(M, n, n)`.
        tolerance: Largest residual of a member.

    Returns:
        The index of the closest component, or -1 where none is within the tolerance, with shape `(M,)`.
    """
    if not len(matrices):
        return torch.zeros(0, dtype=torch.long)
    inverses = torch.linalg.inv(cosets)
    if not membership.dimension:
        return torch.from_numpy(_nearest(cosets.numpy(), inverses.numpy(), matrices.numpy(), tolerance))
    residuals, nearest = membership.residuals(inverses @ matrices[:, None]).min(dim=1)  # of (M, m)
    return torch.where(residuals <= tolerance, nearest, -1)


def multiplication_table(membership: Membership, cosets: Tensor, tolerance: float) -> Tensor:
    r"""Component of every product of two cosets, -1 where there is none, with shape `(m, m)`."""
    m, n = cosets.shape[:2]
    products = (cosets[:, None] @ cosets[None]).reshape(m * m, n, n)
    return locate(membership, cosets, products, tolerance).reshape(m, m)


def polish(elements: Tensor, table: Tensor, iterations: int = 20) -> Tensor:
    r"""Turns an approximate representation of a finite group into an exact one near by.

    Each element becomes the mean over b of :math:`\rho(ab)\rho(b)^{-1}`; every round squares the error.

    Arguments:
        elements: Approximate matrices, with shape `(m, n, n)`.
        table: The Cayley table, with shape `(m, m)`.

    References:
        Grove, Karcher and Ruh, Group actions and curvature, Inventiones Mathematicae 23 (1974).
    """
    rho, numbers = elements.numpy(), table.numpy()
    for _ in range(iterations):
        refined = np.einsum("abij,bjk->aik", rho[numbers], np.linalg.inv(rho)) / len(rho)
        change = np.abs(refined - rho).max()
        rho = refined
        if change < 1e-14:
            break
    return torch.from_numpy(rho)


def close_products(
    membership: Membership, candidates: Tensor, accept: Accept | None, tolerance: float, max_order: int
) -> Tensor:
    r"""Closes candidates under products and inverses, modulo the identity component.

    One representative per component comes back, with shape `(m, n, n)`, the identity first.

    All candidates are tried together. Where that does not close, they are taken one after the other in
    the order given, and one that leads out of every group of at most `max_order` components, or to a
    product that `accept` refuses, is dropped.
    """
    n = membership.size
    if candidates.ndim != 3 or candidates.shape[1:] != (n, n):
        raise InputError(
            f"`candidates` must have shape (M, {n}, {n}), got {tuple(candidates.shape)}; "
            "pass matrices of the size of the algebra."
        )
    candidates = candidates.detach().cpu().double()
    good = candidates[_usable(membership.framed(candidates))]
    if membership.dimension:
        return _Attempt(membership, accept, tolerance, max_order).close(good)
    # In coordinates where they are orthogonal, noise is not amplified and much of it can be taken off.
    to, back, given = _orthogonal_coordinates(good, tolerance)

    def accept_there(g: Tensor) -> Tensor:
        return torch.ones(len(g), dtype=torch.bool) if accept is None else accept(back @ g @ to)

    found = _Attempt(membership, accept_there, tolerance, max_order).close(given)
    # The candidates themselves, averaged, carry less noise than products of a few of them.
    where = locate(membership, found, given, tolerance)
    measured = _average(found, given, where)
    clean = back @ polish(measured, multiplication_table(membership, found, tolerance)) @ to
    clean[0] = torch.eye(n, dtype=torch.float64)
    return clean


@dataclass(frozen=True)
class _Attempt:
    membership: Membership
    accept: Accept | None
    tolerance: float
    max_order: int

    @property
    def _loose(self) -> float:
        # A finite table is checked to be that of a group, so the noise of two factors may be let in.
        return self.tolerance if self.membership.dimension else 2 * self.tolerance

    def close(self, candidates: Tensor) -> Tensor:
        r"""The group that the candidates generate, or as many of them as lead to a group."""
        identity = torch.eye(self.membership.size, dtype=torch.float64)[None]
        found = self.extend(identity, candidates)
        if found is not None:
            return found
        found = identity
        for candidate in candidates:
            larger = self.extend(found, candidate[None])
            found = found if larger is None else larger
        return found

    def extend(self, elements: Tensor, pool: Tensor) -> Tensor | None:
        r"""The group generated by a group and new elements, or `None` where it does not close."""
        pool = torch.cat([pool, torch.linalg.inv(pool)])
        measured, generators = True, elements[:0]
        while len(pool):
            if not bool(_usable(pool).all()):
                return None  # Powers that grow belong to no group of this kind.
            fresh = self._fresh(elements, pool)
            if not len(fresh):
                break
            if len(elements) + len(fresh) > self.max_order:
                return None
            # Elements that the caller measured have been tested already; their products have not.
            if not measured and self.accept is not None and not bool(torch.as_tensor(self.accept(fresh)).all()):
                return None
            elements = torch.cat([elements, fresh])
            if measured:
                generators = fresh = elements[1:]
            measured = False
            pool = (fresh[:, None] @ generators).flatten(0, 1)
        table = multiplication_table(self.membership, elements, self._loose)
        try:
            FiniteGroup(table)
        except InputError:
            return None
        if self.membership.dimension:
            return elements
        # Noise grows with every product: a clean representation before the next step keeps it in bounds.
        clean = polish(elements, table)
        # Anything is near an element of a group whose elements lie closer together than the tolerance. In coordinates
        # where g is orthogonal, |g - 1|^2 / 2 = n - tr g, and the trace is the same in all.
        apart = (clean.shape[-1] - clean[1:].diagonal(dim1=-2, dim2=-1).sum(-1)).clamp(min=0.0).sqrt()
        return clean if bool((apart > 0.9 * self.tolerance).all()) else None

    def _fresh(self, elements: Tensor, pool: Tensor) -> Tensor:
        r"""One representative, the mean where the group is finite, per component not met before."""
        pool = pool[locate(self.membership, elements, pool, self.tolerance) < 0]
        fresh: list[Tensor] = []
        while len(pool) and len(elements) + len(fresh) <= self.max_order:
            same = locate(self.membership, pool[:1], pool, self.tolerance) == 0
            same[0] = True
            fresh.append(pool[0] if self.membership.dimension else pool[same].mean(dim=0))
            pool = pool[~same]
        return torch.stack(fresh) if fresh else pool


def _orthogonal_coordinates(matrices: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    r"""Change of coordinates, its inverse, and the matrices there, made orthogonal.

    Averaging :math:`g^T J g` leads to a form that all elements of a finite group preserve. Where one of the
    matrices is too far from preserving it, nothing is changed.
    """
    n = matrices.shape[-1]
    identity = torch.eye(n, dtype=torch.float64)
    if not len(matrices):
        return identity, identity, matrices
    unit = matrices / torch.linalg.det(matrices).abs()[:, None, None] ** (1 / n)
    unit = torch.cat([identity[None], unit, torch.linalg.inv(unit)])
    form = identity
    for _ in range(100):
        form = (unit.mT @ form @ unit).mean(dim=0)
        form = form * (n / form.trace())
    values, vectors = torch.linalg.eigh(form)
    # A shear preserves no form, but looks as if it nearly did in coordinates stretched far enough.
    if float(values[0]) < 0.04 * float(values[-1]):
        return identity, identity, matrices
    to = values.sqrt()[:, None] * vectors.mT
    back = torch.linalg.inv(to)
    u, s, v = torch.linalg.svd(to @ matrices @ back)
    if float((s - 1).abs().amax()) > tolerance:
        return identity, identity, matrices
    return to, back, u @ v


def _usable(matrices: Tensor) -> Tensor:
    r"""Which of `matrices` `(m, n, n)` are finite, invertible, and neither huge nor tiny, with shape `(m,)`."""
    values = torch.linalg.svdvals(torch.nan_to_num(matrices, nan=0.0, posinf=0.0, neginf=0.0))
    return (values[:, 0] < _LARGEST) & (values[:, -1] > 1 / _LARGEST) & torch.isfinite(matrices).flatten(1).all(dim=1)


def _nearest(cosets: Array, inverses: Array, matrices: Array, tolerance: float) -> Indices:
    r"""Nearest of the elements of a finite group, -1 where none is near; by plain distance."""
    # In numpy and without BLAS: for sizes like these the threads of the others cost more than they give.
    flat = cosets.reshape(len(cosets), -1)
    products = np.einsum("ai,bi->ab", matrices.reshape(len(matrices), -1), flat)
    nearest = ((flat**2).sum(axis=1) - 2 * products).argmin(axis=1)
    differences = inverses[nearest] @ matrices - np.eye(cosets.shape[-1])
    # Over sqrt(2), a rotation has the Frobenius norm that it has as an operator.
    residuals = np.sqrt((differences**2).sum(axis=(1, 2)) / 2)
    return np.where(residuals <= tolerance, nearest, -1)


def _average(elements: Tensor, measured: Tensor, where: Tensor) -> Tensor:
    r"""Elements replaced by the mean of their measurements, if there are any."""
    elements = elements.clone()
    for index in range(1, len(elements)):
        if bool((where == index).any()):
            elements[index] = measured[where == index].mean(dim=0)
    return elements
