"""An estimator in the manner of scikit-learn, which itself is not needed."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch

from atlasd.data.cleaning import unmasked
from atlasd.discovery.discover import discover
from atlasd.discovery.result import Discovery
from atlasd.errors import InputError
from atlasd.limits import TOLERANCE

_FEWEST = 20
"""The fewest samples that `discover` takes."""


class SymmetryDiscovery:
    """Finds the symmetry of the map from `X` to `y` when it is fitted; `predict` gives the fitted map itself.

    Arguments:
        tolerance: The largest strength of a breaking that counts as a symmetry.
        rho_out: How targets transform, as in `atlasd.discover`.
        cosets: Whether the discrete part is looked for.
        random_state: Seed of every random stream.

    Attributes:
        discovery_: The whole answer.
        group_: The group that was found.
        symmetric_: Whether there is one.
        n_features_in_: Number of columns of `X`.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(400, 2))
        >>> found = SymmetryDiscovery().fit(x, (x**2).sum(1))
        >>> found.group_.name
        'O(2)'
    """

    def __init__(
        self, *, tolerance: float = TOLERANCE, rho_out: Any = "auto", cosets: bool = True, random_state: int = 0
    ) -> None:
        self.tolerance = tolerance
        self.rho_out = rho_out
        self.cosets = cosets
        self.random_state = random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments by name."""
        return {name: getattr(self, name) for name in _names()}

    def set_params(self, **params: Any) -> SymmetryDiscovery:
        """Changes arguments."""
        for name, value in params.items():
            if name not in _names():
                raise ValueError(f"`{name}` must be one of {', '.join(_names())}; check the spelling.")
            setattr(self, name, value)
        return self

    def fit(self, X: Any, y: Any) -> SymmetryDiscovery:
        """Discovers.

        Arguments:
            X: Inputs, as `atlasd.discover` takes them: `(N, n)` for vectors.
            y: Targets.
        """
        if y is None:
            raise ValueError("SymmetryDiscovery requires y to be passed, but the target y is None.")
        x, target = _array(X, "X", _FEWEST), _array(y, "y")
        names = getattr(X, "columns", None)
        if names is not None and all(isinstance(n, str) for n in names):
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        target = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
        self.discovery_: Discovery = discover(
            x,
            target if target.dtype.kind == "f" else target.astype(np.float64),
            tolerance=self.tolerance,
            rho_out=self.rho_out,
            cosets=self.cosets,
            seed=int(self.random_state or 0),
            progress=False,
        )
        self.group_ = self.discovery_.group
        self.symmetric_ = self.discovery_.verdict.symmetric
        self.n_features_in_ = x.shape[1]
        self._flat = target.ndim == 1
        return self

    def predict(self, X: Any) -> np.ndarray:
        """What the fitted map gives for inputs, with the shape of the targets."""
        if not hasattr(self, "discovery_"):
            raise _not_fitted(self)
        x = _array(X, "X")
        if x.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {x.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        y = self.discovery_.predictor(torch.from_numpy(np.array(x, dtype=np.float64))).numpy()
        return y[:, 0] if self._flat and y.ndim == 2 else y

    def score(self, X: Any, y: Any) -> float:
        """Share of the variance of the targets that the fitted map explains."""
        truth, guess = _array(y, "y").astype(np.float64), self.predict(X)
        truth = truth.reshape(guess.shape)
        return float(1 - ((truth - guess) ** 2).sum() / max(((truth - truth.mean(0)) ** 2).sum(), 1e-300))

    def __repr__(self) -> str:
        defaults = {k: p.default for k, p in inspect.signature(type(self).__init__).parameters.items() if k != "self"}
        changed = {k: v for k, v in self.get_params().items() if v is not defaults[k] and v != defaults[k]}
        return f"SymmetryDiscovery({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, multi_output=True),
            transformer_tags=None,
            classifier_tags=None,
            regressor_tags=RegressorTags(poor_score=True),
            input_tags=InputTags(two_d_array=True),
        )


def _names() -> list[str]:
    return sorted(n for n in inspect.signature(SymmetryDiscovery.__init__).parameters if n != "self")


def _array(value: Any, name: str, least: int = 1) -> np.ndarray:
    """An array of real numbers, for `X` with at least one feature and `least` samples, or one clear error."""
    if hasattr(value, "toarray") or type(value).__module__.startswith("scipy.sparse"):
        raise TypeError(f"Sparse data was passed for {name}, but dense data is required. Use '.toarray()' to convert.")
    array = unmasked(value, name)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: `{name}` must hold real numbers, got {array.dtype}.")
    if array.dtype.kind not in "fiub":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise (type(error))(f"`{name}` must hold real numbers, got {array.dtype}: {error}") from error
    if name == "X" and array.ndim < 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead. Reshape your data either using array.reshape(-1, 1) "
            "or array.reshape(1, -1)."
        )
    if name == "X" and array.shape[1] < 1:
        raise ValueError(f"Found array with 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    if name == "X" and len(array) < least:
        size = f"{len(array)} sample(s) of {array.shape[1]} feature(s)"
        raise ValueError(f"Found array with {size} (shape={array.shape}) while a minimum of {least} is required.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"Input {name} contains NaN or infinity; drop or fill them.")
    return array


def _not_fitted(estimator: SymmetryDiscovery) -> Exception:
    message = f"This {type(estimator).__name__} instance is not fitted yet; call 'fit' before using this estimator."
    try:
        from sklearn.exceptions import NotFittedError
    except ImportError:
        return InputError(message)
    return NotFittedError(message)
