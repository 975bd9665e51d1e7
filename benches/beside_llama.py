#!/usr/bin/env python3
"""Measures `ml bench` and llama.cpp's llama-bench on random weights of one shape, turn by turn, and
prints the ratios.

  pip install gguf numpy
  cargo build --release --bin ml
  python benches/beside_llama.py qwen3-0.6b --bits 4 --llama BUILD/bin --files FOLDER

BUILD/bin holds llama-bench and llama-quantize: `cmake -B BUILD -DCMAKE_BUILD_TYPE=Release
-DLLAMA_CURL=OFF`, then `cmake --build BUILD --target llama-bench llama-quantize`. FOLDER keeps the
GGUF files; they are made where they are missing. 4 bits are Q4_0 there, 8 are Q8_0, 16 are bf16.

pp  tokens/s of a prompt; tg  tokens/s after it. Both programs warm up before each turn.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

# hidden, layers, intermediate, heads, key and value heads; heads of 128 and 151936 tokens
SHAPES = {"qwen3-0.6b": (1024, 28, 3072, 16, 8), "qwen3-4b": (2560, 36, 9728, 32, 8)}
HEAD_DIM, VOCAB = 128, 151936
FORMATS = {4: "Q4_0", 8: "Q8_0", 16: "BF16"}


def write(path, shape):
    """A GGUF file with random bf16 weights."""
    import gguf
    import numpy as np

    hidden, layers, intermediate, heads, kv_heads = shape
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(40960)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(intermediate)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    random = np.random.default_rng(0)

    def matrix(name, rows, columns):
        bits = (random.standard_normal((rows, columns), dtype=np.float32) * 0.02).view(np.uint32)
        values = ((bits + 0x8000) >> 16).astype(np.uint16)
        writer.add_tensor(f"{name}.weight", values.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)

    def norm(name, size):
        writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))

    matrix("token_embd", VOCAB, hidden)
    norm("output_norm", hidden)
    for layer in range(layers):
        block = f"blk.{layer}."
        norm(block + "attn_norm", hidden)
        norm(block + "ffn_norm", hidden)
        norm(block + "attn_q_norm", HEAD_DIM)
        norm(block + "attn_k_norm", HEAD_DIM)
        matrix(block + "attn_q", heads * HEAD_DIM, hidden)
        matrix(block + "attn_k", kv_heads * HEAD_DIM, hidden)
        matrix(block + "attn_v", kv_heads * HEAD_DIM, hidden)
        matrix(block + "attn_output", hidden, heads * HEAD_DIM)
        matrix(block + "ffn_gate", intermediate, hidden)
        matrix(block + "ffn_up", intermediate, hidden)
        matrix(block + "ffn_down", hidden, intermediate)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(command):
    """What a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])} …: {done.stderr.strip()[-500:]}")
    return done.stdout


def gguf_file(options):
    """The file to measure, made where it is missing."""
    path = lambda kind: os.path.join(options.files, f"{options.shape}-{kind}.gguf")
    wanted, plain = path(FORMATS[options.bits]), path("BF16")
    os.makedirs(options.files, exist_ok=True)
    if not os.path.exists(plain):
        write(plain, SHAPES[options.shape])
    if not os.path.exists(wanted):
        run([os.path.join(options.llama, "llama-quantize"), plain, wanted, FORMATS[options.bits]])
    return wanted


def ours(options):
    """One turn of `ml bench`."""
    command = [options.ml, "bench", "--shape", options.shape, "--bits", str(options.bits), "--json", "--quiet",
               "--prompt", str(options.prompt), "--new", str(options.new), "--repeat", "1"]
    results = json.loads(run(command + (["--threads", str(options.threads)] if options.threads else [])))["results"]
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
    parser.add_argument("--llama", required=True, help="folder of llama-bench and llama-quantize")
    parser.add_argument("--files", required=True, help="folder for the GGUF files")
    parser.add_argument("--ml", default="target/release/ml")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    path = gguf_file(options)
    turns = [(ours(options), theirs(options, path)) for _ in range(options.repeat)]
    print(f"{options.shape}, {options.bits} bits against {FORMATS[options.bits]}, {options.repeat} turns each")
    print("| test | ml | llama.cpp | ml / llama.cpp |\n|---|---|---|---|")
    for test, size in ("pp", options.prompt), ("tg", options.new):
        a, b = [mine[test] for mine, _ in turns], [other[test] for _, other in turns]
        spread = lambda values: f"{statistics.median(values):.4g} ({min(values):.4g}–{max(values):.4g})"
        print(f"| {test}{size} | {spread(a)} | {spread(b)} | {statistics.median(a) / statistics.median(b):.3f} |")


if __name__ == "__main__":
    main()
