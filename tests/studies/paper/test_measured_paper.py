"""The evaluation on measured profiles: workflows of a table, loads and SLOs by a rule."""

import pytest
from typer.testing import CliRunner

from scheduler.cli.commands import app
from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import DocumentError
from scheduler.model.documents import FunctionProfile, Workflow
from studies.paper.evaluation import AS_IS, EvaluationSize, Variant, order_of
from studies.paper.measured import LOAD_RATIO
from studies.paper.measured_document import MeasuredInput
from tests.testbed import REPOSITORY
from workbench.profiles.generated import FUNCTIONS, WORKFLOWS
from workbench.profiles.vision_workflows import PERCENT_MIN, Assumptions, vision_documents
from workbench.simulation.runs.job import SimulationJob
from workbench.simulation.runs.result_cache import ResultCache
from workbench.simulation.runs.runner import run
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.poisson import Poisson

HEAD = "model,batch,sm_pct,quota_pct,latency_ms\n"
SHARES, BATCHES = (5, PERCENT_MIN, 50, 100), (1, 4)


def table(models=8, rows=""):
    """Models "m_0", "m_1", ... from slow to fast, with shares and quotas that do not count."""
    lines = [
        f"m_{i},{batch},{share},{quota},{(models - i) * batch * 100.0 / share * 100 / quota}"
        for i in range(models)
        for batch in BATCHES
        for share in SHARES
        for quota in (40, 100)
    ]
    return HEAD + "\n".join(lines) + "\n" + rows


def documents(text):
    return vision_documents(text, "table.csv", Assumptions())


def test_models_take_the_functions_places_by_rank():
    """The time at the minimum configuration rises with that of the paper's function."""
    built = documents(table(models=20))
    chains = {d.metadata.name: d for d in built if isinstance(d, Workflow)}
    assert chains.keys() == WORKFLOWS.keys()
    profiles = {d.metadata.name: d for d in built if isinstance(d, FunctionProfile)}
    times_ms = {
        role: profiles[stage.function].spec.gpus[0].configurations[0].latency_ms
        for name, roles in WORKFLOWS.items()
        for role, stage in zip(roles, chains[name].spec.stages, strict=True)
    }
    rising = sorted(FUNCTIONS, key=lambda function: function.t0_ms)
    assert sorted(times_ms, key=times_ms.__getitem__) == [function.name for function in rising]
    assert len(profiles) == len(FUNCTIONS)


def test_the_slo_is_the_time_at_the_minimum_configuration():
    """Batch 1 and the smallest share; rows with another quota do not count."""
    built = documents(table())
    profiles = {d.metadata.name: d for d in built if isinstance(d, FunctionProfile)}
    for workflow in (d for d in built if isinstance(d, Workflow)):
        at_minimum_ms = [
            c.latency_ms
            for stage in workflow.spec.stages
            for c in profiles[stage.function].spec.gpus[0].configurations
            if (c.batch, c.gpu_percent) == (1, PERCENT_MIN)
        ]
        assert workflow.spec.slo.latency_ms == pytest.approx(sum(at_minimum_ms))


def test_incomplete_models_are_left_out():
    incomplete = f"fastest,1,{PERCENT_MIN},100,0.1\n"
    assert documents(table(rows=incomplete)) == documents(table())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,batch\n", "lacks sm_pct, quota_pct, latency_ms"),
        (HEAD + "a,1,15,100,fast\n", "line 2.*must be numbers"),
        (table(models=5), "has 5 models with all batches and shares; it needs 6"),
    ],
)
def test_a_table_that_is_wrong(text, message):
    with pytest.raises(DocumentError, match=message):
        documents(text)


@pytest.fixture
def folder(tmp_path):
    """The data of others, in small."""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "rapp-v100-mps.csv").write_text(table(), encoding="utf-8")
    (tmp_path / "traces" / "azure-2019-100").mkdir(parents=True)
    counts = "HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,40,60\no,a,g,http,50,50\n"
    file = tmp_path / "traces" / "azure-2019-100" / "invocations.csv"
    file.write_text(counts, encoding="utf-8")
    return tmp_path


def test_the_load_follows_the_papers_rule(folder):
    """Requests times their work per node, relative to the paper's."""
    measured = MeasuredInput(folder, nodes=2)
    built = measured.documents()
    size = EvaluationSize(minutes=2, seeds=1, ground=measured.ground(built))
    order = order_of(Variant(name=AS_IS, policy="warm"), "moderate-normal", size, 0)
    workflows = [d for d in built if isinstance(d, Workflow)]
    rates_rps = order.job.workload.mean_rate_rps([d.key for d in workflows])
    work = sum(rates_rps[d.key] * d.spec.slo.latency_ms / 1000 for d in workflows)
    paper_work = 1000 / 26.8 * (526 + 1233 + 1452 + 1892) / 4 / 1000
    assert work / 2 == pytest.approx(LOAD_RATIO * paper_work / 16)
    assert order.job.requests is None


@pytest.mark.slow
def test_the_command_writes_its_part_alone(folder):
    """Tables of the measured part are filled; everything else is as it was."""
    document = folder / "paper.md"
    text = (REPOSITORY / "docs" / "paper.md").read_text(encoding="utf-8")
    document.write_text(text, encoding="utf-8")
    options = "--minutes 1 --seeds 1 --nodes 1 --jobs 1 --setting strict-light --policy minimum"
    done = CliRunner().invoke(
        app,
        [
            *("paper", "--data", str(folder), "--document", str(document)),
            *("--cache", str(folder / "cache"), *options.split()),
        ],
    )
    assert done.exit_code == 0, done.output
    written = document.read_text(encoding="utf-8")
    begin = "## On measured profiles"
    assert written.split(begin)[0] == text.split(begin)[0]
    assert "Made by `esg paper --data DIR --nodes 1 --minutes 1 --seeds 1" in written
    assert "| `minimum` |" in written.split(begin)[1]


def test_other_documents_are_other_runs(tmp_path):
    """A result of another table in the same folder is not taken."""
    catalogue = Catalogue.of(documents(table()))
    workload = Poisson(rate_rps=5.0)
    job = SimulationJob(
        policy="minimum", setting="s", seed=0, workload=workload, requests=5,
        scenario=Scenario(gpu_models=(Assumptions().gpu_model,)),
    )  # fmt: skip
    outcome = run(job, catalogue, progress=lambda _: None)
    assert outcome.whole, outcome.failure
    ResultCache(tmp_path, documents(table())).write("run", outcome)
    assert ResultCache(tmp_path, documents(table())).read("run", job) == outcome
    assert ResultCache(tmp_path, documents(table())[1:]).read("run", job) is None
