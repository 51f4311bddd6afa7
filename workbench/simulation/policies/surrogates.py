"""Gaussian processes over configurations: predictions for configurations without samples.

scikit-learn fits them. Nothing else in the simulator needs it, so it is imported at first use.
"""

import warnings
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from scheduler.search.frontiers.arrays import Floats

# Bounds of the kernel's parameters. Lengths are in widths of the space: with a much longer one a
# feature has no effect, and the gradient is too flat for the next fit to change that. Variances are
# relative to that of the samples.
LENGTHS = (0.1, 10.0)
SIGNALS = (1e-2, 1e3)
NOISES = (1e-6, 1.0)


class MissingLibraryError(RuntimeError):
    """A library that a policy needs is not installed; the message says how to get it."""


class Prediction(NamedTuple):
    """Normal distributions for n configurations."""

    mean: Floats  # (n,)
    deviation: Floats  # (n,) of one more sample, including its noise


class Surrogate:
    """A Gaussian process with a Matern 5/2 kernel, one length for each feature, and white noise."""

    def __init__(self) -> None:
        self._kernel: Any = None
        self._process: Any = None

    def fit(self, features: Floats, values: Floats, *, learn: bool) -> None:
        """Replace the samples.

        Args:
            features: (n, d) features of the sampled configurations, within [0, 1].
            values: (n,) sampled values.
            learn: true to fit the kernel's parameters too, starting from the last ones.
        """
        if self._kernel is None:
            self._kernel = _kernel(features.shape[1])
        self._process = import_module("sklearn.gaussian_process").GaussianProcessRegressor(
            self._kernel, optimizer="fmin_l_bfgs_b" if learn else None, normalize_y=True
        )
        with warnings.catch_warnings():
            # A parameter at its bound, or a fit that ends early, is usable: the length of a feature
            # without effect goes to its bound.
            convergence = import_module("sklearn.exceptions").ConvergenceWarning
            warnings.simplefilter("ignore", convergence)
            self._process.fit(features, values)
        self._kernel = self._process.kernel_

    def predict(self, features: Floats) -> Prediction:
        """Predict one more sample at these configurations."""
        mean, deviation = self._process.predict(features, return_std=True)
        return Prediction(np.asarray(mean, np.float64), np.asarray(deviation, np.float64))


def one_thread() -> AbstractContextManager[Any]:
    """Limit linear algebra to one thread.

    More threads slow down on matrices this small, and sums would depend on the number of cores.
    """
    limits: AbstractContextManager[Any] = import_module("threadpoolctl").threadpool_limits(1)
    return limits


def require_library() -> None:
    """Raise MissingLibraryError if scikit-learn is not installed."""
    try:
        import_module("sklearn")
    except ModuleNotFoundError:
        raise MissingLibraryError(
            "policy aquatope needs scikit-learn, which is not installed; run "
            "pip install 'esg-scheduler[workbench]'"
        ) from None


def _kernel(features: int) -> Any:
    kernels = import_module("sklearn.gaussian_process.kernels")
    signal = kernels.ConstantKernel(1.0, SIGNALS)
    shape = kernels.Matern(np.ones(features), LENGTHS, nu=2.5)
    return signal * shape + kernels.WhiteKernel(1e-2, NOISES)
