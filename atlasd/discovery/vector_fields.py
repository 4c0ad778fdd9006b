"""Generators that are not linear: vector fields along which a function does not change, or a flow commutes."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.algebra.basis import standard_form
from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.conclude import Conclusion, Kind, conclude_generators, words
from atlasd.discovery.decide import approximate, exact_class
from atlasd.discovery.learned import PredictorSummary
from atlasd.discovery.prepare import prepare
from atlasd.discovery.problem import Problem
from atlasd.discovery.result import ChartFinding, Discovery, percent
from atlasd.discovery.spectral import SpectralSearch
from atlasd.discovery.verdict import Judge
from atlasd.errors import InputError
from atlasd.geometry.polynomial import PolynomialAction, change_coordinates, write_field
from atlasd.runtime.memory import free_megabytes
from atlasd.runtime.progress import Progress

_ELSEWHERE = 0.1
"""Share of a field beyond which it points elsewhere than others."""
_INTEGRATED = 1e-3
"""Strength below which differences are errors of the integration."""
_SAME = 0.05
"""Relative distance within which a field is taken for the flow itself."""
_AFFINE = 1e-3
"""Share of a field of higher degree below which it counts as affine: the rounding of what is printed."""


@dataclass(frozen=True, eq=False)
class FieldDiscovery(Discovery):
    """The answer of `atlasd.discover` for a `PolynomialAction`; its group is that of affine fields alone.

    Arguments:
        fields: Coefficients of the monomials in every component of every field, `(k, n, m)`.
    """

    fields: Tensor = field(default_factory=lambda: torch.zeros(0, 1, 1))
    degree: int = 1

    @property
    def formulas(self) -> list[str]:
        """The fields as a scientist writes them, such as `2 y d/dx + 3 x^2 d/dy`.

        Terms as small as the breaking that a field may have are left out.
        """
        directions = zip(self.fields, self.verdict.directions, strict=True)
        letters = self.config.get("axes")
        return [write_field(one, self.degree, letters, sizes=self.sizes, least=d.upper) for one, d in directions]

    @property
    def headline(self) -> str:
        """The answer in a few words."""
        return "; ".join(self.formulas) if self.verdict.symmetric else self.verdict.reason.split(":")[0]

    def to_dict(self, experiment: str | None = None, **extra: Any) -> dict[str, Any]:
        """The content of `result.json`, with the fields beside it."""
        own = {"fields": self.fields.tolist(), "formulas": self.formulas, "degree": self.degree}
        return super().to_dict(experiment, **own, **extra)

    def __str__(self) -> str:
        lines = [self.verdict.reason]
        for formula, d in zip(self.formulas, self.verdict.directions, strict=True):
            lines.append(f"  {formula}  (breaking {percent(d.strength)}, at most {percent(d.upper)})")
        p = self.predictor
        lines.append(f"  {p.kind}, skill {p.skill:.2f} on {p.samples} samples; {sum(self.seconds.values()):.1f} s")
        return "\n".join(lines)


def discover_fields(
    x: Any, y: Any, *, action: PolynomialAction, tolerance: float, seed: int, progress: Progress, **options: Any
) -> FieldDiscovery:
    """Finds polynomial vector fields along whose flow a function does not change, or whose flows commute with a flow.

    Fields that do not change a function need not be closed under brackets in any finite degree: each is judged by
    itself, at finite size, and nothing is said about a group unless all are affine. Such a field times any function is
    another one: of each degree only those are kept that point where no simpler ones do. The same holds for a flow, of
    itself, of the fields that commute with it, and of the functions that it conserves.

    Arguments:
        action: The fields that are looked at.
        options: `function` and `predictor`, as in `discover`.
    """
    started = time.perf_counter()
    _check_memory(x, action)
    problem, fitted = prepare(x, y, action=action, seed=seed, progress=progress, **options)
    kept, multiples = Conclusion(torch.zeros(0, problem.size, problem.size), [], []), 0
    for degree in range(1, action.degree + 1):
        part = replace(problem, action=replace(action, degree=degree))
        found = SpectralSearch().find(part, seed=seed, progress=progress)
        settled = conclude_generators(Judge(part, tolerance, seed=seed, progress=progress), found, _FIELDS)
        kept, more = _with_new(problem, kept, settled)
        multiples = max(multiples, more)
    settled = kept
    fields = _raw(problem, settled.matrices, action.degree)
    group = _affine_group(fields, action.degree)
    nothing = Conclusion(torch.eye(problem.size)[None], [], [])
    verdict = words(group, settled, nothing, untested=found.untested, tolerance=tolerance)
    if settled.kept:
        worst = max(f.direction.upper for f in settled.kept)
        count = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        known = f" Affine, they make up {group.name}." if group.dimension and group.identification.known else ""
        said = "The flow commutes with" if action.velocities else "The map does not change along"
        reason = f"{said} {count}: the breaking is at most {worst:.1%} on held-out data.{known}"
        if multiples:
            others = "of the flow itself and of these" if action.velocities else "of these"
            reason += f" {multiples} more are multiples {others} by functions, and say nothing new."
        verdict = replace(verdict, symmetric=True, reason=reason)
    elif multiples:
        verdict = replace(verdict, reason="No symmetry but the flow itself, and its multiples by what it conserves.")
    return FieldDiscovery(
        group=group,
        verdict=verdict,
        charts=(ChartFinding((), math.nan, False, fitted.skill),),
        spectrum=found.spectrum,
        predictor=PredictorSummary(fitted.kind, fitted.skill, fitted.samples, fitted.seconds),
        seconds={"discovery": time.perf_counter() - started},
        seed=seed,
        config={"action": {"kind": "PolynomialAction", "degree": action.degree}, "tolerance": tolerance},
        fields=fields,
        degree=action.degree,
        sizes=_sizes(problem, action),
    )


def _check_memory(x: Any, action: PolynomialAction) -> None:
    """Raises if the columns of all fields exceed memory."""
    n = int(getattr(x, "shape", (0, 1))[-1])

    def need(degree: int) -> int:
        return 8 * 4 * (n * PolynomialAction(degree=degree).matrix_size(n)) ** 2

    room = free_megabytes() * 2**20 / 4
    if need(action.degree) > room:
        fits = max((d for d in range(1, action.degree) if need(d) <= room), default=0)
        columns = n * action.matrix_size(n)
        raise InputError(
            f"`degree` must leave columns that fit into memory: degree {action.degree} of {n} components has "
            f"{columns}; degree {fits} would fit."
        )


def flow_among(rows: Tensor, flow: Tensor, noise: float) -> Tensor | None:
    """The flow as a combination `(k,)` of fields, where it is one.

    Arguments:
        rows: What each field does to the states, `(k, M)`.
        flow: Velocities, `(M,)`.
        noise: Share of the square of the velocities that is noise.
    """
    mix = torch.linalg.lstsq(rows.mT, flow[:, None]).solution[:, 0]
    left = float((flow - mix @ rows).square().mean() / flow.square().mean())
    return mix if left <= noise + _SAME**2 else None


def _with_new(problem: Problem, kept: Conclusion, found: Conclusion) -> tuple[Conclusion, int]:
    """Fields of lower degrees with those of the next one that point elsewhere, and how many do not."""
    n, size = problem.samples.size, problem.size
    columns = found.matrices.shape[-1]
    if (
        exact_class([*found.kept, *kept.kept], floor=_INTEGRATED) == len(found.kept) > 0
    ):  # those of lower degrees came near only
        worse = [approximate(f) for f in kept.kept]
        kept, found = Conclusion(kept.matrices[:0], [], []), replace(found, dropped=[*found.dropped, *worse])
    given = functional.pad(found.matrices, (0, size - columns, 0, size - columns))
    action = problem.action
    assert isinstance(action, PolynomialAction)
    if not len(given) or not (len(kept.matrices) or action.velocities):
        return Conclusion(given if len(given) else kept.matrices, found.kept or kept.kept, found.dropped), 0
    index = problem.pick(256)
    x = problem.inputs(index)
    at = action.columns(x[:, 0].double().reshape(-1, n))
    old, new = (torch.einsum("kij,bj->kbi", m[:, :n], at) for m in (kept.matrices, given))
    chosen = list(range(len(given)))
    if action.velocities:
        flow = problem.functions[0](x)[:, 0].double()
        mix = flow_among(new.flatten(1), flow.flatten(), noise=0.0)
        if mix is not None:  # the flow is one of them: it takes the place of the one that it holds most of
            chosen.remove(int((mix * new.flatten(1).norm(dim=1)).abs().argmax()))
            flow = torch.einsum("k,kbi->bi", mix, new)
        old = torch.cat([flow[None], old])
    old, new = (v / v.square().sum(-1).mean(-1).sqrt()[:, None, None] for v in (old, new))
    # What is left of every field beside those of lower degree, at every place.
    u, s, _ = torch.linalg.svd(old.movedim(0, -1), full_matrices=False)  # (b, n, r)
    u = u * (s > _ELSEWHERE * s.amax(1, keepdim=True))[:, None]
    left = new - torch.einsum("bir,bjr,kbj->kbi", u, u, new)
    size_left = left.square().sum(-1).mean(-1).sqrt()
    fresh = [i for i in chosen if float(size_left[i]) > _ELSEWHERE]
    matrices = torch.cat([kept.matrices, given[fresh]])
    findings = [*kept.kept, *(found.kept[i] for i in fresh)]
    return Conclusion(matrices, findings, found.dropped), len(given) - len(fresh) - len(kept.matrices)


def _plain(judge: Judge, basis: Tensor) -> Tensor:
    """Fields `(k, m, m)` of the same span that share few monomials, in raw units, in standard units again."""
    problem = judge.problem
    n, size = problem.samples.size, problem.size
    action = problem.action
    assert isinstance(action, PolynomialAction)
    raw = _raw(problem, basis, action.degree)
    scale = _sizes(problem, action)
    plain = standard_form(functional.pad(raw * scale, (0, 0, 0, size - n)))[:, :n] / scale
    frame = problem.units.frame
    back = torch.linalg.inv(frame)
    fields = change_coordinates(plain, back[:n, :n], back[:n, n], action.degree)
    return functional.pad(fields, (0, 0, 0, size - n))


_FIELDS = Kind(lambda basis: basis, _plain, _INTEGRATED)
"""Many fields nearly leave a map as it is where a library is large: no floor makes them as good as exact ones."""


def _sizes(problem: Problem, action: PolynomialAction) -> Tensor:
    """Root mean square of every monomial of raw inputs over the spread of each component, `(n, m)`."""
    x = problem.units.raw_inputs(problem.inputs(problem.pick(512))[:, 0].double())
    x = x.reshape(-1, x.shape[-1])
    return action.columns(x).square().mean(0).sqrt() / x.std(0).clamp_min(1e-300)[:, None]


def _raw(problem: Problem, basis: Tensor, degree: int) -> Tensor:
    """Fields `(k, n, m)` of raw inputs, each with largest coefficient 1, from generators `(k, m, m)`."""
    n, frame = problem.samples.size, problem.units.frame
    if not len(basis):
        return basis.new_zeros(0, n, problem.size)
    fields = change_coordinates(basis[:, :n], frame[:n, :n], frame[:n, n], degree)
    least = fields.flatten(1).abs().amax(1)[:, None, None]
    return fields / least


def _affine_group(fields: Tensor, degree: int) -> Group:
    """The group that affine fields generate; trivial where one is not affine."""
    n = fields.shape[1]
    nothing = Group(torch.zeros(0, n + 1, n + 1), affine=True)
    if not len(fields) or (degree > 1 and float(fields[:, :, n + 1 :].abs().max()) > _AFFINE):
        return nothing
    matrices = torch.zeros(len(fields), n + 1, n + 1, dtype=torch.float64)
    matrices[:, :n, :n], matrices[:, :n, n] = fields[:, :, 1 : n + 1], fields[:, :, 0]
    algebra = LieAlgebra(matrices)
    return Group(algebra, affine=True) if algebra.closure_error() < 1e-3 else nothing
