"""Aquatope: one configuration a stage, found by Bayesian optimisation over noisy samples.

Source: "AQUATOPE: QoS-and-Uncertainty-Aware Resource Management for Multi-Stage Serverless
Workflows", Zhou et al., ASPLOS 2023 (arXiv 2212.13882). Derived anew from descriptions of it, and
of the ESG paper, which compares with it; the numbers of samples are the defaults that the README of
the authors' code tells.

The rule, for a workflow, before its first request. A sample runs one request under one
configuration a stage, and tells its end-to-end time and its cost, both with noise. 10 samples are
drawn at random. Then follow 20 rounds of 3 samples each. In a round one Gaussian process is fitted
to the times and one to the costs, and those configurations are sampled next that promise most: the
expected improvement on the best cost so far, weighted by the probability that the SLO is kept. At
the end that one of the sampled is fixed that costs least, by the processes' mean, of those that
keep the SLO with a probability of 0.95; or else the one that keeps it most probably.

As derived here: both processes see logarithms, in which the noise is the same everywhere, and the
improvement is one in the logarithm of the cost. A configuration's features are its batch, vCPUs and
share on a logarithmic scale. The best so far is that with the lowest mean, of those sampled that
keep the SLO more likely than not. As long as there is none, the probability alone counts. The
samples of one round are chosen one after the other, each as if the one before had given its mean.
What is weighed up are some hundred configurations at random, and as many that differ from the best
so far in one stage.

Where this departs:

- The paper integrates noisy expected improvement by quasi-Monte Carlo, and detects anomalies among
  the samples. Here improvement is exact on the processes' means, and the noise has no outliers.
- The paper sizes vCPUs and memory. Here a configuration is a batch, vCPUs and a share, on one GPU
  model, as the ESG paper gave them to Aquatope.
- The paper's dynamic pool of pre-warmed containers, a neural network, is left out: the engine's own
  prediction takes its place.
"""

from typing import ClassVar

from workbench.simulation.policies.bayesian import optimised
from workbench.simulation.policies.end_to_end import Choice, EndToEnd, log_normal
from workbench.simulation.policies.fixed import FixedPolicy
from workbench.simulation.policies.surrogates import need_library, one_thread
from workbench.simulation.policy import PolicyContext


class Aquatope(FixedPolicy):
    """The policy as the module's docstring has it.

    Raises:
        MissingLibraryError: scikit-learn is not installed.
    """

    name: ClassVar[str] = "aquatope"

    def __init__(self, world: PolicyContext) -> None:
        need_library()
        super().__init__(world)

    def _chosen(self, whole: EndToEnd) -> Choice:
        def sample(choice: Choice) -> tuple[float, float]:
            noise = log_normal(self.world.noise_ratio, (1, len(choice)), self.world.random)
            return float(whole.times_ms(choice, noise)[0]), float(whole.costs(choice, noise)[0])

        with one_thread():
            return optimised(whole.options, sample, whole.slo_ms, self.world.random)
