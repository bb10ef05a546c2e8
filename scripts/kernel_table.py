#!/usr/bin/env python3
"""Registers, shared memory and occupancy of every compiled kernel, as a table.

    kernel_table.py FOLDER     FOLDER holds <op>.log (nvcc -Xptxas -v) and launches.txt (kernel threads bytes)

Occupancy is arithmetic from the limits of the multiprocessor, not a measurement.
"""
import pathlib
import re
import sys

# Shared memory of a multiprocessor in bytes; both have 65,536 registers, 64 warps and 32 blocks.
ARCHITECTURES = {"sm_80": 164 * 1024, "sm_90": 228 * 1024}
# Threads of blocks that no launch table lists: what __launch_bounds__ says.
DEFAULT_THREADS = {"short_conv": 128, "embedding": 128, "gates": 128, "mixer": 128}
# Kept by the system for every block.
RESERVED_BYTES = 1024


def blocks_per_multiprocessor(arch, registers, threads, shared):
    warps = threads // 32
    registers_per_warp = -(-registers * 32 // 256) * 256
    return min(
        65536 // (registers_per_warp * warps),
        ARCHITECTURES[arch] // (shared + RESERVED_BYTES),
        64 // warps,
        32,
    )


def main(folder):
    launches = {}
    for line in (folder / "launches.txt").read_text().splitlines():
        name, threads, shared = line.split()
        launches[name] = int(threads), int(shared)
    print(f"{'kernel':40} {'arch':6} {'registers':>9} {'spilled':>7} {'shared':>7} {'blocks':>6} {'warps':>9}")
    for log in sorted(folder.glob("*.log")):
        op, text = log.stem, log.read_text()
        entries = re.findall(
            r"Compiling entry function '(\w+)' for '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)",
            text,
            re.S,
        )
        if not entries:
            sys.exit(f"{log}: no kernel in the compiler's account")
        for name, arch, stores, loads, registers, rest in entries:
            static = re.search(r"(\d+) bytes smem", rest)
            threads, shared = launches.get(name, (DEFAULT_THREADS.get(op, 256), 0))
            shared += int(static.group(1)) if static else 0
            blocks = blocks_per_multiprocessor(arch, int(registers), threads, shared)
            warps = blocks * threads // 32
            spilled = int(stores) + int(loads)
            print(f"{name:40} {arch:6} {registers:>9} {spilled:>7} {shared:>7} {blocks:>6} {warps:>3} of 64")


main(pathlib.Path(sys.argv[1]))
