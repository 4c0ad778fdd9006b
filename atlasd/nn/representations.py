r"""How the channels of one field turn with the plane: trivially, as a function on the group, or on the circle."""

from __future__ import annotations

__all__ = ["FieldType", "circle", "regular", "resolve", "trivial"]

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.errors import InputError
from atlasd.geometry.actions import Representation, derivative
from atlasd.nn.compact import invariant_form


@dataclass(frozen=True, eq=False)
class FieldType:
    r"""A representation rho of the group on the channels of one field.

    :math:`(g \cdot E)(p) = \rho(g) E(g^{-1} p)`. A layer with C channels carries C / `size` fields, the channels
    of one field side by side.

    Arguments:
        name: `trivial`, `regular` or `circle(L)`.
        size: Channels of one field.
        matrix: The representation, `(n, n)` to `(size, size)`.
        mean: The vector that the representation leaves alone, `(size,)`; biases and means go along it.
        values: Where the components are coefficients of a function: its values at evenly spread points,
            `(N, size)`. `None` where the components are values already.

    Example:
        >>> from atlasd.algebra import known
        >>> quarter = known.cyclic(4).cosets[1]
        >>> regular(known.cyclic(4)).matrix(quarter).int().tolist()
        [[0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
        >>> circle(1).matrix(quarter).int().tolist()
        [[1, 0, 0], [0, 0, -1], [0, 1, 0]]
    """

    name: str
    size: int
    matrix: Representation
    mean: Tensor
    values: Tensor | None = field(default=None)

    def __repr__(self) -> str:
        return self.name

    def derivative(self, a: Tensor) -> Tensor:
        """The representation of a generator, `(n, n)` to `(size, size)`."""
        return torch.zeros(1, 1, dtype=a.dtype) if self.size == 1 else derivative(self.matrix, a)

    def fields(self, channels: int, name: str = "channels") -> int:
        """How many fields make up that many channels."""
        if channels < 1 or channels % self.size:
            raise InputError(
                f"`{name}` must be a multiple of {self.size}, the size of a {self.name} field, got {channels}; "
                f"take {self.size * max(1, round(channels / self.size))}."
            )
        return channels // self.size

    def on_channels(self, channels: int) -> Representation:
        """The representation on all channels of a layer, as `GridAction(rho_in=..., rho_out=...)` takes it."""
        fields = self.fields(channels)

        def matrix(g: Tensor) -> Tensor:
            return torch.kron(torch.eye(fields, dtype=torch.float64), self.matrix(g).double())

        return matrix


def trivial() -> FieldType:
    """One channel that does not turn: a scalar field."""
    one = torch.ones(1, dtype=torch.float64)
    return FieldType("trivial", 1, lambda g: g.new_ones(1, 1), one)


def regular(group: Group) -> FieldType:
    """A function on a finite group: component h holds the value at the element h, and g h follows from h by g."""
    if group.dimension:
        raise InputError(
            f"`group` must be finite for regular fields, got {group}; "
            "take circle(L) for rotations, or the fields of a finite subgroup such as known.cyclic(8)."
        )
    table = group.cayley
    if bool((table < 0).any()):
        raise InputError("`group` must be closed for regular fields, got products outside it; use Group.close.")
    order = group.order

    def matrix(g: Tensor) -> Tensor:
        index = group.component_of(g)
        if index < 0:
            raise InputError("`g` must be an element of the group of a regular field, got another matrix.")
        permutation = torch.zeros(order, order, dtype=torch.float64)
        permutation[table[index], torch.arange(order)] = 1.0
        return permutation

    return FieldType("regular", order, matrix, torch.ones(order, dtype=torch.float64))


def circle(frequencies: int, values: int | None = None) -> FieldType:
    r"""A function on the circle of directions, with frequencies up to L: the fields for SO(2), O(2) and subgroups.

    Components are the constant and, for each frequency m, :math:`\sqrt 2 \cos m \phi` and
    :math:`\sqrt 2 \sin m \phi`; phi = 0 is the first axis of the array.

    Arguments:
        frequencies: The highest frequency L.
        values: Directions at which nonlinearities look at the function; 4 L + 4 by default, which keeps
            quarter turns exact and others nearly so.
    """
    if frequencies < 0:
        raise InputError(f"`frequencies` must not be negative, got {frequencies}; 2 or 3 are usual.")
    count = 4 * frequencies + 4 if values is None else values
    if count < 2 * frequencies + 1:
        raise InputError(f"`values` must be at least {2 * frequencies + 1}, got {count}; fewer cannot tell them apart.")
    size = 2 * frequencies + 1
    phi = 2 * math.pi * torch.arange(count, dtype=torch.float64) / count
    columns = [torch.ones_like(phi)]
    for m in range(1, frequencies + 1):
        columns += [math.sqrt(2) * (m * phi).cos(), math.sqrt(2) * (m * phi).sin()]

    def matrix(g: Tensor) -> Tensor:
        upright = torch.linalg.det(g.detach()) > 0
        sign = 1.0 if bool(upright) else -1.0
        # The nearest rotation or mirror: discovered elements are noisy, their fields need not be.
        re, im = g[0, 0] + sign * g[1, 1], g[1, 0] - sign * g[0, 1]
        size_ = (re * re + im * im).sqrt()
        angle_re, angle_im = re / size_, im / size_
        blocks = [g.new_ones(1, 1)]
        c, s = torch.ones_like(re), torch.zeros_like(re)
        for _ in range(frequencies):
            c, s = c * angle_re - s * angle_im, s * angle_re + c * angle_im
            blocks.append(torch.stack([torch.stack([c, -sign * s]), torch.stack([s, sign * c])]))
        return torch.block_diag(*blocks)

    mean = torch.zeros(size, dtype=torch.float64)
    mean[0] = 1.0
    return FieldType(f"circle({frequencies})", size, matrix, mean, torch.stack(columns, dim=1))


def resolve(kind: FieldType | str, group: Group) -> FieldType:
    """A field type given by value or by name, checked against the group."""
    if isinstance(kind, str):
        if kind == "trivial":
            return trivial()
        if kind == "regular":
            return regular(group)
        if kind.startswith("circle(") and kind.endswith(")") and kind[7:-1].isdigit():
            return resolve(circle(int(kind[7:-1])), group)
        raise InputError(f"`representation` must be 'trivial', 'regular' or 'circle(L)', got {kind!r}.")
    if kind.name == "regular" and kind.size != group.order:
        raise InputError(f"`representation` must belong to the group, got {kind.size} components for {group}.")
    if kind.values is not None:
        form = invariant_form(group)
        if form is None or float((form - torch.eye(group.size, dtype=form.dtype)).abs().max()) > 0.1:
            raise InputError(
                f"`representation` circle needs a group of rotations and mirrors, got {group}; take trivial fields."
            )
    return kind
