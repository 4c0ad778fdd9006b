"""A function in place of data: seen through charts as the data would be."""

import pytest
import torch

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.oracle import oracle_predictor


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_local_maps_are_exact(rough, two_charts, stencil_map, dtype):
    x = rough.to(dtype)
    samples = Samples.check(x, None, two_charts)
    predictor, _ = oracle_predictor(stencil_map, samples)
    index = torch.arange(5)
    torch.testing.assert_close(predictor(samples.inputs(index)), two_charts.output_patches(stencil_map(x[index])))
    assert predictor.skill == 1.0 and predictor.reach == pytest.approx(2 * 2**0.5)


def test_space():
    x = torch.randn(8, 1, 9, 10, 11, generator=torch.Generator().manual_seed(0))
    atlas = Atlas.at([(4, 5, 5)], in_radius=4, out_radius=2)
    samples = Samples.check(x, None, atlas)
    predictor, _ = oracle_predictor(lambda u: u.roll(1, -3) - u.roll(1, -1), samples)
    expected = atlas.output_patches(x.roll(1, -3) - x.roll(1, -1))
    torch.testing.assert_close(predictor(samples.inputs(torch.arange(8))), expected)


def test_whole_field(rough, stencil_map):
    samples = Samples.check(rough)
    torch.testing.assert_close(oracle_predictor(stencil_map, samples)[0](rough[:, None])[:, 0], stencil_map(rough))


@pytest.mark.parametrize("outputs", [1, 3])
def test_vectors(outputs):
    x = torch.randn(20, 4, 2)
    function = (lambda z: z.sum((1, 2))) if outputs == 1 else (lambda z: z.sum(1).repeat(1, 2)[:, :3])
    predictor, _ = oracle_predictor(function, Samples.check(x))
    assert predictor(x[:6, None]).shape == (6, 1, outputs)


def test_derivatives_pass_through(rough, two_charts, stencil_map):
    samples = Samples.check(rough, None, two_charts)
    predictor, _ = oracle_predictor(stencil_map, samples)
    x = samples.inputs(torch.arange(2)).requires_grad_()
    predictor(x).sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0


def raising(x):
    raise KeyError("inside")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x * torch.nan, "`function` must return finite tensors"),
        (lambda x: 1 / (x * 0), "`function` must return finite tensors"),
        (lambda x: x @ torch.zeros(7, 7), "`function` must accept inputs of the shape of `x`, got RuntimeError"),
        (raising, "`function` must accept inputs of the shape of `x`, got KeyError"),
        (lambda x: x.numpy(), "`function` must return one output tensor per sample.*got ndarray"),
        (lambda x: x.sum(), "`function` must return one output"),
        (lambda x: x[:1].sum(-1), "`function` must return one output"),
    ],
)
def test_bad_functions(function, message):
    with pytest.raises(InputError, match=message):
        oracle_predictor(function, Samples.check(torch.ones(20, 3)))


def test_distorted_charts_are_refused(rough):
    atlas = Atlas.at([(10, 10)], 4, 2, distortions={0: ((1.0, 0.2), (0.0, 1.0))})
    with pytest.raises(InputError, match="whole-pixel charts without distortion"):
        oracle_predictor(lambda x: x, Samples.check(rough, None, atlas))
