//! Forms in which a transcription is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use inference_core::{SpeechSegment, SpokenWord, Transcript};
use serde::Serialize;

use crate::args::Form;
use crate::failure::{Failure, Result};

/// One object of `--json`.
#[derive(Serialize)]
struct Object<'a> {
    file: String,
    language: &'a str,
    duration: f64,
    text: &'a str,
    segments: Vec<Segment<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    words: Vec<Word<'a>>,
    metrics: Metrics,
}

/// Counts, and times in seconds. Those of encoder and decoder are of windows that were computed
/// together, those of other files included.
#[derive(Serialize)]
struct Metrics {
    windows: usize,
    tokens: usize,
    queue_duration: f64,
    encode_duration: f64,
    decode_duration: f64,
    total_duration: f64,
}

#[derive(Serialize)]
struct Segment<'a> {
    id: usize,
    start: f64,
    end: f64,
    text: &'a str,
    tokens: &'a [u32],
    temperature: f32,
    avg_logprob: f32,
    compression_ratio: f32,
    no_speech_prob: f32,
}

#[derive(Serialize)]
struct Word<'a> {
    word: &'a str,
    start: f64,
    end: f64,
    probability: f32,
}

/// `transcript` of `file` in the form `form`, with a line end.
///
/// # Errors
/// A number that JSON does not have.
pub fn text(transcript: &Transcript, file: &Path, form: Form) -> Result<String> {
    Ok(match form {
        Form::Text => format!("{}\n", transcript.text.trim()),
        Form::Srt => transcript.srt(),
        Form::Vtt => transcript.vtt(),
        Form::Json => {
            let object = object(transcript, file);
            let text = serde_json::to_string(&object);
            let text =
                text.map_err(|error| Failure::Other(format!("the result as JSON: {error}")))?;
            format!("{text}\n")
        }
    })
}

fn object<'a>(transcript: &'a Transcript, file: &Path) -> Object<'a> {
    let segment = |(id, segment): (usize, &'a SpeechSegment)| Segment {
        id,
        start: hundredths(segment.start),
        end: hundredths(segment.end),
        text: &segment.text,
        tokens: &segment.tokens,
        temperature: segment.window.temperature,
        avg_logprob: segment.window.mean_logprob,
        compression_ratio: segment.window.compression_ratio,
        no_speech_prob: segment.window.no_speech,
    };
    let word = |word: &'a SpokenWord| Word {
        word: &word.word,
        start: word.start,
        end: word.end,
        probability: word.probability,
    };
    let metrics = &transcript.metrics;
    let metrics = Metrics {
        windows: metrics.windows,
        tokens: metrics.tokens,
        queue_duration: metrics.queue_duration.as_secs_f64(),
        encode_duration: metrics.encode_duration.as_secs_f64(),
        decode_duration: metrics.decode_duration.as_secs_f64(),
        total_duration: metrics.total_duration.as_secs_f64(),
    };
    Object {
        metrics,
        file: file.display().to_string(),
        language: &transcript.language,
        duration: hundredths(transcript.seconds),
        text: transcript.text.trim(),
        segments: transcript.segments.iter().enumerate().map(segment).collect(),
        words: transcript.segments.iter().flat_map(|segment| &segment.words).map(word).collect(),
    }
}

fn hundredths(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

/// The name of the file that gets the text of `file`.
pub fn name(file: &Path, form: Form) -> String {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let stem = stem.filter(|stem| stem != "-").unwrap_or_else(|| "stdin".into());
    format!("{stem}.{}", form.ending())
}

/// Checks that no two files get one name.
///
/// # Errors
/// Two that do, by their paths.
pub fn check_names(files: &[PathBuf], form: Form) -> Result<()> {
    let mut seen = BTreeMap::new();
    for file in files {
        if let Some(other) = seen.insert(name(file, form), file) {
            return Err(Failure::Usage(format!(
                "--output: {} and {} would be written to one file, {}: transcribe them apart",
                other.display(),
                file.display(),
                name(file, form)
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_a_text_of_its_own_name() {
        assert_eq!(name("a/talk.one.mp3".as_ref(), Form::Srt), "talk.one.srt");
        assert_eq!(name("-".as_ref(), Form::Text), "stdin.txt");
        let files = ["a/talk.mp3", "b/talk.wav"].map(PathBuf::from);
        let told = check_names(&files, Form::Text).unwrap_err().to_string();
        assert!(told.contains("talk.txt"), "{told}");
        check_names(&files[..1], Form::Text).unwrap();
    }

    #[test]
    fn an_object_has_segments_and_words() {
        let words = vec![SpokenWord { word: " a".into(), ..SpokenWord::default() }];
        let segment = SpeechSegment { text: " a".into(), words, end: 1.0, ..Default::default() };
        let transcript = Transcript {
            text: " a".into(),
            language: "en".into(),
            segments: vec![segment],
            ..Transcript::default()
        };
        let json = text(&transcript, "f.wav".as_ref(), Form::Json).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["text"], &json["words"][0]["word"]), (&"a".into(), &" a".into()));
        assert_eq!((&json["segments"][0]["end"], &json["language"]), (&1.0.into(), &"en".into()));
    }
}
