//! The fixtures: checkpoints, sounds, and what transformers makes of them.

use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{
    ChatOptions, EncodedPicture, EncodedSound, GenerateOptions, LoadOptions, Message, Prompt,
    RenderedPrompt, Role, TextModel, Token, Value,
};
use safetensors::SafeTensors;
use serde_json::Value as Json;

/// The models.
pub const MODELS: [&str; 2] = ["gemma4", "gemma3n"];

/// The most tokens of a case.
pub const MOST: usize = 24;

/// The farthest that logits may be from the reference's.
pub const TOLERANCE: f32 = 3e-3;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hearing")
}

/// One model that hears, and its goldens.
pub struct Hearing {
    name: &'static str,
    golden: Json,
    tensors: Vec<u8>,
}

impl Hearing {
    pub fn new(name: &'static str) -> Hearing {
        let golden = root().join("golden").join(format!("{name}.json"));
        let text = fs::read_to_string(&golden).expect("the golden is there");
        let tensors = fs::read(golden.with_extension("safetensors")).expect("its tensors are");
        Hearing { name, golden: serde_json::from_str(&text).expect("it is JSON"), tensors }
    }

    /// The folder of its checkpoint.
    pub fn folder(&self) -> PathBuf {
        root().join("models").join(self.name)
    }

    /// Loads it in float32.
    pub fn load(&self, options: LoadOptions) -> Box<dyn TextModel> {
        let dtype = Some(inference_core::Dtype::F32);
        let _ = metal_backend::register();
        let options = LoadOptions { dtype, ..options };
        inference_core::load_model(&self.folder(), &options).expect("the checkpoint loads")
    }

    /// The cases by name.
    pub fn cases(&self) -> impl Iterator<Item = (&str, &Json)> {
        let cases = self.golden["cases"].as_object().expect("cases by name");
        cases.iter().map(|(name, case)| (name.as_str(), case))
    }

    /// The case of that name.
    pub fn case(&self, name: &str) -> &Json {
        &self.golden["cases"][name]
    }

    /// The logits behind a case's prompt.
    pub fn last_logits(&self, case: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(&self.tensors).expect("tensors");
        let tensor = tensors.tensor(&format!("{case}.last_logits")).expect("every case has some");
        tensor.data().as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
    }

    /// A case's conversation, rendered.
    pub fn rendered(&self, model: &dyn TextModel, case: &Json) -> RenderedPrompt {
        let messages = case["messages"].as_array().expect("messages");
        let messages: Vec<Message> = messages.iter().map(message).collect();
        let chat = ChatOptions::default();
        model.render_chat(&messages, &chat).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// A sound of the fixtures; of `N:FILE`, the file again and again up to N samples.
pub fn sound(name: &str) -> EncodedSound {
    let (count, file) = name.split_once(':').map_or((None, name), |(n, file)| (Some(n), file));
    let bytes = fs::read(root().join("sounds").join(file)).expect("the sound is there");
    let Some(count) = count else { return EncodedSound::new(bytes, name) };
    let samples = bytes[44..].as_chunks::<2>().0.iter().copied().cycle();
    let samples: Vec<u8> = samples.take(count.parse().expect("a number")).flatten().collect();
    EncodedSound::new(wav(&samples, 16_000), name)
}

/// A WAV file of these samples of 16 bits.
pub fn wav(samples: &[u8], rate: u32) -> Vec<u8> {
    let size = samples.len() as u32;
    let mut file = b"RIFF".to_vec();
    file.extend((36 + size).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    file.extend(rate.to_le_bytes());
    file.extend((2 * rate).to_le_bytes());
    file.extend(b"\x02\0\x10\0data");
    file.extend(size.to_le_bytes());
    file.extend(samples);
    file
}

/// A picture of the fixtures of models that see.
pub fn picture(name: &str) -> EncodedPicture {
    let path = root().with_file_name("vision").join("pictures").join(name);
    EncodedPicture::new(fs::read(path).expect("the picture is there"), name)
}

fn message(json: &Json) -> Message {
    let role = Role::from(json["role"].as_str().expect("a role"));
    let path = |part: &Json| part["path"].as_str().expect("a path").to_owned();
    let part = |part: &Json| match part["type"].as_str() {
        Some("image") => picture(&path(part)).into_part(),
        Some("audio") => sound(&path(part)).into_part(),
        _ => text_part(part["text"].as_str().expect("text")),
    };
    let parts = json["content"].as_array().expect("parts");
    Message { content: Value::Array(parts.iter().map(part).collect()), ..Message::new(role, "") }
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

/// The greedy tokens of a golden; one that ends a generation is no part of it.
pub fn said(golden: &Json) -> Vec<u32> {
    let mut said = ids(&golden["greedy"]);
    if said.len() < MOST {
        said.pop();
    }
    said
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
