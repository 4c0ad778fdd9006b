"""Metrics to build networks on: checked, and read from files and run directories."""

from __future__ import annotations

__all__ = ["check_metric", "load_metric", "save_metric"]

import json
import math
from pathlib import Path

import torch
from torch import Tensor

from atlasd.algebra.invariants import metric
from atlasd.discovery.result import load
from atlasd.errors import DataError, InputError
from atlasd.runtime.files import write_atomically


def check_metric(form: Tensor) -> Tensor:
    """A symmetric form `(n, n)` in the common size: Frobenius norm sqrt(n), as diag(-1, 1, 1, 1) has it.

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
    if float((form - form.mT).norm()) > 1e-4 * float(size):
        raise InputError("`metric` must be symmetric, got a matrix that is not; take (J + J.T) / 2 if that is meant.")
    return (form + form.mT) / 2 * (math.sqrt(len(form)) / size) + 0.0


def load_metric(path: str | Path) -> Tensor:
    """The metric `(n, n)` in a file or of a run.

    Arguments:
        path: A run directory, whose metric is the form its algebra comes nearest to preserving, or a JSON file
            with the matrix under `metric`, as `save_metric` writes it.
    """
    path = Path(path)
    if path.is_dir():
        algebra = load(path).algebra
        if not algebra.dimension:
            raise DataError(f"`{path}` must hold a run that found generators, got none; a metric needs some.")
        return metric(algebra).form
    try:
        content = json.loads(path.read_text())
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
