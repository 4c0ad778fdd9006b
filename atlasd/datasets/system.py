"""A system of the zoo: data, the map behind them, and the algebra that a discovery should find."""

from __future__ import annotations

__all__ = ["Function", "Sampler", "System"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

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
        kind: `vector` for inputs `(N, n)` or `(N, P, n)`, `field` for inputs `(N, C, H, W)`.
        truth: The largest algebra that is a symmetry *and testable*; dimension 0 for negatives.
        sample: Draws inputs, given their number and a generator.
        function: The exact map, differentiable, in the dtype of its input; `None` where labels have none.
        labels: Draws labels for inputs, where they are not `function` of them.
        atlas: Charts of a field; `None` for vectors.
        action: How matrices act; `None` is the default for the kind, with invariant outputs.
        strength: Size of the term that breaks the symmetry, relative to the symmetric part; 0 for none.
        oracle: Whether asking the exact map makes sense.
        fitted: Whether asking a predictor fitted to `data` makes sense.
        note: What is special about it.

    Example:
        >>> norm = System(
        ...     name="norm",
        ...     kind="vector",
        ...     truth=LieAlgebra(torch.tensor([[[0.0, -1.0], [1.0, 0.0]]])),
        ...     sample=lambda samples, generator: torch.randn(samples, 2, generator=generator),
        ...     function=lambda x: x.norm(dim=-1),
        ... )
        >>> x, y = norm.data(5, torch.Generator().manual_seed(0))
        >>> x.shape, y.shape, norm.positive
        (torch.Size([5, 2]), torch.Size([5]), True)
    """

    name: str
    kind: Literal["vector", "field"]
    truth: LieAlgebra
    sample: Sampler
    function: Function | None
    labels: Callable[[Tensor, torch.Generator], Tensor] | None = None
    atlas: Atlas | None = None
    action: Action | None = None
    strength: float = 0.0
    oracle: bool = True
    fitted: bool = True
    note: str = ""

    def __post_init__(self) -> None:
        if self.function is None and (self.labels is None or self.oracle):
            raise InputError(
                f"`function` must be given for {self.name!r}, got None; without it give `labels` and oracle=False."
            )
        if (self.kind == "field") != (self.atlas is not None):
            raise InputError(f"`atlas` must be given for fields and only for them, got {self.atlas} in {self.name!r}.")

    @property
    def positive(self) -> bool:
        """Whether there is a symmetry to be found."""
        return self.truth.dimension > 0

    @property
    def size(self) -> int:
        """The size n of the matrices."""
        return self.truth.size

    def data(self, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Inputs and labels, each with `samples` entries."""
        x = self.sample(samples, generator)
        if self.labels is not None:
            return x, self.labels(x, generator)
        assert self.function is not None
        return x, self.function(x)
