"""Several replicas of the gateway: one of them dispatches to a namespace's pods.

The question is who serves a namespace now: all replicas work, and another one takes over within
seconds. `scheduler.cluster.owner_lease` has one owner for everything, and the others wait.

Namespaces are spread over a fixed number of shards, and the owner of a shard holds its Lease. Every
replica answers clients; it forwards calls of other replicas' shards. `shards`, `shard_lease` and
`ownership` decide without I/O, with the time passed in.
"""
