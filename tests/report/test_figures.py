"""Figures are drawn for what there is, and for nothing else."""

from dataclasses import replace

import pytest
import torch

from atlasd.algebra.group import Group
from atlasd.algebra.known import trivial
from atlasd.discovery.result import Verdict
from atlasd.report.figures import (
    draw_charts,
    draw_discovery,
    draw_fields,
    draw_matrices,
    draw_spectrum,
    figure_bytes,
    write_figures,
)


def test_every_figure_is_written_twice(discovery, fields, tmp_path):
    written = write_figures(discovery, tmp_path, fields)
    names = ["generators", "cosets", "spectrum", "charts", "fields", "curves"]
    assert sorted(p.name for p in written) == sorted(f"{n}.{k}" for n in names for k in ("png", "svg"))
    for path in written:
        head = path.read_bytes()[:200]
        assert head.startswith(b"\x89PNG") if path.suffix == ".png" else b"<?xml" in head


def test_figures_of_an_earlier_run_do_not_stay(plain, tmp_path):
    (tmp_path / "curves.png").write_text("old")
    (tmp_path / "own.png").write_text("not ours")
    write_figures(plain, tmp_path)
    assert {p.stem for p in tmp_path.iterdir()} == {"generators", "cosets", "own"}


def test_nothing_found_still_draws(plain):
    nothing = replace(plain, group=Group(trivial(2)), verdict=Verdict(False, "Cannot tell: too few samples."))
    figures = draw_discovery(nothing)
    assert set(figures) == {"cosets"}
    assert figures["cosets"].get_suptitle() == "Cannot tell: only the identity is certain"


def test_svg_is_reproducible(plain):
    first, second = (figure_bytes(draw_discovery(plain)["cosets"], "svg") for _ in range(2))
    assert first == second


@pytest.mark.parametrize("count, n", [(1, 2), (7, 2), (40, 2), (6, 4)])
def test_matrices_of_any_number_and_size(count, n):
    figure = draw_matrices(torch.randn(count, n, n), [str(k) for k in range(count)], "heading")
    assert len(figure.axes) == min(count, 32)
    texts = [t.get_text() for t in figure.axes[0].texts]
    assert len(texts) == n * n and all(len(t.split(".")[1]) == 2 for t in texts)


def test_minus_zero_is_zero():
    figure = draw_matrices(torch.full((1, 1, 1), -1e-9), ["a"])
    assert figure.axes[0].texts[0].get_text() == "0.00"


def test_spectrum_shows_null_level_and_tolerance():
    axes = draw_spectrum([0.0, 1e-4, float("nan"), 4.0], tolerance=0.2).axes[0]
    assert axes.get_yscale() == "log"
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["null level", "tolerance 20 %"]
    # Squares become amplitudes, in per cent.
    below, above = (axes.collections[k].get_offsets()[:, 1] for k in (1, 2))
    assert below[1] == pytest.approx(1.0) and above[1] == pytest.approx(200.0)


def test_titles_have_what_was_measured(discovery):
    nan = float("nan")
    lost = replace(discovery.verdict.directions[0], strength=nan, lower=nan, upper=nan)
    drawn = draw_discovery(replace(discovery, verdict=replace(discovery.verdict, directions=(lost,))))
    titles = [axes.get_title() for name in ("generators", "cosets") for axes in drawn[name].axes]
    assert titles == ["generator 1", "coset 1", "coset 2, breaking 0.0 %"]
    assert draw_discovery(discovery)["generators"].axes[0].get_title() == "generator 1, breaking 3.1 %"


def test_outliers_are_marked(discovery, fields):
    axes = draw_charts(discovery.charts, fields["input"][0], [14, 10]).axes[0]
    assert [line.get_marker() for line in axes.lines] == ["o", "x", "o"]
    assert "1 outlier chart (" in axes.get_title()
    assert len(axes.patches) == 6


def test_each_field_has_its_own_range():
    fields = {"input": torch.tensor([[[0.0, 1.0], [2.0, 3.0]]]), "output": torch.tensor([[[700.0, 701.0]]])}
    images = [axes.images[0] for axes in draw_fields(fields).axes if axes.images]
    assert [image.get_clim() for image in images] == [(0.0, 3.0), (700.0, 701.0)]
    assert draw_fields({}) is None and draw_fields({"input": torch.zeros(1, 2, 2, 2)}) is None


@pytest.mark.parametrize("up, way", [(None, "down"), (1.0, "up"), (-1.0, "up")])
def test_arrows_point_as_the_vectors_do(up, way):
    """Components along rows point to growing row numbers, or to the north, which is drawn up."""
    field = torch.zeros(2, 6, 6)
    field[1] = 2.0
    fields = {"input": field, "input_vectors": torch.tensor([[0, 1]])}
    figure = draw_fields(fields if up is None else fields | {"rows_up": torch.tensor(up)})
    axes, arrows = figure.axes[0], figure.axes[0].collections[0]
    figure.draw_without_rendering()
    assert axes.get_title().startswith("input, length of the vector") and ("north" in axes.get_title()) == bool(up)
    corners = arrows.get_paths()[0].vertices[:, 1]  # on the screen, upwards; the fourth is the tip
    assert (corners[3] > corners[0]) == (way == "up")
