//! `/v1/embeddings` and `/v1/rerank`, on a model whose vectors tell what it was asked.

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fake_model::FakeModel as Fake;
use inference_core::{
    EmbedInput, EmbedOptions, EmbeddingModel, EmbeddingModelInfo, Embeddings, Error, PairScores,
    Result, ScoreOptions, TextPair, Truncate,
};
use inference_server::EmbeddingService;
use serde_json::{Value as Json, json};

use crate::TestServer;

/// Vectors are the lengths of texts; logits those of documents.
#[derive(Default)]
struct Lengths {
    info: EmbeddingModelInfo,
    asked: Mutex<Vec<EmbedOptions>>,
    scored: Mutex<Vec<(Vec<TextPair>, ScoreOptions)>>,
}

impl EmbeddingModel for Lengths {
    fn info(&self) -> &EmbeddingModelInfo {
        &self.info
    }

    fn embed(&self, inputs: &[EmbedInput], options: &EmbedOptions) -> Result<Embeddings> {
        options.validate()?;
        self.info.prompt(options)?;
        let length = |input: &EmbedInput| match input {
            EmbedInput::Text(text) => text.len(),
            EmbedInput::Ids(ids) => ids.len(),
        };
        let tokens: Vec<usize> = inputs.iter().map(length).collect();
        if let Some(tokens) = tokens.iter().find(|tokens| **tokens > 9) {
            return Err(Error::PromptTooLong { tokens: *tokens, limit: 9 });
        }
        self.asked.lock().unwrap().push(options.clone());
        let vectors = tokens.iter().map(|tokens| vec![*tokens as f32, 0.1]).collect();
        Ok(Embeddings { vectors, tokens })
    }

    fn score(&self, pairs: &[TextPair], options: &ScoreOptions) -> Result<PairScores> {
        self.scored.lock().unwrap().push((pairs.to_vec(), options.clone()));
        let tokens: Vec<usize> = pairs.iter().map(|pair| pair.document.len()).collect();
        Ok(PairScores {
            logits: tokens.iter().map(|tokens| *tokens as f32 - 2.0).collect(),
            tokens,
        })
    }

    fn close(&self) {}
}

/// A server with `fake`, a model that embeds and one that scores.
pub fn with_services(fake: Fake) -> TestServer {
    serving(fake).0
}

fn server() -> (TestServer, Arc<Lengths>, Arc<Lengths>) {
    serving(Fake::default())
}

fn serving(fake: Fake) -> (TestServer, Arc<Lengths>, Arc<Lengths>) {
    let prompts = vec![("query".to_owned(), "query: ".to_owned())];
    let info = EmbeddingModelInfo { dimensions: Some(2), prompts, ..Default::default() };
    let embeds = Arc::new(Lengths { info, ..Default::default() });
    let info = EmbeddingModelInfo { scores: true, ..Default::default() };
    let scores = Arc::new(Lengths { info, ..Default::default() });
    let service = |name: &str, model: &Arc<Lengths>| {
        let model: Arc<dyn EmbeddingModel> = Arc::clone(model) as _;
        EmbeddingService { name: name.to_owned(), model }
    };
    let services = vec![service("vectors", &embeds), service("ranks", &scores)];
    let server = TestServer::with(fake, |config| config.embeddings = services);
    (server, embeds, scores)
}

#[test]
fn texts_and_ids_become_vectors_in_their_order() {
    let (server, embeds, _) = server();
    for (input, lengths) in [
        (json!("abc"), vec![3.0]),
        (json!(["abc", "a"]), vec![3.0, 1.0]),
        (json!([7, 8]), vec![2.0]),
        (json!([[7, 8, 9], "ab"]), vec![3.0, 2.0]),
    ] {
        let body = json!({"model": "vectors", "input": input, "user": "me"});
        let answer = server.post("/v1/embeddings", &body);
        assert_eq!(answer.status, 200, "{}", answer.json());
        let answer = answer.json();
        let data = answer["data"].as_array().unwrap();
        for (index, (entry, length)) in data.iter().zip(&lengths).enumerate() {
            let expected =
                json!({"object": "embedding", "index": index, "embedding": [length, 0.1]});
            assert_eq!(entry, &expected);
        }
        let tokens = lengths.iter().sum::<f64>() as u64;
        assert_eq!((data.len(), &answer["model"]), (lengths.len(), &json!("vectors")));
        assert_eq!(answer["usage"], json!({"prompt_tokens": tokens, "total_tokens": tokens}));
    }
    assert_eq!(embeds.asked.lock().unwrap().len(), 4);
}

#[test]
fn base64_holds_the_same_floats() {
    let (server, ..) = server();
    let body = json!({"input": "abc", "encoding_format": "base64"});
    let answer = server.post("/v1/embeddings", &body).json();
    let bytes = STANDARD.decode(answer["data"][0]["embedding"].as_str().unwrap()).unwrap();
    assert_eq!(bytes, [3.0f32.to_le_bytes(), 0.1f32.to_le_bytes()].concat());
}

#[test]
fn ollamas_options_bound_the_tokens_of_texts() {
    let (server, embeds, _) = server();
    for (options, status, bound) in [
        (json!({"num_ctx": null, "seed": null}), 200, None),
        (json!({}), 200, None),
        (json!(null), 200, None),
        (json!({"num_ctx": 8, "temperature": 0, "mirostat": 0}), 200, Some(8)),
        (json!({"num_ctx": 0}), 400, None),
        (json!({"mirostat": 2}), 400, None),
        (json!({"stop": [""]}), 400, None),
        (json!({"unknown": 1}), 400, None),
    ] {
        for (path, field) in [("/api/embed", "input"), ("/api/embeddings", "prompt")] {
            let body = json!({"model": "vectors", field: "abc", "options": options});
            let answer = server.post(path, &body);
            assert_eq!(answer.status, status, "{options} {}", answer.text);
            if status == 200 {
                assert_eq!(embeds.asked.lock().unwrap().last().unwrap().max_tokens, bound);
            }
        }
    }
}

#[test]
fn no_texts_have_no_vectors_for_ollamas_clients() {
    let (server, ..) = server();
    let body = json!({"model": "vectors", "input": []});
    let answer = server.post("/api/embed", &body).json();
    assert_eq!((&answer["embeddings"], &answer["prompt_eval_count"]), (&json!([]), &json!(0)));
}

#[test]
fn options_reach_the_model() {
    let (server, embeds, _) = server();
    let body = json!({"input": "a", "dimensions": 1, "prompt_name": "query", "normalize": false,
        "truncate": "start"});
    assert_eq!(server.post("/v1/embeddings", &body).status, 200);
    let asked = embeds.asked.lock().unwrap();
    assert_eq!((asked[0].dimensions, asked[0].normalize), (Some(1), Some(false)));
    assert_eq!(asked[0].prompt_name.as_deref(), Some("query"));
    assert_eq!(asked[0].truncate, Truncate::Start);
}

#[test]
fn documents_are_ordered_by_their_scores() {
    let (server, _, scores) = server();
    let documents = json!(["ab", {"text": "abcd"}, "abc"]);
    let body = json!({"model": "ranks", "query": "q", "documents": documents, "top_n": 2,
        "return_documents": true, "instruction": "find", "truncate": "end"});
    for path in ["/v1/rerank", "/v2/rerank"] {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 200, "{}", answer.json());
        let answer = answer.json();
        let results = answer["results"].as_array().unwrap();
        let order: Vec<_> = results.iter().map(|result| result["index"].as_u64()).collect();
        assert_eq!(order, [Some(1), Some(2)]);
        let score = results[0]["relevance_score"].as_f64().unwrap();
        assert!((score - 1.0 / (1.0 + (-2.0f64).exp())).abs() < 1e-6, "{score}");
        assert_eq!(results[0]["document"], json!({"text": "abcd"}));
        assert_eq!(answer["usage"]["total_tokens"], 9);
    }
    let (pairs, options) = scores.scored.lock().unwrap()[0].clone();
    assert_eq!(pairs[1], TextPair { query: "q".into(), document: "abcd".into() });
    assert_eq!((options.instruction.as_deref(), options.truncate), (Some("find"), Truncate::End));

    let body = json!({"query": "q", "documents": ["a", "abcd"], "raw_scores": true});
    let answer = server.post("/v1/rerank", &body).json();
    assert_eq!(answer["results"][0], json!({"index": 1, "relevance_score": 2.0}));
    assert_eq!(answer["results"][1], json!({"index": 0, "relevance_score": -1.0}));
}

#[test]
fn what_does_not_fit_is_named() {
    let (server, ..) = server();
    let refused = |path: &str, more: Json, status: u16, param: &str| {
        let answer = server.post(path, &more);
        let found = (answer.status, answer.error("param"));
        assert_eq!(found, (status, param.to_owned()), "{more}: {}", answer.json());
    };
    let embed = |more, status, param| refused("/v1/embeddings", more, status, param);
    embed(json!({"input": "a", "model": "other"}), 404, "model");
    embed(json!({"input": "a", "model": "fake"}), 404, "model");
    embed(json!({"input": "a", "prompt_name": "no"}), 400, "prompt_name");
    embed(json!({"input": "a", "prompt_name": "query", "prompt": "b"}), 400, "prompt_name");
    embed(json!({"input": [1, 2], "prompt": "b"}), 400, "prompt");
    embed(json!({"input": [[1, 2]], "prompt_name": "query"}), 400, "prompt_name");
    embed(json!({"input": "a", "truncate": "middle"}), 400, "truncate");
    embed(json!({"input": "a", "input_type": "query"}), 400, "input_type");
    embed(json!({"input": "0123456789"}), 400, "input");
    embed(json!({"input": vec!["a"; 2049]}), 400, "input");
    let rank = |more, status, param| refused("/v1/rerank", more, status, param);
    rank(json!({"query": "q"}), 400, "documents");
    rank(json!({"query": "q", "documents": []}), 400, "documents");
    rank(json!({"query": "q", "documents": [1]}), 400, "documents[0]");
    rank(json!({"query": "q", "documents": [{"text": "a", "id": 1}]}), 400, "documents[0]");
    rank(json!({"documents": ["a"]}), 400, "query");
    rank(json!({"query": "q", "documents": ["a"], "top_n": 0}), 400, "top_n");
    rank(json!({"query": "q", "documents": ["a"], "rank_fields": ["a"]}), 400, "rank_fields");
}

#[test]
fn the_list_of_models_tells_what_each_does() {
    let (server, ..) = server();
    let models = server.get("/v1/models").json();
    let ids: Vec<_> = models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["fake", "vectors", "ranks"]);
    // As Anthropic's clients page through them.
    for (query, ids, more) in [
        ("limit=2", &["fake", "vectors"][..], true),
        ("limit=2&after_id=vectors", &["ranks"], false),
        ("after_id=ranks", &[], false),
        ("before_id=ranks&limit=1", &["vectors"], true),
        ("before_id=fake", &[], false),
    ] {
        let models = server.get(&format!("/v1/models?{query}")).json();
        let data = models["data"].as_array().unwrap();
        assert_eq!(data.iter().map(|model| &model["id"]).collect::<Vec<_>>(), ids, "{query}");
        assert_eq!(models["has_more"], json!(more), "{query}");
        let ends = [ids.first(), ids.last()].map(|id| id.map_or(Json::Null, |id| json!(id)));
        assert_eq!([&models["first_id"], &models["last_id"]], [&ends[0], &ends[1]], "{query}");
    }
    for query in ["limit=0", "limit=x", "limit=1001", "after_id=other", "limit=1&limit=2"] {
        assert_eq!(server.get(&format!("/v1/models?{query}")).status, 400, "{query}");
    }
    let one = server.get("/v1/models/vectors").json();
    assert_eq!((&one["type"], &one["display_name"]), (&json!("model"), &json!("vectors")));
    assert!(one["created_at"].as_str().unwrap().starts_with("20"), "{one}");
    assert_eq!((&one["info"]["dimensions"], &one["info"]["scores"]), (&json!(2), &json!(false)));
    assert_eq!(one["info"]["prompts"], json!(["query"]));
}
