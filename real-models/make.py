"""Computes the goldens of real checkpoints: make.py FOLDER, with what fetch.py left there.

Text models are read by transformers from the same file of GGUF, with weights unpacked to float32. Vectors are
sentence-transformers', transcripts transformers'. Needs torch, transformers, gguf, accelerate, sentence-transformers."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, WhisperForConditionalGeneration, WhisperProcessor

import sounds

HERE = Path(__file__).parent
TOKENS = 32
# Greedy tokens are certain as far as the second choice is this much less likely.
MARGIN = 5e-3

PROMPTS = {
    "capital": "The capital of France is",
    "code": "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "list": "Ten animals of the forest:\n1. The fox\n2. The deer\n3.",
    "numbers": "1, 2, 4, 8, 16, 32,",
    "blanks": "  two  blanks\n\n\n\tand a tab \u00a0and  a no-break blank",
    "json": '{"name": "Tom", "age": 41, "friends": [',
    "emoji": "The family 👨‍👩‍👧‍👦 went to the 🏖️ and",
    "german": "Es war einmal ein Fuchs, der durch den verschneiten Wald lief. Eines Tages",
    "french": "Il était une fois un renard qui vivait dans la forêt. Un jour,",
    "spanish": "Érase una vez un zorro que vivía en el bosque. Un día,",
    "portuguese": "Era uma vez uma raposa que vivia na floresta. Um dia,",
    "russian": "Жила-была лиса в лесу. Однажды",
    "greek": "Μια φορά κι έναν καιρό ήταν μια αλεπού.",
    "chinese": "从前，森林里住着一只狐狸。有一天，",
    "japanese": "むかしむかし、森にきつねが住んでいました。ある日、",
    "arabic": "كان يا ما كان، ثعلب يعيش في الغابة.",
    "hindi": "एक समय की बात है, जंगल में एक लोमड़ी रहती थी।",
}
SENTENCE = "The fox went to the river number {} and met animal number {}, who told it about the winter. "
PROMPTS["long"] = "".join(SENTENCE.format(n, n * 7 % 31) for n in range(1, 41)) + "In the end the fox"

CHATS = {
    "question": [{"role": "user", "content": "What is the capital of France?"}],
    "system": [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
    "turns": [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Red."},
        {"role": "user", "content": "Another one, please."},
    ],
    "blanks": [{"role": "user", "content": "  Write a haiku about snow. \n"}],
}

SENTENCES = [
    "A fox runs through the snow.",
    "An animal moves across a white field.",
    "The stock market fell by three percent on Tuesday.",
    "Wie komme ich zum Bahnhof?",
    "How do I get to the railway station?",
    "森の中をきつねが走る。",
    "def add(a, b): return a + b",
    "winter " * 300,
]


def certain(margins):
    """The number of first tokens that no other rounding of sums would change."""
    return next((at for at, margin in enumerate(margins) if margin < MARGIN), len(margins))


@torch.no_grad()
def continued(model, ids, ends):
    """The greedy continuation of `ids`, how many of it are certain, and the likeliest first tokens."""
    cache, at, tokens, margins, top = None, torch.tensor([ids]), [], [], None
    while len(tokens) < TOKENS:
        out = model(at, past_key_values=cache, use_cache=True)
        likely = torch.log_softmax(out.logits[0, -1].double(), -1)
        values, best = likely.topk(8)
        if top is None:
            top = [[int(token), round(float(value), 6)] for token, value in zip(best, values)]
        tokens.append(int(best[0]))
        margins.append(float(values[0] - values[1]))
        if tokens[-1] in ends:
            break
        cache, at = out.past_key_values, best[:1].unsqueeze(0)
    return tokens, certain(margins), top


def text(folder, file, name):
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
    ends = {tokenizer.eos_token_id}
    if name == "gemma3":
        ends.add(tokenizer.convert_tokens_to_ids("<end_of_turn>"))

    def case(key, ids, **more):
        tokens, sure, top = continued(model, ids, ends)
        said = tokenizer.decode(tokens[:sure], skip_special_tokens=True)
        print(name, key, len(ids), sure, repr(said[:60]), flush=True)
        return {"name": key, **more, "ids": ids, "tokens": tokens[:sure], "said": said, "top": top}

    prompts = [case(key, tokenizer(prompt).input_ids, text=prompt) for key, prompt in PROMPTS.items()]
    chats = []
    for key, messages in CHATS.items():
        if tokenizer.chat_template is None:
            break
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        chats.append(case(key, list(ids), messages=messages))
    return {"file": file, "prompts": prompts, "chats": chats}


def vectors(folder):
    from sentence_transformers import SentenceTransformer

    made = SentenceTransformer(str(folder), device="cpu").encode(SENTENCES, batch_size=1)
    rounded = [[round(float(value), 7) for value in vector] for vector in made]
    return {"folder": folder.name, "sentences": SENTENCES, "vectors": rounded}


@torch.no_grad()
def transcripts(folder):
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    processor = WhisperProcessor.from_pretrained(folder)
    made = []
    for name, samples in sounds.all():
        data = samples.astype(numpy.float32) / 32768
        # More than a window is heard in several, which needs times.
        whole = {"truncation": False, "padding": "longest", "return_attention_mask": True}
        asked = whole if len(data) > 30 * sounds.RATE else {}
        features = processor(data, sampling_rate=sounds.RATE, return_tensors="pt", **asked)
        heard = model.generate(**features, return_timestamps=True, return_segments=True)
        segments = [
            {
                "start": round(float(segment["start"]), 2),
                "end": round(float(segment["end"]), 2),
                "text": processor.decode(segment["tokens"], skip_special_tokens=True).strip(),
            }
            for segment in heard["segments"][0]
        ]
        print(name, segments, flush=True)
        made.append({"sound": name, "segments": segments})
    return {"folder": folder.name, "sounds": made}


def main(folder):
    torch.set_num_threads(2)
    made_with = {name: version(name) for name in ("torch", "transformers", "sentence-transformers", "gguf")}
    goldens = {
        "smollm2": lambda: text(folder, "SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2"),
        "gemma3": lambda: text(folder, "gemma-3-270m-q4_k_m.gguf", "gemma3"),
        "minilm": lambda: vectors(folder / "all-MiniLM-L6-v2"),
        "whisper": lambda: transcripts(folder / "whisper-tiny.en"),
    }
    for name in sys.argv[2:] or goldens:
        golden = json.dumps({"made_with": made_with, **goldens[name]()}, ensure_ascii=False)
        (HERE / "goldens" / f"{name}.json").write_text(golden + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
