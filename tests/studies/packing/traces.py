"""Small clusters and lists of pods, in words and as CSV."""

from collections.abc import Iterable
from pathlib import Path

from hypothesis import strategies as st

from studies.packing.trace import Machine, TracePod

PODS_HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time"
NODES_HEADER = "sn,cpu_milli,memory_mib,gpu,model"


def pod(name="p", cpu_milli=1_000, gpus=1, gpu_percent=50, memory_mib=100, models=(), created_s=0):
    percent = gpu_percent if gpus else 0
    return TracePod(name, cpu_milli, memory_mib, gpus, percent, frozenset(models), created_s)


def machine(name="n", cpu_milli=16_000, gpus=2, memory_mib=64_000, gpu_model="T4"):
    return Machine(name, cpu_milli, memory_mib, gpus, gpu_model)


def csv_of(folder: Path, header: str, rows: Iterable[str], name: str = "trace.csv") -> Path:
    file = folder / name
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return file


@st.composite
def machines(draw: st.DrawFn) -> list[Machine]:
    """A few nodes, of which the first has a GPU."""
    count = draw(st.integers(1, 5))
    return [
        machine(
            f"n{i}",
            draw(st.sampled_from([4_000, 8_000, 32_000])),
            draw(st.sampled_from([1, 2, 4] if i == 0 else [0, 1, 2, 4])),
            draw(st.sampled_from([1_000, 8_000])),
            draw(st.sampled_from(["T4", "V100"])),
        )
        for i in range(count)
    ]


shapes = st.one_of(
    st.just((0, 0)),
    st.tuples(st.just(1), st.sampled_from([5, 19, 30, 47, 50, 81, 100])),
    st.tuples(st.sampled_from([2, 4]), st.just(100)),
)


@st.composite
def pods(draw: st.DrawFn, *, limit: int = 40) -> list[TracePod]:
    """Draw pods; often more than fit."""
    return [
        pod(
            f"p{i}",
            draw(st.sampled_from([0, 500, 1_500, 3_000])),
            *draw(shapes),
            draw(st.sampled_from([0, 100, 900])),
            draw(st.sampled_from([(), (), (), ("T4",), ("V100", "T4"), ("A10",)])),
        )
        for i in range(draw(st.integers(1, limit)))
    ]
