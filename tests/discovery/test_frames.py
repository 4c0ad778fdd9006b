"""Frames: a symmetry keeps the two sides together, a motion that is none takes them apart."""

import pytest
import torch

import atlasd as ad
from atlasd.discovery.frames import OUTSIDE, STEPS, Frames, Picture, _contrasts
from atlasd.errors import DataError


@pytest.fixture(scope="module")
def field_found(waves):
    """A blur with a round kernel: O(2)."""
    x = waves(40, (31, 31), length=9.0)
    p = torch.arange(-3.0, 4.0)
    kernel = torch.exp(-(p[:, None].square() + p[None].square()) / 4)[None, None]
    atlas = ad.Atlas.at([(15, 15)], in_radius=12, out_radius=8)

    def blur(u):
        return torch.nn.functional.conv2d(u, kernel / kernel.sum(), padding=3)

    return ad.discover(x, function=blur, atlas=atlas, progress=False)


@pytest.fixture(scope="module")
def vector_found(exact):
    return ad.discover(exact.normal(300, 2), function=lambda x: x.norm(dim=-1), progress=False)


def share(track):
    """Difference over chance where the motion is large."""
    large = track.t.abs() > 0.5
    return float(track.residual[large].nansum() / track.null[large].nansum())


def test_fields(field_found):
    frames = field_found.frames
    assert field_found.group.name == "O(2)"
    assert [t.name for t in frames.tracks] == ["generator 1", "elements", "contrast scaling"]
    turn, elements, control = frames.tracks
    assert len(turn.t) == STEPS and len(elements.t) == 2
    assert share(turn) < 0.02 and float(elements.residual[1] / elements.null[1]) < 0.02
    assert share(control) > 0.3  # the negative control
    assert frames.shape == (31, 31) and frames.radii == (12.0, 8.0) and frames.field.levels.shape == (31, 31)
    shapes = {name: tuple(picture.levels.shape) for name, picture in turn.pictures.items()}
    assert shapes["input"] == (STEPS, 25, 25) and shapes["left"] == shapes["difference"]


def test_difference_is_empty_for_the_symmetry_only(field_found):
    turn, _, control = field_found.frames.tracks

    def worst(track):
        levels = track.pictures["difference"].levels.int()
        return int((levels[levels != OUTSIDE] - 127).abs().max())

    assert worst(turn) <= 6 < 25 < worst(control)
    assert (turn.pictures["difference"].levels == OUTSIDE).any()


def test_vectors(vector_found):
    turn, _, control = vector_found.frames.tracks
    assert share(turn) < 1e-6 and share(control) > 0.3
    assert torch.allclose(turn.points["left"], turn.points["right"], atol=1e-5)
    assert not torch.allclose(control.points["left"], control.points["right"], atol=0.1)
    assert turn.points["input"].shape == (STEPS, 48, 2) and turn.axes == (0, 1)
    assert vector_found.frames.field is None and vector_found.frames.shape == ()


def test_nothing_to_move_where_nothing_can_be_said(exact):
    found = ad.discover(exact.normal(60, 2), function=lambda x: 0 * x[:, 0], progress=False)
    assert found.frames.tracks == ()


def test_sets_and_single_numbers(exact):
    sets = ad.discover(
        exact.normal(400, 6).reshape(400, 2, 3), function=lambda x: x.sum(1).norm(dim=-1), progress=False
    )
    assert sets.frames.tracks[0].points["input"].shape == (STEPS, 48, 2)
    line = ad.discover(exact.normal(200, 1), function=lambda x: x[:, 0].square(), progress=False)
    assert len(line.cosets) == 2 and line.frames.tracks[0].name == "elements" and line.frames.tracks[0].axes == (0, 0)


def test_contrast_lies_outside_the_algebra():
    assert [name for name, _ in _contrasts(ad.known.so(2).basis)] == ["scaling"]
    assert [name for name, _ in _contrasts(torch.zeros(0, 2, 2, dtype=torch.float64))] == ["scaling", "rotation"]
    assert _contrasts(ad.known.gl(2).basis) == []


def test_round_trip(field_found, vector_found, tmp_path):
    for found in (field_found, vector_found):
        again = ad.load(found.save(tmp_path / "run")).frames
        one, two = found.frames.tensors(), again.tensors()
        assert one.keys() == two.keys()
        assert all(torch.equal(one[k].nan_to_num(), two[k].nan_to_num()) for k in one)


def test_damaged_frames_are_said_and_can_be_done_without(vector_found, tmp_path):
    run = vector_found.save(tmp_path / "run")
    (run / "frames.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="remove it to do without its pictures"):
        ad.load(run)
    (run / "frames.safetensors").unlink()
    assert ad.load(run).frames is None and ad.load(run).group.name == "O(2)"


def test_levels():
    picture = Picture.of(torch.tensor([[-5.0, 0.0, 5.0, float("nan")]]), -1.0, 1.0)
    assert picture.levels.tolist() == [[0, 127, 254, OUTSIDE]]
    flat = Picture.of(torch.full((2, 2), float("nan")))
    assert (flat.levels == OUTSIDE).all() and Frames().tensors().keys() == {"shape", "radii", "chart", "places"}
