#!/usr/bin/env python3
"""Measures `ml` and mlx-lm on one checkpoint, turn by turn, and prints the ratios.

  pip install mlx==0.32.2 mlx-cpu==0.32.2 mlx-lm==0.32.2      # mlx-cuda-13 on a GPU
  cargo build --release --bin ml
  python benches/make_shape.py qwen3-0.6b SHAPE               # or any checkpoint of your own
  python benches/side_by_side.py SHAPE --prompt 64 --new 32

Each turn is a process of its own: load, one generation, greedy, end-of-sequence ignored, the same
prompt ids. mlx-lm gets a warm-up generation within its process first (its compiled functions are
built at the first use); `ml` gets none.

prefill  prompt ids / time until the first id is known
decode   (new - 1) / time from the first to the last id
peak     MLX's own peak of active memory during the generation
start    process start to the first piece of text, where --start is given
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

REFERENCE = r"""
import json, sys, time
import mlx.core as mx
from pathlib import Path
from mlx_lm.utils import load_model
from mlx_lm.generate import generate_step
folder, ids, new = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
began = time.perf_counter()
model, _ = load_model(Path(folder))
load = time.perf_counter() - began
prompt = mx.array(ids)
for _ in generate_step(prompt[:8], model, max_tokens=2):
    pass
mx.synchronize(); mx.clear_cache(); mx.reset_peak_memory()
began = time.perf_counter()
first = None
tokens = []
for token, _ in generate_step(prompt, model, max_tokens=new):
    tokens.append(int(token))
    first = first or time.perf_counter()
last = time.perf_counter()
print(json.dumps(dict(load=load, prefill=len(ids) / (first - began), decode=(new - 1) / (last - first),
                      peak=mx.get_peak_memory(), tokens=tokens)))
"""


def run(command):
    """The JSON object that a command prints last."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])} …: {done.stderr.strip()}")
    return json.loads(done.stdout)


def ours(ml, folder, prompt, new):
    """One generation of `ml`."""
    found = run([ml, "generate", "--model", folder, "--raw", "--json", "--temperature", "0", "--ignore-eos",
                 "--max-tokens", str(new), prompt])
    metrics = found["metrics"]
    return dict(ids=found["prompt_token_ids"], tokens=found["token_ids"], peak=metrics["peak_memory_bytes"],
                prefill=metrics["prefill_tokens_per_second"], decode=metrics["decode_tokens_per_second"])


def first_piece(command):
    """Seconds from the start of a process to its first byte of output."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    # mlx-lm prints a rule of equals signs and a line end before the text.
    while (byte := process.stdout.read(1)) and byte in b"=\n":
        pass
    took = time.perf_counter() - began
    process.stdout.read()
    process.wait()
    return took


def spread(values):
    """Median and range."""
    return f"{statistics.median(values):.4g} ({min(values):.4g}–{max(values):.4g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--ml", default="target/release/ml")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has mlx-lm")
    parser.add_argument("--prompt", type=int, default=64, help="characters of the prompt")
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--start", action="store_true", help="also measure process start to first text, on a chat prompt")
    options = parser.parse_args()
    prompt = ("the quick brown fox jumps over the lazy dog " * (options.prompt // 44 + 1))[: options.prompt]
    mine, theirs = [], []
    for _ in range(options.repeat):
        mine.append(ours(options.ml, options.folder, prompt, options.new))
        ids = json.dumps(mine[-1]["ids"])
        theirs.append(run([options.python, "-c", REFERENCE, options.folder, ids, str(options.new)]))
    print(f"{os.path.basename(os.path.normpath(options.folder))}: {len(mine[0]['ids'])} prompt ids, {options.new} new, "
          f"{options.repeat} turns each; same tokens: {mine[0]['tokens'] == theirs[0]['tokens']}")
    print("| figure | ml | mlx-lm | ml / mlx-lm |\n|---|---|---|---|")
    for key in ["prefill", "decode", "peak"]:
        a, b = [turn[key] for turn in mine], [turn[key] for turn in theirs]
        print(f"| {key} | {spread(a)} | {spread(b)} | {statistics.median(a) / statistics.median(b):.3f} |")
    if options.start:
        question = "Tell me a story about a fox"
        a, b = [], []
        for _ in range(options.repeat):
            a.append(first_piece([options.ml, "generate", "--model", options.folder, "--temperature", "0", question]))
            b.append(first_piece([options.python, "-m", "mlx_lm", "generate", "--model", options.folder,
                                  "--prompt", question, "--max-tokens", "8"]))
        print(f"| start | {spread(a)} | {spread(b)} | {statistics.median(a) / statistics.median(b):.3f} |")


if __name__ == "__main__":
    main()
