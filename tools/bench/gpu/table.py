#!/usr/bin/env python3
"""The table of all workloads: the best candidate of the search beside PyTorch's best variant and the time to read the inputs.

usage: table.py --bench FILE.json --torch FILE.json --floor FILE.json

The files are what mugraph_bench --json, torch_variants.py --out and read_floor print. Prints Markdown."""

import argparse
import json
import re


def best(rows):
    return min(rows, key=lambda row: row["cold_us"])


def spilled(row):
    """Bytes that a thread has on the stack, over all kernels."""
    return sum(int(bytes) for bytes in re.findall(r"(\d+) bytes on the stack", row["resources"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bench", "torch", "floor"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    bench, torch, floor = (json.load(open(getattr(options, name))) for name in ("bench", "torch", "floor"))
    print("| graph | right | cold us | hot us | first-ranked | error | eager's | PyTorch cold us | variant | ratio | read floor us | schedule |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for graph, entry in bench.items():
        rows = entry["candidates"]
        right = [row for row in rows if row["right"]]
        counted = f"{len(right)} of {len(rows)}"
        if not right:
            print(f"| {graph} | {counted} |" + " |" * 10)
            continue
        ours, theirs = best(right), best(torch[graph]) if torch.get(graph) else None
        # What the background job takes: the best-ranked program that has nothing on the stack.
        first = min((row for row in right if spilled(row) == 0), key=lambda row: row["modelled_us"], default=ours)
        eager = next((row for row in torch.get(graph, []) if row["variant"] == "eager"), None)
        cells = [graph, counted, f"{ours['cold_us']:.2f}", f"{ours['hot_us']:.2f}", f"{first['cold_us']:.2f}",
                 f"{max(row['error'] for row in rows):.1e}", f"{eager['error']:.1e}" if eager else ""]
        cells += [f"{theirs['cold_us']:.2f}", theirs["variant"], f"{theirs['cold_us'] / ours['cold_us']:.2f}"] if theirs else [""] * 3
        cells += [f"{floor[str(entry['input_bytes'])]:.1f}" if str(entry["input_bytes"]) in floor else "",
                  "`" + ours["schedule"] + "`"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
