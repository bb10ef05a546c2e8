"""The gated delta rule of transformers in PyTorch, forward and backward, to measure our mixer against.

    python torch_delta.py --batch 4 --seq 1024 --heads 8 --K 64 --V 64 --threads 2

Times `torch_chunk_gated_delta_rule`, the form that transformers' Qwen3-Next runs where no GPU kernel is
installed, in f32 at S = K. Prints one JSON line: seconds (forward and backward, median), forward_seconds,
peak_rss_bytes. Its speed depends on transformers' version, which the line names: 4.57 substitutes row by row in
Python, 5.24 solves a triangular system. Our mixer does more: it keeps two blocks in one state, and transports the
write address.
"""

import argparse
import json
import statistics
import time

import torch
import transformers
from torch.nn import functional as F
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

from torch_step import peak_rss_bytes


def arguments():
    parser = argparse.ArgumentParser(description="The gated delta rule of transformers, timed.")
    for name, value in dict(batch=4, seq=1024, heads=8, K=64, V=64, repeats=5, threads=0).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def main():
    a = arguments()
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    draw = lambda width: torch.randn(a.batch, a.seq, a.heads, width)
    inputs = [
        F.normalize(draw(a.K), dim=-1),
        F.normalize(draw(a.K), dim=-1),
        draw(a.V),
        -F.softplus(draw(1).squeeze(-1) - 4),
        draw(1).squeeze(-1).sigmoid(),
    ]
    inputs = [x.requires_grad_() for x in inputs]
    dy = draw(a.V)
    forward, both = [], []
    for _ in range(1 + a.repeats):
        start = time.perf_counter()
        y, _ = torch_chunk_gated_delta_rule(*inputs)
        forward.append(time.perf_counter() - start)
        torch.autograd.grad(y, inputs, dy)
        both.append(time.perf_counter() - start)
    report = {
        "peer": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "threads": torch.get_num_threads(),
        "seconds": statistics.median(both[1:]),
        "forward_seconds": statistics.median(forward[1:]),
        "peak_rss_bytes": peak_rss_bytes(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
