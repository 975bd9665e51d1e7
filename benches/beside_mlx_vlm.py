"""The tower of Gemma 3 4B with random weights: a picture of 896 x 896 through `ml` and through mlx-vlm, on a CPU.

  python3 benches/beside_mlx_vlm.py --ml target/release/ml --files FOLDER [--layers 27] [--repeat 3]

Needs mlx-vlm 0.7.10, mlx-cpu and pillow. Tokenizer, template and language model are those of the tests' small Gemma 3,
so that nearly all of the time is the tower's. Ours is the time from the prompt to the first token; theirs that of the
tower and the projector, on pixels that are prepared. Turns alternate.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

SMALL = Path(__file__).parent.parent / "crates/metal-backend/tests/fixtures/vision/models/gemma3"
TOWER = dict(hidden_size=1152, intermediate_size=4304, num_attention_heads=16, image_size=896, patch_size=14)


def make(folder, layers):
    """Draws a tower of these sizes over the small model."""
    import mlx.core as mx

    shutil.copytree(SMALL, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"] |= dict(TOWER, num_hidden_layers=layers)
    config["mm_tokens_per_image"], config["torch_dtype"] = 256, "bfloat16"
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
    wide, inner = TOWER["hidden_size"], TOWER["intermediate_size"]
    text = small["multi_modal_projector.mm_input_projection_weight"].shape[1]
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
    mx.random.seed(0)
    for name, shape in sizes.items():
        drawn = 0.02 * mx.random.normal(shape)
        tensors[name] = (drawn + 1 if "norm" in name and name.endswith("weight") else drawn).astype(mx.bfloat16)
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, {"format": "pt"})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ml", default="target/release/ml")
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=27)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    import mlx.core as mx
    from mlx_vlm.utils import load_model
    from PIL import Image

    folder = args.files / f"gemma3-tower-{args.layers}"
    picture = folder / "noise.png"
    if not picture.exists():
        make(folder, args.layers)
        Image.frombytes("RGB", (896, 896), os.urandom(3 * 896 * 896)).save(picture)
    mx.set_default_device(mx.cpu)
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

    turns = [(ours(), theirs()) for _ in range(args.repeat)]
    for index, who in enumerate(["ml", "mlx-vlm"]):
        seconds = [turn[index] for turn in turns]
        print(f"{who}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")
    ratios = [theirs / ours for ours, theirs in turns]
    print(f"ratio: {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}), {args.layers} layers")


main()
