//! The fixtures: checkpoints, pictures, and what transformers makes of them.

use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{
    ChatOptions, EncodedPicture, GenerateOptions, LoadOptions, Message, Prompt, RenderedPrompt,
    Role, TextModel, Token, Value,
};
use safetensors::SafeTensors;
use serde_json::Value as Json;

/// The models.
pub const MODELS: [&str; 9] = [
    "gemma3",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_5",
    "qwen3_vl",
    "qwen3_vl_moe",
    "gemma4_e",
    "gemma4_d",
    "mistral3",
];

/// The most tokens of a case.
pub const MOST: usize = 24;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vision")
}

/// One model that sees, and its goldens.
pub struct Seeing {
    name: &'static str,
    golden: Json,
    tensors: Vec<u8>,
}

impl Seeing {
    pub fn new(name: &'static str) -> Seeing {
        let golden = root().join("golden").join(format!("{name}.json"));
        let text = fs::read_to_string(&golden).expect("the golden is there");
        let tensors = fs::read(golden.with_extension("safetensors")).expect("its tensors are");
        Seeing { name, golden: serde_json::from_str(&text).expect("it is JSON"), tensors }
    }

    /// The folder of its checkpoint.
    pub fn folder(&self) -> PathBuf {
        root().join("models").join(self.name)
    }

    /// Loads it in float32.
    pub fn load(&self, options: LoadOptions) -> Box<dyn TextModel> {
        self.load_from(&self.folder(), options)
    }

    /// Loads the checkpoint in `folder`, made from its own, in float32.
    pub fn load_from(&self, folder: &Path, options: LoadOptions) -> Box<dyn TextModel> {
        let dtype = Some(inference_core::Dtype::F32);
        let _ = metal_backend::register();
        let options = LoadOptions { dtype, ..options };
        inference_core::load_model(folder, &options).expect("the checkpoint loads")
    }

    /// The cases by name.
    pub fn cases(&self) -> impl Iterator<Item = (&str, &Json)> {
        let cases = self.golden["cases"].as_object().expect("cases by name");
        cases.iter().map(|(name, case)| (name.as_str(), case))
    }

    /// How far logits may be from the reference's, which differ as much among themselves.
    pub fn tolerance(&self) -> f32 {
        if self.name == "gemma4_e" { 3e-3 } else { 2e-3 }
    }

    /// The logits behind a case's prompt.
    pub fn last_logits(&self, case: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(&self.tensors).expect("tensors");
        let tensor = tensors.tensor(&format!("{case}.last_logits")).expect("every case has some");
        tensor
            .data()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect()
    }

    /// A case's conversation, rendered.
    pub fn rendered(&self, model: &dyn TextModel, case: &Json) -> RenderedPrompt {
        let messages = case["messages"].as_array().expect("messages");
        let messages: Vec<Message> = messages.iter().map(message).collect();
        let chat = ChatOptions::default();
        model.render_chat(&messages, &chat).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// A picture of the fixtures.
pub fn picture(name: &str) -> EncodedPicture {
    let bytes = fs::read(root().join("pictures").join(name)).expect("the picture is there");
    EncodedPicture::new(bytes, name)
}

fn message(json: &Json) -> Message {
    let role = Role::from(json["role"].as_str().expect("a role"));
    let part = |part: &Json| match part["type"].as_str() {
        Some("image") => picture(part["path"].as_str().expect("a path")).into_part(),
        _ => text_part(part["text"].as_str().expect("text")),
    };
    let content = match &json["content"] {
        Json::Array(parts) => Value::Array(parts.iter().map(part).collect()),
        text => text.as_str().expect("text").into(),
    };
    Message { content, ..Message::new(role, "") }
}

/// A content part of text.
pub fn text_part(text: &str) -> Value {
    Value::Object(vec![("type".into(), "text".into()), ("text".into(), text.into())])
}

/// Ids of a golden.
pub fn ids(json: &Json) -> Vec<u32> {
    let ids = json.as_array().expect("ids");
    ids.iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

/// The largest distance.
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// The greedy tokens with their logits, at most [`MOST`].
pub fn greedy(model: &dyn TextModel, prompt: &Prompt) -> Vec<Token> {
    let options = GenerateOptions {
        max_tokens: Some(MOST),
        temperature: Some(0.0),
        logits: true,
        ..GenerateOptions::default()
    };
    let generation = model.generate(prompt, &options).expect("the prompt fits");
    generation.map(|token| token.expect("a token")).collect()
}
