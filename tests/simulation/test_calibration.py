"""Calibration: what differs between a run and its scenario is said, stage by stage."""

import json
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from scheduler.cli.commands import app
from scheduler.gateway.serving.call_log import BATCH_ENDED, CALL_ENDED
from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import DocumentError
from scheduler.model.documents import to_manifest
from scheduler.settings import Settings
from tests.http_in_thread import json_served_in_thread
from tests.simulation.harness import Poisson, quiet, run
from workbench.cluster.api_server import write_kubeconfig
from workbench.profiles.builders import GPU, profile, workflow
from workbench.simulation.calibration import CallOutcome, calibrate, replay
from workbench.simulation.engine import simulate
from workbench.simulation.gateway_log import read_log
from workbench.simulation.loop import Observers

SLOWER, NOISE_RATIO = 1.25, 0.1
NODES_LATER = 8
KEY = ("default", "w")


def documents(factor=1.0, cold_start_ms=0.0):
    """A chain of two stages; the second one takes so many times 40 ms."""
    rows = [(1, 1, 50, 30.0)], [(1, 1, 50, 40.0 * factor)]
    profiles = (
        profile(f"f{i}", listed, cold_start_ms=cold_start_ms) for i, listed in enumerate(rows)
    )
    return [workflow([[], [0]]), *profiles]


def scenario(noise_ratio=0.0):
    return quiet(noise_ratio=noise_ratio, nodes=4)


@pytest.fixture(scope="module")
def recording():
    """Run of a service whose second stage is slower than profiled, and whose times scatter."""
    return run(
        scenario(NOISE_RATIO), Catalogue.of(documents(SLOWER)), Poisson(8.0, seed=3), "minimum",
        requests=1_500,
    )  # fmt: skip


@pytest.fixture(scope="module")
def log(recording, tmp_path_factory):
    """Log of that run, as its gateway would have written it."""
    lines = ["starting", json.dumps({"event": "another"})]
    lines += [json.dumps(batch_line(span)) for span in recording.spans]
    lines += [json.dumps(call_line(record)) for record in recording.requests]
    file = tmp_path_factory.mktemp("log") / "gateway.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def timestamp(time_ms):
    return datetime.fromtimestamp(1e9 + time_ms / 1000, UTC).isoformat()


def batch_line(span):
    profiled_ms = {"s0": 30.0, "s1": 40.0}[span.stage]
    return {
        "event": BATCH_ENDED,
        "timestamp": timestamp(span.end_ms),
        "namespace": "default",
        "workflow": "w",
        "stage": span.stage,
        "rows": span.jobs,
        "execute_s": (span.end_ms - span.execute_ms) / 1000,
        "profiled_s": profiled_ms / 1000,
        "cpu": span.cpu,
        "gpu_percent": span.gpu_percent,
        "gpu_model": GPU,
    }


def call_line(record):
    return {
        "event": CALL_ENDED,
        "timestamp": timestamp(record.end_ms),
        "namespace": "default",
        "workflow": "w",
        "result": record.outcome,
        "latency_s": (record.end_ms - record.arrival_ms) / 1000,
        "allowed_s": record.slo_ms / 1000,
        "cold_start": record.start_ms > 0,
    }


def test_known_parameters_are_found(log):
    """The slower stage, the noise, and no error where there is none."""
    catalogue = Catalogue.of(documents())
    first, second = calibrate(read_log(log, catalogue), scenario(), catalogue, "minimum").stages
    assert (first.stage, second.stage) == ((KEY, "s0"), (KEY, "s1"))
    assert first.batches == second.batches == 1_500
    for stage, error in ((first, 0.0), (second, 1 / SLOWER - 1)):
        assert stage.simulation_error_ratio == pytest.approx(error, abs=0.02)
        assert stage.profile_error_ratio == pytest.approx(error, abs=0.02)
        assert stage.noise_ratio == pytest.approx(NOISE_RATIO, rel=0.1)
        assert stage.measured_rows == stage.simulated_rows == 1.0


def test_true_parameters_leave_no_error(log):
    """Simulated with what the run had, stages take as long as measured, and calls end alike."""
    catalogue = Catalogue.of(documents(SLOWER))
    calibration = calibrate(read_log(log, catalogue), scenario(NOISE_RATIO), catalogue, "minimum")
    errors = [stage.simulation_error_ratio for stage in calibration.stages]
    assert errors == pytest.approx([0.0, 0.0], abs=0.02)
    assert calibration.hit_ratio_error == pytest.approx(0.0, abs=0.02)
    assert calibration.ran_error_ratio == pytest.approx(0.0, abs=0.02)
    assert calibration.p99_error_ratio == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("policy", ["warm", "minimum"])
def test_a_log_that_begins_without_pods_is_simulated_so(tmp_path, policy):
    """Nobody had told the gateway its rates, and its first calls waited for the first pods."""
    catalogue = Catalogue.of(documents(cold_start_ms=800.0))
    cluster = quiet(nodes=8, warm_containers=0)
    records, spans = [], []
    rates_rps = {KEY: 0.0} if policy == "warm" else None
    simulate(
        cluster, catalogue, Poisson(20.0, seed=3), policy, requests=500, rates_rps=rates_rps,
        observers=Observers(records.append, spans.append),
    )  # fmt: skip
    lines = [*map(batch_line, spans), *map(call_line, records)]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    logged = read_log(tmp_path / "log", catalogue)
    assert logged.begins_cold
    calibration = calibrate(logged, quiet(nodes=8), catalogue, policy)
    assert 0.5 < calibration.measured.hit_ratio < 0.95
    assert calibration.simulated.hits == calibration.measured.hits
    assert calibration.p99_error_ratio == pytest.approx(0.0, abs=0.1)
    assert calibration.ran_error_ratio == pytest.approx(0.0, abs=0.01)


def test_a_log_that_begins_with_pods(log):
    """Its first calls waited for none."""
    assert not read_log(log, Catalogue.of(documents())).begins_cold


def test_what_was_measured_is_what_happened(recording, log):
    """Hits, p99 and the cost of the runs of a log are those of the run that it is of."""
    catalogue, result = Catalogue.of(documents(SLOWER)), recording.result
    logged = read_log(log, catalogue)
    measured = calibrate(logged, scenario(), catalogue, "minimum").measured
    assert (measured.calls, measured.hits) == (result.requests, result.hits)
    assert 0 < measured.hits < measured.calls
    assert measured.p99_over_slo == pytest.approx(result.latency.quantile(0.99), rel=0.01)
    assert measured.ran_per_1000 == pytest.approx(result.ran_dollars_per_thousand)
    assert measured.paid_per_1000 is None


@pytest.mark.slow
def test_a_change_is_simulated_on_the_recorded_calls(recording, log):
    """The run with other nodes is foretold: all its calls arrive when those of the log did."""
    catalogue = Catalogue.of(documents(SLOWER))
    larger = quiet(noise_ratio=NOISE_RATIO, nodes=NODES_LATER)
    wanted = run(larger, catalogue, Poisson(8.0, seed=3), "minimum", requests=1_500).result
    outcome = replay(read_log(log, catalogue), larger, catalogue, "minimum")
    assert outcome.calls == wanted.requests
    assert outcome.hit_ratio == pytest.approx(wanted.hit_ratio, abs=0.02)
    assert outcome.paid_per_1000 == pytest.approx(wanted.dollars_per_thousand, rel=0.02)
    assert outcome.hits > recording.result.hits


@pytest.mark.parametrize(
    ("hits", "low", "high"),
    [(0, 0.0, 0.0370), (50, 0.4038, 0.5962), (99, 0.9455, 0.9982), (100, 0.9630, 1.0)],
)
def test_the_interval_of_a_hit_ratio(hits, low, high):
    """Wilson's interval of 100 calls at 95 %; it has a width where all calls are in time."""
    outcome = CallOutcome(
        calls=100, hits=hits, p99_over_slo=1.0, ran_per_1000=1.0, paid_per_1000=None
    )
    assert outcome.half_interval == pytest.approx((high - low) / 2, abs=1e-4)


def test_lines_of_what_the_documents_no_longer_have_are_left_out(log, tmp_path):
    """A deleted workflow and a renamed stage change nothing for the others, and are counted."""
    catalogue = Catalogue.of(documents())
    text = log.read_text(encoding="utf-8")
    batch, call = (
        json.loads(next(line for line in text.splitlines() if event in line))
        for event in (BATCH_ENDED, CALL_ENDED)
    )
    unknown = [
        call | {"workflow": "deleted"},
        batch | {"workflow": "deleted"},
        batch | {"stage": "renamed"},
        batch | {"stage": "renamed"},
    ]
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join([*map(json.dumps, unknown), text]), encoding="utf-8")
    logged, plain = read_log(file, catalogue), read_log(log, catalogue)
    assert (logged.calls, logged.batches) == (plain.calls, plain.batches)
    assert not plain.left_out
    assert logged.left_out == {
        "there is no workflow 'default/deleted'": 2,
        "'default/w' has no stage 'renamed'": 2,
    }


@pytest.fixture
def calibrated(log, tmp_path, monkeypatch):
    """Function that calls the command with more words; the terminal has all columns.

    Its `stderr` is all that the calls have written there.
    """
    monkeypatch.setenv("COLUMNS", "200")
    texts = [json.dumps({"kind": d.kind, **to_manifest(d)}) for d in documents()]
    (tmp_path / "documents.yaml").write_text("\n---\n".join(texts), encoding="utf-8")
    (tmp_path / "scenario.yaml").write_text(
        "{policies: minimum, nodes: 4, prewarm: false, resizable: true}", encoding="utf-8"
    )
    paths = ["--scenario", tmp_path / "scenario.yaml", "--profiles", tmp_path / "documents.yaml"]

    def command(*words, source=(log,)):
        done = CliRunner().invoke(app, ["calibrate", *map(str, [*source, *paths, *words])])
        assert done.exit_code == 0, done.output
        command.stderr += done.stderr
        return done.stdout

    command.stderr = ""
    return command


def test_the_command_prints_the_errors(calibrated):
    """A row for each stage, and the outcome of all calls."""
    lines = calibrated().splitlines()
    (row,) = [line for line in lines if " s1 " in line]
    assert row.split()[2] == "1,500"
    assert float(row.split()[-2].rstrip("%")) == pytest.approx(-20, abs=2)
    assert lines[-1] == "±: binomial interval of 1,500 calls at 95 %"
    assert [line.partition(":")[0] for line in lines[-4:-1]] == [
        "simulated as recorded", "measured", "error of the simulation",
    ]  # fmt: skip


def test_the_command_says_what_is_left_out(calibrated, log, tmp_path):
    """On the error stream: the table is that of the other lines."""
    line = json.dumps(CALL | {"workflow": "deleted"})
    longer = tmp_path / "log.jsonl"
    longer.write_text(f"{line}\n{line}\n{log.read_text(encoding='utf-8')}", encoding="utf-8")
    assert calibrated(source=(longer,)) == calibrated()
    warning = "there is no workflow 'default/deleted'; lines of the log left out: 2"
    assert f"warning: {warning}\n" in calibrated.stderr


@pytest.mark.slow
def test_the_command_answers_what_a_change_would_do(calibrated):
    """One line for the change, first; JSON has the same numbers, and those of the record."""
    words = ["--nodes", NODES_LATER, "--slo-factor", "1.5", "--set", "noise_ratio=0.1"]
    answer, *_ = calibrated(*words).splitlines()
    figures = json.loads(calibrated(*words, "--json"))
    changed = figures["changed"]
    change = f"{NODES_LATER} nodes, 1.5 times the SLO, noise_ratio=0.1"
    assert figures["change"] == change
    assert answer.startswith(
        f"with {change}: {changed['hit_ratio']:.1%}".replace("%", " %")
        + f" ± {100 * changed['half_interval']:.1f}, ${changed['paid_per_1000']:.4f} per 1,000"
    )
    assert changed["hits"] > figures["simulated"]["hits"]
    assert changed["p99_over_slo"] < figures["simulated"]["p99_over_slo"]
    as_recorded = json.loads(calibrated("--json"))
    assert "changed" not in as_recorded
    assert as_recorded["simulated"] == figures["simulated"]


@pytest.mark.slow
def test_the_calls_of_a_live_gateway_are_a_log(calibrated, log):
    """Those that it has in memory, by its URL, are compared as a log with the same lines."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()[2:]]

    def answer(path):
        return (200, lines) if path == "/v1/calls" else (404, {})

    with json_served_in_thread(answer) as url:
        assert calibrated("--nodes", 5, source=("--from", url)) == calibrated("--nodes", 5)


@pytest.mark.slow
def test_the_cluster_is_that_of_the_gateway(calibrated, log, tmp_path):
    """Its nodes and settings count, and what a scenario says takes precedence."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()[2:]]
    kind = {"gpus": 1, "gpu_model": GPU, "cpus": 16, "memory_mib": 81_920}
    scenario_of = {"prewarm": False, "resizable": True, "policies": "minimum"}
    cluster = Settings().simulated | {"pool": False, "node_kinds": [kind | {"count": 4}]}
    answers = {"/v1/calls": lines, "/v1/cluster": cluster}
    (tmp_path / "scenario.yaml").write_text(json.dumps(scenario_of), encoding="utf-8")
    with json_served_in_thread(lambda path: (200, answers[path])) as url:
        source = ("--from", url)
        as_live = json.loads(calibrated("--json", source=source))
        cluster["node_kinds"] = [kind | {"count": 3}, kind | {"count": 1, "gpus": 2}]
        with_a_fifth = json.loads(calibrated("--json", source=source))
        cluster["node_kinds"] = []
        (tmp_path / "scenario.yaml").write_text(
            json.dumps(scenario_of | {"nodes": 4, "bandwidth_mib_s": 1e9}), encoding="utf-8"
        )
        as_said = json.loads(calibrated("--json", source=source))
    assert as_live["simulated"] == as_said["simulated"]
    assert with_a_fifth["simulated"]["hits"] > as_live["simulated"]["hits"]


@pytest.mark.slow
def test_gateways_have_a_window_in_common(calibrated, log, tmp_path, monkeypatch):
    """Calls from before another's memory begins are left out, and those of other namespaces."""
    monkeypatch.setattr("workbench.commands.simulate.calibrate.CALLS_MAX", 3_000)  # batches
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()[2:]]
    before = {"timestamp": timestamp(-1e8)}
    others = [{**line, "namespace": "others"} for line in lines[:1] + lines[-1:]]
    documents_by_pod = {
        "gateway-0": lines,
        "gateway-1": [lines[0] | before, lines[-1] | before, *others],
    }
    component = {"app.kubernetes.io/component": "gateway"}
    pods = [
        {"metadata": {"namespace": "esg", "name": name, "labels": component}}
        for name in documents_by_pod
    ]

    def answer(path):
        if path.endswith("/v1/cluster"):
            return 404, {}
        name = next((name for name in documents_by_pod if name in path), "")
        return 200, documents_by_pod.get(name, {"items": pods})

    with json_served_in_thread(answer) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        source = ("--kubeconfig", tmp_path / "kubeconfig")
        assert calibrated("--nodes", 5, source=source) == calibrated("--nodes", 5)


def test_a_gateway_that_cannot_be_read():
    """The message names it."""
    done = CliRunner().invoke(app, ["calibrate", "--from", "http://127.0.0.1:1"])
    assert done.exit_code == 1
    assert "cannot read http://127.0.0.1:1" in done.stderr


BATCH = {
    "event": BATCH_ENDED, "timestamp": "2026-01-01T00:00:00Z", "namespace": "default",
    "workflow": "w", "stage": "s0", "rows": 1, "execute_s": 1, "profiled_s": 1, "cpu": 1,
    "gpu_percent": 50, "gpu_model": GPU,
}  # fmt: skip
CALL = {
    "event": CALL_ENDED, "timestamp": "2026-01-01T00:00:00Z", "namespace": "default",
    "workflow": "w", "result": "hit", "latency_s": 1, "allowed_s": 1,
}  # fmt: skip


def test_a_log_without_an_answer(tmp_path):
    """Dropped calls arrive again and are no hits; there is no p99 to compare with."""
    file = tmp_path / "log.jsonl"
    lines = [json.dumps(CALL | {"result": "dropped"}), json.dumps(BATCH)]
    file.write_text("\n".join(lines), encoding="utf-8")
    catalogue = Catalogue.of(documents())
    calibration = calibrate(read_log(file, catalogue), scenario(), catalogue, "minimum")
    assert (calibration.measured.hits, calibration.simulated.hits) == (0, 1)
    assert calibration.hit_ratio_error == 1.0
    assert calibration.p99_error_ratio is None


def test_calls_of_one_stage_cost_nothing(tmp_path):
    """They are not among the calls, so the cost is without their part of each batch."""
    catalogue = Catalogue.of(documents())

    def measured(*batches):
        file = tmp_path / "log.jsonl"
        file.write_text("\n".join(map(json.dumps, [CALL, *batches])), encoding="utf-8")
        return calibrate(read_log(file, catalogue), scenario(), catalogue, "minimum").measured

    alone = measured(BATCH)
    assert measured(BATCH, BATCH | {"single_stage_rows": 1}) == alone
    mixed = measured(BATCH | {"rows": 4, "single_stage_rows": 3})
    assert mixed.ran_per_1000 == pytest.approx(alone.ran_per_1000 / 4)


@pytest.mark.parametrize(
    ("of_batch", "of_call", "message"),
    [
        ({"stage": "s9"}, {}, "'batch ended' are left out: 'default/w' has no stage 's9'"),
        ({"rows": None}, {}, "line 2: is no batch of the gateway's log: int() argument"),
        ({"execute_s": 0}, {}, "execute_s is 0.0, which is no duration"),
        ({"event": "another"}, {}, "has no line with the event 'batch ended'"),
        ({}, {"workflow": "x"}, "'call ended' are left out: there is no workflow 'default/x'"),
        ({}, {"result": "won"}, "line 1: is no call of the gateway's log: result is 'won'"),
        ({}, {"allowed_s": 0}, "allowed_s is 0.0, which is no duration"),
        ({}, {"latency_s": -1}, "latency_s is -1.0, which is no duration"),
        ({}, {"event": "another"}, "has no line with the event 'call ended'"),
    ],
)
def test_a_log_that_is_wrong(tmp_path, of_batch, of_call, message):
    """File, line and reason are named."""
    file = tmp_path / "log.jsonl"
    lines = [json.dumps(CALL | of_call), json.dumps(BATCH | of_batch)]
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DocumentError) as refused:
        read_log(file, Catalogue.of(documents()))
    (problem,) = refused.value.problems
    assert str(problem).startswith(str(file))
    assert message in str(problem)
