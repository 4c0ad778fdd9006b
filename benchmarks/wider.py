"""Groups beyond matrices about a fixed point, each task with a broken term of 30 % as a control.

python benchmarks/wider.py --seeds 10 --task affine --task cubic
python benchmarks/wider.py --seeds 5 --task pairs --task winds --task advection --task conserved --task heat
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

import atlasd as ad
from atlasd.studies.heat.data import heat_atlas, heat_fields, simulate_heat
from atlasd.studies.rivals import compare_sector
from atlasd.studies.rivals.compare_shaw import affine_field, affine_task, cubic_field, cubic_task, fields_at
from atlasd.studies.rivals.field_library import homogeneous_to_fields
from atlasd.studies.rivals.measures import angle_of_fields
from atlasd.studies.rivals.tasks import rippled
from atlasd.studies.zoo.vector_systems import kepler_states


def draw(*shape: int, seed: int) -> Tensor:
    """Normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def affine(seed: int) -> None:
    """Ellipses about (1, 1), Shaw et al.: a rotation about another point; and the same with a broken term of 30 %."""
    for count in (200, 2000, 20000):
        x, y = affine_task(count, seed)
        for name, target in (("affine", y), ("affine, broken", rippled(x, y)))[: 1 + (count == 2000)]:
            started = time.perf_counter()
            found = ad.discover(x, target, action=ad.AffineAction(), cosets=False, seed=seed, progress=False)
            error = angle_of_fields(fields_at(x, homogeneous_to_fields(found.algebra.basis)), affine_field(x))
            took = time.perf_counter() - started
            print(f"{name} N={count} seed {seed}: {found.headline}, {error:.9f} degrees, {took:.1f} s", flush=True)


def cubic(seed: int) -> None:
    """x^3 - y^2, Shaw et al.: a field that is not linear; and the same with a broken term of 30 %."""
    x, y = cubic_task(2000, seed)
    action = ad.PolynomialAction(degree=2)
    for name, target in (("cubic", y), ("cubic, broken", rippled(x, y))):
        started = time.perf_counter()
        found = ad.discover(x, target, action=action, seed=seed, progress=False)
        fields = torch.einsum("kim,bm->kbi", found.fields, action.columns(x))  # type: ignore[attr-defined]
        error = angle_of_fields(fields, cubic_field(x))
        print(f"{name} seed {seed}: {found.headline}, {error:.6f} degrees, {time.perf_counter() - started:.1f} s")


def pairs(seed: int) -> None:
    """A function of the distance of two points; and the same with a broken term of 30 %."""
    for n in (2, 3):
        x = draw(2000, 2, n, seed=seed) + 3
        y = torch.exp(-(x[:, 0] - x[:, 1]).square().sum(-1) / 6)
        for name, target in (("pair", y), ("pair, broken", y + 0.3 * y.std() * torch.sin(2 * x[:, 0].sum(-1)))):
            started = time.perf_counter()
            found = ad.discover(x, target, action=ad.AffineAction(), seed=seed, progress=False)
            print(f"{name} n={n} seed {seed}: {found.headline}, {time.perf_counter() - started:.1f} s")


def smooth_fields(samples: int, channels: int, seed: int) -> Tensor:
    """Isotropic random fields, `(samples, channels, 37, 37)`."""
    line = torch.arange(-7.0, 8.0)
    bell = torch.exp(-(line[:, None] ** 2 + line[None] ** 2) / 12.5)
    noise = draw(samples * channels, 1, 51, 51, seed=seed).float()
    return functional.conv2d(noise, bell[None, None] / bell.sum() * 5).reshape(samples, channels, 37, 37)


def slope(field: Tensor, axis: int) -> Tensor:
    """Central differences along one axis."""
    return torch.gradient(field, dim=axis)[0]


def _representation(name: str, x: Tensor, clean: Tensor, broken: Tensor, seed: int) -> None:
    """Asks how channels mix, of a law and of the same with a broken term of 30 %."""
    atlas = ad.Atlas.at([(18, 18)], in_radius=16, out_radius=8)
    for words, y in ((name, clean), (f"{name}, broken", clean + 0.3 * clean.std() * broken / broken.std())):
        started = time.perf_counter()
        found = ad.discover_representation(x, y, atlas=atlas, seed=seed)
        took = time.perf_counter() - started
        print(f"{words} seed {seed}: {found.symmetries.headline}; {found.reason} {took:.1f} s", flush=True)


def winds(seed: int) -> None:
    """Two winds without names to their vorticity and to their divergence."""
    x = smooth_fields(300, 2, seed)
    u, v = x.unbind(1)
    broken = slope(slope(u, -1), -1)[:, None]
    _representation("vorticity", x, (slope(v, -1) - slope(u, -2))[:, None], broken, seed)
    _representation("divergence", x, (slope(u, -1) + slope(v, -2))[:, None], broken, seed)


def advection(seed: int) -> None:
    """Temperature and two winds to the advection of temperature."""
    x = smooth_fields(500, 3, seed)
    t, u, v = x.unbind(1)
    y = (u * slope(t, -1) + v * slope(t, -2))[:, None]
    # A product of winds and slopes alone would be advection by a mixture of the winds, which is no breaking.
    _representation("advection", x, y, slope(t, -1).square()[:, None], seed)


def _oscillator(v: Tensor, damping: float = 0.0) -> Tensor:
    return torch.stack([v[:, 1], -v[:, 0] - damping * v[:, 1]], dim=-1)


def _lorenz(v: Tensor) -> Tensor:
    x, y, z = v.unbind(-1)
    return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], dim=-1)


def _planet(v: Tensor, drag: float = 0.0) -> Tensor:
    q, p = v[:, :2], v[:, 2:]
    return torch.cat([p, -q / q.norm(dim=1, keepdim=True) ** 3 - drag * p], dim=1)


def conserved(seed: int) -> None:
    """Conserved quantities of a planet and an oscillator; none with friction of 30 %, and none of Lorenz's flow."""
    orbits = kepler_states(1200, torch.Generator().manual_seed(seed)).double()
    two = draw(600, 2, seed=seed)
    inverse: dict[str, Callable[[Tensor], Tensor]] = {"1/r": lambda z: 1 / z[:, :2].norm(dim=1)}
    nothing: dict[str, Callable[[Tensor], Tensor]] = {}
    cases = (
        ("kepler", orbits, _planet(orbits), inverse, 2),
        ("kepler, friction", orbits, _planet(orbits, 0.3), inverse, 2),
        ("oscillator", two, _oscillator(two), nothing, None),
        ("oscillator, friction", two, _oscillator(two, 0.3), nothing, None),
        ("lorenz", 8 * (three := draw(600, 3, seed=seed)), _lorenz(8 * three), nothing, None),
    )
    for name, x, dx, library, degree in cases:
        started = time.perf_counter()
        found = ad.discover_flow(x, dx, cosets=False, degree=degree, functions=library, seed=seed)
        said = "; ".join(c.formula for c in found.conserved) or "nothing"
        print(f"{name} seed {seed}: {said}, {time.perf_counter() - started:.1f} s", flush=True)


def heat(seed: int) -> None:
    """Heat flow in nineteen charts with shifts; and the same with a conductivity that varies by 30 % over 40 pixels."""
    with torch.no_grad():
        x = heat_fields(400, generator=torch.Generator().manual_seed(seed))
        for name, steps in (("heat", 50), ("heat, uneven", 5)):
            y = simulate_heat(x, steps=steps)
            if steps == 5:
                line = torch.arange(128.0) * 2 * torch.pi / 40
                y = x + (1 + 0.3 * 2**0.5 * torch.sin(line + seed)) * (y - x)
            started = time.perf_counter()
            action = ad.GridAction(translations=True)
            found = ad.discover(x, y, atlas=heat_atlas(), action=action, seed=seed, progress=False)
            apart = [tuple(int(c) for c in chart.center) for chart in found.charts if chart.outlier]
            took = time.perf_counter() - started
            print(f"{name} seed {seed}: {found.headline}; charts that differ: {apart}, {took:.1f} s", flush=True)


def sector(seed: int) -> None:
    """Seven sectors of a plane, LieGAN's task: six rotations beside the identity, and the scaling of the plane."""
    config = compare_sector.CompareSectorConfig()
    for name, control in (("sector", False), ("sector, broken", True)):
        started = time.perf_counter()
        answer = compare_sector.ours(compare_sector.data(config, seed, control), config, seed)
        took = time.perf_counter() - started
        known = {} if answer.figures is None else dict(answer.figures())
        rows = [[[round(v, 2) for v in row] for row in a] for a in answer.basis.tolist()]
        print(f"{name} seed {seed}: generators {rows}, elements {known}, {took:.1f} s", flush=True)


TASKS: dict[str, Callable[[int], None]] = {
    "affine": affine, "cubic": cubic, "pairs": pairs, "winds": winds, "advection": advection, "conserved": conserved,
    "heat": heat, "sector": sector,
}  # fmt: skip


def main() -> None:
    """Runs the tasks, one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", choices=list(TASKS), help="all by default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=100)
    options = parser.parse_args()
    for task in options.task or TASKS:
        for seed in range(options.first, options.first + options.seeds):
            TASKS[task](seed)


if __name__ == "__main__":
    main()
