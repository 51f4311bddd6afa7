"""``esg profiles refresh``: the corrected profile from the run times that gateways observed."""

import pytest
import yaml

from scheduler.model.documents import FunctionProfile
from tests.command_line import esg
from workbench.profiles.observed_run_times import (
    ObservedRunTimes,
    RefreshError,
    refreshed_profile,
)

POINT = {"batch": 1, "cpu": 2, "gpuPercent": 28, "memoryMib": 1000}
DOCUMENT = {
    "apiVersion": "esg-scheduler.io/v1alpha1",
    "kind": "FunctionProfile",
    "metadata": {"name": "f"},
    "spec": {
        "coldStartMs": 900,
        "gpus": [
            {
                "model": "NVIDIA A100-SXM4-80GB",
                "sparse": True,
                "configurations": [
                    {**POINT, "latencyMs": 10, "p95Ms": 12},
                    {**POINT, "batch": 4, "latencyMs": 20},
                ],
            }
        ],
    },
}
PROFILE = FunctionProfile.model_validate(DOCUMENT)


def observed(profile=PROFILE, **namespaces):
    """Return a gateway's answer; each namespace has runs, ratio and spread."""
    return ObservedRunTimes.model_validate(
        {
            "spec_sha256": profile.spec_sha256,
            "namespaces": {
                name: {"runs": runs, "ratio": ratio, "spread_ratio": spread_ratio}
                for name, (runs, ratio, spread_ratio) in namespaces.items()
            },
        }
    )


def times(profile):
    return [(c.latency_ms, c.p95_ms) for c in profile.spec.gpus[0].configurations]


def test_times_are_multiplied_and_the_rest_stays():
    """Without an observed spread, p95Ms keeps its ratio, and is not added where it was missing."""
    refreshed = refreshed_profile(PROFILE, [observed(vision=(20, 1.5, None))])
    assert times(refreshed) == [(15, 18), (30, None)]
    assert refreshed.spec.cold_start_ms == 900
    assert refreshed.spec.gpus[0].sparse


def test_observed_spread_replaces_the_percentile():
    """Every point gets the p95Ms of the spread, a log-normal one."""
    refreshed = refreshed_profile(PROFILE, [observed(vision=(60, 1.0, 0.1))])
    assert [p95_ms / ms for ms, p95_ms in times(refreshed)] == pytest.approx([1.1724] * 2, abs=1e-4)


def test_namespace_with_most_runs_counts():
    """Gateways and namespaces that ran fewer batches do not change its times."""
    answers = [observed(a=(12, 3.0, None), b=(40, 1.2, None)), observed(b=(0, 1.0, None))]
    assert times(refreshed_profile(PROFILE, answers))[0] == (12, 14.4)


def test_a_corrected_profile_is_not_corrected_twice():
    """The gateway's factor is relative to the profile that it uses."""
    answers = [observed(vision=(20, 1.5, None))]
    once = refreshed_profile(PROFILE, answers)
    with pytest.raises(RefreshError, match="f: the gateway uses another profile"):
        refreshed_profile(once, answers)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([], "no gateway serves the function"),
        ([observed(vision=(9, 1.0, None))], "9 full batches were observed; a correction needs 10"),
        ([observed(vision=(90, 4.0, 0.0))], "one counts with at most 4 times; measure again"),
        ([observed(vision=(90, 0.25, 0.0))], "one counts with at most 4 times; measure again"),
    ],
)
def test_what_corrects_nothing_is_refused(answers, expected):
    """Too few runs, and runs at the bound of what counts, are no correction."""
    with pytest.raises(RefreshError, match=expected):
        refreshed_profile(PROFILE, answers)


@pytest.mark.usefixtures("wide_terminal")
def test_no_gateway_answers(tmp_path):
    """The command exits 1 and writes nothing."""
    file, out = tmp_path / "profile.yaml", tmp_path / "refreshed.yaml"
    file.write_text(yaml.safe_dump(DOCUMENT), encoding="utf-8")
    done = esg("profiles", "refresh", "--from", "http://127.0.0.1:1", "-f", file, "-o", out)
    assert done.exit_code == 1
    assert "give a gateway's health port" in done.stderr
    assert not out.exists()
