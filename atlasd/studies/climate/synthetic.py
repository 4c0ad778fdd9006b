"""Synthetic weather in the form of ClimateNet: cyclones, rivers and background flow, with a known local symmetry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from atlasd.errors import InputError

VARIABLES = (
    "TMQ", "U850", "V850", "UBOT", "VBOT", "QREFHT", "PS", "PSL",
    "T200", "T500", "PRECT", "TS", "TREFHT", "Z1000", "Z200", "ZBOT",
)  # fmt: skip
"""The variables of ClimateNet, in its order."""
CLASSES = ("background", "tropical cyclone", "atmospheric river")
Rule: TypeAlias = Literal["affine", "rotation", "none", "events", "background"]

# Variable: mean, standard deviation, and shares of moisture, eastward and northward wind, pressure and warmth in it.
_MAKE: dict[str, tuple[float, float, tuple[float, float, float, float, float]]] = {
    "TMQ": (25.0, 7.0, (1.0, 0.0, 0.0, 0.0, 0.0)),
    "U850": (1.6, 8.3, (0.0, 1.0, 0.0, 0.0, 0.0)),
    "V850": (0.25, 6.2, (0.0, 0.0, 1.0, 0.0, 0.0)),
    "UBOT": (0.5, 6.5, (0.0, 0.9, 0.0, 0.0, 0.0)),
    "VBOT": (0.2, 5.5, (0.0, 0.0, 0.9, 0.0, 0.0)),
    "QREFHT": (0.0115, 0.002, (0.8, 0.0, 0.0, 0.0, 0.3)),
    "PS": (96600.0, 1500.0, (0.0, 0.0, 0.0, 0.95, 0.0)),
    "PSL": (100_900.0, 1000.0, (0.0, 0.0, 0.0, 1.0, 0.0)),
    "T200": (213.0, 4.0, (0.0, 0.0, 0.0, -0.2, 0.8)),
    "T500": (253.0, 8.0, (0.2, 0.0, 0.0, -0.2, 0.8)),
    "PRECT": (3.5e-8, 1.2e-8, (0.6, 0.0, 0.0, -0.4, 0.0)),
    "TS": (279.0, 15.0, (0.2, 0.0, 0.0, 0.0, 0.8)),
    "TREFHT": (278.0, 15.0, (0.3, 0.0, 0.0, 0.0, 0.8)),
    "Z1000": (475.0, 450.0, (0.0, 0.0, 0.0, 0.9, 0.0)),
    "Z200": (11_740.0, 380.0, (0.0, 0.0, 0.0, 0.3, 0.7)),
    "ZBOT": (61.0, 4.0, (0.0, 0.0, 0.0, 0.0, 0.9)),
}
_LENGTHS = (4.5, 8.0)
"""Shortest and longest scale of the background, in 96ths of the height of the map."""
_STEEP, _STEERING = 0.15, (0.12, 0.08)
"""Slope of moisture and pressure that counts, and that of the steering flow, in spreads per 96th of the height."""

_MISSED, _DISPLACED, _RESIZED = 0.2, 1.2, 0.3
"""Experts of discord 1: share of the events that one does not see, and spreads of where they are drawn, in 96ths of the
height, and of the logarithm of their strength. Chosen so that two agree as well as those of ClimateNet."""
Events: TypeAlias = tuple[list[Tensor], list[Tensor]]


@dataclass(frozen=True, eq=False)
class ClimateMaps:
    """Maps of the whole Earth, rows from north to south and columns from longitude 0 eastwards.

    Arguments:
        x: With shape `(N, C, H, W)`, float32, in the units of ClimateNet.
        labels: What every expert drew, `(N, E, H, W)`, bytes: 0 background, 1 tropical cyclone, 2 atmospheric river.
    """

    x: Tensor
    labels: Tensor
    variables: tuple[str, ...]


def synthetic_climate(
    times: int,
    *,
    generator: torch.Generator,
    symmetry: Rule = "affine",
    shape: tuple[int, int] = (96, 144),
    experts: int = 1,
    overlooked: float = 0.05,
    discord: float = 0.0,
    variables: Sequence[str] = VARIABLES,
) -> ClimateMaps:
    r"""Draws maps with their labels.

    Moisture T, pressure P and winds are smooth fields of many scales and shapes, with cyclones (moist, warm, low
    pressure, a vortex) and rivers (long moist filaments) in them. Two yes-or-no rules on derivatives give the classes:
    the first says where something is, the second what. Their local symmetry is known; all variables are scalars:

    - `affine`: by the signs of the brackets {T, U} and {T, P}, such as
      :math:`\partial_1 T \partial_2 P - \partial_2 T \partial_1 P`, the moisture that the pressure's wind brings. A
      linear transformation g multiplies them by :math:`1 / \det g`: the symmetry is GL+(2).
    - `rotation`: by whether :math:`|\nabla T|` and :math:`|\nabla P|` pass a limit: O(2), connected part SO(2).
    - `none`: by whether :math:`|\nabla T - s|` and :math:`|\nabla P - s|` do, s a steering flow: discs off the centre,
      which no linear transformation but a mirror takes to themselves.
    - `events`: cyclones and rivers themselves, as people would draw them.
    - `background`: nothing was seen by anybody.

    Experts overlook parts of what there is, wherever it is: that leaves the symmetry as it was.

    Arguments:
        symmetry: The rule.
        experts: Labels of each map E.
        overlooked: Share of the area that each expert overlooks.
        discord: How far experts are apart in their drawings of `events`: which they see, where and how large. 0 is
            nearly of one mind; with 1 two of them agree about as well as those of ClimateNet (`docs/experiments`).
        variables: Which of `VARIABLES`, in which order.

    Example:
        >>> maps = synthetic_climate(2, generator=torch.Generator().manual_seed(0), experts=3)
        >>> tuple(maps.x.shape), tuple(maps.labels.shape)
        ((2, 16, 96, 144), (2, 3, 96, 144))
    """
    _check(times, shape, experts, overlooked, discord, variables)
    x = torch.empty(times, len(variables), *shape)
    labels = torch.empty(times, experts, *shape, dtype=torch.uint8)
    for n in range(times):
        field, drawn = _weather(shape, generator)
        for c, name in enumerate(variables):
            mean, spread, shares = _MAKE[name]
            value = torch.einsum("f,fhw->hw", torch.tensor(shares), field)
            rest = 1 - sum(s * s for s in shares)
            if rest > 0.01:  # what it does not share with the others
                value = value + math.sqrt(rest) * _texture(1, shape, generator)[0]
            x[n, c] = mean + spread * value
            if name in ("TMQ", "QREFHT", "PRECT"):
                x[n, c].clamp_(min=0.0)
        for e in range(experts):
            seen = _classes(symmetry, field, drawn, generator, discord)
            missed = _texture(1, shape, generator, lengths=(6.0, 8.0))[0] > _quantile(1 - overlooked)
            labels[n, e] = torch.where(missed, 0, seen).to(torch.uint8)
    return ClimateMaps(x, labels, tuple(variables))


def _check(
    times: int, shape: tuple[int, int], experts: int, overlooked: float, discord: float, variables: Sequence[str]
) -> None:
    if times < 1 or experts < 1:
        raise InputError(f"`times` and `experts` must be positive, got {times} and {experts}.")
    if min(shape) < 16:
        raise InputError(f"`shape` must be at least (16, 16), got {tuple(shape)}; use for example (96, 144).")
    if not 0 <= overlooked < 1:
        raise InputError(f"`overlooked` must be a share from 0 to below 1, got {overlooked}.")
    if not 0 <= discord <= 2:
        raise InputError(f"`discord` must lie between 0 and 2, got {discord}.")
    if unknown := [v for v in variables if v not in _MAKE]:
        raise InputError(f"`variables` must be among {', '.join(VARIABLES)}, got {unknown[0]!r}.")


def _quantile(share: float) -> float:
    """The value that a standard normal number stays below with this probability."""
    return math.sqrt(2) * float(torch.erfinv(torch.tensor(2 * share - 1, dtype=torch.float64)))


def _texture(
    count: int, shape: tuple[int, int], generator: torch.Generator, lengths: tuple[float, float] = _LENGTHS
) -> Tensor:
    """Smooth random fields of variance 1 `(count, H, W)`, each with its own scale and stretched its own way."""
    rows, columns = torch.fft.fftfreq(shape[0]), torch.fft.rfftfreq(shape[1])
    unit = shape[0] / 96
    low, high = (math.log(unit * v) for v in lengths)
    draws = torch.rand(count, 2, generator=generator)
    size = (low + (high - low) * draws[:, 0]).exp()
    stretch = 0.25 * torch.randn(count, generator=generator)
    angle = math.pi * draws[:, 1]
    k = 2 * math.pi * torch.stack(torch.meshgrid(rows, columns, indexing="ij"))  # (2, H, W/2)
    c, s = angle.cos()[:, None, None], angle.sin()[:, None, None]
    along = (c * k[0] + s * k[1]) * (size * stretch.exp())[:, None, None]
    across = (c * k[1] - s * k[0]) * (size / stretch.exp())[:, None, None]
    noise = torch.randn(count, *shape, generator=generator)
    smooth = torch.fft.irfft2(torch.fft.rfft2(noise) * torch.exp(-(along.square() + across.square()) / 2), s=shape)
    smooth = smooth - smooth.mean((1, 2), keepdim=True)
    return smooth / smooth.std((1, 2), keepdim=True)


def _offsets(shape: tuple[int, int], generator: torch.Generator, belt: float) -> tuple[Tensor, Tensor]:
    """Distances from a random place in rows and columns, in 96ths of the height; once around is back again."""
    height, width = shape
    place = torch.rand(2, generator=generator)
    row = height * (0.5 + belt * (2 * float(place[0]) - 1))
    down = torch.arange(height) - row
    right = (torch.arange(width) - width * float(place[1]) + width / 2) % width - width / 2
    return (down * 96 / height)[:, None], (right * 96 / height)[None, :]


def _weather(shape: tuple[int, int], generator: torch.Generator) -> tuple[Tensor, Events]:
    """Moisture, winds, pressure and warmth, `(5, H, W)`, and the strengths of cyclones and of rivers, `(H, W)` each."""
    field = _texture(5, shape, generator)
    storms: list[Tensor] = []
    rivers: list[Tensor] = []
    rotation = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    for _ in range(int(torch.randint(3, 8, (1,), generator=generator))):
        down, right = _offsets(shape, generator, belt=0.3)
        mixed = rotation * float(0.3 * torch.randn(1, generator=generator)) + torch.eye(2)
        mixed = mixed + 0.2 * torch.randn(2, 2, generator=generator)
        a, b = mixed[0, 0] * down + mixed[0, 1] * right, mixed[1, 0] * down + mixed[1, 1] * right
        size = 2.5 + 2.0 * float(torch.rand(1, generator=generator))
        core = torch.exp(-(a.square() + b.square()) / (2 * size * size))
        spin = -1.0 if float(torch.rand(1, generator=generator)) < 0.5 else 1.0
        field[0] += 1.8 * core
        field[1] += spin * 2.2 * a / size * core
        field[2] += spin * 2.2 * b / size * core
        field[3] -= 2.5 * core
        field[4] += 1.5 * core
        storms.append(core)
    for _ in range(int(torch.randint(2, 5, (1,), generator=generator))):
        down, right = _offsets(shape, generator, belt=0.35)
        angle = math.pi * float(torch.rand(1, generator=generator))
        along = math.cos(angle) * right - math.sin(angle) * down
        across = math.sin(angle) * right + math.cos(angle) * down
        draws = torch.rand(3, generator=generator)
        across = across - float(2 * draws[0] - 1) * 0.015 * along.square()
        length, width = 10 + 6 * float(draws[1]), 2.0 + 1.2 * float(draws[2])
        ridge = torch.exp(-across.square() / (2 * width * width) - along.square() / (2 * length * length))
        field[0] += 2.2 * ridge
        rivers.append(ridge)
    return field, (storms, rivers)


def _classes(symmetry: Rule, field: Tensor, events: Events, generator: torch.Generator, discord: float = 0.0) -> Tensor:
    """The class of every pixel, `(H, W)`."""
    if symmetry == "background":
        return torch.zeros_like(field[0], dtype=torch.long)
    if symmetry == "events":
        taste = (0.1 * torch.randn(2, generator=generator)).exp()  # some draw larger outlines than others
        storms, rivers = (_outlined(drawn, field.shape[-2:], discord, generator) for drawn in events)
        river = torch.where(rivers > 0.45 * taste[1], 2, 0)
        return torch.where(storms > 0.35 * taste[0], 1, river)
    unit = field.shape[-2] / 96
    m, u, p = ([unit * gradient(field[k], axis) for axis in (0, 1)] for k in (0, 1, 3))
    if symmetry == "affine":
        event, first = (m[0] * other[1] - m[1] * other[0] > 0 for other in (u, p))
    else:
        s = _STEERING if symmetry == "none" else (0.0, 0.0)
        event, first = ((d[0] - s[0]).square() + (d[1] - s[1]).square() > _STEEP * _STEEP for d in (m, p))
    return torch.where(event, torch.where(first, 1, 2), 0)


def _outlined(strengths: list[Tensor], shape: torch.Size, discord: float, generator: torch.Generator) -> Tensor:
    """The largest of some strengths, `(H, W)`, as one expert sees them: some not at all, others moved or resized."""
    seen = torch.zeros(shape)
    for strength in strengths:
        if discord:
            missed, *moved = torch.randn(4, generator=generator).tolist()
            if missed > _quantile(1 - _MISSED * discord):
                continue
            unit = discord * _DISPLACED * shape[0] / 96
            strength = strength.roll((round(unit * moved[0]), round(unit * moved[1])), (0, 1))
            strength = strength * math.exp(discord * _RESIZED * moved[2])
        seen = torch.maximum(seen, strength)
    return seen


def gradient(field: Tensor, axis: int) -> Tensor:
    """Fourth-order central differences along one axis; lower order on the two outermost pixels."""
    f = [field.narrow(axis, i, field.shape[axis] - 4) for i in range(5)]
    inner, edges = (8 * (f[3] - f[1]) - (f[4] - f[0])) / 12, torch.gradient(field, dim=axis)[0]
    ends = [edges.narrow(axis, start, 2) for start in (0, field.shape[axis] - 2)]
    return torch.cat([ends[0], inner, ends[1]], dim=axis)
