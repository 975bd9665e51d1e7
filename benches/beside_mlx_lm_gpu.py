#!/usr/bin/env python3
"""Measures `ml` and mlx-lm on a GPU with random weights in the sizes of released models, turn by turn.

  pip install mlx==0.32.2 mlx-cuda-13==0.32.2 mlx-lm==0.32.2
  cargo build --release --bin ml
  python3 benches/beside_mlx_lm_gpu.py qwen3-4b qwen3.5-4b --bits 16 4 --prompt 512 --new 128 --repeat 3

`ml bench --print-config` gives both sides the same config.json. Each turn is a process of its own: it makes the
weights, generates once to warm up, then measures one prompt and one answer, greedy, the end of a sequence ignored.

prefill  prompt ids / time until the first id is known, tokens a second
decode   (new - 1) / time from the first to the last id, tokens a second
peak     MLX's own peak of active memory, GB

A cell is the median, with the range; the ratio is the median of the turns' ratios. A kind of model that mlx-lm does
not know, or that fails there, has no cell.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

# What `ml report` measures mlx-lm with: as text, since a script of this name would hide the package.
REFERENCE = (pathlib.Path(__file__).parent.parent / "crates/cli/src/commands/report/mlx_lm.py").read_text()


def run(command):
    """The JSON object that a command prints last; None where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        print(f"{' '.join(command[:3])[:80]} …: {done.stderr.strip()[-400:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def ours(args, shape):
    found = run([args.ml, "bench", *shape, "-p", str(args.prompt), "-n", str(args.new), "-d", str(args.prompt),
                 "-r", "1", "--json", "--quiet"])
    if found is None:
        return None
    rates = [test["tokens_per_second"] for test in found["results"]]
    return dict(prefill=rates[0], decode=rates[1], peak=found["peak_memory_bytes"] / 1e9)


def theirs(args, shape):
    config = run([args.ml, "bench", *shape, "--print-config"])
    found = config and run([sys.executable, "-c", REFERENCE, json.dumps(config), str(args.prompt), str(args.new)])
    return found and dict(prefill=found["prompt"], decode=found["answer"], peak=found["peak"])


def cell(values):
    values = [value for value in values if value is not None]
    if not values:
        return ""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.4g}" if low == high else f"{middle:.4g} ({low:.4g}–{high:.4g})"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("shapes", nargs="+", help="names of `ml bench --shape`")
    ap.add_argument("--bits", nargs="+", default=["16"], choices=["4", "8", "16"])
    ap.add_argument("--layers", help="layers of each, in place of all")
    ap.add_argument("--prompt", type=int, default=512)
    ap.add_argument("--new", type=int, default=128)
    ap.add_argument("--repeat", type=int, default=2)
    ap.add_argument("--ml", default="target/release/ml")
    args = ap.parse_args()
    print("| shape | bits | figure | ml | mlx-lm | ml / mlx-lm |\n|---|---|---|---|---|---|")
    for name in args.shapes:
        for bits in args.bits:
            shape = ["--shape", name, "--bits", bits] + (["--layers", args.layers] if args.layers else [])
            turns = [(ours(args, shape), theirs(args, shape)) for _ in range(args.repeat)]
            for figure in ("prefill", "decode", "peak"):
                pairs = [[side and side[figure] for side in turn] for turn in turns]
                ratios = [a / b for a, b in pairs if a and b]
                ratio = f"{statistics.median(ratios):.3g}" if ratios else ""
                left, right = (cell([pair[side] for pair in pairs]) for side in (0, 1))
                print(f"| {name} | {bits} | {figure} | {left} | {right} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
