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


pictures()
tokenizers()
requests()
