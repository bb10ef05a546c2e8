"""A training step of the same Neural Turing machine in PyTorch, to measure `atpm-train bench ntm` against.

    python torch_ntm.py --size 20 --rows 16 --hidden 128 --slots 128 --width 32 --steps 20 --threads 2

Copy: `size` random vectors of 8 bits, an end mark, the vectors again. An LSTM with one read and one write head in f32, batched
over rows, a loop over steps; loss on the answer steps, gradient clipped to norm 1, AdamW. The memory is [B,N,W], as is usual
there. Prints one JSON line: params, rows, sequence_steps, threads, step_ms (median), loss (of the last step), peak_rss_bytes.
"""

import argparse
import json
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

BITS = 8
EPSILON, DELTA = 1e-6, 1e-12


class Machine(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.cell = nn.Linear(BITS + 1 + a.width + a.hidden, 4 * a.hidden)
        self.heads = nn.Linear(a.hidden, 2 * (a.width + 6) + 2 * a.width)
        self.out = nn.Linear(a.hidden + a.width, BITS)
        with torch.no_grad():
            self.heads.bias.zero_()
            for head in range(2):
                self.heads.bias[head * (a.width + 6) + a.width] = 0.5413
            self.heads.bias[2 * (a.width + 6) :][: a.width] = 0.8

    def address(self, raw, memory, norms, before):
        """The weights [B,N] of one head."""
        key, beta, gate, shifts, gamma = raw.split([self.a.width, 1, 1, 3, 1], -1)
        key = torch.tanh(key)
        length = (key.square().sum(-1, keepdim=True) + EPSILON).sqrt()
        similarity = torch.bmm(memory, key.unsqueeze(-1)).squeeze(-1) / (norms * length)
        content = torch.softmax(F.softplus(beta) * similarity, -1)
        gate, shifts = torch.sigmoid(gate), torch.softmax(shifts, -1)
        mixed = gate * content + (1 - gate) * before
        shifted = (
            shifts[:, 0:1] * mixed.roll(-1, -1) + shifts[:, 1:2] * mixed + shifts[:, 2:3] * mixed.roll(1, -1)
        )
        return torch.softmax((1 + F.softplus(gamma)) * torch.log(shifted + DELTA), -1)

    def forward(self, x):
        a, rows = self.a, x.shape[0]
        memory = x.new_zeros(rows, a.slots, a.width)
        hidden, cell, read = (x.new_zeros(rows, n) for n in (a.hidden, a.hidden, a.width))
        weights = [F.one_hot(torch.zeros(rows, dtype=torch.long), a.slots).float() for _ in range(2)]
        outputs = []
        for step in range(x.shape[1]):
            units = self.cell(torch.cat([x[:, step], read, hidden], -1))
            i, f, o, g = units.chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            *raws, content = self.heads(hidden).split([a.width + 6, a.width + 6, 2 * a.width], -1)
            norms = (memory.square().sum(-1) + EPSILON).sqrt()
            weights = [self.address(raw, memory, norms, w) for raw, w in zip(raws, weights)]
            read = torch.bmm(weights[0].unsqueeze(1), memory).squeeze(1)
            erase, add = content.chunk(2, -1)
            where = weights[1].unsqueeze(-1)
            memory = memory * (1 - where * torch.sigmoid(erase).unsqueeze(1)) + where * torch.tanh(add).unsqueeze(1)
            outputs.append(self.out(torch.cat([hidden, read], -1)))
        return torch.stack(outputs, 1)


def batch(a):
    vectors = torch.randint(2, (a.rows, a.size, BITS)).float()
    x = torch.zeros(a.rows, 2 * a.size + 1, BITS + 1)
    x[:, : a.size, :BITS] = vectors
    x[:, a.size, BITS] = 1
    return x, vectors


def main():
    parser = argparse.ArgumentParser(description="A training step of a Neural Turing machine in PyTorch, timed.")
    sizes = dict(size=20, rows=16, hidden=128, slots=128, width=32, steps=20, threads=0)
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = Machine(a)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0)
    times = []
    for _ in range(3 + a.steps):
        start = time.perf_counter()
        x, vectors = batch(a)
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(x)[:, a.size + 1 :], vectors)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - start)
    report = {
        "peer": f"torch {torch.__version__} f32",
        "params": sum(p.numel() for p in model.parameters()),
        "rows": a.rows,
        "sequence_steps": 2 * a.size + 1,
        "threads": torch.get_num_threads(),
        "step_ms": 1e3 * statistics.median(times[3:]),
        "loss": loss.item(),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
