"""HTTP for kube-scheduler: filter, prioritize, bind and preempt; and for people: explain, snapshot.

Law of the room: it puts the other rooms together. What a configuration costs, where it fits and
what is promised are decided in ``search``, ``placement`` and ``ledger``; Kubernetes is spoken to by
``cluster`` alone. Filter, prioritize, preempt and explain change nothing.
"""
