"""esg-scheduler: GPU shares, batches and vCPUs of function pods from their workflow's SLO.

The rooms: ``model`` (frozen facts), ``search`` (which configuration), ``placement`` (which node and
GPU), ``ledger`` (what is promised), ``slo`` (what became of it), ``dispatch`` (when), ``cluster``
(the only room that talks to Kubernetes), ``extender`` and ``webhook`` (HTTP), ``agent`` (NVML and
MPS), ``simulation`` (the same code under a virtual clock), ``pages`` (HTML that people look at),
``demo`` (a client that plays load).
Each package's docstring states the law of its room, and ``make lint`` enforces it.
"""

__version__ = "0.1.0"
