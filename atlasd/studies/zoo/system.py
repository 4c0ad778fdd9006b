"""A system of the zoo: data, the map behind them, the algebra that a discovery should find, and its components."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.known import trivial
from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError
from atlasd.geometry.actions import Action
from atlasd.geometry.atlas import Atlas

Function: TypeAlias = Callable[[Tensor], Tensor]
Sampler: TypeAlias = Callable[[int, torch.Generator], Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class System:
    """A prediction problem with a known answer.

    Arguments:
        name: Unique in the zoo.
        sample: Draws inputs, given their number and a generator.
        function: The exact map, differentiable, in the dtype of its input; `None` where labels have none.
        labels: Draws labels for inputs, where they are not `function` of them.
        atlas: Charts of a field; `None` for vectors.
        action: How matrices act; `None` is the default for the kind, with invariant outputs.
        components: One element per component of the true group, `(m, n, n)`, the identity first; left out, there is
            no other component.
        unreached: Indices of components that lead away from all data and need not be found.
        probe: Draws the inputs on which claims are checked against the exact map; `sample` by default. Fields to
            probe are larger than those to learn from, so that transformed windows stay inside.
        strength: Size of the term that breaks the symmetry, relative to the symmetric part; 0 for none.
        samples: Number of samples to learn from; that of the zoo by default.
        noise: Noise in the labels, relative to the spread of each output.
        angle: Degrees by which a found direction may be off.
        undivided: Whether it is false to claim single elements of a continuous group in place of the group.
        oracle: Whether asking the exact map makes sense.
        fitted: Whether asking a predictor fitted to `data` makes sense.
        note: What is special about it.

    Example:
        >>> norm = System(
        ...     name="norm",
        ...     truth=LieAlgebra(torch.tensor([[[0.0, -1.0], [1.0, 0.0]]])),
        ...     sample=lambda samples, generator: torch.randn(samples, 2, generator=generator),
        ...     function=lambda x: x.norm(dim=-1),
        ... )
        >>> x, y = norm.data(5, torch.Generator().manual_seed(0))
        >>> x.shape, y.shape, norm.positive
        (torch.Size([5, 2]), torch.Size([5]), True)
    """

    name: str
    truth: LieAlgebra
    sample: Sampler
    function: Function | None
    labels: Callable[[Tensor, torch.Generator], Tensor] | None = None
    atlas: Atlas | None = None
    action: Action | None = None
    components: Tensor | None = None
    unreached: tuple[int, ...] = ()
    probe: Sampler | None = None
    strength: float = 0.0
    samples: int | None = None
    noise: float = 0.0
    angle: float = 10.0
    undivided: bool = False
    oracle: bool = True
    fitted: bool = True
    note: str = ""

    def __post_init__(self) -> None:
        if self.function is None and (self.labels is None or self.oracle):
            raise InputError(
                f"`function` must be given for {self.name!r}, got None; without it give `labels` and oracle=False."
            )
        if self.components is None:
            object.__setattr__(self, "components", alone(self.size))

    @property
    def kind(self) -> Literal["vector", "field"]:
        """`vector` for inputs `(N, n)` or `(N, P, n)`, `field` for inputs `(N, C, H, W)`."""
        return "vector" if self.atlas is None else "field"

    @property
    def elements(self) -> Tensor:
        """One element per component of the true group, with shape `(m, n, n)`."""
        assert self.components is not None
        return self.components

    @property
    def group(self) -> Group:
        """The true group."""
        return Group(self.truth, self.elements)

    def without_group(self, **changes: Any) -> System:
        """A variant that has no symmetry left, with other changes."""
        return replace(self, **{"truth": trivial(self.size), "components": None, "unreached": (), **changes})

    @property
    def positive(self) -> bool:
        """Whether there is a symmetry to be found."""
        return self.truth.dimension > 0

    @property
    def size(self) -> int:
        """The size n of the matrices."""
        return self.truth.size

    def data(self, samples: int, generator: torch.Generator, *, noise: float = 0.0) -> tuple[Tensor, Tensor]:
        """Inputs and labels, each with `samples` entries.

        Arguments:
            noise: Noise in the labels beside that of the system, relative to the spread of each output.
        """
        x = self.sample(samples, generator)
        if self.labels is not None:
            y = self.labels(x, generator)
        else:
            assert self.function is not None
            y = self.function(x)
        size = math.hypot(self.noise, noise)
        if not size or not y.is_floating_point():
            return x, y
        # Fields have one spread per channel, vectors one per output.
        spread = y.std((0, *range(2, y.ndim)), keepdim=True)
        return x, y + size * spread * torch.randn(y.shape, generator=generator, dtype=y.dtype)


def vector_system(
    name: str, truth: LieAlgebra, function: Function, sample: Sampler, parts: str = "", note: str = "", **more: Any
) -> System:
    """A system with an exact map; `parts` are the signs of diagonal matrices, one for every component."""
    if parts:
        more["components"] = signs(*parts.split())
    return System(name=name, truth=truth, function=function, sample=sample, note=note, **more)


def normal(*shape: int, frame: Tensor | None = None) -> Sampler:
    """Draws normal vectors `(N, *shape)`, in another basis where a frame `(n, n)` is given."""

    def sample(samples: int, generator: torch.Generator) -> Tensor:
        z = torch.randn(samples, *shape, generator=generator)
        return z if frame is None else (z.double() @ frame.mT).float()

    return sample


def framed(function: Function, frame: Tensor) -> Function:
    """The function of vectors in another basis: `function(frame^-1 x)`."""
    inverse = torch.linalg.inv(frame)
    return lambda x: function((x.double() @ inverse.mT).to(x))


def log_norm(x: Tensor) -> Tensor:
    """A smooth function of the norm of vectors `(*, n)`."""
    return x.square().sum(-1).log1p()


def alone(n: int) -> Tensor:
    """The identity as the only component, with shape `(1, n, n)`."""
    return torch.eye(n, dtype=torch.float64)[None]


def signs(*rows: str) -> Tensor:
    """Diagonal matrices of signs, with shape `(m, n, n)`.

    Example:
        >>> signs("++", "+-")[1].tolist()
        [[1.0, 0.0], [0.0, -1.0]]
    """
    return torch.tensor([[1.0 if c == "+" else -1.0 for c in row] for row in rows], dtype=torch.float64).diag_embed()


def signed_permutations() -> Tensor:
    """Permutations of three coordinates with an even number of signs, with shape `(24, 3, 3)`."""
    orders = torch.eye(3, dtype=torch.float64)[torch.tensor(list(permutations(range(3))))]
    return (orders[:, None] @ signs("+++", "+--", "-+-", "--+")).flatten(0, 1)


def conjugated(components: Tensor, frame: Tensor) -> Tensor:
    """The components `(m, n, n)` in another basis, `frame c frame^-1`."""
    moved = frame @ components @ torch.linalg.inv(frame)
    return torch.cat([alone(len(frame)), moved[1:]])
