r"""How the channels of one field transform with the plane: trivially, as a function on the group, or on the circle."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.errors import InputError
from atlasd.geometry.actions import Representation, derivative
from atlasd.nn.groups import invariant_form, square_root


@dataclass(frozen=True, eq=False)
class FieldType:
    r"""A representation rho of the group on the channels of one field.

    :math:`(g \cdot E)(p) = \rho(g) E(g^{-1} p)`. A layer with C channels carries C / `size` fields, the channels
    of one field side by side.

    Arguments:
        name: `trivial`, `regular`, `circle(L)`, or `channels` for any other representation.
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
        if isinstance(self.matrix, _Circle):
            return self.matrix.derivative(a)
        return derivative(self.matrix, a) if self.name == "channels" else a.new_zeros(self.size, self.size)

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


# Representations are classes and not functions in functions: modules that hold them can be saved.


class _Trivial:
    def __call__(self, g: Tensor) -> Tensor:
        return g.new_ones(1, 1)


class _Regular:
    """Permutations of the elements of a finite group."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def __call__(self, g: Tensor) -> Tensor:
        index = self.group.component_of(g)
        if index < 0:
            raise InputError("`g` must be an element of the group of a regular field, got another matrix.")
        permutation = torch.zeros(self.group.components, self.group.components, dtype=torch.float64)
        permutation[self.group.cayley[index], torch.arange(self.group.components)] = 1.0
        return permutation


class _Circle:
    """Rotations of functions on the circle, in coordinates `stretch` p in which the group is one of rotations."""

    def __init__(self, frequencies: int, stretch: Tensor | None = None) -> None:
        self.frequencies, self.stretch = frequencies, stretch

    def __call__(self, g: Tensor) -> Tensor:
        g = self._straight(g)
        upright = torch.linalg.det(g.detach()) > 0
        sign = 1.0 if bool(upright) else -1.0
        # The nearest rotation or mirror: discovered elements are noisy, their fields need not be.
        re, im = g[0, 0] + sign * g[1, 1], g[1, 0] - sign * g[0, 1]
        size = (re * re + im * im).sqrt()
        angle_re, angle_im = re / size, im / size
        blocks = [g.new_ones(1, 1)]
        c, s = torch.ones_like(re), torch.zeros_like(re)
        for _ in range(self.frequencies):
            c, s = c * angle_re - s * angle_im, s * angle_re + c * angle_im
            blocks.append(torch.stack([torch.stack([c, -sign * s]), torch.stack([s, sign * c])]))
        return torch.block_diag(*blocks)

    def derivative(self, a: Tensor) -> Tensor:
        """Of the angle of the nearest rotation."""
        a = self._straight(a)
        speed = (a[1, 0] - a[0, 1]) / 2
        turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=a.dtype)
        return torch.block_diag(a.new_zeros(1, 1), *(m * speed * turn for m in range(1, self.frequencies + 1)))

    def _straight(self, g: Tensor) -> Tensor:
        if self.stretch is None:
            return g
        stretch = self.stretch.to(g)
        return stretch @ g @ torch.linalg.inv(stretch)


def trivial() -> FieldType:
    """One channel that does not transform: a scalar field."""
    return FieldType("trivial", 1, _Trivial(), torch.ones(1, dtype=torch.float64))


def regular(group: Group) -> FieldType:
    """A function on a finite group: component h holds the value at the element h, and g h follows from h by g."""
    if group.dimension:
        raise InputError(
            f"`group` must be finite for regular fields, got {group}; "
            "take circle(L) for rotations, or the fields of a finite subgroup such as known.cyclic(8)."
        )
    if bool((group.cayley < 0).any()):
        raise InputError("`group` must be closed for regular fields, got products outside it; use Group.close.")
    return FieldType("regular", group.components, _Regular(group), torch.ones(group.components, dtype=torch.float64))


def circle(frequencies: int, values: int | None = None) -> FieldType:
    r"""A function on the circle of directions, with frequencies up to L: the fields for SO(2), O(2) and subgroups.

    Components are the constant and, for each frequency m, :math:`\sqrt 2 \cos m \phi` and
    :math:`\sqrt 2 \sin m \phi`; phi = 0 is the first axis of the array.

    Arguments:
        frequencies: The highest frequency L.
        values: Directions at which nonlinearities look at the function; 8 L + 4 by default, which keeps
            quarter turns exact and others nearly so.
    """
    if frequencies < 0:
        raise InputError(f"`frequencies` must not be negative, got {frequencies}; 2 or 3 are usual.")
    count = 8 * frequencies + 4 if values is None else values
    if count < 2 * frequencies + 1:
        raise InputError(f"`values` must be at least {2 * frequencies + 1}, got {count}; fewer cannot tell them apart.")
    size = 2 * frequencies + 1
    phi = 2 * math.pi * torch.arange(count, dtype=torch.float64) / count
    columns = [torch.ones_like(phi)]
    for m in range(1, frequencies + 1):
        columns += [math.sqrt(2) * (m * phi).cos(), math.sqrt(2) * (m * phi).sin()]

    mean = torch.zeros(size, dtype=torch.float64)
    mean[0] = 1.0
    return FieldType(f"circle({frequencies})", size, _Circle(frequencies), mean, torch.stack(columns, dim=1))


def of_channels(rho: Representation | None, channels: int) -> FieldType:
    """Fields that come from outside, such as velocities: all channels of a layer as one field.

    Arguments:
        rho: The representation on the channels, as `GridAction(rho_in=..., rho_out=...)` takes it; `None` for scalars.
    """
    if rho is None:
        return trivial()
    size = rho(torch.eye(2, dtype=torch.float64)).shape[-1]
    if size != channels:
        raise InputError(
            f"a representation on {channels} channels is needed, got one on {size}; give one matrix for all."
        )
    return FieldType("channels", channels, rho, torch.zeros(channels, dtype=torch.float64))


def multiplets(rho: Representation | None, elements: Tensor, channels: int) -> list[list[int]]:
    """Channels that a representation mixes under elements `(M, n, n)`: they share one spread and one unit."""
    if rho is None:
        return [[c] for c in range(channels)]
    mixed = torch.stack([rho(e.double()).abs() for e in elements]).amax(0) > 1e-9
    count, labels = connected_components(mixed.numpy(), directed=False)
    return [[c for c in range(len(labels)) if labels[c] == k] for k in range(count)]


def resolve(kind: FieldType | str, group: Group) -> FieldType:
    """A field type given by value or by name, checked against the group and put in its coordinates."""
    if isinstance(kind, str):
        if kind == "trivial":
            return trivial()
        if kind == "regular":
            return regular(group)
        if kind.startswith("circle(") and kind.endswith(")") and kind[7:-1].isdigit():
            return resolve(circle(int(kind[7:-1])), group)
        raise InputError(f"`representation` must be 'trivial', 'regular' or 'circle(L)', got {kind!r}.")
    if kind.name == "regular" and kind.size != group.components:
        raise InputError(f"`representation` must belong to the group, got {kind.size} components for {group}.")
    if isinstance(kind.matrix, _Circle):
        form = invariant_form(group)
        if form is None:
            raise InputError(
                f"`representation` circle needs a group of rotations and mirrors, got {group}; take trivial fields."
            )
        if float((form - torch.eye(group.size, dtype=form.dtype)).abs().max()) > 1e-9:
            return replace(kind, matrix=_Circle(kind.matrix.frequencies, square_root(form)))
    return kind
