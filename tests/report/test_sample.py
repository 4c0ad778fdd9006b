"""One sample on the page: its own range of colours, arrows of vectors, north up."""

import re

import torch

from atlasd.report.pictures import sample_block


def test_each_field_has_its_own_range():
    block = sample_block({"input": torch.tensor([[[0.0, 1.0], [2.0, 3.0]]]), "output": torch.full((1, 2, 2), 700.0)})
    assert "0 (dark) to 3 (bright)" in block and "700 (dark)" in block and "north" not in block
    assert sample_block({}) == "" and sample_block({"input": torch.zeros(1, 2, 2, 2)}) == ""


def test_arrows_point_as_the_vectors_do():
    field = torch.zeros(2, 6, 6)
    field[0] = 2.0
    fields = {"input": field, "input_vectors": torch.tensor([[0, 1]])}
    east = sample_block(fields)
    assert "length of the vector, 2 (dark)" in east
    x0, y0, x1, y1 = map(float, re.search(r"M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)", east).groups())
    assert x1 > x0 and y0 == y1
    field = field.flip(0)
    down = sample_block(fields | {"input": field})
    up = sample_block(fields | {"input": field, "rows_up": torch.tensor(-1.0)})
    heads = [tuple(map(float, re.search(r"M[\d.]+ ([\d.]+)L[\d.]+ ([\d.]+)", b).groups())) for b in (down, up)]
    assert heads[0][0] < heads[0][1] and heads[1][0] > heads[1][1] and "north is up" in up


def test_north_is_up_where_rows_grow_to_the_north():
    block = sample_block({"input": torch.rand(1, 4, 6), "rows_up": torch.tensor(1.0)})
    assert "matrix(1 0 0 -1 0 4)" in block and "viewBox='0 0 6 4'" in block
