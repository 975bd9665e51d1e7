//! Sounds that are refused, by their names.

use std::fs;
use std::path::Path;

use inference_core::{
    ChatOptions, EncodedSound, Feature, GenerateOptions, LoadOptions, Message, Prompt, PromptPart,
    TextModel,
};

use crate::fixtures::{Hearing, sound, wav};

fn refused(model: &dyn TextModel, sound: EncodedSound) -> String {
    let messages = [Message::user_with_parts([sound.clone().into_part()], "?")];
    let rendered = model.render_chat(&messages, &ChatOptions::default());
    let rendered = rendered.map(|_| ()).unwrap_err().to_string();
    let prompt = Prompt::Parts(vec![PromptPart::Sound(sound)]);
    let started = model.generate(&prompt, &GenerateOptions::default());
    assert_eq!(started.map(|_| ()).unwrap_err().to_string(), rendered);
    rendered
}

#[test]
fn a_sound_that_cannot_be_heard_is_named_with_the_reason() {
    let model = Hearing::new("gemma4").load(LoadOptions::default());
    let refused = |bytes: Vec<u8>| refused(model.as_ref(), EncodedSound::new(bytes, "odd.wav"));
    let named = "prompt: sound `odd.wav`: ";
    for (bytes, told) in [
        (Vec::new(), "is empty"),
        (b"no sound at all, only words".to_vec(), "the file is no sound that is read here"),
        (wav(&[], 16_000), "has no sample"),
        (wav(&[0; 2 * 160], 16_000), "has 160 samples, and features need at least 161"),
        // One sample more than the reference takes, which would cut it off.
        (wav(&vec![0; 2 * 480_001], 16_000), "longer than 30 seconds; cut it into parts"),
        (wav(&vec![0; 2 * 8_000 * 31], 8_000), "longer than 30 seconds; cut it into parts"),
    ] {
        let error = refused(bytes);
        assert!(error.starts_with(named) && error.contains(told), "{error}");
    }
}

#[test]
fn the_limits_are_told_and_held() {
    let model = Hearing::new("gemma4").load(LoadOptions::default());
    let limits = model.info().sounds.clone().expect("it hears");
    assert_eq!((limits.max_seconds, limits.max_tokens), (30, 750));
    assert!(limits.formats.contains(&"mp3"));
    let parts = vec![PromptPart::Sound(sound("1700:word.wav")); limits.max_sounds + 1];
    let error = model.generate(&Prompt::Parts(parts), &GenerateOptions::default());
    let error = error.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("a prompt may have 128 sounds at most"), "{error}");
}

#[test]
fn a_model_without_ears_says_so() {
    let _ = metal_backend::register();
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vision/models/gemma4_e");
    let model = inference_core::load_model(&folder, &LoadOptions::default()).unwrap();
    assert!(model.info().sounds.is_none());
    let error = refused(model.as_ref(), sound("word.wav"));
    assert!(error.contains("audio") && error.contains("no audio tower"), "{error}");
    assert!(model.capabilities().require(Feature::Audio).is_err());
}

#[test]
fn what_the_files_say_of_sounds_and_is_not_supported_is_the_reason() {
    let home = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(Hearing::new("gemma4").folder()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), home.path().join(entry.file_name())).unwrap();
    }
    let change = |name: &str, from: &str, to: &str| {
        let text = fs::read_to_string(home.path().join(name)).unwrap();
        assert!(text.contains(from), "{name}: {from}");
        fs::write(home.path().join(name), text.replace(from, to)).unwrap();
    };
    let _ = metal_backend::register();
    // What is wrong with the tower fails the load; with the sounds' way to it, sounds.
    change("processor_config.json", "\"feature_size\": 128", "\"feature_size\": 80");
    let model = inference_core::load_model(home.path(), &LoadOptions::default()).unwrap();
    let error = refused(model.as_ref(), sound("word.wav"));
    assert!(error.contains("makes 80 bands; the audio tower takes 128"), "{error}");
    change(
        "config.json",
        "\"num_attention_heads\": 2,\n    \"hidden_act\"",
        "\"num_attention_heads\": 5,\n    \"hidden_act\"",
    );
    let error = inference_core::load_model(home.path(), &LoadOptions::default()).map(|_| ());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("`audio_config`") && error.contains("`num_attention_heads` 5"),
        "{error}"
    );
}
