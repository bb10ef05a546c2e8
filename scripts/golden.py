"""Makes the mixer's golden files: float64 inputs, outputs and all gradients of small cases.

    python scripts/golden.py [OUT]        (torch and safetensors; OUT is data/golden)

The recurrence is written here as it is defined, token by token, and PyTorch differentiates it: nothing of the
project's own code takes part. A file holds one row of one head, T tokens of address size S, entity K + V, rank R:

    q0 s_raw [T,S]   k [T,K]   v [T,V]   log_alpha beta_k beta_v rho lambda [T]   A_K [R,K]   A_V [R,V]   C [S,R]
    E0 [S,K+V]   ->   y [T,K+V]   E_T [S,K+V]

and `grad.NAME` of every input, for the loss  sum(y * dy) + sum(E_T * dE_T).
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

EPSILON = 1e-6
INPUTS = ["q0", "s_raw", "k", "v", "log_alpha", "beta_k", "beta_v", "rho", "lambda", "A_K", "A_V", "C", "E0"]


def mean_one(x):
    """x over its root mean square."""
    return x / torch.sqrt((x * x).mean() + EPSILON)


def token(state, x, t):
    """One step of the recurrence: the state after token t, and what is read of it."""
    address = x["s_raw"][t] / torch.sqrt((x["s_raw"][t] ** 2).sum() + EPSILON)
    pair = (x["A_K"] @ mean_one(x["k"][t])) * (x["A_V"] @ mean_one(x["v"][t]))
    push = x["C"] @ pair / len(pair) ** 0.5
    push = push / torch.sqrt(1 + push @ push)
    destination = address + x["rho"][t] * (push - (address @ push) * address)
    anchor = destination / torch.sqrt(destination @ destination)
    query = x["q0"][t] + x["lambda"][t] * (1 - x["q0"][t] @ anchor) * anchor

    state = torch.exp(x["log_alpha"][t]) * state
    entity = torch.cat([x["k"][t], x["v"][t]])
    strength = torch.cat([x["beta_k"][t].expand(x["k"].shape[1]), x["beta_v"][t].expand(x["v"].shape[1])])
    state = state + torch.outer(destination, strength * (entity - state.T @ address))
    return state, state.T @ query


def case(seed, tokens, sizes, **changed):
    """Random inputs, of which `changed` are functions of the random one; outputs and gradients."""
    random = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=random, dtype=torch.float64)
    uniform = lambda: torch.rand(tokens, generator=random, dtype=torch.float64)
    address, key, value, rank = sizes
    x = {
        "q0": torch.nn.functional.normalize(normal(tokens, address), dim=1),
        "s_raw": normal(tokens, address),
        "k": normal(tokens, key),
        "v": normal(tokens, value),
        "log_alpha": uniform().log() / 8,
        "beta_k": uniform(),
        "beta_v": uniform(),
        "rho": uniform(),
        "lambda": uniform(),
        "A_K": normal(rank, key) / key**0.5,
        "A_V": normal(rank, value) / value**0.5,
        "C": normal(address, rank) / rank**0.5,
        "E0": normal(address, key + value) / 2,
    }
    for name, change in changed.items():
        x[name] = change(x[name])
    for name in INPUTS:
        x[name] = x[name].clone().requires_grad_()
    state, reads = x["E0"], []
    for t in range(tokens):
        state, read = token(state, x, t)
        reads.append(read)
    out = {"y": torch.stack(reads), "E_T": state}
    weights = {"dy": normal(tokens, key + value), "dE_T": normal(address, key + value)}
    loss = (out["y"] * weights["dy"]).sum() + (out["E_T"] * weights["dE_T"]).sum()
    gradients = torch.autograd.grad(loss, [x[name] for name in INPUTS])
    tensors = x | out | weights | {f"grad.{name}": gradient for name, gradient in zip(INPUTS, gradients)}
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}


def at(places, there):
    """Puts `there` at some tokens."""

    def change(values):
        values = values.clone()
        values[places] = there
        return values

    return change


def everywhere(number):
    return lambda values: torch.full_like(values, number)


SMALL = (16, 8, 8, 4)
CASES = {
    "one_token": lambda: case(21, 1, SMALL),
    "ragged": lambda: case(22, 77, (16, 8, 24, 4)),
    "two_chunks": lambda: case(23, 128, (32, 16, 16, 8)),
    "three_chunks": lambda: case(24, 150, (32, 8, 16, 8)),
    "strong_decay": lambda: case(25, 100, SMALL, log_alpha=lambda a: at(slice(3, None, 9), -50.0)(20 * a)),
    "document_reset": lambda: case(26, 96, SMALL, log_alpha=lambda a: at([40, 41], -1e4)(everywhere(-0.05)(a))),
    "no_decay": lambda: case(27, 90, SMALL, log_alpha=everywhere(0.0)),
    "repeated_address_full_write": lambda: case(
        28,
        140,
        SMALL,
        s_raw=lambda s: s[:1].repeat(len(s), 1),
        log_alpha=everywhere(-2e-3),
        beta_k=everywhere(1.0),
        beta_v=everywhere(0.85),
    ),
    "delta_rule": lambda: case(
        29, 80, SMALL, rho=everywhere(0.0), **{"lambda": everywhere(0.0)}, beta_k=everywhere(0.6), beta_v=everywhere(0.6)
    ),
    "full_transport_and_recall": lambda: case(30, 80, SMALL, rho=everywhere(1.0), **{"lambda": everywhere(1.0)}),
}

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "data/golden")
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in CASES.items():
        save_file(make(), folder / f"{name}.safetensors")
        print(folder / f"{name}.safetensors")
