"""A tmpfs of a fixed size at a GPU's folder shm, in the mount namespace of the host."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from scheduler.agent.mps.shm_mount import mount_shm
from tests.require import needing
from tests.testbed.api import wait_until

can_mount = (
    subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode == 0
)
needs_mounts = needing(can_mount, "mount namespaces need root")


@pytest.fixture
def host():
    """A process with a mount namespace of its own, in place of the host's first process."""
    process = subprocess.Popen(["unshare", "--mount", "sleep", "300"])
    link = Path(f"/proc/{process.pid}/ns/mnt")
    own = Path("/proc/self/ns/mnt").readlink()
    wait_until(lambda: link.readlink() != own, what="the namespace exists")
    yield process.pid
    process.kill()
    process.wait()


def sizes(host, folder):
    """List the sizes of the file systems that the host has mounted at the folder."""
    lines = Path(f"/proc/{host}/mountinfo").read_text().splitlines()
    options = [line.split()[-1] for line in lines if line.split()[4] == str(folder)]
    return [o.removeprefix("size=") for o in ",".join(options).split(",") if o.startswith("size=")]


@pytest.mark.slow
@needs_mounts
async def test_tmpfs_is_mounted_once_resized_and_unmounted(host, tmp_path):
    """A second `esg mps` finds it, and an agent that leaves removes it."""
    namespace = f"/proc/{host}/ns/mnt"
    await mount_shm(tmp_path, 1, namespace=namespace)
    assert sizes(host, tmp_path) == ["1024k"]
    await mount_shm(tmp_path, 2, namespace=namespace)
    assert sizes(host, tmp_path) == ["2048k"]
    assert not tmp_path.is_mount()
    await mount_shm(tmp_path, 0, namespace=namespace)
    assert sizes(host, tmp_path) == []
    await mount_shm(tmp_path, 0, namespace=namespace)


@needs_mounts
async def test_more_than_the_size_cannot_be_written(host, tmp_path):
    """The client that fills it gets the error, and the host keeps its memory."""
    namespace = f"/proc/{host}/ns/mnt"
    await mount_shm(tmp_path, 1, namespace=namespace)
    inside = f"exec head -c 2000000 /dev/zero > {tmp_path}/file"
    command = ["nsenter", f"--mount={namespace}", "sh", "-c", inside]
    written = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, text = await written.communicate()
    assert written.returncode != 0
    assert b"No space left" in text


async def test_why_it_cannot_be_mounted_is_told(tmp_path):
    """The daemon's GPU becomes unhealthy with this text."""
    with pytest.raises(OSError, match=f"tmpfs at {tmp_path}: .*No such file"):
        await mount_shm(tmp_path, 1, namespace=str(tmp_path / "missing"))
