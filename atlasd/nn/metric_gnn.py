r"""Message passing on sets of vectors, invariant to the isometries of any metric, symmetric or antisymmetric."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init
from torch.utils.checkpoint import checkpoint

from atlasd.errors import InputError
from atlasd.nn.groups import GroupLike, as_group
from atlasd.nn.metrics import algebra_metric, check_metric, is_antisymmetric, load_metric
from atlasd.runtime.random import stream

_LARGE = 2**26
"""Numbers in one layer's messages above which they are computed again in the backward pass, not kept."""


class MetricGNN(nn.Module):
    r"""Classifies sets of vectors by their norms and inner products in a given metric J.

    Layer by layer, with :math:`\psi(z) = \mathrm{sgn}(z) \log(|z| + 1)` and h starting from :math:`\psi(x_i^T J x_i)`:

    .. math::
        m_{ij} &= \phi_e(h_i, h_j, \psi(\|x_i - x_j\|_J^2), \psi(\langle x_i, x_j \rangle_J)) \\
        x_i' &= x_i + c \textstyle\sum_j \phi_x(m_{ij}) x_j \\
        h_i' &= h_i + \phi_h(h_i, \textstyle\sum_j \phi_m(m_{ij}) m_{ij})

    and two perceptron layers on the mean of h. With the metric of Minkowski this is LorentzNet (Gong et al., 2022);
    whatever the metric, the outputs do not change under its isometries, nor when the vectors change places. Vectors and
    their products are kept in double precision: products of long vectors are small differences of large numbers.

    Arguments:
        metric: Symmetric or antisymmetric form, with shape `(n, n)`; its size does not matter. An antisymmetric one has
            no norms and distances: h starts from the product with the sum of all vectors, and messages see products.
            `None` for no metric: then :math:`\phi_e` sees the components of both vectors, and nothing is invariant but
            the order.
        relative: Messages see only distances, and vectors move along differences :math:`x_i - x_j` (EGNN,
            Satorras et al., 2021).
        size: Size n of the vectors, where there is no metric to tell it.
        hidden: Width of h and of the messages.
        layers: Number of layers.
        outputs: Number of classes.
        dropout: Share of hidden units that are left out before the last layer while training.
        step: The factor c.
        node_features: Numbers that are given for each vector besides, such as a charge.
        pair_features: Numbers that are given for each pair of vectors besides.
        positions: Number of places, if the order of the vectors matters; 0 if it does not.
        vectors: Number of vectors that go out besides, in the precision of the inputs: sums of them by weights that
            depend on h.
        generator: Source of the initial weights and of dropout.

    Example:
        >>> network = MetricGNN(minkowski(), hidden=8, layers=2).eval()
        >>> jets = torch.rand(5, 10, 4, generator=torch.Generator().manual_seed(0))
        >>> parity = torch.tensor([1.0, -1.0, -1.0, -1.0])
        >>> bool(torch.allclose(network(jets), network(parity * jets), atol=1e-6))
        True
    """

    metric: Tensor | None
    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        metric: Tensor | None,
        *,
        relative: bool = False,
        size: int | None = None,
        hidden: int = 72,
        layers: int = 6,
        outputs: int = 2,
        dropout: float = 0.2,
        step: float = 1e-3,
        node_features: int = 0,
        pair_features: int = 0,
        positions: int = 0,
        vectors: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("hidden", hidden), ("layers", layers), ("outputs", outputs)):
            if value < 1:
                raise InputError(f"`{name}` must be at least 1, got {value}; the paper has 72, 6 and 2.")
        if not 0 <= dropout < 1:
            raise InputError(f"`dropout` must be at least 0 and below 1, got {dropout}; the paper has 0.2.")
        if metric is None and (size is None or relative):
            raise InputError("`metric` must be a form (n, n) for distances, got none; without a metric give `size`.")
        form = None if metric is None else check_metric(metric)
        if form is not None and size not in (None, len(form)):
            raise InputError(f"`size` must be that of the metric, {len(form)}, got {size}; leave it out.")
        generator = stream(0, "metric_gnn") if generator is None else generator
        self.size = int(size or 0) if form is None else len(form)
        self.relative, self.step, self.dropout = relative, step, dropout
        self._generator = generator
        self.register_buffer("metric", form)
        self.antisymmetric = form is not None and is_antisymmetric(form)
        if self.antisymmetric and relative:
            raise InputError(
                "`metric` must be symmetric for distances, got an antisymmetric one; leave out `relative`."
            )
        self.node_features, self.pair_features, self.positions = node_features, pair_features, positions
        # Scalars of one vector, and of a pair: these are put in units of their own spread, see `standardise`.
        scalars, pairs = (1, 1 if relative or self.antisymmetric else 2) if form is not None else (self.size, 0)
        self.register_buffer("shift", torch.zeros(scalars + pairs))
        self.register_buffer("scale", torch.ones(scalars + pairs))
        self.scalars = scalars
        self.embed = _linear(scalars + node_features + positions, hidden, generator)
        own = 0 if form is not None else scalars
        self.blocks = nn.ModuleList(
            _Block(hidden, own, pairs + pair_features, moves=layer < layers - 1, generator=generator)
            for layer in range(layers)
        )
        self.vectors = _linear(hidden, vectors, generator) if vectors else None
        self.head = _linear(hidden, hidden, generator)
        self.last = _linear(hidden, outputs, generator)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        nodes: Tensor | None = None,
        pairs: Tensor | None = None,
        edges: Tensor | None = None,
    ) -> Any:
        """Logits `(B, outputs)`; with `vectors`, these and vectors `(B, vectors, n)`.

        Arguments:
            x: Vectors, with shape `(B, P, n)`; padding may be anything finite.
            mask: True where there is a vector, with shape `(B, P)`; by default where it is not zero.
            nodes: Features of the vectors, with shape `(B, P, node_features)`.
            pairs: Features of the pairs, with shape `(B, P, P, pair_features)`, receiver first.
            edges: Which pairs exchange messages: a list of (set, receiver, sender) with shape `(E, 3)`; all by default.
        """
        x, mask = self._checked(x, mask)
        shape = x.shape[:2]
        nodes = self._given(nodes, (*shape, self.node_features), "nodes")
        pairs = self._given(pairs, (*shape, shape[1], self.pair_features), "pairs")
        kind, x = x.dtype, x.double()
        if edges is None and not torch.compiler.is_compiling():  # a program has one length for all sets
            length = int(mask.any(0).nonzero().max()) + 1
            x, mask, nodes, pairs = x[:, :length], mask[:, :length], nodes[:, :length], pairs[:, :length, :length]
        present = mask.to(nodes).unsqueeze(-1)
        x = x * present
        linked = None if edges is None else self._links(edges, x)
        h = self.embed(torch.cat([self._nodes(x), nodes, self._places(x).to(nodes)], -1))
        kept = torch.is_grad_enabled() and not torch.compiler.is_compiling()  # a program must not depend on the batch
        for block in self.blocks:
            if kept and x.shape[0] * x.shape[1] ** 2 * h.shape[-1] > _LARGE:
                moved = checkpoint(
                    self._layer, block, x, h, present, pairs, linked, use_reentrant=False, preserve_rng_state=False
                )
                assert moved is not None
                x, h = moved
            else:
                x, h = self._layer(block, x, h, present, pairs, linked)
        pooled = (h * present).sum(1) / present.sum(1)
        logits = self.last(self._dropped(self.head(pooled).relu()))
        if self.vectors is None:
            return logits
        weights = self.vectors(h) * present
        return logits, torch.einsum("bpk,bpn->bkn", weights.double(), x).to(kind)

    def standardise(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Takes the units of the scalars from some vectors `(B, P, n)`. Scalars do not move: no symmetry breaks."""
        x, mask = self._checked(x, mask)
        self.shift.zero_()
        self.scale.fill_(1.0)
        with torch.no_grad():
            kinds = [self._nodes(x)[mask]]
            pairs = self._pairs(x)
            if pairs is not None:
                kinds.append(pairs[mask.unsqueeze(1) & mask.unsqueeze(2)])
            self.shift.copy_(torch.cat([k.double().mean(0) for k in kinds]))
            self.scale.copy_(torch.cat([k.double().std(0, correction=0) for k in kinds]).clamp_min(1e-6))

    @property
    def parameter_count(self) -> int:
        """Number of trained parameters."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def _layer(
        self,
        block: nn.Module,
        x: Tensor,
        h: Tensor,
        present: Tensor,
        given: Tensor | None = None,
        linked: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(block, _Block)
        inside = h if self.metric is not None else torch.cat([h, self._nodes(x)], -1)
        pairs = self._pairs(x)
        if self.pair_features and given is not None:
            pairs = given if pairs is None else torch.cat([pairs, given], -1)
        change, weights = block(h, inside, pairs, present, linked)
        if weights is not None:
            weights = weights.to(x)
            move = weights @ x
            if self.relative:
                move = weights.sum(2, keepdim=True) * x - move
            x = x + self.step * move
        return x, h + change

    def _nodes(self, x: Tensor) -> Tensor:
        """Scalars of each vector: its norm, its product with the sum, or its components where there is no metric."""
        k = self.scalars
        if self.metric is None:
            own = x
        else:
            other = x.sum(1, keepdim=True) if self.antisymmetric else x
            own = _psi(((x.double() @ self.metric.double()) * other.double()).sum(-1, keepdim=True))
        return ((own - self.shift[:k]) / self.scale[:k]).to(self.last.weight)

    def _pairs(self, x: Tensor) -> Tensor | None:
        """Scalars of each pair, with shape `(B, P, P, 1 or 2)`."""
        if self.metric is None:
            return None
        x = x.double()
        product = (x @ self.metric.double()) @ x.mT
        if self.antisymmetric:
            both = product.unsqueeze(-1)
        else:
            norm = product.diagonal(dim1=1, dim2=2)
            distance = norm.unsqueeze(1) + norm.unsqueeze(2) - 2 * product
            both = distance.unsqueeze(-1) if self.relative else torch.stack([distance, product], -1)
        return ((_psi(both) - self.shift[self.scalars :]) / self.scale[self.scalars :]).to(self.last.weight)

    def _places(self, x: Tensor) -> Tensor:
        """One-hot positions `(B, P, positions)`."""
        if self.positions and x.shape[1] > self.positions:
            raise InputError(f"`x` must have at most {self.positions} vectors, got {x.shape[1]}; raise `positions`.")
        return torch.eye(x.shape[1], self.positions, device=x.device).expand(x.shape[0], -1, -1)

    def _given(self, features: Tensor | None, shape: tuple[int, ...], name: str) -> Tensor:
        like = self.last.weight
        if features is None and not shape[-1]:
            return torch.zeros(shape, dtype=like.dtype, device=like.device)
        if features is None or tuple(features.shape) != shape:
            got = None if features is None else tuple(features.shape)
            raise InputError(f"`{name}` must have shape {shape}, got {got}; see `node_features` and `pair_features`.")
        return features.to(like)

    @staticmethod
    def _links(edges: Tensor, x: Tensor) -> Tensor:
        """Where messages pass, with shape `(B, P, P)`."""
        if edges.ndim != 2 or edges.shape[1] != 3 or edges.is_floating_point():
            raise InputError(
                f"`edges` must be integers (set, receiver, sender) with shape (E, 3), got {tuple(edges.shape)}; "
                "stack them along the first axis."
            )
        shape = (x.shape[0], x.shape[1], x.shape[1])
        if not torch.compiler.is_compiling() and bool((edges < 0).any() or (edges >= edges.new_tensor(shape)).any()):
            raise InputError(
                f"`edges` must name sets below {shape[0]} and vectors below {shape[1]}, got numbers up to "
                f"{edges.amax(0).tolist()} and down to {int(edges.min())}; count from 0."
            )
        linked = torch.zeros(shape, dtype=torch.bool, device=x.device)
        linked[edges[:, 0], edges[:, 1], edges[:, 2]] = True
        return linked

    def _dropped(self, z: Tensor) -> Tensor:
        if not self.training or not self.dropout:
            return z
        kept = torch.rand(z.shape, generator=self._generator) >= self.dropout
        return z * kept.to(z) / (1 - self.dropout)

    def _checked(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if x.ndim != 3 or x.shape[-1] != self.size or not x.shape[0] or not x.shape[1]:
            raise InputError(
                f"`x` must have shape (B, P, {self.size}), got {tuple(x.shape)}; pad sets with zeros to one length."
            )
        if mask is None:
            mask = (x != 0).any(-1)
        elif mask.shape != x.shape[:2] or mask.dtype != torch.bool:
            raise InputError(
                f"`mask` must be bool with shape {tuple(x.shape[:2])}, got {mask.dtype} with {tuple(mask.shape)}; "
                "write True where there is a vector."
            )
        if torch.compiler.is_compiling():
            return x, mask
        empty = ~mask.any(1)
        if bool(empty.any()):
            raise InputError(
                f"every set in `x` must have a vector, got {int(empty.sum())} without one; leave them out."
            )
        return x, mask


class _Block(nn.Module):
    """One layer. The first map of phi_e is applied to h before pairs are formed: P maps in place of P * P."""

    def __init__(self, hidden: int, own: int, pairs: int, *, moves: bool, generator: torch.Generator) -> None:
        super().__init__()
        fan = 2 * (hidden + own) + pairs
        self.receive = _linear(hidden + own, hidden, generator, fan=fan)
        self.send = _linear(hidden + own, hidden, generator, fan=fan, bias=False)
        self.pair = _linear(pairs, hidden, generator, fan=fan, bias=False) if pairs else None
        self.mix = _linear(hidden, hidden, generator)
        self.gate = _linear(hidden, 1, generator)
        self.move = _linear(hidden, hidden, generator) if moves else None
        self.along = _linear(hidden, 1, generator) if moves else None
        self.update = _linear(2 * hidden, hidden, generator)
        self.norm = nn.LayerNorm(hidden)
        self.out = _linear(hidden, hidden, generator)

    def forward(
        self, h: Tensor, inside: Tensor, pairs: Tensor | None, present: Tensor, linked: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Change of h `(B, P, H)`, and the weights `(B, P, P)` by which vectors move."""
        # The time goes into moving tensors of this size: flat, so that ReLU may work in place without a copy.
        first = self.receive(inside).unsqueeze(2) + self.send(inside).unsqueeze(1)
        if pairs is not None and self.pair is not None:
            first = first + self.pair(pairs)
        shape, here = first.shape, present.mT  # here (B, 1, P): vectors that are not there send nothing
        here = here if linked is None else here * linked
        message = self.mix(first.relu_().flatten(0, 2)).relu_()
        weight = torch.sigmoid(self.gate(message)).reshape(shape[:3]) * here
        gathered = (weight.unsqueeze(-1) * message.reshape(shape)).sum(2)
        change = self.out(self.norm(self.update(torch.cat([h, gathered], -1))).relu())
        if self.move is None or self.along is None:
            return change, None
        return change, self.along(self.move(message).relu_()).reshape(shape[:3]) * here


class AtlasGNN(MetricGNN):
    """A `MetricGNN` with the metric that a discovered algebra preserves; options as there.

    Arguments:
        algebra: An algebra, a group or a discovery; it must preserve one form, and that must not be degenerate.
        conformal: Whether to bear with scalings, which preserve a form up to a factor only: the network is then
            invariant to the rest.
        within: Entries of the metric that are this near to 0, 1 or -1 are taken for it, see `Metric.rounded`; 0 takes
            the metric as it was found.
    """

    def __init__(self, algebra: GroupLike, *, within: float = 0.0, conformal: bool = False, **options: Any) -> None:
        super().__init__(algebra_metric(as_group(algebra).algebra, conformal=conformal).rounded(within), **options)


class LorentzNet(MetricGNN):
    """A `MetricGNN` with the metric of Minkowski; options as there."""

    def __init__(self, **options: Any) -> None:
        super().__init__(minkowski(), **options)


class LieGNN(MetricGNN):
    """A `MetricGNN` with the metric kept in a file or a run directory; options as there.

    Arguments:
        path: What `load_metric` reads.
    """

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(load_metric(path), **options)


class LorentzNetWithoutMetric(MetricGNN):
    """The same network on the components of the vectors, with no metric; options as in `MetricGNN`."""

    def __init__(self, size: int = 4, **options: Any) -> None:
        super().__init__(None, size=size, **options)


class EGNN(MetricGNN):
    """Distances and differences in the Euclidean metric: invariant to O(n); options as in `MetricGNN`."""

    def __init__(self, size: int = 4, **options: Any) -> None:
        super().__init__(torch.eye(size), relative=True, **options)


def minkowski() -> Tensor:
    """The metric diag(-1, 1, 1, 1)."""
    return torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0]))


def _psi(z: Tensor) -> Tensor:
    return z.sign() * z.abs().log1p()


def _linear(
    inputs: int, outputs: int, generator: torch.Generator, *, fan: int | None = None, bias: bool = True
) -> nn.Linear:
    """A linear layer with weights from an explicit generator: torch's own would use the global seed."""
    layer = skip_init(nn.Linear, inputs, outputs, bias=bias)
    bound = 1 / math.sqrt(fan or inputs)
    with torch.no_grad():
        for parameter in layer.parameters():
            drawn = torch.rand(parameter.shape, generator=generator) * 2 - 1
            parameter.copy_(drawn * bound * (math.sqrt(3.0) if parameter.ndim == 2 else 1.0))
    assert isinstance(layer, nn.Linear)
    return layer
