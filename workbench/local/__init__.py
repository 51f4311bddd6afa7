"""Gateway on one machine over model servers that run already, without Kubernetes.

The API server is in memory. Nothing is placed, so there is no extender: each model server counts as
a pod with the largest share of its profile's first GPU model.
"""
