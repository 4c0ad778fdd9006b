"""Unknown representations: how the channels of a field mix when the plane is moved, found and not declared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.discover import discover_asking
from atlasd.discovery.locality import charts_by_default
from atlasd.discovery.part_fields import FieldPart
from atlasd.discovery.problem import Problem
from atlasd.discovery.result import Discovery
from atlasd.discovery.targets import Question
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction
from atlasd.geometry.atlas import Atlas
from atlasd.limits import TOLERANCE
from atlasd.prediction.predictor import PredictorSpec
from atlasd.runtime.memory import free_megabytes
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.text import counted

_NAMES = {0: "scalar", 1: "vector", 2: "symmetric tensor without trace"}


@dataclass(frozen=True, eq=False)
class Weights:
    r"""A representation of the rotations of the plane on channels: :math:`\rho(\theta) = \exp(\theta R)`.

    Arguments:
        matrix: R, whose eigenvalues are whole multiples of i, `(c, c)`.
        mirror: How channels mix when the second axis is reflected, `(c, c)`; `None` where nobody asked.

    Example:
        >>> both = Weights(torch.block_diag(torch.zeros(1, 1), torch.tensor([[0.0, -1.0], [1.0, 0.0]])))
        >>> both.name
        'scalar + vector'
        >>> both.mirrored([torch.pi, 0.0]).name
        'pseudo-scalar + vector'
    """

    matrix: Tensor
    mirror: Tensor | None = None

    @property
    def values(self) -> tuple[int, ...]:
        """Weights, ascending: 0 for a scalar, and k once for every pair of channels that rotates k times as fast."""
        found = sorted(round(abs(v)) for v in torch.linalg.eigvals(self.matrix.double()).imag.tolist())
        turning = [k for k in found if k]
        return tuple([0] * found.count(0) + turning[::2])

    @property
    def name(self) -> str:
        """What the channels are; a scalar that changes its sign under reflections is a pseudo-scalar."""
        names = [_NAMES.get(k, f"weight {k}") for k in self.values]
        if self.mirror is not None:
            # Pairs of channels have trace 0: what is left is the number of scalars less that of pseudo-scalars.
            scalars = self.values.count(0)
            odd = (scalars - round(float(self.mirror.trace()))) // 2
            names[scalars - odd : scalars] = ["pseudo-scalar"] * odd
        return " + ".join(names)

    @property
    def phases(self) -> tuple[tuple[float, ...], ...]:
        """What may be chosen for a reflection: a sign for each scalar, an axis for each pair of channels."""
        turns = tuple(m * torch.pi / 8 for m in range(16))
        return tuple((0.0, torch.pi) if k == 0 else turns for k in self.values)

    def mirrored(self, phases: Sequence[float]) -> Weights:
        r"""The same with a reflection M, such that :math:`M^2 = 1` and :math:`M R M = -R`.

        Arguments:
            phases: For each scalar 0, or pi for a pseudo-scalar; for each pair of channels twice the angle of the axis
                that is kept, 0 for the components of a vector along the axes.
        """
        kernel, turning = self._split()
        both = torch.cat([kernel, turning, turning.conj()], dim=1)
        factors = torch.exp(1j * torch.tensor(phases, dtype=torch.float64))
        s, t = kernel.shape[1], turning.shape[1]
        images = torch.cat([kernel, turning.conj(), turning], dim=1)
        images = images * torch.cat([factors[:s], factors[s:], factors[s:].conj()])
        assert len(factors) == s + t
        return replace(self, mirror=(images @ torch.linalg.inv(both)).real)

    def _split(self) -> tuple[Tensor, Tensor]:
        """Scalars `(c, s)` that are single channels where that is possible, and eigenvectors `(c, t)` of pairs."""
        values, vectors = torch.linalg.eig(self.matrix.double())
        weights = values.imag.round()
        inverse = torch.linalg.inv(vectors)
        project = (vectors[:, weights == 0] @ inverse[weights == 0]).real
        kernel, rest = [], project
        for _ in range(int((weights == 0).sum())):
            kernel.append(project[:, int(rest.norm(dim=0).argmax())])
            frame = torch.linalg.qr(torch.stack(kernel, dim=1)).Q
            rest = project - frame @ (frame.mT @ project)
        order = [int(i) for i in weights.argsort() if weights[i] > 0]
        turning = [_along_axes(vectors[:, i]) for i in order]
        empty = vectors.new_zeros(len(values), 0)
        return (
            torch.stack(kernel, dim=1).to(vectors.dtype) if kernel else empty,
            torch.stack(turning, dim=1) if turning else empty,
        )

    def __call__(self, g: Tensor) -> Tensor:
        """Matrices `(*, c, c)` of rotations and reflections `(*, 2, 2)`: of what is left without stretching."""
        flipped = (torch.linalg.det(g.double()) < 0)[..., None, None]
        g = torch.where(flipped, g * g.new_tensor([1.0, -1.0]), g)
        angle = torch.atan2(g[..., 1, 0] - g[..., 0, 1], g[..., 0, 0] + g[..., 1, 1])
        out = torch.matrix_exp(angle[..., None, None] * self.matrix.to(g.dtype))
        return out if self.mirror is None else torch.where(flipped, out @ self.mirror.to(g.dtype), out)


def _along_axes(vector: Tensor) -> Tensor:
    """An eigenvector `(c,)` with the phase that it has for the components of a vector along the axes, in any order."""
    a, b = vector.abs().topk(2).indices.sort().values
    real = a if float((vector[b] * vector[a].conj()).imag) < 0 else b
    return vector * (vector[real].conj() / vector[real].abs())


_SAMPLES = 48
_FREE = 1e-3
"""Share of the largest singular value below which a mixing of channels is not determined by the data."""
_WHOLE = 0.25
"""Largest distance of a weight from a whole number: a full rotation must lead back."""
_CLEARLY = 0.5
"""Share of a residual below which another reflection is clearly better than the one along the axes."""


@dataclass(frozen=True, eq=False)
class RepresentationDiscovery:
    """The answer of `atlasd.discover_representation`.

    Arguments:
        symmetries: The discovery with the representations found.
        inputs: How input channels mix; `None` where no mixing makes the map commute with rotations.
        free: Number of further mixings of channels, without any rotation, that the map commutes with. What every linear
            map has, the same number on both sides, is not counted.
        reason: What was concluded, in one sentence.
    """

    symmetries: Discovery
    free: int
    reason: str
    inputs: Weights | None = None
    outputs: Weights | None = None

    def __str__(self) -> str:
        return f"{self.symmetries}\n{self.reason}"


def discover_representation(
    x: Any,
    y: Any = None,
    *,
    function: Callable[[Tensor], Tensor] | None = None,
    atlas: Atlas | None = None,
    predictor: PredictorSpec | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    progress: Progress | None = None,
) -> RepresentationDiscovery:
    """Finds how the channels of fields in the plane mix under rotations, and judges the rotations with it.

    At first order, columns for all mixings of input and of output channels stand beside the rotation of the plane. The
    mixing that makes the residual least is brought to whole weights, since a full rotation must lead back, and goes
    to the verdict at finite size like any declared one. A reflection may change the sign of scalars and has an axis for
    every pair of channels; the best is judged, too. Components of vectors are taken to lie along the axes where the
    data cannot tell.

    Arguments:
        x: Input fields, `(N, C, H, W)`.
        y: Target fields.
        function: A function in place of `y`.
        atlas: Where the charts lie; as in `discover` by default.
        predictor: How the local map is learned.
        tolerance: The largest strength of a breaking that counts as a symmetry.
        seed: Seed of every random stream.
        progress: Progress display.
    """
    shown = progress or Silent()
    if getattr(x, "ndim", 0) != 4:
        raise InputError(f"`x` must be fields (N, C, H, W), got shape {tuple(getattr(x, 'shape', ()))}.")
    if atlas is None and function is None and predictor is None:
        atlas = charts_by_default(x, y, seed=seed, progress=shown)
    mixing: _Mixing | None = None

    def asking(problem: Problem, *_: Any) -> list[Question]:
        nonlocal mixing
        mixing = _mixing(problem)
        if mixing.sides is None:
            return []
        return [Question("given", GridAction(rho_in=mixing.sides[0], rho_out=mixing.sides[1]), "")]

    found = discover_asking(
        x, y, function=function, atlas=atlas, predictor=predictor, search=None, cosets=CosetSearch(),
        action=GridAction(), tolerance=tolerance, seed=seed, shown=shown, asking=asking,
    )  # fmt: skip
    assert mixing is not None
    if mixing.sides is None:
        said = f"No mixing of channels makes the map commute with rotations: {mixing.left:.0%} stay at first order."
        return RepresentationDiscovery(found, mixing.free, said)
    inputs, outputs = mixing.sides
    under = "rotations and reflections"
    if bool((torch.linalg.det(found.cosets) > 0).all()):
        inputs, outputs, under = replace(inputs, mirror=None), replace(outputs, mirror=None), "rotations"
    said = f"Under {under} the input is {inputs.name}, and the output {outputs.name}."
    if mixing.free:
        said += f" It is determined up to {counted(mixing.free, 'mixing')} under which the map does not change."
    if not found.algebra.dimension:
        return RepresentationDiscovery(found, mixing.free, f"Proposed, and not confirmed: {said}")
    return RepresentationDiscovery(found, mixing.free, said, inputs, outputs)


def _mirrors(problem: Problem, inside: Weights, outside: Weights) -> tuple[Weights, Weights]:
    """Representations with the reflection that the map commutes with best, that along the axes unless clearly worse."""
    part = FieldPart(problem, problem.pick(_SAMPLES), None)
    x, _, p = part.data
    mask = problem.window(tuple(p.shape[3:])).to(p.dtype).sqrt()
    sizes = _spreads(problem)
    spread = float((mask * p).square().sum())

    def made(phases: list[float]) -> tuple[Weights, Weights]:
        count = len(outside.phases)
        return inside.mirrored(phases[count:]), outside.mirrored(phases[:count])

    def cost(phases: list[float]) -> float:
        mirrors = [w.mirror for w in made(phases)]
        m, n = (a / s[:, None] * s for a, s in zip(mirrors, sizes, strict=True) if a is not None)
        seen = part.predict(torch.einsum("ij,bkj...->bki...", m.to(x.dtype), x.flip(-1)), problem.functions)
        wanted = torch.einsum("ij,bkj...->bki...", n.to(p.dtype), p.flip(-1))
        return float((mask * (seen - wanted)).square().sum()) / max(spread, 1e-300)

    choices = [*outside.phases, *inside.phases]
    best = [0.0] * len(choices)
    least = cost(best)
    for _ in range(2):
        for place, options in enumerate(choices):
            tried = [[*best[:place], phase, *best[place + 1 :]] for phase in options]
            costs = [cost(phases) for phases in tried]
            if min(costs) < _CLEARLY * least:
                least = min(costs)
                best = tried[costs.index(least)]
    return made(best)


def _spreads(problem: Problem) -> tuple[Tensor, Tensor]:
    """Spreads of raw input and output channels, in whose units the problem works."""
    units, one = problem.units, torch.ones(1, dtype=torch.float64)
    return units.channels if len(units.channels) else one, units.outputs if len(units.outputs) else one


@dataclass(frozen=True, eq=False)
class _Mixing:
    """How raw channels mix under rotations and reflections, at first order.

    Arguments:
        sides: Representations of inputs and outputs; `None` where weights are not whole.
        free: Number of further mixings that the map commutes with.
        left: Share of the residual that stays.
    """

    sides: tuple[Weights, Weights] | None
    free: int
    left: float


def _mixing(problem: Problem) -> _Mixing:
    """The mixing of channels that makes the residual least, with the reflection that does."""
    problem = replace(problem, pointwise=None)  # which commutes with every motion of the plane, not with every mixing
    part = FieldPart(problem, problem.pick(_SAMPLES), None)
    x, _, p = part.data
    _check_memory(x.shape[2], p.shape[2], 8 * p.numel())
    shape = tuple(p.shape[3:])
    mask = problem.window(shape).to(p.dtype).sqrt()
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=x.dtype)

    def through(flow: Tensor) -> Tensor:
        """Change of the outputs when inputs change along a flow."""
        step = 1e-2 * float(x.std()) / max(float(flow.std()), 1e-30)
        up, down = (part.predict(x + s * step * flow, problem.functions) for s in (1.0, -1.0))
        return ((up - down) / (2 * step) * mask).flatten().double()

    plain = GridAction()
    rotated = through(plain.input_generator(turn, x)), (plain.output_generator(turn, p) * mask).flatten().double()
    columns = [through(_mix(x, i, j)) for i in range(x.shape[2]) for j in range(x.shape[2])]
    columns += [-(_mix(p, i, j) * mask).flatten().double() for i in range(p.shape[2]) for j in range(p.shape[2])]
    matrix, wanted = torch.stack(columns, dim=1), rotated[1] - rotated[0]
    gram, right = matrix.mT @ matrix, matrix.mT @ wanted
    values, vectors = torch.linalg.eigh(gram)
    keep = values > _FREE * values.max()
    mix = vectors[:, keep] @ ((vectors[:, keep].mT @ right) / values[keep])
    left = (wanted - matrix @ mix).norm() / (rotated[0].square().sum() + rotated[1].square().sum()).sqrt()
    a, b = mix.split([x.shape[2] ** 2, p.shape[2] ** 2])
    inside, outside = a.reshape([x.shape[2]] * 2), b.reshape([p.shape[2]] * 2)
    raw = (m * s[:, None] / s for m, s in zip((inside, outside), _spreads(problem), strict=True))
    rho_in, rho_out = (_to_whole_weights(m) for m in raw)
    sides = None if rho_in is None or rho_out is None else _mirrors(problem, rho_in, rho_out)
    return _Mixing(sides, max(int((~keep).sum()) - 1, 0), float(left))


def _check_memory(inputs: int, outputs: int, size: int) -> None:
    """Raises if columns of `size` bytes for all mixings of channels exceed memory."""
    room = int(free_megabytes() * 2**20 / 4 / size)
    if inputs**2 + outputs**2 > room:
        raise InputError(
            f"`x` and `y` must have fewer channels: all mixings of {inputs} and {outputs} are {inputs**2 + outputs**2} "
            f"columns, and {room} fit into memory; {math.isqrt(room // 2)} channels of each would fit."
        )


def _mix(field: Tensor, i: int, j: int) -> Tensor:
    """Fields `(B, K, C, *S)` with channel j in the place of channel i, and nothing else."""
    out = torch.zeros_like(field)
    out[:, :, i] = field[:, :, j]
    return out


def _to_whole_weights(matrix: Tensor) -> Weights | None:
    """The nearest generator of a representation of rotations; `None` where weights are not whole, or channels grow."""
    trace = matrix.diagonal().mean()  # what every linear map has on both sides
    values, vectors = torch.linalg.eig(matrix - trace * torch.eye(len(matrix), dtype=matrix.dtype))
    whole = values.imag.round()
    if float((values - 1j * whole).abs().max()) > _WHOLE or float(torch.linalg.cond(vectors)) > 1e3:
        return Weights(torch.zeros_like(matrix)) if float(values.abs().max()) < _WHOLE else None
    return Weights((vectors @ torch.diag(1j * whole.to(values.dtype)) @ torch.linalg.inv(vectors)).real)
