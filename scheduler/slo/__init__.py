"""SLO accounting: workflow instances, from their pods' states to hit, miss or dropped.

The room does no I/O. Callers pass pods as the cluster reports them, with the time of the report
(docs/adr/0003-slo-room.md says why this is a room of its own).
"""
