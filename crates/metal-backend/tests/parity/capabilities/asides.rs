//! The options of chats, classifications and inspections, and the features that are calls of their
//! own.

use inference_core::{
    CancelToken, ChatOptions, ClassifyOptions, EncodedPicture, EncodedSound, Error, Feature,
    GenerateOptions, InspectOptions, Message, Prompt, PromptPart, Role, TextModel, Value,
};

use super::{Walk, prompt};
use crate::fixtures::{json, root};

/// Asks for each option alone.
pub fn walk(walk: &mut Walk, model: &dyn TextModel) {
    chat(walk, model);
    classify(walk, model);
    inspect(walk, model);
    let two = [Prompt::Ids(prompt(8)), Prompt::Ids(prompt(9))];
    let one = GenerateOptions { max_tokens: Some(1), ..GenerateOptions::default() };
    let batch = model
        .batch_generate(&two, &one)
        .map(|results| results.len() == 2 && results.iter().all(|result| result.outcome.is_some()));
    walk.option("batch_generate", Some(Feature::BatchGenerate), batch);
    let bytes = std::fs::read(root().join("../vision/pictures/rgb.png")).expect("a picture");
    let picture = PromptPart::Picture(EncodedPicture::new(bytes, "rgb.png"));
    let parts = Prompt::Parts(vec![picture, PromptPart::Ids(vec![20, 21])]);
    let shown = model.prompt_ids(&parts).map(|ids| ids.len() > 3);
    walk.option("images", Some(Feature::Images), shown);
    let bytes = std::fs::read(root().join("../hearing/sounds/word.wav")).expect("a sound");
    let sound = PromptPart::Sound(EncodedSound::new(bytes, "word.wav"));
    let parts = Prompt::Parts(vec![sound, PromptPart::Ids(vec![20, 21])]);
    let heard = model.prompt_ids(&parts).map(|ids| ids.len() > 3);
    walk.option("audio", Some(Feature::Audio), heard);
}

fn cancelled() -> CancelToken {
    let cancel = CancelToken::new();
    cancel.cancel();
    cancel
}

fn chat(walk: &mut Walk, model: &dyn TextModel) {
    let messages = [Message::user("Where?")];
    let name = |name: &str| Value::Object(vec![("name".to_owned(), name.into())]);
    let tool = Value::Object(vec![
        ("type".to_owned(), "function".into()),
        ("function".to_owned(), name("look_up_42")),
    ]);
    let ChatOptions { tools, template_kwargs, add_generation_prompt, continue_final_message } =
        ChatOptions {
            tools: vec![tool],
            template_kwargs: vec![("no_template_has_this".to_owned(), true.into())],
            add_generation_prompt: false,
            continue_final_message: true,
        };
    let rendered =
        |options: ChatOptions| model.render_chat(&messages, &options).map(|prompt| prompt.text);
    goes_on(walk, model, &ChatOptions { continue_final_message, ..ChatOptions::default() });
    let plain = rendered(ChatOptions::default()).unwrap();
    let once = GenerateOptions { max_tokens: Some(1), ..GenerateOptions::default() };
    let answer =
        model.chat(&messages, &ChatOptions::default(), &once).map(|answer| answer.count() <= 1);
    walk.option("chat", Some(Feature::Chat), answer);
    // What a template can be told is its own affair, and no feature of the model's.
    let names = |option: &str, told: Result<bool, Error>| match &told {
        Ok(shown) => assert!(*shown, "{}: `{option}` shows nowhere", walk.name),
        Err(Error::Unsupported { what, .. }) => assert_eq!(what, option, "{}", walk.name),
        Err(other) => panic!("{}: `{option}`: {other}", walk.name),
    };
    let tools = ChatOptions { tools, ..ChatOptions::default() };
    names("tools", rendered(tools).map(|text| text.contains("look_up_42")));
    let told = rendered(ChatOptions { template_kwargs, ..ChatOptions::default() });
    names("no_template_has_this", told.map(|text| text != plain));
    let cut = rendered(ChatOptions { add_generation_prompt, ..ChatOptions::default() }).unwrap();
    // In Mistral's format an answer begins right behind the question.
    let has_its_format = json("tokenizers.json")[walk.name] == "mistral";
    assert!(plain != cut || has_its_format, "{}: {plain:?}, {cut:?}", walk.name);
}

/// An answer that was begun goes on behind its last character, whatever the template writes there.
fn goes_on(walk: &Walk, model: &dyn TextModel, options: &ChatOptions) {
    let begun = [Message::user("Where?"), Message::new(Role::Assistant, "In the fox's ")];
    let prompt = model.render_chat(&begun, options).unwrap();
    assert!(prompt.text.ends_with("In the fox's "), "{}: {:?}", walk.name, prompt.text);
    let whole = model.render_chat(&begun, &ChatOptions::default()).unwrap();
    let most = prompt.ids.len().saturating_sub(2);
    assert_eq!(prompt.ids[..most], whole.ids[..most], "{}", walk.name);
    let unanswered = model.render_chat(&begun[..1], options);
    assert!(matches!(unanswered, Err(Error::Prompt(_))), "{}: {unanswered:?}", walk.name);
}

fn classify(walk: &mut Walk, model: &dyn TextModel) {
    let ClassifyOptions { labels, generate } = ClassifyOptions {
        labels: vec!["a".to_owned(), "b c".to_owned()],
        generate: GenerateOptions { logits: true, ..GenerateOptions::default() },
    };
    let drawn = |generate| ClassifyOptions { generate, ..ClassifyOptions::default() };
    let result = |options: ClassifyOptions| {
        let results = model.classify(&[Prompt::Ids(prompt(8))], &options);
        results.map(|mut results| results.remove(0))
    };
    let plain = result(ClassifyOptions::default());
    let is_plain = plain.map(|result| result.logits.is_none() && result.labels.is_empty());
    walk.option("classify", Some(Feature::Classify), is_plain);
    let shown = result(drawn(generate));
    let size = Some(model.info().vocab_size);
    walk.option(
        "logits",
        Some(Feature::Logits),
        shown.map(|one| one.logits.map(|l| l.len()) == size),
    );
    let shown = result(ClassifyOptions { labels, ..ClassifyOptions::default() });
    let scored = shown.map(|one| one.labels.len() == 2 && one.labels[0] != one.labels[1]);
    walk.option("labels", Some(Feature::Labels), scored);
    let ended = result(drawn(GenerateOptions { cancel: cancelled(), ..Default::default() }));
    assert_eq!(ended.unwrap_err(), Error::Cancelled, "{}", walk.name);
}

fn inspect(walk: &mut Walk, model: &dyn TextModel) {
    let attended = layers_with_attention(walk.name, model.info().num_layers);
    let feature = Feature::InspectAttention;
    let Some(&last) = attended.last() else {
        let told = model.capabilities().require(feature);
        assert!(model.attention_inspector().is_none() && told.is_err(), "{}", walk.name);
        return walk.option("inspect_attention", Some(feature), told.map(|()| false));
    };
    let InspectOptions { layers, weights, cancel } =
        InspectOptions { layers: Some(vec![last]), weights: true, cancel: cancelled() };
    let look = |options: InspectOptions| {
        let inspector = model.attention_inspector().ok_or_else(|| Error::Unsupported {
            what: "inspect_attention".to_owned(),
            reason: "no inspector".to_owned(),
        })?;
        inspector.inspect_attention(&Prompt::Ids(prompt(8)), &options)
    };
    let all = look(InspectOptions::default());
    let feature = Some(feature);
    let is_plain = |layer: &inference_core::LayerAttention| layer.weights.is_none();
    let is_complete = |all: inference_core::AttentionSnapshot| {
        let found = all.layers.iter().map(|layer| layer.layer);
        found.eq(attended.iter().copied()) && all.layers.iter().all(is_plain)
    };
    let complete = all.map(is_complete);
    walk.option("inspect_attention", feature, complete);
    let one = look(InspectOptions { layers, ..InspectOptions::default() });
    let is_last = |shown: inference_core::AttentionSnapshot| {
        shown.layers.iter().map(|layer| layer.layer).eq([last])
    };
    walk.option("layers", feature, one.map(is_last));
    let told = look(InspectOptions { weights, ..InspectOptions::default() });
    let with = told.map(|told| told.layers.iter().all(|layer| layer.weights.is_some()));
    walk.option("weights", feature, with);
    let ended = look(InspectOptions { cancel, ..InspectOptions::default() });
    assert_eq!(ended.unwrap_err(), Error::Cancelled, "{}", walk.name);
}

/// Which layers of the checkpoint have attention.
fn layers_with_attention(name: &str, layers: usize) -> Vec<usize> {
    let every = match name {
        "nemotron_h" => return vec![3, 6],
        "lfm3" => return vec![2, 4, 5],
        "recurrent_gemma" => return vec![2],
        "falcon_mamba" | "mamba" | "mamba2" => return Vec::new(),
        "deepseek_v32" | "glm_moe_dsa" => return Vec::new(),
        "qwen3_next" | "kimi_linear" => 4,
        name if name.starts_with("qwen3_5") => 4,
        "lfm2" | "lfm2_moe" | "granitemoehybrid" => 2,
        _ => 1,
    };
    (0..layers).filter(|layer| (layer + 1) % every == 0).collect()
}
