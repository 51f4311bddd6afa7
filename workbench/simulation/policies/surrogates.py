"""Gaussian processes over configurations: what noisy samples tell of the configurations unseen.

scikit-learn fits them. Nothing else in the simulator wants it, so it is loaded when the first one
is made.
"""

import warnings
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from scheduler.search.arrays import Floats

# Bounds of the kernel's parameters. Lengths are in widths of the space: with a much longer one a
# feature has no effect left, and the next fit finds no slope that leads back. Variances are in
# those of the samples.
LENGTHS = (0.1, 10.0)
SIGNALS = (1e-2, 1e3)
NOISES = (1e-6, 1.0)


class MissingLibraryError(RuntimeError):
    """A library that a policy needs is not installed; the message says how to get it."""


class Belief(NamedTuple):
    """What is believed of n configurations: normal distributions."""

    mean: Floats  # (n,)
    deviation: Floats  # (n,) of one more sample, its noise included


class Surrogate:
    """A Gaussian process with a Matern 5/2 kernel, one length for each feature, and white noise."""

    def __init__(self) -> None:
        self._kernel: Any = None
        self._process: Any = None

    def fit(self, features: Floats, values: Floats, *, learn: bool) -> None:
        """Take these samples in place of those before.

        Args:
            features: (n, d) of the configurations sampled, each within 0 and 1.
            values: (n,) that they gave.
            learn: whether the kernel's parameters are fitted too, from where they were last.
        """
        if self._kernel is None:
            self._kernel = _kernel(features.shape[1])
        self._process = import_module("sklearn.gaussian_process").GaussianProcessRegressor(
            self._kernel, optimizer="fmin_l_bfgs_b" if learn else None, normalize_y=True
        )
        with warnings.catch_warnings():
            # A parameter at its bound, or a fit that ends early, still is a fit: the length of a
            # feature that has no effect goes to its bound.
            convergence = import_module("sklearn.exceptions").ConvergenceWarning
            warnings.simplefilter("ignore", convergence)
            self._process.fit(features, values)
        self._kernel = self._process.kernel_

    def believed(self, features: Floats) -> Belief:
        """What the samples tell of these configurations."""
        mean, deviation = self._process.predict(features, return_std=True)
        return Belief(np.asarray(mean, np.float64), np.asarray(deviation, np.float64))


def one_thread() -> AbstractContextManager[Any]:
    """Linear algebra on one thread: more only get in one another's way on matrices so small.

    And their sums would come out differently on machines with other numbers of cores.
    """
    limits: AbstractContextManager[Any] = import_module("threadpoolctl").threadpool_limits(1)
    return limits


def need_library() -> None:
    """Raise a MissingLibraryError where no process can be fitted."""
    try:
        import_module("sklearn")
    except ModuleNotFoundError:
        raise MissingLibraryError(
            "policy aquatope needs scikit-learn, which is not installed; run "
            "pip install 'esg-scheduler[simulation]'"
        ) from None


def _kernel(features: int) -> Any:
    kernels = import_module("sklearn.gaussian_process.kernels")
    signal = kernels.ConstantKernel(1.0, SIGNALS)
    shape = kernels.Matern(np.ones(features), LENGTHS, nu=2.5)
    return signal * shape + kernels.WhiteKernel(1e-2, NOISES)
