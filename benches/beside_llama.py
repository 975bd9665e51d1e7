#!/usr/bin/env python3
"""Measures `ml bench` and llama.cpp's llama-bench on random weights of one shape, turn by turn, and
prints the ratios.

  pip install gguf numpy
  cargo build --release --bin ml
  python benches/beside_llama.py qwen3-0.6b --bits 4 --llama BUILD/bin --files FOLDER

BUILD/bin holds llama-bench: `cmake -B BUILD -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF`, then
`cmake --build BUILD --target llama-bench`. FOLDER keeps the GGUF files; they are made where they are
missing. 4 bits are Q4_0 there (the output Q6_K), 8 are Q8_0, 16 are bf16.

pp  tokens/s of a prompt; tg  tokens/s after it. Both programs warm up before each turn.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from gguf_shapes import FORMATS, SHAPES


def run(command):
    """What a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])} …: {done.stderr.strip()[-500:]}")
    return done.stdout


def gguf_file(options):
    """The file to measure, made where it is missing."""
    write, layers = SHAPES[options.shape]
    layers = options.layers or layers
    path = os.path.join(options.files, f"{options.shape}-{layers}-{FORMATS[options.bits].name}.gguf")
    if not os.path.exists(path):
        os.makedirs(options.files, exist_ok=True)
        write(path + ".part", options.bits, layers)
        os.rename(path + ".part", path)
    return path


def ours(options):
    """One turn of `ml bench`."""
    command = [options.ml, "bench", "--shape", options.shape, "--bits", str(options.bits), "--json", "--quiet",
               "--prompt", str(options.prompt), "--new", str(options.new), "--repeat", "1"]
    command += ["--threads", str(options.threads)] if options.threads else []
    command += ["--layers", str(options.layers)] if options.layers else []
    results = json.loads(run(command))["results"]
    return {result["test"][:2]: result["tokens_per_second"] for result in results}


def theirs(options, path):
    """One turn of llama-bench."""
    threads = options.threads or len(os.sched_getaffinity(0))
    command = [os.path.join(options.llama, "llama-bench"), "-m", path, "-t", str(threads), "-r", "1", "-o", "json",
               "-p", str(options.prompt), "-n", str(options.new)]
    results = json.loads(run(command))
    return {"pp" if result["n_prompt"] else "tg": result["avg_ts"] for result in results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--bits", type=int, choices=FORMATS, default=4)
    parser.add_argument("--llama", required=True, help="folder of llama-bench")
    parser.add_argument("--files", required=True, help="folder for the GGUF files")
    parser.add_argument("--ml", default="target/release/ml")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--layers", type=int, help="as many of the shape's layers")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    path = gguf_file(options)
    turns = [(ours(options), theirs(options, path)) for _ in range(options.repeat)]
    print(f"{options.shape}, {options.bits} bits against {FORMATS[options.bits].name}, {options.repeat} turns each")
    print("| test | ml | llama.cpp | ml / llama.cpp |\n|---|---|---|---|")
    for test, size in ("pp", options.prompt), ("tg", options.new):
        a, b = [mine[test] for mine, _ in turns], [other[test] for _, other in turns]
        spread = lambda values: f"{statistics.median(values):.4g} ({min(values):.4g}–{max(values):.4g})"
        print(f"| {test}{size} | {spread(a)} | {spread(b)} | {statistics.median(a) / statistics.median(b):.3f} |")


if __name__ == "__main__":
    main()
