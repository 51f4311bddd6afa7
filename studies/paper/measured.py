"""Ground of the evaluation on measured profiles and real arrivals.

Loads follow the paper's rule, halved: the mean time between requests relates to the workflows' mean
time and to the number of nodes as it does there. With the whole of it, four GPUs of 16 GiB have
queues that grow under moderate-normal, whatever the policy: their memory holds five processes each.
"""

from collections.abc import Sequence
from functools import partial
from math import ceil
from pathlib import Path
from statistics import fmean

from scheduler.model.documents import Document, Workflow
from studies.paper.evaluation import Ground, mean_gap_ms
from workbench.profiles.generated import WORKFLOWS, generated_workflow
from workbench.profiles.vision_workflows import Assumptions
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.azure import Azure
from workbench.simulation.workloads.paper import Load
from workbench.simulation.workloads.parameters import Workload

INTERFERENCE_RATIO = 0.09  # median of measured pairs on a V100; see the scenario's key
LOAD_RATIO = 0.5  # of the load that the paper's rule gives
MEMORY_MIB = 16_384  # of a V100
SLO_RATIO = (
    1.25  # over the paper's settings: 1.0, 1.25 and 1.5 L; under 0.8 L nobody can be in time
)
_PAPER_NODES = Scenario().nodes


def measured_ground(documents: Sequence[Document], invocations: Path, nodes: int) -> Ground:
    """Return the ground over V100 nodes, with the counts of a file in the Azure format."""
    slos_ms = [d.spec.slo.latency_ms for d in documents if isinstance(d, Workflow)]
    paper_ms = fmean(generated_workflow(name).spec.slo.latency_ms for name in WORKFLOWS)
    speed_ratio = LOAD_RATIO * paper_ms / fmean(slos_ms) * nodes / _PAPER_NODES
    return Ground(
        scenario=Scenario(
            nodes=nodes,
            gpu_models=(Assumptions().gpu_model,),
            memory_mib=MEMORY_MIB,
            interference_ratio=INTERFERENCE_RATIO,
        ),
        workload=partial(_counted, invocations, speed_ratio),
        ends=True,
        slo_ratio=SLO_RATIO,
    )


def _counted(invocations: Path, speed_ratio: float, load: Load, minutes: float) -> Workload:
    return Azure(
        file=invocations,
        rate_rps=speed_ratio * 1000.0 / mean_gap_ms(load),
        minutes=ceil(minutes),
        workflow_of="at-random",
    )
