"""From the chosen variables of a file to inputs and targets; channels that are components of one vector."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from atlasd.data.cleaning import as_floats, as_targets, clean, standardise
from atlasd.data.files import Variable
from atlasd.data.samples import LARGEST, ONE_LABEL, is_solid
from atlasd.data.sources import Arrangement, arrange
from atlasd.data.variables import Choice
from atlasd.errors import InputError


@dataclass(frozen=True)
class Mixing:
    """The representation of 2 x 2 matrices on channels some of which are components of vectors.

    Arguments:
        pairs: Channels `(along the columns, along the rows)` of each vector, such as (eastward, northward).
        rows_up: Whether the row component points to growing row numbers.

    Example:
        >>> rotation = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> Mixing(3, ((0, 1),))(rotation).int().tolist()
        [[0, 1, 0], [-1, 0, 0], [0, 0, 1]]
    """

    channels: int
    pairs: tuple[tuple[int, int], ...]
    rows_up: bool = True

    def __call__(self, g: Tensor) -> Tensor:
        """Matrices `(*, 2, 2)` to `(*, c, c)`."""
        fixed = torch.eye(self.channels, dtype=g.dtype)
        parts = torch.zeros(self.channels, self.channels, dtype=g.dtype)
        for column, row in self.pairs:
            fixed[column, column] = fixed[row, row] = 0.0
            place = torch.zeros(self.channels, 2, dtype=g.dtype)
            place[row, 0] = 1.0 if self.rows_up else -1.0
            place[column, 1] = 1.0
            parts = parts + place @ g @ place.mT
        return fixed + parts


def find_pairs(names: Sequence[str], asked: str) -> tuple[tuple[int, int], ...]:
    """Pairs of channels that are components of one vector.

    Arguments:
        asked: `auto` to go by names (u and v, vx and vy), `none`, or pairs such as `u,v;bx,by`.
    """
    position = {n: k for k, n in enumerate(names)}
    if asked == "none":
        return ()
    if asked != "auto":
        pairs = []
        for part in asked.split(";"):
            pair = tuple(n.strip() for n in part.split(","))
            if len(pair) != 2 or not all(pair):
                raise InputError(f"--vectors must be auto, none or pairs such as 'u,v', got {asked!r}.")
            if any(n in position for n in pair) and not all(n in position for n in pair):
                raise InputError(f"--vectors must name both components on one side, got {part!r} and {list(names)}.")
            if all(n in position for n in pair):
                pairs.append((position[pair[0]], position[pair[1]]))
        return tuple(pairs)
    lower = {n.lower(): k for n, k in position.items()}
    found = []
    for name, k in lower.items():
        for pattern, other in ((r"u(\d*|_.*|a|as|wnd|\d+m)", "v"), (r"(.*)x", None)):
            match = re.fullmatch(pattern, name)
            if match:
                partner = "v" + name[1:] if other else name[:-1] + "y"
                if partner in lower and partner != name and (other or match[1]):
                    found.append((k, lower[partner]))
                    break
    return tuple(found)


Task: TypeAlias = Literal["auto", "values", "classes"]
FIELD_SAMPLES, VECTOR_SAMPLES = 1000, 30_000
_BUDGET = 1 << 30
MINIMUM = 20
_MOST_COMPONENTS = 64
"""Of vectors: the search solves for all n x n matrices, with a system of n^4 numbers."""
_ENDINGS = {2: "nd", 3: "rd"}


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """What to do about missing values, copies and too many samples.

    Arguments:
        nan: `refuse` missing values, or `mask` them: leave out pixels where they are the rule, and the samples that
            have others. `auto` leaves out the rows of a table that have gaps, and refuses elsewhere.
        duplicates: `refuse` when more than one in a hundred samples is a copy, or `drop` copies.
        task: Whether the target holds `values` or `classes`; `auto` takes few integers for classes.
        samples: The most samples to use; 0 for a default that suits the kind of data.
        ahead: The target lies that many samples after the input.
    """

    nan: Literal["auto", "refuse", "mask"] = "auto"
    duplicates: Literal["refuse", "drop"] = "refuse"
    task: Task = "auto"
    samples: int = 0
    ahead: int = 0


@dataclass(frozen=True, eq=False)
class OwnData:
    """Inputs and targets, ready for `discover`.

    Arguments:
        x: Fields `(N, C, *S)`, vectors `(N, n)` or sets `(N, P, n)`.
        inputs: Names of the input channels, where each has one.
        targets: Names of the target channels, where each has one.
        rows_up: Whether the coordinate of the rows grows with their index, as it does not where north comes first;
            `None` where the file has no coordinates.
        masked: Pixels that are missing, with the spatial shape; `None` if there are none.
        notes: What was done that the user should know.
    """

    x: Tensor
    y: Tensor
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    rows_up: bool | None = None
    masked: np.ndarray | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def is_field(self) -> bool:
        """Whether inputs are fields on a grid."""
        return self.x.ndim >= 4

    @property
    def classes(self) -> bool:
        """Whether targets are classes."""
        return not self.y.is_floating_point()


def read_own(choice: Choice, cleaning: Cleaning) -> OwnData:
    """Checks shapes before anything is read, reads no more than is used, and checks the values."""
    x_layouts = [_layout(v, choice.targets[0], choice) for v in choice.inputs]
    is_field = bool(x_layouts[0].space)
    _check_components(choice, x_layouts)
    y_layouts = [_target_layout(v, choice.inputs[0], x_layouts[0]) for v in choice.targets]
    total = _agree(choice.inputs, x_layouts, "inputs")
    targets = _agree(choice.targets, y_layouts, "targets")
    if total != targets:
        raise InputError(
            f"input and target must have as many samples, got {total} in {choice.inputs[0]} and {targets} in "
            f"{choice.targets[0]}."
        )
    usable = total - cleaning.ahead
    if usable < MINIMUM:
        late = f" of which --ahead {cleaning.ahead} leaves {max(usable, 0)}" if cleaning.ahead else ""
        raise InputError(f"the data must have at least {MINIMUM} samples, got {total}{late}; give more data.")
    _check_grids(choice, x_layouts, y_layouts)
    step = _stride(choice, x_layouts[0], usable, is_field, cleaning.samples)
    x = _stack(choice.inputs, x_layouts, slice(0, _along(choice.inputs[0], x_layouts[0]) - cleaning.ahead, step))
    y = _stack(choice.targets, y_layouts, slice(cleaning.ahead, None, step))
    notes = [f"every {step}{_ENDINGS.get(step, 'th')} of {usable} samples is used"] if step > 1 else []
    if choice.table:
        x = x.reshape(len(x), *([len(choice.tokens)] if choice.tokens else []), -1)
    names = choice.inputs[0].name, choice.targets[0].name
    columns = tuple(_columns(variables, side) for variables, side in ((choice.inputs, x), (choice.targets, y)))
    nan = cleaning.nan if cleaning.nan != "auto" else "mask" if choice.table else "refuse"
    x, y, masked, said = clean(x, y, names, nan, cleaning.duplicates, is_field, MINIMUM, (columns[0], columns[1]))
    notes += said
    y, said = as_targets(y, names[1], cleaning.task, is_field)
    notes += said
    first = choice.inputs[0]
    rows_up = first.ascending[x_layouts[0].space[-2]] if is_field and first.ascending else None
    return OwnData(
        x=torch.from_numpy(as_floats(x)),
        y=torch.from_numpy(np.ascontiguousarray(y)),
        inputs=tuple(v.name for v in choice.inputs) if is_field and x.shape[1] == len(choice.inputs) else (),
        targets=tuple(v.name for v in choice.targets) if y.ndim > 1 and y.shape[1] == len(choice.targets) else (),
        rows_up=rows_up,
        masked=masked,
        notes=tuple(notes),
    )


def _columns(variables: Sequence[Variable], array: np.ndarray) -> tuple[str, ...]:
    """Names of the columns of vectors, where every column is a variable of its own."""
    numbers = math.prod(array.shape[1:])
    return tuple(v.name for v in variables) if array.ndim < 4 and len(variables) == numbers else ()


def scaled(data: OwnData, pairs_in: Sequence[tuple[int, int]], pairs_out: Sequence[tuple[int, int]]) -> OwnData:
    """Fields with channels of mean 0 and size 1; the components of a vector keep their mean and share one size."""
    x = standardise(data.x, pairs_in)
    y = data.y if data.classes else standardise(data.y, pairs_out)
    return replace(data, x=x, y=y)


def _layout(variable: Variable, target: Variable, choice: Choice) -> Arrangement:
    """What the axes of an input mean: by their names, or else by their number."""
    shape = variable.shape
    named = arrange(variable.dims, shape) if variable.dims else None
    if named is not None and not (len(shape) == 1 and len(choice.inputs) == 1):
        return named
    if len(shape) == 1 and (len(choice.inputs) > 1 or choice.table or variable.dtype is None):
        return Arrangement((0,), (), ())
    if len(shape) == 2:
        return Arrangement((0,), (1,), ())
    if len(shape) == 3 and len(target.shape) >= 3 and target.shape[-2:] == shape[-2:]:
        return Arrangement((0,), (), (1, 2))
    if len(shape) == 3:
        if min(shape[1:]) > LARGEST:
            raise InputError(
                f"target {target} must be a field on the grid {shape[1:]} of {variable.name}, got one value for each "
                f"image; {ONE_LABEL}. Sets of vectors may have at most {LARGEST} components."
            )
        return Arrangement((0,), (1, 2), ())
    if is_solid(shape, target.shape):
        return Arrangement((0,), (), (1, 2, 3))
    if len(shape) in (4, 5):
        return _positional(shape)
    raise InputError(
        f"input {variable} must have shape (N, n), (N, P, n), (N, H, W), (N, C, H, W) or (N, C, D, H, W), "
        f"got {len(shape)} {'axis' if len(shape) == 1 else 'axes'}; name other variables."
    )


def _positional(shape: tuple[int, ...]) -> Arrangement:
    """Channels first, unless only the last axis is as short as channels are."""
    d = len(shape) - 2
    if shape[-1] <= 4 < 8 < min(shape[1:-1]):
        return Arrangement((0,), (d + 1,), tuple(range(1, d + 1)))
    return Arrangement((0,), (1,), tuple(range(2, d + 2)))


def _target_layout(variable: Variable, first: Variable, x: Arrangement) -> Arrangement:
    shape = variable.shape
    named = arrange(variable.dims, shape) if variable.dims else None
    if x.space:
        grid = tuple(first.shape[a] for a in x.space)
        if named is not None and named.space:
            return named
        if named is None and len(shape) == len(grid) + 1:
            return Arrangement((0,), (), tuple(range(1, len(shape))))
        if named is None and len(shape) == len(grid) + 2:
            return _positional(shape)
        raise InputError(
            f"target {variable} must be a field on the grid {grid} of the input, got {len(shape)} "
            f"{'axis' if len(shape) == 1 else 'axes'}; {ONE_LABEL}."
        )
    if named is not None and not named.space and len(shape) <= 2:
        return named
    if len(shape) in (1, 2):
        return Arrangement((0,), (1,) if len(shape) == 2 else (), ())
    raise InputError(
        f"target {variable} must have shape (N,) or (N, outputs) for vectors, got {len(shape)} axes; "
        f"fields need an input on the same grid, got {first}."
    )


def _check_components(choice: Choice, layouts: Sequence[Arrangement]) -> None:
    """Raises for vectors that no search could transform, before they are read."""
    sizes = [v.shape[p.channels[-1]] if p.channels else 1 for v, p in zip(choice.inputs, layouts, strict=True)]
    found = len(choice.tokens[0]) if choice.tokens else sum(sizes)
    if not layouts[0].space and found > _MOST_COMPONENTS:
        raise InputError(
            f"vectors must have at most {_MOST_COMPONENTS} components, got {found} in {choice.inputs[0]}; name some "
            "of them, or give their principal components."
        )


def _along(variable: Variable, layout: Arrangement) -> int:
    return variable.shape[layout.samples[0]]


def _agree(variables: Sequence[Variable], layouts: Sequence[Arrangement], what: str) -> int:
    """The number of samples, the same in all variables of one side."""
    counts = [math.prod(v.shape[a] for a in p.samples) for v, p in zip(variables, layouts, strict=True)]
    for variable, count in zip(variables, counts, strict=True):
        if count != counts[0]:
            raise InputError(
                f"{what} must have as many samples, got {counts[0]} in {variables[0]} and {count} in {variable}."
            )
    return counts[0]


def _check_grids(choice: Choice, x: Sequence[Arrangement], y: Sequence[Arrangement]) -> None:
    variables = (*choice.inputs, *choice.targets)
    layouts = (*x, *y) if x[0].space else tuple(x)
    grids = [tuple(v.shape[a] for a in p.space) for v, p in zip(variables, layouts, strict=False)]
    for variable, grid in zip(variables, grids, strict=False):
        if grid != grids[0]:
            raise InputError(
                f"all fields must lie on one grid, got {grids[0]} in {variables[0]} and {grid} in {variable}."
            )
        if any(s < 1 for s in variable.shape):
            raise InputError(f"{variable} must not be empty.")


def _stride(choice: Choice, layout: Arrangement, usable: int, is_field: bool, asked: int) -> int:
    """Every how many samples are read."""
    each = 4 * sum(math.prod(v.shape) // max(usable, 1) for v in (*choice.inputs, *choice.targets))
    most = asked or (FIELD_SAMPLES if is_field else VECTOR_SAMPLES)
    most += most // 4  # a few more than asked for are better than half of them
    step = -(-usable // max(min(most, _BUDGET // max(each, 1)), MINIMUM))
    return max(1, min(step, usable // MINIMUM))


def _stack(variables: Sequence[Variable], layouts: Sequence[Arrangement], rows: slice) -> np.ndarray:
    """All variables of one side, as channels of a field or entries of a vector."""
    parts = [p(v.read(rows, p.samples[0])) for v, p in zip(variables, layouts, strict=True)]
    if len(parts) == 1:
        return parts[0]
    if layouts[0].space:
        return np.concatenate(parts, axis=1)
    return np.concatenate([p[:, None] if p.ndim == 1 else p for p in parts], axis=-1)
