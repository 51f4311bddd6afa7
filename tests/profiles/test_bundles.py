"""Bundles of published profiles: the header, its checks, and ``esg profiles show`` of a URL."""

import json
import re
from functools import partial
from http.server import SimpleHTTPRequestHandler

import pytest
import yaml

from tests.command_line import esg
from tests.http_in_thread import served_in_thread
from tests.testbed import REPOSITORY

EXAMPLE = re.search(
    r"```yaml\n(apiVersion: profiles\..*?)---\n",
    (REPOSITORY / "docs" / "profiles.md").read_text(encoding="utf-8"),
    re.DOTALL,
)[1]
POINT = {"batch": 1, "cpu": 2, "gpuPercent": 28, "memoryMib": 1000, "latencyMs": 10}
PROFILE = {
    "apiVersion": "esg-scheduler.io/v1alpha1",
    "kind": "FunctionProfile",
    "metadata": {"name": "encoder"},
    "spec": {"gpus": [{"model": "NVIDIA A100-SXM4-80GB", "configurations": [POINT]}]},
}


def written(folder, header=EXAMPLE, *, profile=PROFILE):
    """Write a bundle; return its file."""
    file = folder / "bundle.yaml"
    file.write_text(f"{header}---\n{yaml.safe_dump(profile)}", encoding="utf-8")
    return file


def test_show_prints_where_profiles_come_from(tmp_path):
    """The documented header, and the tables of the profiles."""
    done = esg("profiles", "show", written(tmp_path))
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[:6] == [
        "vision-a100: 2 x EPYC 7742, 8 x A100, CC-BY-4.0",
        "driver 550.54.15",
        "measured by: esg profiles measure -f functionserver.yaml --shares 14,28,56",
        f"model of encoder: sha256:{EXAMPLE.split('sha256:')[1].split()[0]}",
        "runs beside a neighbour with the whole GPU; less in proportion to its share:",
        "  encoder beside classify: 1.09 times as long",
    ]
    assert "encoder: cold start 0.0 ms" in done.stdout


def test_other_commands_skip_the_header(tmp_path):
    assert esg("check", written(tmp_path)).exit_code == 0


def test_a_bundle_in_json(tmp_path):
    """Header and profiles are items of a List."""
    file = tmp_path / "bundle.json"
    bundle = {"kind": "List", "apiVersion": "v1", "items": [yaml.safe_load(EXAMPLE), PROFILE]}
    file.write_text(json.dumps(bundle), encoding="utf-8")
    assert esg("profiles", "show", file).stdout.startswith("vision-a100: ")


@pytest.fixture
def served(tmp_path):
    """Serve a folder with a bundle by HTTP; yields its URL."""
    written(tmp_path)

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with served_in_thread(partial(Handler, directory=str(tmp_path))) as url:
        yield url


def test_show_reads_a_url(served):
    done = esg("profiles", "show", f"{served}/bundle.yaml", "--function", "encoder")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("vision-a100: ")


def test_a_url_without_a_file(served):
    """The error has the server's reason."""
    done = esg("profiles", "show", f"{served}/absent.yaml")
    assert done.exit_code == 1
    assert "absent.yaml cannot be read: " in done.stderr


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (EXAMPLE.replace("  license:", "  licence:"), "spec.license: Field required"),
        (EXAMPLE.replace("sha256:9", "md5:9"), "spec.modelDigests.encoder: String should match"),
        (EXAMPLE.replace("encoder: sha", "other: sha"), "has no digest of encoder"),
        (EXAMPLE.replace("encoder: {", "other: {"), "the bundle has no profile of other; remove"),
        (f"{EXAMPLE}---\n{EXAMPLE}", "2 documents are headers; keep one"),
    ],
)
def test_headers_that_do_not_fit(tmp_path, header, expected):
    """A header says all, of each profile of its file and no other."""
    done = esg("profiles", "show", written(tmp_path, header))
    assert done.exit_code == 1
    assert expected in done.stderr
