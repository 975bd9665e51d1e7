"""Z-Image in the sizes of its release with random weights, and diffusers' own time beside `ml image`.

  python3 benches/beside_diffusers.py make FOLDER [--tiny]
  ml image "A red circle under a yellow sky" --model FOLDER --width 1024 --height 1024 --steps 9 --guidance 0 --json
  python3 benches/beside_diffusers.py time FOLDER [--tiny]

Needs diffusers 0.42.1, transformers 5 and torch. Configs, tokenizer and index come from the small pipeline of the
tests; only sizes differ. `--tiny` keeps the small sizes, to try the script.
"""

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path

import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, ZImagePipeline, ZImageTransformer2DModel
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

SMALL = Path(__file__).parent.parent / "crates/metal-backend/tests/fixtures/images/z_image"
PROMPT = "A red circle under a yellow sky"
STEPS = 9
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# What the small configs do not say of the release's sizes.
SIZES = {
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
NOT_ARGUMENTS = {"architectures", "transformers_version", "torch_dtype", "model_type"}


def config(component, tiny):
    text = (SMALL / component / "config.json").read_text()
    kept = {k: v for k, v in json.loads(text).items() if not k.startswith("_") and k not in NOT_ARGUMENTS}
    return kept if tiny else kept | SIZES[component]


def make(folder, tiny):
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        transformer = ZImageTransformer2DModel(**config("transformer", tiny))
        vae = AutoencoderKL(**config("vae", tiny))
        encoder = Qwen3ForCausalLM(Qwen3Config(**config("text_encoder", tiny)))
        # diffusers leaves these as they were found in memory.
        for name, values in transformer.named_parameters():
            if name.endswith("pad_token"):
                torch.nn.init.normal_(values, std=0.02)
    schedule = json.loads((SMALL / "scheduler/scheduler_config.json").read_text())
    pipeline = ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_config(schedule),
        vae=vae.to(torch.bfloat16),
        text_encoder=encoder.to(torch.bfloat16),
        tokenizer=AutoTokenizer.from_pretrained(SMALL / "tokenizer"),
        transformer=transformer.to(torch.bfloat16),
    )
    pipeline.save_pretrained(folder, max_shard_size="10GB")
    # The release names the encoder without its last layer.
    shutil.copy(SMALL / "model_index.json", Path(folder) / "model_index.json")


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def timed(folder, tiny):
    begun = time.perf_counter()
    pipeline = ZImagePipeline.from_pretrained(folder, torch_dtype=torch.bfloat16).to(DEVICE)
    print(f"load {time.perf_counter() - begun:.2f} s")
    size = 64 if tiny else 1024
    for run in ("first", "second"):
        ends = []

        def step(_pipeline, _index, _time, values):
            wait()
            ends.append(time.perf_counter())
            return values

        begun = time.perf_counter()
        pipeline(PROMPT, width=size, height=size, num_inference_steps=STEPS, guidance_scale=0.0, callback_on_step_end=step)
        wait()
        whole = time.perf_counter() - begun
        middle = statistics.median(after - before for before, after in zip(ends, ends[1:]))
        peak = torch.cuda.max_memory_reserved() >> 20 if DEVICE == "cuda" else 0
        print(f"{run}: {whole:.2f} s in all, {middle:.4f} s a step, {peak} MiB reserved at the peak")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "time"])
    parser.add_argument("folder")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    (make if args.what == "make" else timed)(args.folder, args.tiny)
