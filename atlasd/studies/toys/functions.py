"""Small functions on the plane and in space whose symmetry group is known exactly."""

from __future__ import annotations

__all__ = ["Toy", "area", "heights_and_area", "interval", "toy", "toys"]

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.known import cyclic, dihedral, orthogonal, scaling, shear, sl, so, trivial
from atlasd.errors import InputError


@dataclass(frozen=True, eq=False)
class Toy:
    """A function and the linear maps that leave its value as it is.

    Arguments:
        name: Short name, used on the command line.
        formula: The function as text.
        function: Differentiable map from `(N, n)` or `(N, P, n)` to `(N,)` or `(N, outputs)`.
        group: All symmetries with determinant 1 or -1, or of the form exp(A); exact.
        tokens: The number of vectors P in one input; `None` for plain vectors `(N, n)`.
        approximate: Matrices that are nearly symmetries, with shape `(m, n, n)`.

    Example:
        >>> d4 = toy("d4")
        >>> d4.group.name, d4.size
        ('D4', 2)
        >>> d4.function(torch.tensor([[3.0, -4.0]]))
        tensor([7.])
    """

    name: str
    formula: str
    function: Callable[[Tensor], Tensor]
    group: Group
    tokens: int | None = None
    approximate: Tensor | None = None

    @property
    def size(self) -> int:
        """The dimension n of the space."""
        return self.group.size

    def sample(self, samples: int, generator: torch.Generator) -> Tensor:
        """Standard normal inputs, with shape `(N, n)` or `(N, P, n)`."""
        shape = (self.size,) if self.tokens is None else (self.tokens, self.size)
        return torch.randn(samples, *shape, generator=generator)


def area(x: Tensor) -> Tensor:
    """Determinant of the first two of tokens `(N, P, 2)`, with shape `(N,)`."""
    return x[:, 0, 0] * x[:, 1, 1] - x[:, 0, 1] * x[:, 1, 0]


def interval(x: Tensor, minus: int) -> Tensor:
    """Square of vectors `(*, n)` in the metric with -1 for the first `minus` axes, with shape `(*,)`."""
    return x[..., minus:].square().sum(-1) - x[..., :minus].square().sum(-1)


def toy(name: str) -> Toy:
    """The toy of this name.

    Raises:
        InputError: If there is none.
    """
    known = {each.name: each for each in toys()}
    if name not in known:
        raise InputError(f"`name` must be one of {', '.join(known)}, got {name!r}.")
    return known[name]


def toys() -> tuple[Toy, ...]:
    """All toys: the two of the paper first, then finite groups, then Lie groups."""
    return _paper() + _finite() + _continuous()


def _paper() -> tuple[Toy, ...]:
    half_turn = -torch.eye(2, dtype=torch.float64)
    formula = "arctan((y + 0.1) / x)"
    return (
        Toy("d4", "|x| + |y|", lambda x: x.abs().sum(-1), dihedral(4)),
        Toy("arctan", formula, _arctan, Group(trivial(2)), approximate=half_turn[None]),
    )


def _finite() -> tuple[Toy, ...]:
    formula = "x^3 - 0.7 x^2 y + 1.3 x y^2 + 0.4 y^3 + 0.8 x^2 - 0.5 x y + 0.6 x - 0.9 y"
    weights = (1.0, 2.0, 3.0)
    signs = Group(trivial(3), _weighted_permutations(weights))
    return (
        Toy("cubic", formula, _cubic, Group(trivial(2))),
        Toy("d3", "x^3 - 3 x y^2", lambda x: _third_power(x)[:, 0], dihedral(3)),
        Toy("c3", "(x + i y)^3, both parts", _third_power, cyclic(3)),
        Toy("signs", "|x| + 2 |y| + 3 |z|", lambda x: x.abs() @ torch.tensor(weights).to(x), signs),
    )


def _continuous() -> tuple[Toy, ...]:
    time, space = torch.tensor([-1.0, 1.0, 1.0]).diag(), torch.tensor([1.0, 1.0, -1.0]).diag()
    o12 = Group(so(1, 2), torch.stack([torch.eye(3), space, time, time @ space]))
    return (
        Toy("so2", "p.q, det(p, q)", _complex_product, Group(so(2)), tokens=2),
        Toy("o2", "log(1 + x^2 + y^2)", lambda x: x.square().sum(-1).log1p(), orthogonal(2)),
        Toy("so3", "p.q, det(p, q, r) + |r|", _turning, Group(so(3)), tokens=3),
        Toy("o3", "exp(-(x^2 + y^2 + z^2) / 2)", lambda x: (-x.square().sum(-1) / 2).exp(), orthogonal(3)),
        Toy("scaling", "2 x / r + x y / r^2", _direction, Group(scaling(2))),
        Toy("shear", "y of p and of q, det(p, q)", heights_and_area, Group(shear(2)), tokens=2),
        Toy("sl2", "det(p, q)", area, Group(sl(2)), tokens=2),
        Toy("so12", "x^2 + y^2 - t^2", lambda x: interval(x, 1), o12),
        Toy("xyz", "x y z", lambda x: x.prod(-1), Group(_diagonal_torus(), _even_monomials())),
    )


def _arctan(x: Tensor) -> Tensor:
    return torch.atan((x[:, 1] + 0.1) / x[:, 0])


def _complex_product(x: Tensor) -> Tensor:
    return torch.stack([(x[:, 0] * x[:, 1]).sum(-1), area(x)], dim=-1)


def heights_and_area(x: Tensor) -> Tensor:
    """Second coordinates of two tokens and their determinant: what a shear leaves, `(N, 2, 2)` to `(N, 3)`."""
    return torch.stack([x[:, 0, 1], x[:, 1, 1], area(x)], dim=-1)


def _cubic(x: Tensor) -> Tensor:
    u, v = x.unbind(-1)
    third = u**3 - 0.7 * u * u * v + 1.3 * u * v * v + 0.4 * v**3
    return third + 0.8 * u * u - 0.5 * u * v + 0.6 * u - 0.9 * v


def _third_power(x: Tensor) -> Tensor:
    u, v = x.unbind(-1)
    return torch.stack([u**3 - 3 * u * v * v, 3 * u * u * v - v**3], dim=-1)


def _turning(x: Tensor) -> Tensor:
    p, q, r = x.unbind(1)
    return torch.stack([(p * q).sum(-1), (torch.linalg.cross(p, q) * r).sum(-1) + r.norm(dim=-1)], dim=-1)


def _direction(x: Tensor) -> Tensor:
    u, v = (x / x.norm(dim=-1, keepdim=True)).unbind(-1)
    return 2 * u + u * v


def _signs(n: int) -> Tensor:
    """All diagonal matrices of signs, the identity first, with shape `(2^n, n, n)`."""
    return torch.cartesian_prod(*[torch.tensor([1.0, -1.0])] * n).reshape(-1, n).diag_embed()


def _weighted_permutations(weights: tuple[float, ...]) -> Tensor:
    """What leaves the weighted sum of |x_i| alone: signed permutations in units of the weights, identity first."""
    n, unit = len(weights), torch.tensor(weights, dtype=torch.float64)
    orders = torch.stack([torch.eye(n, dtype=torch.float64)[list(order)] for order in permutations(range(n))])
    signed = (orders[:, None] @ _signs(n).double()[None]).flatten(0, 1)
    return signed * unit / unit[:, None]


def _diagonal_torus() -> Tensor:
    return torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]).diag_embed()


def _even_monomials() -> Tensor:
    """Permutations of three axes times an even number of signs, the identity first, `(24, 3, 3)`."""
    signs = _signs(3)
    signs = signs[torch.linalg.det(signs) > 0]
    orders = torch.stack([torch.eye(3)[list(order)] for order in permutations(range(3))])
    return (orders[:, None] @ signs[None]).flatten(0, 1)
