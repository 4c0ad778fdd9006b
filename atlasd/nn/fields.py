"""A network on fields of the plane that commutes with a group."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from atlasd.algebra.group import Group
from atlasd.errors import InputError
from atlasd.geometry.actions import Representation
from atlasd.nn.grid_cnn import GroupActivation, GroupConv2d
from atlasd.nn.groups import GroupLike, as_group, invariant_form, unbounded_direction
from atlasd.nn.representations import FieldType, multiplets, of_channels, resolve

_MOST_ELEMENTS = 16
_SHOWN = 1e-6
"""Least part of the variance of a map that the fields show."""
_FITTED = 32
"""Fields that the linear map is fitted to: each has thousands of pixels."""


class FieldNetwork(nn.Module):
    """Convolutions that commute with a group, beside a single one, all of whose maps are linear.

    `standardise` starts the single one at its least-squares solution: what is left for the others is not linear.
    Fields come in, in units of their own spread, and fields or numbers go out: scalars, or components of vectors.

    Arguments:
        in_channels: Fields that come in.
        out_channels: Fields that go out, or numbers if `pooled`.
        group: The group; the trivial one gives a plain network.
        width: Hidden channels; rounded to a multiple of the size of a hidden field.
        depth: Number of convolutions.
        kernel_size: Of each.
        field_type: How hidden channels transform; `default_type` by default.
        padding_mode: As in `Conv2d`.
        pooled: Whether outputs are averaged over the plane.
        rho_in: How channels that come in transform, as in `GridAction`, such as `vector().matrix`; scalars by default.
        rho_out: The same for those that go out.
        generator: Source of the initial weights.

    Example:
        >>> from atlasd.algebra import known
        >>> network = FieldNetwork(1, 1, group=known.special_orthogonal(2), width=10)
        >>> network(torch.zeros(2, 1, 16, 16)).shape
        torch.Size([2, 1, 16, 16])
    """

    mean_in: Tensor
    mean_out: Tensor
    unit_in: Tensor
    unit_out: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        group: GroupLike,
        width: int = 30,
        depth: int = 3,
        kernel_size: int = 5,
        field_type: FieldType | str | None = None,
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "replicate",
        pooled: bool = False,
        rho_in: Representation | None = None,
        rho_out: Representation | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if depth < 2:
            raise InputError(f"`depth` must be at least 2, got {depth}; 3 is usual.")
        group = as_group(group)
        kind = default_type(group) if field_type is None else resolve(field_type, group)
        width = kind.size * max(1, round(width / kind.size))
        into, out = of_channels(rho_in, in_channels), of_channels(rho_out, out_channels)
        conv = partial(
            GroupConv2d, kernel_size=kernel_size, group=group, padding="same", padding_mode=padding_mode,
            smooth=not pooled, generator=generator,
        )  # fmt: skip
        layers: list[nn.Module] = []
        for k in range(depth):
            first, last = k == 0, k == depth - 1
            ends = (in_channels if first else width, out_channels if last else width)
            layers.append(conv(*ends, in_type=into if first else kind, out_type=out if last else kind))
            if not last:
                layers.append(GroupActivation(width, group=group, field_type=kind))
        self.layers, self.width, self.pooled = nn.Sequential(*layers), width, pooled
        self.direct: GroupConv2d | None = None
        with suppress(InputError):  # no linear map takes the one to the other, as scalars to what a mirror turns round
            self.direct = conv(in_channels, out_channels, in_type=into, out_type=out)
        elements = torch.cat([torch.matrix_exp(group.algebra.frame()), group.cosets])
        self._blocks = {
            "in": multiplets(rho_in, elements, in_channels),
            "out": multiplets(rho_out, elements, out_channels),
        }
        for name, size in (("in", in_channels), ("out", out_channels)):
            self.register_buffer(f"mean_{name}", torch.zeros(size, 1, 1))
            self.register_buffer(f"unit_{name}", torch.ones(size, 1, 1))

    def standardise(self, x: Tensor, y: Tensor | None = None) -> None:
        """Sets the units of inputs and of outputs from fields of each, `(N, C, H, W)`.

        Components of one vector share a unit, and have no mean. With both, the linear map is fitted.
        """
        for name, field in (("in", x), ("out", y)):
            if field is not None and field.ndim == 4 and field.is_floating_point():
                values = field.movedim(1, 0).flatten(1).double()
                for block in self._blocks[name]:
                    mean = values[block].mean() if len(block) == 1 else values.new_zeros(())
                    getattr(self, f"mean_{name}")[block] = mean.float()
                    getattr(self, f"unit_{name}")[block] = (
                        (values[block] - mean).square().mean().sqrt().clamp_min(1e-9).float()
                    )

        if y is not None and y.ndim == 4 and y.is_floating_point() and self.direct is not None and not self.pooled:
            self._fit(x[:_FITTED], y[:_FITTED])

    @torch.no_grad()
    def _fit(self, x: Tensor, y: Tensor) -> None:
        """The linear map by least squares, for what the other layers leave open."""
        assert self.direct is not None
        z = (x - self.mean_in) / self.unit_in
        left = (y - self.mean_out) / self.unit_out - self.layers(z)
        parameters = list(self.direct.parameters())
        sizes = [p.numel() for p in parameters]

        def take(values: Tensor) -> None:
            for parameter, part in zip(parameters, values.split(sizes), strict=True):
                parameter.copy_(part.view_as(parameter))

        columns = []
        for unit in torch.eye(sum(sizes)):
            take(unit)
            columns.append(self.direct(z).flatten())
        rows = torch.stack(columns, 1).double()
        # What smooth fields hardly show is left out: outputs would be small differences of large numbers.
        inverse = torch.linalg.pinv(rows.mT @ rows, rtol=_SHOWN, hermitian=True)
        take(inverse @ (rows.mT @ left.double().flatten()))

    def forward(self, x: Tensor) -> Tensor:
        """Maps fields `(B, C, H, W)` to `(B, C', H, W)`, or to `(B, C')` if `pooled`."""
        z = (x - self.mean_in) / self.unit_in
        y = self.layers(z) if self.direct is None else self.layers(z) + self.direct(z)
        y = y * self.unit_out + self.mean_out
        return y.mean((2, 3)) if self.pooled else y


def default_type(group: Group) -> FieldType:
    """Hidden fields that suit a group: functions on it if it is small and finite, on the circle if it is compact."""
    if group.size != 2:
        raise InputError(
            f"`group` must act on the plane, got {group.size} x {group.size} matrices; see `EquivariantMLP`."
        )
    if not group.dimension:
        if group.components > _MOST_ELEMENTS:
            raise InputError(f"`group` must have at most {_MOST_ELEMENTS} elements, got {group}; take a subgroup.")
        return resolve("regular" if group.components > 1 else "trivial", group)
    if invariant_form(group) is None:
        raise InputError(
            f"no network with bounded windows commutes with {group}: {unbounded_direction(group)}; "
            "take its compact part, or a plain network in `ad.canonicalize`."
        )
    return resolve("circle(2)", group)
