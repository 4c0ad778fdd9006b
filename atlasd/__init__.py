"""Automatic local symmetry discovery: find the symmetry of your data, and be told how sure that is."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atlasd.algebra import known as known
    from atlasd.algebra.group import Group as Group
    from atlasd.algebra.identify import identify as identify
    from atlasd.algebra.lie import LieAlgebra as LieAlgebra
    from atlasd.discovery.cosets import CosetSearch as CosetSearch
    from atlasd.discovery.discover import discover as discover
    from atlasd.discovery.discover import discover_cosets as discover_cosets
    from atlasd.discovery.discover import discover_generators as discover_generators
    from atlasd.discovery.estimator import SymmetryDiscovery as SymmetryDiscovery
    from atlasd.discovery.flow import FlowDiscovery as FlowDiscovery
    from atlasd.discovery.flow import discover_flow as discover_flow
    from atlasd.discovery.gradient import GradientSearch as GradientSearch
    from atlasd.discovery.locality import survey_charts as survey_charts
    from atlasd.discovery.representations import discover_representation as discover_representation
    from atlasd.discovery.residual import equivariance_error as equivariance_error
    from atlasd.discovery.result import Discovery as Discovery
    from atlasd.discovery.result import load as load
    from atlasd.discovery.spectral import SpectralSearch as SpectralSearch
    from atlasd.geometry.actions import AffineAction as AffineAction
    from atlasd.geometry.actions import GridAction as GridAction
    from atlasd.geometry.actions import VectorAction as VectorAction
    from atlasd.geometry.atlas import Atlas as Atlas
    from atlasd.geometry.atlas import PlaneChart as PlaneChart
    from atlasd.geometry.atlas import WholeChart as WholeChart
    from atlasd.geometry.polynomial import PolynomialAction as PolynomialAction
    from atlasd.geometry.sphere import SphereChart as SphereChart
    from atlasd.nn.auditing import Audit as Audit
    from atlasd.nn.auditing import audit as audit
    from atlasd.nn.averaging import symmetrize as symmetrize
    from atlasd.nn.canonical import canonicalize as canonicalize
    from atlasd.nn.checks import assert_equivariant as assert_equivariant
    from atlasd.prediction.fit import fit_predictor as fit_predictor
    from atlasd.prediction.moments import DeepSetsPredictor as DeepSetsPredictor
    from atlasd.prediction.moments import MomentPredictor as MomentPredictor
    from atlasd.prediction.neural import ConvPredictor as ConvPredictor
    from atlasd.prediction.neural import MLPPredictor as MLPPredictor
    from atlasd.prediction.stencil import StencilPredictor as StencilPredictor

__version__ = "0.1.0"

# Loaded on first use: `atlasd --help` must not wait for torch.
_HOMES = {
    "AffineAction": "geometry.actions",
    "Atlas": "geometry.atlas",
    "Audit": "nn.auditing",
    "ConvPredictor": "prediction.neural",
    "CosetSearch": "discovery.cosets",
    "DeepSetsPredictor": "prediction.moments",
    "Discovery": "discovery.result",
    "FlowDiscovery": "discovery.flow",
    "GradientSearch": "discovery.gradient",
    "GridAction": "geometry.actions",
    "Group": "algebra.group",
    "LieAlgebra": "algebra.lie",
    "MLPPredictor": "prediction.neural",
    "MomentPredictor": "prediction.moments",
    "PlaneChart": "geometry.atlas",
    "PolynomialAction": "geometry.polynomial",
    "SpectralSearch": "discovery.spectral",
    "SphereChart": "geometry.sphere",
    "StencilPredictor": "prediction.stencil",
    "SymmetryDiscovery": "discovery.estimator",
    "VectorAction": "geometry.actions",
    "WholeChart": "geometry.atlas",
    "assert_equivariant": "nn.checks",
    "audit": "nn.auditing",
    "discover": "discovery.discover",
    "discover_cosets": "discovery.discover",
    "discover_flow": "discovery.flow",
    "discover_generators": "discovery.discover",
    "discover_representation": "discovery.representations",
    "equivariance_error": "discovery.residual",
    "fit_predictor": "prediction.fit",
    "identify": "algebra.identify",
    "load": "discovery.result",
    "survey_charts": "discovery.locality",
    "canonicalize": "nn.canonical",
    "symmetrize": "nn.averaging",
}
__all__ = ["__version__", "known", *sorted(_HOMES)]


def _meet_xarray() -> None:
    """Puts `atlasd` on xarray's datasets, where xarray is in use."""
    if "xarray" in sys.modules:
        from atlasd.studies.own_data.accessor import register

        register()


def __getattr__(name: str) -> Any:
    _meet_xarray()
    if name == "known":
        return importlib.import_module("atlasd.algebra.known")
    if name in _HOMES:
        return getattr(importlib.import_module(f"atlasd.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'atlasd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)


_meet_xarray()
