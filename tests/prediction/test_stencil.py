"""Linear stencils: recovered exactly, regularised where data are noisy, refused where data are few."""

import pytest
import torch

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.fit import fit_predictor, narrowed
from atlasd.prediction.predictor import Folds
from atlasd.prediction.stencil import StencilPredictor
from atlasd.prediction.trivial import centre_crop
from atlasd.runtime.progress import Silent


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_recovers_the_stencil(rough, two_charts, stencil_map, dtype):
    x = rough.to(dtype)
    y = stencil_map(x) + 0.7
    fitted = fit_predictor(x, y, atlas=two_charts, predictor=StencilPredictor(width=3, slack=0.0))
    assert fitted.skill > 0.999 and fitted.chart_skill.shape == (2,) and fitted.reach == 1.5
    inputs, targets = two_charts.input_patches(x), two_charts.output_patches(y)
    assert fitted(inputs).dtype == dtype
    torch.testing.assert_close(fitted(inputs), targets, atol=1e-3, rtol=1e-3)


def test_every_chart_has_its_own(rough, two_charts, stencil_map):
    y = stencil_map(rough)
    y[..., 12:] = 3 * rough[..., 12:].roll(1, -2)
    atlas = Atlas.at([(11, 6), (11, 17)], in_radius=5, out_radius=3)
    fitted = fit_predictor(rough, y, atlas=atlas, predictor=StencilPredictor(width=3))
    assert fitted.chart_skill.min() > 0.99


def test_skill_is_high_on_a_blur(waves, two_charts):
    x = waves(60, (22, 24), length=5.0)
    y = torch.nn.functional.avg_pool2d(x, 3, stride=1, padding=1)
    assert fit_predictor(x, y, atlas=two_charts, predictor=StencilPredictor()).skill > 0.95


@pytest.mark.parametrize("output", ["identity", "constant", "polynomial"])
def test_no_skill_where_a_trivial_model_is_exact(rough, two_charts, output):
    y = {"identity": rough, "constant": torch.full_like(rough, 3.0), "polynomial": 1 + rough - rough**3}[output]
    fitted = fit_predictor(rough, y, atlas=two_charts, predictor=StencilPredictor(width=3))
    assert abs(fitted.skill) < 0.01


def test_no_skill_on_shuffled_targets(rough, two_charts, stencil_map):
    y = stencil_map(rough)[torch.randperm(60, generator=torch.Generator().manual_seed(1))]
    assert fit_predictor(rough, y, atlas=two_charts, predictor=StencilPredictor(width=3)).skill < 0.1


def test_the_ridge_follows_the_noise(rough, two_charts, stencil_map):
    clean = stencil_map(rough)
    noisy = clean + 20 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(2))
    recipe = StencilPredictor(width=3, ridges=(1e-9, 1.0), slack=0.0)
    plainest = StencilPredictor(width=3, ridges=(1e-9,))
    small = Atlas.at([(8, 8)], in_radius=3, out_radius=2)
    for y, ridged in ((clean, False), (noisy, True)):
        chosen = fit_predictor(rough, y, atlas=small, predictor=recipe)
        plain = fit_predictor(rough, y, atlas=small, predictor=plainest)
        probe = small.input_patches(rough)
        assert torch.allclose(chosen(probe), plain(probe)) != ridged


def test_width_is_cut_to_the_margin(rough, stencil_map):
    atlas = Atlas.at([(10, 10)], in_radius=6, out_radius=5)
    fitted = fit_predictor(rough, stencil_map(rough), atlas=atlas, predictor=StencilPredictor(width=9))
    assert fitted.reach == 1.5 and "3 wide" in fitted.kind


def test_whole_field(rough, stencil_map):
    fitted = fit_predictor(rough, stencil_map(rough), predictor=StencilPredictor(width=3))
    assert fitted.skill > 0.99 and fitted(rough[:2, None]).shape == (2, 1, 1, 22, 24)


@pytest.mark.parametrize("width", [3, 4, 9, 99])
def test_narrowed_is_the_middle_of_the_same(rough, stencil_map, width):
    fitted = fit_predictor(rough, stencil_map(rough), predictor=StencilPredictor(width=3))
    whole, middle = fitted(rough[:2, None]), narrowed(fitted.function, width)(rough[:2, None])
    shape = tuple(min(s, width + (s - width) % 2) for s in (22, 24))
    assert middle.shape[-2:] == shape
    torch.testing.assert_close(middle, centre_crop(whole, shape))
    assert narrowed(torch.sin, width) is torch.sin  # what cannot leave out anything stays as it is


def test_space():
    x = torch.randn(30, 1, 9, 9, 9, generator=torch.Generator().manual_seed(0))
    y = x.roll(1, -1) - x.roll(1, -3)
    atlas = Atlas.at([(4, 4, 4)], in_radius=3, out_radius=2)
    fitted = fit_predictor(x, y, atlas=atlas, predictor=StencilPredictor(width=3))
    assert fitted.skill > 0.99 and fitted(atlas.input_patches(x)).shape == (30, 1, 1, 5, 5, 5)


def test_channels(rough, two_charts):
    x = torch.cat([rough, rough.roll(3, 0)], dim=1)
    y = torch.stack([x[:, 0].roll(1, -1) - x[:, 1], x[:, 1].roll(1, -2), x.sum(1)], dim=1)
    fitted = fit_predictor(x, y, atlas=two_charts, predictor=StencilPredictor(width=3))
    assert fitted(two_charts.input_patches(x)).shape == (60, 2, 3, 9, 9)
    assert fitted.skill > 0.99


def test_fewer_samples_than_weights(waves):
    x = waves(9, (22, 24))
    atlas = Atlas.at([(10, 10)], in_radius=5, out_radius=1)
    with pytest.raises(InputError, match=r"`x` must hold more samples than a 9-pixel stencil needs: .* give more data"):
        fit_predictor(x, x, atlas=atlas, predictor=StencilPredictor())


@pytest.mark.parametrize("width", [0, 2, -3])
def test_width_must_be_odd(width):
    with pytest.raises(InputError, match="`width` must be odd and positive"):
        StencilPredictor(width=width)


def test_no_margin(rough):
    atlas = Atlas.at([(10, 10)], in_radius=4, out_radius=4)
    with pytest.raises(InputError, match="`in_radius` must exceed `out_radius`"):
        fit_predictor(rough, rough, atlas=atlas, predictor=StencilPredictor())


def test_not_for_vectors_or_classes(rough, two_charts):
    with pytest.raises(InputError, match="must not be a StencilPredictor for vectors or classes"):
        fit_predictor(torch.randn(30, 3), torch.zeros(30), predictor=StencilPredictor())
    with pytest.raises(InputError, match="must not be a StencilPredictor for vectors or classes"):
        fit_predictor(rough, (rough > 0).long(), atlas=two_charts, predictor=StencilPredictor())


def test_folds_are_fits_without_their_samples(rough, two_charts, stencil_map):
    y = stencil_map(rough) + 0.1 * torch.randn(rough.shape, generator=torch.Generator().manual_seed(0))
    samples = Samples.check(rough, y, two_charts)
    fold = torch.arange(len(rough)) % 3
    plant = lambda x: centre_crop(x.roll(1, -1), tuple(samples.targets(fold[:1]).shape[3:]))  # noqa: E731
    folds = StencilPredictor(width=5).fit_folds(Folds(samples, fold, [plant]), progress=Silent())
    assert len(folds) == 3 and all(len(row) == 3 for row in folds)
    inputs = two_charts.input_patches(rough[:4])
    # The plant is a shift by one pixel, which a stencil holds exactly.
    torch.testing.assert_close(folds[0][1](inputs), plant(inputs), atol=1e-2, rtol=1e-2)
    assert not torch.equal(folds[0][0](inputs), folds[1][0](inputs))
    # The last one spends no skill on being smooth.
    index = (fold == 0).nonzero().flatten()
    smooth, sharp = (
        (row(samples.inputs(index)) - samples.targets(index)).square().mean()
        for row in (folds[0][0].function, folds[0][2].function)
    )
    assert sharp <= smooth


def test_rotated_samples_give_the_same_stencil():
    """Inputs that are mixtures of few fields are fitted by rotated samples; tiny noise sends all samples through."""
    generator = torch.Generator().manual_seed(3)
    few = torch.nn.functional.avg_pool2d(torch.randn(6, 1, 26, 26, generator=generator), 3, 1)
    x = torch.tensordot(torch.randn(240, 6, generator=generator), few, 1)
    y = 0.5 * x.roll(1, -1) + x.roll(2, -2) + 0.1 * torch.randn(x.shape, generator=generator) + 1.5
    fold, answers = torch.arange(240) % 3, []
    for noise in (0.0, 2e-4):
        noisy = x + noise * torch.randn(x.shape, generator=generator)
        samples = Samples.check(noisy, y, Atlas.at([(11, 11), (12, 13)], 8, 5))
        recipe = StencilPredictor(width=5, ridges=(1e-4,))
        fitted = recipe.fit_folds(Folds(samples, fold), progress=Silent())
        answers.append([row[0].function(samples.inputs(torch.arange(9))) for row in fitted])
    for rotated, plain in zip(*answers, strict=True):
        assert (rotated - plain).norm() < 0.05 * plain.norm()
