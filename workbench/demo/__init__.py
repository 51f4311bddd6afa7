"""``esg demo``: the real service as a process of its own, and a client that plays the cluster.

The client is kube-scheduler (filter, prioritize, bind), a DAG engine (a stage's pod after its
predecessors), the kubelet (containers that end) and the users (requests at the load of the ESG
paper's evaluation). Workloads, stage graphs and results are those of the simulator.

Law of the room: it calls the service over HTTP alone, and imports no scheduling code.
"""
