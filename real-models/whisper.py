"""Whisper as CTranslate2 keeps it, written in the form of transformers."""

import json
import shutil
import struct

import numpy
from safetensors.numpy import save_file

TYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}
END = 50256


def convert(source, out):
    """Writes the folder `out` from `model.bin` (version 6) and its neighbours in `source`."""
    read = tensors(source / "model.bin")
    weights = {
        "model.decoder.embed_tokens.weight": read["decoder/embeddings/weight"],
        **linear(read, "encoder/conv1", "model.encoder.conv1"),
        **linear(read, "encoder/conv2", "model.encoder.conv2"),
    }
    layers = {}
    for side in ("encoder", "decoder"):
        weights |= norm(read, f"{side}/layer_norm", f"model.{side}.layer_norm")
        weights[f"model.{side}.embed_positions.weight"] = read[f"{side}/position_encodings/encodings"]
        numbers = {name.split("/")[1] for name in read if name.startswith(f"{side}/layer_")} - {"layer_norm"}
        layers[side] = len(numbers)
        for number in range(layers[side]):
            weights |= layer(read, f"{side}/layer_{number}", f"model.{side}.layers.{number}")
    out.mkdir()
    packed = {name: numpy.ascontiguousarray(value) for name, value in weights.items()}
    save_file(packed, out / "model.safetensors", metadata={"format": "pt"})
    write_configs(source, out, weights, layers | {"heads": int(read["encoder/num_heads"])})
    shutil.copy(source / "tokenizer.json", out)


def tensors(path):
    """Name and values of each tensor."""
    with path.open("rb") as file:

        def take(form):
            return struct.unpack(form, file.read(struct.calcsize(form)))[0]

        def word():
            return file.read(take("<H"))[:-1].decode()

        header = take("<I"), word(), take("<I")
        assert header == (6, "WhisperSpec", 3), header
        read = {}
        for _ in range(take("<I")):
            name = word()
            shape = [take("<I") for _ in range(take("<B"))]
            kind = take("<B")
            read[name] = numpy.frombuffer(file.read(take("<I")), TYPES[kind]).reshape(shape)
        return read


def layer(read, old, new):
    size = read["decoder/embeddings/weight"].shape[1]
    weights = {}

    def attention(old, new, parts):
        for name, (matrix, part) in parts.items():
            rows = slice(part * size, (part + 1) * size)
            weights.update(linear(read, f"{old}/{matrix}", f"{new}.{name}", rows))
        # The joined bias has zeros there, and Whisper none.
        weights.pop(f"{new}.k_proj.bias", None)

    joined = {"q_proj": ("linear_0", 0), "k_proj": ("linear_0", 1), "v_proj": ("linear_0", 2)}
    attention(f"{old}/self_attention", f"{new}.self_attn", joined | {"out_proj": ("linear_1", 0)})
    weights.update(norm(read, f"{old}/self_attention/layer_norm", f"{new}.self_attn_layer_norm"))
    if f"{old}/attention/layer_norm/gamma" in read:
        across = {"q_proj": ("linear_0", 0), "k_proj": ("linear_1", 0), "v_proj": ("linear_1", 1)}
        attention(f"{old}/attention", f"{new}.encoder_attn", across | {"out_proj": ("linear_2", 0)})
        weights.update(norm(read, f"{old}/attention/layer_norm", f"{new}.encoder_attn_layer_norm"))
    weights.update(norm(read, f"{old}/ffn/layer_norm", f"{new}.final_layer_norm"))
    weights.update(linear(read, f"{old}/ffn/linear_0", f"{new}.fc1"))
    weights.update(linear(read, f"{old}/ffn/linear_1", f"{new}.fc2"))
    return weights


def linear(read, old, new, rows=slice(None)):
    there = [part for part in ("weight", "bias") if f"{old}/{part}" in read]
    return {f"{new}.{part}": read[f"{old}/{part}"][rows] for part in there}


def norm(read, old, new):
    return {f"{new}.weight": read[f"{old}/gamma"], f"{new}.bias": read[f"{old}/beta"]}


def write_configs(source, out, weights, layers):
    tokens = weights["model.decoder.embed_tokens.weight"].shape
    inner = weights["model.encoder.layers.0.fc1.weight"].shape[0]
    marks = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": END, "decoder_start_token_id": END + 1}
    config = {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": tokens[0],
        "num_mel_bins": weights["model.encoder.conv1.weight"].shape[1],
        "d_model": tokens[1],
        "encoder_layers": layers["encoder"],
        "decoder_layers": layers["decoder"],
        "encoder_attention_heads": layers["heads"],
        "decoder_attention_heads": layers["heads"],
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "activation_function": "gelu",
        "scale_embedding": False,
        "dtype": "float16",
        "tie_word_embeddings": True,
        **marks,
    }
    given = json.loads((source / "config.json").read_text())
    generation = {
        **marks,
        "no_timestamps_token_id": 50362,
        "is_multilingual": False,
        "suppress_tokens": given.get("suppress_ids", []),
        "begin_suppress_tokens": given.get("suppress_ids_begin", [220, END]),
        "max_length": 448,
    }
    features = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": config["num_mel_bins"],
        "sampling_rate": 16000,
        "hop_length": 160,
        "chunk_length": 30,
        "n_fft": 400,
        "n_samples": 480000,
        "nb_max_frames": 3000,
        "padding_value": 0.0,
        "return_attention_mask": False,
    }
    text = {"tokenizer_class": "WhisperTokenizer"}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        text[name] = "<|endoftext|>"
    files = {
        "config.json": config,
        "generation_config.json": generation,
        "preprocessor_config.json": features,
        "tokenizer_config.json": text,
    }
    for name, content in files.items():
        (out / name).write_text(json.dumps(content, indent=1))
