#!/usr/bin/env python3
"""Measures `ml serve` and llama.cpp's llama-server under one load on random weights of one shape, turn by turn, and
prints the ratio of tokens a second in all.

  pip install gguf numpy mlx==0.32.2 mlx-cpu==0.32.2 tokenizers
  cargo build --release --bin ml
  python benches/make_shape.py qwen3-0.6b SHAPE --quant 4bit
  python benches/beside_llama_server.py qwen3-0.6b SHAPE --llama BUILD/bin --files FOLDER

BUILD/bin holds llama-server, with as many slots as there are clients. FOLDER keeps the GGUF files, as for
`beside_llama.py`. Each turn starts the server anew; `ml bench --url` warms it up, then sends four requests for each client.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

from beside_llama import gguf_file, run
from gguf_shapes import FORMATS, SHAPES


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=1) as reply:
            return reply.status == 200
    except OSError:
        return False


def turn(options, command):
    """Tokens a second of answers while `command` serves."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "--port", str(port)], **quiet) as server:
        try:
            until = time.monotonic() + 120
            while not answers(url + "/health"):
                if server.poll() is not None or time.monotonic() > until:
                    sys.exit(f"{command[0]} does not serve")
                time.sleep(0.1)
            load = [options.ml, "bench", "--url", url, "--prompt-ids", "--clients", str(options.clients), "--json", "--quiet",
                    "-p", str(options.prompt), "-n", str(options.new)]
            result = json.loads(run(load))["results"][0]
            if result["errors"] or result["other_lengths"]:
                sys.exit(f"{command[0]}: {result}")
            return result["output_tokens_per_second"]
        finally:
            server.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", help="the shape as make_shape.py writes it, in as many bits")
    parser.add_argument("--bits", type=int, choices=[bits for bits in FORMATS if isinstance(bits, int)], default=4)
    parser.add_argument("--llama", required=True, help="folder of llama-server")
    parser.add_argument("--files", required=True, help="folder for the GGUF files")
    parser.add_argument("--ml", default="target/release/ml")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--cpu-activations", choices=["int8"])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    options.layers = None
    path = gguf_file(options)
    context = options.clients * 2 * (options.prompt + options.new)
    threads = len(os.sched_getaffinity(0))
    ours = [options.ml, "serve", "--model", options.folder]
    ways = {"ml": ours, "llama.cpp": [os.path.join(options.llama, "llama-server"), "-m", path, "-t", str(threads),
                                      "-np", str(options.clients), "-c", str(context)]}
    if options.cpu_activations:
        ways["ml, int8"] = [*ours, "--cpu-activations", options.cpu_activations]
    turns = [{name: turn(options, command) for name, command in ways.items()} for _ in range(options.repeat)]
    print(f"{options.shape}, {options.bits} bits against {FORMATS[options.bits].name}, {options.clients} clients, "
          f"{options.prompt} ids in, {options.new} out, {options.repeat} turns each")
    values = {name: [turn[name] for turn in turns] for name in ways}
    middle = {name: statistics.median(of) for name, of in values.items()}
    for name, of in values.items():
        print(f"{name}: {middle[name]:.4g} ({min(of):.4g}–{max(of):.4g}) tokens/s, "
              f"{middle[name] / middle['llama.cpp']:.3f} of llama.cpp's")


if __name__ == "__main__":
    main()
