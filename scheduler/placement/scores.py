"""Policies and scores, as the kernels of placement have them."""

PACK = 0
SPREAD = 1
DEFRAG = 2

SCORE_MAX = 10  # MaxExtenderPriority, k8s.io/kube-scheduler/extender/v1/types.go
PREDECESSOR = 10
WARM = 8
HOME = 6
FIT_MAX = 5

INDEX_BITS = 32  # `place` returns the candidate above the index of the node
