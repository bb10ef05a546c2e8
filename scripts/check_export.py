#!/usr/bin/env python3
"""Checks an exported folder without this project's code: standard library only.

    python3 scripts/check_export.py export/tiny

Reads config.json and the header of model.safetensors, and compares names, shapes and dtypes with what
docs/checkpoint-format.md says they are. Reads every number and refuses what is not finite.
Exit code 0 if all is as documented, 1 otherwise.
"""

import json
import math
import struct
import sys
from array import array
from pathlib import Path

BYTES = {"F32": 4, "BF16": 2}
DTYPES = {"float32": "F32", "bfloat16": "BF16"}


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


def problems(folder):
    """Everything that is not as documented, one sentence each."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "atpm":
        yield f"model_type is {config['model_type']}"
        return
    dtype = DTYPES.get(config["torch_dtype"])
    with open(folder / "model.safetensors", "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
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
                file.seek(8 + length + begin)
                if not all(map(math.isfinite, values(file.read(end - begin), entry["dtype"]))):
                    yield f"{name} has a number that is not finite"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if not (folder / name).is_file():
            yield f"{name} is missing"
    if not config["eos_token_id"] < config["tokenizer_vocab_size"] <= config["vocab_size"]:
        yield "eos_token_id, tokenizer_vocab_size and vocab_size contradict each other"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(problems(Path(sys.argv[1])))
    for problem in found:
        print(problem)
    print("as documented" if not found else f"{len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
