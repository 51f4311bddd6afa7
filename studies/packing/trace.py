"""Pods and nodes in the form of Alibaba's openb traces (2023): two CSV files.

That is the form of ``openb_pod_list_default.csv`` and ``openb_node_list_gpu_node.csv`` of
hkust-adsl/kubernetes-scheduler-simulator. Columns that are not named here are passed over. No such
file ships with the project.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from scheduler.model.message_text import quoted
from workbench.files.csv_table import TableRow, file_error, read_table, table_rows

MILLI_PER_PERCENT = 10
_WHOLE_GPU_MILLI = 1000
_GPUS_MAX = 64  # of one node, as in the inventory of a live one
_MODELS_MAX = 63  # of GPU: FGD's classes have a bit for each

_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time")
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")


@dataclass(frozen=True, slots=True)
class TracePod:
    """Requests of one pod.

    Attributes:
        name: name in the trace.
        cpu_milli: vCPUs in thousandths.
        memory_mib: requested memory of the node.
        gpus: number of GPUs; several are whole ones.
        gpu_percent: share of each GPU, rounded up to whole percent, as the ledger counts.
        models: GPU models that the pod accepts; empty: any.
        created_s: time of creation, in seconds of the trace.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_percent: int
    models: frozenset[str]
    created_s: int

    @property
    def share_percent(self) -> int:
        """Requested share of all its GPUs together, in percent of one."""
        return self.gpus * self.gpu_percent


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the trace: its GPUs are all of one model."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_model: str


def read_pods(file: Path) -> list[TracePod]:
    """Read the pods, at least one, in the order of their creation, then of the file.

    Raises:
        DocumentError: the file cannot be read, or a line is wrong; it names file and line.
    """
    return sorted(read_table(file, _POD_COLUMNS, _pod, noun="pod"), key=lambda pod: pod.created_s)


def read_machines(file: Path) -> list[Machine]:
    """Read the nodes, in the order of the file; at least one has a GPU.

    Raises:
        DocumentError: the file cannot be read, or a line is wrong; it names file and line.
    """
    machines = []
    seen: dict[str, int] = {}
    with closing(table_rows(file, _NODE_COLUMNS)) as rows:
        for row in rows:
            name = row.text("sn")
            if name in seen:
                message = f"{quoted(name)} is the node of line {seen[name]} already"
                raise row.error("sn", message)
            seen[name] = row.line
            machines.append(
                Machine(
                    name,
                    row.whole("cpu_milli", minimum=1),
                    row.whole("memory_mib", minimum=1),
                    gpus := row.whole("gpu", limit=_GPUS_MAX),
                    row.text("model") if gpus else row.cells.get("model", ""),
                )
            )
    if not any(machine.gpus for machine in machines):
        raise file_error(file, "has no node with a GPU")
    models = len({machine.gpu_model for machine in machines})
    if models > _MODELS_MAX:
        raise file_error(file, f"has {models} models of GPU; {_MODELS_MAX} are the most")
    return machines


def _pod(row: TableRow) -> TracePod:
    gpus = row.whole("num_gpu", limit=_GPUS_MAX)
    gpu_milli = row.whole("gpu_milli", minimum=1, limit=_WHOLE_GPU_MILLI) if gpus else 0
    if gpus > 1 and gpu_milli < _WHOLE_GPU_MILLI:
        message = f"is {gpu_milli} for {gpus} GPUs; several GPUs are whole ones, {_WHOLE_GPU_MILLI}"
        raise row.error("gpu_milli", message)
    models = row.cells.get("gpu_spec", "").split("|")
    return TracePod(
        row.text("name"),
        row.whole("cpu_milli"),
        row.whole("memory_mib"),
        gpus,
        -(-gpu_milli // MILLI_PER_PERCENT),
        frozenset(model.strip() for model in models if model.strip()),
        row.whole("creation_time"),
    )
