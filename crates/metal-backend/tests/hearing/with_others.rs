//! Sounds beside everything else: chunks, batches, the prefix cache, classifying, inspecting.

use inference_core::{
    ChatOptions, ClassifyOptions, GenerateOptions, InspectOptions, LoadOptions, Message, Prompt,
    PromptPart, TextModel, Value,
};

use crate::fixtures::{Hearing, MODELS, greedy, said, sound, text_part};

fn tokens(model: &dyn TextModel, prompt: &Prompt) -> Vec<u32> {
    greedy(model, prompt).iter().map(|token| token.id).collect()
}

#[test]
fn it_does_not_matter_how_a_prompt_is_cut() {
    for name in MODELS {
        let hearing = Hearing::new(name);
        for chunk in [3, 7, 16] {
            let options = LoadOptions { prefill_chunk: Some(chunk), ..LoadOptions::default() };
            let model = hearing.load(options);
            for case in ["two", "with_picture"] {
                let golden = hearing.case(case);
                if golden.is_null() {
                    continue;
                }
                let prompt = hearing.rendered(model.as_ref(), golden).prompt();
                let found = tokens(model.as_ref(), &prompt);
                assert_eq!(found, said(golden), "{name} {case}, chunks of {chunk}");
            }
        }
    }
}

#[test]
fn rows_with_and_without_sounds_share_a_batch() {
    for name in MODELS {
        let hearing = Hearing::new(name);
        let model = hearing.load(LoadOptions::default());
        let cases: Vec<_> = hearing.cases().collect();
        let prompts: Vec<Prompt> =
            cases.iter().map(|(_, case)| hearing.rendered(model.as_ref(), case).prompt()).collect();
        let options = GenerateOptions {
            max_tokens: Some(24),
            temperature: Some(0.0),
            ..GenerateOptions::default()
        };
        let together = model.batch_generate(&prompts, &options).unwrap();
        for (result, (case, golden)) in together.iter().zip(&cases) {
            let found: Vec<u32> = result.tokens.iter().map(|token| token.id).collect();
            assert_eq!(found, said(golden), "{name} {case}");
        }
    }
}

#[test]
fn a_prefix_is_known_with_its_sounds() {
    for name in MODELS {
        let hearing = Hearing::new(name);
        let words = "The quick brown fox jumps over the lazy dog. ".repeat(12);
        let plays = |played: &str| {
            let text = || PromptPart::Text(words.clone());
            Prompt::Parts(vec![text(), PromptPart::Sound(sound(played)), text()])
        };
        let plain = hearing.load(LoadOptions::default());
        let caching = LoadOptions { prefix_cache: Some(64 << 20), ..LoadOptions::default() };
        let model = hearing.load(caching);
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
        // Of one length, so that the ids alone do not tell them apart.
        let (talk, word) = (plays("8000:talk.wav"), plays("word.wav"));
        assert_eq!(plain.prompt_ids(&talk), plain.prompt_ids(&word));
        assert_eq!(cached(&talk), 0, "{name}");
        let other = cached(&word);
        assert!(other > 0 && other <= before, "{name}: {other} of {before}");
        assert!(cached(&talk) > before + 4, "{name}");
        assert!(cached(&word) > before + 4, "{name}");
    }
}

#[test]
fn a_mark_that_a_user_writes_stays_text() {
    for name in MODELS {
        let model = Hearing::new(name).load(LoadOptions::default());
        let chat = ChatOptions::default();
        let mark = if name == "gemma4" { "<|audio|>" } else { "<audio_soft_token>" };
        let parts = vec![text_part(mark), sound("word.wav").into_part(), text_part(mark)];
        let message = Message { content: Value::Array(parts), ..Message::user("") };
        let prompt = model.render_chat(&[message], &chat).unwrap();
        assert_eq!(prompt.sounds.len(), 1, "{name}");
        let mut others = prompt.ids.clone();
        let own: Vec<u32> = others.drain(prompt.sounds[0].places.clone()).collect();
        assert!(others.iter().all(|id| !own.contains(id)), "{name}: {own:?} in {others:?}");
    }
}

#[test]
fn classifying_and_inspecting_hear_sounds_too() {
    for name in MODELS {
        let hearing = Hearing::new(name);
        let model = hearing.load(LoadOptions::default());
        let prompts: Vec<Prompt> = hearing
            .cases()
            .map(|(_, case)| hearing.rendered(model.as_ref(), case).prompt())
            .collect();
        let found = model.classify(&prompts, &ClassifyOptions::default()).unwrap();
        for ((case, golden), result) in hearing.cases().zip(found) {
            let best = golden["argmax"].as_u64().unwrap();
            assert_eq!(u64::from(result.token.id), best, "{name} {case}");
        }
        let inspector = model.attention_inspector().unwrap();
        let prompt = hearing.rendered(model.as_ref(), hearing.case("one")).prompt();
        let seen = inspector.inspect_attention(&prompt, &InspectOptions::default()).unwrap();
        assert_eq!(seen.seq_len, model.prompt_ids(&prompt).unwrap().len());
    }
}
