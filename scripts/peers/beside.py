"""Prints two runs of the same work beside each other, and the ratios of their speeds and of their memory.

    python beside.py OURS PEER

Each is one JSON object with `tokens_per_s`, `step_ms` or `seconds`; the others of `peak_rss_bytes`, `rows`, `params` and `loss` are
printed where both have them. The peer names itself in `peer`. A ratio above 1 means that ours is faster.
"""

import json
import sys

# Key, words, factor, format, and whether more is faster.
SPEEDS = [
    ("tokens_per_s", "tokens/s", 1, "10.1f", True),
    ("step_ms", "ms a step", 1, "10.2f", False),
    ("seconds", "ms forward and backward", 1e3, "10.1f", False),
]
OTHERS = [
    ("peak_rss_bytes", "MB at most", 1e-6, "8.0f"),
    ("rows", "rows", 1, "4"),
    ("params", "parameters", 1, "10"),
    ("loss", "loss", 1, "8.3f"),
]


def main():
    ours, peer = map(json.loads, sys.argv[1:])
    key, words, factor, form, more_is_faster = next(speed for speed in SPEEDS if speed[0] in ours)
    others = [other for other in OTHERS if other[0] in ours and other[0] in peer]
    for name, run in [("atpm-train", ours), (peer["peer"], peer)]:
        shown = [f"{factor * run[key]:{form}} {words}"]
        shown += [f"{by * run[other]:{form}} {words}" for other, words, by, form in others]
        print(f"{name:44}" + " ".join(shown))
    speed = ours[key] / peer[key] if more_is_faster else peer[key] / ours[key]
    print(f"{'times as fast':44}{speed:10.2f}")
    if "peak_rss_bytes" in ours and "peak_rss_bytes" in peer:
        print(f"{'memory':44}{ours['peak_rss_bytes'] / peer['peak_rss_bytes']:10.2f}")


if __name__ == "__main__":
    main()
