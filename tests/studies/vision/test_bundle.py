"""The bundle of measured stand-ins, from points as a GPU would give them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from studies.vision import measure
from studies.vision.stand_ins import STAND_INS
from workbench.profiles.bundles import read_bundle
from workbench.profiles.generated import FUNCTIONS
from workbench.profiles.measured_points import MeasuredPoint

REPOSITORY = Path(__file__).parents[3]


def point(function, batch, percent):
    """Return a point whose time is that of an ideal GPU."""
    return MeasuredPoint(
        function=function, gpu_model="NVIDIA H100 80GB HBM3", server="http://127.0.0.1",
        batch=batch, cpu=1, gpu_percent=percent, latency_ms=100 * batch / percent,
        p95_ms=101 * batch / percent, memory_mib=1000 + batch, runs=100,
        median_interval_ms=None, p95_interval_ms=None, cv_ratio=0.01, is_precise=True,
        output_mib=0.25, cold_start_ms=8000,
    )  # fmt: skip


def test_each_sample_function_has_a_stand_in():
    """The stand-ins take the places of all sample functions."""
    assert {known.function for known in STAND_INS} == {known.name for known in FUNCTIONS}


def test_the_bundle_reads_as_one(tmp_path, monkeypatch):
    """Header, interference and profiles are those of the measurement."""
    monkeypatch.setattr(measure, "driver_version", lambda: "580.159.04")
    names = [known.function for known in STAND_INS]
    points = [
        point(name, batch, share) for name in names for batch in (1, 2) for share in (50, 100)
    ]
    ratios = {name: dict.fromkeys(names, 0.125) for name in names}
    out = tmp_path / "h100.yaml"
    options = SimpleNamespace(out=out, license="Apache-2.0", machine="1 x H100", cpus=[])
    measure.write_bundle(points, ratios, options)
    bundle = read_bundle(out.read_text(encoding="utf-8"), str(out))
    assert bundle.header.spec.driver == "580.159.04"
    assert bundle.header.spec.interference == ratios
    assert [profile.metadata.name for profile in bundle.profiles] == names
    fastest = bundle.profiles[0].spec.gpus[0].configurations[1]
    assert fastest.latency_ms == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "model"), [("h100-vision", "NVIDIA H100 80GB HBM3"), ("cpu-vision", "none")]
)
def test_a_published_bundle_is_valid(name, model):
    """Its profiles and its table are of stand-ins, on the GPU that it names."""
    file = REPOSITORY / "deploy/profiles" / f"{name}.yaml"
    bundle = read_bundle(file.read_text(encoding="utf-8"), str(file))
    names = {known.function for known in STAND_INS}
    assert {profile.metadata.name for profile in bundle.profiles} <= names
    assert bundle.header.spec.interference.keys() <= names
    assert {gpu.model for p in bundle.profiles for gpu in p.spec.gpus} == {model}
