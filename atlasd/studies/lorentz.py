"""How far what was found lies from the Lorentz algebra, and its invariant form from the Minkowski metric."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from atlasd.algebra.identify import identify
from atlasd.algebra.invariants import metric, metric_cosine
from atlasd.algebra.known import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.result import Discovery

MINKOWSKI = (-1.0, 1.0, 1.0, 1.0)
"""Diagonal of the exact metric, for comparison only."""


def conformal_lorentz() -> LieAlgebra:
    """so(1,3) and the scaling, of dimension 7."""
    return LieAlgebra(torch.cat([so(1, 3).basis, torch.eye(4, dtype=torch.float64)[None]]))


def lorentz_metrics(found: Discovery, truth: LieAlgebra) -> dict[str, Any]:
    """Names, dimension, the largest principal angle to the truth, and the cosine of the metric with Minkowski's."""
    metrics: dict[str, Any] = {
        "group": found.answer,
        "algebra": identify(found.algebra).name if len(found.algebra.basis) else "none",
        "dimension": found.group.dimension,
        "cosets": found.group.components,
    }
    if found.group.dimension:
        form = metric(found.algebra)
        exact = torch.diag(torch.tensor(MINKOWSKI, dtype=torch.float64))
        metrics |= {
            "metric_cosine": metric_cosine(form.form, exact),
            "signature": list(form.signature),
            "angle_deg": math.degrees(float(found.algebra.angles(truth).max())),
        }
    return metrics


def metric_field(found: Discovery) -> dict[str, Tensor]:
    """The invariant metric for the figure, its largest entry 1; empty where nothing was found."""
    if not found.group.dimension:
        return {}
    form = metric(found.algebra).form
    return {"metric": form / form.abs().max()}


def shared_pairs(basis: Tensor, share: float = 0.1) -> int:
    """Pairs of generators with a common entry that is not zero, as in the paper's appendix.

    Arguments:
        basis: With shape `(k, n, n)`.
        share: Entries below this share of a generator's largest count as zero.

    Example:
        >>> shared_pairs(so(1, 3).basis)
        0
        >>> shared_pairs(torch.ones(3, 2, 2))
        3
    """
    rows = basis.flatten(1).abs()
    there = (rows > share * rows.amax(1, keepdim=True)).double()
    return int(torch.triu(there @ there.mT > 0, 1).sum())
