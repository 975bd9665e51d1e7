//! Responses that are kept: gone on from, told again, listed and forgotten.

use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::client::{Answer, Client};
use crate::responses::{PATH, ask};
use crate::server_that_says as server;
use fake_model::FakeModel as Fake;

fn request(server: &TestServer, method: &str, path: &str) -> Answer {
    Client::connect(server.address).request(method, path, &[], "")
}

fn id(response: &Json) -> String {
    response["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_request_goes_on_from_a_response() {
    let server = server(&["The", " fox"]);
    let more = json!({"input": "one", "instructions": "Be kind.", "stream": true});
    let events = ask(&server, more).events();
    let last: Json = serde_json::from_str(events.last().unwrap()).unwrap();
    let first = id(&last["response"]);
    let more = json!({"input": "two", "previous_response_id": first});
    let second = ask(&server, more).json();
    assert_eq!(second["previous_response_id"], json!(first));
    let texts = |expected: &[(&str, &str)]| {
        let messages = server.model.last_messages();
        let found: Vec<_> = messages.iter().map(|(r, t)| (r.as_str(), t.as_str())).collect();
        assert_eq!(found, expected, "instructions are not carried over");
    };
    texts(&[("user", "one"), ("assistant", "The fox"), ("user", "two")]);
    let more = json!({"input": "three", "previous_response_id": id(&second)});
    assert_eq!(ask(&server, more).status, 200);
    assert_eq!(server.model.messages().pop().unwrap().len(), 5);
    // The first one is not needed for it.
    assert_eq!(request(&server, "DELETE", &format!("{PATH}/{first}")).status, 200);
    let more = json!({"input": "three", "previous_response_id": id(&second)});
    assert_eq!(ask(&server, more).status, 200);
    let answer = ask(&server, json!({"previous_response_id": first}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "previous_response_id"));
}

#[test]
fn a_response_is_told_again_and_forgotten() {
    let server = TestServer::start();
    let response = ask(&server, json!({"metadata": {"a": "b"}})).json();
    let path = format!("{PATH}/{}", id(&response));
    assert_eq!(server.get(&path).json(), response);
    assert_eq!(server.get(&format!("{path}?stream=false")).status, 200);
    assert_eq!(server.get(&format!("{path}?stream=true")).error("param"), "stream");
    assert_eq!(server.get(&format!("{path}?x=1")).error("param"), "x");
    let cancelled = request(&server, "POST", &format!("{path}/cancel"));
    assert_eq!(cancelled.status, 400, "{}", cancelled.text);
    let gone = request(&server, "DELETE", &path).json();
    assert_eq!(gone, json!({"id": id(&response), "object": "response", "deleted": true}));
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("POST", format!("{path}/cancel")),
        ("GET", format!("{path}/input_items")),
    ] {
        let answer = request(&server, method, &path);
        assert_eq!((answer.status, answer.error("code").as_str()), (404, "not_stored"), "{path}");
    }
    let answer = request(&server, "PUT", &path);
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD, DELETE")));
}

#[test]
fn items_are_listed_in_pages() {
    let server = TestServer::start();
    let items: Vec<_> =
        (0..5).map(|i| json!({"id": format!("m{i}"), "role": "user", "content": "a"})).collect();
    let response = ask(&server, json!({"input": items})).json();
    let path = format!("{PATH}/{}/input_items", id(&response));
    let page = |query: &str| {
        let list = server.get(&format!("{path}{query}")).json();
        let ids = list["data"].as_array().unwrap().iter();
        let ids: Vec<_> = ids.map(|item| item["id"].as_str().unwrap().to_owned()).collect();
        (ids, list["has_more"].as_bool().unwrap())
    };
    assert_eq!(page("").0, ["m4", "m3", "m2", "m1", "m0"]);
    assert_eq!(page("?limit=2"), (vec!["m4".to_owned(), "m3".to_owned()], true));
    assert_eq!(page("?order=asc&after=m3"), (vec!["m4".to_owned()], false));
    assert_eq!(page("?order=asc&limit=5").0.len(), 5);
    for (query, param) in [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("order=up", "order"),
        ("after=x", "after"),
        ("limit=1&limit=2", "limit"),
    ] {
        let answer = server.get(&format!("{path}?{query}"));
        assert_eq!((answer.status, answer.error("param").as_str()), (400, param));
    }
    let item = &server.get(&path).json()["data"][0];
    assert_eq!(item["type"], "message");
    assert_eq!(item["content"], json!([{"type": "input_text", "text": "a"}]));
    // A later request may point at it.
    let more = json!({"input": [{"type": "item_reference", "id": "m0"}]});
    assert_eq!(ask(&server, more).status, 200);
    assert_eq!(server.model.last_messages(), [("user".to_owned(), "a".to_owned())]);
}

#[test]
fn what_is_kept_is_bounded_and_can_be_nothing() {
    let server = TestServer::with(Fake::default(), |config| config.limits.stored_responses = 2);
    let ids: Vec<_> = (0..3).map(|_| id(&ask(&server, json!({})).json())).collect();
    let status = |id: &String| server.get(&format!("{PATH}/{id}")).status;
    assert_eq!(ids.iter().map(status).collect::<Vec<_>>(), [404, 200, 200]);
    let response = ask(&server, json!({"store": false})).json();
    assert_eq!((status(&id(&response)), &response["store"]), (404, &json!(false)));
    assert_eq!(status(&ids[1]), 200, "nothing gave way to it");

    let server = TestServer::with(Fake::default(), |config| config.limits.stored_responses = 0);
    let response = ask(&server, json!({})).json();
    assert_eq!(response["store"], false);
    let answer = ask(&server, json!({"store": true}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "store"));
}

#[test]
fn tokens_are_counted() {
    let server = TestServer::start();
    let count = server.post(&format!("{PATH}/input_tokens"), &json!({"input": "hi"})).json();
    // The fake's prompt is `<user>hi`.
    assert_eq!(count, json!({"object": "response.input_tokens", "input_tokens": 8}));
    let whole = ask(&server, json!({})).json();
    assert_eq!(whole["usage"]["input_tokens"], count["input_tokens"]);
}
