//! Google's protocol: answers whole, in events and in an array, with calls, formats and errors of
//! their own.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};
use fake_model::FakeModel as Fake;
use inference_core::{Constraint, Role};
use inference_server::ApiKey;
use serde_json::{Value as Json, json};

use crate::client::{Answer, Client};
use crate::{TestServer, merge, server_that_says as server};

const GENERATE: &str = "/v1beta/models/fake:generateContent";
const STREAM: &str = "/v1beta/models/fake:streamGenerateContent";
const COUNT: &str = "/v1beta/models/fake:countTokens";
const JSON: (&str, &str) = ("content-type", "application/json");

const CALL: &[&str] = &[
    "<think>",
    "hm",
    "</think>\n\n",
    "One moment.",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\"",
    ": 1}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
];

fn tools() -> Json {
    json!([{"functionDeclarations": [
        {"name": "f", "description": "does", "parameters":
            {"type": "OBJECT", "properties": {"x": {"type": "INTEGER", "nullable": true}}}},
        {"name": "g", "parametersJsonSchema": {"type": "object", "properties": {}}},
    ]}])
}

fn body(more: Json) -> Json {
    let mut body = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
    merge(&mut body, more);
    body
}

fn ask(server: &TestServer, more: Json) -> Answer {
    server.post(GENERATE, &body(more))
}

/// The error's code, status and field.
fn error(answer: &Answer) -> (u16, String, String) {
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], answer.status, "{}", answer.text);
    assert!(error["message"].is_string(), "{}", answer.text);
    let field = &error["details"][0]["fieldViolations"][0]["field"];
    let field = field.as_str().unwrap_or_default().to_owned();
    (answer.status, error["status"].as_str().unwrap().to_owned(), field)
}

fn events(answer: &Answer) -> Vec<Json> {
    answer.events().iter().map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The parts of all pieces; texts of one kind that follow each other are one, and ids are left out.
fn collected(pieces: &[Json]) -> Vec<Json> {
    let mut parts: Vec<Json> = Vec::new();
    for part in pieces.iter().flat_map(|piece| {
        piece["candidates"][0]["content"]["parts"].as_array().expect("parts").clone()
    }) {
        let mut part = part;
        if let Some(call) = part["functionCall"].as_object_mut() {
            assert!(call.remove("id").is_some_and(|id| id.is_string()));
        }
        match parts.last_mut() {
            Some(last)
                if last["text"].is_string()
                    && part["text"].is_string()
                    && last["thought"] == part["thought"] =>
            {
                let whole =
                    format!("{}{}", last["text"].as_str().unwrap(), part["text"].as_str().unwrap());
                last["text"] = json!(whole);
            }
            _ => {
                if let Some(fields) = part.as_object_mut() {
                    fields.retain(|_, value| !value.is_null());
                }
                parts.push(part);
            }
        }
    }
    parts
}

#[test]
fn an_answer_is_given_whole() {
    let server = TestServer::start();
    let config = json!({"temperature": 0.5, "topK": 3, "top_p": 0.9, "seed": 7, "maxOutputTokens": 100,
        "stopSequences": ["z"], "presencePenalty": 0.1, "frequencyPenalty": 0.2, "candidateCount": 1});
    let json = ask(&server, json!({"generationConfig": config})).json();
    let candidate = &json["candidates"][0];
    assert_eq!(candidate["content"], json!({"parts": [{"text": "The fox ran."}], "role": "model"}));
    assert_eq!((&candidate["finishReason"], &candidate["index"]), (&json!("STOP"), &json!(0)));
    // The fake's prompt is `<user>hi`, of which one token was cached.
    let usage = json!({"promptTokenCount": 8, "candidatesTokenCount": 4, "totalTokenCount": 12,
        "cachedContentTokenCount": 1});
    assert_eq!(json["usageMetadata"], usage);
    assert_eq!(json["modelVersion"], "fake");
    assert!(json["responseId"].as_str().unwrap().starts_with("gen_"));
    let options = server.model.options.lock().unwrap()[0].clone();
    assert_eq!(
        (options.temperature, options.top_k, options.top_p),
        (Some(0.5), Some(3), Some(0.9))
    );
    assert_eq!((options.seed, options.stop), (Some(7), vec!["z".to_owned()]));
    assert_eq!((options.presence_penalty, options.frequency_penalty), (Some(0.1), Some(0.2)));
    let short = ask(&server, json!({"generation_config": {"max_output_tokens": 2}})).json();
    assert_eq!(short["candidates"][0]["finishReason"], "MAX_TOKENS");
    for path in ["/v1/models/fake:generateContent", "/models/fake:generateContent"] {
        assert_eq!(server.post(path, &body(json!({}))).status, 200, "{path}");
    }
}

#[test]
fn thoughts_text_and_calls_are_parts_whole_in_events_and_in_an_array() {
    let server = server(CALL);
    let thinking = json!({"thinkingConfig": {"includeThoughts": true}});
    let more = json!({"tools": tools(), "generationConfig": thinking});
    let whole = ask(&server, more.clone()).json();
    let parts = collected(std::slice::from_ref(&whole));
    assert_eq!(parts[0], json!({"text": "hm", "thought": true}));
    let calls = [json!({"name": "f", "args": {"x": 1}}), json!({"name": "g", "args": {}})];
    let calls = calls.map(|call| json!({"functionCall": call}));
    assert_eq!(parts[1..], [&[json!({"text": "One moment."})], &calls[..]].concat());
    assert_eq!(whole["candidates"][0]["finishReason"], "STOP");
    assert!(whole["usageMetadata"]["thoughtsTokenCount"].as_u64().unwrap() > 0);
    let definition = server.model.chats.lock().unwrap().last().unwrap().1.tools[0].clone();
    let kinds = definition.get("function").and_then(|f| f.get("parameters")).unwrap();
    let kinds = kinds.get("properties").and_then(|p| p.get("x")).unwrap();
    assert_eq!(inference_text::json::from_value(kinds), json!({"type": ["integer", "null"]}));

    let streamed = server.post(&format!("{STREAM}?alt=sse"), &body(more.clone()));
    let streamed = events(&streamed);
    let array = server.post(STREAM, &body(more));
    assert_eq!(array.header("content-type"), Some("application/json"));
    let array = array.json().as_array().unwrap().clone();
    for pieces in [&streamed, &array] {
        assert!(pieces.len() > 2);
        assert_eq!(collected(pieces), parts);
        let (last, others) = pieces.split_last().unwrap();
        assert_eq!(last["candidates"][0]["finishReason"], "STOP");
        assert_eq!(last["usageMetadata"], whole["usageMetadata"]);
        assert!(others.iter().all(|one| one["candidates"][0]["finishReason"].is_null()));
        assert!(pieces.iter().all(|one| one["responseId"] == last["responseId"]));
    }
}

#[test]
fn thoughts_are_told_where_they_are_asked_for() {
    let server = server(CALL);
    let parts = collected(&[ask(&server, json!({"tools": tools()})).json()]);
    assert_eq!(parts[0], json!({"text": "One moment."}));
    let variables = |config: Json| {
        let answer = ask(&server, json!({"generationConfig": {"thinkingConfig": config}}));
        assert_eq!(answer.status, 200, "{}", answer.text);
        server.model.chats.lock().unwrap().last().unwrap().1.template_kwargs.clone()
    };
    let think = |on: bool| vec![("enable_thinking".to_owned(), on.into())];
    assert_eq!(variables(json!({"thinkingBudget": 0})), think(false));
    assert_eq!(variables(json!({"thinkingBudget": 512})), think(true));
    assert_eq!(variables(json!({"thinkingBudget": -1})), []);
    assert_eq!(variables(json!({"thinking_level": "LOW"})), think(true));
    for (config, field) in [
        (json!({"thinkingBudget": -2}), "thinkingBudget"),
        (json!({"thinkingLevel": "much"}), "thinkingLevel"),
        (json!({"thinkingLevel": "LOW", "thinkingBudget": 1}), "thinkingLevel"),
        (json!({"includeThoughts": 1}), "includeThoughts"),
    ] {
        let answer = ask(&server, json!({"generationConfig": {"thinkingConfig": config}}));
        assert_eq!(error(&answer).2, format!("generationConfig.thinkingConfig.{field}"));
    }
}

#[test]
fn contents_become_turns() {
    let server = server(&["a"]);
    let answer = ask(
        &server,
        json!({
            "system_instruction": {"parts": {"text": "be brief"}},
            "contents": [
                {"parts": {"text": "hi"}},
                // A client keeps the pieces of a stream as they came.
                {"role": "model", "parts": [{"text": "h", "thought": true}, {"text": "m", "thought": true}]},
                {"role": "model", "parts": [{"text": "One mo"}]},
                {"role": "model", "parts": [{"text": "ment.", "thoughtSignature": "AAAA"}]},
                {"role": "model", "parts": [
                    {"functionCall": {"name": "f", "args": {"x": 1}}},
                    {"functionCall": {"id": "second", "name": "f"}},
                ]},
                {"role": "user", "parts": [
                    {"text": "there"},
                    {"functionResponse": {"id": "second", "name": "f", "response": {"error": "no"}}},
                    {"function_response": {"name": "f", "response": {"output": {"a": 1}}}},
                ]},
            ],
        }),
    );
    assert_eq!(answer.status, 200, "{}", answer.text);
    let messages = server.model.chats.lock().unwrap().last().unwrap().0.clone();
    let roles: Vec<_> = messages.iter().map(|message| message.role.clone()).collect();
    let expected = [Role::System, Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::User];
    assert_eq!(roles, expected);
    assert_eq!(messages[2].content.as_str(), Some("One moment."));
    let thought = messages[2].fields.iter().find(|(name, _)| name == "reasoning_content");
    assert_eq!(thought.and_then(|(_, value)| value.as_str()), Some("hm"));
    let results: Vec<_> =
        [3, 4].map(|at| messages[at].content.as_str().unwrap_or_default().to_owned()).into();
    assert!(results.contains(&"Error: no".to_owned()), "{results:?}");
    assert!(results.contains(&"{\"a\":1}".to_owned()), "{results:?}");
}

#[test]
fn calls_are_those_that_the_mode_allows() {
    let server = server(&["a"]);
    let held = |calling: Json| {
        let config = json!({"functionCallingConfig": calling});
        let answer = ask(&server, json!({"tools": tools(), "toolConfig": config}));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let options = server.model.options.lock().unwrap().last().unwrap().clone();
        let chat = server.model.chats.lock().unwrap().last().unwrap().1.clone();
        (chat.tools.len(), options.constraint.is_some())
    };
    assert_eq!(held(json!({"mode": "AUTO"})), (2, false));
    assert_eq!(held(json!({"mode": "ANY"})), (2, true));
    assert_eq!(held(json!({"mode": "ANY", "allowedFunctionNames": ["g"]})), (1, true));
    assert_eq!(held(json!({"mode": "VALIDATED"})), (2, true));
    assert_eq!(held(json!({"mode": "NONE"})), (0, false));
    for (calling, field) in [
        (json!({"mode": "SOME"}), "mode"),
        (json!({"mode": "ANY", "allowedFunctionNames": ["h"]}), "allowedFunctionNames[0]"),
        (json!({"allowedFunctionNames": ["f"]}), "allowedFunctionNames"),
    ] {
        let config = json!({"functionCallingConfig": calling});
        let answer = ask(&server, json!({"tools": tools(), "toolConfig": config}));
        let (status, word, param) = error(&answer);
        assert_eq!((status, word.as_str()), (400, "INVALID_ARGUMENT"));
        assert_eq!(param, format!("toolConfig.functionCallingConfig.{field}"));
    }
}

#[test]
fn an_answer_holds_to_a_schema() {
    let server = TestServer::start();
    let constraint = |config: Json| {
        let answer = ask(&server, json!({"generationConfig": config}));
        assert_eq!(answer.status, 200, "{}", answer.text);
        server.model.options.lock().unwrap().last().unwrap().constraint.clone()
    };
    let schema = |constraint: Option<Constraint>| match constraint {
        Some(Constraint::JsonSchema(schema)) => inference_text::json::from_value(&schema),
        other => panic!("{other:?}"),
    };
    let json_type = "application/json";
    let plain = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let google = json!({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}});
    let given = json!({"responseMimeType": json_type, "responseSchema": google});
    assert_eq!(schema(constraint(given)), plain);
    assert_eq!(schema(constraint(json!({"responseJsonSchema": plain}))), plain);
    let object = constraint(json!({"responseMimeType": json_type}));
    assert_eq!(schema(object), json!({"type": "object"}));
    let choices = json!({"type": "STRING", "enum": ["a", "b."]});
    let given = json!({"responseMimeType": "text/x.enum", "responseSchema": choices});
    let Some(Constraint::Lark(text)) = constraint(given) else { panic!("an expression") };
    assert!(text.contains("/a|b\\./"), "{text}");
    assert_eq!(constraint(json!({"responseMimeType": "text/plain"})), None);
    for (config, field) in [
        (json!({"responseMimeType": "text/plain", "responseSchema": google}), "responseSchema"),
        (json!({"responseMimeType": "text/x.enum"}), "responseMimeType"),
        (json!({"responseSchema": google, "responseJsonSchema": plain}), "responseSchema"),
        (json!({"responseSchema": {"type": "TEXT"}}), "responseSchema.type"),
        (json!({"responseMimeType": "text/html"}), "responseMimeType"),
    ] {
        let answer = ask(&server, json!({"generationConfig": config}));
        assert_eq!(error(&answer).2, format!("generationConfig.{field}"));
    }
}

#[test]
fn log_probabilities_are_those_of_each_token() {
    let server = TestServer::start();
    let config = json!({"generationConfig": {"responseLogprobs": true, "logprobs": 2}});
    let whole = ask(&server, config.clone()).json()["candidates"][0].clone();
    let chosen = whole["logprobsResult"]["chosenCandidates"].as_array().unwrap().clone();
    let top = whole["logprobsResult"]["topCandidates"].as_array().unwrap().clone();
    assert_eq!((chosen.len(), top.len()), (4, 4));
    assert!(chosen[0]["token"].is_string() && chosen[0]["logProbability"].is_number());
    assert_eq!(top[0]["candidates"].as_array().unwrap().len(), 2);
    assert!(whole["avgLogprobs"].is_number());
    let streamed = events(&server.post(&format!("{STREAM}?alt=sse"), &body(config)));
    let told: Vec<Json> = streamed
        .iter()
        .flat_map(|piece| {
            let told = &piece["candidates"][0]["logprobsResult"]["chosenCandidates"];
            told.as_array().cloned().unwrap_or_default()
        })
        .collect();
    assert_eq!(told, chosen);
    let alone = ask(&server, json!({"generationConfig": {"logprobs": 2}}));
    assert_eq!(error(&alone).2, "generationConfig.logprobs");
}

#[test]
fn pictures_come_in_both_kinds_of_base64() {
    let server = TestServer::with(Fake::sees(crate::pictures::limits()), |_| {});
    let bytes = crate::pictures::png(3, 2);
    for data in [BASE64_STANDARD.encode(&bytes), BASE64_URL_SAFE.encode(&bytes)] {
        let part = json!({"inlineData": {"mimeType": "image/png", "data": data}});
        let contents = json!([{"parts": [{"text": "look"}, part]}]);
        let answer = ask(&server, json!({"contents": contents}));
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let sound = json!([{"parts": [{"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}]}]);
    let refused = ask(&server, json!({"contents": sound}));
    assert_eq!(error(&refused).2, "contents[0].parts[0].inlineData.mimeType");
    let file = json!([{"parts": [{"fileData": {"fileUri": "https://a/b"}}]}]);
    let refused = ask(&server, json!({"contents": file}));
    assert_eq!(error(&refused).2, "contents[0].parts[0].fileData.fileUri");
}

#[test]
fn tokens_are_counted() {
    let server = TestServer::start();
    let count = server.post(COUNT, &body(json!({})));
    assert_eq!(count.json(), json!({"totalTokens": 8}), "{}", count.text);
    let mut request = body(json!({"generationConfig": {"topK": 1}}));
    request["model"] = json!("models/fake");
    let whole = server.post(COUNT, &json!({"generateContentRequest": request}));
    assert_eq!(whole.json(), json!({"totalTokens": 8}), "{}", whole.text);
    let none = server.post(COUNT, &json!({}));
    assert_eq!(error(&none).2, "contents");
    let other = server.post(COUNT, &body(json!({"model": "models/other"})));
    assert_eq!(error(&other).2, "model");
}

#[test]
fn models_are_listed_in_pages() {
    let server = TestServer::start();
    let list = server.get("/v1beta/models?pageSize=50").json();
    assert_eq!(list["models"][0]["name"], "models/fake");
    assert!(list["models"][0]["inputTokenLimit"].as_u64().unwrap() > 0);
    assert!(list["nextPageToken"].is_null());
    assert_eq!(server.get("/v1beta/models/fake").json(), list["models"][0]);
    for path in ["/v1/models", "/v1/models/fake"] {
        let headers = [("x-goog-api-client", "google-genai-sdk/1")];
        let answer = Client::connect(server.address).request("GET", path, &headers, "").json();
        let model = if path.ends_with("fake") { &answer } else { &answer["models"][0] };
        assert_eq!(*model, list["models"][0], "{path}");
    }
    let rest = server.get("/v1beta/models?pageToken=fake").json();
    assert_eq!(rest["models"], json!([]));
    for query in ["pageSize=0", "pageToken=other"] {
        let answer = server.get(&format!("/v1beta/models?{query}"));
        assert_eq!(error(&answer).2, query.split('=').next().unwrap());
    }
}

#[test]
fn errors_are_googles_on_its_paths() {
    let server = TestServer::start();
    let status = |answer: &Answer| error(answer).1;
    let missing = server.post("/v1/models/other:generateContent", &body(json!({})));
    assert_eq!((missing.status, status(&missing).as_str()), (404, "NOT_FOUND"));
    let missing = server.post("/v1beta/models/fake:embedContent", &body(json!({})));
    assert_eq!((missing.status, status(&missing).as_str()), (404, "NOT_FOUND"));
    assert!(missing.text.contains("/v1beta/models/"), "{}", missing.text);
    let method = server.get(GENERATE);
    assert_eq!((method.status, status(&method).as_str()), (405, "UNIMPLEMENTED"));
    assert_eq!(method.header("allow"), Some("POST"));
    assert_eq!(server.post("/v1beta/models/fake", &json!({})).status, 405);
    let failing =
        Fake { failure: Some(inference_core::Error::Engine("lost".into())), ..Fake::default() };
    let failing = TestServer::with(failing, |_| {});
    let array = failing.post(STREAM, &body(json!({})));
    let pieces = match array.status {
        200 => array.json().as_array().unwrap().clone(),
        _ => vec![array.json()],
    };
    assert_eq!(pieces.last().unwrap()["error"]["status"], "INTERNAL", "{}", array.text);
    for (more, field) in [
        (json!({"contents": []}), "contents"),
        (json!({"contents": [{"role": "system", "parts": []}]}), "contents[0].role"),
        (json!({"contents": [{"parts": [{}]}]}), "contents[0].parts[0]"),
        (
            json!({"contents": [{"parts": [{"text": "a", "functionCall": {}}]}]}),
            "contents[0].parts[0]",
        ),
        (
            json!({"contents": [{"parts": [{"functionResponse": {"name": "f"}}]}]}),
            "contents[0].parts[0].functionResponse.name",
        ),
        (json!({"contents": [{"role": "model", "parts": []}]}), "contents"),
        (json!({"generationConfig": {"candidateCount": 2}}), "generationConfig.candidateCount"),
        (json!({"generationConfig": {"topP": 2}}), "generationConfig.topP"),
        (json!({"generationConfig": {"topP": 1, "top_p": 1}}), "generationConfig.topP"),
        (
            json!({"generationConfig": {"responseModalities": ["AUDIO"]}}),
            "generationConfig.responseModalities",
        ),
        (json!({"cachedContent": "cachedContents/a"}), "cachedContent"),
        (
            json!({"tools": [{"functionDeclarations": [{"name": "a b"}]}]}),
            "tools[0].functionDeclarations[0].name",
        ),
        (json!({"tools": [{"magic": {"a": 1}}]}), "tools[0].magic"),
        (json!({"systemInstruction": 1}), "systemInstruction"),
        (json!({"x": 1}), "x"),
    ] {
        let answer = ask(&server, more.clone());
        let (code, word, param) = error(&answer);
        assert_eq!(
            (code, word.as_str(), param.as_str()),
            (400, "INVALID_ARGUMENT", field),
            "{more}"
        );
    }
    let query = server.post(&format!("{STREAM}?alt=proto"), &body(json!({})));
    assert_eq!(error(&query).2, "alt");
}

#[test]
fn what_changes_no_answer_is_told() {
    let more = json!({
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "labels": {"a": "b"},
        "cachedContent": "",
        "tools": [{"googleSearch": {}}, {"codeExecution": {}, "url_context": {}}],
    });
    let answer = ask(&server(&["a"]), more.clone());
    assert_eq!(answer.status, 200, "{}", answer.text);
    let told: Vec<_> = answer.header("x-ml-ignored").unwrap().split(", ").collect();
    for name in [
        "safetySettings",
        "labels",
        "tools[].googleSearch",
        "tools[].codeExecution",
        "tools[].urlContext",
    ] {
        assert!(told.contains(&name), "{name}: {told:?}");
    }
    let strict = TestServer::with(Fake::default(), |config| config.strict_fields = true);
    let refused = ask(&strict, json!({"tools": [{"googleSearch": {}}]}));
    assert_eq!(error(&refused).2, "tools[0].googleSearch");
}

#[test]
fn a_key_comes_in_googles_header_or_in_the_query() {
    let server = TestServer::with(Fake::default(), |config| {
        config.keys = ApiKey::new("one").into_iter().collect();
    });
    let post = |query: &str, header: Option<&str>| {
        let mut headers = vec![JSON];
        headers.extend(header.map(|key| ("x-goog-api-key", key)));
        let path = format!("{GENERATE}{query}");
        Client::connect(server.address).request(
            "POST",
            &path,
            &headers,
            &body(json!({})).to_string(),
        )
    };
    assert_eq!(post("", Some("one")).status, 200);
    assert_eq!(post("?key=one", None).status, 200);
    for (query, header) in [
        ("", None),
        ("?key=two", None),
        ("", Some("two")),
        ("?key=two", Some("one")),
        ("?key=", None),
    ] {
        let answer = post(query, header);
        let (status, word, _) = error(&answer);
        assert_eq!((status, word.as_str()), (401, "UNAUTHENTICATED"), "{query} {header:?}");
    }
}
