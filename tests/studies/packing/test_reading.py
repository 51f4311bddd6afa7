"""The CSV files of a trace: what is read, and what is wrong told with file and line."""

import pytest

from scheduler.model.document_reader import DocumentError
from studies.packing.trace import read_machines, read_pods
from tests.simulation.workloads.arriving import is_open
from tests.studies.packing.traces import NODES_HEADER, PODS_HEADER, csv_of, machine, pod


def test_pods_in_the_order_of_their_creation(tmp_path):
    """Whole GPUs, shares (rounded up to whole percent), none; and where they may run."""
    rows = [
        "late,6000.0,12288,1,460,,LS,9",
        "whole,96000,1024,8,1000,V100M16|V100M32,BE,3",
        "odd,500,0,1,461,T4,LS,4",
        "plain,4000,512,0,0,,BE,3",
    ]
    assert read_pods(csv_of(tmp_path, PODS_HEADER, rows)) == [
        pod("whole", 96_000, 8, 100, 1_024, ("V100M16", "V100M32"), 3),
        pod("plain", 4_000, 0, 0, 512, (), 3),
        pod("odd", 500, 1, 47, 0, ("T4",), 4),
        pod("late", 6_000, 1, 46, 12_288, (), 9),
    ]


def test_nodes_in_the_order_of_the_file(tmp_path):
    """A node without GPUs needs no model."""
    rows = ["n1,64000,262144,2,P100", "n0,8000,1024,0,"]
    assert read_machines(csv_of(tmp_path, NODES_HEADER, rows)) == [
        machine("n1", 64_000, 2, 262_144, "P100"),
        machine("n0", 8_000, 0, 1_024, ""),
    ]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("p,many,1,1,500,,LS,0", "line 3: column cpu_milli: 'many' is no whole number from 0 to"),
        ("p,-1,1,1,500,,LS,0", "line 3: column cpu_milli: '-1' is no whole number"),
        ("p,1,,1,500,,LS,0", "line 3: column memory_mib: '' is no whole number"),
        ("p,1,1,65,1000,,LS,0", "line 3: column num_gpu: '65' is no whole number from 0 to 64"),
        (
            "p,1,1,1,1001,,LS,0",
            "line 3: column gpu_milli: '1001' is no whole number from 1 to 1,000",
        ),
        ("p,1,1,1,0,,LS,0", "line 3: column gpu_milli: '0' is no whole number from 1"),
        ("p,1,1,2,500,,LS,0", "line 3: column gpu_milli: is 500 for 2 GPUs"),
        ("p,1,1,1,500,,LS,soon", "line 3: column creation_time: 'soon' is no whole number"),
        (",1,1,1,500,,LS,0", "line 3: column name: is empty"),
        ("p,1,1", "line 3: has 3 values for 8 columns"),
        ('p,1,1,1,500,"x,LS,0', "is not valid CSV"),
    ],
)
def test_a_wrong_pod_names_file_and_line(tmp_path, row, says):
    """And the column, and what is there."""
    file = csv_of(tmp_path, PODS_HEADER, ["ok,1,1,1,500,,LS,0", row])
    with pytest.raises(DocumentError) as caught:
        read_pods(file)
    assert not is_open(file)
    assert str(caught.value).startswith(f"{file}: line ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["n0,1,1,1,T4", "n0,1,1,1,T4"], "line 3: column sn: 'n0' is the node of line 2 already"),
        (["n0,1,1,1,"], "line 2: column model: is empty"),
        (["n0,1,1,x,T4"], "line 2: column gpu: 'x' is no whole number from 0 to 64"),
        (["n0,0,1,1,T4"], "line 2: column cpu_milli: '0' is no whole number from 1 to"),
        (["n0,1,0,1,T4"], "line 2: column memory_mib: '0' is no whole number from 1 to"),
        (["n0,1,1,0,T4"], "has no node with a GPU"),
        ([f"n{i},1,1,1,{i}" for i in range(64)], "has 64 models of GPU; 63 are the most"),
        ([], "has no node with a GPU"),
    ],
)
def test_a_wrong_node_names_file_and_line(tmp_path, rows, says):
    """And a cluster without a GPU cannot be filled."""
    file = csv_of(tmp_path, NODES_HEADER, rows)
    with pytest.raises(DocumentError) as caught:
        read_machines(file)
    assert not is_open(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert says in str(caught.value)


def test_no_pod_is_no_trace(tmp_path):
    """A header alone says nothing that could arrive."""
    file = csv_of(tmp_path, PODS_HEADER, [])
    with pytest.raises(DocumentError, match="has no pod below the columns' names"):
        read_pods(file)


def test_columns_that_lack_are_named(tmp_path):
    """With those that there are: the two files are easily taken for one another."""
    file = csv_of(tmp_path, NODES_HEADER, [])
    with pytest.raises(DocumentError, match=r"there is no name, num_gpu, .*; there are sn, cpu"):
        read_pods(file)
