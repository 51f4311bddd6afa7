"""Calls through the runtime: each client gets its own rows, whatever happens to pods."""

import asyncio
import json
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gateway.calls import CallError
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.serving import call_log
from scheduler.gateway.serving.call_log import BATCH_ENDED, CALL_ENDED
from scheduler.oip.errors import MessageError
from tests.examples import examples
from tests.gateway.harness import eventually
from tests.gateway.ready_pods import MODEL
from tests.gateway.runtime_bed import bed, expected, rows, workflow
from tests.waiting import until

CHAIN = {"a": (), "b": ("a",)}
GONE = ModelServerError(502, "the connection was reset", retryable=True)


def run(scenario):
    """Run a coroutine function on an event loop of its own."""
    return asyncio.run(scenario())


@st.composite
def orders(draw):
    """Draw the stages before each stage of a workflow."""
    names = "abcdef"[: draw(st.integers(1, 6))]
    return {
        name: tuple(b for b in names[:i] if draw(st.booleans())) for i, name in enumerate(names)
    }


@examples(60)
@given(after=orders(), counts=st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_each_call_gets_its_own_rows(after, counts):
    """Answers equal those of the stages computed one by one, for any order and number of rows."""

    async def scenario():
        async with bed() as running:
            running.serve("w", after, pods=2)
            xs = [rows(count, seed) for seed, count in enumerate(counts)]
            answers = await asyncio.gather(*(running.outputs("w", x) for x in xs))
            for x, outputs in zip(xs, answers, strict=True):
                wanted = expected(after, x)
                assert outputs.keys() == wanted.keys()
                for name, array in wanted.items():
                    np.testing.assert_array_equal(outputs[name], array)
            assert max(max(model.batches, default=0) for model in running.models.values()) <= 8
            assert running.records.calls == [("w", "hit")] * len(counts)

    run(scenario)


class DebugLog:
    """Lines of a log of every level."""

    def __init__(self):
        self.lines = []

    def is_enabled_for(self, _):
        return True

    def debug(self, event, **fields):
        self.lines.append((event, fields))


async def test_batches_are_logged_for_calibration(monkeypatch):
    """A line has what the simulator's calibration reads, as JSON can write it."""
    monkeypatch.setattr(call_log, "log", DebugLog())
    async with bed() as running:
        running.serve("w", {"a": ()}, latency_ms=20.0)
        await running.outputs("w", rows(3, 1))
    (event, fields), _ = call_log.log.lines
    assert event == BATCH_ENDED
    assert json.loads(json.dumps(fields)) | {"execute_s": 0.1} == {
        "namespace": "default", "workflow": "w", "stage": "a", "rows": 3, "single_stage_rows": 0,
        "execute_s": 0.1, "profiled_s": 0.02, "gpu_model": MODEL, "cpu": 1, "gpu_percent": 100,
    }  # fmt: skip


async def test_rows_of_calls_of_one_stage_are_logged():
    """They share batches with rows of whole calls, which alone are in the log."""
    async with bed() as running:
        running.serve("w", {"a": ()}, latency_ms=1000.0)
        model, first = await running.busy("w")
        later = [running.call("w", rows(5, 1)), running.call("w", rows(3, 2), stage="a")]
        model.gate.set()
        await asyncio.gather(first, *later)
        lines = [*running.runtime.call_log.lines(0.0)]
    batches = [line for line in lines if line["event"] == BATCH_ENDED]
    assert [line["rows"] for line in batches] == [8, 8]
    assert [line["single_stage_rows"] for line in batches] == [0, 3]


async def test_calls_are_logged_for_calibration(monkeypatch):
    """A line for each call of a whole workflow, with or without an answer; none for one stage."""
    monkeypatch.setattr(call_log, "log", DebugLog())
    async with bed() as running:
        running.serve("w", {"a": ()}, latency_ms=20.0)
        await running.outputs("w", rows(3, 1))
        await running.outputs("w", rows(3, 1), stage="a")
        _, first = await running.busy("w")
        first.cancel()
    calls = [line for line in call_log.log.lines if line[0] == CALL_ENDED]
    (_, answered), (event, cancelled) = calls
    assert event == CALL_ENDED
    fields = json.loads(json.dumps(answered))
    assert 0 <= fields.pop("latency_s") < fields.pop("allowed_s")
    assert fields == {
        "namespace": "default", "workflow": "w", "result": "hit", "cold_start": False,
    }  # fmt: skip
    assert cancelled["result"] == "dropped"


async def test_the_last_calls_and_batches_are_in_memory():
    """None is missing in their window: calls before the first batch that is kept are left out."""
    async with bed() as running:
        running.runtime.call_log = running.runtime._batches._call_log = call_log.CallLog(3)
        running.serve("w", {"a": (), "b": ("a",)}, latency_ms=20.0)
        begun_ms = running.runtime.now_ms()
        for seed in range(3):
            await running.outputs("w", rows(3, seed))
            ended_ms = running.runtime.now_ms()  # the clock has milliseconds
            await until(lambda ended_ms=ended_ms: running.runtime.now_ms() > ended_ms)
        lines = [*running.runtime.call_log.lines(1e9)]
    assert [line["event"] for line in lines] == [CALL_ENDED] * 2 + [BATCH_ENDED] * 3
    assert [line.get("stage") for line in lines[2:]] == ["b", "a", "b"]
    times_ms = [1000 * datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines]
    assert all(begun_ms - 1 <= time_ms - 1e9 <= ended_ms + 1 for time_ms in times_ms)


async def test_calls_share_batches_while_a_pod_is_busy():
    """Rows that wait for the only pod leave in one batch."""
    async with bed() as running:
        running.serve("w", {"a": ()}, latency_ms=1000.0)
        model, first = await running.busy("w")
        later = [running.call("w", rows(1, seed)) for seed in range(2, 10)]
        model.gate.set()
        answers = await asyncio.gather(first, *later)
        assert model.batches == [8, 8]
        assert {answer.batch for answer in answers} == {8}
        assert [batch.rows for batch in running.records.batches] == [8, 8]


async def test_a_batch_moves_to_another_pod():
    """A pod whose connection fails gives its batch back, and another pod answers."""
    async with bed() as running:
        running.serve("w", {"a": ()}, pods=2)
        for model in running.models.values():
            model.faults = [GONE]
        x = rows(3)
        outputs = await running.outputs("w", x)
        np.testing.assert_array_equal(outputs["y-a"], expected({"a": ()}, x)["y-a"])
        assert sorted(len(model.batches) for model in running.models.values()) in (
            [1, 2],
            [1, 1],
        )


async def test_a_removed_pod_gives_its_batch_back():
    """Calls on a pod that is removed are answered by the next one."""
    async with bed() as running:
        running.serve("w", CHAIN)
        model = running.model("b")
        model.gate.clear()
        x = rows(2)
        answer = running.call("w", x)
        await model.begun.wait()
        running.runtime.remove_pod("default/b-0")
        running.add_pod("b", 1)
        await answer
        assert model.closed
        assert running.model("b", 1).batches == [2]


async def test_a_draining_pod_has_no_idle_connection():
    """Some servers wait for their connections' ends before they stop."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        model, call = await running.busy("w")
        running.runtime.drain_pod("default/a-0")
        assert model.idle_closed_after == [1]
        model.gate.set()
        await call
        await eventually(lambda: model.idle_closed_after == [1, 1])


async def test_one_bad_row_fails_its_own_call():
    """A model that refuses one row of a batch still answers the other calls."""
    async with bed() as running:
        running.serve("w", {"a": ()}, latency_ms=1000.0)
        model, first = await running.busy("w")
        xs = [np.array([[float(value)]]) for value in (-1, -2, -3)]
        model.bad_value = -2.0
        calls = [running.call("w", x) for x in xs]
        model.gate.set()
        await first
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(answer, CallError) for answer in answers] == [False, True, False]
        assert answers[1].status == 500
        assert "cannot stand this value" in str(answers[1])
        assert model.batches[1] > 1


async def test_a_model_that_always_fails():
    """A call that no pod can serve gets the reason, and the queue goes on."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        running.model("a").faults = [ModelServerError(422, "wrong shape")]
        with pytest.raises(CallError, match="wrong shape") as raised:
            await running.call("w", rows(1))
        assert raised.value.status == 400
        await running.call("w", rows(1))
        assert running.records.calls == [("w", "hit")]


async def test_an_error_of_the_gateway_ends_its_batch():
    """Calls of a batch that fails for an unforeseen reason are answered, and the pod goes on."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        running.model("a").faults = [RuntimeError("not foreseen")]
        with pytest.raises(CallError, match="an error of the gateway") as raised:
            await running.call("w", rows(1))
        assert raised.value.status == 500
        await running.call("w", rows(1))


@pytest.mark.parametrize(
    ("after", "stages"),
    [({"b": ()}, ["a", "b", "b"]), ({"b": (), "a": ("b",)}, ["a", "b", "b", "a"])],
    ids=["fewer stages", "another order"],
)
async def test_stages_change_during_a_batch(after, stages):
    """The batch is reported under the stage that it was for, and the next call is served."""
    async with bed() as running:
        running.serve("w", CHAIN)
        model = running.model("b")
        model.gate.clear()
        dropped = running.call("w", rows(1))
        await model.begun.wait()
        running.runtime.set_workflow(workflow("w", after))
        with pytest.raises(CallError):
            await dropped
        answer = running.call("w", rows(1))
        model.gate.set()
        await answer
        assert [batch.stage for batch in running.records.batches] == stages


async def test_one_stage_alone():
    """A call of one stage runs this stage, and counts for no SLO."""
    async with bed() as running:
        running.serve("w", CHAIN)
        x = rows(2)
        outputs = await running.outputs("w", x, stage="b")
        np.testing.assert_array_equal(outputs["y-b"], expected({"b": ()}, x)["y-b"])
        assert not running.model("a").batches
        assert running.records.calls == []


async def test_requested_outputs():
    """A client gets the outputs that it requests, and an error for those that do not exist."""
    async with bed() as running:
        running.serve("w", {"a": (), "b": ("a",), "c": ("a",)})
        outputs = await running.outputs("w", rows(2), outputs=["y-c"])
        assert list(outputs) == ["y-c"]
        with pytest.raises(MessageError, match="no output 'z'"):
            await running.call("w", rows(2), outputs=["z"])


async def test_json_servers_get_json():
    """A server without binary tensor data gets JSON, whatever the client sent."""
    async with bed() as running:
        running.serve("w", {"a": ()}, protocol="http-json")
        x = rows(2)
        outputs = await running.outputs("w", x)
        np.testing.assert_array_equal(outputs["y-a"], expected({"a": ()}, x)["y-a"])
        assert running.model("a").was_binary == [False]


async def test_headers_are_passed_on():
    """Trace headers of a call reach the model server."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        headers = ((b"traceparent", b"00-1-2-01"),)
        await running.call("w", rows(1), headers=headers)
        assert running.model("a").headers == [headers]


async def test_metadata_of_first_and_last_stages():
    """Metadata has the first stages' inputs and the last stages' outputs."""
    async with bed() as running:
        running.serve("w", CHAIN)
        metadata = await running.runtime.metadata("default", "w", None)
        assert metadata["name"] == "w"
        assert [tensor["name"] for tensor in metadata["inputs"]] == ["x"]
        assert [tensor["name"] for tensor in metadata["outputs"]] == ["y-b"]
        stage = await running.runtime.metadata("default", "w", "b")
        assert [tensor["name"] for tensor in stage["outputs"]] == ["y-b"]
