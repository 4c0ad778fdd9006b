"""Small functions whose symmetry group is known exactly: the paper's two, some more, and systems of the zoo."""

from __future__ import annotations

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.known import cyclic, dihedral, trivial
from atlasd.errors import InputError
from atlasd.studies.zoo.system import Function, System, signed_permutations
from atlasd.studies.zoo.vector_systems import vector_systems

_OF_THE_ZOO = ("so2", "o2", "so3", "o3", "scaling2", "shear", "sl2", "so12", "xyz")
_WEIGHTS = (1.0, 2.0, 3.0)


def toy(name: str) -> System:
    """The toy of this name.

    Raises:
        InputError: If there is none.

    Example:
        >>> d4 = toy("d4")
        >>> d4.group.name, d4.size
        ('D4', 2)
        >>> d4.function(torch.tensor([[3.0, -4.0]]))
        tensor([7.])
    """
    known = {each.name: each for each in toys()}
    if name not in known:
        raise InputError(f"`name` must be one of {', '.join(known)}, got {name!r}.")
    return known[name]


def toys() -> tuple[System, ...]:
    """All toys: the two of the paper first, then finite groups, then Lie groups."""
    nothing = Group(trivial(2))
    cubic = "x^3 - 0.7 x^2 y + 1.3 x y^2 + 0.4 y^3 + 0.8 x^2 - 0.5 x y + 0.6 x - 0.9 y"
    zoo = {system.name: system for system in vector_systems()}
    return (
        _finite("d4", lambda x: x.abs().sum(-1), dihedral(4), "|x| + |y|"),
        _finite("arctan", lambda x: torch.atan((x[:, 1] + 0.1) / x[:, 0]), nothing, "arctan((y + 0.1) / x)"),
        _finite("cubic", _cubic, nothing, cubic),
        _finite("d3", lambda x: _third_power(x)[:, 0], dihedral(3), "x^3 - 3 x y^2"),
        _finite("c3", _third_power, cyclic(3), "(x + i y)^3, both parts"),
        _finite("signs", lambda x: x.abs() @ torch.tensor(_WEIGHTS).to(x), _cube(), "|x| + 2 |y| + 3 |z|"),
        *(zoo[name] for name in _OF_THE_ZOO),
    )


def _finite(name: str, function: Function, group: Group, note: str) -> System:
    """A function of standard normal vectors with a finite group."""
    return System(
        name=name,
        truth=group.algebra,
        components=group.cosets,
        function=function,
        sample=lambda samples, generator: torch.randn(samples, group.size, generator=generator),
        note=note,
    )


def _cube() -> Group:
    """What leaves the weighted sum of |x_i| alone: the group of the cube, in units of the weights."""
    unit, even = torch.tensor(_WEIGHTS, dtype=torch.float64), signed_permutations()
    return Group(trivial(3), torch.cat([even, -even]) * unit / unit[:, None])


def _cubic(x: Tensor) -> Tensor:
    u, v = x.unbind(-1)
    third = u**3 - 0.7 * u * u * v + 1.3 * u * v * v + 0.4 * v**3
    return third + 0.8 * u * u - 0.5 * u * v + 0.6 * u - 0.9 * v


def _third_power(x: Tensor) -> Tensor:
    u, v = x.unbind(-1)
    return torch.stack([u**3 - 3 * u * v * v, 3 * u * u * v - v**3], dim=-1)
