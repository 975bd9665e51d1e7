"""Trains the demo model from scratch on freshly generated conversations and writes it in Hugging Face layout.

    python train.py --out model --minutes 8              # one large GPU
    python train.py --out model --tokenizer-only         # the tokenizer alone, on any machine
"""
import argparse
import json
import math
import os
import pathlib
import time

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

from corpus import Corpus

HERE = pathlib.Path(__file__).parent
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
# Words with their leading space, single digits, punctuation, line breaks: Qwen's splitting rule
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
VOCAB = 4096
CONFIG = dict(vocab_size=VOCAB, hidden_size=256, intermediate_size=768, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2,
              head_dim=64, max_position_embeddings=2048, rms_norm_eps=1e-6, tie_word_embeddings=True, attention_bias=False, hidden_act="silu",
              eos_token_id=2, pad_token_id=0, bos_token_id=None)
IGNORE = -100


def build_tokenizer(path, documents=30000):
    """Byte-level BPE, trained on the corpus itself."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=SPECIALS + MARKERS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    corpus = Corpus(seed=1)
    tokenizer.train_from_iterator(("".join(t for t, _ in corpus.document()) for _ in range(documents)), trainer)
    content = json.loads(tokenizer.to_str())
    for token in content["added_tokens"]:  # as in Qwen: markers stay visible when special tokens are skipped
        token["special"] = token["content"] in SPECIALS
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2))


def write_metadata(out):
    """The small JSON files beside the weights, in the layout every loader understands."""
    template = (HERE.parent / "chat_template.jinja").read_text().rstrip("\n")
    added = {str(i): dict(content=t, lstrip=False, normalized=False, rstrip=False, single_word=False, special=t in SPECIALS) for i, t in enumerate(SPECIALS + MARKERS)}
    files = {
        "config.json": dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", dtype="bfloat16", rope_theta=1000000.0, rope_scaling=None, attention_dropout=0.0,
                            initializer_range=0.02, sliding_window=None, use_sliding_window=False, max_window_layers=8, use_cache=True, **CONFIG),
        "generation_config.json": dict(eos_token_id=[2, 0], pad_token_id=0, do_sample=True, temperature=0.6, top_p=0.9, top_k=40),
        "tokenizer_config.json": dict(tokenizer_class="PreTrainedTokenizerFast", added_tokens_decoder=added, eos_token="<|im_end|>", pad_token="<|endoftext|>", bos_token=None, unk_token=None,
                                      additional_special_tokens=["<|im_start|>", "<|im_end|>"], add_prefix_space=False, add_bos_token=False, clean_up_tokenization_spaces=False,
                                      model_max_length=2048, chat_template=template)}
    for name, content in files.items():
        (out / name).write_text(json.dumps(content, indent=2) + "\n")


class Packed(torch.utils.data.IterableDataset):
    """Endless batches of packed documents: (ids, labels, document number of each position)."""

    def __init__(self, tokenizer_file, batch, length, seed):
        self.file, self.batch, self.length, self.seed = str(tokenizer_file), batch, length, seed

    def rows(self, corpus, tokenizer):
        ids, labels, docs = [], [], []
        while True:
            documents = [corpus.document() for _ in range(64)]
            encoded = iter(tokenizer.encode_batch_fast([text for d in documents for text, _ in d], add_special_tokens=False))
            for document in documents:
                new_ids, new_labels = [], []
                for _, target in document:
                    piece = next(encoded).ids
                    new_ids += piece
                    new_labels += piece if target else [IGNORE] * len(piece)
                new_ids, new_labels = new_ids[:self.length], new_labels[:self.length]
                if len(ids) + len(new_ids) > self.length:
                    pad = self.length - len(ids)
                    yield ids + [0] * pad, labels + [IGNORE] * pad, docs + [-1] * pad
                    ids, labels, docs = [], [], []
                number = docs[-1] + 1 if docs else 0
                new_labels[0] = IGNORE  # nothing comes before it
                ids, labels, docs = ids + new_ids, labels + new_labels, docs + [number] * len(new_ids)

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        rows = self.rows(Corpus(seed=self.seed + 1000 * (info.id if info else 0)), Tokenizer.from_file(self.file))
        while True:
            yield tuple(torch.tensor(x, dtype=torch.int32) for x in zip(*(next(rows) for _ in range(self.batch))))


def save(model, out):
    from safetensors.torch import save_file
    state = {k: v.detach().to(torch.bfloat16).contiguous().cpu() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(state, str(out / "model.safetensors"), metadata={"format": "pt"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "model")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="an existing tokenizer.json to copy instead of training one")
    parser.add_argument("--tokenizer-only", action="store_true")
    parser.add_argument("--minutes", type=float, default=8, help="training time; the learning rate follows it")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--seed", type=int, default=10)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()

    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer_file = args.out / "tokenizer.json"
    if args.tokenizer:
        tokenizer_file.write_bytes(args.tokenizer.read_bytes())
    else:
        build_tokenizer(tokenizer_file)
    write_metadata(args.out)
    if args.tokenizer_only:
        return
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the loader's workers are parallel already

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    loader = iter(torch.utils.data.DataLoader(Packed(tokenizer_file, args.batch, args.length, args.seed), batch_size=None, num_workers=args.workers,
                                              prefetch_factor=8 if args.workers else None, pin_memory=device == "cuda"))
    model = Qwen3ForCausalLM(Qwen3Config(**CONFIG, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, attn_implementation="sdpa")).to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters on {device}", flush=True)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)], lr=args.lr, betas=(0.9, 0.95), fused=device == "cuda")
    causal = torch.ones(args.length, args.length, dtype=torch.bool, device=device).tril()

    def loss_of(ids, labels, docs):
        mask = (docs[:, None, :, None] == docs[:, None, None, :]) & causal  # attention stays within a document
        hidden = model.model(input_ids=ids, attention_mask={"full_attention": mask}, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[:, :-1])
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE)

    step_loss = loss_of if args.no_compile else torch.compile(loss_of)
    start, step, tokens, budget, saved = None, 0, 0, args.minutes * 60, 0
    total = torch.zeros((), device=device)
    while True:
        ids, labels, docs = (x.to(device, torch.int64, non_blocking=True) for x in next(loader))
        progress = 0 if start is None else min(1, (time.time() - start) / budget)
        rate = args.lr * min(1, (step + 1) / 300) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(device, torch.bfloat16):
            loss = step_loss(ids, labels, docs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total += loss.detach()
        step, tokens = step + 1, tokens + ids.numel()
        if step == 1:
            loss.item()
            start = time.time()  # compilation is over
        if step % 200 == 0 or progress >= 1:
            seconds = time.time() - start
            print(f"step {step} loss {total.item() / (step % 200 or 200):.4f} tokens {tokens / 1e6:.0f}M lr {rate:.5f} {tokens / max(seconds, 1e-9) / 1e6:.2f}M/s {seconds:.0f}s", flush=True)
            total.zero_()
        if progress >= 1 or progress > saved + 0.25:
            save(model, args.out)
            saved = progress
        if progress >= 1:
            break


if __name__ == "__main__":
    main()
