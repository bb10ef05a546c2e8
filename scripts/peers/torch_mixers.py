"""The mixers of flash-linear-attention on a GPU, forward and backward, to hold our mixer's launches against.

    python torch_mixers.py --batch 8 --seq 2048 --heads 8 --S 64 --D 128

Times `chunk_gated_delta_rule` and, where the package has it, `chunk_comba` in bf16, with queries and keys of S channels
and values of D = K + V, so that the state is as large as ours. Prints one JSON line: gpu, versions, and ops: op, pass
(forward, or both for forward and backward together), seconds (median). Where PyTorch, a GPU or the package is missing it
says so in one line and exits with 3. Our mixer does more: it normalises, keeps a strength for each of two blocks,
transports the write address, and reads after the write.
"""

import argparse
import importlib
import json
import statistics
import sys

WARM_UP = 3  # the first runs compile and choose
RUNS = 10  # between two events, so that giving one is hidden behind another
REPEATS = 7


def arguments():
    parser = argparse.ArgumentParser(description="Mixers of flash-linear-attention, timed.")
    for name, value in dict(batch=8, seq=2048, heads=8, S=64, D=128).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def missing(why):
    print(why, file=sys.stderr)
    sys.exit(3)


def package(name):
    """The module of this name, or the reason why there is none."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # a package for another PyTorch fails in many ways
        missing(f"no {name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")


def seconds(torch, body):
    """Median time of a run, by the GPU's own clock."""
    for _ in range(WARM_UP):
        body()
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(RUNS):
            body()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / RUNS)
    return statistics.median(times)


def inputs(torch, a):
    """Queries, keys, values, log decays and strengths, named as the package names them."""
    draw = lambda *widths: torch.randn(a.batch, a.seq, a.heads, *widths, device="cuda")
    unit = lambda x: torch.nn.functional.normalize(x, dim=-1)
    given = {
        "q": unit(draw(a.S)).bfloat16(),
        "k": unit(draw(a.S)).bfloat16(),
        "v": draw(a.D).bfloat16(),
        "g": -torch.nn.functional.softplus(draw() - 4),
        "beta": draw().sigmoid().bfloat16(),
    }
    return {name: x.requires_grad_() for name, x in given.items()}


def mixers(torch, given):
    """Each op's name, and its output from no arguments."""
    delta = package("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    yield "gated_delta_rule", lambda: delta(**given)[0]
    try:
        comba = importlib.import_module("fla.ops.comba").chunk_comba
    except (ImportError, AttributeError):
        return
    # Its second key is what is read before the write: here the key, a little shorter.
    yield "comba", lambda: comba(**given, p=0.9 * given["k"])[0]


def main():
    a = arguments()
    torch = package("torch")
    if not torch.cuda.is_available():
        missing("PyTorch sees no GPU")
    fla = package("fla")
    torch.manual_seed(0)
    given = inputs(torch, a)
    dy = torch.randn(a.batch, a.seq, a.heads, a.D, device="cuda").bfloat16()
    rows = []
    for name, forward in mixers(torch, given):
        both = lambda: torch.autograd.grad(forward(), list(given.values()), dy)
        for way, body in [("forward", forward), ("both", both)]:
            rows.append({"op": name, "pass": way, "seconds": seconds(torch, body)})
    versions = f"torch {torch.__version__}, fla {getattr(fla, '__version__', 'of unknown version')}"
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "versions": versions, **vars(a), "ops": rows}))


if __name__ == "__main__":
    main()
