//! A limit on memory that requests reach.

use std::thread;

use serde_json::json;

use crate::alone;
use crate::client::chat;
use crate::server::Server;

#[test]
fn a_request_beyond_the_memory_is_refused_with_the_numbers_and_others_are_answered() {
    let _alone = alone();
    let server = Server::start(&["--prefix-cache", "0", "--memory-limit", "16MiB"]);
    let path = "/v1/chat/completions";
    let long = json!({"prompt": "once upon a time ".repeat(400), "max_tokens": 4});
    for _ in 0..10 {
        let refused = server.post("/v1/completions", &long);
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert_eq!(refused.json()["error"]["code"], "memory_limit_exceeded");
        let streamed = server.post(path, &chat(&"fox ".repeat(1500), json!({"stream": true})));
        assert_eq!(streamed.status, 400, "{}", streamed.body);
        assert_eq!(streamed.json()["error"]["code"], "memory_limit_exceeded");
    }
    println!("{}", server.post("/v1/completions", &long).json()["error"]["message"]);
    // What does not fit now waits for its turn.
    let body = chat("fox", json!({"max_tokens": 40, "ignore_eos": true}));
    thread::scope(|scope| {
        let one = |_| scope.spawn(|| server.post(path, &body).status);
        let clients: Vec<_> = (0..32).map(one).collect();
        clients.into_iter().for_each(|client| assert_eq!(client.join().unwrap(), 200));
    });
}
