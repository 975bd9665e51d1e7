"""How fast speech becomes text, beside transformers and whisper.cpp.

    speech.py make OUT                     a checkpoint in the shape of Whisper large-v3-turbo with random weights, and 48 sounds
    speech.py ml PROGRAM OUT [PARALLEL]    `ml transcribe` on these sounds: 30 seconds and 128 tokens each
    speech.py transformers OUT             the same windows by transformers on a GPU, without the features
    speech.py ggml MODEL FILE              a checkpoint of Whisper as whisper.cpp reads it, in f16
    speech.py files PROGRAM MODEL FILE SOUND...   `ml transcribe` and whisper.cpp (pywhispercpp) on two threads

`make` needs numpy; `transformers` torch and transformers; `ggml` transformers and safetensors; `files` pywhispercpp and soundfile.
"""

import json
import os
import struct
import subprocess
import sys
import time
import wave
from pathlib import Path

import numpy as np

LAYERS, WIDTH, HEADS, INNER, MELS, VOCAB = (32, 4), 1280, 20, 5120, 128, 51866
END, START, ENGLISH, TRANSLATE, TRANSCRIBE, NO_TIMES = 50257, 50258, 50259, 50359, 50360, 50364


def shapes():
    """The names and the shapes of all tensors."""
    found = {}

    def linear(name, size, inner, bias=True):
        found[f"{name}.weight"] = (size, inner)
        if bias:
            found[f"{name}.bias"] = (size,)

    def norm(name):
        found[f"{name}.weight"] = found[f"{name}.bias"] = (WIDTH,)

    def attention(name):
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            linear(f"{name}.{part}", WIDTH, WIDTH, part != "k_proj")

    for number, inner in ((1, MELS), (2, WIDTH)):
        found[f"model.encoder.conv{number}.weight"] = (WIDTH, inner, 3)
        found[f"model.encoder.conv{number}.bias"] = (WIDTH,)
    found["model.encoder.embed_positions.weight"] = (1500, WIDTH)
    found["model.decoder.embed_positions.weight"] = (448, WIDTH)
    found["model.decoder.embed_tokens.weight"] = (VOCAB, WIDTH)
    for side, layers in zip(("encoder", "decoder"), LAYERS):
        norm(f"model.{side}.layer_norm")
        for layer in range(layers):
            block = f"model.{side}.layers.{layer}"
            for part in ["self_attn"] + ["encoder_attn"] * (side == "decoder"):
                attention(f"{block}.{part}")
                norm(f"{block}.{part}_layer_norm")
            norm(f"{block}.final_layer_norm")
            linear(f"{block}.fc1", INNER, WIDTH)
            linear(f"{block}.fc2", WIDTH, INNER)
    return found


def make(out):
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    head, end = {}, 0
    for name, shape in shapes().items():
        size = 2 * int(np.prod(shape))
        head[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    values = (random.standard_normal(1 << 22) * 0.02).astype("f2")
    with open(out / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes().items():
            count = int(np.prod(shape))
            of_norm = name.endswith("norm.weight")
            tensor = np.ones(count, "f2") if of_norm else np.resize(np.roll(values, random.integers(1 << 22)), count)
            file.write(tensor.tobytes())
    write = lambda name, content: (out / name).write_text(json.dumps(content))
    sizes = {"d_model": WIDTH, "num_mel_bins": MELS, "vocab_size": VOCAB, "max_source_positions": 1500}
    for side, layers in zip(("encoder", "decoder"), LAYERS):
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": HEADS, f"{side}_ffn_dim": INNER}
    ids = {"eos_token_id": END, "decoder_start_token_id": START, "max_length": 448}
    write("config.json", {"model_type": "whisper", "max_target_positions": 448, "activation_function": "gelu"} | sizes | ids)
    # No mark is said, so that each window has as many tokens as are asked for.
    write("generation_config.json", ids | {
        "no_timestamps_token_id": NO_TIMES, "is_multilingual": True, "lang_to_id": {"<|en|>": ENGLISH},
        "task_to_id": {"transcribe": TRANSCRIBE, "translate": TRANSLATE}, "suppress_tokens": list(range(END, VOCAB))})
    write("preprocessor_config.json", {"feature_size": MELS})
    # Its text is of no interest.
    write("tokenizer.json", {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})
    (out / "sounds").mkdir(exist_ok=True)
    for number in range(48):
        tone = np.sin(np.arange(480_000) * (0.01 + 0.003 * number)) * 3000
        levels = (tone + random.standard_normal(480_000) * 1000).astype("<i2")
        with wave.open(str(out / "sounds" / f"{number:02}.wav"), "wb") as file:
            file.setnchannels(1), file.setsampwidth(2), file.setframerate(16_000)
            file.writeframes(levels.tobytes())


def ml(program, model, parallel="1"):
    sounds = sorted(map(str, (Path(model) / "sounds").iterdir()))
    asked = [program, "transcribe", "-q", "-m", model, "-l", "en", "--json", "--timestamps", "none", "--max-tokens", "128"]
    for _ in range(2):
        begun = time.time()
        made = subprocess.run([*asked, "--parallel", parallel, *sounds], check=True, capture_output=True, text=True)
        whole = time.time() - begun
    metrics = [json.loads(line)["metrics"] for line in made.stdout.splitlines()]
    # The first window loads kernels, and the last group may be smaller.
    middle = sorted(one["encode_duration"] + one["decode_duration"] for one in metrics)[len(metrics) // 2]
    print(f"parallel {parallel}: {middle:.3f} s for a group's windows, {whole:.2f} s in all with the load")


def transformers(model):
    import torch
    from transformers import WhisperForConditionalGeneration

    made = WhisperForConditionalGeneration.from_pretrained(model, dtype=torch.float16, attn_implementation="sdpa").cuda().eval()
    for rows in (1, 16, 32):
        features = torch.randn(rows, MELS, 3000, dtype=torch.float16, device="cuda")
        for _ in range(3):
            torch.cuda.synchronize()
            begun = time.time()
            with torch.no_grad():
                made.generate(features, language="en", task="transcribe", max_new_tokens=128)
            torch.cuda.synchronize()
            took = time.time() - begun
        print(f"transformers, {rows} rows: {took:.3f} s")


def ggml(model, out):
    from safetensors.numpy import load_file
    from transformers import WhisperFeatureExtractor

    config = json.load(open(f"{model}/config.json"))
    vocab = json.load(open(f"{model}/tokenizer.json"))["model"]["vocab"]
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    of_sign = {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}
    names = [("model.", ""), (".layers.", ".blocks."), ("encoder_attn_layer_norm", "cross_attn_ln"),
             ("self_attn_layer_norm", "attn_ln"), ("final_layer_norm", "mlp_ln"), ("encoder_attn.", "cross_attn."),
             ("self_attn.", "attn."), ("k_proj", "key"), ("q_proj", "query"), ("v_proj", "value"), ("out_proj", "out"),
             ("fc1", "mlp.0"), ("fc2", "mlp.2"), ("embed_tokens.weight", "token_embedding.weight"),
             ("embed_positions.weight", "positional_embedding"), ("encoder.layer_norm", "encoder.ln_post"),
             ("decoder.layer_norm", "decoder.ln")]
    with open(out, "wb") as file:
        sizes = [config[key] for key in ("vocab_size", "max_source_positions", "d_model", "encoder_attention_heads",
                                         "encoder_layers", "max_target_positions", "d_model", "decoder_attention_heads",
                                         "decoder_layers", "num_mel_bins")]
        file.write(struct.pack("12i", 0x67676D6C, *sizes, 1))
        filters = WhisperFeatureExtractor.from_pretrained(model).mel_filters.T.astype("<f4")
        file.write(struct.pack("2i", *filters.shape) + filters.tobytes())
        text = sorted((id, token) for token, id in vocab.items() if id < config["eos_token_id"])
        file.write(struct.pack("i", len(text)))
        for _, token in text:
            raw = bytes(of_sign[sign] for sign in token)
            file.write(struct.pack("i", len(raw)) + raw)
        for name, tensor in load_file(f"{model}/model.safetensors").items():
            for old, new in names:
                name = name.replace(old, new)
            is_half = tensor.ndim > 1 and "positional" not in name
            tensor = tensor.astype("<f2" if is_half else "<f4")
            if name in ("encoder.conv1.bias", "encoder.conv2.bias"):
                tensor = tensor.reshape(-1, 1)
            file.write(struct.pack("3i", tensor.ndim, len(name), int(is_half)))
            file.write(struct.pack(f"{tensor.ndim}i", *reversed(tensor.shape)) + name.encode() + tensor.tobytes())


def files(program, model, converted, *sounds):
    import soundfile
    from pywhispercpp.model import Model

    peer = Model(converted, n_threads=2, print_progress=False, print_realtime=False)
    asked = [program, "transcribe", "-q", "-m", model, "--json", "--timestamps", "segments", "--threads", "2", *sounds, "--parallel", "1"]
    made = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()
    for sound, line in zip(sounds, made):
        values, rate = soundfile.read(sound, dtype="float32")
        assert rate == 16_000 and values.ndim == 1, f"{sound}: expected one channel of 16 kHz"
        begun = time.time()
        peer.transcribe(values)
        theirs = time.time() - begun
        metrics = json.loads(line)["metrics"]
        ours = metrics["total_duration"]
        print(f"{os.path.basename(sound)}: ml {ours:.2f} s, whisper.cpp {theirs:.2f} s, {theirs / ours:.2f} times")


if __name__ == "__main__":
    {"make": make, "ml": ml, "transformers": transformers, "ggml": ggml, "files": files}[sys.argv[1]](*sys.argv[2:])
