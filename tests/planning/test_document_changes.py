"""A changed document costs the work of what depends on it, and is in force at once."""

from copy import deepcopy

import pytest

from scheduler.model.catalogue import UnknownDocumentError
from scheduler.model.documents import to_manifest
from scheduler.planning.document_store import DocumentStore
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from tests.extender.factories import profile, workflow

FUNCTIONS = ("a", "b", "c")
WORKFLOWS = {"ab": "ab", "bc": "bc", "ca": "ca", "c": "c"}  # stages, each with its own function


class Store(DocumentStore):
    """Documents of three functions and four workflows that counts what is reported and rebuilt."""

    def __init__(self):
        self.reported = []
        super().__init__(
            stages_max=2, on_workflow=self.reported.append, on_profile=self.reported.append
        )
        self.planner = Planner(self.catalogue, Rules())
        self.on_discard.append(self.planner.discard)
        self.functions = {name: to_manifest(profile(name, (50, 100))) for name in FUNCTIONS}
        self.flows = {n: to_manifest(workflow(n, 1_000, *ss)) for n, ss in WORKFLOWS.items()}
        self.workflows.replace(self.flows.values())
        self.profiles.replace(self.functions.values())
        self.reported.clear()
        self.prepared()

    def prepared(self):
        """Prepare every stage; return the stages and tables by workflow."""
        stages = {
            (name, stage): self.planner.stage(
                PlanRequest(namespace="default", workflow=name, stage=stage)
            )
            for name, functions in WORKFLOWS.items()
            for stage in functions
        }
        stages |= {
            ("", name): self.planner.stage(
                PlanRequest(namespace="default", workflow=None, stage=name)
            )
            for name in FUNCTIONS
        }
        return {key: [stage, *(table for table in stage.tables)] for key, stage in stages.items()}

    def rebuilt(self, act, *args):
        """Change a document; return which stages and tables had to be rebuilt."""
        before = self.prepared()
        act(*args)
        after = self.prepared()
        stages = {key for key in before if before[key][0] is not after[key][0]}
        tables = {
            stage or name
            for (name, stage) in before
            if any(
                x is not y
                for x, y in zip(before[name, stage][1:], after[name, stage][1:], strict=True)
            )
        }
        return stages, tables


@pytest.fixture
def store():
    return Store()


def with_(manifest, **spec):
    changed = deepcopy(manifest)
    changed["spec"] |= spec
    return changed


def test_metadata_rebuild_nothing(store):
    """An annotation changes no plan; the document is the new one."""
    annotated = deepcopy(store.flows["ab"])
    annotated["metadata"]["annotations"] = {"team": "vision"}
    assert store.rebuilt(store.workflows.upsert, annotated) == (set(), set())
    assert store.reported == []
    current = to_manifest(store.catalogue.workflow("default", "ab"))
    assert current["metadata"]["annotations"] == {"team": "vision"}


@pytest.mark.parametrize("field", ["coldStartMs", "outputMib"])
def test_what_is_read_with_each_plan_rebuilds_nothing(store, field):
    """A cold start and an output are in force at once, and nothing prepared depends on them."""
    changed = with_(store.functions["b"], **{field: 70})
    assert store.rebuilt(store.profiles.upsert, changed) == (set(), set())
    assert to_manifest(store.catalogue.profile("b"))["spec"][field] == 70


def test_a_workflow_rebuilds_itself_alone(store):
    """Its stages are rebuilt over the tables that were there."""
    changed = with_(store.flows["bc"], slo={"latencyMs": 700})
    stages, tables = store.rebuilt(store.workflows.upsert, changed)
    assert stages == {("bc", "b"), ("bc", "c")}
    assert tables == set()
    request = PlanRequest(namespace="default", workflow="bc", stage="b")
    assert store.planner.plan(request).budget_ms == 700
    [(before, after)] = store.reported
    assert (before.spec.slo.latency_ms, after.spec.slo.latency_ms) == (1_000, 700)


def test_a_profile_rebuilds_the_workflows_that_use_it(store):
    """All stages of these workflows, and the tables of this function."""
    gpus = to_manifest(profile("a", (50, 60)))["spec"]["gpus"]
    changed = with_(store.functions["a"], gpus=gpus)
    stages, tables = store.rebuilt(store.profiles.upsert, changed)
    assert stages == {("ab", "a"), ("ab", "b"), ("ca", "c"), ("ca", "a"), ("", "a")}
    assert tables == {"a"}


def test_a_workflow_depends_on_its_present_functions(store):
    """The profile of a function that it no longer uses does not concern it."""
    store.workflows.upsert(with_(store.flows["ca"], stages=store.flows["bc"]["spec"]["stages"]))
    gpus = to_manifest(profile("a", (50, 60)))["spec"]["gpus"]
    before = store.planner.workflow("default", "ca")
    store.profiles.upsert(with_(store.functions["a"], gpus=gpus))
    assert store.planner.workflow("default", "ca") is before


def test_a_profile_that_comes_later(store):
    """A workflow whose function has no profile is refused until it has one, and then planned."""
    request = PlanRequest(namespace="default", workflow="ab", stage="a")
    store.profiles.delete(store.functions["b"])
    with pytest.raises(UnknownDocumentError, match="function b has no FunctionProfile"):
        store.planner.plan(request)
    store.profiles.upsert(store.functions["b"])
    assert store.planner.plan(request).feasible


def test_a_deleted_workflow_is_forgotten(store):
    """Neither planned nor known; its functions remain."""
    store.workflows.delete(store.flows["c"])
    with pytest.raises(UnknownDocumentError, match="default/c is not known"):
        store.planner.workflow("default", "c")
    assert store.workflow("default", "c") is None


def test_a_list_is_one_pass(store):
    """A relist reports what differs, each document once, and rebuilds what depends on it."""
    flows = dict(store.flows)
    del flows["c"]
    flows["ab"] = with_(flows["ab"], slo={"latencyMs": 700})
    flows["new"] = to_manifest(workflow("new", 100, "a"))
    store.workflows.replace(flows.values())
    names = {
        (before and before.metadata.name, after and after.metadata.name)
        for before, after in store.reported
    }
    assert names == {("ab", "ab"), ("c", None), (None, "new")}
    assert len(store.reported) == len(names)


def test_a_document_that_becomes_invalid_is_removed(store):
    """It is reported like a deleted one, and once."""
    for _ in range(2):
        store.workflows.upsert(with_(store.flows["c"], stages=[]))
    [(before, after)] = store.reported
    assert (before.metadata.name, after) == ("c", None)
    assert store.problem_count() == 1


def test_the_limit_of_stages(store):
    """A larger workflow is set aside like an invalid one, until it is changed."""
    store.workflows.upsert(to_manifest(workflow("ab", 1_000, "a", "b", "c")))
    assert store.workflow("default", "ab") is None
    [[problem]] = store.workflows.problems.values()
    assert problem == (
        "the API server: Workflow default/ab: spec.stages: 3 stages are more than the limit of 2; "
        "merge or remove stages, or raise ESG_STAGES_MAX"
    )
    store.workflows.upsert(store.flows["ab"])
    assert store.workflow("default", "ab") is not None
    assert store.problem_count() == 0
