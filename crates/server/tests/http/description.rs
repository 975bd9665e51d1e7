//! `/openapi.json` is true, and the documentation names every field.

use serde_json::Value as Json;

use fake_model::FakeModel as Fake;
use inference_server::Batches;

use crate::TestServer;
use crate::client::Client;

fn document() -> Json {
    TestServer::start().get("/openapi.json").json()
}

#[test]
fn every_path_and_method_of_the_description_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let batches = Batches::new(folder.path().to_owned());
    let server = TestServer::with(Fake::default(), |config| config.batches = Some(batches));
    let document = document();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let is_stored = path.contains("{id}");
        let path = path.replace("{model}", "fake").replace("{id}", "resp_0");
        for method in ["get", "post", "delete"] {
            let name = method.to_uppercase();
            let headers = [("content-type", "application/json")];
            let answer = Client::connect(server.address).request(&name, &path, &headers, "");
            let described = methods.get(method).is_some();
            assert_eq!(answer.status != 405, described, "{method} {path}: {}", answer.status);
            assert_eq!(answer.status == 404, is_stored && described, "{method} {path}");
        }
    }
}

#[test]
fn references_lead_somewhere() {
    fn references<'a>(json: &'a Json, found: &mut Vec<&'a str>) {
        match json {
            Json::Array(items) => items.iter().for_each(|item| references(item, found)),
            Json::Object(fields) => fields.iter().for_each(|(name, value)| match value {
                Json::String(text) if name == "$ref" => found.push(text),
                value => references(value, found),
            }),
            _ => {}
        }
    }
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 100);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn the_documentation_names_every_field_and_endpoint() {
    let text = include_str!("../../../../docs/server.md");
    let document = document();
    for (path, methods) in document["paths"].as_object().unwrap() {
        assert!(text.contains(path.as_str()), "{path} is not documented");
        let schema = "/post/requestBody/content/application~1json/schema/properties";
        for field in methods.pointer(schema).and_then(Json::as_object).into_iter().flatten() {
            assert!(text.contains(&format!("`{}`", field.0)), "{path}: `{}`", field.0);
        }
    }
}

#[test]
fn the_description_says_which_fields_a_request_cannot_be_without() {
    let document = document();
    let schema = |path: &str| {
        document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
            .clone()
    };
    assert_eq!(schema("/apply-template")["required"], serde_json::json!(["messages"]));
    let one_of = schema("/tokenize")["oneOf"].clone();
    let names: Vec<_> = one_of.as_array().unwrap().iter().map(|one| &one["required"][0]).collect();
    assert_eq!(names, ["prompt", "content", "messages"]);
    let server = TestServer::start();
    for (path, body) in [("/apply-template", "{}"), ("/tokenize", "{}")] {
        let headers = [("content-type", "application/json")];
        let answer = Client::connect(server.address).request("POST", path, &headers, body);
        assert_eq!(answer.status, 400, "{path}");
    }
    let both = r#"{"prompt": "a", "messages": null}"#;
    let headers = [("content-type", "application/json")];
    let answer = Client::connect(server.address).request("POST", "/tokenize", &headers, both);
    assert_eq!(answer.status, 200, "{}", answer.text);
}
