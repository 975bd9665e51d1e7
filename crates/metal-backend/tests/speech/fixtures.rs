//! The tiny models of `tests/fixtures/speech`, their sounds, and what transformers makes of them.

use std::f64::consts::PI;
use std::path::PathBuf;

use inference_core::{
    Fallback, Samples, SpeechTask, Timestamps, TranscribeOptions, TranscriptionLoadOptions,
    TranscriptionModel,
};
use serde_json::Value as Json;

/// Samples a second.
pub const RATE: u32 = 16_000;

/// A model of the fixtures.
pub struct Fixture {
    pub folder: PathBuf,
    pub goldens: Json,
}

impl Fixture {
    /// The model `name`, `english` or `multilingual`.
    pub fn new(name: &str) -> Fixture {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let folder = root.join("tests/fixtures/speech").join(name);
        let text = std::fs::read_to_string(folder.join("goldens.json")).expect("goldens");
        Fixture { folder, goldens: serde_json::from_str(&text).expect("JSON") }
    }

    /// Loads it on the CPU.
    pub fn load(&self, options: &TranscriptionLoadOptions) -> Box<dyn TranscriptionModel> {
        metal_backend::register().expect("the backends register");
        let cpu = TranscriptionLoadOptions { backend: Some("cpu".into()), ..options.clone() };
        inference_core::load_transcription_model(&self.folder, &cpu).expect("it loads")
    }

    /// The sound `name`.
    pub fn sound(&self, name: &str) -> Samples {
        let about = &self.goldens["sounds"][name];
        let count = about["samples"].as_u64().expect("a number") as usize;
        let seed = about["seed"].as_u64().expect("a number") as u32;
        let values = signal(count, seed);
        let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
        let expected = about["sum"].as_f64().expect("a number");
        assert!((sum - expected).abs() < 1e-6, "{name}: {sum} is not {expected}");
        Samples { values, rate: RATE }
    }

    /// The options of a run; `None` where it has one that is not offered here.
    pub fn options(&self, run: &Json) -> Option<TranscribeOptions> {
        let stated = &run["options"];
        if stated["prompt_condition_type"] == "all-segments" {
            return None;
        }
        let is = |key: &str| stated[key] == true;
        let number = |key: &str| stated[key].as_f64().map(|number| number as f32);
        let prompt = stated.get("prompt_ids").map(|ids| {
            let prompts = self.goldens["prompts"].as_array().expect("a list");
            let known = prompts.iter().find(|prompt| prompt["ids"] == *ids).expect("it is known");
            known["text"].as_str().expect("a text").to_owned()
        });
        let text = |key: &str| stated[key].as_str().map(str::to_owned);
        Some(TranscribeOptions {
            language: text("language"),
            task: match stated["task"] == "translate" {
                true => SpeechTask::Translate,
                false => SpeechTask::Transcribe,
            },
            prompt,
            timestamps: match (is("return_token_timestamps"), is("return_timestamps")) {
                (true, true) => Timestamps::Words,
                (_, true) => Timestamps::Segments,
                _ => Timestamps::None,
            },
            max_tokens: stated["max_new_tokens"].as_u64().map(|count| count as usize),
            condition_on_previous: is("condition_on_prev_tokens").then_some(true),
            // With one temperature nothing is heard again, whatever the ratio.
            fallback: stated.get("temperature").map(|_| Fallback {
                temperatures: vec![0.0],
                compression_ratio: None,
                logprob: number("logprob_threshold"),
                no_speech: number("no_speech_threshold"),
            }),
            ..TranscribeOptions::default()
        })
    }
}

/// Ids of a list in JSON.
pub fn ids(list: &Json) -> Vec<u32> {
    list.as_array().expect("a list").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

/// Bursts of a quarter second with rising pitch, pauses and noise, as `make.py` has them.
pub fn signal(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 16)
    };
    let (mut pitch, mut rise, mut loud, mut phase) = (0.0, 0.0, 0.0, 0.0_f64);
    let mut sample = |at: usize| {
        if at.is_multiple_of(4000) {
            pitch = 150.0 + draw() % 2000.0;
            rise = draw() % 1000.0;
            loud = draw() % 4.0;
        }
        phase += 2.0 * PI * (pitch + rise * (at % 4000) as f64 / 4000.0) / f64::from(RATE);
        let noise = 0.01 * (draw() / 32768.0 - 1.0);
        let value = loud * 0.15 * phase.sin() + loud * 0.05 * (3.0 * phase).sin() + noise;
        ((value * 32768.0 + 0.5).floor() / 32768.0) as f32
    };
    (0..count).map(&mut sample).collect()
}
