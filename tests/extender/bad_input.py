"""Messages of kube-scheduler with faults."""

JSON = {"Content-Type": "application/json"}
VERBS = ("filter", "prioritize", "bind", "preempt")


def args(pending, **fields):
    return {"Pod": pending, "NodeNames": ["n1"]} | fields


def send(shared, verb, body, **headers):
    return shared.client.post(f"/{verb}", content=body, headers=JSON | headers)


def nested(depth):
    return b'{"Pod":{"spec":' + b'{"a":' * depth + b"1" + b"}" * depth + b'},"NodeNames":[]}'
