"""Scale: the extender at 15,000 nodes of 8 GPUs, and one namespace of 2,000 GPUs in the gateway.

    PYTHONSAFEPATH=1 PYTHONPATH=build/compiled:. python -m bench.scale

Both run the product's code as the image has it, over played clusters. The figures are compared with
``bench/ranges/scale.json``; the exit status is 1 where one is out of its range.
"""

import sys
from time import perf_counter

from bench import scale_dispatcher, scale_extender
from bench.thresholds import check_ranges


def main() -> int:
    """Measure, print and compare with the ranges."""
    began_s = perf_counter()
    figures = scale_extender.main() | scale_dispatcher.main()
    print(f"all of it took {(perf_counter() - began_s) / 60:.1f} minutes")
    return check_ranges("scale", figures)


if __name__ == "__main__":
    sys.exit(main())
