"""``esg demo``: requests to the real gateway, which sends batches to played model servers.

Extender and gateway are the users' processes, over an API server in memory. The gateway creates and
ends all pods. The cluster around them and the models are played by `workbench.cluster`; requests
arrive at the load of the ESG paper's evaluation, from a process of their own.

Law of the room: it calls the product over HTTP alone.
"""
