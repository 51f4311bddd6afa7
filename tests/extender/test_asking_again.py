"""Before a pod is refused everywhere: is the picture as new as kube-scheduler's?"""

import asyncio
from types import SimpleNamespace

import pytest

from scheduler.extender.scheduling import FilterAnswer, RefusedError
from scheduler.extender.stale_cache import RefusalGuard
from scheduler.placement.reasons import Refusal

NAMES = ["n1"]
FULL = FilterAnswer([], {"n1": Refusal("full", resolvable=True)})
ROOM = FilterAnswer(NAMES, {})


class Story:
    """A state that is told by hand, and a decider that answers by it."""

    def __init__(self):
        self.has_room = False
        self.state = SimpleNamespace(
            pods=SimpleNamespace(version=0),
            ledger=SimpleNamespace(free_capacity_epoch=0),
            waiting={},
        )
        self.look = RefusalGuard(self.state, self)

    def filter(self, raw, names):
        return ROOM if self.has_room else FULL

    def hears(self, version=0, *, room=False):
        self.state.pods.version = max(self.state.pods.version, version)
        self.state.ledger.free_capacity_epoch += room
        self.has_room = self.has_room or room

    async def asked(self, version, *, nominated=False):
        status = {"nominatedNodeName": "n1"} if nominated else {}
        raw = {"metadata": {"uid": "u", "resourceVersion": str(version)}, "status": status}
        return await self.look.answer(raw, NAMES, FULL)


@pytest.fixture
def story():
    return Story()


async def test_a_first_refusal_on_a_new_picture_stands(story):
    """Heard as far as the pod itself: then nothing is held back."""
    story.hears(7)
    assert await story.asked(7) == FULL


async def test_behind_the_pod_the_answer_waits_for_the_news(story):
    """The pod is newer than what was heard; what was still to come made room."""
    story.hears(7)
    asking = asyncio.create_task(story.asked(9))
    await asyncio.sleep(0.01)
    assert not asking.done()
    story.hears(9, room=True)
    assert await asking == ROOM


async def test_behind_the_pod_for_long_is_an_error(story):
    """kube-scheduler comes again by itself after an error, not after a refusal."""
    story.hears(7)
    with pytest.raises(RefusedError, match="has not heard of the pod's last change yet"):
        await story.asked(9)


async def test_asked_again_for_no_known_reason_the_answer_waits(story):
    """What woke the pod is heard of a moment later, and counts."""
    story.hears(7)
    await story.asked(7)
    asking = asyncio.create_task(story.asked(7))
    await asyncio.sleep(0.01)
    assert not asking.done()
    story.hears(room=True)
    assert await asking == ROOM


async def test_asked_again_for_no_reason_at_all_is_an_error_once(story):
    """Every second time: so the pod is tried once more, and no pod is tried for ever."""
    story.hears(7)
    assert await story.asked(7) == FULL
    with pytest.raises(RefusedError, match="asked again: full"):
        await story.asked(7)
    assert await story.asked(7) == FULL


async def test_a_changed_pod_or_news_is_a_reason(story):
    """The pod's own change (its condition, at the first refusal) wakes it too."""
    story.hears(8)
    assert await story.asked(7) == FULL
    assert await story.asked(8) == FULL
    story.state.ledger.free_capacity_epoch += 1
    assert await story.asked(8) == FULL


async def test_a_pod_that_waits_for_its_victims_gets_no_error(story):
    """An error would take its nominated node away."""
    story.hears(7)
    for _ in range(3):
        assert await story.asked(7, nominated=True) == FULL


async def test_a_pod_without_a_version_is_answered_at_once(story):
    """It comes from no API server, so nothing can be ahead of us."""
    raw = {"metadata": {"uid": "u"}}
    for _ in range(3):
        assert await story.look.answer(raw, NAMES, FULL) == FULL
