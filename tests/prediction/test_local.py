"""Local maps that are not linear, in closed form."""

import pytest
import torch

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.crossfit import cross_fit
from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.local import LocalMap, LocalPredictor
from atlasd.runtime.codec import decode, encode
from atlasd.runtime.progress import Silent

ATLAS = Atlas.at([(9, 9), (9, 16)], 7, 4)


def slopes(x):
    return (x.roll(-1, -2) - x.roll(1, -2)) / 2, (x.roll(-1, -1) - x.roll(1, -1)) / 2


MAPS = {
    "length of the gradient": lambda x: torch.hypot(*slopes(x)),
    "its square": lambda x: sum(s.square() for s in slopes(x)),
    "reaction": lambda x: torch.tanh(2 * x) + 0.3 * (x.roll(1, -1) + x.roll(-1, -1) + x.roll(1, -2) + x.roll(-1, -2)),
    "linear": lambda x: slopes(x)[0],
    # The reaction alone commutes with everything: what skill is measured by is the rest, 2 % of the outputs.
    "reaction beside a weak diffusion": lambda x: x - x**3 + 0.005 * (x.roll(1, -1) + x.roll(-1, -2) - 2 * x),
}


@pytest.mark.parametrize("name", MAPS)
def test_learns(name, waves):
    x = waves(60, (19, 26), length=7.0)
    fitted = fit_predictor(x, MAPS[name](x), atlas=ATLAS, predictor=LocalPredictor(width=5))
    assert fitted.skill > 0.97 and fitted.reach == 2.5
    patches = Samples.check(x, x, ATLAS).inputs(torch.arange(3))
    assert torch.allclose(fitted(patches), ATLAS.output_patches(MAPS[name](x)[:3]), atol=0.25)


def test_charts_with_laws_of_their_own_are_noticed(waves):
    x = waves(60, (19, 26), length=7.0)
    y = x.clone()
    y[..., :13] = sum(s.square() for s in slopes(x))[..., :13]
    y[..., 13:] = (slopes(x)[0] * x)[..., 13:]
    atlas = Atlas.at([(9, 6), (9, 19)], 6, 3)
    fitted = fit_predictor(x, y, atlas=atlas, predictor=LocalPredictor(width=5))
    assert fitted.chart_skill.min() > 0.95


def test_a_part_of_the_outputs_and_a_copy_from_disk(waves):
    x = waves(40, (19, 26), length=7.0)
    made = fit_predictor(x, MAPS["its square"](x), atlas=ATLAS, predictor=LocalPredictor(width=5)).function
    assert isinstance(made, LocalMap)
    patches = Samples.check(x, x, ATLAS).inputs(torch.arange(3))
    assert torch.allclose(made.narrowed(3)(patches), made(patches)[..., 3:6, 3:6], atol=1e-5)
    tensors = {}
    again = decode(encode(made, tensors), tensors)
    assert torch.equal(again(patches), made(patches))


def test_what_is_planted_comes_from_the_same_sums(waves):
    x = waves(45, (19, 26), length=7.0)
    samples = Samples.check(x, MAPS["its square"](x), ATLAS).standard()
    crossed = cross_fit(
        LocalPredictor(width=5), samples, [lambda z: z[..., 3:-3, 3:-3].square()], seed=0, progress=Silent()
    )
    patches = samples.inputs(torch.arange(3))
    seen = crossed.answers[0][0](patches)
    assert torch.allclose(seen, patches[..., 3:-3, 3:-3].square(), atol=0.2)


def test_wrong_use_is_refused():
    with pytest.raises(InputError, match="`width` must be odd"):
        LocalPredictor(width=4)
    with pytest.raises(InputError, match="must not be a LocalPredictor for vectors"):
        fit_predictor(torch.randn(40, 2), torch.randn(40), predictor=LocalPredictor())
