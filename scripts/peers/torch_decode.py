"""Decoding with the same model in PyTorch, token by token, to measure `atpm-train bench decode` against.

    python torch_decode.py --d 512 --layers 8 --heads 8 --S 64 --K 32 --V 32 --R 16 --mlp 1408 --vocab 8192 \\
        --rows 1 --tokens 64 --threads 2

A loop over tokens in f32, without gradients, each row with a state of constant size: the memory [B,H,S,K+V] and
the convolution's last inputs [B,C,3] of every layer. Before it is timed, its logits are held to those of the form
in chunks (torch_step.py). Prints one JSON line: params, rows, threads, tokens_per_s (of all rows, median), state_bytes,
peak_rss_bytes.
"""

import json
import statistics
import time

import torch
from torch.nn import functional as F

from torch_step import CHUNK, Decoder, peak_rss_bytes, size_parser


class State:
    """What every layer remembers between tokens."""

    def __init__(self, a):
        channels = a.heads * (2 * a.S + a.K + a.V)
        self.inputs = [torch.zeros(a.rows, channels, 3) for _ in range(a.layers)]
        self.memory = [torch.zeros(a.rows, a.heads, a.S, a.K + a.V) for _ in range(a.layers)]

    def bytes(self):
        return sum(x.numel() * x.element_size() for x in self.inputs + self.memory)

    def mix(self, layer, mixer, x):
        """One token [B,1,d] through a layer's mixer; its state moves on."""
        window = torch.cat([self.inputs[layer], mixer.in_proj(x).transpose(1, 2)], -1)
        self.inputs[layer] = window[..., 1:]
        channels = (window * mixer.short_conv.weight.squeeze(1)).sum(-1, keepdim=True)
        query, source, write, blocks, log_decay = mixer.memory_inputs(x, channels)
        memory = log_decay.exp().unsqueeze(-1) * self.memory[layer]
        old = source @ memory
        entity = torch.cat([entity for entity, _ in blocks], -1)
        strength = torch.cat([beta.unsqueeze(-1).expand_as(entity) for entity, beta in blocks], -1)
        self.memory[layer] = memory + write.transpose(-1, -2) * (strength * (entity - old))
        return mixer.output(x, query @ self.memory[layer])


def hold_to_chunks(model, a):
    """Fails if the loop's logits over one chunk are not those of the form in chunks."""
    ids = torch.randint(a.vocab, (a.rows, CHUNK))
    state = State(a)
    loop = torch.cat([model.logits(ids[:, t : t + 1], state.mix) for t in range(CHUNK)], 1)
    error = (loop - model.logits(ids)).abs().max().item()
    if not error < 1e-4:
        raise SystemExit(f"the token loop is off by {error} from the form in chunks")


@torch.inference_mode()
def main():
    a = size_parser("Decoding in PyTorch, timed.", rows=1, tokens=64).parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = Decoder(a)
    hold_to_chunks(model, a)
    state, ids, times = State(a), torch.ones(a.rows, 1, dtype=torch.long), []
    for _ in range(4 + a.tokens):
        start = time.perf_counter()
        model.logits(ids, state.mix)
        times.append(time.perf_counter() - start)
    report = {
        "peer": f"torch {torch.__version__} f32 token loop",
        "params": sum(p.numel() for p in model.parameters()),
        "rows": a.rows,
        "threads": torch.get_num_threads(),
        "tokens_per_s": a.rows / statistics.median(times[4:]),
        "state_bytes": state.bytes(),
        "peak_rss_bytes": peak_rss_bytes(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
