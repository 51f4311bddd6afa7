"""The options of ``esg simulate``, and the scenario that they and the environment make."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from scheduler.cli.reading import read_nodes, read_settings
from scheduler.model.node import Node, NodeError, node_from_json
from scheduler.model.quoting import listed
from scheduler.placement.options import FitPolicy
from scheduler.search.rules import Rules
from scheduler.settings import Settings
from workbench.simulation.scenario import Scenario, ScenarioError, Sharing

MS_PER_S = 1000.0
MILLI_PER_CPU = 1000
_DEFAULT = Scenario()


def _told(name: str, meaning: str) -> str:
    """What an option's help says, with the default of the scenario's field."""
    return f"{meaning}; default: {getattr(_DEFAULT, name)}"


# -- what is simulated

Policies = Annotated[
    str, typer.Option("--policy", metavar="NAME[,NAME…]", help="the policies to compare; or all")
]
SettingNames = Annotated[
    str | None,
    typer.Option(
        "--setting",
        metavar="NAME[,NAME…]",
        help="SLO and load of the paper: strict-, moderate- or relaxed- with light, normal or "
        "heavy; or all; default: moderate-normal",
    ),
]
Requests = Annotated[
    int | None,
    typer.Option(min=1, help="how many a run; default: 10,000, or all that the trace has"),
]
Seeds = Annotated[str, typer.Option("--seed", metavar="N[,N…]", help="a run for each")]
Profiles = Annotated[
    Path | None,
    typer.Option(
        help="file or folder with Workflows and FunctionProfiles; default: the generated samples"
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE.csv", help="your own requests: columns workflow, time_ms or time_s"),
]
WorkloadName = Annotated[
    str | None, typer.Option("--workload", help="another workload than the paper's, by its name")
]
WorkloadParameters = Annotated[
    Path | None, typer.Option(metavar="FILE.yaml", help="the parameters of the workload")
]
SloFactor = Annotated[
    float | None,
    typer.Option(help="on every SLO, with --trace or --workload; the paper has 0.8, 1.0 and 1.2"),
]

# -- the cluster

Nodes = Annotated[
    str, typer.Option(metavar="N|FILE.yaml", help="how many nodes, or a file of Node documents")
]
GpusPerNode = Annotated[int | None, typer.Option(min=1, help=_told("gpus_per_node", "of a node"))]
GpuModels = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu-model", help="NVML's name; repeatable: in turn; default: all that are profiled"
    ),
]
Cpus = Annotated[int | None, typer.Option(min=1, help=_told("cpus", "of a node"))]
MemoryMib = Annotated[int | None, typer.Option(min=1, help=_told("memory_mib", "of a GPU"))]

# -- what happens in it

Noise = Annotated[
    float | None,
    typer.Option(help=_told("noise_ratio", "standard deviation of log(run time over profile)")),
]
Interference = Annotated[
    float | None,
    typer.Option(
        help=_told("interference_ratio", "mean slowdown by neighbours that hold the whole GPU")
    ),
]
Bandwidth = Annotated[
    float | None,
    typer.Option("--bandwidth-mib-s", help=_told("bandwidth_mib_s", "of a node; inf: at once")),
]
KeepAlive = Annotated[
    float | None,
    typer.Option(
        "--keep-alive-s",
        help="how long an idle container stays warm; default: "
        f"{_DEFAULT.keep_alive_ms / MS_PER_S:g}",
    ),
]
WarmContainers = Annotated[
    int | None,
    typer.Option(
        help=_told("warm_containers", "of each function on each GPU at the start; 0: none")
    ),
]
Sharings = Annotated[
    Sharing | None,
    typer.Option(
        help=_told("sharing", "GPUs by MPS percentage, in sevenths as MIG, or whole: not shared")
    ),
]
NoResizing = Annotated[
    bool, typer.Option("--no-resizing", help="a container is warm for its own share alone")
]
NoPrewarm = Annotated[
    bool, typer.Option("--no-prewarm", help="no container for a predicted arrival")
]
NoReplan = Annotated[
    bool, typer.Option("--no-replan", help="stages keep their part of the SLO, come what may")
]
NoBatching = Annotated[bool, typer.Option("--no-batching", help="each request by itself")]
MissesMax = Annotated[
    int | None,
    typer.Option(
        help=_told("misses_max", "looks without room until the minimum is forced; 0: never")
    ),
]
GiveUp = Annotated[
    float | None,
    typer.Option(help=_told("give_up_factor", "a request is dropped after so many SLOs")),
]

# -- how it is planned and placed

Placements = Annotated[
    FitPolicy | None,
    typer.Option("--placement", help=_told("placement", "the tightest fit first, or the emptiest")),
]
GroupSize = Annotated[
    int | None,
    typer.Option(
        min=1, max=32, help=f"most stages of a group: esg; default: {_DEFAULT.rules.group_size}"
    ),
]
K = Annotated[
    int | None,
    typer.Option(min=1, max=64, help=_told("candidates", "how many candidates are tried")),
]
MarginRatio = Annotated[
    float | None,
    typer.Option(help=_told("margin_ratio", "by how much stages may run over their profile")),
]


def scenario_of(nodes: str, profiled: Iterable[str], given: Mapping[str, Any]) -> Scenario:
    """The scenario of these options; what is None is the environment's, or else the default.

    Args:
        nodes: a number, or the file of the Node documents.
        profiled: the GPU models that profiles have, for a cluster of which none are named.
        given: fields of `Scenario`; and ``group_size``, of its rules.

    Raises:
        ScenarioError: a value makes no sense.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = read_settings()
    rules = _rules(settings, chosen.pop("group_size", None))
    named = {"rules": rules, **_placing(settings), **_cluster(nodes, profiled, chosen), **chosen}
    if named.get("placement") == "defrag":
        raise ScenarioError(
            "ESG_PLACEMENT=defrag is not simulated; give --placement pack or --placement spread"
        )
    return Scenario(**named)


def _rules(settings: Settings, group_size: int | None) -> Rules:
    rules = settings.rules
    return rules if group_size is None else replace(rules, group_size=group_size)


def _placing(settings: Settings) -> dict[str, Any]:
    """What else of the live service's settings holds here."""
    names = ("limits", "placement", "candidates", "margin_ratio")
    return {name: getattr(settings, name) for name in names}


def _cluster(nodes: str, profiled: Iterable[str], chosen: Mapping[str, Any]) -> dict[str, Any]:
    if nodes.isdecimal():
        return {"nodes": int(nodes), "gpu_models": tuple(sorted(set(profiled)))}
    fixed = {"gpus_per_node", "gpu_models", "cpus", "memory_mib"} & chosen.keys()
    if fixed:
        option = f"--{min(fixed).removesuffix('s').replace('_', '-')}"
        raise typer.BadParameter("the file of nodes says it", param_hint=option)
    return cluster_of(Path(nodes))


def cluster_of(file: Path) -> dict[str, Any]:
    """The fields of a scenario that say what the Node documents of a file say.

    Raises:
        ScenarioError: the nodes differ in more than the model of their GPUs.
    """
    try:
        found = [node_from_json(raw) for raw in read_nodes(file) if isinstance(raw, dict)]
    except NodeError as error:
        raise ScenarioError(f"{file}: {error}") from None
    kinds = {node.name: kind for node in found if (kind := _kind(file, node)) is not None}
    if not kinds:
        raise ScenarioError(f"{file}: no Node has a healthy GPU in its annotation")
    (first, one), *_ = kinds.items()
    for name, other in kinds.items():
        for what in ("gpus_per_node", "cpus", "memory_mib"):
            if other[what] != one[what]:
                raise ScenarioError(
                    f"{file}: {what} is {other[what]:,} on Node {name} and {one[what]:,} on "
                    f"{first}; simulated nodes may differ in the model of their GPUs alone"
                )
    models = tuple(str(kind["gpu_model"]) for kind in kinds.values())
    shared = {what: one[what] for what in ("gpus_per_node", "cpus", "memory_mib")}
    return {"nodes": len(kinds), "gpu_models": models, **shared}


def _kind(file: Path, node: Node) -> dict[str, Any] | None:
    """What a node has, where it has a GPU that works."""
    gpus = [gpu for gpu in node.gpus if gpu.healthy]
    if not gpus:
        return None
    unlike = sorted({f"{gpu.model} of {gpu.memory_mib:,} MiB" for gpu in gpus})
    if len(unlike) > 1:
        raise ScenarioError(
            f"{file}: Node {node.name} has unlike GPUs: {listed(unlike)}; the simulated nodes' "
            "GPUs are alike"
        )
    return {
        "gpus_per_node": len(gpus),
        "gpu_model": gpus[0].model,
        "cpus": node.cpu_milli // MILLI_PER_CPU,
        "memory_mib": gpus[0].memory_mib,
    }
