"""The scheduler extender: filter, prioritize, bind and preempt; explain and snapshot.

`Scheduler.schedule` returns one `Decision` for a pod; filter, prioritize, explain and bind read it.
The rooms ``search``, ``placement`` and ``ledger`` hold the rules, ``cluster`` alone speaks to
Kubernetes. Filter, prioritize, preempt and explain change nothing.
"""
