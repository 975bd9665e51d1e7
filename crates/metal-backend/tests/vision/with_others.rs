//! Pictures beside everything else: chunks, batches, the prefix cache, cancelling, classifying,
//! inspecting.

use inference_core::{
    CancelToken, ChatOptions, ClassifyOptions, EncodedPicture, FinishReason, GenerateOptions,
    InspectOptions, LoadOptions, Message, Prompt, PromptPart, TextModel, Value,
};

use crate::fixtures::{MODELS, Seeing, greedy, ids, picture, text_part};

fn tokens(model: &dyn TextModel, prompt: &Prompt) -> Vec<u32> {
    greedy(model, prompt).iter().map(|token| token.id).collect()
}

#[test]
fn it_does_not_matter_how_a_prompt_is_cut() {
    for name in MODELS {
        let seeing = Seeing::new(name);
        let (_, case) = seeing.cases().find(|(case, _)| *case == "two_text_between").unwrap();
        for chunk in [3, 7, 16] {
            let options = LoadOptions { prefill_chunk: Some(chunk), ..LoadOptions::default() };
            let model = seeing.load(options);
            let prompt = seeing.rendered(model.as_ref(), case).prompt();
            let said = tokens(model.as_ref(), &prompt);
            assert_eq!(said, ids(&case["greedy"]), "{name}, chunks of {chunk}");
        }
    }
}

#[test]
fn rows_with_and_without_pictures_share_a_batch() {
    for name in MODELS {
        let seeing = Seeing::new(name);
        let model = seeing.load(LoadOptions::default());
        let cases: Vec<_> = seeing.cases().collect();
        let prompts: Vec<Prompt> =
            cases.iter().map(|(_, case)| seeing.rendered(model.as_ref(), case).prompt()).collect();
        let options = GenerateOptions {
            max_tokens: Some(24),
            temperature: Some(0.0),
            ..GenerateOptions::default()
        };
        let together = model.batch_generate(&prompts, &options).unwrap();
        for (result, prompt) in together.iter().zip(&prompts) {
            let found: Vec<u32> = result.tokens.iter().map(|token| token.id).collect();
            assert_eq!(found, tokens(model.as_ref(), prompt), "{name}");
        }
    }
}

#[test]
fn a_prefix_is_known_with_its_pictures() {
    for name in MODELS {
        let seeing = Seeing::new(name);
        let words = "The quick brown fox jumps over the lazy dog. ".repeat(12);
        let shows = |shown: &str| {
            let text = || PromptPart::Text(words.clone());
            Prompt::Parts(vec![text(), PromptPart::Picture(picture(shown)), text()])
        };
        let plain = seeing.load(LoadOptions::default());
        let caching = LoadOptions { prefix_cache: Some(64 << 20), ..LoadOptions::default() };
        let model = seeing.load(caching);
        let cached = |prompt: &Prompt| {
            let options = GenerateOptions {
                max_tokens: Some(4),
                temperature: Some(0.0),
                ..GenerateOptions::default()
            };
            let (text, outcome) = model.generate(prompt, &options).unwrap().collect_text().unwrap();
            let expected = plain.generate(prompt, &options).unwrap().collect_text().unwrap().0;
            assert_eq!(text, expected, "{name}");
            outcome.metrics.cached_prompt_tokens
        };
        let before = plain.encode(&words).unwrap().len();
        let (rgb, grey) = (shows("rgb.png"), shows("grey_wide.png"));
        assert_eq!(cached(&rgb), 0, "{name}");
        let other = cached(&grey);
        // A recurrent state goes on from a snapshot alone, and there is none before the picture.
        let is_recurrent = name == "qwen3_5";
        assert!(other > 0 || is_recurrent, "{name}: nothing of {before}");
        assert!(other <= before, "{name}: {other} of {before}");
        let again = cached(&rgb);
        assert!(again > before + 4, "{name}: {again}, {before} before the picture");
        assert!(cached(&grey) > before + 4, "{name}");
    }
}

#[test]
fn a_mark_that_a_user_writes_stays_text() {
    for (name, mark) in [
        ("gemma3", "<start_of_image>"),
        ("qwen2_5_vl", "<|vision_start|><|image_pad|><|vision_end|>"),
        ("qwen3_5", "<|vision_start|><|image_pad|><|vision_end|>"),
        ("gemma4_d", "<|image|>"),
        ("mistral3", "[IMG]"),
    ] {
        let model = Seeing::new(name).load(LoadOptions::default());
        let chat = ChatOptions::default();
        let parts = vec![text_part(mark), picture("rgb.png").into_part(), text_part(mark)];
        let message = Message { content: Value::Array(parts), ..Message::user("") };
        let prompt = model.render_chat(&[message], &chat).unwrap();
        assert_eq!(prompt.pictures.len(), 1, "{name}");
        let shown = prompt.pictures[0].places.clone();
        let mut others = prompt.ids.clone();
        let own: Vec<u32> = others.drain(shown).collect();
        assert!(others.iter().all(|id| !own.contains(id)), "{name}: {own:?} in {others:?}");
        let alone = model.render_chat(&[Message::user(mark)], &chat).unwrap();
        assert!(alone.pictures.is_empty() && alone.ids.iter().all(|id| !own.contains(id)));
    }
}

#[test]
fn classifying_and_inspecting_see_pictures_too() {
    for name in MODELS {
        let seeing = Seeing::new(name);
        let model = seeing.load(LoadOptions::default());
        let prompts: Vec<Prompt> = seeing
            .cases()
            .map(|(_, case)| seeing.rendered(model.as_ref(), case).prompt())
            .collect();
        let found = model.classify(&prompts, &ClassifyOptions::default()).unwrap();
        for ((case, golden), result) in seeing.cases().zip(found) {
            assert_eq!(
                u64::from(result.token.id),
                golden["argmax"].as_u64().unwrap(),
                "{name} {case}"
            );
        }
        let options = InspectOptions { weights: true, ..InspectOptions::default() };
        let inspector = model.attention_inspector().unwrap();
        let seen = inspector.inspect_attention(&prompts[0], &options).unwrap();
        assert_eq!(seen.seq_len, model.prompt_ids(&prompts[0]).unwrap().len());
        // The last layers of Gemma 3 see whole pictures: a weight of a later place is not 0.
        let n = seen.seq_len;
        let ahead =
            seen.layers.iter().filter_map(|layer| {
                let head = layer.head_weights(0).filter(|_| layer.positions.len() == n)?;
                Some((0..n).any(|query| {
                    head[query * n + query + 1..(query + 1) * n].iter().any(|w| *w > 0.0)
                }))
            });
        let sees_ahead = ahead.filter(|sees| *sees).count();
        assert_eq!(sees_ahead > 0, name == "gemma3" || name == "gemma4_d", "{name}");
    }
}

#[test]
fn a_cancelled_request_ends_and_others_go_on() {
    let seeing = Seeing::new("gemma3");
    let model = seeing.load(LoadOptions::default());
    let (_, case) = seeing.cases().next().unwrap();
    let prompt = seeing.rendered(model.as_ref(), case).prompt();
    let cancel = CancelToken::new();
    cancel.cancel();
    let options = GenerateOptions { cancel, ..GenerateOptions::default() };
    let mut generation = model.generate(&prompt, &options).unwrap();
    assert_eq!(generation.by_ref().count(), 0);
    let reason = generation.outcome().map(|outcome| outcome.finish_reason.clone());
    assert_eq!(reason, Some(FinishReason::Cancelled));
    assert_eq!(tokens(model.as_ref(), &prompt), ids(&case["greedy"]));
}

#[test]
fn a_picture_that_cannot_be_read_is_named() {
    let model = Seeing::new("gemma3").load(LoadOptions::default());
    let whole = picture("rgb.png");
    let cut = EncodedPicture::new(&whole.bytes[..200], "cut.png");
    let refused = |picture: EncodedPicture| {
        let parts = Prompt::Parts(vec![PromptPart::Picture(picture)]);
        model.prompt_ids(&parts).unwrap_err().to_string()
    };
    assert!(refused(cut).starts_with("prompt: picture `cut.png`: "));
    assert!(refused(EncodedPicture::new(*b"hello", "a.txt")).contains("picture `a.txt`"));
    assert!(refused(EncodedPicture::new([], "none")).ends_with("picture `none`: is empty"));
}
