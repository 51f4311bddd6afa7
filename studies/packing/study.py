"""Filling a cluster with the pods of the openb trace: our placement and the rules of others.

    python -m studies.packing.study --data DIR [--seeds N] [--out FILE]

Alibaba's GPU trace of 2023 (hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0) is not in this
repository: `openb_pod_list_default.csv` and `openb_node_list_gpu_node.csv` are expected in
``traces/openb`` of the folder with the data of others. The pods arrive as they were created; then
pods drawn from them, by several seeds, until they request 1.3 times the GPUs. The results become
the page ``docs/placement.md``. Except for the times, they depend on the seeds alone.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TaskID

from studies.packing.arrivals import arrivals
from studies.packing.command import read_trace
from studies.packing.filling import CpuPods, Filled, fill
from studies.packing.rules import RULES, RuleName
from studies.packing.trace import Machine, TracePod
from studies.page import REPOSITORY, markdown_table, plus_minus, progress_bar, write_page

TRACE = Path("traces") / "openb"
PAGE = REPOSITORY / "docs" / "placement.md"
INFLATE = 1.3
SELECTED = (RuleName.FGD, RuleName.FGD_ROUNDED, RuleName.PACK, RuleName.DEFRAG)
ARRIVED = (
    50,
    80,
    90,
    95,
    100,
    110,
    120,
    130,
)  # percent of the GPUs, at which the curves have a column


Fillings = Mapping[RuleName, Sequence[Filled]]


@dataclass(frozen=True, slots=True)
class PackingOutcome:
    """Results of all fillings.

    Attributes:
        created: fillings with the pods as they were created, one for each rule.
        inflated: fillings with drawn pods in addition, one for each seed.
        created_live, inflated_live: the same fillings, with pods without a GPU placed by
            kube-scheduler.
        single: inflated fillings of pods that request at most one GPU; no others are expected.
    """

    created: Fillings
    inflated: Fillings
    created_live: Fillings
    inflated_live: Fillings
    single: Fillings


class Study:
    """A trace and its cluster, with a progress bar on standard error over all fillings."""

    def __init__(self, pods: Sequence[TracePod], machines: Sequence[Machine], seeds: int) -> None:
        self.pods = pods
        self.machines = machines
        self.seeds = range(seeds)
        self.gpus = sum(machine.gpus for machine in machines)
        self._bar = progress_bar()
        self._task = TaskID(0)

    def run(self) -> PackingOutcome:
        """Run all fillings one after the other, so that their times are comparable."""
        created = [(0, list(self.pods))]
        inflated = self._inflated(self.pods)
        single_pods = [pod for pod in self.pods if pod.gpus <= 1]
        single = self._inflated(single_pods)
        all_rules = len(RULES) + len(SELECTED)
        total = all_rules * _length(created + inflated) + len(SELECTED) * _length(single)
        with self._bar:
            self._task = self._bar.add_task("", total=total)
            return PackingOutcome(
                created=self._fillings(created, RuleName),
                inflated=self._fillings(inflated, RuleName),
                created_live=self._fillings(created, SELECTED, CpuPods.KUBE_SCHEDULER),
                inflated_live=self._fillings(inflated, SELECTED, CpuPods.KUBE_SCHEDULER),
                single=self._fillings(single, SELECTED, expected=single_pods),
            )

    def _inflated(self, pods: Sequence[TracePod]) -> list[tuple[int, list[TracePod]]]:
        return [
            (seed, arrivals(pods, 100 * self.gpus, inflation_ratio=INFLATE, seed=seed))
            for seed in self.seeds
        ]

    def _fillings(
        self,
        lists: Sequence[tuple[int, list[TracePod]]],
        rules: Iterable[RuleName],
        cpu_pods: CpuPods = CpuPods.RULE,
        expected: Sequence[TracePod] | None = None,
    ) -> dict[RuleName, list[Filled]]:
        return {
            rule: [
                fill(
                    self.machines,
                    arriving,
                    rule,
                    expected=self.pods if expected is None else expected,
                    seed=seed,
                    cpu_pods=cpu_pods,
                    track=self._track,
                )
                for seed, arriving in lists
            ]
            for rule in rules
        }

    def _track(self, pods: Sequence[TracePod]) -> Iterable[TracePod]:
        for pod in pods:
            yield pod
            self._bar.advance(self._task)


def _length(lists: Iterable[tuple[int, list[TracePod]]]) -> int:
    return sum(len(arriving) for _, arriving in lists)


def mean_granted_percent(fillings: Iterable[Filled]) -> float:
    """Return the mean GPU share granted at the end, percent of all GPUs."""
    return statistics.mean(filling.end.granted_percent for filling in fillings)


def gain(fillings: Fillings, rule: RuleName) -> tuple[float, float]:
    """Return how much defrag grants above a rule, seed by seed: mean, and its standard error."""
    pairs = zip(fillings[RuleName.DEFRAG], fillings[rule], strict=True)
    gains = [ours.end.granted_percent - theirs.end.granted_percent for ours, theirs in pairs]
    error = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return statistics.mean(gains), error


def spread(values: Sequence[float], digits: int) -> str:
    """Format the mean, and the standard deviation of several values."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return plus_minus(statistics.mean(values), deviation, digits)


def ends_table(fillings: Fillings) -> str:
    """Render one row for each rule: the state at the end."""
    rows = [
        [
            f"`{rule}`",
            spread([filling.end.granted_percent for filling in results], 2),
            spread([filling.end.fragmentation_percent for filling in results], 2),
            spread([filling.unplaced for filling in results], 0),
            spread([filling.unplaced_several for filling in results], 0),
            spread([filling.seconds for filling in results], 1),
        ]
        for rule, results in fillings.items()
    ]
    head = ["rule", "granted, % of GPUs", "fragmented, %", "pods unplaced", "of several GPUs", "s"]
    return markdown_table(head, rows, numeric=True)


def curves_table(fillings: Fillings) -> str:
    """Render one row for each rule: the states after these arrivals, for the first seed."""
    head = ["rule", *(f"{arrived} %" for arrived in ARRIVED)]
    rows = []
    for rule, (first, *_) in fillings.items():
        # The first point after so many arrivals; the last one is the end.
        points = [
            next((p for p in first.curve if p.arrived_percent >= arrived), first.end)
            for arrived in ARRIVED
        ]
        rows.append(
            [
                f"`{rule}`",
                *(f"{p.granted_percent:.1f} / {p.fragmentation_percent:.1f}" for p in points),
            ]
        )
    return markdown_table(head, rows, numeric=True)


def rules_list() -> str:
    """Render the description of each rule."""
    return "\n".join(f"- `{name}`: {rule.description}." for name, rule in RULES.items())


def signed(difference: tuple[float, float]) -> str:
    """Format a difference of shares and its standard error."""
    return f"{difference[0]:+.2f} (standard error {difference[1]:.2f})"


def page(study: Study, outcome: PackingOutcome) -> str:
    """Render the page in Markdown."""
    ours, fgd, rounded = RuleName.DEFRAG, RuleName.FGD, RuleName.FGD_ROUNDED
    requested_percent = outcome.created[ours][0].end.arrived_percent
    without_gpu = sum(pod.gpus == 0 for pod in study.pods)
    several = sum(pod.gpus > 1 for pod in study.pods)
    live = outcome.inflated_live
    return f"""\
# Filling a cluster

<!-- Generated by `make bench-openb` (studies/packing/study.py); edit the code instead. -->

How much of a cluster's GPUs can be granted before only fragments are free? The pods of Alibaba's
openb trace (2023; hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0) arrive one after the other
and stay. {len(study.pods):,} pods request whole GPUs, shares, several GPUs of one node, or none;
{len(study.machines):,} nodes have {study.gpus:,} GPUs. Each rule places all pods on an empty
cluster. `esg openb` does the same with any trace of that form.

{rules_list()}

`pack` and `defrag` run the live code: candidates, kernels, scores and ledger are those of the
extender; the node is the one that filter puts first. `defrag` is the default
([ADR 10](adr/0010-placing-against-fragmentation.md)).

*Granted*: GPU share that is reserved at the end. *Fragmented*: free GPU share that the trace's pods
cannot use, by the measure of Weng et al. (USENIX ATC 2023), for every rule. Both are percent of all
GPUs. *s*: CPU seconds for all pods.

## The pods as they were created

They request {requested_percent:.1f} % of the GPUs, so a rule that wastes little can place nearly
all.

{ends_table(outcome.created)}

## Inflated to {INFLATE:g} times the GPUs

Pods are drawn from the trace until they request {100 * INFLATE:g} % of the GPUs, and shuffled:
{len(study.seeds)} seeds, mean and standard deviation.

{ends_table(outcome.inflated)}

Seed by seed, `defrag` grants {signed(gain(outcome.inflated, fgd))} points of all GPUs more than
`fgd`, and {signed(gain(outcome.inflated, rounded))} more than `fgd-rounded`.

The simulator of FGD's authors publishes for this trace at 130 %, over ten other draws of the same
kind: FGD 95.3 to 95.5, best fit 92.9 to 93.3, random 87.1 to 88.0
(`experiments/analysis/expected_results/analysis_allo_discrete.csv`). It states ten minutes for one
such run on two cores (`experiments/README.md`).

Granted / fragmented (%), by the share that had arrived, for seed 0:

{curves_table(outcome.inflated)}

Before the cluster is full, `defrag` grants less than `fgd` by pods of several GPUs that it does not
place: it does not know them, breaks up the nodes that they need, and fills these with other pods.
At the end it places more pods, and fewer of those.

## Pods of one GPU at most

A live function pod has one GPU or a share of it. The same draw without the {several} pods of
several GPUs, which neither `fgd` nor the measure expects here:

{ends_table(outcome.single)}

{curves_table(outcome.single)}

`defrag` grants {signed(gain(outcome.single, fgd))} points more than `fgd`, and
{signed(gain(outcome.single, rounded))} more than `fgd-rounded`. An `fgd` that expects the pods of
several GPUs all the same keeps GPUs whole for them.

## Pods without a GPU placed by kube-scheduler

Above, each rule also places the {without_gpu:,} pods that request no GPU, as in the published
experiment. Live, kube-scheduler does not call an extender for them. Here its default scores place
them (least allocated, balanced). First as created, then inflated:

{ends_table(outcome.created_live)}

{ends_table(live)}

Such pods go to the emptiest nodes, and take the vCPUs that the GPUs there need. A measure that only
tests for one more pod on a node detects that late: `fgd` grants
{mean_granted_percent(live[fgd]):.1f} % and `fgd-rounded`
{mean_granted_percent(live[rounded]):.1f} %. `defrag` counts how much of a node's free share its
vCPUs serve: {mean_granted_percent(live[ours]):.1f} %.

## How to read it

- FGD knows the whole workload in advance. `defrag` starts without knowledge, and uses the current
  reservations.
- `fgd` is the rule of the paper, `fgd-rounded` that of its authors' simulator, which is one of
  Kubernetes' schedulers. Equal nodes are ordered by best fit here, by name there; and there the
  known workload is the most frequent requests, of 95 % of the pods.
- Between rules a tenth of a point is noise of the draw. Most of the share that no rule grants is
  next to pods that request 81 % of a GPU: few pods request as little as the rest.
- Pods never end here. Where they do, holes are filled again, and rules differ less.
- A pod of several GPUs is several reservations on one node here, all or none. Set `pack` on a
  cluster where many pods need several GPUs at once and must not wait.
- The trace has no GPU memory, and its default list names no GPU models. Memory of nodes counts when
  a pod is placed, not in the measures.
- kube-scheduler adds its own scores to an extender's: live, another of the nodes that filter passes
  may win.
"""


def summary(outcome: PackingOutcome) -> dict[str, float]:
    """Return the values of the range file."""
    ours, fgd, rounded = RuleName.DEFRAG, RuleName.FGD, RuleName.FGD_ROUNDED
    all_fillings = (
        outcome.created,
        outcome.inflated,
        outcome.created_live,
        outcome.inflated_live,
        outcome.single,
    )
    return {
        "defrag_s": max(run.seconds for fillings in all_fillings for run in fillings[ours]),
        "created_granted_percent": mean_granted_percent(outcome.created[ours]),
        "created_unplaced": outcome.created[ours][0].unplaced,
        "created_more_than_fgd_rounded_percent": gain(outcome.created, rounded)[0],
        "inflated_granted_percent": mean_granted_percent(outcome.inflated[ours]),
        "inflated_more_than_fgd_percent": gain(outcome.inflated, fgd)[0],
        "inflated_more_than_fgd_rounded_percent": gain(outcome.inflated, rounded)[0],
        "single_more_than_fgd_rounded_percent": gain(outcome.single, rounded)[0],
        "live_inflated_granted_percent": mean_granted_percent(outcome.inflated_live[ours]),
    }


def main(
    data: Annotated[
        Path,
        typer.Option(envvar="ESG_DATA", metavar="DIR", help="folder with the data of others"),
    ],
    seeds: int = 5,
    out: Path = PAGE,
) -> dict[str, float]:
    """Run all fillings, write and print the page, and return its figures."""
    folder = data / TRACE
    pods, machines = read_trace(
        folder / "openb_pod_list_default.csv", folder / "openb_node_list_gpu_node.csv"
    )
    study = Study(pods, machines, seeds)
    outcome = study.run()
    write_page(out, page(study, outcome))
    values = summary(outcome)
    for name, value in values.items():
        print(f"{name}: {value:.3f}")
    return values


if __name__ == "__main__":
    typer.run(main)
