"""Climate: runs, scores and classes of pixels."""

import pytest
import torch
from writers import write_map

from atlasd.discovery.discover import TOLERANCE
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.spectral import SpectralSearch
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.train import Schedule
from atlasd.report.figures import draw_actions
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.runtime.stages import keeping
from atlasd.studies.climate import run as climate
from atlasd.studies.climate.cgnet import CGNetPredictor, ChartCGNet
from atlasd.studies.climate.run import DISCOVERY
from atlasd.studies.climate.second_order import ACTIONS, SecondOrderPredictor
from atlasd.studies.climate.synthetic import gradient, synthetic_climate
from atlasd.studies.climate.vertices import jaccard_loss, segmentation_scores
from atlasd.studies.config import configure

SMALL = {"samples": 40, "rows": 64}


@pytest.fixture
def asked(monkeypatch, recorded):
    """What `discover` was called with; predictors see few pixels."""
    quick = SecondOrderPredictor(pixels=1500, components=3, iterations=15)
    monkeypatch.setattr(climate, "_predictor", lambda config: quick)
    return recorded(climate)


def test_what_is_asked(asked):
    found, extras = climate.run(configure(climate.CONFIG, SMALL), 0, Silent())
    assert asked["x"].shape == (40, 4, 64, 96) and asked["atlas"].radii == (17, 12)
    assert asked["search"].generators is None and not asked["search"].derivatives
    assert asked["action"].rho_in is None
    assert asked["cosets"] is False and asked["tolerance"] == TOLERANCE
    assert [r["class"] for r in extras.metrics["rows"]] == ["background", "tropical cyclone", "atmospheric river"]
    assert "By class: tropical cyclone skill" in found.verdict.reason
    assert extras.fields["actions"].shape == (len(ACTIONS), 3, 25, 25)
    assert len(draw_actions(extras.fields["actions"]).axes) == 3 * len(ACTIONS)


def test_background_alone_tells_nothing(asked):
    found, extras = climate.run(configure(climate.CONFIG, {**SMALL, "symmetry": "background"}), 0, Silent())
    assert found.verdict.reason.startswith("Cannot tell: 100.0% of the labels are background and nothing else was")
    assert not found.verdict.symmetric and found.group.dimension == 0
    assert extras.metrics["rows"][0]["share"] == 1.0


def test_a_folder_in_place_of_synthetic_maps(asked, tmp_path):
    maps = synthetic_climate(8, generator=stream(0), shape=(64, 96), experts=2, variables=DISCOVERY)
    for n in range(8):
        for e in range(1 + n % 2):
            write_map(tmp_path / f"data-{n:02}_{e}.nc", maps, number=n, expert=e)
    climate.run(configure(climate.CONFIG, {"data": str(tmp_path)}), 0, Silent())
    assert asked["x"].shape == (12, 4, 64, 96) and asked["y"].shape == (12, 64, 96)
    assert asked["first"].mean((0, 2, 3)).abs().max() < 0.3 and 0.8 < float(asked["first"].std()) < 1.2


def test_settings():
    config = configure(climate.CONFIG, {"preset": "paper"})
    search, recipe = climate._search(config), climate._predictor(config)
    assert isinstance(search, GradientSearch) and search.generators == 4 and search.growth == 5.0
    assert recipe.widths == (32, 64, 128) and recipe.schedule.epochs == 30 and recipe.schedule.batch == 16
    assert isinstance(climate._search(configure(climate.CONFIG, {})), SpectralSearch)
    with pytest.raises(InputError, match="`symmetry` must be one of affine"):
        configure(climate.CONFIG, {"symmetry": "round"})


def test_winds_turn_with_the_map():
    """A uniform wind to the east, turned by a quarter from columns towards rows against them, blows to the north."""
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)  # columns to rows upwards
    x = torch.zeros(1, 4, 9, 9)
    x[:, 1] = 1.0
    moved = GridAction(rho_in=climate._turned_winds).on_input(quarter, x)
    assert torch.allclose(moved[0, :, 4, 4], torch.tensor([0.0, 0.0, 1.0, 0.0]))
    a, b = torch.randn(2, 2, 2, generator=stream(0), dtype=torch.float64)
    rho = climate._turned_winds
    assert torch.allclose(rho(a @ b), rho(a) @ rho(b))


@pytest.mark.slow
@pytest.mark.parametrize(("symmetry", "name"), [("affine", "GL+(2)"), ("rotation", "SO(2)"), ("none", "trivial")])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_symmetry_that_was_built_in_is_found(symmetry, name, seed):
    found, _ = climate.run(configure(climate.CONFIG, {"symmetry": symmetry}), seed, Silent())
    assert found.group.name == name and found.predictor.skill > 0.5


def test_large_arrays_of_a_run_lie_in_its_directory(tmp_path, monkeypatch):
    """A killed run would leave gigabytes elsewhere."""
    monkeypatch.setattr(climate, "_run", lambda config, seed, progress, scratch: scratch.parent)
    with keeping(tmp_path / "run", ["run", "climate"], "1"):
        assert climate.run(configure(climate.CONFIG, SMALL), 0, Silent()) == tmp_path / "run"


def test_a_labelling_agrees_with_itself_and_not_with_another():
    labels = torch.tensor([[0, 1, 2, 2], [0, 0, 1, 1]])
    same = segmentation_scores(labels, labels, 3)
    assert same.tolist() == [[1, 1, 1]] * 3
    other = segmentation_scores((labels + 1) % 3, labels, 3)
    assert other[0].tolist() == [0, 0, 0]


def test_scores_by_hand():
    scores = segmentation_scores(torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 2, 2]), 3)
    exact = torch.tensor([[2 / 3, 1 / 4, 0], [2 / 3, 1 / 3, torch.nan], [1, 1 / 2, 0]])
    torch.testing.assert_close(scores, exact, equal_nan=True)


def test_a_class_that_neither_has_counts_as_nothing():
    assert segmentation_scores(torch.zeros(4), torch.zeros(4), 2)[0].isnan().tolist() == [False, True]


def test_the_loss_is_one_less_the_mean_iou():
    labels = torch.tensor([[0, 0, 1, 1], [2, 2, 1, 0]])
    given = torch.tensor([[0, 1, 1, 1], [2, 2, 1, 1]])
    sure = 100 * torch.nn.functional.one_hot(given, 3).mT.float()
    torch.testing.assert_close(jaccard_loss(sure, labels), 1 - segmentation_scores(given, labels, 3)[0].mean())


def test_bad_labellings_are_refused():
    with pytest.raises(InputError, match="one shape"):
        segmentation_scores(torch.zeros(3), torch.zeros(4), 2)
    with pytest.raises(InputError, match="below 2, got 2"):
        segmentation_scores(torch.full((3,), 2), torch.zeros(3), 2)


ATLAS = Atlas.at([(16, 16), (16, 23)], 12, 9)


@pytest.fixture(scope="module")
def fields():
    """Two smooth fields: background where the first is low, then by the sign of their bracket."""
    k = torch.fft.fftfreq(32)[:, None].square() + torch.fft.rfftfreq(40).square()
    noise = torch.randn(80, 2, 32, 40, generator=stream(0))
    x = torch.fft.irfft2(torch.fft.rfft2(noise) * torch.exp(-170 * k), s=(32, 40))
    x = x / x.std()
    (a, b), (c, d) = ([gradient(x[:, n], axis) for axis in (1, 2)] for n in range(2))
    return x, torch.where(x[:, 0] > 0, torch.where(a * d - b * c > 0, 1, 2), 0)


def test_second_order_learns_a_bracket(fields):
    x, y = fields
    recipe = SecondOrderPredictor(pixels=6000, iterations=40)
    fitted = fit_predictor(x, y, atlas=ATLAS, predictor=recipe)
    patches = ATLAS.input_patches(x[:10])
    out = fitted(patches)
    assert out.shape == (10, 2, 3, 19, 19)
    assert torch.allclose(out.exp().sum(2), torch.ones(()), atol=1e-4)
    assert fitted.skill > 0.6 and fitted.classes == 3
    shuffled = fit_predictor(x, y[torch.randperm(80, generator=stream(1))], atlas=ATLAS, predictor=recipe)
    assert shuffled.skill < 0.2


def test_cgnet(fields):
    x, y = fields
    schedule = Schedule(epochs=1, batch=16, learning_rate=3e-3)
    recipe = CGNetPredictor(widths=(8, 16, 16), blocks=(2, 2), schedule=schedule)
    fitted = fit_predictor(x, y, atlas=ATLAS, predictor=recipe)
    patches = ATLAS.input_patches(x[:4])
    assert fitted(patches).shape == (4, 2, 3, 19, 19) and fitted.reach == 3.0
    again = fit_predictor(x, y, atlas=ATLAS, predictor=recipe)
    assert torch.equal(again(patches), fitted(patches))


def test_the_global_context_reaches_every_pixel():
    made = ChartCGNet(1, 1, 3, (9, 9), widths=(8, 8, 8), blocks=(1, 2), generator=stream(0)).eval()
    x = torch.zeros(1, 1, 1, 65, 65)
    far = x.clone()
    far[..., 0, 0] = 5.0
    assert not torch.allclose(made(x), made(far), atol=1e-7)


@pytest.mark.parametrize("recipe", [SecondOrderPredictor(), CGNetPredictor()])
def test_numbers_are_refused(fields, recipe):
    x, _ = fields
    with pytest.raises(InputError, match="must hold a class for every pixel"):
        fit_predictor(x, x, atlas=ATLAS, predictor=recipe)
