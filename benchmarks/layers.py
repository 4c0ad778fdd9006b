"""What the layers of `atlasd.nn` are worth, over several seeds.

    python benchmarks/layers.py planes     # equivariance of random networks on the plane
    python benchmarks/layers.py least      # the least change under rotations that any kernel of 5 x 5 pixels can have
    python benchmarks/layers.py tensors    # numbers of maps between tensors, with noise in the algebra
    python benchmarks/layers.py vectors    # three 4-vectors to a number, group discovered, against perceptrons
    python benchmarks/layers.py fields     # anisotropic reaction-diffusion, group discovered, against plain networks
    python benchmarks/layers.py rates      # chooses the rates of training of `fields`, on seeds 101 and 102
    python benchmarks/layers.py refusals   # models and algebras that must be refused
    python benchmarks/layers.py memory     # of one layer on regular icosahedral fields, forward and backward

Without a name all but `rates` are run. Settings were chosen on seeds from 100 on; the figures are for seeds 0, 1, ...
"""

import argparse
import resource
import time
from itertools import pairwise
from statistics import fmean

import torch
from scipy.linalg import eigh
from torch import nn

import atlasd as ad
from atlasd.errors import InputError
from atlasd.geometry.resample import pixel_grid
from atlasd.nn import (
    AtlasGNN,
    EquivariantMLP,
    FieldNetwork,
    GroupActivation,
    GroupBatchNorm2d,
    GroupConv2d,
    HexConv,
    field_error,
    icosahedral_grid,
    network,
    scalar,
    vector,
)
from atlasd.nn.groups import invariant_form
from atlasd.nn.intertwiners import Intertwiners
from atlasd.nn.pixel_correction import breaking
from atlasd.nn.representations import resolve
from atlasd.runtime.random import stream

SO2, O2 = ad.known.special_orthogonal(2), ad.known.orthogonal(2)
SHEAR = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)


def conjugated(group, change):
    back = torch.linalg.inv(change)
    return ad.Group(change @ group.algebra.basis @ back, change @ group.cosets @ back)


def waves(samples, size, seed, shortest=12.0, change=None):
    """Sums of six plane waves in random directions, `(N, 1, size, size)`, of one to two times the shortest length.

    With a change of coordinates of determinant 1, lengths are those before it: what a conjugated group turns into each
    other are then waves of the same length.
    """
    generator = stream(seed, "waves")
    direction = torch.randn(samples, 6, 2, generator=generator, dtype=torch.float64)
    length = shortest * (1 + torch.rand(samples, 6, 1, generator=generator, dtype=torch.float64))
    phase = 2 * torch.pi * torch.rand(samples, 6, 1, generator=generator, dtype=torch.float64)
    k = 2 * torch.pi * direction / direction.norm(dim=-1, keepdim=True) / length
    k = k if change is None else k @ torch.linalg.inv(change)
    field = (k @ pixel_grid((size, size), dtype=torch.float64).mT + phase).cos().sum(1) / 6**0.5
    return field.reshape(samples, 1, size, size).float()


def random_network(group, kind, seed, activation, smooth=False):
    """Three 5 x 5 layers of four hidden fields with batch norm that has seen smooth fields, to three scalars."""
    kind = resolve(kind, group)
    width, options = 4 * kind.size, {"group": group, "smooth": smooth, "generator": stream(seed, "network")}
    layers, field = [], {"group": group, "field_type": kind}
    for k in range(3):
        ends = (1 if k == 0 else width, 3 if k == 2 else width)
        types = {"in_type": "trivial" if k == 0 else kind, "out_type": "trivial" if k == 2 else kind}
        layers.append(GroupConv2d(*ends, 5, padding=2, **types, **options))
        if k < 2:
            layers += [GroupActivation(width, activation=activation(), **field), GroupBatchNorm2d(width, **field)]
    built = nn.Sequential(*layers)
    with torch.no_grad():
        for s in range(20):
            built(waves(4, 33, 1000 * (seed + 1) + s))
    return built.eval()


def planes(seeds, first=0):
    turns = SO2.algebra.exp(torch.tensor([[0.3], [torch.pi / 4], [1.0], [2.2]], dtype=torch.float64))
    sheared, sheared_turns = conjugated(SO2, SHEAR), SHEAR @ turns @ torch.linalg.inv(SHEAR)
    c4, d4, c8 = ad.known.cyclic(4), ad.known.dihedral(4), ad.known.cyclic(8)
    # Group, fields, elements, coordinates of the waves, precision.
    rows = {
        "C4": (c4, "regular", c4.cosets[1:], None, torch.float32),
        "C4, double": (c4, "regular", c4.cosets[1:], None, torch.float64),
        "D4": (d4, "regular", d4.cosets[1:], None, torch.float32),
        "D4, double": (d4, "regular", d4.cosets[1:], None, torch.float64),
        "C8": (c8, "regular", c8.cosets[1:], None, torch.float32),
        "SO(2)": (SO2, "circle(2)", turns, None, torch.float32),
        "O(2)": (O2, "circle(2)", torch.cat([turns, O2.cosets[1] @ turns]), None, torch.float32),
        "sheared SO(2)": (sheared, "circle(2)", sheared_turns, SHEAR, torch.float32),
        "  waves not sheared": (sheared, "circle(2)", sheared_turns, None, torch.float32),
        "plain": (ad.known.cyclic(1), "trivial", turns, None, torch.float32),
    }
    for activation, smooth in ((nn.SiLU, True), (nn.SiLU, False), (nn.ReLU, False)):
        for shortest in (12.0, 24.0):
            words = f"random networks, {activation.__name__}, {'kernels for smooth fields' if smooth else 'rings'}"
            print(f"{words}, waves of {shortest:.0f} to {2 * shortest:.0f} pixels")
            for name, (group, kind, elements, change, precision) in rows.items():
                errors = []
                for seed in range(first, first + seeds):
                    x = waves(4, 61, seed, shortest, change).to(precision)
                    built = random_network(group, kind, seed, activation, smooth).to(precision)
                    errors.append(float(field_error(built, x, elements, radius=14).square().mean().sqrt()))
                print(f"  {name:20} {kind:10} mean {fmean(errors):.2e}  largest {max(errors):.2e}", flush=True)


def least(seeds, first=0):
    """Relative change of the response to smooth fields under a unit generator, of the best kernels between scalars."""
    nothing = [torch.zeros(1, 1, dtype=torch.float64)]  # scalars do not mix
    for name, group in (("SO(2)", SO2), ("sheared SO(2)", conjugated(SO2, SHEAR))):
        forms = breaking(group, (5, 5), nothing, [], 1, invariant_form(group))
        squares = eigh(forms.change.numpy(), forms.response.numpy(), eigvals_only=True, subset_by_index=[0, 3])
        print(f"  {name}: " + ", ".join(f"{max(v, 0.0) ** 0.5:.1e}" for v in squares))


def two_circles():
    basis = torch.zeros(2, 4, 4)
    basis[0, 0, 1], basis[0, 1, 0], basis[1, 2, 3], basis[1, 3, 2] = -1, 1, -1, 1
    return ad.LieAlgebra(basis)


def tensors(seeds, first=0):
    k = ad.known
    algebras = (k.so(3), k.so(1, 3), k.sp(4), k.sl(2), two_circles(), k.gl(2))
    print("maps from T2 to T2; noise in the entries of unit generators, coordinates of condition up to 5")
    for algebra, exact in zip(algebras, (3, 4, 3, 2, 36, 2), strict=True):
        name = ad.identify(algebra).name
        for noise in (0.0, 0.01, 0.03):
            right, seconds = 0, []
            for seed in range(first, first + seeds):
                generator, n = stream(seed, "noise"), algebra.size
                u, _, v = torch.linalg.svd(torch.randn(n, n, generator=generator, dtype=torch.float64))
                change = u @ torch.diag(torch.logspace(0, 0.7, n, dtype=torch.float64)) @ v
                basis = algebra.conjugate(change).frame()
                basis = basis + noise * torch.randn(basis.shape, generator=generator, dtype=torch.float64)
                start = time.process_time()
                found = Intertwiners(ad.Group(basis)).between((2, 0), (2, 0))
                seconds.append(time.process_time() - start)
                right += len(found.basis) == exact
            print(
                f"  {name:12} noise {noise:.0%}: {right} of {seeds} have {exact}, {max(seconds):.3f} s at most",
                flush=True,
            )


def momenta(kind, count, seed):
    """Three 4-vectors and a smooth function of their products in the form of Minkowski or a symplectic one."""
    x = torch.randn(count, 3, 4, generator=stream(seed, "momenta", kind))
    form = torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0]))
    if kind == "sp(4)":
        form = torch.zeros(4, 4)
        form[:2, 2:], form[2:, :2] = torch.eye(2), -torch.eye(2)
    p = torch.einsum("bia,ac,bjc->bij", x, form, x)
    a, b, c = p[:, 0, 1], p[:, 1, 2], p[:, 0, 2] if kind == "sp(4)" else p[:, 2, 2]
    return x, a + (b + c) / 2 + torch.tanh(a) / 2


def train(model, x, y, *, epochs, rate, batch, seed, decay=1e-4):
    """AdamW on a one-cycle schedule; the same for all."""
    optimiser = torch.optim.AdamW(model.parameters(), rate, weight_decay=decay)
    steps = epochs * -(-len(x) // batch)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.2)
    generator = stream(seed, "order")
    for _ in range(epochs):
        for part in torch.randperm(len(x), generator=generator).split(batch):
            optimiser.zero_grad()
            (model(x[part]).reshape(y[part].shape) - y[part]).square().mean().backward()
            optimiser.step()
            cycle.step()
    return model.eval()


def weights(model):
    return sum(p.numel() for p in model.parameters())


def relative(model, x, y):
    with torch.no_grad():
        return float((model(x).reshape(y.shape) - y).square().mean().sqrt() / y.std())


def perceptron(inputs, width, seed):
    torch.manual_seed(seed)
    sizes = [inputs, width, width]
    layers = [nn.Flatten()]
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def vectors(seeds, first=0, epochs=150):
    for kind, exact in (("so(1,3)", ad.Group(ad.known.so(1, 3))), ("sp(4)", ad.Group(ad.known.sp(4)))):
        print(f"three 4-vectors to a number, {kind}, 2,000 samples; root-mean-square error over spread")
        for seed in range(first, first + seeds):
            x, y = momenta(kind, 2000, seed)
            x_test, y_test = momenta(kind, 4000, seed + 1000)
            start = time.process_time()
            found = ad.discover(x, y, seed=seed, progress=False, cosets=False)
            seconds = time.process_time() - start
            built = {"MLP, same width": perceptron(12, 64, seed)}
            built["exact"] = network(exact, x, y, adapt=False, generator=stream(seed, "weights"))
            try:
                built["discovered"] = network(found, x, y, generator=stream(seed, "weights"))
            except InputError as error:
                print(f"    {error}")
            built["MLP, same weights"] = perceptron(12, _width(weights(built["exact"])), seed)
            errors = {}
            for name, model in built.items():
                train(model, x, y, epochs=epochs, rate=5e-3, batch=50, seed=seed)
                errors[name] = relative(model, x_test, y_test)
            text = ", ".join(f"{name} {error:.4f} ({weights(built[name])})" for name, error in errors.items())
            off = found.algebra.distance(exact.algebra)
            print(f"  seed {seed}: found {found.group.name}, {off:.4f} off, {seconds:.0f} s; {text}", flush=True)


def _width(count):
    """Width of a perceptron of two hidden layers with about so many weights."""
    return next(w for w in range(1, 999) if 14 * w + w * w + w + 1 >= count)


TENSOR = SHEAR @ SHEAR.mT
"""Diffusion tensor whose isotropy group is SO(2) in sheared coordinates."""


def reaction_diffusion(count, seed, size=64, steps=24, dt=0.08):
    r"""Fields and what :math:`u_t = \nabla \cdot D \nabla u + (u - u^3) / 2` makes of them, on a torus."""
    generator = stream(seed, "reaction")
    k = torch.fft.fftfreq(size, dtype=torch.float64) * 2 * torch.pi
    waves_ = torch.stack(torch.meshgrid(k, k, indexing="ij"), -1)
    noise = torch.randn(count, size, size, generator=generator, dtype=torch.float64)
    smooth = torch.fft.ifft2(torch.fft.fft2(noise) * (-(waves_.square().sum(-1)) / 2 / 0.35**2).exp()).real
    u = (smooth / smooth.std((1, 2), keepdim=True)).tanh()
    x = u.clone()
    decay = (-dt * torch.einsum("xya,ab,xyb->xy", waves_, TENSOR, waves_)).exp()
    for _ in range(steps):
        u = u + dt / 2 * (u - u**3)
        u = torch.fft.ifft2(torch.fft.fft2(u) * decay).real
    return x.unsqueeze(1).float(), u.unsqueeze(1).float()


# For each the best in the mean of seeds 101 and 102 (`python benchmarks/layers.py rates`).
RATES = {"discovered": 4e-2, "plain, same width": 5e-3, "plain, same weights": 2e-2}


def fields(seeds, first=0, rates=RATES, epochs=10, width=20, samples=100):
    atlas = ad.Atlas.at([(20, 20), (20, 43), (43, 20), (43, 43)], in_radius=12, out_radius=6)
    truth = conjugated(SO2, SHEAR)
    print(f"anisotropic reaction-diffusion, 64 x 64, {samples} samples; root-mean-square error over spread")
    totals = {}
    for seed in range(first, first + seeds):
        x, y = reaction_diffusion(samples, seed)
        x_test, y_test = reaction_diffusion(50, seed + 1000)
        start = time.process_time()
        found = ad.discover(x, y, atlas=atlas, seed=seed, progress=False)
        seconds = time.process_time() - start
        options = {"padding_mode": "circular"}
        built = {}
        try:
            built["discovered"] = network(found, x, y, width=width, generator=stream(seed, "weights"), **options)
        except InputError as error:
            print(f"    {error}")
            continue
        built["plain, same width"] = FieldNetwork(1, 1, group=ad.known.cyclic(1), width=width, **options)
        narrow = min(range(1, width), key=lambda w: abs(50 * w + 25 * w * w - weights(built["discovered"])))
        built["plain, same weights"] = FieldNetwork(1, 1, group=ad.known.cyclic(1), width=narrow, **options)
        errors = {}
        for name, model in built.items():
            if name.startswith("plain"):
                for layer in model.modules():
                    if isinstance(layer, GroupConv2d):
                        layer.reset_parameters(stream(seed, "weights", name))
                model.standardise(x, y)
            train(model, x, y, epochs=epochs, rate=rates[name], batch=2, seed=seed)
            errors[name] = relative(model, x_test, y_test)
            totals.setdefault(name, []).append(errors[name])
        text = ", ".join(f"{name} {error:.4f} ({weights(built[name])})" for name, error in errors.items())
        off = found.algebra.distance(truth.algebra)
        print(f"  seed {seed}: found {found.group.name}, {off:.4f} off, {seconds:.0f} s; {text}", flush=True)
    print("  mean: " + ", ".join(f"{name} {fmean(values):.4f}" for name, values in totals.items()))


def rates(seeds, first=0):
    """Every network at six rates; `seeds` and `first` are not heeded, so that no reported seed can choose."""
    for rate in (2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 8e-2):
        print(f"rate {rate}")
        fields(2, 101, dict.fromkeys(RATES, rate))


def refusals(seeds, first=0):
    """The models of part 8 that passed and should not."""
    x, c4 = torch.randn(64, 1, 5, 5, generator=stream(0, "refusals")), ad.known.cyclic(4)
    models = {
        "spread about a global mean": lambda x: torch.stack([x[:, 0, 0, 0], 1e5 + x[:, 0, 0, 1]], 1),
        "constant": lambda x: torch.ones(len(x), 2),
    }
    for name, model in models.items():
        try:
            ad.assert_equivariant(model, c4, x)
            print(f"  {name}: passes")
        except AssertionError as error:
            print(f"  {name}: {error}")
    scaled = ad.known.so(1, 3).sum(ad.known.scaling(4))
    for name, algebra in (("sl(3)", ad.known.sl(3)), ("so(1,3)+R", scaled), ("two circles", two_circles())):
        try:
            AtlasGNN(algebra)
            print(f"  AtlasGNN({name}): built")
        except InputError as error:
            print(f"  AtlasGNN({name}): {error}")
    try:
        EquivariantMLP(ad.known.gl(2), 2 * vector(), scalar())
    except InputError as error:
        print(f"  EquivariantMLP(gl(2)): {error}")


def memory(seeds, first=0):
    """Peak memory beyond that of the inputs, in a process that has run the layer on a small grid before."""

    def once(resolution, batch, channels):
        grid = icosahedral_grid(resolution)
        layer = HexConv(channels, channels, resolution=resolution, in_field="regular", out_field="regular")
        x = torch.randn(batch, channels, 6, len(grid), generator=stream(first, "memory")).requires_grad_()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        layer(x).sum().backward()
        return x.numel() * 4 / 2**20, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024

    once(3, 1, 2)
    size, peak = once(6, 4, 16)
    print(f"regular icosahedral layer, fields of {size:.0f} MB: {peak:.0f} MB beyond the inputs")


if __name__ == "__main__":
    runs = {"planes": planes, "least": least, "tensors": tensors, "vectors": vectors, "fields": fields, "rates": rates}
    runs |= {"refusals": refusals, "memory": memory}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(runs))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.names or [name for name in runs if name != "rates"]:
        runs[name](given.seeds, given.first)
