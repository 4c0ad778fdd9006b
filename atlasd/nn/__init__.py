"""Networks that use a symmetry once it is known."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atlasd.nn.auditing import Audit as Audit
    from atlasd.nn.auditing import audit as audit
    from atlasd.nn.averaging import symmetrize as symmetrize
    from atlasd.nn.build import network as network
    from atlasd.nn.canonical import canonicalize as canonicalize
    from atlasd.nn.checks import assert_equivariant as assert_equivariant
    from atlasd.nn.checks import field_error as field_error
    from atlasd.nn.exporting import export as export
    from atlasd.nn.exporting import export_onnx as export_onnx
    from atlasd.nn.fields import FieldNetwork as FieldNetwork
    from atlasd.nn.grid_cnn import GroupActivation as GroupActivation
    from atlasd.nn.grid_cnn import GroupBatchNorm2d as GroupBatchNorm2d
    from atlasd.nn.grid_cnn import GroupConv2d as GroupConv2d
    from atlasd.nn.grid_cnn import GroupPool as GroupPool
    from atlasd.nn.icosahedral import IcosahedralUNet as IcosahedralUNet
    from atlasd.nn.icosahedral_layers import HexConv as HexConv
    from atlasd.nn.icosahedral_layers import HexPool as HexPool
    from atlasd.nn.icosahedral_layers import HexUpsample as HexUpsample
    from atlasd.nn.icosahedral_projection import IcosahedralProjection as IcosahedralProjection
    from atlasd.nn.icosahedron import IcosahedralGrid as IcosahedralGrid
    from atlasd.nn.icosahedron import icosahedral_grid as icosahedral_grid
    from atlasd.nn.kernels import kernel_basis as kernel_basis
    from atlasd.nn.linear import EquivariantLinear as EquivariantLinear
    from atlasd.nn.linear import Gate as Gate
    from atlasd.nn.metric_gnn import EGNN as EGNN
    from atlasd.nn.metric_gnn import AtlasGNN as AtlasGNN
    from atlasd.nn.metric_gnn import LieGNN as LieGNN
    from atlasd.nn.metric_gnn import LorentzNet as LorentzNet
    from atlasd.nn.metric_gnn import LorentzNetWithoutMetric as LorentzNetWithoutMetric
    from atlasd.nn.metric_gnn import MetricGNN as MetricGNN
    from atlasd.nn.metrics import load_metric as load_metric
    from atlasd.nn.mlp import EquivariantMLP as EquivariantMLP
    from atlasd.nn.mlp import EquivariantSetMLP as EquivariantSetMLP
    from atlasd.nn.representations import FieldType as FieldType
    from atlasd.nn.representations import circle as circle
    from atlasd.nn.representations import regular as regular
    from atlasd.nn.representations import trivial as trivial
    from atlasd.nn.tensor_types import TensorType as TensorType
    from atlasd.nn.tensor_types import scalar as scalar
    from atlasd.nn.tensor_types import tensor as tensor
    from atlasd.nn.tensor_types import vector as vector

# Loaded on first use, each with only what it needs.
_HOMES = {
    "AtlasGNN": "metric_gnn",
    "Audit": "auditing",
    "EGNN": "metric_gnn",
    "EquivariantLinear": "linear",
    "EquivariantMLP": "mlp",
    "EquivariantSetMLP": "mlp",
    "FieldNetwork": "fields",
    "FieldType": "representations",
    "Gate": "linear",
    "GroupActivation": "grid_cnn",
    "GroupBatchNorm2d": "grid_cnn",
    "GroupConv2d": "grid_cnn",
    "GroupPool": "grid_cnn",
    "HexConv": "icosahedral_layers",
    "HexPool": "icosahedral_layers",
    "HexUpsample": "icosahedral_layers",
    "IcosahedralGrid": "icosahedron",
    "IcosahedralProjection": "icosahedral_projection",
    "IcosahedralUNet": "icosahedral",
    "LieGNN": "metric_gnn",
    "LorentzNet": "metric_gnn",
    "LorentzNetWithoutMetric": "metric_gnn",
    "MetricGNN": "metric_gnn",
    "TensorType": "tensor_types",
    "assert_equivariant": "checks",
    "audit": "auditing",
    "circle": "representations",
    "export": "exporting",
    "export_onnx": "exporting",
    "field_error": "checks",
    "icosahedral_grid": "icosahedron",
    "kernel_basis": "kernels",
    "load_metric": "metrics",
    "network": "build",
    "regular": "representations",
    "scalar": "tensor_types",
    "canonicalize": "canonical",
    "symmetrize": "averaging",
    "tensor": "tensor_types",
    "trivial": "representations",
    "vector": "tensor_types",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"atlasd.nn.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'atlasd.nn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
