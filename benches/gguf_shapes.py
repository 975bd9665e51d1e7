"""GGUF files with random weights in released models' sizes, for llama.cpp's llama-bench and llama-server.

Matrices are written in the form that llama-quantize gives them: with 4 bits Q4_0, and Q6_K for the output and an
embedding that is also the output; with 8 bits Q8_0; with 16 bits bf16. `Q4_K_M` is Q4_K, and Q6_K for the output and for the
values and the projections out of half of the layers. The small ones that it leaves are f32.
"""
import gguf
import numpy as np

Type = gguf.GGMLQuantizationType
FORMATS = {4: Type.Q4_0, 8: Type.Q8_0, 16: Type.BF16, "Q4_K_M": Type.Q4_K}
FILE_TYPES = {
    4: gguf.LlamaFileType.MOSTLY_Q4_0,
    8: gguf.LlamaFileType.MOSTLY_Q8_0,
    16: gguf.LlamaFileType.MOSTLY_BF16,
    "Q4_K_M": gguf.LlamaFileType.MOSTLY_Q4_K_M,
}


def words(count):
    """A vocabulary in which any id decodes: bytes, then placeholders."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = sorted(map(chr, [*shown, *range(256, 512 - len(shown))]))
    return [*alphabet, "Ġt", *(f"Ġt{number}" for number in range(257, count))]


def has_more_bits(layer, layers):
    """Whether the values and the projection out of that layer are Q6_K in a file of Q4_K_M."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


class File:
    """A file in the making: `bits` a weight, or a name of FORMATS, `layers` of the architecture `arch`."""

    def __init__(self, path, arch, bits, layers, hidden, vocab):
        self.writer = writer = gguf.GGUFWriter(path, arch)
        self.bits, self.layers, self.hidden, self.vocab = bits, layers, hidden, vocab
        self.random = np.random.default_rng(0)
        writer.add_context_length(40960)
        writer.add_embedding_length(hidden)
        writer.add_block_count(layers)
        writer.add_vocab_size(vocab)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(words(vocab))
        writer.add_token_types([gguf.TokenType.NORMAL] * vocab)
        writer.add_token_merges(["Ġ t"])
        writer.add_eos_token_id(vocab - 1)
        writer.add_file_type(FILE_TYPES[bits])

    def matrix(self, name, *shape, is_output=False):
        """Weights whose standard deviation is near 0.02."""
        form = FORMATS[self.bits]
        block, _, part = name.removeprefix("blk.").partition(".")
        is_wide = part.startswith(("attn_v", "ffn_down")) and has_more_bits(int(block), self.layers)
        if is_output and self.bits in (4, "Q4_K_M") or is_wide and self.bits == "Q4_K_M":
            form = Type.Q6_K
        size, width = gguf.GGML_QUANT_SIZES[form]
        values = self.random.integers(0, 256, (*shape[:-1], shape[-1] // size, width), np.uint8)
        scale = lambda value: np.frombuffer(np.float16(value).tobytes(), np.uint8)
        if form == Type.Q4_0:
            values[..., :2] = scale(0.0043)
        elif form == Type.Q4_K:
            values[..., :2] = scale(0.00012)
            values[..., 2:4] = scale(0.0009)
        elif form == Type.Q8_0:
            values[..., :2] = scale(0.00027)
        elif form == Type.Q6_K:
            values[..., 192:208] = 8
            values[..., 208:] = scale(0.000135)
        else:
            floats = self.random.standard_normal(shape, np.float32) * np.float32(0.02)
            values = ((floats.view(np.uint32) + 0x8000) >> 16).astype(np.uint16).view(np.uint8)
        values = values.reshape(*shape[:-1], -1)
        self.writer.add_tensor(f"{name}.weight", values, raw_dtype=form)

    def floats(self, name, *shape, value=1.0, kind=".weight"):
        """A tensor that stays in f32; `value` None: random."""
        whole = np.full(shape, value or 0, np.float32)
        whole = whole if value is not None else self.random.standard_normal(shape, np.float32) * np.float32(0.02)
        self.writer.add_tensor(name + kind, whole)

    def outside(self, last_norm, tied):
        """What is no layer's."""
        self.matrix("token_embd", self.vocab, self.hidden, is_output=tied)
        if not tied:
            self.matrix("output", self.vocab, self.hidden, is_output=True)
        self.floats(last_norm, self.hidden)

    def attention(self, block, heads, kv_heads, head_dim, gated=False):
        """Attention with norms of queries and keys."""
        self.matrix(block + "attn_q", heads * head_dim * (2 if gated else 1), self.hidden)
        self.matrix(block + "attn_k", kv_heads * head_dim, self.hidden)
        self.matrix(block + "attn_v", kv_heads * head_dim, self.hidden)
        self.matrix(block + "attn_output", self.hidden, heads * head_dim)
        self.floats(block + "attn_q_norm", head_dim)
        self.floats(block + "attn_k_norm", head_dim)

    def mlp(self, block, intermediate):
        self.matrix(block + "ffn_gate", intermediate, self.hidden)
        self.matrix(block + "ffn_up", intermediate, self.hidden)
        self.matrix(block + "ffn_down", self.hidden, intermediate)

    def heads(self, heads, kv_heads, head_dim, theta, epsilon):
        self.writer.add_head_count(heads)
        self.writer.add_head_count_kv(kv_heads)
        self.writer.add_key_length(head_dim)
        self.writer.add_value_length(head_dim)
        self.writer.add_rope_freq_base(theta)
        self.writer.add_layer_norm_rms_eps(epsilon)

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def qwen3(path, bits, layers, hidden, intermediate, heads):
    file = File(path, "qwen3", bits, layers, hidden, 151936)
    file.heads(heads, 8, 128, 1e6, 1e-6)
    file.writer.add_feed_forward_length(intermediate)
    file.outside("output_norm", tied=True)
    for layer in range(layers):
        block = f"blk.{layer}."
        file.floats(block + "attn_norm", hidden)
        file.attention(block, heads, 8, 128)
        file.floats(block + "ffn_norm", hidden)
        file.mlp(block, intermediate)
    file.close()


def qwen3_moe(path, bits, layers):
    """Qwen3-30B-A3B: 8 of 128 experts."""
    hidden, experts, intermediate = 2048, 128, 768
    file = File(path, "qwen3moe", bits, layers, hidden, 151936)
    file.heads(32, 4, 128, 1e6, 1e-6)
    file.writer.add_feed_forward_length(6144)
    file.writer.add_expert_count(experts)
    file.writer.add_expert_used_count(8)
    file.writer.add_expert_feed_forward_length(intermediate)
    file.outside("output_norm", tied=False)
    for layer in range(layers):
        block = f"blk.{layer}."
        file.floats(block + "attn_norm", hidden)
        file.attention(block, 32, 4, 128)
        file.floats(block + "ffn_norm", hidden)
        file.floats(block + "ffn_gate_inp", experts, hidden, value=None)
        file.matrix(block + "ffn_gate_exps", experts, intermediate, hidden)
        file.matrix(block + "ffn_up_exps", experts, intermediate, hidden)
        file.matrix(block + "ffn_down_exps", experts, hidden, intermediate)
    file.close()


def qwen3_5(path, bits, layers):
    """Qwen3.5-0.8B: three gated delta nets to one attention layer."""
    hidden, heads, head_dim = 1024, 16, 128
    inner = heads * head_dim
    file = File(path, "qwen35", bits, layers, hidden, 248320)
    file.heads(8, 2, 256, 1e7, 1e-6)
    file.writer.add_feed_forward_length(3584)
    file.writer.add_rope_dimension_count(64)
    file.writer.add_rope_dimension_sections([11, 11, 10, 0])
    file.writer.add_full_attention_interval(4)
    file.writer.add_ssm_conv_kernel(4)
    file.writer.add_ssm_inner_size(inner)
    file.writer.add_ssm_state_size(head_dim)
    file.writer.add_ssm_time_step_rank(heads)
    file.writer.add_ssm_group_count(heads)
    file.outside("output_norm", tied=True)
    for layer in range(layers):
        block = f"blk.{layer}."
        file.floats(block + "attn_norm", hidden)
        file.floats(block + "post_attention_norm", hidden)
        file.mlp(block, 3584)
        if layer % 4 == 3:
            file.attention(block, 8, 2, 256, gated=True)
            continue
        file.matrix(block + "attn_qkv", 3 * inner, hidden)
        file.matrix(block + "attn_gate", inner, hidden)
        file.matrix(block + "ssm_out", hidden, inner)
        file.matrix(block + "ssm_alpha", heads, hidden)
        file.matrix(block + "ssm_beta", heads, hidden)
        file.floats(block + "ssm_conv1d", 3 * inner, 4, value=None)
        file.floats(block + "ssm_dt", heads, value=0.1, kind=".bias")
        file.floats(block + "ssm_a", heads, value=-1.0, kind="")
        file.floats(block + "ssm_norm", head_dim)
    file.close()


def lfm2(path, bits, layers):
    """LFM2-1.2B: short convolutions, and attention in 6 of 16 layers."""
    hidden = 2048
    kv_heads = [8 if layer in (2, 5, 8, 10, 12, 14) else 0 for layer in range(layers)]
    file = File(path, "lfm2", bits, layers, hidden, 65536)
    file.heads(32, kv_heads, 64, 1e6, 1e-5)
    file.writer.add_feed_forward_length(8192)
    file.writer.add_shortconv_l_cache(3)
    file.outside("token_embd_norm", tied=True)
    for layer in range(layers):
        block = f"blk.{layer}."
        file.floats(block + "attn_norm", hidden)
        file.floats(block + "ffn_norm", hidden)
        file.mlp(block, 8192)
        if kv_heads[layer]:
            file.attention(block, 32, 8, 64)
            continue
        file.floats(block + "shortconv.conv", hidden, 3, value=None)
        file.matrix(block + "shortconv.in_proj", 3 * hidden, hidden)
        file.matrix(block + "shortconv.out_proj", hidden, hidden)
    file.close()


# What writes a file, and how many layers the released model has.
SHAPES = {
    "qwen3-0.6b": (lambda path, bits, layers: qwen3(path, bits, layers, 1024, 3072, 16), 28),
    "qwen3-4b": (lambda path, bits, layers: qwen3(path, bits, layers, 2560, 9728, 32), 36),
    "qwen3-30b-a3b": (qwen3_moe, 48),
    "qwen3.5-0.8b": (qwen3_5, 24),
    "lfm2-1.2b": (lfm2, 16),
}
