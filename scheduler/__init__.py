"""esg-scheduler: GPU shares, batches and vCPUs of function pods from their workflow's latency SLO.

This package is what the runtime image contains; the package ``workbench`` has the offline tools.
``model`` has frozen data, ``search`` chooses configurations, ``placement`` chooses node and GPU,
``ledger`` records reservations, ``slo`` measures requests, ``dispatch`` batches and pre-warms,
``cluster`` is the Kubernetes client, ``server`` has what HTTP servers share, ``extender`` and
``webhook`` are HTTP services, ``agent`` runs NVML and MPS on nodes, ``cli`` is the command line.
The docstring of each package states its rule, and ``make lint`` enforces the layers.
"""

__version__ = "0.1.0"
