import torch

from atlasd.data.samples import Samples
from atlasd.prediction.plants import draw_plants
from atlasd.runtime.random import stream


def test_odd_and_even_functions_of_sets_are_planted_apart():
    x = torch.randn(50, 4, 3, generator=stream(0, "x"))
    samples = Samples.check(x, x.sum((1, 2)), None, minimum=20).standard()
    odd, even = draw_plants(samples, 2, stream(0, "plants"))
    z = samples.inputs(torch.arange(50))
    assert odd(z).std() > 0.1 and torch.allclose(odd(-z), -odd(z), atol=1e-5)
    assert even(z).std() > 0.1 and torch.allclose(even(-z), even(z), atol=1e-5)
