//! Instructions that are not the first message.

use fake_model::FakeModel as Fake;
use serde_json::{Value as Json, json};

use crate::{TestServer, merge};

#[test]
fn instructions_that_a_template_leaves_out_are_moved_to_the_beginning() {
    let drops = Fake { drops_instructions: true, ..Fake::default() };
    let server = TestServer::with(drops, |_| {});
    let messages = json!([
        {"role": "system", "content": "first"},
        {"role": "user", "content": "a"},
        {"role": "system", "content": "later"},
        {"role": "user", "content": "b"},
    ]);
    let body = |more: Json| {
        let mut body = json!({"max_tokens": 8, "model": "fake"});
        merge(&mut body, more);
        body
    };
    for (path, more) in [
        ("/v1/chat/completions", json!({"messages": messages})),
        ("/v1/responses", json!({"input": messages, "max_tokens": null})),
        ("/v1/messages", json!({"messages": messages})),
        ("/api/chat", json!({"messages": messages, "max_tokens": null})),
        ("/v1/messages/count_tokens", json!({"messages": messages, "max_tokens": null})),
    ] {
        let answer = server.post(path, &without_nulls(body(more)));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let chats = server.model.chats.lock().unwrap();
        let read = |m: &inference_core::Message| {
            format!("{}: {}", m.role, m.content.as_str().unwrap_or_default())
        };
        let seen: Vec<_> = chats.last().unwrap().0.iter().map(read).collect();
        assert_eq!(seen, ["system: first\n\nlater", "user: a", "user: b"], "{path}");
    }
}

fn without_nulls(mut body: Json) -> Json {
    body.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    body
}
