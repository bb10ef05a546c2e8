"""One training step of the same model in PyTorch, to measure `atpm-train bench step` against.

    python torch_step.py --d 512 --layers 8 --heads 8 --S 64 --K 32 --V 32 --R 16 \
        --mlp 1408 --vocab 8192 --batch 4 --seq 1024 --steps 5 --threads 2 [--dtype bf16] [--compile] \
        [--kind transformer]

Forward, backward, clipping and a fused AdamW update, in f32 or under bf16 autocast, as written or
compiled. Prints one JSON line: params, tokens_per_s (median), s_per_step, loss, peak_rss_bytes. The
memory runs in chunks: everything that does not depend on the state is batched over all chunks, and one
loop carries the state from chunk to chunk. With `--kind transformer`, the same decoder around softmax attention: what
a user of recurrent models gives up, or not. With `--kind lstm`, around torch.nn.LSTM and without MLPs.
`--device cuda` measures on a GPU; `--fla` then puts Gated DeltaNet by flash-linear-attention's kernel in the memory's place.

Shapes: B rows, T tokens, H heads, N chunks of C tokens, S address, K and V the entity's blocks.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

CHUNK = 64


def unit(x):
    """Rows of length one."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def rms(x, eps):
    """Rows of root mean square one."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


class ChunkedMemory:
    """The joint memory over whole rows: addresses [B,H,T,S], entities [B,H,T,K] and [B,H,T,V]."""

    def __init__(self, source, write, log_decay):
        self.source, self.write = self.split(source), self.split(write)
        total = self.split(log_decay).cumsum(-1)
        # Differences first, masked before the exponential: nothing can overflow.
        gaps = total.unsqueeze(-1) - total.unsqueeze(-2)
        seen = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
        self.between = gaps.masked_fill(~seen, float("-inf")).exp()
        self.since_start = total.exp().unsqueeze(-1)
        self.until_end = (total[..., -1:] - total).exp().unsqueeze(-1)

    @staticmethod
    def split(x):
        """[B,H,T,...] in chunks [B,H,N,C,...]."""
        return x.unflatten(2, (-1, CHUNK))

    def corrections(self, entity, strength):
        """What each token writes, as `own - from_state @ E` with E the chunk's first state."""
        entity, strength = self.split(entity), self.split(strength).unsqueeze(-1)
        overlap = self.source @ self.write.transpose(-1, -2)
        lower = strength * (self.between * overlap).tril(-1)
        right = torch.cat([strength * entity, strength * self.since_start * self.source], -1)
        identity = torch.eye(CHUNK)
        both = torch.linalg.solve_triangular(identity + lower, right, upper=False, unitriangular=True)
        return both.split([entity.shape[-1], self.source.shape[-1]], -1)

    def read(self, query, blocks):
        """Answers [B,H,T,K+V]; `blocks` holds one (entity, strength) for each block."""
        query = self.split(query)
        scores = self.between * (query @ self.write.transpose(-1, -2))
        from_start = self.since_start * query
        carried = (self.until_end * self.write).transpose(-1, -2)
        written = [self.corrections(*block) for block in blocks]
        widths = [own.shape[-1] for own, _ in written]
        batch, heads, chunks, _, size = query.shape
        state = torch.zeros(batch, heads, size, sum(widths))
        answers = []
        for n in range(chunks):
            parts = zip(written, state.split(widths, -1))
            values = torch.cat([own[:, :, n] - reach[:, :, n] @ part for (own, reach), part in parts], -1)
            answers.append(from_start[:, :, n] @ state + scores[:, :, n] @ values)
            state = self.since_start[:, :, n, -1:] * state + carried[:, :, n] @ values
        return torch.cat(answers, 2)


class Mixer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.sizes = [a.S, a.S, a.K, a.V]
        self.heads, self.rank = a.heads, a.R
        channels, inner = a.heads * sum(self.sizes), a.heads * (a.K + a.V)
        self.in_proj = nn.Linear(a.d, channels, bias=False)
        self.controls = nn.Linear(a.d, 5 * a.heads)
        self.gate_proj = nn.Linear(a.d, inner, bias=False)
        self.out_proj = nn.Linear(inner, a.d, bias=False)
        self.short_conv = nn.Conv1d(channels, channels, 4, padding=3, groups=channels, bias=False)
        self.a_key = nn.Parameter(torch.randn(a.heads, a.R, a.K) * a.K**-0.5)
        self.a_value = nn.Parameter(torch.randn(a.heads, a.R, a.V) * a.V**-0.5)
        self.c = nn.Parameter(torch.zeros(a.heads, a.S, a.R))
        self.a_log = nn.Parameter(torch.rand(a.heads) * 2)
        self.dt_bias = nn.Parameter(torch.full((a.heads,), -4.0))
        self.out_norm = nn.Parameter(torch.ones(a.K + a.V))

    def write_address(self, source, key, value, rho):
        """The source address, transported along its tangent."""
        per_head = lambda x, weight: rms(x, 1e-6) @ weight.transpose(-1, -2)
        z = per_head(key, self.a_key) * per_head(value, self.a_value)
        c = (z @ self.c.transpose(-1, -2)) * self.rank**-0.5
        proposal = c * torch.rsqrt(1 + c.square().sum(-1, keepdim=True))
        tangent = proposal - (source * proposal).sum(-1, keepdim=True) * source
        return source + rho.unsqueeze(-1) * tangent

    def memory_inputs(self, x, channels):
        """From the layer's input [B,T,d] and the convolved channels [B,C,T]: query, source and write
        addresses, (entity, strength) of both blocks, and the log decay, all [B,H,T,...]."""
        heads = F.silu(channels).unflatten(1, (self.heads, -1)).transpose(-1, -2)
        query, source, key, value = heads.split(self.sizes, -1)
        logits = self.controls(x).unflatten(-1, (5, self.heads)).permute(2, 0, 3, 1)
        log_decay = -self.a_log.exp().unsqueeze(-1) * F.softplus(logits[0] + self.dt_bias.unsqueeze(-1))
        beta_key, beta_value, rho, recall = logits[1:].sigmoid()
        query, source = unit(query), unit(source)
        write = self.write_address(source, key, value, rho)
        towards = unit(write)
        query = query + (recall * (1 - (query * towards).sum(-1))).unsqueeze(-1) * towards
        return query, source, write, [(key, beta_key), (value, beta_value)], log_decay

    def output(self, x, y):
        """The layer's output from its input and the memory's answers [B,H,T,K+V]."""
        y = (rms(y, 1e-6) * self.out_norm).transpose(1, 2).flatten(2)
        return self.out_proj(y * F.silu(self.gate_proj(x)))

    def forward(self, x):
        channels = self.short_conv(self.in_proj(x).transpose(1, 2))[..., : x.shape[1]]
        query, source, write, blocks, log_decay = self.memory_inputs(x, channels)
        return self.output(x, ChunkedMemory(source, write, log_decay).read(query, blocks))


class GatedDelta(Mixer):
    """Gated DeltaNet by flash-linear-attention's kernel in the same layer: one strength for the whole entity, and
    nothing is transported."""

    def __init__(self, a):
        super().__init__(a)
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        self.delta_rule = chunk_gated_delta_rule
        del self.a_key, self.a_value, self.c

    def forward(self, x):
        channels = self.short_conv(self.in_proj(x).transpose(1, 2))[..., : x.shape[1]]
        heads = F.silu(channels).transpose(1, 2).unflatten(-1, (self.heads, -1))
        query, key, *entity = heads.split(self.sizes, -1)
        logits = self.controls(x).unflatten(-1, (5, self.heads)).unbind(2)
        y, _ = self.delta_rule(
            q=query,
            k=key,
            v=torch.cat(entity, -1),
            g=-self.a_log.exp() * F.softplus(logits[0].float() + self.dt_bias),
            beta=logits[1].sigmoid(),
            use_qk_l2norm_in_kernel=True,
        )
        return self.output(x, y.transpose(1, 2))


class Attention(nn.Module):
    """Causal softmax attention with rotary positions, in place of the memory: same width, same heads."""

    def __init__(self, a):
        super().__init__()
        self.heads = a.heads
        self.qkv = nn.Linear(a.d, 3 * a.d, bias=False)
        self.out_proj = nn.Linear(a.d, a.d, bias=False)
        half = a.d // a.heads // 2
        angle = torch.outer(torch.arange(a.seq), 1e4 ** (-torch.arange(half) / half))
        self.register_buffer("turn", torch.stack([angle.cos(), angle.sin()]))

    def rotated(self, x):
        """Queries or keys [B,H,T,head], turned by their positions."""
        (cos, sin), (left, right) = self.turn, x.chunk(2, -1)
        return torch.cat([left * cos - right * sin, left * sin + right * cos], -1).to(x.dtype)

    def forward(self, x):
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.rotated(query), self.rotated(key), value, is_causal=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class Lstm(nn.Module):
    """An LSTM of the model's width; it has two biases where one would do."""

    def __init__(self, a):
        super().__init__()
        self.lstm = nn.LSTM(a.d, a.d, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


class Mlp(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.up = nn.Linear(a.d, 2 * a.mlp, bias=False)
        self.down = nn.Linear(a.mlp, a.d, bias=False)

    def forward(self, x):
        gate, up = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, a, mixer=Mixer):
        super().__init__()
        self.embedding = nn.Embedding(a.vocab, a.d)
        nn.init.normal_(self.embedding.weight, std=0.02)
        norm = lambda: nn.RMSNorm(a.d, eps=1e-6)
        mlp = lambda: [] if mixer is Lstm else [norm(), Mlp(a)]
        self.blocks = nn.ModuleList(nn.ModuleList([norm(), mixer(a), *mlp()]) for _ in range(a.layers))
        self.norm = norm()

    def logits(self, ids, mix=lambda layer, mixer, x: mixer(x)):
        """Logits [B,T,vocab]; `mix` runs a layer's mixer."""
        x = self.embedding(ids)
        for layer, (mixer_norm, mixer, *rest) in enumerate(self.blocks):
            x = x + mix(layer, mixer, mixer_norm(x))
            if rest:
                mlp_norm, mlp = rest
                x = x + mlp(mlp_norm(x))
        return F.linear(self.norm(x), self.embedding.weight)

    def forward(self, ids, targets):
        return F.cross_entropy(self.logits(ids).flatten(0, 1), targets.flatten())


MIXERS = {"atpm": Mixer, "transformer": Attention, "lstm": Lstm}


def peak_rss_bytes():
    """Most memory that this process ever held."""
    with open("/proc/self/status") as status:
        kilobytes = next(line.split()[1] for line in status if line.startswith("VmHWM:"))
    return 1024 * int(kilobytes)


def size_parser(description, **more):
    """The model's sizes and other numbers as flags, with their defaults."""
    parser = argparse.ArgumentParser(description=description)
    sizes = dict(d=512, layers=8, heads=8, S=64, K=32, V=32, R=16, mlp=1408, vocab=8192, threads=0)
    for name, value in dict(**sizes, **more).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser


def arguments():
    parser = size_parser("One training step in PyTorch, timed.", batch=4, seq=1024, steps=5)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--kind", choices=list(MIXERS), default="atpm")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--fla", action="store_true")
    args = parser.parse_args()
    if args.kind == "atpm" and args.seq % CHUNK:
        parser.error(f"--seq must be a multiple of {CHUNK}")
    return args


def main():
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    torch.set_default_device(args.device)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    model = Decoder(args, GatedDelta if args.fla else MIXERS[args.kind])
    forward = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(args.vocab, (args.batch, args.seq + 1))
    times = []
    for _ in range(2 + args.steps):
        start = time.perf_counter()
        with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times[2:])
    report = {
        "peer": f"torch {torch.__version__} {'fla' if args.fla else args.kind} {args.dtype}{' compiled' if args.compile else ''}",
        "params": sum(p.numel() for p in model.parameters()),
        "threads": torch.get_num_threads(),
        "tokens_per_s": args.batch * args.seq / seconds,
        "s_per_step": seconds,
        "loss": loss.item(),
        "peak_rss_bytes": peak_rss_bytes(),
    }
    if args.device == "cuda":
        report["gpu_bytes"] = torch.cuda.max_memory_allocated()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
