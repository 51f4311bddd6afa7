"""The part of docs/paper.md on measured profiles and real arrivals: its input and its tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scheduler.model.documents import Document, FunctionProfile, Workflow
from studies.page import made_by, markdown_table, repeated
from studies.paper.document import BLOCKS, Evaluation
from studies.paper.evaluation import Ground
from studies.paper.measured import LOAD_RATIO, SLO_RATIO, measured_ground
from workbench.profiles.vision_workflows import PERCENT_MIN, Assumptions, vision_documents

MEASURED_POLICIES = (
    "infless",
    "fast-gshare",
    "orion",
    "grandslam",
    "minimum",
    "exact",
)
_PROFILES = Path("profiles/rapp-v100-mps.csv")
_INVOCATIONS = Path("traces/azure-2019-100/invocations.csv")
_TABLES = ("equal", "hits", "costs", "bound", "idle", "states")
MEASURED_PREFIX = "measured-"  # of the marks of this part
MEASURED_BLOCKS = ("how", "workflows", *_TABLES)


@dataclass(frozen=True, slots=True)
class MeasuredInput:
    """Folder with the data of others, and the size of the cluster."""

    folder: Path
    nodes: int

    def documents(self) -> list[Document]:
        """Build workflows and profiles from the table of measured models.

        Raises:
            OSError: it cannot be read.
            DocumentError: it has another form.
        """
        file = self.folder / _PROFILES
        return vision_documents(file.read_text("utf-8"), file.name, Assumptions())

    def ground(self, documents: Sequence[Document]) -> Ground:
        """Return cluster and arrivals."""
        return measured_ground(documents, self.folder / _INVOCATIONS, self.nodes)


def measured_blocks(evaluation: Evaluation, documents: Sequence[Document]) -> dict[str, str]:
    """Render the blocks of this part by name, as in `MEASURED_BLOCKS`."""
    texts = [_how(evaluation), _workflows(documents)]
    texts += [BLOCKS[name](evaluation) for name in _TABLES]
    return dict(zip(MEASURED_BLOCKS, texts, strict=True))


def _how(evaluation: Evaluation) -> str:
    size, assumed = evaluation.size, Assumptions()
    scenario = size.ground.scenario
    command = (
        f"esg paper --data DIR --nodes {scenario.nodes} --minutes {size.minutes:g} "
        f"--seeds {size.seeds}"
    )
    command += "" if size.pooled else " --reserved"
    if tuple(evaluation.policies[1:]) != MEASURED_POLICIES:
        command += repeated("--policy", evaluation.policies[1:])
    return (
        f"{made_by(command)}: {size.minutes:g} "
        f"simulated minutes a run, {size.seeds_text}, {scenario.nodes} nodes of one V100 and "
        f"{scenario.cpus} vCPU. Measured: latencies by model, batch and MPS share "
        f"(`{_PROFILES.name}` of RaPP, Apache-2.0), arrivals per minute "
        "(Azure Functions 2019, 100 functions, CC-BY), scaled to "
        f"{100 * LOAD_RATIO:g} % of the paper's load per node and unit of work. SLOs are "
        f"{SLO_RATIO:g} times those of the settings: 1.0, 1.25 and 1.5 L. Assumed, because "
        f"the table does not have it: {assumed.process_mib:,} MiB a process and "
        f"{assumed.request_mib} MiB a request of the batch on a GPU of "
        f"{scenario.memory_mib:,} MiB, one vCPU a container, cold starts "
        f"of {assumed.cold_start_ms / 1000:g} s, outputs of {assumed.output_mib:g} MiB, "
        f"{100 * scenario.noise_ratio:g} % of noise. Neighbours that hold a whole GPU slow a run "
        f"down by {100 * scenario.interference_ratio:g} %, in proportion to their share."
        f"{size.pooled_text}\n"
    )


def _workflows(documents: Sequence[Document]) -> str:
    """Render the chains with the time at the minimum configuration and at the fastest."""
    profiles = {d.metadata.name: d for d in documents if isinstance(d, FunctionProfile)}
    head = ["workflow", "stages: measured configurations", "L, ms", "fastest, of L"]
    rows = []
    for workflow in (d for d in documents if isinstance(d, Workflow)):
        stages = ", ".join(
            f"{stage.name}: {len(profiles[stage.function].spec.gpus[0].configurations)}"
            for stage in workflow.spec.stages
        )
        slo_ms = workflow.spec.slo.latency_ms
        fastest_ms = sum(
            min(c.latency_ms for c in profiles[stage.function].spec.gpus[0].configurations)
            for stage in workflow.spec.stages
        )
        rows.append([workflow.metadata.name, stages, f"{slo_ms:.1f}", f"{fastest_ms / slo_ms:.2f}"])
    rule = (
        f"\nL: the sum of the measured times at batch 1 and {PERCENT_MIN} % of the GPU. Fastest: "
        "the same at the fastest configuration of each stage; no policy can be below it.\n"
    )
    return markdown_table(head, rows) + rule
