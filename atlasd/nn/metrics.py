"""Metrics to build networks on: checked, and read from files and run directories."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.invariants import Metric, metric
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.result import load
from atlasd.errors import DataError, InputError
from atlasd.nn.intertwiners import Intertwiners
from atlasd.runtime.content import read_json
from atlasd.runtime.files import write_atomically


def check_metric(form: Tensor) -> Tensor:
    """A symmetric or antisymmetric form `(n, n)` in the common size: Frobenius norm sqrt(n), as that of Minkowski.

    Example:
        >>> check_metric(torch.diag(torch.tensor([-3.0, 3.0]))).tolist()
        [[-1.0, 0.0], [0.0, 1.0]]
    """
    form = torch.as_tensor(form).detach().cpu().double()
    if form.ndim != 2 or form.shape[0] != form.shape[1] or not form.numel():
        raise InputError(f"`metric` must have shape (n, n), got {tuple(form.shape)}; give one square matrix.")
    size = form.norm()
    if not bool(torch.isfinite(form).all()) or float(size) == 0:
        raise InputError("`metric` must be finite and not zero, got a matrix that is not; was anything discovered?")
    sign = -1.0 if is_antisymmetric(form) else 1.0
    if float((form - sign * form.mT).norm()) > 1e-4 * float(size):
        raise InputError(
            "`metric` must be symmetric or antisymmetric, got a matrix that is neither; "
            "take (J + J.T) / 2 if that is meant."
        )
    return (form + sign * form.mT) / 2 * (math.sqrt(len(form)) / size) + 0.0


def is_antisymmetric(form: Tensor) -> bool:
    """Whether a form `(n, n)` is nearer to an antisymmetric one than to a symmetric one."""
    return float((form + form.mT).norm()) < float((form - form.mT).norm())


def algebra_metric(algebra: LieAlgebra, *, conformal: bool = False) -> Metric:
    """The one form that an algebra preserves, symmetric or antisymmetric.

    Arguments:
        algebra: The algebra; noise of some per cent is fine.
        conformal: Whether to leave scalings out of account, which preserve forms up to a factor only.

    Raises:
        InputError: There is no such form, or several, or it is degenerate, or noise hides which it is.

    Example:
        >>> from atlasd.algebra import known
        >>> algebra_metric(known.so(1, 3)).signature, algebra_metric(known.sp(4)).signature
        ((1, 3, 0), (0, 0, 0))
    """
    frame = algebra.frame()
    if not len(frame):
        raise InputError("`algebra` must have generators to preserve one form, got none; a metric needs some.")
    still = torch.eye(algebra.size, dtype=torch.float64)
    traceless = LieAlgebra(frame - frame.diagonal(dim1=1, dim2=2).mean(-1)[:, None, None] * still)
    maps = Intertwiners(Group(traceless if conformal else algebra))
    forms = maps.between((2, 0), (0, 0)).basis
    if len(forms) != 1:
        kept = len(forms) or "none"
        up_to = 0 if conformal else len(Intertwiners(Group(traceless)).between((2, 0), (0, 0)).basis)
        scalings = "it holds scalings, pass conformal=True to be invariant to the rest" if up_to == 1 else ""
        remedy = scalings or "use EquivariantMLP or EquivariantSetMLP"
        raise InputError(f"`algebra` must preserve exactly one form for a metric network, got {kept}; {remedy}.")
    form = forms[0, 0].unflatten(0, (algebra.size, algebra.size))
    back = torch.linalg.inv(maps.straight)
    values = torch.linalg.svdvals(back.mT @ form @ back)  # units of the coordinates make no form degenerate
    if float(values[-1]) < 0.05 * float(values[0]):
        rank = int((values > 0.05 * values[0]).sum())
        raise InputError(
            f"`algebra` must preserve a form that is not degenerate, got one of rank {rank}: "
            "the network would not see some directions; use EquivariantMLP."
        )
    if is_antisymmetric(form):
        form = (form - form.mT) / 2
        return Metric(form / form.norm(), 0.0, float("inf"), (0, 0, 0))
    found = metric(algebra)
    if found.gap < found.value:
        raise InputError(
            f"`algebra` must tell its form from others, got one that changes by {found.value:.2f} under a unit "
            f"generator and another by {found.value + found.gap:.2f}; find it from more data."
        )
    return found


def load_metric(path: str | Path) -> Tensor:
    """The metric `(n, n)` in a file or of a run.

    Arguments:
        path: A run directory, whose metric is the one form that its algebra preserves up to a factor, or a JSON file
            with the matrix under `metric`, as `save_metric` writes it.
    """
    path = Path(path)
    if path.is_dir():
        algebra = load(path).algebra
        if not algebra.dimension:
            raise DataError(f"`{path}` must hold a run that found generators, got none; a metric needs some.")
        try:
            return algebra_metric(algebra, conformal=True).form
        except InputError as error:
            raise DataError(f"`{path}`: {error}") from error
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(f"`{path}` must be a run directory or a JSON file with a metric: {error}.") from error
    try:
        form = torch.tensor(content["metric"], dtype=torch.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f'`{path}` must hold a matrix under "metric", as in {{"metric": [[-1, 0], [0, 1]]}}.'
        ) from error
    try:
        check_metric(form)
    except InputError as error:
        raise DataError(f"`{path}`: {error}") from error
    return form


def save_metric(form: Tensor, path: str | Path) -> Path:
    """Writes a metric `(n, n)` for `load_metric`."""
    content = json.dumps({"metric": torch.as_tensor(form).detach().double().tolist()}, indent=1) + "\n"
    return write_atomically(Path(path), lambda part: part.write_text(content))
