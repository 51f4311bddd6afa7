"""Small workflows and profiles for the tests, by hand and by hypothesis."""

from collections.abc import Sequence

from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow

Row = tuple[int, int, int, float]  # batch, cpu, gpu_percent, latency_ms

FEW_TIMES_MS = (1.0, 2.0, 3.0, 10.0)  # so that sums and costs tie
TIMES_MS = st.one_of(
    st.sampled_from(FEW_TIMES_MS),
    st.floats(0.001, 3_600_000.0),  # 1 microsecond to 1 hour
    st.sampled_from((0.001, 3_600_000.0)),
)
CHAIN = ((), (0,), (1,), (2,))
N_SHAPE = ((), (0,), (0,), (1, 2), (2,))  # the smallest order that is not series-parallel


def profile(name: str, rows: dict[str, Sequence[Row]] | Sequence[Row]) -> FunctionProfile:
    """A profile from rows, on model "gpu" or per model; memory is 100 MiB per unit of batch."""
    models = rows if isinstance(rows, dict) else {"gpu": rows}
    return FunctionProfile.model_validate(
        {
            "metadata": {"name": name},
            "spec": {
                "gpus": [
                    {
                        "model": model,
                        "sparse": True,
                        "configurations": [
                            {
                                "batch": batch,
                                "cpu": cpu,
                                "gpuPercent": percent,
                                "latencyMs": latency_ms,
                                "memoryMib": 100 * batch,
                            }
                            for batch, cpu, percent, latency_ms in listed
                        ],
                    }
                    for model, listed in models.items()
                ]
            },
        }
    )


def workflow(
    after: Sequence[Sequence[int]], *, slo_ms: float = 1000.0, functions: Sequence[str] = ()
) -> Workflow:
    """Workflow "w" of stages s0, s1, ... of functions f0, f1, ... or as ``functions`` says."""
    return Workflow.model_validate(
        {
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {
                "slo": {"latencyMs": slo_ms},
                "stages": [
                    {
                        "name": f"s{i}",
                        "function": functions[i] if functions else f"f{i}",
                        "after": [f"s{p}" for p in before],
                    }
                    for i, before in enumerate(after)
                ],
            },
        }
    )


def catalogue(
    after: Sequence[Sequence[int]],
    rows: Sequence[dict[str, Sequence[Row]] | Sequence[Row]],
    *,
    slo_ms: float = 1000.0,
) -> Catalogue:
    """Workflow "w" with one function a stage."""
    return Catalogue.of(
        [
            workflow(after, slo_ms=slo_ms),
            *(profile(f"f{i}", listed) for i, listed in enumerate(rows)),
        ]
    )


@st.composite
def rows(draw: st.DrawFn, most: int = 6) -> list[Row]:
    """One to ``most`` configurations, no point twice."""
    points = draw(
        st.lists(
            st.tuples(
                st.sampled_from((1, 2, 3, 4, 8)),
                st.sampled_from((1, 2, 4)),
                st.sampled_from((10, 20, 50, 100)),
            ),
            min_size=1,
            max_size=most,
            unique=True,
        )
    )
    return [(*point, draw(TIMES_MS)) for point in points]


@st.composite
def dags(draw: st.DrawFn, most: int = 4) -> list[list[int]]:
    """The direct predecessors of each stage of a DAG; stages may be unconnected."""
    count = draw(st.integers(1, most))
    return [sorted(draw(st.sets(st.integers(0, v - 1)))) if v > 0 else [] for v in range(count)]


@st.composite
def catalogues(
    draw: st.DrawFn,
    after: Sequence[Sequence[int]] | None = None,
    models: Sequence[str] = ("gpu",),
    configurations_max: int = 6,
) -> Catalogue:
    """A workflow "w" of up to 4 stages (or of this shape), and its functions' profiles."""
    shape = draw(dags()) if after is None else after
    listed = [{m: draw(rows(configurations_max)) for m in models} for _ in shape]
    return catalogue(shape, listed, slo_ms=draw(st.floats(0.01, 10_000_000.0)))
