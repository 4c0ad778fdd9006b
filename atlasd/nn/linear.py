r"""Linear layers on vectors and tensors that commute with any matrix group, and the gate that goes with them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from atlasd.algebra.group import Group
from atlasd.errors import InputError
from atlasd.nn.groups import GroupLike, as_group
from atlasd.nn.intertwiners import Intertwiners
from atlasd.nn.tensor_types import TensorType, scalar


class EquivariantLinear(nn.Module):
    r"""A linear map of tensors that commutes with a group: :math:`\rho_{out}(g) W = W \rho_{in}(g)`.

    Arguments:
        rep_in: What comes in, such as `3 * vector() + scalar()`.
        rep_out: What goes out.
        group: A group or an algebra, known or discovered; it may be noisy and in any coordinates.
        bias: Whether to add what the group leaves alone.
        generator: Source of the initial weights; the global one of torch if left out.
        maps: The solver of another layer of the same group, to solve nothing twice.
        device: As in `Linear`.
        dtype: As in `Linear`.

    Raises:
        InputError: Nothing but zero reaches some outputs, or noise hides which maps commute.

    Example:
        >>> from atlasd.algebra import known
        >>> from atlasd.nn.tensor_types import tensor
        >>> layer = EquivariantLinear(tensor(2), tensor(2), known.special_orthogonal(3))
        >>> sum(p.numel() for p in layer.parameters())  # identity, transposition, trace; and the identity as a bias
        4
        >>> layer.export()
        Linear(in_features=9, out_features=9, bias=True)
    """

    def __init__(
        self,
        rep_in: TensorType,
        rep_out: TensorType,
        group: GroupLike,
        *,
        bias: bool = True,
        generator: torch.Generator | None = None,
        maps: Intertwiners | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        group = as_group(group)
        maps = Intertwiners(group) if maps is None else maps
        n = group.size
        self.rep_in, self.rep_out, self.group = rep_in, rep_out, group
        self.in_features, self.out_features = rep_in.size(n), rep_out.size(n)
        like = torch.empty(0, device=device, dtype=dtype)
        self.change = 0.0
        self._blocks: list[tuple[int, int]] = []
        self.weights = nn.ParameterDict()
        self.biases = nn.ParameterDict()
        for o, (count, *out) in enumerate(rep_out.parts):
            found = [maps.between((p, q), (out[0], out[1])) for _, p, q in rep_in.parts]
            constant = maps.between((0, 0), (out[0], out[1])) if bias else None
            inputs = sum(c * len(f.basis) for (c, _, _), f in zip(rep_in.parts, found, strict=True))
            if not inputs and (constant is None or not len(constant.basis)):
                kind = TensorType(((1, out[0], out[1]),))
                raise InputError(
                    f"no linear map takes {rep_in} to {kind} under {group}; take products of inputs first."
                )
            scale = math.sqrt(n ** sum(out) / max(inputs, 1))
            for i, f in enumerate(found):
                if len(f.basis):
                    shape = (count, rep_in.parts[i][0], len(f.basis))
                    drawn = torch.randn(shape, generator=generator) * scale
                    self.weights[f"{o}_{i}"] = nn.Parameter(drawn.to(like))
                    # Kept with the weights, which mean nothing in another basis of the same maps.
                    self.register_buffer(f"basis_{o}_{i}", f.basis.to(like))
                    self._blocks.append((o, i))
                    self.change = max(self.change, f.change)
            if constant is not None and len(constant.basis):
                self.biases[str(o)] = nn.Parameter(like.new_zeros(count, len(constant.basis)))
                self.register_buffer(f"constant_{o}", constant.basis[:, :, 0].to(like))

    @property
    def weight(self) -> Tensor:
        """The matrix as `Linear` holds it, `(out_features, in_features)`."""
        n = self.group.size
        rows, columns = self.rep_out.offsets(n), self.rep_in.offsets(n)
        some = next(iter(self.buffers()))
        total = some.new_zeros(self.out_features, self.in_features)
        for o, i in self._blocks:
            part = torch.einsum("oid,dxy->oxiy", self.weights[f"{o}_{i}"], self.get_buffer(f"basis_{o}_{i}"))
            block = part.flatten(2, 3).flatten(0, 1)
            place = (rows[o], columns[i])
            total = total + functional.pad(
                block,
                (place[1], self.in_features - place[1] - block.shape[1], place[0],
                 self.out_features - place[0] - block.shape[0]),
            )  # fmt: skip
        return total

    @property
    def bias(self) -> Tensor | None:
        """The bias as `Linear` holds it, `(out_features,)`; `None` where the group leaves nothing alone."""
        if not len(self.biases):
            return None
        parts = []
        for o, (count, p, q) in enumerate(self.rep_out.parts):
            size = count * self.group.size ** (p + q)
            if str(o) in self.biases:
                parts.append((self.biases[str(o)] @ self.get_buffer(f"constant_{o}")).flatten())
            else:
                parts.append(next(iter(self.buffers())).new_zeros(size))
        return torch.cat(parts)

    def forward(self, x: Tensor) -> Tensor:
        """Maps features `(*, in_features)` to `(*, out_features)`."""
        return functional.linear(x, self.weight, self.bias)

    def export(self) -> nn.Linear:
        """The same map as a plain `Linear`."""
        weight, bias = self.weight.detach(), self.bias
        plain = nn.utils.skip_init(
            nn.Linear, self.in_features, self.out_features, bias is not None, device=weight.device, dtype=weight.dtype
        )
        with torch.no_grad():
            plain.weight.copy_(weight)
            if bias is not None:
                plain.bias.copy_(bias)
        assert isinstance(plain, nn.Linear)
        return plain.train(self.training)

    def extra_repr(self) -> str:
        free = sum(w.numel() for w in self.weights.values())
        return f"{self.rep_in} -> {self.rep_out}, group={self.group.name}, {free} of {self.weight.numel()} weights"


class Gate(nn.Module):
    """Scalars pass through a nonlinearity; every other tensor is multiplied by a sigmoid of a scalar of its own.

    Arguments:
        rep: What goes out. `rep_in` is what must come in: the same, and one more scalar for each tensor to be gated.
        group: The group.
        activation: The nonlinearity of the scalars, `SiLU` by default.

    Example:
        >>> from atlasd.algebra import known
        >>> from atlasd.nn.tensor_types import vector
        >>> gate = Gate(4 * scalar() + 2 * vector(), known.special_orthogonal(3))
        >>> gate.rep_in, gate(torch.ones(5, 12)).shape
        (4 T(0) + 2 T(1) + 2 T(0), torch.Size([5, 10]))
    """

    def __init__(self, rep: TensorType, group: Group, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.rep, self.size = rep, group.size
        self.activation = nn.SiLU() if activation is None else activation
        gates = sum(c for c, p, q in rep.parts if p + q)
        self.rep_in = rep + gates * scalar() if gates else rep

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(*, size of rep_in)` to `(*, size of rep)`."""
        own = self.rep.size(self.size)
        gates = torch.sigmoid(x[..., own:])
        out, start, used = [], 0, 0
        for count, p, q in self.rep.parts:
            width = count * self.size ** (p + q)
            part = x[..., start : start + width]
            if p + q:
                gate = gates[..., used : used + count, None]
                part = (part.unflatten(-1, (count, -1)) * gate).flatten(-2)
                used += count
            else:
                part = self.activation(part)
            out.append(part)
            start += width
        return torch.cat(out, -1)
