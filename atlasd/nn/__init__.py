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
        "metric_gnn": "AtlasGNN EGNN LieGNN LorentzNet LorentzNetWithoutMetric MetricGNN",
        "metrics": "load_metric",
        "mlp": "EquivariantMLP EquivariantSetMLP",
        "representations": "FieldType circle regular trivial",
        "tensor_types": "TensorType scalar tensor vector",
    }.items()
    for name in names.split()
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"atlasd.nn.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'atlasd.nn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
