//! Models that transcribe speech against transformers: see `tests/fixtures/speech/make.py`.

mod fixtures;
mod kokoro;
mod parakeet;
mod refusals;

use std::thread;

use fixtures::{Fixture, RATE, ids};
use inference_core::{
    CancelToken, Error, Fallback, Samples, TranscribeOptions, Transcript, TranscriptionEvent,
    TranscriptionLoadOptions, TranscriptionModel,
};
use serde_json::Value as Json;

/// Of two tokens whose logits are nearer than this either may be said: sums have another order.
const TIE: f64 = 1e-3;

fn tokens(transcript: &Transcript) -> Vec<u32> {
    transcript.segments.iter().flat_map(|segment| segment.tokens.iter().copied()).collect()
}

/// The fault of a transcript, by what transformers made of the same sound.
fn compare(run: &Json, transcript: &Transcript) -> Result<(), String> {
    let (found, expected) = (tokens(transcript), ids(&run["ids"]));
    if found != expected {
        let is_tie = run["margin"].as_f64().is_some_and(|margin| margin < TIE);
        let same = found.iter().zip(&expected).take_while(|(a, b)| a == b).count();
        return match is_tie && same > 0 {
            true => Ok(()),
            false => Err(format!("differs from token {same} on of {}", expected.len())),
        };
    }
    for (own, expected) in
        transcript.segments.iter().zip(run["segments"].as_array().into_iter().flatten())
    {
        for (own, key) in [(own.start, "start"), (own.end, "end")] {
            let expected = expected[key].as_f64().expect("a number");
            if (own - expected).abs() > 1e-6 {
                return Err(format!("{key} is {own}, expected {expected}"));
            }
        }
    }
    Ok(())
}

/// Runs that are compared, and those that differ.
fn run_all(fixture: &Fixture, model: &dyn TranscriptionModel) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    for run in fixture.goldens["runs"].as_array().expect("a list") {
        let Some(options) = fixture.options(run) else { continue };
        let sound = fixture.sound(run["sound"].as_str().expect("a name"));
        let made = model.transcribe(sound, &options).expect("it is taken");
        let transcript = made.finish().expect("it is transcribed");
        count += 1;
        if let Err(reason) = compare(run, &transcript) {
            wrong.push(format!("{} {}: {reason}", run["sound"], run["options"]));
        }
    }
    (count, wrong)
}

#[test]
fn tokens_and_times_are_those_of_the_reference() {
    for (name, least) in [("english", 20), ("multilingual", 32)] {
        let fixture = Fixture::new(name);
        let model = fixture.load(&TranscriptionLoadOptions::default());
        let (count, wrong) = run_all(&fixture, model.as_ref());
        assert!(count >= least && wrong.is_empty(), "{name}, {count} runs:\n{}", wrong.join("\n"));
    }
}

#[test]
fn the_language_is_found() {
    let fixture = Fixture::new("multilingual");
    let model = fixture.load(&TranscriptionLoadOptions::default());
    for (sound, token) in fixture.goldens["detected"].as_object().expect("an object") {
        let options = TranscribeOptions { max_tokens: Some(1), ..TranscribeOptions::default() };
        let mut events = model.transcribe(fixture.sound(sound), &options).expect("it is taken");
        let first = events.next().expect("an event").expect("it is heard");
        let TranscriptionEvent::Language(code, probability) = first else {
            panic!("{first:?} comes first")
        };
        assert_eq!(format!("<|{code}|>"), token.as_str().expect("a token"), "{sound}");
        assert!((0.1..=1.0).contains(&probability), "{probability}");
        assert_eq!(events.finish().expect("the whole").language, code);
    }
}

#[test]
fn words_have_the_times_of_their_tokens() {
    for name in ["english", "multilingual"] {
        let fixture = Fixture::new(name);
        let model = fixture.load(&TranscriptionLoadOptions::default());
        let mut compared = 0;
        for run in fixture.goldens["word_runs"].as_array().expect("a list") {
            let Some(segments) = run["segments"].as_array() else { continue };
            let mut run = run.clone();
            run["options"]["return_timestamps"] = true.into();
            let options = fixture.options(&run).expect("it is offered");
            let sound = fixture.sound(run["sound"].as_str().expect("a name"));
            let made = model.transcribe(sound, &options).expect("it is taken");
            let transcript = made.finish().expect("it is transcribed");
            if tokens(&transcript) != ids(&run["ids"]) {
                continue;
            }
            for (own, expected) in transcript.segments.iter().zip(segments) {
                let times = expected["token_timestamps"].as_array().expect("a list");
                let times: Vec<f64> = times.iter().filter_map(Json::as_f64).collect();
                let mut rest = times.as_slice();
                for word in &own.words {
                    let at = rest.iter().position(|time| (time - word.end).abs() < 0.006);
                    let at = at.unwrap_or_else(|| panic!("{name}: {word:?} is not in {rest:?}"));
                    rest = &rest[at..];
                    assert!(word.start <= word.end, "{word:?}");
                    assert!((0.0..=1.0).contains(&word.probability), "{word:?}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 20, "{name}: {compared} words");
    }
}

#[test]
fn sounds_beside_each_other_have_the_text_that_they_have_alone() {
    let fixture = Fixture::new("multilingual");
    let model = fixture.load(&TranscriptionLoadOptions::default());
    let runs: Vec<&Json> = fixture.goldens["runs"].as_array().expect("a list").iter().collect();
    let model = model.as_ref();
    thread::scope(|scope| {
        let threads: Vec<_> = runs
            .iter()
            .filter_map(|run| Some((*run, fixture.options(run)?)))
            .map(|(run, options)| {
                let sound = fixture.sound(run["sound"].as_str().expect("a name"));
                scope.spawn(move || {
                    let made = model.transcribe(sound, &options).expect("it is taken");
                    (run, made.finish().expect("it is transcribed"))
                })
            })
            .collect();
        let wrong: Vec<String> = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .filter_map(|(run, transcript)| {
                let reason = compare(run, &transcript).err()?;
                Some(format!("{} {}: {reason}", run["sound"], run["options"]))
            })
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
fn draws_repeat_with_a_seed_and_a_window_is_heard_again_where_it_is_guessed() {
    let fixture = Fixture::new("english");
    let model = fixture.load(&TranscriptionLoadOptions::default());
    let drawn = |seed| {
        let options = TranscribeOptions {
            temperature: Some(1.0),
            seed: Some(seed),
            ..TranscribeOptions::default()
        };
        let made = model.transcribe(fixture.sound("long"), &options).expect("it is taken");
        tokens(&made.finish().expect("it is transcribed"))
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
    let again = Fallback {
        temperatures: vec![0.0, 0.4],
        logprob: Some(0.0),
        no_speech: None,
        ..Fallback::default()
    };
    let options =
        TranscribeOptions { fallback: Some(again), seed: Some(3), ..TranscribeOptions::default() };
    let made = model.transcribe(fixture.sound("short"), &options).expect("it is taken");
    let transcript = made.finish().expect("it is transcribed");
    assert_eq!(transcript.metrics.windows, 2);
    assert!(transcript.segments.iter().all(|segment| segment.window.temperature == 0.4));
}

#[test]
fn work_ends_where_nobody_waits_and_where_the_model_is_closed() {
    let fixture = Fixture::new("english");
    let model = fixture.load(&TranscriptionLoadOptions::default());
    let options = TranscribeOptions::default();
    let long = || Samples { values: fixtures::signal(RATE as usize * 120, 9), rate: RATE };
    let cancel = CancelToken::new();
    let cancelled = TranscribeOptions { cancel: cancel.clone(), ..options.clone() };
    let events = model.transcribe(long(), &cancelled).expect("it is taken");
    cancel.cancel();
    assert_eq!(events.finish(), Err(Error::Cancelled));
    drop(model.transcribe(long(), &options).expect("it is taken"));
    let short = model.transcribe(fixture.sound("short"), &options).expect("it is taken");
    assert!(!short.finish().expect("others went").segments.is_empty());
    let events = model.transcribe(long(), &options).expect("it is taken");
    model.close();
    assert_eq!(events.finish(), Err(Error::Closed));
    let refused = model.transcribe(fixture.sound("short"), &options);
    assert_eq!(refused.map(drop), Err(Error::Closed));
}
