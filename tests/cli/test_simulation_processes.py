"""``esg simulate``: policies of users, processes, and Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.harness import GUIDE, answer, refusal, simulate
from workbench.series import executors

ESG = str(Path(sys.executable).with_name("esg"))
pytestmark = pytest.mark.usefixtures("wide_terminal")


def guide_block(kind):
    """The guide's example, as its reader would copy it."""
    (block,) = re.findall(rf"```{kind}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return block


@pytest.fixture
def installed(tmp_path):
    """A folder with the guide's policy in it, as pip would install it, and others beside it."""

    def install(name, source, target):
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n", encoding="utf-8")
        points = f"[esg_scheduler.policies]\n{name} = {target}\n"
        (about / "entry_points.txt").write_text(points, encoding="utf-8")
        return tmp_path

    return install


def start(folder, *arguments, hash_seed="random"):
    """The command itself, with a folder of packages beside its own."""
    path = [str(folder), os.environ.get("PYTHONPATH")]
    return subprocess.Popen(
        [ESG, "simulate", *map(str, arguments)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONHASHSEED": hash_seed,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_the_guides_policy(installed):
    """It is found by its entry point, in spawned processes too; it is fast, dear and in time."""
    (target,) = re.findall(r'^hasty = "(.*)"$', guide_block("toml"), re.MULTILINE)
    folder = installed("hasty", guide_block("python"), target)
    with start(
        folder,
        "--policy",
        "exact,hasty",
        "--requests",
        200,
        "--jobs",
        2,
        "--json",
        "--set",
        "resizable=true",
    ) as running:
        out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    exact, hasty = json.loads(out)["runs"]
    assert (exact["policy"], hasty["policy"]) == ("exact", "hasty")
    assert hasty["p50_over_slo"] < exact["p50_over_slo"]
    assert hasty["hit_rate"] >= exact["hit_rate"]
    assert hasty["cost_per_1000"] > exact["cost_per_1000"]


@pytest.mark.slow
def test_a_policy_of_a_file(tmp_path):
    """No package is installed; spawned processes read the file too."""
    file = tmp_path / "hasty.py"
    file.write_text(guide_block("python"), encoding="utf-8")
    name = f"{file}:Hasty"
    done = simulate(
        "--policy", f"minimum,{name}", "--requests", 50, "--jobs", 2, "--json",
        "--out", tmp_path / "out", quick=False,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert [run["policy"] for run in json.loads(done.stdout)["runs"]] == ["minimum", name]
    folders = [path.name for path in (tmp_path / "out" / "runs").iterdir()]
    assert any(folder.endswith("hasty.py-Hasty-moderate-normal-0") for folder in folders)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("", "Missing", "the file has no class 'Missing'"),
        ("class Wrong: ...", "Wrong", "is no class derived from Policy"),
        ("1 / 0", "Any", "cannot be imported: ZeroDivisionError"),
        (None, "Any", "does not exist"),
    ],
)
def test_a_file_without_a_policy(tmp_path, source, target, message):
    file = tmp_path / "policy.py"
    if source is not None:
        file.write_text(source, encoding="utf-8")
    error = refusal("--policy", f"{file}:{target}")
    assert f"error: policy {file}:{target}: " in error
    assert message in error


HALF_WAY = """
from workbench.simulation.policies.minimum import Minimum

class Weary(Minimum):
    asked = 0

    def candidates(self, question):
        self.asked += 1
        if self.asked > 300:
            raise RuntimeError("enough for today")
        return super().candidates(question)
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_a_policy_that_fails_half_way(installed, tmp_path, monkeypatch):
    """The others are finished, what it had served is kept, and the status says that it failed."""
    monkeypatch.syspath_prepend(installed("weary", HALF_WAY, "weary:Weary"))
    done = simulate(
        "--policy", "weary,minimum", "--requests", 400, "--jobs", 1, "--out", tmp_path / "out",
        quick=False,
    )  # fmt: skip
    assert done.exit_code == 1
    message = r"error: weary, moderate-normal, seed 0: policy \S+, called for queue default/\S+ at "
    assert re.search(
        message
        + r"[\d,.]+ ms of the virtual clock: RuntimeError: enough for today \(\S+weary\.py:10\)",
        done.stderr,
    )
    weary, minimum = json.loads((tmp_path / "out/results.json").read_text("utf-8"))["runs"]
    assert 0 < weary["requests"] < 400 == minimum["requests"]
    assert "enough for today" in weary["failure"]
    rows = (tmp_path / "out/runs/weary-moderate-normal-0/requests.csv").read_text("utf-8")
    assert len(rows.splitlines()) == 1 + weary["requests"]
    assert "enough for today" in (tmp_path / "out/report.html").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.nightly
def test_equal_seeds_give_equal_bytes_in_any_process(tmp_path):
    """Also with other hashes of texts, by which Python orders sets: for policies of every kind."""
    order = (
        "--policy", "warm,esg,infless,orion,aquatope,random,sgprs", "--requests", 60,
        "--seed", 7, "--jobs", 1, "--set", "prewarm=true",
    )  # fmt: skip
    for seed in ("0", "4242"):
        with start(tmp_path, *order, "--out", seed, hash_seed=seed) as running:
            _, err = running.communicate(timeout=300)
        assert running.returncode == 0, err
    files = [path for path in (tmp_path / "0").rglob("*") if path.is_file()]
    assert len(files) == 4 + 2 * 7
    for path in files:
        if path.name != "timings.json":
            repeated = tmp_path / "4242" / path.relative_to(tmp_path / "0")
            assert path.read_bytes() == repeated.read_bytes(), path


SLEEPER = """
import time
from workbench.simulation.policies.minimum import Minimum

class Sleeper(Minimum):
    def candidates(self, question):
        print("asleep", flush=True)
        time.sleep(3600)
"""


@pytest.mark.parametrize("where", [("--jobs", 1), ("--jobs", 2), ("--jobs", 2, "--dask", "local")])
@pytest.mark.slow
@pytest.mark.nightly
def test_ctrl_c_ends_at_once(installed, where):
    """Even where a policy never answers: one line, status 130, and complete runs are kept."""
    folder = installed("sleeper", SLEEPER, "sleeper:Sleeper")
    with start(
        folder, "--policy", "minimum,sleeper", "--requests", 50, *where, "--out", "out"
    ) as running:
        assert running.stdout.readline() == "asleep\n"
        complete = folder / "out/unfinished/minimum-moderate-normal-0.json"
        while not complete.exists():
            assert running.poll() is None, running.stderr.read()
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=300)
    assert running.returncode == 130, err
    assert out == ""
    first, *others = err.splitlines()
    assert first.startswith("generated profiles")
    assert others == ["stopped"]
    (run,) = json.loads((folder / "out/results.json").read_text("utf-8"))["runs"]
    assert run["policy"] == "minimum"


GATED = """
from pathlib import Path
from workbench.simulation.policies.minimum import Minimum

class Gated(Minimum):
    def __init__(self, context):
        super().__init__(context)
        if not Path("open").exists():
            print("waiting", flush=True)
            while True:
                pass
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_a_killed_sweep_goes_on(tmp_path):
    """Complete runs are not computed again, and the results are those of one call."""
    (tmp_path / "gated.py").write_text(GATED, encoding="utf-8")
    order = (
        "--policy", "minimum,gated.py:Gated", "--set", "sweep={nodes: [8, 16]}",
        "--requests", 50, "--jobs", 1,
    )  # fmt: skip
    with start(tmp_path, *order, "--out", "out") as running:
        assert running.stdout.readline() == "waiting\n"
        running.kill()
    (complete,) = (tmp_path / "out/unfinished").iterdir()
    requests = tmp_path / "out/runs" / complete.stem / "requests.csv"
    requests.write_text("as it was\n", encoding="utf-8")
    (tmp_path / "open").touch()
    for out in ("out", "whole"):
        with start(tmp_path, *order, "--out", out, "--continue") as running:
            _, err = running.communicate(timeout=300)
        assert running.returncode == 0, err
        assert ("1 of 4 runs are complete already" in err) == (out == "out")
    results = [(tmp_path / out / "results.json").read_text("utf-8") for out in ("out", "whole")]
    assert results[0] == results[1]
    assert requests.read_text("utf-8") == "as it was\n"
    assert not (tmp_path / "out/unfinished").exists()


def test_continuing_needs_a_folder():
    assert "--continue: goes on with the runs in a folder" in refusal("--continue")


HELD = """
import os, time
from pathlib import Path
from workbench.simulation.policies.minimum import Minimum

class Held(Minimum):
    def __init__(self, context):
        super().__init__(context)
        print(os.getpid(), flush=True)
        while not Path("open").exists():
            time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_the_loss_of_a_dask_worker_changes_nothing(tmp_path):
    """A worker is killed during its run; the run starts again, and all results are equal."""
    (tmp_path / "held.py").write_text(HELD, encoding="utf-8")
    order = ("--policy", "minimum,held.py:Held", "--requests", 50, "--seed", "1,2", "--jobs", 2)
    with start(tmp_path, *order, "--out", "lost", "--dask", "local") as running:
        os.kill(int(running.stdout.readline()), signal.SIGKILL)
        (tmp_path / "open").touch()
        _, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    assert "Traceback" not in err
    with start(tmp_path, *order, "--out", "whole") as running:
        _, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    results = [(tmp_path / out / "results.json").read_text("utf-8") for out in ("lost", "whole")]
    assert results[0] == results[1]
    assert len(json.loads(results[0])["runs"]) == 4


CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    threads = int(sys.argv[1])
    with LocalCluster(n_workers=2, threads_per_worker=threads, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def dask_cluster(tmp_path):
    """Start a Dask cluster of two workers with so many threads; return its address."""
    (tmp_path / "cluster.py").write_text(CLUSTER, encoding="utf-8")
    started = []

    def cluster(threads):
        command = [sys.executable, str(tmp_path / "cluster.py"), str(threads)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen(command, text=True, **pipes))
        return started[-1].stdout.readline().strip()

    yield cluster
    for process in started:
        process.communicate()


@pytest.mark.slow
@pytest.mark.nightly
def test_a_dask_cluster_runs_the_series(dask_cluster):
    """Its workers give the figures of this process."""
    order = ("--policy", "minimum,exact", "--seed", "1,2", "--requests", 50, "--jobs", 1)
    here = answer(*order, quick=False)
    there = answer(*order, "--dask", dask_cluster(1), quick=False)
    assert there["runs"] == here["runs"]


@pytest.mark.slow
@pytest.mark.nightly
def test_workers_with_threads_are_refused(dask_cluster):
    """Runs in threads of one process would wait for one another."""
    assert "a worker has 2 threads" in refusal("--dask", dask_cluster(2))


@pytest.mark.slow
def test_a_dask_cluster_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(executors, "_CONNECT_S", 0.1)
    assert "--dask tcp://127.0.0.1:1: no scheduler with a worker there" in refusal(
        "--dask", "tcp://127.0.0.1:1"
    )


def test_dask_is_an_extra(monkeypatch):
    """Without it the error names the extra; nothing else needs it."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install 'esg-scheduler[dask]'" in refusal("--dask", "local")
    assert answer("--policy", "minimum")["runs"]


SUICIDAL = """
import os, signal
from workbench.simulation.policies.minimum import Minimum

class Suicidal(Minimum):
    def candidates(self, question):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_is_told(installed):
    """The kernel does so when memory is short."""
    folder = installed("suicidal", SUICIDAL, "suicidal:Suicidal")
    with start(
        folder, "--policy", "suicidal", "--seed", "1,2", "--requests", 50, "--jobs", 2
    ) as running:
        _, err = running.communicate(timeout=300)
    assert running.returncode == 1
    assert "error: suicidal, moderate-normal, seed 1: its process ended by itself" in err
