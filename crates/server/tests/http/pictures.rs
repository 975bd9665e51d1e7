//! Pictures in requests: how they come, what is refused and how it is named.

use std::fs;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fake_model::{FakeModel as Fake, PICTURE_IDS, all_but};
use inference_core::{Feature, Message, PictureLimits, PictureTokens};
use pictures::Picture;
use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::client::Answer;

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

/// The limits of pictures of a model of tests.
pub fn limits() -> PictureLimits {
    PictureLimits {
        formats: vec!["png", "jpeg", "webp", "gif"],
        max_bytes: 100_000,
        max_pixels: 10_000,
        max_pictures: 2,
        tokens: PictureTokens::Fixed(PICTURE_IDS),
    }
}

fn seeing() -> TestServer {
    TestServer::with(Fake { says: vec!["a fox"], ..Fake::sees(limits()) }, |_| {})
}

pub fn png(width: u32, height: u32) -> Vec<u8> {
    let rgb = vec![9; 3 * (width * height) as usize];
    Picture::new(width, height, rgb).unwrap().to_png(&[]).unwrap()
}

fn data_url(bytes: &[u8]) -> String {
    format!("data:image/png;base64,{}", BASE64_STANDARD.encode(bytes))
}

fn image_url(url: &str) -> Json {
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn ask(server: &TestServer, part: Json) -> Answer {
    let text = json!({"type": "text", "text": "What is it?"});
    let messages = json!([{"role": "user", "content": [part, text]}]);
    server.post(CHAT, &json!({"messages": messages}))
}

fn refused(server: &TestServer, part: Json) -> (String, String) {
    let answer = ask(server, part);
    assert_eq!(answer.status, 400, "{}", answer.text);
    (answer.error("param"), answer.error("message"))
}

/// Names and bytes of the pictures that the model was shown last.
fn shown(server: &TestServer) -> Vec<(String, Vec<u8>)> {
    let chats = server.model.chats.lock().unwrap();
    let messages: &[Message] = &chats.last().unwrap().0;
    let pictures = messages.iter().flat_map(Message::pictures);
    pictures.map(|picture| (picture.name.to_string(), picture.bytes.to_vec())).collect()
}

#[test]
fn a_data_url_is_shown_and_its_tokens_are_counted() {
    let server = seeing();
    let bytes = png(3, 2);
    let answer = ask(&server, image_url(&data_url(&bytes)));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(shown(&server), [("messages[0].content[0]".to_owned(), bytes)]);
    let text = "<user>What is it?".len();
    assert_eq!(answer.json()["usage"]["prompt_tokens"], text + PICTURE_IDS);
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "a fox");
    let body =
        json!({"messages": [{"role": "user", "content": [image_url(&data_url(&png(1, 1)))]}]});
    assert_eq!(server.post("/tokenize", &body).json()["count"], "<user>".len() + PICTURE_IDS);
    assert_eq!(server.post("/apply-template", &body).status, 200);
}

#[test]
fn base64_may_lack_its_padding_and_details_of_the_models_own_are_taken() {
    let server = seeing();
    let padded = data_url(&png(3, 2));
    let url = padded.trim_end_matches('=');
    for detail in [json!(null), json!("auto"), json!("high"), json!("original")] {
        let part = json!({"type": "image_url", "image_url": {"url": url, "detail": detail}});
        assert_eq!(ask(&server, part).status, 200);
    }
    // Many clients call every picture a JPEG.
    assert_eq!(ask(&server, image_url(&padded.replace("image/png", "image/jpeg"))).status, 200);
}

#[test]
fn conversations_with_pictures_are_classified_and_inspected() {
    let server = seeing();
    let bytes = png(3, 2);
    let content = json!([image_url(&data_url(&bytes)), {"type": "text", "text": "What?"}]);
    let messages = json!([{"role": "user", "content": content}]);
    let body = json!({"messages": messages, "labels": ["fox", "hen"]});
    let classified = server.post("/v1/classify", &body);
    assert_eq!(classified.status, 200, "{}", classified.text);
    assert_eq!(shown(&server), [("messages[0].content[0]".to_owned(), bytes)]);
    let tokens = "<user>What?".len() + PICTURE_IDS;
    assert_eq!(classified.json()["usage"]["prompt_tokens"], tokens);
    assert_eq!(classified.json()["data"][0]["label"], "fox");
    let inspected = server.post("/v1/inspect", &json!({"messages": messages}));
    assert_eq!(inspected.json()["seq_len"], tokens, "{}", inspected.text);

    let cut = json!([{"role": "user", "content": [image_url(&data_url(&png(3, 2)[..30]))]}]);
    for (path, other) in [("/v1/classify", "input"), ("/v1/inspect", "prompt")] {
        let bad = server.post(path, &json!({"messages": cut}));
        assert_eq!(bad.status, 400, "{path}");
        assert_eq!(bad.error("param"), "messages[0].content[0]", "{path}");
        let both = server.post(path, &json!({"messages": messages, other: "a"}));
        assert_eq!((both.status, both.error("param").as_str()), (400, "messages"), "{path}");
        let none = server.post(path, &json!({}));
        assert_eq!((none.status, none.error("param").as_str()), (400, other), "{path}");
        let alone = server.post(path, &json!({other: "a", "add_generation_prompt": true}));
        assert_eq!(alone.status, 400, "{path}: {}", alone.text);
    }
}

#[test]
fn what_is_no_picture_is_refused_and_the_part_is_named() {
    let server = seeing();
    let good = data_url(&png(3, 2));
    let url = "messages[0].content[0].image_url.url";
    let part = "messages[0].content[0]";
    for (given, param, reason) in [
        ("https://example.org/a.png", url, "the server fetches nothing"),
        ("http://127.0.0.1/a.png", url, "data:image/png;base64"),
        ("file:///etc/passwd", url, "--allowed-local-media-path"),
        ("fox.png", url, "data:image/"),
        ("data:image/png;base64", url, "no comma"),
        ("data:image/png,%89PNG", url, "base64 alone"),
        ("data:text/plain;base64,aGk=", url, "`text/plain`"),
        ("data:image/png;base64,a b", url, "not base64"),
        ("data:image/png;base64,", part, "empty"),
        ("data:image/png;base64,aGVsbG8=", part, "68 65 6c 6c 6f"),
        ("data:image/svg+xml;base64,PHN2Zy8+", part, "an SVG"),
        (&data_url(&png(101, 100)), part, "101 x 100"),
        (&data_url(&png(3, 2)[..30]), part, "the PNG cannot be decoded"),
        (&data_url(&vec![7; 100_100]), url, "at most 100000"),
    ] {
        let (found, message) = refused(&server, image_url(given));
        assert_eq!(found, param, "{given:.60}: {message}");
        assert!(message.contains(reason), "{given:.60}: {message}");
    }
    let low = json!({"type": "image_url", "image_url": {"url": good, "detail": "low"}});
    assert!(refused(&server, low).1.contains("scale the picture down"));
    let odd = json!({"type": "image_url", "image_url": {"url": good, "detail": "tiny"}});
    assert_eq!(refused(&server, odd).0, "messages[0].content[0].image_url.detail");
    let more = json!({"type": "image_url", "image_url": {"url": good, "x": 1}});
    assert_eq!(refused(&server, more).0, "messages[0].content[0].image_url.x");

    let three: Vec<Json> = (0..3).map(|_| image_url(&good)).collect();
    let answer = server.post(CHAT, &json!({"messages": [{"role": "user", "content": three}]}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "messages[0].content[2]"));
    let spoken = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": three}]);
    let answer = server.post(CHAT, &json!({"messages": spoken}));
    assert_eq!(answer.error("param"), "messages[1].content[0].type");
}

#[test]
fn a_model_that_does_not_see_says_so() {
    let capabilities = all_but(&[Feature::Images, Feature::Audio]);
    let fake = Fake { capabilities, ..Fake::default() };
    let server = TestServer::with(fake, |_| {});
    let (param, message) = refused(&server, image_url(&data_url(&png(1, 1))));
    assert_eq!(param, "messages[0].content[0].type");
    assert!(message.contains("is not supported"), "{message}");
    let model = server.get("/v1/models/fake").json();
    assert_eq!(model["input_modalities"], json!(["text"]));
    assert!(model["info"]["pictures"].is_null());
}

#[test]
fn a_model_that_sees_tells_its_limits() {
    let model = seeing().get("/v1/models/fake").json();
    assert_eq!(model["input_modalities"], json!(["text", "image"]));
    let pictures = &model["info"]["pictures"];
    assert_eq!(
        (&pictures["max_pixels"], &pictures["tokens"]["fixed"]),
        (&json!(10_000), &json!(4))
    );
    assert_eq!(model["capabilities"]["images"]["supported"], true);
}

#[test]
fn a_file_is_read_inside_of_the_operators_folder_alone() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("pictures");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a fox.png"), png(3, 2)).unwrap();
    fs::write(folder.join("large.png"), vec![0; 100_001]).unwrap();
    fs::write(root.path().join("secret.png"), png(3, 2)).unwrap();
    fs::write(root.path().join("pictures2.png"), png(3, 2)).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(root.path().join("secret.png"), folder.join("link.png")).unwrap();

    let fake = Fake::sees(limits());
    let allowed = folder.clone();
    let server = TestServer::with(fake, |config| config.local_media_path = Some(allowed));
    let url = |path: &str| image_url(&format!("file://{}/{path}", root.path().display()));
    assert_eq!(ask(&server, url("pictures/a%20fox.png")).status, 200);
    assert_eq!(shown(&server)[0].1, png(3, 2));
    let (_, message) = refused(&server, url("pictures/large.png"));
    assert!(message.contains("100001 bytes"), "{message}");
    let mut told = Vec::new();
    for path in [
        "secret.png",
        "pictures2.png",
        "pictures/../secret.png",
        "pictures/%2e%2e/secret.png",
        "pictures/link.png",
        "pictures/absent.png",
        "pictures",
        "pictures/a%00.png",
        "pictures/%zz.png",
    ] {
        let (param, message) = refused(&server, url(path));
        assert_eq!(param, "messages[0].content[0].image_url.url");
        told.push(message);
    }
    // Nothing tells what there is outside.
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(ask(&server, image_url("file://example.org/fox.png")).status, 400);
    assert_eq!(ask(&server, image_url("file:fox.png")).status, 400);
}

fn message(server: &TestServer, content: Json) -> Answer {
    let messages = json!([{"role": "user", "content": content}]);
    let body = json!({"model": "fake", "max_tokens": 9, "messages": messages});
    server.post(MESSAGES, &body)
}

fn source(media_type: &str, data: &str) -> Json {
    let source = json!({"type": "base64", "media_type": media_type, "data": data});
    json!({"type": "image", "source": source})
}

#[test]
fn anthropics_blocks_show_pictures_in_turns_and_in_results() {
    let server = seeing();
    let data = BASE64_STANDARD.encode(png(3, 2));
    let text = json!({"type": "text", "text": "What?"});
    let answer = message(&server, json!([source("image/png", &data), text]));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let usage = &answer.json()["usage"];
    let tokens = |name: &str| usage[name].as_u64().unwrap() as usize;
    let counted = tokens("input_tokens") + tokens("cache_read_input_tokens");
    assert_eq!(counted, "<user>What?".len() + PICTURE_IDS);
    assert_eq!(shown(&server)[0].0, "messages[0].content[0]");

    let result = json!({"type": "tool_result", "tool_use_id": "1",
        "content": [{"type": "text", "text": "here"}, source("image/png", &data)]});
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        {"role": "user", "content": [result]},
    ]);
    let body = json!({"model": "fake", "max_tokens": 9, "messages": messages});
    assert_eq!(server.post(MESSAGES, &body).status, 200);
    assert_eq!(shown(&server)[0].0, "messages[2].content[0].content[1]");

    let url = json!({"type": "image", "source": {"type": "url", "url": data_url(&png(1, 1))}});
    assert_eq!(message(&server, json!([url])).status, 200);
}

#[test]
fn anthropics_bad_blocks_are_named() {
    let server = seeing();
    let data = BASE64_STANDARD.encode(png(3, 2));
    // Encoders may break lines.
    let (first, rest) = data.split_at(16);
    let answer = message(&server, json!([source("image/png", &format!("{first}\r\n{rest}\n"))]));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let web = json!({"type": "url", "url": "https://example.org/a.png"});
    for (block, told) in [
        (
            source("image/jpeg", &data),
            "`messages[0].content[0].source.media_type`: is `image/jpeg`",
        ),
        (source("image/png", "aGVsbG8="), "`messages[0].content[0]`: the picture is of an unknown"),
        (source("image/png", "a b"), "`messages[0].content[0].source.data`: not base64"),
        (json!({"type": "image", "source": web}), "the server fetches nothing"),
        (json!({"type": "image", "source": {"type": "file", "file_id": "1"}}), "source.type"),
        (json!({"type": "image"}), "`messages[0].content[0].source`: is missing"),
    ] {
        let answer = message(&server, json!([block]));
        assert_eq!(answer.status, 400, "{}", answer.text);
        let text = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn responses_show_pictures_and_keep_them() {
    let server = seeing();
    let image = json!({"type": "input_image", "image_url": data_url(&png(3, 2)), "detail": "auto"});
    let text = json!({"type": "input_text", "text": "What?"});
    let ask = |input: Json, more: Json| {
        let mut body = json!({"model": "fake", "input": input});
        crate::merge(&mut body, more);
        server.post("/v1/responses", &body)
    };
    let first = ask(json!([{"role": "user", "content": [text, image]}]), json!({}));
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(shown(&server)[0].0, "input[0].content[1]");
    let next = json!({"previous_response_id": first.json()["id"]});
    let second = ask(json!("And now?"), next);
    assert_eq!(second.status, 200, "{}", second.text);
    assert_eq!(shown(&server).len(), 1);
    for (part, param) in [
        (json!({"type": "input_image", "file_id": "1"}), "input[0].content[0].file_id"),
        (json!({"type": "input_image", "detail": "low"}), "input[0].content[0].detail"),
        (json!({"type": "input_image"}), "input[0].content[0].image_url"),
        (json!({"type": "input_file"}), "input[0].content[0].type"),
    ] {
        let answer = ask(json!([{"role": "user", "content": [part]}]), json!({}));
        assert_eq!((answer.status, answer.error("param").as_str()), (400, param));
    }
}
