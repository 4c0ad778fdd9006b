"""From a discovery to a network that uses it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from atlasd.algebra.group import Group
from atlasd.data.cleaning import whole_tensor
from atlasd.discovery.result import Discovery
from atlasd.discovery.targets import as_said
from atlasd.errors import InputError
from atlasd.geometry.stacked import Stacked
from atlasd.nn.fields import FieldNetwork
from atlasd.nn.groups import GroupLike, as_group
from atlasd.nn.mlp import EquivariantMLP, EquivariantSetMLP
from atlasd.nn.tensor_types import TensorType, scalar, tensor, vector

_ORDERED = 6
"""Most vectors that are taken as ordered unless it is said otherwise: invariants of more are too many."""


def network(
    found: GroupLike,
    x: Any,
    y: Any,
    *,
    width: int | None = None,
    outputs: TensorType | None = None,
    sets: bool | None = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> nn.Module:
    """A network that commutes with the group of a discovery, ready to be trained.

    Fields get a :class:`FieldNetwork`, vectors in a fixed order an :class:`EquivariantMLP`, sets of vectors an
    :class:`EquivariantSetMLP`. Shapes and units are taken from the data. Networks on vectors learn small changes of the
    coordinates along, since a discovered algebra is noisy.

    Arguments:
        found: What `atlasd.discover` returned, a group or an algebra.
        x: Inputs, as `discover` takes them: fields `(N, C, H, W)`, vectors `(N, n)` or `(N, P, n)`.
        y: Targets: fields `(N, C, H, W)`, numbers `(N,)` or `(N, k)`, or integer classes `(N,)`, of pixels `(N, H, W)`,
            for which there are as many outputs as classes.
        width: Hidden width; 64 for vectors and 30 channels for fields by default.
        outputs: How targets transform, such as `vector()`; what the discovery found, or else scalars, by default.
        sets: Whether vectors are a set; by default if there are more than 6.
        generator: Source of the initial weights.
        options: Passed on to the network.

    Raises:
        InputError: No symmetry was found, or no such network commutes with it.

    Example:
        >>> from atlasd.algebra import known
        >>> x = torch.randn(50, 3, 4)
        >>> net = network(known.lorentz(1), x, x[:, 0, 0])
        >>> type(net).__name__, net(x).shape
        ('EquivariantMLP', torch.Size([50, 1]))
    """
    group = as_group(found)
    if not group.dimension and group.components == 1:
        reason = f" ({found.verdict.reason})" if isinstance(found, Discovery) else ""
        raise InputError(f"a network needs a symmetry, and none was found{reason}; take a plain network.")
    x, y = whole_tensor(x, "x"), whole_tensor(y, "y")
    if len(x) != len(y):
        raise InputError(f"`y` must have one target for each of {len(x)} samples, got {len(y)}; check the arrays.")
    if not bool(x.isfinite().all() and y.isfinite().all()):
        raise InputError("`x` and `y` must be finite, got NaN or infinite numbers; leave these samples out.")
    if width is not None and width < 1:
        raise InputError(f"`width` must be at least 1, got {width}; 64 is usual for vectors, 30 for fields.")
    said = str(found.config.get("targets", "")) if isinstance(found, Discovery) else ""
    if x.ndim == group.size + 2 and group.size == 2:
        if outputs is not None:
            options["rho_out"] = outputs.matrix
        elif y.is_floating_point() and not {"rho_in", "rho_out"} & set(options):
            channels = 1 if y.ndim == 1 else y.shape[1]
            options["rho_in"], options["rho_out"] = as_said(said, group.size, x.shape[1], channels)
        return _on_fields(group, x, y, width or 30, generator, options)
    if x.shape[-1] != group.size or x.ndim not in (2, 3):
        raise InputError(
            f"`x` must be fields (N, C, H, W) or vectors (N, ..., {group.size}) for {group}, got {tuple(x.shape)}; "
            "give what the discovery was made from."
        )
    if outputs is None:
        moved = as_said(said, group.size, 0, 1 if y.ndim == 1 else y.shape[-1])[1]
        if isinstance(moved, Stacked):
            outputs = moved.copies * tensor(int(not moved.dual), int(moved.dual))
        else:
            outputs = _outputs(0 if "invariant" in said else group.size, y)
    count = 1 if x.ndim == 2 else x.shape[1]
    adapt = options.pop("adapt", not any(p + q for _, p, q in outputs.parts) or not sets)
    if sets or (sets is None and count > _ORDERED):
        scalars = not any(p + q for _, p, q in outputs.parts)
        built: nn.Module = EquivariantSetMLP(
            group, outputs, width or 64, adapt=adapt and scalars, generator=generator, **options
        )
    else:
        built = EquivariantMLP(
            group, count * vector(), outputs, width or 64, adapt=adapt, generator=generator, **options
        )
    built.standardise(x[:4096], y[:4096])  # type: ignore[operator]
    return built


def _on_fields(
    group: Group, x: Tensor, y: Tensor, width: int, generator: torch.Generator | None, options: dict[str, Any]
) -> FieldNetwork:
    classes = not y.is_floating_point()
    places = y.shape[-2:] == x.shape[-2:] and y.ndim == (3 if classes else 4)
    out = y.shape[1] if places and not classes else _outputs(0, y).size(1)
    built = FieldNetwork(x.shape[1], out, group=group, width=width, pooled=not places, generator=generator, **options)
    built.standardise(x[:1024], y[:1024])
    return built


def _outputs(size: int, y: Tensor) -> TensorType:
    """Scalars for targets, one for each class where they are classes."""
    if y.ndim > 1 and y.shape[-1] == size:
        raise InputError(
            f"targets of shape {tuple(y.shape)} could be vectors that transform or {size} invariants; "
            f"say which by `outputs=vector()` or `outputs={size} * scalar()`."
        )
    if not y.is_floating_point():
        return (int(y.max()) + 1) * scalar()
    return scalar() if y.ndim == 1 else y.shape[1] * scalar()
