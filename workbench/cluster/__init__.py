"""A cluster in memory for demos and benches: an API server, and players of the other components.

The players are kube-scheduler (filter, prioritize and bind of an extender), a kubelet (addresses,
readiness and ends of pods) and model servers in the pods, which take the time of a profile.

Law of the room: no policy. The processes of `scheduler` run on it as on any cluster, by a
kubeconfig. Of their code it imports the model, and the values that a pod of the gateway carries.
"""
