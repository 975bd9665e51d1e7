"""Embedding models in the sizes of their releases with random weights, and sentence-transformers beside `ml embed`.

  python3 benches/beside_sentence_transformers.py bge-small --ml target/release/ml --files FOLDER [--repeat 5]

Needs sentence-transformers 6.2.0, transformers 5 and torch. Tokenizers and configs come from the small models of the
tests; only sizes differ. Turns alternate, each program computes on `--threads` cores, and both are asked for the same
texts after one turn that does not count. What is told is tokens a second without loading. `--device cuda` measures both
on a GPU, in the types of the releases.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import time
from pathlib import Path

SMALL = Path(__file__).parent.parent / "crates/metal-backend/tests/fixtures/embeddings/models"
BERT = dict(vocab_size=30522, max_position_embeddings=512)
# The small model, the class of transformers, the type of the release, and its sizes.
MODELS = {
    "minilm": ("bert", "BertModel", "float32", dict(BERT, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)),
    "bge-small": ("bert", "BertModel", "float32", dict(BERT, hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536)),
    "bge-base": ("bert", "BertModel", "float32", dict(BERT, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)),
    "bge-m3": ("xlm_roberta", "XLMRobertaModel", "float32", dict(vocab_size=250002, max_position_embeddings=8194, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)),
    "modernbert": ("modernbert", "ModernBertModel", "float32", dict(vocab_size=50368, max_position_embeddings=8192, hidden_size=768, num_hidden_layers=22, num_attention_heads=12, intermediate_size=1152, local_attention=128, layer_types=None)),
    "qwen3-embedding": ("qwen3_embedding", "Qwen3Model", "bfloat16", dict(vocab_size=151669, max_position_embeddings=32768, hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128, intermediate_size=3072, layer_types=None)),
    "embedding-gemma": ("embedding_gemma", "Gemma3TextModel", "bfloat16", dict(vocab_size=262144, max_position_embeddings=2048, hidden_size=768, num_hidden_layers=24, num_attention_heads=3, num_key_value_heads=1, head_dim=256, intermediate_size=1152, sliding_window=512, query_pre_attn_scalar=256, layer_types=None)),
}
WORDS = "the fox runs through snow rivers carry water to sea and clouds back year after nobody asks why".split()


def texts(count, longest, seed=0):
    """Texts of 4 to `longest` words, as passages are: many short ones, some long."""
    draw = random.Random(seed)
    lengths = [4 + int((longest - 4) * draw.random() ** 2) for _ in range(count)]
    return [" ".join(draw.choice(WORDS) for _ in range(length)) for length in lengths]


def make(folder, name):
    import shutil

    import torch
    import transformers
    from transformers import AutoConfig

    small, kind, dtype, sizes = MODELS[name]
    shutil.copytree(SMALL / small, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    for key, value in sizes.items():
        config.pop(key, None) if value is None else config.__setitem__(key, value)
    config["dtype"] = dtype
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    model = getattr(transformers, kind)(AutoConfig.from_pretrained(folder)).to(getattr(torch, dtype))
    model.save_pretrained(folder, max_shard_size="100GB")
    pooling = json.loads((folder / "1_Pooling/config.json").read_text())
    pooling["word_embedding_dimension"] = sizes["hidden_size"]
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    # The projections of the small models have other sizes.
    modules = [m for m in json.loads((folder / "modules.json").read_text()) if "Dense" not in m["path"]]
    (folder / "modules.json").write_text(json.dumps(modules))
    limit = {"max_seq_length": min(sizes["max_position_embeddings"] - 2, 2048), "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(limit))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--ml", default="target/release/ml")
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    folder = args.files / args.model
    if not (folder / "model.safetensors").exists():
        make(folder, args.model)
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(args.threads)
    all_texts = texts(args.texts, args.words)
    lines = folder / "texts.txt"
    lines.write_text("\n".join(all_texts) + "\n")
    reference = SentenceTransformer(str(folder), device=args.device)
    tokens = sum(len(ids) for ids in reference.tokenizer(all_texts)["input_ids"])

    def theirs():
        begun = time.perf_counter()
        reference.encode(all_texts, batch_size=32)
        return tokens / (time.perf_counter() - begun)

    def ours():
        command = [args.ml, "embed", "--model", folder, "--file", lines, "--output", folder / "ours.npy"]
        command += ["--device", "cpu", "--threads", str(args.threads)] if args.device == "cpu" else []
        told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        counted, speed = re.search(r"(\d+) tokens, ([0-9.]+) tok/s", told).groups()
        assert int(counted) == tokens, f"{counted} tokens, not {tokens}"
        return float(speed)

    theirs(), ours()
    turns = [(ours(), theirs()) for _ in range(args.repeat)]
    for index, who in enumerate(["ml", "sentence-transformers"]):
        speeds = [turn[index] for turn in turns]
        print(f"{who}: {statistics.median(speeds):.0f} tokens/s ({min(speeds):.0f} to {max(speeds):.0f})")
    ratios = [ours / theirs for ours, theirs in turns]
    print(f"ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {tokens} tokens in {len(all_texts)} texts")


main()
