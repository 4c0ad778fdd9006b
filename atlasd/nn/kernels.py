r"""Convolution kernels that commute with a group: the kernel constraint, solved for any group of the plane.

A convolution :math:`y(p) = \sum_q K(q) x(p + q)` takes fields of type rho_in to fields of type rho_out exactly if

.. math:: K(g^{-1} p) = \rho_{out}(g)^{-1} K(p) \rho_{in}(g) \quad \text{for every } g,

which for trivial fields is :math:`K(g^{-1} p) = K(p)`. Kernels are functions and not densities: the factor
:math:`|\det g|` of the area is left out. A group that changes areas then multiplies outputs by it, alike for all
channels and places, and a norm takes it off again; with the factor, a scaling would leave only kernels that are
infinite at the centre. Compact groups have determinant 1 or -1, and the question does not arise.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.discovery.residual import scaled
from atlasd.errors import InputError
from atlasd.nn.groups import invariant_form
from atlasd.nn.pixel_correction import breaking
from atlasd.nn.plane_functions import Motions, pixel_motions, polar_motions
from atlasd.nn.representations import FieldType, trivial

_TOLERANCE = 0.1
_POOR = 0.1
"""Error as a share of that of a plain convolution above which a layer is not equivariant in any useful sense."""
_SHARP, _SMOOTH = 1e4, 1e5
"""How much a change of the response to smooth fields counts beside a change of the kernel, where kernels are corrected:
rings answer to all that images hold and stay near themselves, kernels for smooth fields answer to these alone."""
_CACHE: OrderedDict[object, KernelBasis] = OrderedDict()
_CACHED = 64


@dataclass(frozen=True, eq=False)
class KernelBasis:
    """All kernels between one field of each type.

    Arguments:
        kernels: With shape `(d, size_out, size_in, h, w)`, float64. Orthonormal, but for those of smooth fields, whose
            responses are, and whose norm is at most 1.
        exact: Whether the constraint holds on the pixels themselves for every element; otherwise it holds for the
            functions of which the pixels are samples, and on the pixels for those elements that map pixels to pixels.
        constant: Whether every kernel has the same value at all pixels.
        error: Relative change of the response to smooth fields under a unit generator or an average element; 0 where
            the constraint holds on the pixels, `None` where it was not measured.
        plain: The same for kernels that know nothing of the group.
    """

    kernels: Tensor
    exact: bool
    constant: bool
    group: Group
    error: float | None = 0.0
    plain: float = 1.0

    @property
    def dimension(self) -> int:
        """Free weights for each pair of fields."""
        return len(self.kernels)

    @property
    def poor(self) -> bool:
        """Whether layers with these kernels are not equivariant in any useful sense."""
        return self.error is not None and self.error > _POOR * self.plain

    @property
    def note(self) -> str:
        """What a user should know, or ""."""
        words = [f"{self.group.name} leaves only the spatially constant kernel"] if self.constant else []
        if self.poor:
            h, w = self.kernels.shape[-2:]
            words.append(
                f"no layer with a window of {h} x {w} pixels is equivariant under {self.group.name}: "
                f"the response to smooth fields changes by {self.error:.1%} under a unit generator, "
                f"that of a plain convolution by {self.plain:.1%}"
            )
        return "; ".join(words)


def kernel_basis(
    group: Group,
    kernel_size: int | tuple[int, int],
    *,
    in_type: FieldType | None = None,
    out_type: FieldType | None = None,
    smooth: bool = False,
    tolerance: float = _TOLERANCE,
) -> KernelBasis:
    r"""Solves the kernel constraint.

    Finite groups that map pixels to pixels are solved on the pixels. All others are solved on functions of the plane
    with few frequencies on each ring of pixels, by the null space of all generators and cosets together; rings
    follow the scalar product that the group keeps, where it keeps one. The sampled kernels are then corrected on
    their pixels, see `pixel_correction`.

    Arguments:
        group: A group of 2 x 2 matrices, acting on (row, column).
        kernel_size: Height and width in pixels.
        in_type: Fields that come in, trivial by default.
        out_type: Fields that go out, trivial by default.
        smooth: Whether fields are smooth on the scale of the pixels, as those of physics are and strokes are not.
            Kernels of groups that do not map pixels to pixels then answer to such fields independently of each other,
            as a point, a Laplacian and its square do, in place of rings.
        tolerance: Largest relative change of a kernel under a unit generator or an average element; room for
            the noise of a discovered basis.

    Returns:
        The kernels; computed once for each question and then remembered.

    Example:
        >>> from atlasd.algebra import known
        >>> kernel_basis(known.cyclic(4), 5).dimension, kernel_basis(known.special_orthogonal(2), 5).dimension
        (7, 3)
        >>> kernel_basis(known.general_linear_plus(2), 5).note.split(";")[0]
        'GL+(2) leaves only the spatially constant kernel'
    """
    size = (kernel_size, kernel_size) if isinstance(kernel_size, int) else (int(kernel_size[0]), int(kernel_size[1]))
    if group.size != 2:
        raise InputError(f"`group` must act on the plane, got {group.size} x {group.size} matrices.")
    if min(size) < 1:
        raise InputError(f"`kernel_size` must be positive, got {kernel_size}; 3 or 5 are usual.")
    into, out = in_type or trivial(), out_type or trivial()
    numbers = (group.algebra.basis.numpy().tobytes(), group.cosets.numpy().tobytes())
    key = (*numbers, size, into.name, _probe(into, group), out.name, _probe(out, group), smooth, tolerance)
    if key not in _CACHE:
        _CACHE[key] = _solve(group, size, into, out, smooth, tolerance)
        while len(_CACHE) > _CACHED:
            _CACHE.popitem(last=False)
    _CACHE.move_to_end(key)
    return _CACHE[key]


def _probe(kind: FieldType, group: Group) -> bytes:
    """One matrix of a representation: tells representations of the same name apart."""
    g = torch.matrix_exp(group.algebra.frame().sum(0)) @ group.cosets[-1]
    return kind.matrix(g).double().numpy().tobytes()


def _solve(
    group: Group, size: tuple[int, int], into: FieldType, out: FieldType, smooth: bool, tolerance: float
) -> KernelBasis:
    motions = pixel_motions(group, size)
    exact = motions is not None
    if motions is None:
        if size[0] != size[1]:
            raise InputError(f"`kernel_size` must be square for {group}, got {size}; pixels must turn into pixels.")
        motions = polar_motions(group, size[0], invariant_form(group))
    on_types = _on_types(group, into, out)
    if into.name == "regular" and motions.closed():
        solutions = _from_one_column(motions, group, out)
    else:
        solutions = _null_space(motions, *on_types, out.size * into.size, tolerance)
        solutions = solutions.unflatten(-1, (out.size, into.size))  # (d, functions, out, in)
    sampled = torch.einsum("xf,dfoi->dxoi", motions.at_pixels, solutions)
    if not len(sampled):
        raise InputError(
            f"no kernel of {size[0]} x {size[1]} takes {into} fields to {out} fields under {group}; "
            "take a larger kernel or other fields."
        )
    rows = _orthonormal(sampled.flatten(1))
    shape = (size[0] * size[1], out.size * into.size)
    constant = size != (1, 1) and _is_constant(rows.unflatten(1, shape))
    if constant:  # what noise in the basis left of structure
        rows = _orthonormal(rows.unflatten(1, shape).mean(1, keepdim=True).expand(-1, shape[0], -1).flatten(1))
    error: float | None = 0.0
    plain = 1.0
    if not exact:
        form = invariant_form(group)
        forms = breaking(group, size, *on_types, shape[1], form)
        # A group without a scalar product has no kernels in a bounded window: there is nothing to correct them to.
        if forms is not None and not constant and form is not None:
            rows = _orthonormal(forms.corrected(rows, _SMOOTH if smooth else _SHARP))
            rows = forms.independent(rows) if smooth else rows
        error, plain = (None, 1.0) if forms is None else (forms.error(rows), forms.plain)
    kernels = rows.unflatten(1, (*size, out.size, into.size)).permute(0, 3, 4, 1, 2).contiguous()
    return KernelBasis(kernels, exact, constant, group, error, plain)


def _is_constant(kernels: Tensor) -> bool:
    """Whether kernels `(d, pixels, entries)` have one value at all pixels, up to noise."""
    spread = (kernels - kernels.mean(1, keepdim=True)).abs().max()
    return bool(spread <= 0.02 * kernels.abs().max())


def _on_types(group: Group, into: FieldType, out: FieldType) -> tuple[list[Tensor], list[Tensor]]:
    r"""Generators and elements on matrices (out, in), flattened: :math:`K \mapsto \rho_{out} K \rho_{in}^{-1}`."""
    one_out, one_in = (torch.eye(t.size, dtype=torch.float64) for t in (out, into))
    generators = [
        torch.kron(out.derivative(a).double(), one_in)
        - torch.kron(one_out, into.derivative(a).double().mT.contiguous())
        for a in scaled(group.algebra.frame())
    ]
    elements = [
        torch.kron(out.matrix(g).double(), torch.linalg.inv(into.matrix(g).double()).mT.contiguous())
        for g in group.cosets[1:]
    ]
    return generators, elements


def _from_one_column(motions: Motions, group: Group, out: FieldType) -> Tensor:
    """Kernels from regular fields, `(d, functions, out, in)`, without a null space.

    The column of the identity is free, and every other column follows from it by the element it belongs to.
    """
    still = torch.eye(motions.count, dtype=torch.float64)
    moved = torch.stack([still, *(m.cross for m in motions.elements)])  # (g, functions, functions)
    turned = torch.stack([out.matrix(g).double() for g in group.cosets])  # (g, out, out)
    return torch.einsum("gjf,gpo->fojpg", moved, turned).flatten(0, 1)


def _null_space(
    motions: Motions, generators: list[Tensor], elements: list[Tensor], entries: int, tolerance: float
) -> Tensor:
    """Coefficients of all solutions, with shape `(d, functions, entries)`."""
    solved: list[tuple[Tensor, Tensor]] = []  # the question of a block and its answer
    found: list[Tensor] = []
    for block in motions.blocks():
        part = motions.restrict(block)
        question = part.fingerprint()
        answers = (a for q, a in solved if q.shape == question.shape and torch.allclose(q, question, atol=1e-9))
        answer = next(answers, None)
        if answer is None:
            answer = _solve_block(part, generators, elements, entries, tolerance)
            solved.append((question, answer))
        whole = answer.new_zeros(len(answer), motions.count, entries)
        whole[:, block] = answer
        found.append(whole)
    return torch.cat(found)


def _solve_block(
    motions: Motions, generators: list[Tensor], elements: list[Tensor], entries: int, tolerance: float
) -> Tensor:
    r"""Coefficients c whose kernel the group leaves alone: the null space of the sum of all squared changes.

    A generator changes K by :math:`\sum_j (A b_j) c_j + b_j L c_j`, an element by
    :math:`\sum_j (T b_j) N c_j - b_j c_j`, with L and N on the entries of the matrices c.
    """
    one, still = torch.eye(entries, dtype=torch.float64), torch.eye(motions.count, dtype=torch.float64)
    change = torch.kron(motions.ties.mT @ motions.ties, one)
    for motion, on_entries in zip(motions.generators, generators, strict=True):
        mixed = torch.kron(motion.cross, on_entries.mT.contiguous())
        change += torch.kron(motion.gram, one) + mixed + mixed.mT + torch.kron(still, on_entries.mT @ on_entries)
    for motion, on_entries in zip(motions.elements, elements, strict=True):
        mixed = torch.kron(motion.cross, on_entries)
        moved = torch.kron(motion.gram, on_entries.mT @ on_entries) - mixed - mixed.mT
        # The mean over a finite group is 0 or about 2, never small: nothing almost symmetric slips through.
        change += (moved + torch.eye(len(moved), dtype=torch.float64)) / len(elements)
    values, vectors = torch.linalg.eigh(change)
    kept = vectors[:, values <= tolerance**2]
    return kept.mT.unflatten(1, (motions.count, entries))


def _orthonormal(rows: Tensor) -> Tensor:
    """Orthonormal rows of the same span; what pixels cannot tell from nothing is dropped."""
    _, values, vectors = torch.linalg.svd(rows, full_matrices=False)
    return vectors[values > 1e-3 * values[0]]
