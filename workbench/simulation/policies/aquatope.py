"""Aquatope: one configuration per stage, chosen by Bayesian optimisation over noisy samples.

Source: "AQUATOPE: QoS-and-Uncertainty-Aware Resource Management for Multi-Stage Serverless
Workflows", Zhou et al., ASPLOS 2023 (arXiv 2212.13882). Our reconstruction from descriptions of it
and of the ESG paper, which compares with it; the numbers of samples are the defaults in the README
of the authors' code.

The rule, for a workflow, before its first request. A sample runs one request under one
configuration per stage and measures its end-to-end time and its cost, both with noise. 10 samples
are random. 20 rounds of 3 samples follow. Each round fits one Gaussian process to the times and one
to the costs, and samples the configurations with the highest expected improvement on the lowest
cost so far, weighted by the probability of meeting the SLO. At the end the policy selects, among
the samples that meet the SLO with a probability of 0.95, the one with the lowest mean cost by the
process; if there is none, the sample with the highest probability.

In this reconstruction both processes work on logarithms, in which the noise is the same everywhere,
and the improvement is one of the logarithm of the cost. A configuration's features are its batch,
vCPUs and share on a logarithmic scale. The incumbent is the sample with the lowest mean cost among
those that meet the SLO more likely than not. While there is none, the probability alone counts. The
samples of a round are chosen one after the other, each as if the one before had returned its mean.
The candidates are several hundred random configurations and as many that differ from the incumbent
in one stage.

Differences from the paper:

- The paper integrates noisy expected improvement by quasi-Monte Carlo and detects anomalies among
  the samples. Here improvement is exact on the processes' means, and the noise has no outliers.
- The paper sizes vCPUs and memory. Here a configuration is a batch, vCPUs and a share, on one GPU
  model, as the ESG paper gave them to Aquatope.
- The paper's dynamic pool of pre-warmed containers, a neural network, is left out; the engine's own
  prediction takes its place.
"""

from typing import ClassVar

from workbench.simulation.policies.bayesian import optimised
from workbench.simulation.policies.end_to_end import Choice, EndToEnd, log_normal
from workbench.simulation.policies.fixed import FixedPolicy
from workbench.simulation.policies.surrogates import one_thread, require_library
from workbench.simulation.policy import PolicyContext


class Aquatope(FixedPolicy):
    """The policy described in the module's docstring.

    Raises:
        MissingLibraryError: scikit-learn is not installed.
    """

    name: ClassVar[str] = "aquatope"

    def __init__(self, context: PolicyContext) -> None:
        require_library()
        super().__init__(context)

    def _choose(self, whole: EndToEnd) -> Choice:
        def sample(choice: Choice) -> tuple[float, float]:
            noise = log_normal(self.context.noise_ratio, (1, len(choice)), self.context.random)
            return float(whole.times_ms(choice, noise)[0]), float(whole.costs(choice, noise)[0])

        with one_thread():
            return optimised(whole.options, sample, whole.slo_ms, self.context.random)
