"""The same arrays from every format, read in part, with the names of their axes."""

import gzip

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import xarray
import zarr
from scipy.stats import norm

from atlasd.data.arrays import Cleaning, Mixing, find_pairs, read_own
from atlasd.data.cleaning import standardise
from atlasd.data.files import find_variable, open_data
from atlasd.data.variables import choose
from atlasd.errors import InputError


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


X = normal(60, 2, 10, 12).astype("float32")
Y = (X**2).sum(1, keepdims=True)
V = np.round(normal(50, 3), 4)
M = (V**2).sum(-1)
DIMS = ("time", "channel", "lat", "lon")


def write_npz(path):
    np.savez(path / "d.npz", x=X, y=Y)
    return [path / "d.npz"]


def write_pair(path):
    np.save(path / "x.npy", X)
    np.save(path / "y.npy", Y)
    return [path / "x.npy", path / "y.npy"]


def write_hdf5(path):
    with h5py.File(path / "d.h5", "w") as file:
        file["x"], file["y"] = X, Y
    return [path / "d.h5"]


def dataset():
    later = DIMS[2:] + DIMS[:2]  # samples last, as some models write them
    x = xarray.DataArray(X, dims=DIMS).transpose(*later)
    return xarray.Dataset({"x": x, "y": xarray.DataArray(Y[:, 0], dims=("time", "lat", "lon"))})


def write_netcdf(path):
    dataset().to_netcdf(path / "d.nc", engine="h5netcdf")
    return [path / "d.nc"]


def write_old_netcdf(path):
    dataset().to_netcdf(path / "d.nc", engine="scipy")
    return [path / "d.nc"]


def write_zarr(path):
    dataset().to_zarr(path / "d.zarr", consolidated=False)
    return [path / "d.zarr"]


def write_plain_zarr(path):
    group = zarr.open_group(str(path / "d.zarr"), mode="w")
    group.create_array("x", data=X)
    group.create_array("y", data=Y)
    return [path / "d.zarr"]


FIELDS = (
    write_npz, write_pair, write_hdf5, write_netcdf, write_old_netcdf, write_zarr, write_plain_zarr,
)  # fmt: skip


@pytest.mark.parametrize("write", FIELDS, ids=lambda f: f.__name__)
def test_fields_are_the_same_from_every_format(write, tmp_path):
    files = [open_data(path) for path in write(tmp_path)]
    data = read_own(choose(files), Cleaning())
    assert np.array_equal(data.x.numpy(), X) and np.allclose(data.y.numpy(), Y) and data.is_field
    half = read_own(choose(files), Cleaning(samples=30))
    assert np.array_equal(half.x.numpy(), X[::2]) and half.notes == ("every 2nd of 60 samples is used",)


def test_fields_in_space_without_an_axis_of_channels(tmp_path):
    x = np.random.default_rng(0).standard_normal((20, 17, 18, 19)).astype("f4")
    np.savez(tmp_path / "d.npz", x=x, y=2 * x)
    data = read_own(choose([open_data(tmp_path / "d.npz")]), Cleaning())
    assert data.x.shape == data.y.shape == (20, 1, 17, 18, 19)


def write_csv(path):
    lines = ["a,b,c,name,mass", *(f"{a},{b},{c},mu,{m}" for (a, b, c), m in zip(V.tolist(), M.tolist(), strict=True))]
    (path / "d.csv").write_text("\n".join(lines) + "\n")
    return path / "d.csv"


def write_spaced(path):
    lines = ["# a b c mass", *(f"{a} {b} {c} {m}" for (a, b, c), m in zip(V.tolist(), M.tolist(), strict=True))]
    (path / "d.txt").write_text("\n".join(lines) + "\n")
    return path / "d.txt"


def write_gzip(path):
    (path / "d.csv.gz").write_bytes(gzip.compress(write_csv(path).read_bytes()))
    return path / "d.csv.gz"


def write_parquet(path):
    columns = {**{n: V[:, k] for k, n in enumerate("abc")}, "name": ["mu"] * len(V), "mass": M}
    pyarrow.parquet.write_table(pyarrow.table(columns), path / "d.parquet")
    return path / "d.parquet"


@pytest.mark.parametrize("write", [write_csv, write_spaced, write_gzip, write_parquet], ids=lambda f: f.__name__)
def test_tables_are_the_same_from_every_format(write, tmp_path):
    choice = choose([open_data(write(tmp_path))])
    data = read_own(choice, Cleaning(task="values"))
    assert np.allclose(data.x.numpy(), V, atol=1e-6) and np.allclose(data.y.numpy(), M, atol=1e-5)
    assert choice.guessed == {"--target": "mass", "--input": "a,b,c"} and not data.is_field
    tokens = choose([open_data(write(tmp_path))], tokens="a,b;b,c")
    assert read_own(tokens, Cleaning()).x.shape == (50, 2, 2)


def test_momenta_are_found_by_name(tmp_path):
    names = [f"{n}{k}" for k in (1, 2) for n in ("E", "px", "py", "pz", "Q")]
    rows = [",".join(f"{v:.4f}" for v in row) for row in normal(40, 11)]
    (tmp_path / "d.csv").write_text(",".join([*names, "M"]) + "\n" + "\n".join(rows) + "\n")
    choice = choose([open_data(tmp_path / "d.csv")])
    assert choice.tokens == (("E1", "px1", "py1", "pz1"), ("E2", "px2", "py2", "pz2"))


@pytest.mark.parametrize(
    ("names", "inputs", "targets"),
    [
        ("x y px py x_next y_next px_next py_next", "x,y,px,py", "x_next,y_next,px_next,py_next"),
        ("next_q p next_p q", "p,q", "next_p,next_q"),
        ("x y vx vy energy", None, None),  # y is a coordinate: which column is the target has to be said
        ("x y z height", None, None),
        ("x y z mass", "x,y,z", "mass"),
        ("a b y", "a,b", "y"),
    ],
)
def test_which_columns_are_the_target_is_seen_in_their_names(names, inputs, targets, tmp_path):
    rows = [",".join(f"{v:.4f}" for v in row) for row in normal(40, len(names.split()))]
    (tmp_path / "d.csv").write_text(",".join(names.split()) + "\n" + "\n".join(rows) + "\n")
    files = [open_data(tmp_path / "d.csv")]
    if inputs is None:
        with pytest.raises(InputError, match="--target must be named"):
            choose(files)
    else:
        assert choose(files).guessed == {"--target": targets, "--input": inputs}


def test_channels_last_and_bytes(tmp_path):
    images = (norm.cdf(normal(30, 16, 16, 3)) * 255).astype("uint8")
    np.savez(tmp_path / "d.npz", image=images, label=(images[..., 0] > 99))
    data = read_own(choose([open_data(tmp_path / "d.npz")]), Cleaning())
    assert data.x.shape == (30, 3, 16, 16) and data.x.is_floating_point()
    assert data.classes and data.y.shape == (30, 1, 16, 16) and data.notes == ("label is taken as 2 classes",)


def test_later_samples_as_target(tmp_path):
    np.savez(tmp_path / "d.npz", state=X)
    data = read_own(choose([open_data(tmp_path / "d.npz")], ahead=2), Cleaning(ahead=2))
    assert np.array_equal(data.x.numpy(), X[:-2]) and np.array_equal(data.y.numpy(), X[2:])


def test_missing_values(tmp_path):
    holes, land = X.copy(), Y.copy()
    holes[3, 1, 4, 5] = np.nan
    land[:, :, :2, :3] = np.nan
    np.savez(tmp_path / "d.npz", x=holes, y=land)
    choice = choose([open_data(tmp_path / "d.npz")])
    with pytest.raises(InputError, match=r"'x' must be finite.*--nan mask"):
        read_own(choice, Cleaning())
    data = read_own(choice, Cleaning(nan="mask"))
    assert data.masked.sum() == 6 and data.masked[:2, :3].all() and len(data.x) == 59
    assert data.x.isfinite().all() and data.y.isfinite().all()
    assert data.notes[0] == (
        "6 of 120 pixels are missing and masked; 1 of 60 samples have missing values and are left out"
    )


def test_few_copies_are_dropped_and_counted(tmp_path):
    x = np.concatenate([normal(200, 3), V[:1], V[:1]])
    np.savez(tmp_path / "d.npz", x=x, y=x.sum(1))
    data = read_own(choose([open_data(tmp_path / "d.npz")]), Cleaning())
    assert len(data.x) == 201 and data.notes == ("1 copies are left out",)


def test_north_first_is_noticed(tmp_path):
    coordinates = {"lat": np.linspace(10, -10, 10)}
    dims = ("time", "lat", "lon")
    xarray.Dataset({"u": (dims, X[:, 0]), "v": (dims, X[:, 1]), "y": (dims, Y[:, 0])}, coordinates).to_netcdf(
        tmp_path / "d.nc", engine="h5netcdf"
    )
    data = read_own(choose([open_data(tmp_path / "d.nc")]), Cleaning())
    assert data.rows_up is False and data.inputs == ("u", "v")


def test_vectors_by_name():
    assert find_pairs(("u10", "v10", "t"), "auto") == ((0, 1),)
    assert find_pairs(("t", "vy", "vx"), "auto") == ((2, 1),)
    assert find_pairs(("a", "b", "x", "y", "value"), "auto") == ()
    assert find_pairs(("u", "v"), "none") == ()
    assert find_pairs(("a", "b"), "b,a") == ((1, 0),)
    with pytest.raises(InputError, match="both components"):
        find_pairs(("a", "b"), "a,c")


def test_mixing_is_a_representation():
    import torch

    g, h = torch.randn(2, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for up in (True, False):
        rho = Mixing(4, ((3, 1),), up)
        assert torch.allclose(rho(g @ h), rho(g) @ rho(h))
        assert rho(g)[3, 3] == g[1, 1] and rho(g)[1, 1] == g[0, 0] and rho(g)[1, 3] == (g[0, 1] if up else -g[0, 1])


def test_standardise_keeps_vectors_together():
    import torch

    x = torch.randn(50, 3, 4, 4, generator=torch.Generator().manual_seed(0)) * 5 + 2
    scaled = standardise(x, [(0, 2)])
    assert abs(float(scaled[:, 1].mean())) < 1e-5 and abs(float(scaled[:, 1].std()) - 1) < 1e-5
    assert torch.allclose(scaled[:, 0] * x[:, 2], scaled[:, 2] * x[:, 0], atol=1e-4)


def test_near_names_are_suggested(tmp_path):
    with pytest.raises(InputError, match=r"no variable 'temp'.*It holds: x"):
        find_variable([open_data(p) for p in write_npz(tmp_path)], "temp")


def test_positive_targets_over_decades_are_learned_as_logarithms(tmp_path):
    order = np.random.default_rng(1).permutation(len(V))
    levels = (order + 0.5) / len(V)  # quantiles: the rule reads the distribution, not the luck of a draw
    mass = np.exp(5 * levels)
    np.savez(tmp_path / "d.npz", x=V, y=mass)
    choice = choose([open_data(tmp_path / "d.npz")])
    data = read_own(choice, Cleaning())
    assert np.allclose(data.y.numpy(), np.log(mass), atol=1e-5) and "logarithm of y" in data.notes[0]
    assert np.allclose(read_own(choice, Cleaning(task="values")).y.numpy(), mass)
    np.savez(tmp_path / "e.npz", x=V, y=mass - 2)
    assert not read_own(choose([open_data(tmp_path / "e.npz")]), Cleaning()).notes
    for small in (levels**2, norm.ppf((1 + levels) / 2) ** 2):  # squares: no logarithm of small values
        np.savez(tmp_path / "f.npz", x=V, y=small)
        assert not read_own(choose([open_data(tmp_path / "f.npz")]), Cleaning()).notes


def test_decimal_commas_between_semicolons(tmp_path):
    lines = [
        "a;b;c;mass",
        *(";".join(f"{v:.6f}".replace(".", ",") for v in (*row, m)) for row, m in zip(V, M, strict=True)),
    ]
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    data = read_own(choose([open_data(tmp_path / "d.csv")]), Cleaning(task="values"))
    assert np.allclose(data.x.numpy(), V, atol=1e-5) and np.allclose(data.y.numpy(), M, atol=1e-5)


def test_a_column_without_numbers_is_left_out(tmp_path):
    lines = ["a,b,c,gap,mass", *(",".join(map(str, (*row, "", m))) for row, m in zip(V, M, strict=True))]
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    file = open_data(tmp_path / "d.csv")
    assert file.variables["gap"].unusable == "'gap' holds no numbers; correct or remove it"
    assert np.allclose(read_own(choose([file]), Cleaning(task="values")).x.numpy(), V, atol=1e-6)


@pytest.mark.parametrize("head", ["# of the 7th run\n# in metres\n", "# of the 7th run\n# "])
def test_remarks_before_the_numbers(tmp_path, head):
    (tmp_path / "d.csv").write_text(head + write_csv(tmp_path).read_text())
    data = read_own(choose([open_data(tmp_path / "d.csv")]), Cleaning(task="values"))
    assert np.allclose(data.x.numpy(), V, atol=1e-6)


def test_one_column_is_a_vector_with_one_component(tmp_path):
    choice = choose([open_data(write_csv(tmp_path))], inputs="b", targets="mass")
    assert np.allclose(read_own(choice, Cleaning(task="values")).x.numpy(), V[:, 1:2], atol=1e-6)


def test_rows_of_a_table_with_gaps_are_left_out_and_their_columns_named(tmp_path):
    lines = write_csv(tmp_path).read_text().splitlines()
    for k in (3, 7):
        cells = lines[k].split(",")
        lines[k] = ",".join([cells[0], "", *cells[2:]])
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    choice = choose([open_data(tmp_path / "d.csv")])
    data = read_own(choice, Cleaning(task="values"))
    assert len(data.x) == 48
    assert data.notes[0] == "2 of 50 samples have missing values and are left out (b in 2)"
    with pytest.raises(InputError, match=r"variable 'b' must be finite, got NaN or infinity in 2 of 50 samples"):
        read_own(choice, Cleaning(nan="refuse"))


@pytest.mark.parametrize("of_inputs, of_targets", [(1e39, 1.0), (1e-60, 1e60), (np.array([1e-50, 1.0, 1e50]), 1e-60)])
def test_numbers_that_single_precision_cannot_hold_stay_as_they_are(tmp_path, of_inputs, of_targets):
    chance = np.random.default_rng(0)
    x, y = chance.standard_normal((30, 3)), chance.standard_normal(30)
    np.savez(tmp_path / "d.npz", x=x * of_inputs, y=y * of_targets)
    data = read_own(choose([open_data(tmp_path / "d.npz")]), Cleaning())
    assert np.allclose(data.x.numpy() / of_inputs, x) and np.allclose(data.y.flatten().numpy() / of_targets, y)
