r"""Whether a network commutes with a group: as a figure, and as an assertion for anybody's tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from atlasd.data.cleaning import whole_tensor
from atlasd.discovery.residual import sides
from atlasd.errors import InputError
from atlasd.geometry.actions import Action, GridAction, VectorAction
from atlasd.geometry.resample import pixel_grid
from atlasd.nn.groups import GroupLike, as_group, haar_sample, invariant_form
from atlasd.nn.representations import multiplets
from atlasd.nn.tensor_types import TensorType
from atlasd.runtime.random import stream

Output: TypeAlias = Any
"""A tensor, or tensors in tuples, lists, dictionaries and dataclasses."""
_CONSTANT = 1e-6
"""Outputs whose spread is this small a part of their size are constant, up to rounding in float32."""


class _InvariantOutput(GridAction):
    """Input fields are transformed; outputs without places are not."""

    def on_output(self, g: Tensor, y: Tensor) -> Tensor:
        return y


def default_action(size: int, x: Tensor, y: Tensor, outputs: TensorType | None = None) -> Action:
    """The usual action of matrices of that size: fields `(B, C, *S)` move on their grid, vectors are multiplied.

    Arguments:
        x: Inputs; fields if they have n spatial axes besides batch and channels.
        y: Outputs; fields if they have spatial axes, too.
        outputs: How the last axis of other outputs transforms. By default they are invariant; where they could be
            vectors as well, this has to be said.
    """
    if x.ndim == size + 2 and size in (2, 3):
        if y.ndim == x.ndim:
            return GridAction(dimensions=size, fill="zeros", rho_out=None if outputs is None else outputs.matrix)
        return _InvariantOutput(dimensions=size, fill="zeros")
    if x.shape[-1] == size:
        if outputs is not None:
            return VectorAction(rho_out=outputs.matrix)
        if y.ndim > 1 and y.shape[-1] == size:
            raise InputError(
                f"outputs of shape {tuple(y.shape)} could be vectors that transform or {size} invariants; "
                f"say which by `outputs=vector()` or `outputs={size} * scalar()`."
            )
        return VectorAction()
    raise InputError(
        f"`x` must be fields (B, C, ...) with {size} spatial axes or vectors (..., {size}), got {tuple(x.shape)}; "
        "say how the group acts by `action=`."
    )


def field_error(
    function: Callable[[Tensor], Output],
    x: Tensor,
    g: Tensor,
    *,
    action: Action | None = None,
    outputs: TensorType | None = None,
    radius: float | None = None,
) -> Tensor:
    r"""Relative equivariance error of any module: 0 is exact, about 1.4 is unrelated.

    It is the root-mean-square of :math:`\Phi(g x) - g \Phi(x)`, each output in units of its own spread. Angles
    need not fit the grid: the field is interpolated, which costs some error itself.

    Arguments:
        function: A module or any function; a module is asked in evaluation mode and left as it was. Its outputs may be
            tensors in tuples, lists and dictionaries.
        x: Inputs `(B, *)`.
        g: One matrix `(n, n)` or several `(M, n, n)`.
        action: How matrices act; by default fields move on their grid and other outputs are invariant.
        outputs: How outputs that are not fields transform, such as `vector()`.
        radius: Outputs count inside this disc, in pixels. By default everywhere for matrices that map the
            grid to itself, and up to two pixels from the edge for all others.

    Returns:
        The error, or `(M,)` errors; nan where all outputs are constant.

    Example:
        >>> rotation = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> x = torch.randn(1, 1, 9, 9, generator=torch.Generator().manual_seed(0))
        >>> blur = torch.nn.AvgPool2d(3, 1, 1)
        >>> bool(field_error(blur, x, rotation) < 1e-6), bool(field_error(lambda x: x.cumsum(-1), x, rotation) > 0.5)
        (True, True)
    """
    errors, _ = output_errors(function, x, g, action, outputs, radius)
    return errors.square().nanmean(-1).sqrt().reshape(g.shape[:-2])


def output_errors(
    function: Callable[[Tensor], Output],
    x: Tensor,
    g: Tensor,
    action: Action | None,
    outputs: TensorType | None,
    radius: float | None,
) -> tuple[Tensor, list[str]]:
    """Errors `(M, outputs)` of every output in units of its spread, and the names of the outputs.

    The error of an output that is constant is nan, unless the output changes under the group.
    """
    elements = g.reshape(-1, *g.shape[-2:])
    with evaluating(function), torch.no_grad():
        y = function(x)
        ask = partial(both_sides, function, x, y, elements=elements, action=action, outputs=outputs, radius=radius)
        rows = [list(ask(g=e)) for e in elements]
    if not rows[0]:
        raise InputError("`function` must return at least one tensor, got none; let it return what is to be compared.")
    return torch.tensor([[_error(*side[1:]) for side in row] for row in rows]), [side[0] for side in rows[0]]


def both_sides(
    function: Callable[[Tensor], Output],
    x: Tensor,
    y: Output,
    g: Tensor,
    elements: Tensor,
    *,
    action: Action | None = None,
    outputs: TensorType | None = None,
    radius: float | None = None,
    disc: Tensor | None = None,
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """For every output that transforms by itself: its name, f(x), f(g x) and g f(x), each `(B, channels, values)`.

    Arguments:
        x: Inputs `(B, *)`.
        g: One matrix `(n, n)`.
        elements: All that will be asked about, `(M, n, n)`: they tell which channels mix.
        action: How it acts, see `field_error`.
        outputs: How outputs that are not fields transform.
        radius: Which outputs of fields count.
        disc: What input fields are multiplied by where outputs have no places.
    """
    for name, here in leaves(y).items():
        given = x
        acting = default_action(g.shape[-1], x, here, outputs) if action is None else action
        d = int(getattr(acting, "dimensions", 0))
        fields = bool(d) and here.ndim == d + 2
        if d and not fields and disc is not None:
            given = x * disc.to(x)
            here = leaves(function(given))[name]
        left, right = sides(lambda z, name=name: leaves(function(z))[name], acting, given, here, g)  # type: ignore[misc]
        inside = counting_pixels(tuple(here.shape[-d:]), g, radius) if fields else None
        three = [_values(z, fields, inside) for z in (here, left, right)]
        blocks = multiplets(getattr(acting, "rho_out", None), elements, three[0].shape[1])
        for block in blocks:
            label = f"{name}[{', '.join(map(str, block))}]" if name or len(blocks) > 1 else "the output"
            yield label, three[0][:, block], three[1][:, block], three[2][:, block]


def _values(z: Tensor, fields: bool, inside: Tensor | None) -> Tensor:
    """The values that count, `(B, channels, values)`, in double precision."""
    z = z.double()
    if fields:
        return z.flatten(2)[..., inside]
    return z.reshape(len(z), 1, 1) if z.ndim == 1 else z.movedim(-1, 1).flatten(2) if z.ndim > 2 else z.unsqueeze(2)


@contextmanager
def evaluating(function: Any) -> Iterator[None]:
    """Puts a module in evaluation mode, and each of its parts back into the mode that it was in."""
    modes = [(m, m.training) for m in function.modules()] if isinstance(function, nn.Module) else []
    for module, _ in modes:
        module.training = False
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def leaves(y: Output, name: str = "") -> dict[str, Tensor]:
    """The tensors in an output by their names, as real floating numbers, without what is `None`."""
    if isinstance(y, Tensor):
        if y.is_complex():
            return {f"{name}.{part}".strip("."): getattr(y, part) for part in ("real", "imag")}
        return {name: y if y.is_floating_point() else y.double()}
    parts = _parts(y)
    if parts is None:
        raise InputError(
            f"outputs must be tensors in tuples, lists, dictionaries or dataclasses, got {type(y).__name__}; "
            "wrap the model in a function that returns its tensors."
        )
    found: dict[str, Tensor] = {}
    for key, value in parts:
        found |= {} if value is None else leaves(value, f"{name}.{key}" if name else str(key))
    return found


def map_leaves(function: Callable[..., Tensor], *trees: Output) -> Output:
    """Applies a function to the tensors of outputs that are built alike, and builds one like them."""
    first = trees[0]
    if first is None or isinstance(first, Tensor):
        return None if first is None else function(*trees)
    parts = _parts(first)
    if parts is None:
        raise InputError(
            f"outputs must be tensors in tuples, lists, dictionaries or dataclasses, got {type(first).__name__}."
        )
    made = {key: map_leaves(function, *(_part(t, key) for t in trees)) for key, _ in parts}
    if isinstance(first, Mapping):
        return made
    if is_dataclass(first):
        return replace(first, **made)  # type: ignore[type-var]
    values = made.values()
    return type(first)(*values) if hasattr(first, "_fields") else type(first)(values)


def _parts(y: Output) -> list[tuple[Any, Output]] | None:
    """The parts of a structure by their keys."""
    if isinstance(y, Mapping):
        return list(y.items())
    if isinstance(y, tuple | list):
        return list(zip(getattr(y, "_fields", range(len(y))), y, strict=True))
    return [(f.name, getattr(y, f.name)) for f in fields(y)] if is_dataclass(y) and not isinstance(y, type) else None


def _part(y: Output, key: Any) -> Output:
    return y[key] if isinstance(y, Mapping) or isinstance(key, int) else getattr(y, key)


def _error(still: Tensor, left: Tensor, right: Tensor) -> float:
    """The error of one output in units of its spread; nan where it is constant and stays so."""
    miss, size = (left - right).square().mean(), still.square().mean().sqrt().clamp_min(1e-30)
    spread = (still - still.mean((0, 2), keepdim=True)).square().mean()
    if bool((miss + spread).isnan()):
        return math.inf
    if max(float(spread.sqrt()), float(miss.sqrt())) <= _CONSTANT * float(size):
        return math.nan
    return float((miss / spread.clamp_min(1e-300)).sqrt())


def counting_pixels(shape: tuple[int, ...], g: Tensor, radius: float | None) -> Tensor:
    """The pixels that count, `(pixels,)`."""
    p = pixel_grid(shape, dtype=torch.float64)
    if radius is None:
        corners = p[p.abs().sum(1) == p.abs().sum(1).max()] @ g.double().mT
        on_grid = bool(((g - g.round()).abs() < 1e-5).all())
        if on_grid and bool((corners.abs() <= p.abs().max(0).values + 1e-6).all()):
            return torch.ones(len(p), dtype=torch.bool)
        radius = (min(shape) - 1) / 2 - 2
    inside = p.norm(dim=1) <= radius
    if not bool(inside.any()):
        raise InputError(f"`radius` must leave some pixels of {shape}, got {radius}; take a larger one.")
    return inside


def assert_equivariant(
    function: Callable[[Tensor], Output],
    group: GroupLike,
    x: Tensor,
    *,
    tolerance: float = 1e-4,
    elements: Tensor | None = None,
    action: Action | None = None,
    outputs: TensorType | None = None,
    radius: float | None = None,
    samples: int = 8,
    seed: int = 0,
) -> None:
    """Raises `AssertionError` unless a module or function commutes with a group; for use in tests.

    An output that does not depend on the inputs proves nothing and fails, too.

    Arguments:
        function: A module or any function.
        group: The group.
        x: Inputs `(B, *)`; smooth fields where angles do not fit the grid.
        tolerance: Largest relative error of any output, in units of its own spread. 1e-4 suits elements that map
            pixels to pixels; others need room for interpolation, about 0.05 on smooth fields.
        elements: The elements to test, `(M, n, n)`; all of a finite group by default, otherwise some.
        action: How the group acts, see `field_error`.
        outputs: How outputs transform, see `field_error`.
        radius: Which outputs count, see `field_error`.
        samples: How many elements to draw from a continuous group.
        seed: The seed of that.

    Example:
        >>> from atlasd.algebra import known
        >>> x = torch.randn(1, 1, 9, 9, generator=torch.Generator().manual_seed(0))
        >>> assert_equivariant(torch.nn.AvgPool2d(3, 1, 1), known.dihedral(4), x)
        >>> assert_equivariant(lambda x: x.cumsum(-1), known.cyclic(4), x)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        AssertionError: not equivariant: error ... above 0.0001 under [[0, -1], [1, 0]]
    """
    group, x = as_group(group), whole_tensor(x, "x")
    if elements is None:
        generator = stream(seed, "assert equivariant")
        if group.dimension and invariant_form(group) is None:
            elements = group.sample(samples, generator=generator, scale=0.2)
        else:
            elements = haar_sample(group, max(1, samples // group.components), generator=generator)
    tried = elements.reshape(-1, *elements.shape[-2:])
    errors, names = output_errors(function, x, tried, action, outputs, radius)
    constant = errors.isnan().any(0)
    if bool(errors.nan_to_num(nan=0.0).le(tolerance).all()) and bool(constant.any()):
        still = [name for name, flag in zip(names, constant.tolist(), strict=True) if flag]
        which = f"{', '.join(still)} {'is' if len(still) == 1 else 'are'} constant"
        raise AssertionError(f"cannot tell: {which} on these inputs; take more samples or leave it out")
    worst, output = divmod(int(errors.nan_to_num(nan=0.0).argmax()), len(names))
    if not float(errors[worst, output]) <= tolerance:
        rows = ", ".join(
            f"[{', '.join(f'{v + 0.0:.3g}' for v in row)}]" for row in (1e6 * tried[worst].double()).round() / 1e6
        )
        where = "" if len(names) == 1 else f", output {names[output]}"
        error = float(errors[worst, output])
        raise AssertionError(f"not equivariant: error {error:.3g} above {tolerance:g} under [{rows}]{where}")
