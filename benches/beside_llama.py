#!/usr/bin/env python3
"""Measures `ml bench` and llama.cpp's llama-bench on random weights of one shape, turn by turn, and
prints the ratios.

  pip install gguf numpy
  cargo build --release --bin ml
  python benches/beside_llama.py qwen3-0.6b --bits 4 --llama BUILD/bin --files FOLDER

BUILD/bin holds llama-bench: `cmake -B BUILD -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF`, then
`cmake --build BUILD --target llama-bench`. FOLDER keeps the GGUF files; they are made where they are
missing. `--llama-args '-rtr 1'` gives llama-bench more options, as that of ik_llama.cpp has them.

`--kind Q4_K_M` lets both read one file, and prints the most memory that each had.

`--cpu-activations int8` measures `ml bench` with and without it. 4 bits are Q4_0 there (the output Q6_K), 8 are Q8_0, 16 are bf16.

pp  tokens/s of a prompt; tg  tokens/s after it; RSS  MiB of the process, files among them that are mapped. Both programs warm up before each turn.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from gguf_shapes import FORMATS, SHAPES


def run(command):
    """What a command prints, and the most memory that it had."""
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        printed = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(command[:3])} …: {errors.read().strip()[-500:]}")
    return json.loads(printed), used.ru_maxrss / 1024


def called(options):
    """The name of the form of most weights."""
    return options.kind or FORMATS[options.bits].name


def gguf_file(options):
    """The file to measure, made where it is missing."""
    write, layers = SHAPES[options.shape]
    layers = options.layers or layers
    path = os.path.join(options.files, f"{options.shape}-{layers}-{called(options)}.gguf")
    if not os.path.exists(path):
        os.makedirs(options.files, exist_ok=True)
        write(path + ".part", options.kind or options.bits, layers)
        os.rename(path + ".part", path)
    return path


def ours(options, path, *more):
    """One turn of `ml bench`."""
    command = [options.ml, "bench", "--json", "--quiet"]
    command += ["--prompt", str(options.prompt), "--new", str(options.new), "--repeat", "1"]
    command += ["--threads", str(options.threads)] if options.threads else []
    if options.kind:
        command += ["--model", path]
    else:
        command += ["--shape", options.shape, "--bits", str(options.bits)]
        command += ["--layers", str(options.layers)] if options.layers else []
    told, memory = run([*command, *more])
    return {result["test"][:2]: result["tokens_per_second"] for result in told["results"]} | {"RSS": memory}


def theirs(options, path):
    """One turn of llama-bench."""
    threads = options.threads or len(os.sched_getaffinity(0))
    command = [os.path.join(options.llama, "llama-bench"), "-m", path, "-t", str(threads), "-r", "1", "-o", "json",
               "-p", str(options.prompt), "-n", str(options.new), *options.llama_args.split()]
    results, memory = run(command)
    return {"pp" if result["n_prompt"] else "tg": result["avg_ts"] for result in results} | {"RSS": memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--bits", type=int, choices=[bits for bits in FORMATS if isinstance(bits, int)], default=4)
    parser.add_argument("--kind", choices=[kind for kind in FORMATS if isinstance(kind, str)])
    parser.add_argument("--llama", required=True, help="folder of llama-bench")
    parser.add_argument("--files", required=True, help="folder for the GGUF files")
    parser.add_argument("--ml", default="target/release/ml")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--layers", type=int, help="as many of the shape's layers")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--cpu-activations", choices=["int8"])
    parser.add_argument("--llama-args", default="")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    path = gguf_file(options)
    ways = {"ml": lambda: ours(options, path), "llama.cpp": lambda: theirs(options, path)}
    if options.cpu_activations:
        ways["ml, int8"] = lambda: ours(options, path, "--cpu-activations", options.cpu_activations)
    turns = [{name: measure() for name, measure in ways.items()} for _ in range(options.repeat)]
    told = options.kind or f"{options.bits} bits against {called(options)}"
    print(f"{options.shape}, {told}, {options.repeat} turns each")
    others = [name for name in ways if name != "llama.cpp"]
    print("| test | " + " | ".join([*ways, *(f"{name} / llama.cpp" for name in others)]) + " |")
    print("|---" * (1 + len(ways) + len(others)) + "|")
    tests = [("pp", options.prompt), ("tg", options.new)]
    for test, size in [*tests, ("RSS", "")] if options.kind else tests:
        values = {name: [turn[name][test] for turn in turns] for name in ways}
        middle = {name: statistics.median(of) for name, of in values.items()}
        cells = [f"{middle[name]:.4g} ({min(of):.4g}–{max(of):.4g})" for name, of in values.items()]
        cells += [f"{middle[name] / middle['llama.cpp']:.3f}" for name in others]
        print(f"| {test}{size} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
