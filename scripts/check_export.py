#!/usr/bin/env python3
"""Checks an exported folder without this project's code.

    python3 scripts/check_export.py export/tiny
    python3 scripts/check_export.py export/tiny --losses losses.safetensors

The first form needs the standard library only. It reads config.json and the header of model.safetensors, compares
names, shapes and dtypes with what docs/checkpoint-format.md says they are, and refuses numbers that are not finite.

The second form needs PyTorch, too. It computes the model's loss of every token by itself, in float64 and token by
token, and compares it with what the program said: `atpm-train eval --model export/tiny --data SHARDS --token-losses
losses.safetensors`. scripts/peers/check_export.sh does all of it for models of every kind.

Exit code 0 if all is as documented, 1 otherwise.
"""

import argparse
import json
import math
import struct
import sys
import warnings
from array import array
from pathlib import Path

BYTES = {"F32": 4, "BF16": 2}
DTYPES = {"float32": "F32", "bfloat16": "BF16"}
# The target of a token after which nothing is to be predicted.
IGNORE = 2**32 - 1


def expected_shapes(config):
    """Name to shape, from the sizes in config.json."""
    d, h, s = config["hidden_size"], config["num_heads"], config["address_size"]
    k, v, r = config["key_size"], config["value_size"], config["transport_rank"]
    vocab, inner, width = config["vocab_size"], config["intermediate_size"], config["short_conv_width"]
    channels = h * (2 * s + k + v)
    shapes = {"embedding.weight": [vocab, d], "norm.weight": [d]}
    if not config["tie_word_embeddings"]:
        shapes["head.weight"] = [vocab, d]
    for n in range(config["num_hidden_layers"]):
        block = {
            "mixer_norm.weight": [d],
            "mixer.in_proj.weight": [channels, d],
            "mixer.gate_proj.weight": [h * (k + v), d],
            "mixer.controls.weight": [5 * h, d],
            "mixer.controls.bias": [4, h],
            "mixer.a_log": [h],
            "mixer.dt_bias": [h],
            "mixer.transport.a_key": [h, r, k],
            "mixer.transport.a_value": [h, r, v],
            "mixer.transport.c": [h, s, r],
            "mixer.out_norm.weight": [k + v],
            "mixer.out_proj.weight": [d, h * (k + v)],
            "mlp_norm.weight": [d],
            "mlp.up.weight": [2 * inner, d],
            "mlp.down.weight": [d, inner],
        }
        if width:
            block["mixer.short_conv.weight"] = [channels, width]
        shapes.update({f"blocks.{n}.{name}": shape for name, shape in block.items()})
    return shapes


def values(data, dtype):
    """The numbers of one tensor, as floats."""
    if dtype == "BF16":
        # A bfloat16 is the upper half of a float.
        halves = array("H", data)
        if sys.byteorder == "big":
            halves.byteswap()
        return array("f", array("I", (half << 16 for half in halves)).tobytes())
    floats = array("f", data)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats


def header_of(file):
    """The header of an open safetensors file without its notes, and where its data begin."""
    (length,) = struct.unpack("<Q", file.read(8))
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


def problems(folder):
    """Everything that is not as documented, one sentence each."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "atpm":
        yield f"model_type is {config['model_type']}"
        return
    dtype = DTYPES.get(config["torch_dtype"])
    with open(folder / "model.safetensors", "rb") as file:
        header, data = header_of(file)
        wanted = expected_shapes(config)
        yield from (f"{name} is missing" for name in sorted(wanted.keys() - header.keys()))
        yield from (f"{name} is unknown" for name in sorted(header.keys() - wanted.keys()))
        for name in sorted(wanted.keys() & header.keys()):
            entry = header[name]
            begin, end = entry["data_offsets"]
            if entry["shape"] != wanted[name]:
                yield f"{name} has shape {entry['shape']}, expected {wanted[name]}"
            elif entry["dtype"] != dtype:
                yield f"{name} is {entry['dtype']}, config.json says {config['torch_dtype']}"
            elif end - begin != math.prod(entry["shape"]) * BYTES[entry["dtype"]]:
                yield f"{name} has {end - begin} bytes"
            else:
                file.seek(data + begin)
                if not all(map(math.isfinite, values(file.read(end - begin), entry["dtype"]))):
                    yield f"{name} has a number that is not finite"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if not (folder / name).is_file():
            yield f"{name} is missing"
    if not config["eos_token_id"] < config["tokenizer_vocab_size"] <= config["vocab_size"]:
        yield "eos_token_id, tokenizer_vocab_size and vocab_size contradict each other"


class Reference:
    """The decoder of an export, read from its documentation: float64, token by token.

    Shapes: N rows, T tokens, d width, H heads, S address, K and V the entity's blocks, R rank.
    """

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: tensor.double() for name, tensor in tensors(folder / "model.safetensors").items()}

    def losses(self, ids, targets, starts):
        """Nats of every token [N,T], 0 where there is nothing to predict."""
        table = self.weights["embedding.weight"]
        x = table[ids]
        for n in range(self.config["num_hidden_layers"]):
            x = x + self.mixer(self.norm(x, f"blocks.{n}.mixer_norm.weight"), f"blocks.{n}.mixer.", starts)
            x = x + self.mlp(self.norm(x, f"blocks.{n}.mlp_norm.weight"), f"blocks.{n}.mlp.")
        head = table if self.config["tie_word_embeddings"] else self.weights["head.weight"]
        # One row at a time: the logits of all would be large.
        rows = zip(self.norm(x, "norm.weight"), targets)
        return torch.stack([self.row_losses(row @ head.T, wanted) for row, wanted in rows])

    @staticmethod
    def row_losses(logits, targets):
        """Nats of the tokens [T] of a row with `logits [T,vocab]`."""
        counted = targets != IGNORE
        chosen = logits.gather(-1, targets.where(counted, 0).unsqueeze(-1)).squeeze(-1)
        return (logits.logsumexp(-1) - chosen).where(counted, 0.0)

    def norm(self, x, name):
        """RMSNorm over the last dimension."""
        return x / (x.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"]).sqrt() * self.weights[name]

    def mlp(self, x, prefix):
        gate, up = (x @ self.weights[prefix + "up.weight"].T).chunk(2, -1)
        return (silu(gate) * up) @ self.weights[prefix + "down.weight"].T

    def mixer(self, x, prefix, starts):
        """The memory between its projections [N,T,d]."""
        c = self.config
        h, s, k, v = c["num_heads"], c["address_size"], c["key_size"], c["value_size"]
        w = lambda name: self.weights[prefix + name]
        channels = x @ w("in_proj.weight").T
        if c["short_conv_width"]:
            channels = self.convolve(channels, w("short_conv.weight"), starts)
        query, source, key, value = channels.unflatten(-1, (h, -1)).split([s, s, k, v], -1)
        decay, strengths = self.controls(x, prefix)
        state = x.new_zeros(x.shape[0], h, s, k + v)
        answers = []
        for t in range(x.shape[1]):
            beta_key, beta_value, rho, recall = (strength[:, t].unsqueeze(-1) for strength in strengths)
            address = unit(source[:, t], 1)
            question = unit(query[:, t], 1) if c["query_norm"] else query[:, t]
            z = per_head(w("transport.a_key"), unit(key[:, t], k))
            z = z * per_head(w("transport.a_value"), unit(value[:, t], v))
            proposal = per_head(w("transport.c"), z) / c["transport_rank"] ** 0.5
            proposal = proposal / (1 + dot(proposal, proposal)).sqrt()
            write = address + rho * (proposal - dot(address, proposal) * address)

            alive = (~starts[:, t]).double()[:, None] * decay[:, t]
            state = state * alive[..., None, None]
            entity = torch.cat([key[:, t], value[:, t]], -1)
            residual = entity - read(state, address)
            omega = torch.cat([beta_key.expand(-1, -1, k), beta_value.expand(-1, -1, v)], -1)
            state = state + write.unsqueeze(-1) * (omega * residual).unsqueeze(-2)

            length = dot(write, write).sqrt()
            towards = torch.where(length > 0, write / length, 0.0)
            question = question + recall * (1 - dot(question, towards)) * towards
            answers.append(read(state, question))
        y = self.norm(torch.stack(answers, 1), prefix + "out_norm.weight").flatten(2)
        return (y * silu(x @ w("gate_proj.weight").T)) @ w("out_proj.weight").T

    def controls(self, x, prefix):
        """The decay [N,T,H], and beta_key, beta_value, rho, lambda of the same shape."""
        c = self.config
        logits = (x @ self.weights[prefix + "controls.weight"].T).unflatten(-1, (5, c["num_heads"]))
        step = torch.nn.functional.softplus(logits[..., 0, :] + self.weights[prefix + "dt_bias"])
        decay = (-(self.weights[prefix + "a_log"].exp() * step).clamp(max=1e5)).exp()
        beta_key, beta_value, rho, recall = (
            logits[..., 1:, :] + self.weights[prefix + "controls.bias"]
        ).sigmoid().unbind(-2)
        pinned = lambda learned, pin: learned if pin is None else torch.full_like(learned, pin)
        beta_value = beta_key if c["tie_beta"] else beta_value
        return decay, (beta_key, beta_value, pinned(rho, c["rho"]), pinned(recall, c["lambda"]))

    @staticmethod
    def convolve(x, weight, starts):
        """A causal convolution [N,T,C] that sees no other document, then SiLU."""
        document = starts.cumsum(1)
        width = weight.shape[1]
        total = x * weight[:, -1]
        for back in range(1, min(width, x.shape[1])):
            same = (document[:, back:] == document[:, :-back]).double().unsqueeze(-1)
            total[:, back:] += x[:, :-back] * same * weight[:, width - 1 - back]
        return silu(total)


def silu(x):
    return x * x.sigmoid()


def dot(x, y):
    return (x * y).sum(-1, keepdim=True)


def unit(x, size):
    """Rows whose squares have the sum `size`, nearly."""
    return x / (dot(x, x) / size + 1e-6).sqrt()


def per_head(weight, x):
    """`weight [H,A,B]` of each head times its row of `x [N,H,B]`."""
    return torch.einsum("hab,nhb->nha", weight, x)


def read(state, address):
    """What the state [N,H,S,D] holds at `address [N,H,S]`."""
    return torch.einsum("nhsd,nhs->nhd", state, address)


def tensors(path):
    """Every tensor of a safetensors file."""
    kinds = {"F32": torch.float32, "BF16": torch.bfloat16, "U32": torch.uint32, "U8": torch.uint8}
    with open(path, "rb") as file:
        header, data = header_of(file)
        content = bytearray(file.read())
    of = lambda entry: torch.frombuffer(
        content, dtype=kinds[entry["dtype"]], count=math.prod(entry["shape"]), offset=entry["data_offsets"][0]
    )
    return {name: of(entry).reshape(entry["shape"]) for name, entry in header.items()}


def compare_losses(folder, path, tolerance):
    """Whether the losses that the program wrote are this script's; says by how much they differ."""
    said = tensors(path)
    ids, targets = said["ids"].long(), said["targets"].long()
    model = Reference(folder)
    parts = zip(ids.split(64), targets.split(64), said["starts"].bool().split(64))
    losses = torch.cat([model.losses(*part) for part in parts])
    counted = targets != IGNORE
    difference = (losses - said["losses"].double())[counted].abs()
    print(
        f"{counted.sum()} losses of {ids.shape[0]} rows of {ids.shape[1]} tokens: mean {losses[counted].mean():.6f}, "
        f"said {said['losses'].double()[counted].mean():.6f}, differences at most {difference.max():.2e}, "
        f"mean {difference.mean():.2e}"
    )
    return bool(difference.max() <= tolerance)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the export")
    parser.add_argument("--losses", type=Path, help="what `atpm-train eval --token-losses` wrote")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest difference, in nats")
    args = parser.parse_args()
    found = list(problems(args.folder))
    if args.losses and not found:
        global torch
        warnings.filterwarnings("ignore", message=".*NumPy")
        import torch

        if not compare_losses(args.folder, args.losses, args.tolerance):
            found.append(f"a loss differs by more than {args.tolerance}")
    for problem in found:
        print(problem)
    print("as documented" if not found else f"{len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
