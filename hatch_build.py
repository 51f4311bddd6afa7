"""Build hook that compiles the kernels ahead of time: a service then needs neither Numba nor LLVM.

Each module ``*_kernels.py`` of search and placement gets an extension of its name next to it, which
Python imports in its place. It has the kernels alone, so these modules define nothing else that
others import.
"""

import importlib
import os
import sys
import warnings
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOMS = ("scheduler/placement", "scheduler/search")


class KernelsHook(BuildHookInterface[Any]):
    """Add the extensions to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's
        """Compile all modules of kernels for any processor of this architecture."""
        os.environ["NUMBA_CPU_NAME"] = "generic"
        root = Path(self.root)
        sys.path.insert(0, self.root)
        folder = Path(mkdtemp(prefix="esg-kernels-"))
        for room in ROOMS:
            for path in sorted((root / room).rglob("*kernels.py")):
                place = path.parent.relative_to(root)
                module = importlib.import_module(".".join((*place.parts, path.stem)))
                (folder / place).mkdir(parents=True, exist_ok=True)
                extension = compile_module(module, folder / place)
                build_data["force_include"][str(extension)] = f"{place}/{extension.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def compile_module(module: ModuleType, folder: Path) -> Path:
    """Compile the kernels of a module into an extension in a folder.

    Numba plans to replace ``numba.pycc``; the version is pinned. Its functions hold the lock of the
    interpreter unless their flags release it.
    """
    from numba.core.compiler import Flags  # noqa: PLC0415 - reads NUMBA_CPU_NAME
    from numba.core.dispatcher import Dispatcher  # noqa: PLC0415
    from numba.core.errors import NumbaPendingDeprecationWarning  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumbaPendingDeprecationWarning)
        from numba.pycc import CC, compiler  # noqa: PLC0415

    def without_lock() -> Flags:
        flags = Flags()
        flags.release_gil = True
        return flags

    compiler.Flags = without_lock
    extension = CC(module.__name__.rpartition(".")[2], source_module=module)
    extension.target_cpu = "generic"
    extension.output_dir = str(folder)
    for name, kernel in vars(module).items():
        if isinstance(kernel, Dispatcher):
            [signature] = kernel.nopython_signatures
            extension.export(name, signature)(kernel.py_func)
    extension.compile()
    return folder / extension.output_file
