"""Objects of the API server in memory: versions, watches and merge patches."""

import asyncio
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.cluster.api_requests import KINDS, PODS
from workbench.cluster.object_store import ObjectStore, StatusError, merged

NAMES = ("a", "b", "c")
operations = st.lists(
    st.tuples(st.sampled_from(("create", "patch", "delete")), st.sampled_from(NAMES), st.booleans())
)


def pod(name, **labels):
    return {"metadata": {"name": name, "namespace": "n", "labels": labels}}


def is_selected(item):
    return item["metadata"].get("labels", {}).get("selected") == "yes"


def apply(store, operation):
    """Apply an operation; one that does not suit the state is refused and changes nothing."""
    verb, name, selected = operation
    labels = {"selected": "yes" if selected else "no"}
    with suppress(StatusError):
        match verb:
            case "create":
                store.create(PODS, pod(name, **labels))
            case "patch":
                store.patch(PODS, ("n", name), {"metadata": {"labels": labels}})
            case "delete":
                store.delete(PODS, ("n", name))


def follow(items, watch_events):
    """Apply events to a client's objects, as a reflector does."""
    for event in watch_events:
        name = event["object"]["metadata"]["name"]
        match event["type"]:
            case "ADDED":
                assert name not in items
                items[name] = event["object"]
            case "MODIFIED":
                assert name in items
                items[name] = event["object"]
            case "DELETED":
                del items[name]
    return items


@given(before=operations, after=operations)
def test_a_list_and_the_watch_after_it_show_the_present_objects(before, after):
    """Whatever happens, with a selector: no object is missing, left over or reported twice."""
    store = ObjectStore(KINDS)
    for operation in before:
        apply(store, operation)
    items = {item["metadata"]["name"]: item for item in store.list(PODS, is_selected)}
    version = store.version
    for operation in after:
        apply(store, operation)

    async def events():
        with store.watching(PODS, version) as watch:
            changes = [await anext(aiter(watch)) for _ in range(store.version - version)]
        assert [c.version for c in changes] == list(range(version + 1, store.version + 1))
        return [event for change in changes if (event := change.event(is_selected))]

    expected = {item["metadata"]["name"]: item for item in store.list(PODS, is_selected)}
    assert follow(items, asyncio.run(events())) == expected


def test_a_stored_object_does_not_change_in_place():
    """A reader may keep it: patches replace it."""
    store = ObjectStore(KINDS)
    created = store.create(PODS, pod("a", x="1"))
    text = json.dumps(created)
    store.patch(PODS, ("n", "a"), {"metadata": {"labels": {"x": "2"}}})
    assert json.dumps(created) == text


def test_a_forgotten_version_cannot_be_watched():
    """410, from which a reflector lists again."""
    store = ObjectStore(KINDS)
    store.create(PODS, pod("a"))
    store.compact()
    store.create(PODS, pod("b"))
    with pytest.raises(StatusError) as refused, store.watching(PODS, 1):
        pass
    assert refused.value.status == 410


@pytest.mark.parametrize(
    ("target", "change", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "foo"}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ],
)
def test_merge_patches_follow_the_standard(target, change, expected):
    """Examples of RFC 7386: null removes, lists are replaced, objects are merged."""
    assert merged(target, change) == expected


def test_a_generated_name_is_new():
    """`generateName` gives every object a name of its own."""
    store = ObjectStore(KINDS)
    created = [
        store.create(PODS, {"metadata": {"generateName": "server-", "namespace": "n"}})
        for _ in range(3)
    ]
    names = {item["metadata"]["name"] for item in created}
    assert len(names) == 3
    assert all(name.startswith("server-") for name in names)
