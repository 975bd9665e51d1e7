//! Pictures that nobody waits for to their end.

use std::path::Path;

use serde_json::json;

use crate::alone;
use crate::client::{Client, Leaving};
use crate::server::Server;

/// How many pictures are cancelled; `ML_LOAD_PICTURES` says another number.
const ROUNDS: usize = 100;

/// Pictures after which what is allocated once is allocated.
const WARM: usize = 20;

/// Resident bytes that all further pictures together may add, however many there are.
const LEFT: u64 = 8 << 20;

#[test]
fn pictures_that_are_cancelled_leave_memory_as_it_was() {
    let _alone = alone();
    let rounds = std::env::var("ML_LOAD_PICTURES")
        .map_or(ROUNDS, |rounds| rounds.parse().expect("ML_LOAD_PICTURES is a number of rounds"));
    let model = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../metal-backend/tests/fixtures/images/z_image");
    let server = Server::start(&["--image-model", model.to_str().unwrap()]);
    let whole = json!({"prompt": "a fox", "size": "64x64", "steps": 2, "seed": 7});
    let path = "/v1/images/generations";
    let made = || {
        let answer = server.post(path, &whole);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["data"][0]["b64_json"].clone()
    };
    let before = made();
    let long = json!({"prompt": "a fox", "size": "64x64", "steps": 1000, "stream": true,
        "partial_images": 3});
    let first = json!({"prompt": "a fox", "size": "64x64", "steps": 12, "stream": true,
        "partial_images": 3});
    let mut resident = Vec::new();
    for round in 0..rounds {
        // Half of them have sent a picture on the way; the others are at their beginning.
        let body = if round % 2 == 0 { &first } else { &long };
        let mut client = Client::send(&server.address, "POST", path, &body.to_string()).unwrap();
        if round % 2 == 0 {
            assert!(client.read_events(1), "a picture on the way");
        }
        client.leave([Leaving::Close, Leaving::Reset][round / 2 % 2]);
        // Pictures are made one after the other, so that this one comes when that one has ended.
        assert_eq!(made(), before, "the same seed, the same picture");
        resident.extend(server.memory().map(|memory| memory.resident));
    }
    let shown: Vec<_> = resident.iter().step_by(10).chain(resident.last()).collect();
    println!("{rounds} cancelled pictures: resident {shown:?}");
    // Where the system does not tell, there is nothing to hold it to.
    let (Some(first), Some(last)) = (resident.get(WARM), resident.last()) else { return };
    let bound = first + LEFT;
    assert!(*last <= bound, "{last} bytes are resident after {rounds} pictures, more than {bound}");
}
