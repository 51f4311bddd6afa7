"""``esg demo``: the real service as its own process, and this side plays everybody else.

Kube-scheduler (filter, prioritize, bind), a DAG engine (a stage's pod after its predecessors), the
kubelet (containers that end) and the users (arrivals at the load of the ESG paper's evaluation).

Law of the room: it knows the service by HTTP alone, and of the rest of the code the model.
"""
