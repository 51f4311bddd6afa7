"""Several replicas of the gateway: one of them dispatches to a namespace's pods.

Namespaces are spread over a fixed number of shards, and the owner of a shard holds its Lease. Every
replica answers clients; it forwards calls of other replicas' shards. `shards`, `shard_lease` and
`ownership` decide without I/O, with the time passed in.
"""
