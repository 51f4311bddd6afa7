"""What became of the promises: workflow instances from their pods' lives to hit, miss or dropped.

Law of the room: no I/O. Pods are handed in as the cluster shows them, with the moment they were
seen (docs/adr/0003-slo-room.md says why this is a room of its own).
"""
