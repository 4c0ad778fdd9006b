"""Standard poses under groups without bound."""

import pytest
import torch
from torch import nn

import atlasd as ad
from atlasd.algebra import known
from atlasd.errors import InputError
from atlasd.nn import canonicalize, field_error, vector
from atlasd.runtime.random import stream

GROUPS = {
    "so(1,1)": (ad.Group(known.so(1, 1)), 5),
    "so(1,3)": (known.lorentz(1), 6),
    "sl(2)": (known.special_linear(2), 6),
    "gl(2)": (known.general_linear_plus(2), 6),
    "sp(4)": (ad.Group(known.sp(4)), 9),
    "so(1,3)+R": (ad.Group(known.so(1, 3).sum(known.scaling(4))), 6),
    "so(3)": (known.special_orthogonal(3), 5),
}


def perceptron(inputs, outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, outputs)).double()


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("conjugated", [False, True])
def test_any_model_becomes_invariant(name, conjugated):
    group, count = GROUPS[name]
    n = group.size
    change = torch.eye(n, dtype=torch.float64) + 0.3 * torch.randn(n, n, generator=stream(1), dtype=torch.float64)
    group = group.conjugate(change) if conjugated else group
    x = torch.randn(32, count, n, generator=stream(0), dtype=torch.float64)
    model, elements = perceptron(count * n), group.sample(4, generator=stream(2), scale=0.8)
    assert float(field_error(model, x, elements).max()) > 0.1
    assert float(field_error(canonicalize(model, group, x), x, elements).max()) < 5e-3


def test_vectors_that_go_out_follow():
    group, x = known.lorentz(1), torch.randn(32, 6, 4, generator=stream(0), dtype=torch.float64)
    even = canonicalize(perceptron(24, 4), group, x, outputs=vector())
    assert float(field_error(even, x, group.sample(4, generator=stream(2)), outputs=vector()).max()) < 1e-6


def test_fields_under_scalings(waves):
    x = waves(4, (33, 33), length=14.0)
    p = torch.arange(33.0) - 16
    x = x * (-(p[:, None] ** 2 + p**2) / 2 / 4**2).exp()
    torch.manual_seed(0)
    model, group = nn.Conv2d(1, 1, 5, padding=2), ad.Group(known.scaling(2))
    sizes = torch.stack([torch.eye(2, dtype=torch.float64) * s for s in (0.85, 1.2)])
    even = canonicalize(model, group, x)
    assert float(field_error(even, x, sizes, radius=12).max()) < 0.2 * float(
        field_error(model, x, sizes, radius=12).min()
    )


def test_shears_have_no_pose():
    shear = ad.Group(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]))
    with pytest.raises(InputError, match="transposes of its elements"):
        canonicalize(nn.Identity(), shear, torch.zeros(4, 3, 2))
