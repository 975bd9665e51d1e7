#!/usr/bin/env python3
"""A checkpoint whose answers repeat themselves as much as is asked for, to measure drafts.

  ml bench --shape qwen3-0.6b --print-config > config.json
  python benches/make_chain.py config.json TOKENIZER OUT --share 0.85

Behind each of 64 ids comes another one of them with the probability SHARE at temperature 1, and any of the 64 otherwise. So a draft from
earlier ids is right with about that probability for each of its tokens; with 0 none is right but by chance. Greedy answers go round and
round. The layers are random weights of the shape, whose outputs are made so small that they change nothing: a step takes what it takes.
TOKENIZER is a folder with a tokenizer of at least 164 ids. For `qwen3` and `qwen3_5_text` in bf16; it needs numpy.
"""
import argparse, json, os, shutil, struct

import numpy as np

FIRST, COUNT = 100, 64
NOTHING = 1e-6


def bf16(values):
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def matrix(rng, shape, scale):
    """Random values, which repeat after a million."""
    count = min(1 << 20, int(np.prod(shape)))
    return np.resize(bf16(rng.standard_normal(count).astype(np.float32) * scale), shape)


def layers(config, rng):
    """Names and values of the layers' weights."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head, is_hybrid = config["head_dim"], config["model_type"] == "qwen3_5_text"
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    # Qwen 3.5 adds one to the weights of its norms.
    norm = lambda size: bf16(np.full(size, 0.0 if is_hybrid else 1.0))
    project = lambda rows: matrix(rng, (rows, hidden), 0.02)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        yield name + "input_layernorm.weight", norm(hidden)
        yield name + "post_attention_layernorm.weight", norm(hidden)
        yield name + "mlp.gate_proj.weight", project(inner)
        yield name + "mlp.up_proj.weight", project(inner)
        yield name + "mlp.down_proj.weight", matrix(rng, (hidden, inner), NOTHING)
        if is_hybrid and (layer + 1) % config["full_attention_interval"]:
            name += "linear_attn."
            heads = config["linear_num_value_heads"]
            of_keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
            values = heads * config["linear_value_head_dim"]
            yield name + "in_proj_qkv.weight", project(2 * of_keys + values)
            yield name + "in_proj_z.weight", project(values)
            yield name + "in_proj_a.weight", project(heads)
            yield name + "in_proj_b.weight", project(heads)
            yield name + "conv1d.weight", matrix(rng, (2 * of_keys + values, 1, config["linear_conv_kernel_dim"]), 0.3)
            yield name + "dt_bias", bf16(np.ones(heads))
            yield name + "A_log", bf16(np.zeros(heads))
            yield name + "norm.weight", bf16(np.ones(config["linear_value_head_dim"]))
            yield name + "out_proj.weight", matrix(rng, (hidden, values), NOTHING)
        else:
            name += "self_attn."
            yield name + "q_proj.weight", project(2 * queries if config.get("attn_output_gate") else queries)
            yield name + "k_proj.weight", project(keys)
            yield name + "v_proj.weight", project(keys)
            yield name + "o_proj.weight", matrix(rng, (hidden, queries), NOTHING)
            yield name + "q_norm.weight", norm(head)
            yield name + "k_norm.weight", norm(head)
    yield "model.norm.weight", norm(hidden)


def ends(config, share, rng):
    """The embeddings, and an output layer that knows the next id of each of the 64."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    ids = FIRST + np.arange(COUNT)
    following = FIRST + (np.arange(COUNT) * 5 + 7) % COUNT
    embeddings = np.resize(rng.standard_normal((4096, hidden)).astype(np.float32) / np.sqrt(hidden), (vocab, hidden))
    # Each of the 64 has a direction of its own, and one that all ids share.
    embeddings[ids] = np.eye(COUNT, hidden, dtype=np.float32)
    embeddings[:, COUNT] = 1.0
    # The value of both directions behind the last norm.
    value = np.sqrt(hidden / 2)
    output = np.zeros((vocab, hidden), np.float32)
    output[:, COUNT] = -30.0 / value
    output[ids, COUNT] = 0.0
    if share > 1 / COUNT:
        output[following, np.arange(COUNT)] = np.log(share * (COUNT - 1) / (1 - share)) / value
    yield "model.embed_tokens.weight", bf16(embeddings)
    yield "lm_head.weight", bf16(output)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="config.json of a shape, as `ml bench --print-config` prints it")
    parser.add_argument("tokenizer", help="a folder with tokenizer.json and tokenizer_config.json")
    parser.add_argument("out", help="the folder to write")
    parser.add_argument("--share", type=float, default=0.85, help="from 0 to below 1")
    args = parser.parse_args()
    with open(args.config) as file:
        config = json.load(file)
    if config["model_type"] not in ("qwen3", "qwen3_5_text"):
        parser.error(f"{config['model_type']} is not made here: take qwen3 or qwen3_5_text")
    config.update(tie_word_embeddings=False, eos_token_id=0)
    rng = np.random.default_rng(1)
    tensors = dict(layers(config, rng)) | dict(ends(config, args.share, rng))
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(args.out, exist_ok=True)
    with open(f"{args.out}/config.json", "w") as file:
        json.dump(config, file)
    with open(f"{args.out}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.tobytes())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(f"{args.tokenizer}/{name}", args.out)


if __name__ == "__main__":
    main()
