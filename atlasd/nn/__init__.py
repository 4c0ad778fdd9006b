"""Networks that use a symmetry once it is known."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atlasd.nn.auditing import Audit, audit
    from atlasd.nn.averaging import symmetrize
    from atlasd.nn.build import network
    from atlasd.nn.canonical import canonicalize
    from atlasd.nn.checks import assert_equivariant, field_error
    from atlasd.nn.exporting import export, export_onnx
    from atlasd.nn.fields import FieldNetwork
    from atlasd.nn.grid_cnn import GroupActivation, GroupBatchNorm2d, GroupConv2d, GroupPool
    from atlasd.nn.icosahedral import IcosahedralUNet
    from atlasd.nn.icosahedral_layers import HexConv, HexUpsample
    from atlasd.nn.icosahedral_projection import IcosahedralProjection
    from atlasd.nn.icosahedron import IcosahedralGrid, icosahedral_grid
    from atlasd.nn.kernels import kernel_basis
    from atlasd.nn.linear import EquivariantLinear, Gate
    from atlasd.nn.metric_gnn import EGNN, AtlasGNN, LieGNN, LorentzNet, LorentzNetWithoutMetric, MetricGNN
    from atlasd.nn.metrics import load_metric
    from atlasd.nn.mlp import EquivariantMLP, EquivariantSetMLP
    from atlasd.nn.representations import FieldType, circle, regular, trivial
    from atlasd.nn.tensor_types import TensorType, scalar, tensor, vector

# fmt: off
__all__ = [
    "AtlasGNN", "Audit", "EGNN", "EquivariantLinear", "EquivariantMLP", "EquivariantSetMLP", "FieldNetwork",
    "FieldType", "Gate", "GroupActivation", "GroupBatchNorm2d", "GroupConv2d", "GroupPool", "HexConv",
    "HexUpsample", "IcosahedralGrid", "IcosahedralProjection", "IcosahedralUNet", "LieGNN", "LorentzNet",
    "LorentzNetWithoutMetric", "MetricGNN", "TensorType", "assert_equivariant", "audit", "canonicalize", "circle",
    "export", "export_onnx", "field_error", "icosahedral_grid", "kernel_basis", "load_metric", "network",
    "regular", "scalar", "symmetrize", "tensor", "trivial", "vector",
]
# fmt: on

# Loaded on first use, each with only what it needs.
_HOMES = {
    name: home
    for home, names in {
        "auditing": "Audit audit",
        "averaging": "symmetrize",
        "build": "network",
        "canonical": "canonicalize",
        "checks": "assert_equivariant field_error",
        "exporting": "export export_onnx",
        "fields": "FieldNetwork",
        "grid_cnn": "GroupActivation GroupBatchNorm2d GroupConv2d GroupPool",
        "icosahedral": "IcosahedralUNet",
        "icosahedral_layers": "HexConv HexUpsample",
        "icosahedral_projection": "IcosahedralProjection",
        "icosahedron": "IcosahedralGrid icosahedral_grid",
        "kernels": "kernel_basis",
        "linear": "EquivariantLinear Gate",
        "metric_gnn": "EGNN AtlasGNN LieGNN LorentzNet LorentzNetWithoutMetric MetricGNN",
        "metrics": "load_metric",
        "mlp": "EquivariantMLP EquivariantSetMLP",
        "representations": "FieldType circle regular trivial",
        "tensor_types": "TensorType scalar tensor vector",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"atlasd.nn.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'atlasd.nn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
