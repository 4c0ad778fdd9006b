"""Fields as mixtures of a few: read as the fields themselves are, and left as they are where few do not suffice."""

import pytest
import torch

from atlasd.geometry.spans import FieldSpan, frame_of, span_of
from atlasd.geometry.splines import FieldSpline


def fields(rank: int, *lead: int, space=(9, 8)) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(rank, *space, generator=generator)
    return torch.tensordot(torch.randn(*lead, rank, generator=generator), basis, 1)


@pytest.mark.parametrize("space", [(9, 8), (6, 5, 7)])
def test_mixtures_are_read_as_the_fields_themselves(space):
    x = fields(4, 20, 3, 2, space=space)
    span, spline = span_of(FieldSpline(x, len(space))), FieldSpline(x, len(space))
    assert isinstance(span, FieldSpan) and span.mixture.shape == (20, 3, 2, 4)
    points = 1 + 3 * torch.rand(5, 1, 1, 11, len(space), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(span.at(points), spline.at(points), atol=2e-4, rtol=1e-4)
    # Where points differ from chart to chart, the fields themselves are read.
    apart = points.expand(-1, 1, 3, -1, -1)
    torch.testing.assert_close(span.at(apart), spline.at(apart))


def test_fields_that_are_no_mixtures_of_few_stay():
    x = fields(60, 20, 1, 1)
    assert isinstance(span_of(FieldSpline(x)), FieldSpline)


def test_frame_leaves_out_less_than_interpolation_does():
    rows = fields(5, 200).flatten(1).double() + 1e-3 * fields(40, 200).flatten(1).double()
    frame = frame_of(rows, 60)
    assert frame is not None and frame.shape[1] <= 45
    left = rows - rows @ frame @ frame.mT
    assert left.norm() <= 1.01e-5 * rows.norm()
    assert frame_of(rows, 20) is None
