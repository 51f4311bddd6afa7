"""`make cluster`: a control plane with mocked GPU nodes and our extender, until Ctrl-C.

python -m tests.testbed.cluster --nodes 16 --gpus 1
"""

import argparse
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.testbed import REPOSITORY, scheduler_config
from tests.testbed.api import apply_all
from tests.testbed.binaries import GoMissingError
from tests.testbed.build_steps import BuildFailedError, say
from tests.testbed.control_plane import ControlPlane
from tests.testbed.extender import start_extender
from tests.testbed.nodes import create_nodes
from tests.testbed.pods import function_pod
from tests.testbed.processes import Process, StartFailedError
from workbench.cluster.mocked_nodes import gpu_nodes
from workbench.cluster.process import free_port

_QUERIES = """
Query the extender:
  curl http://127.0.0.1:{port}/v1/explain/default/sample
  curl http://127.0.0.1:{port}/metrics
"""


def main(arguments: Sequence[str]) -> int:
    """Run until a signal ends it; return the exit status."""
    options, port = _parse(arguments), free_port()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="esg-cluster-") as scratch,
            ControlPlane((options.workdir or Path(scratch)).resolve()) as plane,
        ):
            try:
                watched = _populate(plane, options, port)
                say(_usage(plane, port, extender=not options.no_extender))
                _watch(watched)
            except KeyboardInterrupt:
                # A second Ctrl-C must not leave half of it running.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                say("stopping")
    except KeyboardInterrupt:
        return 0
    except (GoMissingError, BuildFailedError, StartFailedError) as error:
        say(str(error))
        return 1
    say("stopped")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=16, help="mocked nodes (default 16)")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of each node (default 1)")
    parser.add_argument("--no-extender", action="store_true", help="run kube-scheduler without it")
    parser.add_argument(
        "--workdir", type=Path, help="folder for data and logs (default: a temporary one)"
    )
    return parser.parse_args(arguments)


def _populate(plane: ControlPlane, options: argparse.Namespace, port: int) -> list[Process]:
    """Create nodes and documents, start extender and scheduler; return the programs to monitor."""
    say(f"control plane is up; creating {options.nodes} nodes of {options.gpus} GPUs")
    create_nodes(plane.api, gpu_nodes(options.nodes, options.gpus))
    for folder in ("crds", "samples"):
        apply_all(plane.api, _documents(REPOSITORY / "deploy" / folder))
    watched = []
    if not options.no_extender:
        say("starting the extender")
        apply_all(plane.api, _documents(REPOSITORY / "deploy" / "rbac.yaml"))
        restricted = plane.kubeconfig_for("esg-scheduler")
        watched.append(start_extender(plane, port=port, kubeconfig=restricted))
    watched.append(
        plane.start_scheduler(
            scheduler_config.render(
                kubeconfig=plane.scheduler_kubeconfig,
                extender_port=None if options.no_extender else port,
                managed_resources=False,  # for every pod, since no webhook runs here
            )
        )
    )
    return watched


def _documents(place: Path) -> list[dict[str, Any]]:
    """Read the YAML documents of a file, or of a folder in the order of file names."""
    paths = sorted(place.glob("*.yaml")) if place.is_dir() else [place]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def _watch(processes: list[Process]) -> None:
    """Run until one of the processes ends by itself, then raise StartFailedError."""
    while True:
        for process in processes:
            process.check_alive()
        time.sleep(1)


def _usage(plane: ControlPlane, port: int, *, extender: bool) -> str:
    documents = _documents(REPOSITORY / "deploy" / "samples")
    [workflow, *_] = [document for document in documents if document["kind"] == "Workflow"]
    stage = workflow["spec"]["stages"][0]["name"]
    pod = plane.logs.with_name("sample-pod.yaml")
    sample = function_pod("sample", workflow=workflow["metadata"]["name"], stage=stage)
    pod.write_text(yaml.safe_dump(sample, sort_keys=False), encoding="utf-8")
    return f"""the cluster is running

With kubectl (`python -m tests.testbed.binaries kubectl` builds one):
  export KUBECONFIG={shlex.quote(str(plane.kubeconfig))}
  kubectl get nodes
  kubectl create -f {shlex.quote(str(pod))}
  kubectl get pod sample -o yaml
{_QUERIES.format(port=port) if extender else ""}
Logs: {plane.logs}
Ctrl-C stops everything."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
