"""Layers that commute with a group of the plane."""

from __future__ import annotations

import math
import warnings
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from atlasd.errors import InputError
from atlasd.nn.groups import GroupLike, as_group
from atlasd.nn.kernels import kernel_basis
from atlasd.nn.representations import FieldType, resolve


class GroupConv2d(nn.Module):
    r"""A convolution that commutes with a group: stands where `torch.nn.Conv2d` stood.

    Only kernels that obey the group's constraint can be learned, so that it has fewer weights and turning the input
    turns the output. Quarter turns are exact for every group that has them, other turns as good as pixels allow.
    A group that keeps no scalar product, such as scalings, has no equivariant layers with a bounded window; a warning
    says so, with the measured error. Strides keep quarter turns exact where
    `(size + 2 padding - dilation (kernel - 1) - 1)` is a multiple of the stride.

    Arguments:
        in_channels: Channels that come in, a multiple of the size of their field type.
        out_channels: Channels that go out, likewise.
        kernel_size: Height and width in pixels.
        group: A group of 2 x 2 matrices that act on (row, column), known or discovered.
        stride: As in `Conv2d`.
        padding: As in `Conv2d`, also `"same"` and `"valid"`.
        dilation: As in `Conv2d`.
        bias: Whether to add a bias to each field, along what the group leaves alone.
        padding_mode: As in `Conv2d`.
        in_type: How incoming channels transform: `"trivial"` (scalars), `"regular"` (finite groups), `"circle(L)"`
            (rotations and mirrors), or a `FieldType`.
        out_type: How outgoing channels transform.
        smooth: Whether fields are smooth on the scale of the pixels, see `kernel_basis`: errors of angles that do not
            fit the grid are then several times smaller, where nonlinearities are smooth, too.
        generator: Source of the initial weights; the global one of torch if left out.
        device: As in `Conv2d`.
        dtype: As in `Conv2d`.

    Example:
        >>> from atlasd.algebra import known
        >>> layer = GroupConv2d(1, 8, 5, group=known.cyclic(4), padding=2)
        >>> sum(p.numel() for p in layer.parameters())  # 7 weights in place of 25, and 8 biases
        64
        >>> x = torch.randn(2, 1, 9, 9, generator=torch.Generator().manual_seed(0))
        >>> torch.allclose(layer(x.rot90(dims=(2, 3))), layer(x).rot90(dims=(2, 3)), atol=1e-6)
        True
    """

    basis: Tensor
    along: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        *,
        group: GroupLike,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | Literal["same", "valid"] = 0,
        dilation: int | tuple[int, int] = 1,
        bias: bool = True,
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        in_type: FieldType | str = "trivial",
        out_type: FieldType | str = "trivial",
        smooth: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        group = as_group(group)
        into, out = resolve(in_type, group), resolve(out_type, group)
        fields_in, fields_out = into.fields(in_channels, "in_channels"), out.fields(out_channels, "out_channels")
        found = kernel_basis(group, kernel_size, in_type=into, out_type=out, smooth=smooth)
        if found.poor:
            warnings.warn(f"{found.note}.", stacklevel=2)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.group, self.in_type, self.out_type, self.constant = group, into, out, found.constant
        # Padding, stride and errors are those of torch itself: a Conv2d without storage keeps them.
        self._frame = (
            nn.Conv2d(
                in_channels, out_channels, kernel_size, stride, padding, dilation, 1, bias, padding_mode, device="meta"
            ),
        )
        like = torch.empty(0, device=device, dtype=dtype)
        self.coefficients = nn.Parameter(like.new_empty(fields_out, fields_in, found.dimension))
        self.bias = nn.Parameter(like.new_empty(fields_out)) if bias else None
        # A step in the coefficients changes a kernel as much as one in the weights of Conv2d: the same rates suit both.
        unit = math.sqrt(found.kernels[0].numel() / float(found.kernels.square().sum()))
        # Kept with the weights, which mean nothing in another basis of the same kernels.
        self.register_buffer("basis", (unit * found.kernels).to(like))
        self.register_buffer("along", out.mean.to(like), persistent=False)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws the weights as `Conv2d` does, so that outputs have the size of its outputs."""
        bound = 1 / math.sqrt(self.in_channels * math.prod(self.kernel_size))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    @property
    def kernel_size(self) -> tuple[int, int]:
        """Height and width of the kernels."""
        return int(self.basis.shape[-2]), int(self.basis.shape[-1])

    @property
    def weight(self) -> Tensor:
        """The kernels as `Conv2d` holds them, `(out_channels, in_channels, h, w)`."""
        return torch.einsum("oid,dxyhw->oxiyhw", self.coefficients, self.basis).flatten(2, 3).flatten(0, 1)

    def channel_bias(self) -> Tensor | None:
        """The bias of every channel, `(out_channels,)`."""
        return None if self.bias is None else torch.outer(self.bias, self.along).flatten()

    def forward(self, x: Tensor) -> Tensor:
        """Maps fields `(B, in_channels, H, W)` to `(B, out_channels, H', W')`."""
        return self._frame[0]._conv_forward(x, self.weight, self.channel_bias())

    def export(self) -> nn.Conv2d:
        """The same map as a plain `Conv2d`."""
        f = self._frame[0]
        size, kind = self.kernel_size, {"device": self.basis.device, "dtype": self.basis.dtype}
        plain = nn.utils.skip_init(
            nn.Conv2d, f.in_channels, f.out_channels, size, f.stride, f.padding, f.dilation, 1, f.bias is not None,
            f.padding_mode, **kind,
        )  # fmt: skip
        with torch.no_grad():
            plain.weight.copy_(self.weight)
            bias = self.channel_bias()
            if bias is not None:
                assert plain.bias is not None
                plain.bias.copy_(bias)
        return plain.train(self.training)

    def extra_repr(self) -> str:
        f = self._frame[0]
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, group={self.group.name}"
        text += f", stride={f.stride}, padding={f.padding}, dilation={f.dilation}, {self.in_type}->{self.out_type}"
        return text + (", spatially constant kernels" if self.constant else "")


class GroupActivation(nn.Module):
    """A nonlinearity of every value of every field; of circle fields, at evenly spread directions.

    Arguments:
        channels: Number of channels.
        group: The group.
        field_type: How the channels transform.
        activation: A map of single numbers, `SiLU` by default. The kinks of `ReLU` are as fine as the pixels, and cost
            equivariance under all but quarter turns.
    """

    values: Tensor | None
    back: Tensor | None

    def __init__(
        self,
        channels: int,
        *,
        group: GroupLike,
        field_type: FieldType | str = "trivial",
        activation: nn.Module | None = None,
    ) -> None:
        super().__init__()
        kind = resolve(field_type, as_group(group))
        self.fields = kind.fields(channels)
        self.activation = nn.SiLU() if activation is None else activation
        values = kind.values
        self.register_buffer("values", None if values is None else values.float(), persistent=False)
        # The columns of `values` are orthogonal: the transpose, divided by their number, leads back.
        back = None if values is None else values.mT / len(values)
        self.register_buffer("back", None if back is None else back.float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the shape `(B, C, H, W)`."""
        if self.values is None or self.back is None:
            return self.activation(x)
        z = self.activation(_on_fields(x, self.values, self.fields))
        return _on_fields(z, self.back, self.fields)

    def export(self) -> nn.Module:
        """The same map in plain modules."""
        if self.values is None or self.back is None:
            return self.activation
        return nn.Sequential(_pointwise(self.values, self.fields), self.activation, _pointwise(self.back, self.fields))


class GroupBatchNorm2d(nn.Module):
    """Batch norm with one mean and one variance for each field, so that it commutes with the group.

    Arguments:
        channels: Number of channels.
        group: The group.
        field_type: How the channels transform.
        eps: As in `BatchNorm2d`.
        momentum: As in `BatchNorm2d`.
    """

    running_mean: Tensor
    running_var: Tensor
    along: Tensor

    def __init__(
        self,
        channels: int,
        *,
        group: GroupLike,
        field_type: FieldType | str = "trivial",
        eps: float = 1e-5,
        momentum: float = 0.1,
    ) -> None:
        super().__init__()
        kind = resolve(field_type, as_group(group))
        fields = kind.fields(channels)
        self.size, self.eps, self.momentum = kind.size, eps, momentum
        self.weight, self.bias = nn.Parameter(torch.ones(fields)), nn.Parameter(torch.zeros(fields))
        self.register_buffer("running_mean", torch.zeros(fields))
        self.register_buffer("running_var", torch.ones(fields))
        self.register_buffer("along", kind.mean.float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the shape `(B, C, H, W)`."""
        z = x.unflatten(1, (-1, self.size))
        along = self.along.reshape(-1, 1, 1)
        if self.training:
            mean = (z * along).sum(2, keepdim=True).mean((0, 2, 3, 4)) / self.along.sum()
            var = (z - mean.reshape(-1, 1, 1, 1) * along).square().mean((0, 2, 3, 4))
            with torch.no_grad():
                self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
                self.running_var.lerp_(var.to(self.running_var), self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        gain = self.weight / (var + self.eps).sqrt()
        shift = (self.bias - mean * gain).reshape(-1, 1, 1, 1) * along
        return (z * gain.reshape(-1, 1, 1, 1) + shift).flatten(1, 2)

    def export(self) -> nn.BatchNorm2d:
        """The same map as plain batch norm, with the averages seen in training; meant for use, not for training."""
        plain = nn.BatchNorm2d(len(self.weight) * self.size, eps=self.eps, momentum=self.momentum).to(self.weight)
        assert plain.running_mean is not None and plain.running_var is not None
        with torch.no_grad():
            plain.running_mean.copy_(torch.outer(self.running_mean, self.along).flatten())
            plain.running_var.copy_(self.running_var.repeat_interleave(self.size))
            plain.weight.copy_(self.weight.repeat_interleave(self.size))
            plain.bias.copy_(torch.outer(self.bias, self.along).flatten())
        return plain.eval()


class GroupPool(nn.Module):
    """One scalar for each field, which no element of the group changes: from any fields to trivial ones.

    Arguments:
        channels: Number of channels that come in; `channels / size` go out.
        group: The group.
        field_type: How the channels transform.
        how: The largest value of the field, or its mean.
    """

    values: Tensor

    def __init__(
        self,
        channels: int,
        *,
        group: GroupLike,
        field_type: FieldType | str = "regular",
        how: Literal["max", "mean"] = "max",
    ) -> None:
        super().__init__()
        kind = resolve(field_type, as_group(group))
        if how not in ("max", "mean"):
            raise InputError(f"`how` must be 'max' or 'mean', got {how!r}.")
        self.fields, self.how = kind.fields(channels), how
        mean = (kind.mean / kind.mean.sum())[None]
        values = torch.eye(kind.size) if kind.values is None else kind.values
        self.register_buffer("values", (mean if how == "mean" else values).float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(B, fields * size, H, W)` to `(B, fields, H, W)`."""
        z = _on_fields(x, self.values, self.fields)
        return z if self.how == "mean" else z.unflatten(1, (self.fields, -1)).amax(2)

    def export(self) -> nn.Module:
        """The same map in plain modules."""
        count = len(self.values)
        first = _pointwise(self.values, self.fields)
        if self.how == "mean":
            return first
        largest = [nn.Unflatten(1, (self.fields, count)), nn.MaxPool3d((count, 1, 1)), nn.Flatten(1, 2)]
        return (
            nn.Sequential(*largest) if self.values.shape[0] == self.values.shape[1] else nn.Sequential(first, *largest)
        )


def _on_fields(x: Tensor, matrix: Tensor, fields: int) -> Tensor:
    """Applies `(N, size)` to the components of every field of `(B, fields * size, H, W)`."""
    weight = matrix.to(x.dtype).repeat(fields, 1)[:, :, None, None]
    return functional.conv2d(x, weight, groups=fields)


def _pointwise(matrix: Tensor, fields: int) -> nn.Conv2d:
    """The same as a plain convolution of one pixel."""
    count, size = matrix.shape
    kind = {"device": matrix.device, "dtype": matrix.dtype}
    plain = nn.utils.skip_init(nn.Conv2d, fields * size, fields * count, 1, groups=fields, bias=False, **kind)
    assert isinstance(plain, nn.Conv2d)
    with torch.no_grad():
        plain.weight.copy_(matrix.repeat(fields, 1)[:, :, None, None])
    return plain
