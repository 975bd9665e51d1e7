"""Makes `seeds`: inputs that once were faults, and one of each kind that nothing else in the repository has."""

import json
import struct
import zlib
from pathlib import Path

HERE = Path(__file__).parent / "seeds"


def put(target, name, data):
    path = HERE / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((data + "\n").encode() if isinstance(data, str) else data)


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, rows, *before):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(before) + pixels + chunk(b"IEND", b"")


def pictures():
    row = b"\0" + bytes(3 * 4)
    zeros = zlib.compress(bytes(4 << 20), 9)
    exif = b"Raw profile type exif\0\0"
    put("pictures", "packed_text.png", png(4, 4, row * 4, chunk(b"zTXt", exif + zeros)))
    xmp = b"XML:com.adobe.xmp\0\x01\0\0\0"
    put("pictures", "packed_xmp.png", png(4, 4, row * 4, chunk(b"iTXt", xmp + zeros)))
    put("pictures", "packed_profile.png", png(4, 4, row * 4, chunk(b"iCCP", b"icc\0\0" + zeros)))
    put("pictures", "one_long_row.png", png(1_000_000, 1, b"\0" + bytes(3_000_000)))
    put("pictures", "states_much.png", png(64_000, 1000, row))
    put("pictures", "states_much.gif", b"GIF89a\xff\xff\xff\xff\x80\0\0" + bytes(6) + b",\0\0\0\0\xff\xff\xff\xff\0\2\2L\1\0;")
    body = b"VP8X" + struct.pack("<I", 10) + b"\x20\0\0\0" + b"\xff\xff\0" * 2
    body += b"ICCP" + struct.pack("<I", 500 << 20) + b"few"
    put("pictures", "states_much.webp", b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body)


def tokenizers():
    def bpe(**more):
        model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
        return json.dumps({"version": "1.0", "added_tokens": [], "model": model} | more)

    def added(ids):
        flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
        return [{"id": i, "content": f"<{n}>", "special": True, **flags} for n, i in enumerate(ids)]

    put("tokenizers", "bpe.json", bpe())
    put("tokenizers", "ids_beyond.json", bpe(added_tokens=added([3, 4_294_967_295, 2**31])))
    put("tokenizers", "same_ids.json", bpe(added_tokens=added([1, 1, 1])))
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    put("tokenizers", "slow_split.json", bpe(pre_tokenizer=split))
    replace = {"type": "Replace", "pattern": {"String": ""}, "content": "x" * 100}
    put("tokenizers", "empty_replace.json", bpe(normalizer={"type": "Sequence", "normalizers": [replace] * 8}))
    unigram = {"type": "Unigram", "unk_id": 7, "vocab": [["a", -1.0], ["b", -1e308]], "byte_fallback": True}
    put("tokenizers", "unigram.json", bpe(model=unigram))
    words = {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]", "max_input_chars_per_word": 2**40}
    put("tokenizers", "word_piece.json", bpe(model=words, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}))
    precompiled = {"type": "Precompiled", "precompiled_charsmap": "/////w=="}
    put("tokenizers", "charsmap.json", bpe(normalizer=precompiled))
    deep = "[" * 200 + "]" * 200
    put("tokenizers", "deep.json", '{"added_tokens":' + deep + "}")
    loop = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"
    put("tokenizers", "template.json", json.dumps({"chat_template": loop, "bos_token": {"content": "a"}}))
    put("tokenizers", "half_a_tag.json", json.dumps({"chat_template": "{% generation %}{%}{% endgeneration %}%}"}))


def requests():
    user = [{"role": "user", "content": "hi"}]
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": 1e400}'}}
    pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    bodies = {
        "chat/completions": [
            {"messages": user, "stream": True, "n": 2, "logprobs": True, "top_logprobs": 3, "stop": ["x"], "seed": 1},
            {"messages": user, "tools": [tool], "tool_choice": "auto", "parallel_tool_calls": False},
            {"messages": [*user, {"role": "assistant", "tool_calls": [call, call]}, {"role": "tool", "tool_call_id": "1", "content": "x"}]},
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": pixel}}, {"type": "text", "text": "?"}]}]},
            {"messages": user, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}},
            {"messages": user, "regex": "(\\w{0,250}\\s?){0,250}"},
            {"messages": user, "max_tokens": 1e300, "temperature": -0.0, "logit_bias": {"1": 100, "-1": 0}},
        ],
        "completions": [{"prompt": ["a", "b"], "echo": True, "logprobs": 2, "best_of": 2}, {"prompt": [1, 2, 1114111]}],
        "messages": [
            {"max_tokens": 9, "system": [{"type": "text", "text": "s"}], "messages": user, "stream": True},
            {"max_tokens": 9, "messages": user, "tools": [{"name": "w", "input_schema": schema}], "thinking": {"type": "enabled", "budget_tokens": 1024}},
        ],
        "messages/count_tokens": [{"messages": user}],
        "responses": [
            {"input": "hi", "stream": True, "text": {"format": {"type": "json_object"}}},
            {"input": [{"type": "function_call", "call_id": "1", "name": "w", "arguments": "{}"}, {"type": "function_call_output", "call_id": "1", "output": "x"}]},
        ],
        "responses/input_tokens": [{"input": "hi"}],
        "embeddings": [{"input": ["a", "b"], "encoding_format": "base64", "dimensions": 2}],
        "rerank": [{"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}],
        "images/generations": [{"prompt": "a fox", "size": "64x64", "n": 1, "response_format": "b64_json"}],
        "images/edits": [{"prompt": "a fox", "image": pixel}],
        "classify": [{"prompts": ["a"], "labels": ["b", "c"]}],
        "inspect": [{"prompt": "a b", "layers": [0]}],
    }
    own = {
        "api/show": [{"model": "fake"}],
        "api/chat": [{"messages": user, "tools": [tool], "format": schema, "options": {"num_predict": 3, "num_ctx": 2048}, "think": True}],
        "api/generate": [{"prompt": "hi", "suffix": "", "raw": True, "stream": False, "images": [pixel.split(",")[1]]}],
        "api/embed": [{"input": ["a"], "truncate": True}],
        "api/embeddings": [{"prompt": "a"}],
        "tokenize": [{"content": "a b", "add_special": True}],
        "detokenize": [{"tokens": [1, 2, 55296]}],
        "apply-template": [{"messages": user, "chat_template_kwargs": {"enable_thinking": False}}],
    }
    all_of = {f"v1/{path}": some for path, some in bodies.items()} | own
    for path, some in all_of.items():
        for number, body in enumerate(some):
            put("requests", f"{path.replace('/', '-')}-{number}", f"/{path}\n{json.dumps(body)}")
    put("requests", "deep", "/v1/chat/completions\n" + '{"messages":' * 200)


def noise(count):
    """Repeatable values between -0.7 and 0.7."""
    state, values = 1, []
    for _ in range(count):
        state = (state * 6_364_136_223_846_793_005 + 1) % 2**64
        values.append(((state >> 40) / 2**24 - 0.5) * 1.4)
    return values


def halves(count):
    """As many values in bf16."""
    return b"".join(struct.pack("<f", value)[2:] for value in noise(count))


HIDDEN, INNER, HEAD, VOCAB = 32, 32, 16, 40
TOKENS = [*"abcdefghijklmnopqrstuvwxyz", "Ġ", "Ċ", "Ã", "©", "ab"]
LAYER = {
    "input_layernorm": ("attn_norm", [HIDDEN]),
    "post_attention_layernorm": ("ffn_norm", [HIDDEN]),
    "self_attn.q_proj": ("attn_q", [2 * HEAD, HIDDEN]),
    "self_attn.k_proj": ("attn_k", [HEAD, HIDDEN]),
    "self_attn.v_proj": ("attn_v", [HEAD, HIDDEN]),
    "self_attn.o_proj": ("attn_output", [HIDDEN, 2 * HEAD]),
    "self_attn.q_norm": ("attn_q_norm", [HEAD]),
    "self_attn.k_norm": ("attn_k_norm", [HEAD]),
    "mlp.gate_proj": ("ffn_gate", [INNER, HIDDEN]),
    "mlp.up_proj": ("ffn_up", [INNER, HIDDEN]),
    "mlp.down_proj": ("ffn_down", [HIDDEN, INNER]),
}


def safetensors(shapes, dtype="BF16", **header):
    data = b""
    for name, shape in shapes.items():
        size = shape[0] * (shape[1] if shape[1:] else 1)
        values = {"BF16": halves, "U8": bytes}[dtype](size)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def checkpoints():
    sizes = {"hidden_size": HIDDEN, "intermediate_size": INNER, "head_dim": HEAD, "vocab_size": VOCAB}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = {"model_type": "qwen3", "rms_norm_eps": 1e-6, "max_position_embeddings": 4096, "rope_theta": 10000.0}
    config |= {"tie_word_embeddings": True, "eos_token_id": 1, **sizes, **heads}
    vocab = {token: number + 2 for number, token in enumerate(TOKENS)}
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    added = [{"id": i, "content": t, "special": True, **flags} for i, t in enumerate(["<s>", "</s>"])]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": vocab, "merges": ["a b"]}
    tokenizer = {"version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level, "model": model}
    (HERE / "config.json").write_text(json.dumps(config) + "\n")
    (HERE / "tokenizer.json").write_text(json.dumps(tokenizer) + "\n")
    shapes = {"model.embed_tokens.weight": [VOCAB, HIDDEN], "model.norm.weight": [HIDDEN]}
    shapes |= {f"model.layers.0.{name}.weight": shape for name, (_, shape) in LAYER.items()}
    put("safetensors", "whole.safetensors", safetensors(shapes))
    put("safetensors", "without_norm.safetensors", safetensors({n: s for n, s in shapes.items() if "norm" not in n}))
    put("safetensors", "other_type.safetensors", safetensors(shapes, "U8"))
    put("safetensors", "long_header.safetensors", struct.pack("<Q", 2**63) + b"{}")
    big = {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 2**63]}
    put("safetensors", "large_shape.safetensors", safetensors(shapes, **{"model.norm.bias": big}))
    whole = json.dumps(config)
    put("convert", "whole", whole)
    put("convert", "own_weights", whole.encode() + b"\n" + safetensors(shapes))
    packed = config | {"quantization": {"group_size": 32, "bits": 4, "model.norm": {"bits": 3}}}
    put("convert", "packed", json.dumps(packed))
    put("convert", "many_layers", json.dumps(config | {"num_hidden_layers": 2**31 - 1}))
    put("convert", "nested", '{"text_config":' * 100 + "{" + "}" * 101)
    for name in ["llama", "qwen3_5_text", "gpt_oss", "nemotron_h", "deepseek_v3", "gemma3n_text", "lfm2_moe"]:
        put("convert", name, json.dumps(config | {"model_type": name}))


def gguf_text(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(value):
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_text(value)
    values = [gguf_value(one) for one in value]
    return struct.pack("<I", 9) + values[0][:4] + struct.pack("<Q", len(values)) + b"".join(v[4:] for v in values)


def gguf_file(metadata, tensors, counts=None):
    """`tensors`: name, shape from the outermost dimension on, type, bytes."""
    many, keys = counts or (len(tensors), len(metadata))
    out, data = b"GGUF" + struct.pack("<IQQ", 3, many, keys), b""
    for key, value in metadata.items():
        out += gguf_text(key) + gguf_value(value)
    for name, shape, kind, values in tensors:
        out += gguf_text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        out += struct.pack("<IQ", kind, len(data))
        data += values + bytes(-len(values) % 32)
    return out + bytes(-len(out) % 32) + data


def gguf():
    sizes = {"embedding_length": HIDDEN, "feed_forward_length": INNER, "attention.head_count": 2, "block_count": 1}
    sizes |= {"attention.head_count_kv": 1, "attention.key_length": HEAD, "attention.value_length": HEAD}
    sizes |= {"context_length": 512, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 10000.0}
    kinds = [1] * len(TOKENS) + [3]
    words = {"model": "gpt2", "pre": "llama-bpe", "tokens": [*TOKENS, "</s>"], "token_type": kinds, "merges": ["a b"]}
    words |= {"eos_token_id": len(TOKENS), "add_bos_token": False}

    def metadata(name):
        own = {f"{name}.{key}": value for key, value in sizes.items()}
        return {"general.architecture": name, **own, **{f"tokenizer.ggml.{key}": value for key, value in words.items()}}

    def tensors(has, kind):
        shapes = {"token_embd.weight": [len(kinds), HIDDEN], "output_norm.weight": [HIDDEN]}
        shapes |= {f"blk.0.{name}.weight": shape for name, shape in LAYER.values() if has(name)}
        stored = []
        for name, shape in shapes.items():
            size = shape[0] * (shape[1] if shape[1:] else 1)
            if shape[1:] and kind == 8:
                block = b"\x00\x14" + bytes(number * 7 % 256 for number in range(32))
                stored.append((name, shape, 8, block * (size // 32)))
            else:
                stored.append((name, shape, 0, struct.pack(f"<{size}f", *noise(size))))
        return stored

    plain = tensors(lambda name: "_norm" not in name[6:], 8)
    put("gguf", "llama.gguf", gguf_file(metadata("llama"), plain))
    put("gguf", "qwen3.gguf", gguf_file(metadata("qwen3"), tensors(lambda name: True, 0)))
    put("gguf", "many_tensors.gguf", gguf_file(metadata("llama"), plain, (2**63, 30)))
    put("gguf", "many_keys.gguf", gguf_file(metadata("llama"), plain, (11, 2**62)))
    put("gguf", "large_block_count.gguf", gguf_file(metadata("llama") | {"llama.block_count": 2**32 - 1}, plain))
    put("gguf", "no_heads.gguf", gguf_file(metadata("llama") | {"llama.attention.head_count": 0}, plain))
    around = [[f"blk.0.post_{name}_norm.weight", [HIDDEN], 0, struct.pack("<f", 1) * HIDDEN] for name in ("attention", "ffw")]
    windowed = metadata("gemma3") | {"gemma3.attention.sliding_window": 64}
    put("gguf", "gemma3.gguf", gguf_file(windowed, tensors(lambda name: True, 8) + around))


pictures()
tokenizers()
requests()
checkpoints()
gguf()
