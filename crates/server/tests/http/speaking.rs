//! `/v1/audio/speech`, on a model that says each word in two samples, whose bytes are text.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fake_model::FakeModel as Fake;
use inference_core::{
    Error, Result, Samples, SpeakOptions, Speech, SpeechMetrics, SpeechModel, SpeechModelInfo,
    SpeechText, SpokenPiece,
};
use inference_server::SpeechService;
use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::client::{Answer, Client};

/// It says each word in two samples, and stumbles over `fail`.
#[derive(Default)]
struct Mouth {
    info: SpeechModelInfo,
    asked: Mutex<Vec<(SpeechText, SpeakOptions)>>,
}

impl SpeechModel for Mouth {
    fn info(&self) -> &SpeechModelInfo {
        &self.info
    }

    fn speak(&self, text: &SpeechText, options: &SpeakOptions) -> Result<Speech> {
        options.validate()?;
        if text.as_str().trim().is_empty() {
            return Err(Error::InvalidOption { option: "text", reason: "there is none".into() });
        }
        if options.voice.as_deref() == Some("alloy") {
            let reason = "`alloy` is not one of the model's voices: af_heart".into();
            return Err(Error::InvalidOption { option: "voice", reason });
        }
        let (sender, speech) = Speech::new(&options.cancel);
        self.asked.lock().unwrap().push((text.clone(), options.clone()));
        let mut metrics = SpeechMetrics::default();
        for word in text.as_str().split_whitespace() {
            if word == "fail" {
                sender.finish(Err(Error::Engine("it stumbled".into())));
                return Ok(speech);
            }
            let sound = Samples { values: vec![0.5, 0.25], rate: 24_000 };
            sender.send(SpokenPiece { text: word.into(), sound, ..SpokenPiece::default() });
            metrics.phonemes += word.len();
        }
        sender.finish(Ok(metrics));
        Ok(speech)
    }

    fn close(&self) {}
}

fn server() -> (TestServer, Arc<Mouth>) {
    let mouth = Arc::new(Mouth::default());
    let model: Arc<dyn SpeechModel> = Arc::clone(&mouth) as _;
    let service = SpeechService { name: "mouth".into(), model };
    let server = TestServer::with(Fake::default(), |config| config.speech = vec![service]);
    (server, mouth)
}

fn speak(server: &TestServer, body: &Json) -> Answer {
    let headers = [("content-type", "application/json")];
    let body = body.to_string();
    Client::connect(server.address).request("POST", "/v1/audio/speech", &headers, &body)
}

#[test]
fn text_is_said_with_its_voice_and_its_speed() {
    let (server, mouth) = server();
    let answer = speak(
        &server,
        &json!({"model": "mouth", "input": "A fox", "voice": "af_heart", "speed": 1.5,
            "response_format": "pcm", "seed": 7}),
    );
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("audio/pcm"));
    assert_eq!(answer.text, "\0@\0 \0@\0 ");
    let asked = mouth.asked.lock().unwrap();
    let [(text, options)] = &asked[..] else { panic!("{} requests", asked.len()) };
    assert_eq!(*text, SpeechText::Plain("A fox".into()));
    assert_eq!(options.voice.as_deref(), Some("af_heart"));
    assert_eq!((options.speed, options.seed), (Some(1.5), Some(7)));
}

#[test]
fn sound_is_sent_in_events() {
    let (server, mouth) = server();
    let answer =
        speak(&server, &json!({"input": "A fox", "stream_format": "sse", "phonemes": true}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let events: Vec<Json> = answer
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let [first, second, last] = &events[..] else { panic!("{events:?}") };
    let bytes = |event: &Json| STANDARD.decode(event["audio"].as_str().unwrap()).unwrap();
    let (first, second) = (bytes(first), bytes(second));
    assert_eq!(second, b"\0@\0 ");
    assert!(first.starts_with(b"RIFF") && first.len() == 48 && first[44..] == second);
    assert_eq!(first[24..28], 24_000u32.to_le_bytes());
    assert_eq!(last["type"], "speech.audio.done");
    assert_eq!(last["usage"]["input_tokens"], 4);
    assert_eq!(mouth.asked.lock().unwrap()[0].0, SpeechText::Phonemes("A fox".into()));
}

#[test]
fn what_fails_later_is_told_in_events_and_breaks_a_body_off() {
    let (server, _) = server();
    let answer = speak(&server, &json!({"input": "A fail", "stream_format": "sse"}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let last = answer.text.lines().rfind(|line| line.starts_with("data: ")).unwrap();
    let last: Json = serde_json::from_str(&last["data: ".len()..]).unwrap();
    assert!(last["error"]["message"].as_str().unwrap().contains("it stumbled"), "{last}");
    assert!(answer.text.contains("speech.audio.delta"), "{}", answer.text);
    let body = json!({"input": "A fail", "response_format": "pcm"}).to_string();
    let mut client = Client::connect(server.address);
    let headers = [("content-type", "application/json")];
    client.send("POST", "/v1/audio/speech", &headers, &body);
    // No last chunk: the client knows that something is missing. How much comes before is chance.
    let whole = catch_unwind(AssertUnwindSafe(|| client.read_until("\r\n0\r\n\r\n")));
    assert!(whole.is_err(), "{whole:?}");
}

#[test]
fn what_cannot_be_done_is_refused_by_its_field() {
    let (server, _) = server();
    for (body, field) in [
        (json!({"voice": "af_heart"}), "input"),
        (json!({"input": " "}), "input"),
        (json!({"input": "A", "voice": "alloy"}), "voice"),
        (json!({"input": "A", "speed": 5}), "speed"),
        (json!({"input": "A", "response_format": "mp3"}), "response_format"),
        (json!({"input": "A", "response_format": "opus"}), "response_format"),
        (json!({"input": "A", "instructions": "Sing."}), "instructions"),
        (json!({"input": "A", "stream_format": "ws"}), "stream_format"),
    ] {
        let answer = speak(&server, &body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        assert_eq!(answer.json()["error"]["param"], field, "{body}: {}", answer.text);
    }
    let failed = speak(&server, &json!({"input": "fail"}));
    assert_eq!(failed.status, 500, "{}", failed.text);
    let none = TestServer::start();
    let refused = speak(&none, &json!({"input": "A"}));
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("--speech-model"), "{}", refused.text);
}

#[test]
fn the_description_names_the_forms_of_sound_and_no_object() {
    let (server, _) = server();
    let document = server.get("/openapi.json").json();
    let content = &document["paths"]["/v1/audio/speech"]["post"]["responses"]["200"]["content"];
    let described: Vec<&String> = content.as_object().unwrap().keys().collect();
    assert_eq!(described, ["audio/wav", "audio/pcm", "text/event-stream"]);
    for form in ["audio/wav", "audio/pcm"] {
        assert_eq!(content[form]["schema"], json!({"type": "string", "format": "binary"}));
    }
    let asked = [json!({}), json!({"response_format": "pcm"}), json!({"stream_format": "sse"})];
    for (media_type, more) in described.into_iter().zip(asked) {
        let mut body = json!({"input": "a fox"});
        crate::merge(&mut body, more);
        let mut client = Client::connect(server.address);
        let headers = [("content-type", "application/json")];
        client.send("POST", "/v1/audio/speech", &headers, &body.to_string());
        client.read_until(&format!("content-type: {media_type}\r\n"));
    }
}
