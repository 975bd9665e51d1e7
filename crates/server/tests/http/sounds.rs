//! Sounds in requests: how they come, what is refused and how it is named.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fake_model::{FakeModel as Fake, SOUND_IDS, all_but};
use inference_core::{EncodedSound, Feature, Message, SoundLimits};
use serde_json::{Value as Json, json};

use crate::TestServer;

const CHAT: &str = "/v1/chat/completions";
const GOOGLE: &str = "/v1beta/models/fake:generateContent";

fn limits() -> SoundLimits {
    SoundLimits {
        formats: vec!["wav", "mp3"],
        max_bytes: 1_000,
        max_seconds: 30,
        max_sounds: 2,
        max_tokens: SOUND_IDS,
    }
}

fn hearing() -> TestServer {
    TestServer::with(Fake { says: vec!["a song"], ..Fake::hears(limits()) }, |_| {})
}

fn input_audio(data: &str, format: &str) -> Json {
    json!({"type": "input_audio", "input_audio": {"data": data, "format": format}})
}

fn refused(server: &TestServer, part: Json) -> (String, String) {
    let messages = json!([{"role": "user", "content": [part]}]);
    let answer = server.post(CHAT, &json!({"messages": messages}));
    assert_eq!(answer.status, 400, "{}", answer.text);
    (answer.error("param"), answer.error("message"))
}

/// Names and bytes of the sounds that the model heard last.
fn heard(server: &TestServer) -> Vec<(String, Vec<u8>)> {
    let chats = server.model.chats.lock().unwrap();
    let (messages, _) = chats.last().expect("it was asked");
    let sounds = messages.iter().flat_map(Message::sounds);
    sounds.map(|EncodedSound { bytes, name }| (name.to_string(), bytes.to_vec())).collect()
}

#[test]
fn sounds_come_in_every_protocol_that_has_them() {
    let server = hearing();
    let data = BASE64_STANDARD.encode(b"RIFF and so on");
    let text = |kind: &str| json!({"type": kind, "text": "What is it?"});
    let part = || input_audio(&data, "wav");
    let google = json!({"inlineData": {"mimeType": "audio/wav", "data": &data}});
    for (path, body, name) in [
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": [text("text"), part()]}]}),
            "messages[0].content[1]",
        ),
        (
            "/v1/responses",
            json!({"input": [{"role": "user", "content": [text("input_text"), part()]}]}),
            "input[0].content[1]",
        ),
        (
            GOOGLE,
            json!({"contents": [{"parts": [{"text": "What is it?"}, google]}]}),
            "contents[0].parts[1].inlineData",
        ),
    ] {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert!(answer.text.contains("a song"), "{path}: {}", answer.text);
        assert_eq!(heard(&server), [(name.to_owned(), b"RIFF and so on".to_vec())], "{path}");
    }
}

#[test]
fn sounds_belong_to_messages_of_the_user() {
    let server = hearing();
    let data = BASE64_STANDARD.encode(b"RIFF and so on");
    for role in ["system", "developer", "assistant"] {
        let said = json!({"role": role, "content": [input_audio(&data, "wav")]});
        let question = json!({"role": "user", "content": "What is it?"});
        let answer = server.post("/v1/responses", &json!({"input": [question, said]}));
        assert_eq!(answer.status, 400, "{role}: {}", answer.text);
        assert!(answer.text.contains("sounds belong"), "{role}: {}", answer.text);
    }
}

#[test]
fn a_sound_counts_as_its_ids() {
    let server = hearing();
    let ask = |content: Json| {
        let answer =
            server.post(CHAT, &json!({"messages": [{"role": "user", "content": content}]}));
        answer.json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let text = json!({"type": "text", "text": "?"});
    let sound = input_audio(&BASE64_STANDARD.encode(b"RIFF"), "mp3");
    let plain = ask(json!([text]));
    assert_eq!(ask(json!([sound, text])), plain + SOUND_IDS as u64);
}

#[test]
fn what_is_no_sound_is_refused_and_the_part_is_named() {
    let server = hearing();
    let data = "messages[0].content[0].input_audio.data";
    let part = "messages[0].content[0]";
    let large = BASE64_STANDARD.encode(vec![7; 1_010]);
    let longer = BASE64_STANDARD.encode(vec![7; 1_001]);
    for (given, param, reason) in [
        ("a b", data, "not base64"),
        ("", part, "is empty"),
        (&large, data, "at most 1000 are taken"),
        (&longer, part, "at most 1000 are read"),
    ] {
        let (found, message) = refused(&server, input_audio(given, "wav"));
        assert_eq!(found, param, "{given:.20}: {message}");
        assert!(message.contains(reason), "{given:.20}: {message}");
    }
    let (param, message) = refused(&server, input_audio("AAAA", "midi"));
    assert_eq!(param, "messages[0].content[0].input_audio.format");
    assert!(message.contains("`midi` is not one of wav, mp3"), "{message}");
    let none = json!({"type": "input_audio", "input_audio": {"data": "AAAA"}});
    assert_eq!(refused(&server, none).0, "messages[0].content[0].input_audio.format");
    let more =
        json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav", "x": 1}});
    assert_eq!(refused(&server, more).0, "messages[0].content[0].input_audio.x");

    let three =
        json!([input_audio("AAAA", "wav"), input_audio("AAAB", "wav"), input_audio("AAAC", "wav")]);
    let answer = server.post(CHAT, &json!({"messages": [{"role": "user", "content": three}]}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "messages[0].content[2]"));
    let spoken = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": three}]);
    let answer = server.post(CHAT, &json!({"messages": spoken}));
    assert_eq!(answer.error("param"), "messages[1].content[0].type");
    let film =
        json!([{"parts": [{"fileData": {"mimeType": "audio/wav", "fileUri": "https://a/b"}}]}]);
    let answer = server.post(GOOGLE, &json!({"contents": film}));
    assert!(answer.status == 400 && answer.text.contains("fetches no sounds"), "{}", answer.text);
}

#[test]
fn a_model_without_ears_says_so() {
    let fake = Fake { capabilities: all_but(&[Feature::Audio]), ..Fake::default() };
    let server = TestServer::with(fake, |_| {});
    let (param, message) = refused(&server, input_audio("AAAA", "wav"));
    assert_eq!(param, "messages[0].content[0].type");
    assert!(message.contains("is not supported"), "{message}");
    let model = server.get("/v1/models/fake").json();
    assert_eq!(model["input_modalities"], json!(["text", "image"]));
    assert!(model["info"]["sounds"].is_null());
}

#[test]
fn a_model_that_hears_tells_its_limits() {
    let server = hearing();
    let model = server.get("/v1/models/fake").json();
    assert_eq!(model["input_modalities"], json!(["text", "image", "audio"]));
    assert_eq!(model["info"]["sounds"]["max_seconds"], 30);
    assert_eq!(model["info"]["sounds"]["formats"], json!(["wav", "mp3"]));
    assert_eq!(server.get("/props").json()["modalities"]["audio"], true);
}
