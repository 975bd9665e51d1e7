"""The tower of Gemma 3 4B with random weights: pictures of 896 x 896 through `ml` and through mlx-vlm.

  python3 benches/beside_mlx_vlm.py --ml target/release/ml --files FOLDER [--layers 27] [--repeat 3]
  python3 benches/beside_mlx_vlm.py --ml target/release/ml --files FOLDER --serve [--clients 16]

Needs mlx-vlm 0.7.10, MLX and pillow. Tokenizer and template are those of the tests' small Gemma 3. Theirs is the time of
the tower and the projector, on pixels that are prepared.

On a CPU the language model is the small one too, so that nearly all of the time is the tower's. Ours is the time from the
prompt to the first token. Turns alternate.

With `--serve`, the language model has the sizes of Gemma 3 4B, and `ml serve` answers on the device that it finds. Ours is
how much later the first token comes for a picture that is new than for one that was seen before. Then clients send a
picture each at once.
"""

import argparse
import base64
import io
import json
import os
import shutil
import socket
import statistics
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

SMALL = Path(__file__).parent.parent / "crates/metal-backend/tests/fixtures/vision/models/gemma3"
TOWER = dict(hidden_size=1152, intermediate_size=4304, num_attention_heads=16, image_size=896, patch_size=14)
TEXT = dict(hidden_size=2560, intermediate_size=10240, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
            num_hidden_layers=34, query_pre_attn_scalar=256, sliding_window=1024, vocab_size=262208)


def text_sizes():
    """The names and shapes of the language model in its released sizes."""
    wide, inner, heads, own = (TEXT[key] for key in ("hidden_size", "intermediate_size", "head_dim", "num_key_value_heads"))
    at = "language_model.model"
    sizes = {f"{at}.embed_tokens.weight": (TEXT["vocab_size"], wide), f"{at}.norm.weight": (wide,)}
    for layer in range(TEXT["num_hidden_layers"]):
        of = f"{at}.layers.{layer}"
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            sizes[f"{of}.{norm}_layernorm.weight"] = (wide,)
        queries = TEXT["num_attention_heads"] * heads
        for name, shape in [("q_proj", (queries, wide)), ("k_proj", (own * heads, wide)), ("v_proj", (own * heads, wide)),
                            ("o_proj", (wide, queries)), ("q_norm", (heads,)), ("k_norm", (heads,))]:
            sizes[f"{of}.self_attn.{name}.weight"] = shape
        for name, shape in [("gate_proj", (inner, wide)), ("up_proj", (inner, wide)), ("down_proj", (wide, inner))]:
            sizes[f"{of}.mlp.{name}.weight"] = shape
    return sizes


def make(folder, layers, whole):
    """Draws a tower of these sizes over the small model, or with a language model of the released sizes."""
    import mlx.core as mx

    shutil.copytree(SMALL, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"] |= dict(TOWER, num_hidden_layers=layers)
    config["mm_tokens_per_image"], config["torch_dtype"] = 256, "bfloat16"
    if whole:
        config["text_config"] |= TEXT
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("preprocessor_config.json", "processor_config.json"):
        if (folder / name).exists():
            told = json.loads((folder / name).read_text())
            for part in (told, told.get("image_processor", {})):
                if "size" in part:
                    part["size"] = dict(height=896, width=896)
                if "image_seq_length" in part or "image_seq_length" in told:
                    part["image_seq_length"] = 256
            (folder / name).write_text(json.dumps(told))
    small = mx.load(str(SMALL / "model.safetensors"))
    tensors = {n: v.astype(mx.bfloat16) for n, v in small.items() if "vision" not in n and "multi_modal" not in n}
    if whole:
        tensors = {}
    wide, inner = TOWER["hidden_size"], TOWER["intermediate_size"]
    text = TEXT["hidden_size"] if whole else small["multi_modal_projector.mm_input_projection_weight"].shape[1]
    at = "vision_tower.vision_model"
    sizes = {f"{at}.embeddings.patch_embedding.weight": (wide, 3, 14, 14), f"{at}.embeddings.patch_embedding.bias": (wide,),
             f"{at}.embeddings.position_embedding.weight": (4096, wide), f"{at}.post_layernorm.weight": (wide,),
             f"{at}.post_layernorm.bias": (wide,), "multi_modal_projector.mm_soft_emb_norm.weight": (wide,),
             "multi_modal_projector.mm_input_projection_weight": (wide, text)}
    for layer in range(layers):
        own = f"{at}.encoder.layers.{layer}"
        for name, output, columns in [*((f"self_attn.{p}_proj", wide, wide) for p in ("q", "k", "v", "out")),
                                      ("mlp.fc1", inner, wide), ("mlp.fc2", wide, inner)]:
            sizes |= {f"{own}.{name}.weight": (output, columns), f"{own}.{name}.bias": (output,)}
        for name in ("layer_norm1", "layer_norm2"):
            sizes |= {f"{own}.{name}.weight": (wide,), f"{own}.{name}.bias": (wide,)}
    if whole:
        sizes |= text_sizes()
    mx.random.seed(0)
    for name, shape in sizes.items():
        drawn = 0.02 * mx.random.normal(shape)
        tensors[name] = (drawn + 1 if "norm" in name and name.endswith("weight") else drawn).astype(mx.bfloat16)
        mx.eval(tensors[name])
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, {"format": "pt"})


def noise():
    """A picture that nobody saw, as a data URL."""
    from PIL import Image

    picture = io.BytesIO()
    Image.frombytes("RGB", (896, 896), os.urandom(3 * 896 * 896)).save(picture, "PNG", compress_level=0)
    return "data:image/png;base64," + base64.b64encode(picture.getvalue()).decode()


class Server:
    """`ml serve` over a folder, until the end of a `with`."""

    def __init__(self, ml, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [ml, "serve", "--model", folder, "--port", str(self.port), "--prefix-cache", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).read()
                return self
            except OSError:
                time.sleep(0.2)
        raise SystemExit("the server does not answer")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ask(self, picture, tokens):
        """Seconds to the first token and to the end."""
        content = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": "What?"}]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": tokens, "temperature": 0, "stream": True,
                "ignore_eos": True}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/chat/completions", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        begun, first = time.perf_counter(), None
        with urllib.request.urlopen(request) as answer:
            for line in answer:
                if first is None and b'"delta"' in line and b'"role"' not in line:
                    first = time.perf_counter() - begun
        return first, time.perf_counter() - begun


def serve(args, folder):
    """What a client waits for, one alone and several at once."""
    with Server(args.ml, folder) as server:
        for _ in range(3):
            server.ask(noise(), 4)
        turns = []
        for _ in range(args.repeat):
            picture = noise()
            new, again = server.ask(picture, 4)[0], server.ask(picture, 4)[0]
            turns.append((new, again, new - again))
        for index, what in enumerate(["a new picture, to the first token", "one seen before", "the difference"]):
            of = [1000 * turn[index] for turn in turns]
            print(f"ml, {what}: {statistics.median(of):.1f} ms ({min(of):.1f} to {max(of):.1f})")
        for round in range(2):
            pictures = [noise() for _ in range(args.clients)]
            found = [None] * args.clients

            def client(at):
                found[at] = server.ask(pictures[at], 64)

            threads = [threading.Thread(target=client, args=(at,)) for at in range(args.clients)]
            begun = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took = time.perf_counter() - begun
            firsts = sorted(1000 * first for first, _ in found)
            print(f"ml, {args.clients} clients, round {round + 1}: first token p50 {statistics.median(firsts):.0f} ms, last "
                  f"{firsts[-1]:.0f} ms; {args.clients * 64 / took:.0f} tokens/s in all")
        told = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
        if shutil.which("nvidia-smi"):
            print("memory by the driver:", subprocess.run(told, capture_output=True, text=True).stdout.strip())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ml", default="target/release/ml")
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=27)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--clients", type=int, default=16)
    args = parser.parse_args()
    import mlx.core as mx
    from PIL import Image

    folder = args.files / f"gemma3-{'whole' if args.serve else 'tower'}-{args.layers}"
    picture = folder / "noise.png"
    if not picture.exists():
        make(folder, args.layers, args.serve)
        Image.frombytes("RGB", (896, 896), os.urandom(3 * 896 * 896)).save(picture)
    if args.serve:
        mx.clear_cache()
        serve(args, folder)
    else:
        mx.set_default_device(mx.cpu)
    from mlx_vlm.utils import load_model

    model = load_model(folder)
    mx.eval(model.parameters())
    pixels = mx.random.normal((1, 896, 896, 3)).astype(mx.bfloat16)

    def theirs():
        begun = time.perf_counter()
        hidden, _, _ = model.vision_tower(pixels, output_hidden_states=True)
        mx.eval(model.multi_modal_projector(hidden))
        return time.perf_counter() - begun

    def ours():
        command = [args.ml, "generate", "--model", folder, "--image", picture, "--json", "--max-tokens", "1", "--device", "cpu",
                   "--threads", str(args.threads), "What?"]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert told["metrics"]["prompt_tokens"] > 256, told["metrics"]
        return told["metrics"]["time_to_first_token_seconds"]

    if args.serve:
        for _ in range(3):
            theirs()
        of = [1000 * theirs() for _ in range(args.repeat)]
        print(f"mlx-vlm, tower and projector: {statistics.median(of):.1f} ms ({min(of):.1f} to {max(of):.1f})")
        return
    turns = [(ours(), theirs()) for _ in range(args.repeat)]
    for index, who in enumerate(["ml", "mlx-vlm"]):
        seconds = [turn[index] for turn in turns]
        print(f"{who}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")
    ratios = [theirs / ours for ours, theirs in turns]
    print(f"ratio: {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}), {args.layers} layers")


main()
