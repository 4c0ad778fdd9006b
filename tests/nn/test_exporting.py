"""Networks as ONNX files and as programs."""

import pytest
import torch
from torch import nn

from atlasd.algebra import known
from atlasd.errors import InputError
from atlasd.nn import AtlasGNN, EquivariantMLP, EquivariantSetMLP, GroupConv2d, GroupPool, scalar, vector
from atlasd.nn.exporting import export_onnx


def network():
    group = known.cyclic(4)
    return nn.Sequential(GroupConv2d(1, 4, 3, group=group, out_type="regular"), GroupPool(4, group=group))


def test_the_name_of_the_file_is_checked(tmp_path):
    with pytest.raises(InputError, match=r"must end in \.onnx"):
        export_onnx(network(), torch.zeros(2, 1, 8, 8), tmp_path / "net.pt")


@pytest.mark.filterwarnings("ignore")
def test_the_file_gives_the_same(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    net = network().eval()
    path = export_onnx(net, x[:2], tmp_path / "net.onnx")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"x": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(answer), net(x).detach(), atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_programs_take_any_number_of_samples():
    x = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))
    networks = [
        EquivariantMLP(known.lorentz(1), 3 * vector(), scalar() + vector(), 8),
        EquivariantSetMLP(known.lorentz(1), scalar(), 8),
        AtlasGNN(known.lorentz(1), hidden=8, layers=2),
    ]
    for net in networks:
        program = torch.export.export(net.eval(), (x,), dynamic_shapes=({0: torch.export.Dim("samples")},)).module()
        for count in (1, 3):
            torch.testing.assert_close(program(x[:count]), net(x[:count]))
