"""Z-Image or Qwen-Image in the sizes of its release with random weights, and diffusers' own time beside `ml image`.

  python3 benches/beside_diffusers.py make z_image FOLDER [--tiny]
  ml image "A red circle under a yellow sky" --model FOLDER --width 1024 --height 1024 --steps 9 --guidance 0 --json
  python3 benches/beside_diffusers.py time z_image FOLDER [--tiny]

Needs diffusers 0.42.1, transformers 5 and torch. Configs, tokenizer and index come from the small pipeline of the
tests; only sizes differ. `--tiny` keeps the small sizes, to try the script. Qwen-Image (`qwen_image`, with `--guidance 1`
for `ml image`) takes 58 GB; `--encoder-layers N` leaves layers of its text encoder out, which no step computes.
"""

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path

import torch
import diffusers
import transformers

SMALL = Path(__file__).parent.parent / "crates/metal-backend/tests/fixtures/images"
PROMPT = "A red circle under a yellow sky"
STEPS = 9
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# What the small configs do not say of the release's sizes.
Z_IMAGE = {
    "transformer": dict(
        dim=3840, n_layers=30, n_refiner_layers=2, n_heads=30, n_kv_heads=30, cap_feat_dim=2560,
        axes_dims=[32, 48, 48], axes_lens=[1536, 512, 512],
    ),
    "vae": dict(block_out_channels=[128, 256, 512, 512], norm_num_groups=32),
    "text_encoder": dict(
        hidden_size=2560, head_dim=128, intermediate_size=9728, num_attention_heads=32, num_hidden_layers=36,
        num_key_value_heads=8, vocab_size=151936,
    ),
}
QWEN_TEXT = dict(
    hidden_size=3584, intermediate_size=18944, num_attention_heads=28, num_hidden_layers=28, num_key_value_heads=4,
    vocab_size=152064, rope_scaling=dict(mrope_section=[16, 24, 24], rope_type="default", type="default"),
)
QWEN_IMAGE = {
    "transformer": dict(
        num_layers=60, attention_head_dim=128, num_attention_heads=24, joint_attention_dim=3584,
        axes_dims_rope=[16, 56, 56],
    ),
    "vae": dict(base_dim=96),
    "text_encoder": QWEN_TEXT
    | dict(
        text_config=QWEN_TEXT,
        vision_config=dict(
            hidden_size=1280, depth=32, num_heads=16, intermediate_size=3420, out_hidden_size=3584, window_size=112,
            fullatt_block_indexes=[7, 15, 23, 31],
        ),
    ),
}
# The pipeline, its parts' classes, their sizes, and what says that nothing guides.
KINDS = {
    "z_image": (
        diffusers.ZImagePipeline, diffusers.ZImageTransformer2DModel, diffusers.AutoencoderKL,
        (transformers.Qwen3Config, transformers.Qwen3ForCausalLM), Z_IMAGE, dict(guidance_scale=0.0),
    ),
    "qwen_image": (
        diffusers.QwenImagePipeline, diffusers.QwenImageTransformer2DModel, diffusers.AutoencoderKLQwenImage,
        (transformers.Qwen2_5_VLConfig, transformers.Qwen2_5_VLForConditionalGeneration), QWEN_IMAGE,
        dict(true_cfg_scale=1.0),
    ),
}
NOT_ARGUMENTS = {"architectures", "transformers_version", "torch_dtype", "model_type"}


def merged(known, sizes):
    deeper = {k: merged(known[k], v) for k, v in sizes.items() if isinstance(v, dict) and k in known}
    return known | sizes | deeper


def config(args, component):
    text = (SMALL / args.kind / component / "config.json").read_text()
    kept = {k: v for k, v in json.loads(text).items() if not k.startswith("_") and k not in NOT_ARGUMENTS}
    if args.tiny:
        return kept
    sizes = merged(kept, KINDS[args.kind][4][component])
    if component == "text_encoder" and args.encoder_layers:
        for part in [sizes, sizes.get("text_config", {})]:
            part["num_hidden_layers"] = args.encoder_layers
    return sizes


def make(args):
    pipeline_kind, transformer_kind, vae_kind, (encoder_config, encoder_kind), _, _ = KINDS[args.kind]
    small = SMALL / args.kind
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        transformer = transformer_kind(**config(args, "transformer"))
        vae = vae_kind(**config(args, "vae"))
        encoder = encoder_kind(encoder_config(**config(args, "text_encoder")))
        # diffusers leaves these as they were found in memory.
        for name, values in transformer.named_parameters():
            if name.endswith("pad_token"):
                torch.nn.init.normal_(values, std=0.02)
    schedule = json.loads((small / "scheduler/scheduler_config.json").read_text())
    pipeline = pipeline_kind(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler.from_config(schedule),
        vae=vae.to(torch.bfloat16),
        text_encoder=encoder.to(torch.bfloat16),
        tokenizer=transformers.AutoTokenizer.from_pretrained(small / "tokenizer"),
        transformer=transformer.to(torch.bfloat16),
    )
    pipeline.save_pretrained(args.folder, max_shard_size="10GB")
    # The release of Z-Image names the encoder without its last layer.
    shutil.copy(small / "model_index.json", Path(args.folder) / "model_index.json")


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def timed(args):
    begun = time.perf_counter()
    pipeline = KINDS[args.kind][0].from_pretrained(args.folder, torch_dtype=torch.bfloat16).to(DEVICE)
    print(f"load {time.perf_counter() - begun:.2f} s")
    size = 64 if args.tiny else 1024
    for run in ("first", "second"):
        ends = []

        def step(_pipeline, _index, _time, values):
            wait()
            ends.append(time.perf_counter())
            return values

        begun = time.perf_counter()
        pipeline(PROMPT, width=size, height=size, num_inference_steps=STEPS, callback_on_step_end=step, **KINDS[args.kind][5])
        wait()
        whole = time.perf_counter() - begun
        middle = statistics.median(after - before for before, after in zip(ends, ends[1:]))
        peak = torch.cuda.max_memory_reserved() >> 20 if DEVICE == "cuda" else 0
        print(f"{run}: {whole:.2f} s in all, {middle:.4f} s a step, {peak} MiB reserved at the peak")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "time"])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--encoder-layers", type=int)
    args = parser.parse_args()
    (make if args.what == "make" else timed)(args)
