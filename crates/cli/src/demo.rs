//! The demo model, which lives inside the binary; `demo-model/README.md` says how it was made.

/// Its files, by name. One shard needs no index.
pub static FILES: &[(&str, &[u8])] = &[
    ("config.json", include_bytes!("../demo-model/config.json")),
    ("generation_config.json", include_bytes!("../demo-model/generation_config.json")),
    ("tokenizer.json", include_bytes!("../demo-model/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../demo-model/tokenizer_config.json")),
    ("chat_template.jinja", include_bytes!("../demo-model/chat_template.jinja")),
    ("model.safetensors", include_bytes!("../demo-model/model.safetensors")),
];

/// How reports call it.
pub const NAME: &str = "demo (embedded)";
