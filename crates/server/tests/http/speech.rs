//! `/v1/audio/transcriptions` and `/v1/audio/translations`, on a model that tells what it was
//! asked.

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fake_model::FakeModel as Fake;
use inference_core::{
    Error, Result, Samples, SpeechSegment, SpeechTask, SpokenWord, Timestamps, TranscribeOptions,
    Transcript, Transcription, TranscriptionEvent, TranscriptionModel, TranscriptionModelInfo,
};
use inference_server::TranscriptionService;
use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::client::{Answer, Client};

/// It hears two segments in any sound.
#[derive(Default)]
struct Ears {
    info: TranscriptionModelInfo,
    asked: Mutex<Vec<(Samples, TranscribeOptions)>>,
}

fn segment(start: f64, text: &str) -> SpeechSegment {
    let word = SpokenWord { word: text.into(), start, end: start + 1.0, probability: 0.5 };
    SpeechSegment {
        start,
        end: start + 1.0,
        text: text.into(),
        words: vec![word],
        ..Default::default()
    }
}

impl TranscriptionModel for Ears {
    fn info(&self) -> &TranscriptionModelInfo {
        &self.info
    }

    fn transcribe(&self, sound: Samples, options: &TranscribeOptions) -> Result<Transcription> {
        options.validate()?;
        if options.language.as_deref() == Some("klingon") {
            let reason = "`klingon` is not known".into();
            return Err(Error::InvalidOption { option: "language", reason });
        }
        let (sender, events) = Transcription::new(&options.cancel);
        let segments = vec![segment(0.0, " A fox"), segment(1.0, " runs.")];
        for segment in &segments {
            sender.send(TranscriptionEvent::Segment(Box::new(segment.clone())));
        }
        sender.finish(Ok(Transcript {
            text: " A fox runs.".into(),
            language: "en".into(),
            seconds: sound.seconds(),
            segments,
            ..Transcript::default()
        }));
        self.asked.lock().unwrap().push((sound, options.clone()));
        Ok(events)
    }

    fn close(&self) {}
}

fn server() -> (TestServer, Arc<Ears>) {
    let info = TranscriptionModelInfo { sample_rate: 16_000, ..Default::default() };
    let ears = Arc::new(Ears { info, ..Ears::default() });
    let model: Arc<dyn TranscriptionModel> = Arc::clone(&ears) as _;
    let service = TranscriptionService { name: "ears".into(), model };
    let server = TestServer::with(Fake::default(), |config| config.transcriptions = vec![service]);
    (server, ears)
}

const TRANSCRIBE: &str = "/v1/audio/transcriptions";
const TRANSLATE: &str = "/v1/audio/translations";

/// A WAV of 8 bits and 8,000 samples a second, whose bytes are all text.
fn wav() -> String {
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + 90_u32).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend([16, 0, 0, 0, 1, 0, 1, 0, 0x40, 0x1f, 0, 0, 0x40, 0x1f, 0, 0, 1, 0, 8, 0]);
    bytes.extend(b"data");
    bytes.extend(90_u32.to_le_bytes());
    bytes.extend((0..90).map(|at| 0x40 + (at % 32) as u8));
    String::from_utf8(bytes).unwrap()
}

/// A form of the sound and of `more`, each a name and a value.
fn form(server: &TestServer, path: &str, file: &str, more: &[(&str, &str)]) -> Answer {
    let mut body = format!(
        "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n{file}\r\n"
    );
    for (name, value) in more {
        body +=
            &format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    body += "--x--\r\n";
    let headers = [("content-type", "multipart/form-data; boundary=x")];
    Client::connect(server.address).request("POST", path, &headers, &body)
}

#[test]
fn a_form_is_transcribed_in_each_format() {
    let (server, ears) = server();
    let as_format = |format: &str, more: &[(&str, &str)]| {
        let fields = [&[("model", "ears"), ("response_format", format)], more].concat();
        let answer = form(&server, TRANSCRIBE, &wav(), &fields);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer
    };
    let plain = as_format("json", &[]).json();
    assert_eq!(plain["text"], "A fox runs.");
    assert_eq!(plain["usage"], json!({"type": "duration", "seconds": 1}));
    assert_eq!(as_format("text", &[]).text, "A fox runs.\n");
    assert!(as_format("srt", &[]).text.starts_with("1\n00:00:00,000 --> 00:00:01,000\nA fox\n"));
    assert!(as_format("vtt", &[]).text.starts_with("WEBVTT\n\n00:00:00.000 --> "));
    let verbose = as_format("verbose_json", &[]).json();
    assert_eq!((&verbose["task"], &verbose["language"]), (&json!("transcribe"), &json!("en")));
    assert_eq!(verbose["segments"][1]["start"], 1.0);
    assert_eq!(verbose["words"], Json::Null);
    let words = [("timestamp_granularities[]", "word")];
    let verbose = as_format("verbose_json", &words).json();
    assert_eq!(verbose["segments"], Json::Null);
    assert_eq!(verbose["words"][0], json!({"word": "A fox", "start": 0.0, "end": 1.0}));
    let asked = ears.asked.lock().unwrap();
    // Twice the samples at twice the rate.
    assert!(asked.iter().all(|(sound, _)| sound.values.len() == 180 && sound.rate == 16_000));
    let times: Vec<_> = asked.iter().map(|(_, options)| options.timestamps).collect();
    let (none, segments) = (Timestamps::None, Timestamps::Segments);
    assert_eq!(times, [none, none, segments, segments, segments, Timestamps::Words]);
}

#[test]
fn fields_reach_the_model_from_forms_and_from_json() {
    let (server, ears) = server();
    let fields = [
        ("language", "de"),
        ("prompt", "Köln"),
        ("temperature", "0.5"),
        ("seed", "7"),
        ("condition_on_previous_text", "true"),
    ];
    assert_eq!(form(&server, TRANSCRIBE, &wav(), &fields).status, 200);
    let url = format!("data:audio/wav;base64,{}", STANDARD.encode(wav()));
    let body = json!({"file": url, "prompt": "Köln", "temperature_fallback": true});
    assert_eq!(server.post(TRANSLATE, &body).status, 200);
    let asked = ears.asked.lock().unwrap();
    let (first, second) = (&asked[0].1, &asked[1].1);
    assert_eq!(first.language.as_deref(), Some("de"));
    assert_eq!((first.temperature, first.seed), (Some(0.5), Some(7)));
    assert_eq!(first.condition_on_previous, Some(true));
    assert_eq!((first.task, second.task), (SpeechTask::Transcribe, SpeechTask::Translate));
    assert!(first.prompt == second.prompt && second.fallback.is_some());
}

#[test]
fn a_stream_has_each_segment_and_then_the_whole() {
    let (server, _) = server();
    let answer = form(&server, TRANSCRIBE, &wav(), &[("stream", "true")]);
    let events: Vec<Json> =
        answer.events().iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    let deltas =
        [" A fox", " runs."].map(|delta| json!({"type": "transcript.text.delta", "delta": delta}));
    assert_eq!(events[..2], deltas);
    assert_eq!(events[2]["type"], "transcript.text.done");
    assert_eq!(events[2]["text"], "A fox runs.");
}

#[test]
fn what_is_wrong_is_a_400_that_names_the_field() {
    let (server, _) = server();
    for (fields, file, named) in [
        (&[][..], "no sound", "file"),
        (&[], "", "file"),
        (&[("language", "klingon")], &wav(), "language"),
        (&[("temperature", "1.5")], &wav(), "temperature"),
        (&[("temperature", "hot")], &wav(), "temperature"),
        (&[("response_format", "pdf")], &wav(), "response_format"),
        (&[("timestamp_granularities[]", "word")], &wav(), "timestamp_granularities"),
        (&[("include[]", "logprobs")], &wav(), "include"),
        (&[("stream", "true"), ("response_format", "srt")], &wav(), "stream"),
        (&[("known_speaker_names[]", "a")], &wav(), "known_speaker_names"),
        (
            &[("temperature", "0.5"), ("temperature_fallback", "true")],
            &wav(),
            "temperature_fallback",
        ),
        (&[("language", "de"), ("language", "en")], &wav(), "language"),
    ] {
        let answer = form(&server, TRANSCRIBE, file, fields);
        assert_eq!(answer.status, 400, "{fields:?}: {}", answer.text);
        assert_eq!(answer.error("param"), named, "{fields:?}: {}", answer.text);
    }
    for body in [json!({}), json!({"file": "data:audio/wav,abc"}), json!({"file": "a.wav"})] {
        let answer = server.post(TRANSCRIBE, &body);
        assert_eq!((answer.status, answer.error("param").as_str()), (400, "file"), "{body}");
    }
    let answer = form(&server, TRANSLATE, &wav(), &[("language", "de")]);
    assert_eq!(answer.status, 400, "{}", answer.text);
    let answer = form(&server, TRANSCRIBE, &wav(), &[("model", "fox")]);
    assert_eq!(answer.status, 404, "{}", answer.text);
}

#[test]
fn a_server_without_ears_says_how_to_give_it_some() {
    let server = TestServer::with(Fake::default(), |_| {});
    let answer = form(&server, TRANSCRIBE, &wav(), &[]);
    assert_eq!(answer.status, 400);
    assert!(answer.error("message").contains("--transcription-model"), "{}", answer.text);
}
