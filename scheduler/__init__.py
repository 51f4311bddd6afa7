"""esg-scheduler: GPU shares, batches and vCPUs of function pods from their workflow's SLO.

The rooms and their laws: ``model`` (frozen facts), ``search`` (which configuration), ``placement``
(which node and GPU), ``ledger`` (what is promised), ``slo`` (what became of it), ``dispatch`` (when),
``cluster`` (the only room that talks to Kubernetes), ``extender`` and ``webhook`` (HTTP), ``agent``
(NVML and MPS), ``simulation`` (the same code under a virtual clock). ``make lint`` enforces the laws.
"""

__version__ = "0.1.0"
