"""Memory that was needed for a moment goes back to the operating system."""

import platform
import subprocess
import sys

import pytest

#: Blocks of 100 KB, 100 MiB in all, each freed between smaller ones that stay.
_FREE_AMONG_OTHERS = """
from pathlib import Path
from heartbeat_stream.heap import give_back_freed

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

large, small = [], []
for _ in range(1000):
    large.append(bytearray(100_000))
    small.append(bytearray(700))
large.clear()
before = resident_mib()
give_back_freed()
print(before, resident_mib())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are not asked")
def test_what_lies_between_other_blocks_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FREE_AMONG_OTHERS], capture_output=True, text=True, check=True
    )
    before, after = map(int, done.stdout.split())
    assert before - after > 70, (before, after)
