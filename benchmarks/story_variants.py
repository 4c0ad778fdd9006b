"""More stories: other equations, filters, shapes and tables; told by `benchmarks/stories.py --more`."""

import numpy as np
from scipy import ndimage
from story_data import Flow, arrays, orbit_step, orbits, photographs, plane, text

WIND = np.array([0.9, 0.5])
"""Rows, then columns, in pixels."""
TILT, RATIO = 0.5, 0.35


def waves(shape):
    """Angular frequencies along rows and columns, in radians per pixel."""
    return np.meshgrid(*(2 * np.pi * np.fft.fftfreq(s) for s in shape), indexing="ij")


def filtered(x, transfer):
    return np.fft.ifft2(np.fft.fft2(x) * transfer).real


def broken(x, y, control):
    """The target, for a control with oblique first and vertical second derivatives of the input added."""
    if not control:
        return y
    r, c = waves(x.shape[-2:])
    parts = [filtered(x, 1j * (0.4 * r + c) * np.exp(-(r**2 + c**2))), filtered(x, -(c**2) * np.exp(-(r**2 + c**2)))]
    slope = sum(p / p.std() for p in parts)
    rest = y - np.sum(x * y) / np.sum(x * x) * x
    return y + 1.5 * rest.std() / slope.std() * slope


def advection(path, rng, control):
    """Advection by a constant wind, with diffusion: no rotation, only the mirror that keeps the wind.

    The control adds a second derivative along the columns, which breaks the mirror, too.
    """
    x = plane(rng, 100, (48, 80))
    r, c = waves((48, 80))
    y = filtered(x, np.exp(-0.5 * (r**2 + c**2) - 1j * (WIND[0] * r + WIND[1] * c)))
    return arrays(path, before=x, after=broken(x, y, control))


def mirror():
    """The reflection that keeps the wind."""
    w = WIND / np.linalg.norm(WIND)
    return 2 * np.outer(w, w) - np.eye(2)


def burgers(path, rng, control):
    """Viscous Burgers in two dimensions for 40 states only, with components along columns and rows."""
    u = 0.8 * plane(rng, 40, (64, 64), 1.5, 0.12)
    v = 0.8 * plane(rng, 40, (64, 64), 1.5, 0.12)
    r, c = waves((64, 64))
    a, b = u, v
    for _ in range(40):
        steps = []
        for z in (a, b):
            carried = a * filtered(z, 1j * c) + b * filtered(z, 1j * r)
            steps.append(z + 0.02 * (0.4 * filtered(z, -(r**2 + c**2)) - carried))
        a, b = steps
    return (
        *arrays(path, u=u, v=v, u_next=broken(u, a, control), v_next=broken(v, b, control)),
        *("--input", "u,v", "--target", "u_next,v_next"),
    )


def wave(path, rng, control):
    """The wave equation, displacement and its rate, both scalars, without names."""
    h, p = plane(rng, 120, (48, 80), cut=0.15), 0.3 * plane(rng, 120, (48, 80), cut=0.15)
    k = np.hypot(*waves((48, 80)))
    t, safe = 1.5, np.maximum(k, 1e-9)
    cos, sin = np.cos(k * t), np.where(k > 0, np.sin(safe * t) / safe, t)
    after = filtered(h, cos) + filtered(p, sin), filtered(p, cos) - filtered(h, k**2 * sin)
    x, y = np.stack([h, p], 1), np.stack(after, 1)
    return arrays(path, x=x, y=np.stack([broken(x[:, i], y[:, i], control) for i in (0, 1)], 1))


def tensor():
    """Diffusion along oblique axes: a symmetric matrix."""
    c, s = np.cos(TILT), np.sin(TILT)
    turn = np.array([[c, -s], [s, c]])
    return turn @ np.diag([1.0, RATIO**2]) @ turn.T


def oblique_diffusion(path, rng, control):
    x = plane(rng, 150, (64, 64))
    waved = np.stack(waves((64, 64)))
    y = filtered(x, np.exp(-np.einsum("irc,ij,jrc->rc", waved, tensor(), waved)))
    return arrays(path, x=x, y=broken(x, y, control))


def conjugated():
    """The rotation that keeps the ellipse of the diffusion."""
    values, vectors = np.linalg.eigh(tensor())
    root = vectors @ np.diag(values**0.5) @ vectors.T
    return (root @ np.array([[0.0, -1.0], [1.0, 0.0]]) @ np.linalg.inv(root))[None]


def conductivity(path, rng, control):
    """Divergence of a times the gradient, with a conductivity a that changes within every chart: no symmetry."""
    x = plane(rng, 100, (64, 64), 1.0, 0.12)
    rows, columns = np.meshgrid(np.arange(64), np.arange(64), indexing="ij")
    a = np.exp(np.sin(2 * np.pi * (rows + 0.6 * columns) / 24) + np.cos(2 * np.pi * (columns - 0.3 * rows) / 20))
    flux = [a * filtered(x, 1j * k) for k in waves((64, 64))]
    y = np.gradient(flux[0], axis=1) + np.gradient(flux[1], axis=2)
    return arrays(path, x=x[:, 2:-2, 2:-2], y=y[:, 2:-2, 2:-2])


def gradients(path, rng, control):
    """Winds to vorticity by central differences, as most people take it, on smooth winds of another size."""
    u, v = (7 * plane(rng, 80, (60, 90), 1.5, 0.08) for _ in range(2))
    y = np.gradient(v, axis=2) - np.gradient(u, axis=1)
    return (*arrays(path, u10=u, v10=v, zeta=broken(u, y, control)), "--input", "u10,v10", "--target", "zeta")


def far_velocities(path, rng, control):
    """Velocities to velocities with most of the motion in the largest waves, four pixels later: mostly not local."""
    flow, w = Flow(), 6 * plane(rng, 150, (64, 64), 1.5, 0.15)
    x, y = (np.stack(flow.winds(z), 1) for z in (w, flow.step(w, 0.1)))
    return arrays(path, x=x, y=np.stack([broken(x[:, i], y[:, i], control) for i in (0, 1)], 1))


def _round(radius):
    k = np.arange(-np.floor(radius), np.floor(radius) + 1)
    return np.hypot(*np.meshgrid(k, k)) <= radius


def median(path, rng, control):
    """The median of a disc of photographs."""
    x = photographs(rng, 150)
    y = np.stack([ndimage.median_filter(p, footprint=_round(2.3)) for p in x])
    y = broken(x, y, control)
    return arrays(path, image=x[:, 3:-3, 3:-3], filtered=y[:, 3:-3, 3:-3])


def sobel(path, rng, control):
    """The magnitude of Sobel gradients, on photographs of a camera with a soft lens, stored as bytes."""
    x = np.stack([ndimage.gaussian_filter(p, 1.0) for p in photographs(rng, 150)])
    y = np.hypot(*(ndimage.sobel(x, axis=a) for a in (1, 2)))
    y = broken(x, y, control)
    named = {"x": (255 * x[:, 3:-3, 3:-3]).round().astype("uint8"), "y": y[:, 3:-3, 3:-3].astype(">f4")}
    np.savez(path.with_suffix(".npz"), **named)
    return (str(path.with_suffix(".npz")),)


def spread(path, rng, control):
    """The standard deviation in a round window."""
    x = photographs(rng, 150)
    window = np.where(_round(2.3), 1.0, 0.0)
    window /= window.sum()
    mean, square = (np.stack([ndimage.convolve(p**k, window) for p in x]) for k in (1, 2))
    y = broken(x, np.sqrt(np.maximum(square - mean**2, 1e-8)), control)
    return arrays(path, x=x[:, 3:-3, 3:-3], y=y[:, 3:-3, 3:-3])


def lengths(path, rng, control):
    """The moment of inertia of a rod from its ends in metres, millimetres and kilometres, with gaps; 400 rows."""
    x = rng.standard_normal((400, 3)) @ np.diag([1.0, 2.0, 0.7])
    value = 1 / (1 + (x**2).sum(1))
    value = rng.permutation(value) if control else value
    x = x * [1e-3, 1.0, 1e3]
    for k in range(3):
        x[rng.integers(400, size=8), k] = np.nan
    columns = {"east (km)": x[:, 0], "north (m)": x[:, 1], "up (mm)": x[:, 2], "moment": value}
    return (*text(path, columns, ";", comma=True), "--target", "moment")


def comet(path, rng, control):
    """Kepler with other names, in days and kilometres, and more columns than are asked for."""
    x = orbits(rng, 1500)
    y = orbit_step(x)
    y = rng.permutation(y) if control else y
    scale = np.array([1.5e8, 1.5e8, 29.8, 29.8])
    start, end = ("qa", "qb", "va", "vb"), ("qa_later", "qb_later", "va_later", "vb_later")
    columns = {"run": np.arange(1500.0), **dict(zip(start, (x * scale).T, strict=True))}
    columns |= dict(zip(end, (y * scale).T, strict=True))
    return (*text(path, columns), "--input", ",".join(start), "--target", ",".join(end))


def four_atoms(path, rng, control):
    """Four atoms in a table, twelve columns to a dipole's length, by tokens."""
    base = np.array([[0.2, 0.1, 0], [1.2, 0, 0.3], [-0.5, 1.1, 0], [-0.3, -0.6, 1.2]])
    x = base + 0.3 * rng.standard_normal((2500, 4, 3))
    turns, _ = np.linalg.qr(rng.standard_normal((2500, 3, 3)))
    x = np.einsum("nij,npj->npi", turns, x)
    charge = np.array([1.0, -0.6, 0.4, -0.8])
    value = np.linalg.norm(np.einsum("p,npi->ni", charge, x), axis=1) ** 2 + np.linalg.norm(x[:, 0] - x[:, 1], axis=1)
    value = rng.permutation(value) if control else value
    names = [[f"{a}{k}" for a in "xyz"] for k in range(1, 5)]
    columns = {n: x[:, k, i] for k, row in enumerate(names) for i, n in enumerate(row)} | {"dipole": value}
    return (*text(path, columns), "--tokens", ";".join(",".join(r) for r in names), "--target", "dipole")
