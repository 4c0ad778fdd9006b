"""The audit of files: programs and ONNX models are read without running code."""

import io
import json
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

import atlasd as ad
from atlasd.cli import main
from atlasd.cli.audit import named_group
from atlasd.errors import DataError, InputError
from atlasd.nn import audit
from atlasd.nn.exporting import _is_arithmetic, any_batch, batch_limits, load_model, safe_copy
from atlasd.runtime.random import stream

C4 = ad.known.cyclic(4)


@pytest.fixture
def x():
    return torch.randn(12, 1, 12, 12, generator=stream(0, "audit"))


def exported(model, x, path):
    batch = torch.export.Dim("batch", min=2, max=4096)
    program = torch.export.export(model.eval(), (x,), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    return path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_command_reads_exported_programs(x, tmp_path, capsys):
    torch.manual_seed(0)
    model = exported(nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Conv2d(1, 2, 3, padding=1)), x, tmp_path / "model.pt2")
    np.savez(tmp_path / "data.npz", x=x.numpy(), y=x.numpy())
    assert main(["audit", str(model), str(tmp_path / "data.npz"), "--group", "C4", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert not content["symmetric"] and [f["name"][0] for f in content["layers"] if f["culprit"]] == ["1"]
    assert "Layers under the worst element" in (tmp_path / "model.audit.html").read_text()
    clean = exported(nn.AvgPool2d(3, 1, 1), x, tmp_path / "clean.pt2")
    assert main(["audit", str(clean), str(tmp_path / "data.npz"), "--group", "C4"]) == 0
    assert "has the symmetry C4" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_programs_for_few_samples_in_double_precision(tmp_path, capsys):
    class Square(nn.Module):
        def forward(self, x):
            return x.square().sum(1)

    x = torch.randn(150, 2, generator=stream(3), dtype=torch.float64)
    program = torch.export.export(Square(), (x[:5],), dynamic_shapes=({0: torch.export.Dim("b", min=2, max=64)},))
    torch.export.save(program, tmp_path / "few.pt2")
    model = load_model(tmp_path / "few.pt2")
    assert batch_limits(model) == (2, 64) and batch_limits(Square()) == (1, None)
    torch.testing.assert_close(any_batch(model)(x), x.square().sum(1))
    np.savez(tmp_path / "data.npz", x=x.numpy())
    assert main(["audit", str(tmp_path / "few.pt2"), str(tmp_path / "data.npz"), "--group", "SO(2)"]) == 0
    assert "has the symmetry SO(2)" in capsys.readouterr().out


class Shout:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return (print, ("code ran",))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_pickles_are_refused_before_they_run(x, tmp_path, capsys):
    good = exported(nn.AvgPool2d(3, 1, 1), x, tmp_path / "good.pt2")
    bad = tmp_path / "bad.pt2"
    evil = io.BytesIO()
    torch.save(Shout(), evil)
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as made:
        for name in source.namelist():
            made.writestr(name, evil.getvalue() if "sample_inputs" in name else source.read(name))
    with pytest.raises(DataError, match="must hold tensors only, got a pickle"):
        load_model(bad)
    torch.save(Shout(), tmp_path / "model.pt")
    with pytest.raises(DataError, match=r"must be a \.pt2 or \.onnx file"):
        load_model(tmp_path / "model.pt")
    assert "code ran" not in capsys.readouterr().out


CODE = "__import__('os').system('true')"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ({"target": "torch.os.system"}, "operators of tensors"),
        ({"target": "torch.ops.aten.from_file.default"}, "operators of tensors"),
        ({"expr_str": CODE}, "sizes that are arithmetic"),
        ({"inputs": [{"name": f"x={CODE}"}]}, "plain names"),
        ({f"x={CODE}": {"dtype": 7}}, "plain names"),
        ({"metadata": {"nn_module_stack": f"a\n{CODE}"}}, "plain names"),
        ({"in_spec": '[1, {"type": "os.system", "context": "true"}]'}, "plain names"),
    ],
    ids=str,
)
def test_programs_hold_no_code(program, reason, tmp_path):
    """Torch evaluates expressions and pastes names into the text of a function."""
    with zipfile.ZipFile(tmp_path / "bad.pt2", "w") as archive:
        archive.writestr("bad/models/model.json", json.dumps(program))
    with pytest.raises(DataError, match=f"must hold {reason}"):
        load_model(tmp_path / "bad.pt2")


def test_guards_are_left_out_and_bombs_refused(tmp_path):
    """Guards are evaluated by torch when a program is used; they say nothing that an audit needs."""
    with zipfile.ZipFile(tmp_path / "guarded.pt2", "w") as archive:
        archive.writestr("g/models/model.json", json.dumps({"guards_code": [CODE], "nodes": []}))
    with zipfile.ZipFile(safe_copy(tmp_path / "guarded.pt2")) as archive:
        assert json.loads(archive.read("g/models/model.json")) == {"guards_code": [], "nodes": []}
    with zipfile.ZipFile(tmp_path / "bomb.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b/data/weights/weight_0", bytes(30 << 20))
    with pytest.raises(DataError, match="must unpack to about its size"):
        load_model(tmp_path / "bomb.pt2")
    with zipfile.ZipFile(tmp_path / "deep.pt2", "w") as archive:
        archive.writestr("d/models/model.json", "[" * 100_000 + "]" * 100_000)
    with pytest.raises(DataError, match=r"must be a file of torch\.export\.save"):
        load_model(tmp_path / "deep.pt2")


def test_wrong_files(tmp_path):
    assert _is_arithmetic("Symbol('s31', positive=True, integer=True) + 2*s0")
    assert not _is_arithmetic("__import__('os').system('true')") and not _is_arithmetic("x.y(1)")
    (tmp_path / "no.pt2").write_text("words")
    with pytest.raises(DataError, match=r"file of torch\.export\.save"):
        load_model(tmp_path / "no.pt2")
    with pytest.raises(DataError, match="nothing there"):
        load_model(tmp_path / "none.pt2")
    assert named_group("SO(2)").name == "SO(2)" and named_group("D4").components == 8
    with pytest.raises(InputError, match="must be a name such as"):
        named_group("E8")


def onnx_file(path, weight, stride=1):
    """A mean over 3 x 3 pixels, ReLU, and a convolution with the weights given."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    mean = np.full((1, 1, 3, 3), 1 / 9, dtype=np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "mean"], ["a"], "blur", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "act"),
        helper.make_node("Conv", ["b", "w"], ["y"], "last", kernel_shape=[3, 3], pads=[1] * 4, strides=[stride] * 2),
    ]
    ends = [helper.make_tensor_value_info(name, kind, ["N", 1, None, None]) for name in ("x", "y")]
    arrays = [onnx.numpy_helper.from_array(a, n) for a, n in ((mean, "mean"), (weight, "w"))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return load_model(path)


def test_layers_of_onnx_files_are_named_and_fixed(x, tmp_path, monkeypatch):
    monkeypatch.setattr("atlasd.nn.auditing.discover", lambda *a, **k: None)  # the data are not the question here
    even = np.ones((1, 1, 3, 3), dtype=np.float32)
    assert audit(onnx_file(tmp_path / "even.onnx", even), x, C4).symmetric
    found = audit(onnx_file(tmp_path / "stride.onnx", even, stride=2), x, C4)
    assert found.culprit is not None and found.culprit.name == "last" and "stride: steps of 2" in found.culprit.cause
    odd = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    model = onnx_file(tmp_path / "odd.onnx", odd)
    found = audit(model, x, C4, nn.functional.avg_pool2d(x, 3, 1, 1), fix=True)
    assert found.culprit is not None and found.culprit.name == "last" and "constraint" in found.culprit.cause
    assert found.price is not None and found.price[1] < found.price[0]
