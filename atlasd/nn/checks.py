r"""Whether a network commutes with a group: as a figure, and as an assertion for anybody's tests."""

from __future__ import annotations

__all__ = ["assert_equivariant", "default_action", "field_error"]

from collections.abc import Callable

import torch
from torch import Tensor, nn

from atlasd.algebra.group import Group
from atlasd.discovery.criterion import equivariance_error
from atlasd.errors import InputError
from atlasd.geometry.actions import Action, GridAction, VectorAction
from atlasd.geometry.resample import pixel_grid
from atlasd.nn.compact import haar_sample, invariant_form
from atlasd.runtime.random import stream


class _InvariantOutput(GridAction):
    """Fields come in and turn; what goes out has no places and stays."""

    def on_output(self, g: Tensor, y: Tensor) -> Tensor:
        return y


def default_action(size: int, x: Tensor, y: Tensor) -> Action:
    """The usual action of matrices of that size: fields `(B, C, *S)` turn on their grid, vectors are multiplied.

    Arguments:
        size: Size n of the matrices.
        x: Inputs; fields if they have n spatial axes besides batch and channels.
        y: Outputs; they turn only if they have spatial axes, too.
    """
    if x.ndim == size + 2 and size in (2, 3):
        kind = GridAction if y.ndim == x.ndim else _InvariantOutput
        return kind(dimensions=size, fill="zeros")
    if x.shape[-1] == size:
        return VectorAction()
    raise InputError(
        f"`x` must be fields (B, C, ...) with {size} spatial axes or vectors (..., {size}), got {tuple(x.shape)}; "
        "say how the group acts by `action=`."
    )


def field_error(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    g: Tensor,
    *,
    action: Action | None = None,
    radius: float | None = None,
) -> Tensor:
    r"""Relative equivariance error of any module: 0 is exact, about 1.4 is unrelated.

    It is the root of the mean of :math:`|\Phi(g x) - g \Phi(x)|^2`, from `atlasd.equivariance_error`, over that of the
    outputs about their mean. Angles need not fit the grid: the field is interpolated, which costs some error itself.

    Arguments:
        function: A module or any function; a module is asked in evaluation mode.
        x: Inputs `(B, *)`.
        g: One matrix `(n, n)` or several `(M, n, n)`.
        action: How matrices act; by default fields turn on their grid and other outputs are invariant.
        radius: Outputs count inside this disc, in pixels. By default everywhere for matrices that map the
            grid to itself, and up to two pixels from the edge for all others.

    Returns:
        The error, or `(M,)` errors.

    Example:
        >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> x = torch.randn(1, 1, 9, 9, generator=torch.Generator().manual_seed(0))
        >>> blur = torch.nn.AvgPool2d(3, 1, 1)
        >>> bool(field_error(blur, x, turn) < 1e-6), bool(field_error(lambda x: x.cumsum(-1), x, turn) > 0.5)
        (True, True)
    """
    was_training = isinstance(function, nn.Module) and function.training
    if isinstance(function, nn.Module):
        function.eval()
    try:
        with torch.no_grad():
            y = function(x)
            acting = default_action(g.shape[-1], x, y) if action is None else action
            errors = [_error(function, acting, x, y, one, radius) for one in g.reshape(-1, *g.shape[-2:])]
    finally:
        if isinstance(function, nn.Module):
            function.train(was_training)
    return torch.stack(errors).reshape(g.shape[:-2])


def _error(
    function: Callable[[Tensor], Tensor], action: Action, x: Tensor, y: Tensor, g: Tensor, radius: float | None
) -> Tensor:
    d = getattr(action, "dimensions", 0)
    shape = tuple(y.shape[y.ndim - d :]) if d and y.ndim == d + 2 else ()
    inside = _window(shape, g, radius) if shape else None

    def mean_square(a: Tensor, b: Tensor) -> Tensor:
        difference = (a - b).double().flatten(-len(shape))[..., inside] if inside is not None else (a - b).double()
        return difference.square().mean()

    miss = equivariance_error(function, action, x, g, distance=mean_square).mean()
    return (miss / mean_square(y, y.mean()).clamp_min(1e-300)).sqrt()


def _window(shape: tuple[int, ...], g: Tensor, radius: float | None) -> Tensor:
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
    function: Callable[[Tensor], Tensor],
    group: Group,
    x: Tensor,
    *,
    tolerance: float = 1e-4,
    elements: Tensor | None = None,
    action: Action | None = None,
    radius: float | None = None,
    samples: int = 8,
    seed: int = 0,
) -> None:
    """Raises `AssertionError` unless a module or function commutes with a group; for use in tests.

    Arguments:
        function: A module or any function.
        group: The group.
        x: Inputs `(B, *)`; smooth fields where angles do not fit the grid.
        tolerance: Largest relative error, see `field_error`. 1e-4 suits elements that map pixels to pixels;
            others need room for interpolation, about 0.05 on smooth fields.
        elements: The elements to test, `(M, n, n)`; all of a finite group by default, otherwise some.
        action: How the group acts, see `field_error`.
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
    if elements is None:
        generator = stream(seed, "assert equivariant")
        if group.dimension and invariant_form(group) is None:
            elements = group.sample(samples, generator=generator, scale=0.2)
        else:
            elements = haar_sample(group, max(1, samples // group.order), generator=generator)
    errors = field_error(function, x, elements.reshape(-1, *elements.shape[-2:]), action=action, radius=radius)
    worst = int(errors.argmax())
    if not float(errors[worst]) <= tolerance:
        matrix = elements.reshape(-1, *elements.shape[-2:])[worst].double()
        rows = ", ".join(f"[{', '.join(f'{v + 0.0:.3g}' for v in row)}]" for row in (1e6 * matrix).round() / 1e6)
        raise AssertionError(f"not equivariant: error {float(errors[worst]):.3g} above {tolerance:g} under [{rows}]")
