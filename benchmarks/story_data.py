"""The files of the stories, each with its control: made without atlasd, from random numbers or photographs."""

import numpy as np
from scipy import ndimage


def plane(rng, samples, shape, power=1.0, cut=0.25):
    """Periodic random fields with an amplitude that falls as 1/f, of unit size, without the finest scales."""
    f = np.hypot(*np.meshgrid(*(np.fft.fftfreq(s) for s in shape), indexing="ij"))
    amplitude = np.where(f > 0, 1 / np.maximum(f, 1 / max(shape)) ** power, 0.0) * np.exp(-((f / cut) ** 4))
    fields = np.fft.ifft2(np.fft.fft2(rng.standard_normal((samples, *shape))) * amplitude).real
    return fields / fields.std()


def pink(rng, samples, size, power=1.0, cut=0.25):
    """The same on a square."""
    return plane(rng, samples, (size, size), power, cut)


def photographs(rng, samples, size=64):
    """Crops of photographs that ship with scikit-image, or else 1/f fields, in grey, with a margin of 3 pixels."""
    try:
        from skimage import data
    except ImportError:
        return pink(rng, samples, size + 6)
    names = ("camera", "astronaut", "coffee", "chelsea", "rocket", "brick", "gravel", "coins", "clock")
    pictures = []
    for name in names:
        picture = getattr(data, name)().astype(float)
        pictures.append((picture.mean(-1) if picture.ndim == 3 else picture) / 255)
    out = []
    for k in rng.integers(len(pictures), size=samples):
        picture = pictures[k]
        i, j = (rng.integers(s - size - 7) for s in picture.shape)
        out.append(picture[i : i + size + 6, j : j + size + 6])
    return np.stack(out)


def oblique(x, y, control, share=1.5):
    """The target, for a control with a derivative of the input along an oblique direction added.

    A second derivative along the columns is added, too: without it, the mirror about that direction would be exact.
    With a share of 0.6 some mirror is broken by less than the tolerance (14 % on the exact map), and is found.
    """
    if not control:
        return y
    slope = (np.roll(x, -1, -1) - np.roll(x, 1, -1)) + 0.4 * (np.roll(x, -1, -2) - np.roll(x, 1, -2))
    bent = np.roll(x, -1, -1) + np.roll(x, 1, -1) - 2 * x
    slope = slope / slope.std() + bent / bent.std()
    rest = y - np.sum(x * y) / np.sum(x * x) * x
    return y + share * rest.std() / slope.std() * slope


def arrays(path, **named):
    path = path.with_suffix(".npz")
    np.savez(path, **{k: v.astype("float32") for k, v in named.items()})
    return (str(path),)


def blur(path, rng, control):
    x = photographs(rng, 250)
    y = np.stack([ndimage.gaussian_filter(p, 2.0) for p in x])
    y = oblique(x, y, control)
    return arrays(path, x=x[:, 3:-3, 3:-3], y=y[:, 3:-3, 3:-3])


def edges(path, rng, control):
    x = photographs(rng, 250)
    y = np.stack([ndimage.gaussian_gradient_magnitude(p, 1.0) for p in x])
    y = oblique(x, y, control)
    return arrays(path, x=x[:, 3:-3, 3:-3], y=y[:, 3:-3, 3:-3])


def allen_cahn(path, rng, control):
    x = pink(rng, 100, 64)
    y = x.copy()
    for _ in range(20):
        near = sum(np.roll(y, s, a) for s in (1, -1) for a in (1, 2))
        diagonal = sum(np.roll(np.roll(y, s, 1), t, 2) for s in (1, -1) for t in (1, -1))
        laplacian = (4 * near + diagonal - 20 * y) / 6
        y = y + 0.05 * laplacian + 0.02 * (y - y**3)
    return arrays(path, x=x, y=oblique(x, y, control))


def gray_scott(path, rng, control):
    v = 0.15 + 0.08 * pink(rng, 100, 64)
    u = 0.6 - 0.5 * (v - 0.15) + 0.08 * pink(rng, 100, 64)
    a, b = u.copy(), v.copy()
    for _ in range(20):
        rate = a * b * b
        change = [w * _laplacian(z) for w, z in ((0.16, a), (0.08, b))]
        a, b = a + change[0] - rate + 0.04 * (1 - a), b + change[1] + rate - 0.1 * b
    x, y = np.stack([u, v], 1), np.stack([a, b], 1)
    return arrays(path, x=x, y=oblique(x, y, control))


def _laplacian(z):
    near = sum(np.roll(z, s, a) for s in (1, -1) for a in (1, 2))
    diagonal = sum(np.roll(np.roll(z, s, 1), t, 2) for s in (1, -1) for t in (1, -1))
    return (4 * near + diagonal - 20 * z) / 6


class Flow:
    """Navier-Stokes in two dimensions on a periodic square of side 2 pi, pseudo-spectral."""

    def __init__(self, size=64, viscosity=1e-2):
        k = np.fft.fftfreq(size, 1 / size)
        self.kr, self.kc = np.meshgrid(k, k, indexing="ij")
        self.square = self.kr**2 + self.kc**2
        self.inverse = np.where(self.square > 0, 1 / np.maximum(self.square, 1e-9), 0.0)
        self.viscosity = viscosity
        self.keep = np.maximum(abs(self.kr), abs(self.kc)) < size / 3

    def winds(self, w):
        """Velocities along columns and along growing rows."""
        psi = np.fft.fft2(w) * self.inverse
        return np.fft.ifft2(1j * self.kr * psi).real, np.fft.ifft2(-1j * self.kc * psi).real

    def rate(self, w):
        u, v = self.winds(w)
        spectrum = np.fft.fft2(w)
        advected = u * np.fft.ifft2(1j * self.kc * spectrum).real + v * np.fft.ifft2(1j * self.kr * spectrum).real
        return np.fft.ifft2(-np.fft.fft2(advected) * self.keep - self.viscosity * self.square * spectrum).real

    def step(self, w, time, steps=20):
        h = time / steps
        for _ in range(steps):
            a = self.rate(w)
            b = self.rate(w + h / 2 * a)
            w = w + h * b
        return w


def _vorticity(rng, power=1.5):
    return 6 * pink(rng, 200, 64, power=power, cut=0.15)


def velocities(path, rng, control):
    """Winds half a pixel of motion later.

    With more weight on the largest scales, the few waves that fit into the square have directions of their own: then
    what a chart knows of the pressure outside is not isotropic.
    """
    flow, w = Flow(), _vorticity(rng, power=0.7)
    after = flow.step(w, 0.025)
    x, y = np.stack(flow.winds(w), 1), np.stack(flow.winds(after), 1)
    return arrays(path, x=x, y=oblique(x, y, control))


def vorticity(path, rng, control):
    flow, w = Flow(), _vorticity(rng)
    return arrays(path, x=w, y=oblique(w, flow.step(w, 0.05), control))


def _winds(rng, samples=200):
    return 5 * pink(rng, samples, 64, 1.5), 5 * pink(rng, samples, 64, 1.5)


def _with_winds(path, u, v, **targets):
    return (*arrays(path, u=u, v=v, **targets), "--input", "u,v", "--target", ",".join(targets))


def _slope(z, axis):
    """The derivative along an axis, smoothed alike along both: along one alone, it would not be isotropic."""
    return ndimage.gaussian_filter(z, (0, 1, 1), order=[int(a == axis) for a in range(3)], mode="wrap")


def curl(path, rng, control):
    u, v = _winds(rng)
    return _with_winds(path, u, v, vorticity=oblique(u, _slope(v, 2) - _slope(u, 1), control))


def divergence(path, rng, control):
    u, v = _winds(rng)
    return _with_winds(path, u, v, spread=oblique(u, _slope(u, 2) + _slope(v, 1), control))


def smoothed(path, rng, control):
    u, v = _winds(rng)
    a, b = (ndimage.gaussian_filter(z, (0, 1.5, 1.5), mode="wrap") for z in (u, v))
    return _with_winds(path, u, v, us=oblique(u, a, control), vs=oblique(v, b, control))


def orbits(rng, samples=2000):
    a, e = 0.7 + 0.7 * rng.random(samples), 0.5 * rng.random(samples)
    u, turn, side = 2 * np.pi * rng.random(samples), 2 * np.pi * rng.random(samples), rng.choice([-1, 1], samples)
    r, minor = a * (1 - e * np.cos(u)), a * np.sqrt(1 - e**2)
    q = np.stack([a * (np.cos(u) - e), side * minor * np.sin(u)], 1)
    p = (np.sqrt(a) / r)[:, None] * np.stack([-np.sin(u), side * np.sqrt(1 - e**2) * np.cos(u)], 1)
    c, s = np.cos(turn), np.sin(turn)
    rotation = np.stack([np.stack([c, -s], 1), np.stack([s, c], 1)], 1)
    return np.concatenate([np.einsum("nij,nj->ni", rotation, z) for z in (q, p)], 1)


def orbit_step(x, time=0.4, steps=20):
    def rate(z):
        return np.concatenate([z[:, 2:], -z[:, :2] / np.linalg.norm(z[:, :2], axis=1, keepdims=True) ** 3], 1)

    h = time / steps
    for _ in range(steps):
        a = rate(x)
        b = rate(x + h / 2 * a)
        c = rate(x + h / 2 * b)
        x = x + h / 6 * (a + 2 * b + 2 * c + rate(x + h * c))
    return x


def text(path, columns, separator=",", comma=False):
    """A table as text; gaps are empty."""
    path = path.with_suffix(".csv")
    rows = np.stack(list(columns.values()), 1)
    lines = [separator.join("" if np.isnan(v) else f"{v:.7g}" for v in row) for row in rows]
    body = "\n".join(lines).replace(".", "," if comma else ".")
    path.write_text("\n".join([separator.join(columns), body]) + "\n")
    return (str(path),)


def kepler_next(path, rng, control):
    x = orbits(rng)
    y = orbit_step(x)
    y = y[rng.permutation(len(y))] if control else y
    names = ("x", "y", "px", "py")
    columns = {n: x[:, k] for k, n in enumerate(names)} | {f"{n}_next": y[:, k] for k, n in enumerate(names)}
    told = ("--input", ",".join(names), "--target", ",".join(f"{n}_next" for n in names))
    return (*text(path, columns), *told)


def kepler_energy(path, rng, control):
    x = orbits(rng)
    energy = (x[:, 2:] ** 2).sum(1) / 2 - 1 / np.linalg.norm(x[:, :2], axis=1)
    energy = rng.permutation(energy) if control else energy
    columns = {n: x[:, k] for k, n in enumerate(("x", "y", "px", "py"))} | {"energy": energy}
    return (*text(path, columns), "--target", "energy")


def units(path, rng, control):
    x = rng.standard_normal((800, 3))
    field = np.exp(-(x**2).sum(1) / 3)
    field = rng.permutation(field) if control else field
    x = x * [1.0, 1e3, 1e-3]
    x[rng.integers(800, size=20), 1] = np.nan
    columns = {n: x[:, k] for k, n in enumerate(("x_m", "y_mm", "z_km"))} | {"field": field}
    return (*text(path, columns), "--target", "field")


def molecule(path, rng, control):
    base = np.array([[0, 0, 0], [1.1, 0, 0], [-0.4, 1.0, 0], [-0.3, -0.4, 1.0]])
    x = base + 0.25 * rng.standard_normal((3000, 4, 3))
    turns, _ = np.linalg.qr(rng.standard_normal((3000, 3, 3)))
    x = np.einsum("nij,npj->npi", turns, x - x.mean(1, keepdims=True))
    pairs = [np.linalg.norm(x[:, i] - x[:, j], axis=1) for i in range(4) for j in range(i)]
    energy = sum((1 - np.exp(-(d - 1.2))) ** 2 for d in pairs)
    energy = rng.permutation(energy) if control else energy
    return (*arrays(path, positions=x, energy=energy), "--input", "positions", "--target", "energy")


def label(path, rng, control):
    np.savez(path.with_suffix(".npz"), images=photographs(rng, 60), label=rng.integers(3, size=60))
    return (str(path.with_suffix(".npz")), "--input", "images", "--target", "label")
