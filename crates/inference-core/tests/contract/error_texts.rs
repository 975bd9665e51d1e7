//! Texts of errors, as a person reads them.

use inference_core::Error;

#[track_caller]
fn reads(error: Error, text: &str) {
    assert_eq!(error.to_string(), text);
    // A `main` that returns it prints it so.
    assert_eq!(format!("{error:?}"), text);
}

#[test]
fn an_unknown_backend_names_itself_and_the_known_ones() {
    reads(
        Error::BackendNotRegistered {
            name: "X".into(),
            registered: vec!["cpu".into(), "metal".into()],
        },
        "backend `X` not registered; registered: cpu, metal",
    );
    reads(
        Error::BackendNotRegistered { name: "X".into(), registered: vec![] },
        "backend `X` not registered; no backends registered",
    );
}

#[test]
fn an_unavailable_backend_says_why() {
    reads(
        Error::BackendNotAvailable { name: "metal".into(), reason: "not macOS".into() },
        "backend `metal` not available on this hardware: not macOS",
    );
}

#[test]
fn an_empty_registry_says_what_to_do() {
    reads(Error::NoBackends, "no backends registered (call a backend's `register` first)");
}

#[test]
fn backends_that_cannot_run_are_each_named_with_their_reason() {
    let one = vec![("cuda".to_owned(), "no driver".to_owned())];
    reads(
        Error::NoBackendAvailable { unavailable: one.clone() },
        "no registered backend is available on this hardware: `cuda`: no driver",
    );
    let two = [one, vec![("metal".to_owned(), "not macOS".to_owned())]].concat();
    reads(
        Error::NoBackendAvailable { unavailable: two },
        "no registered backend is available on this hardware: `cuda`: no driver; `metal`: not macOS",
    );
}

#[test]
fn registering_twice_names_the_backend() {
    reads(
        Error::BackendAlreadyRegistered { name: "cpu".into() },
        "backend `cpu` is already registered",
    );
}

#[test]
fn a_refused_option_is_named_with_the_reason() {
    reads(
        Error::InvalidOption {
            option: "top_p",
            reason: "2 is not at least 0 and at most 1".into(),
        },
        "option `top_p`: 2 is not at least 0 and at most 1",
    );
    reads(
        Error::Unsupported { what: "kv_bits".into(), reason: "no quantised cache".into() },
        "`kv_bits` is not supported: no quantised cache",
    );
}

#[test]
fn prompts_that_cannot_be_used_say_what_is_wrong() {
    reads(Error::EmptyPrompt, "empty prompt after tokenisation");
    reads(
        Error::PromptTooLong { tokens: 9000, limit: 8192 },
        "the prompt has 9000 tokens, the context takes 8192",
    );
    reads(Error::Prompt("role `x` is unknown".into()), "prompt: role `x` is unknown");
}

#[test]
fn memory_is_given_in_units_that_people_read() {
    let memory = |needed, available| Error::Memory {
        what: "the model".into(),
        needed,
        available,
        remedy: "try a smaller one".into(),
    };
    reads(
        memory(19_541_889_843, 16 << 30),
        "the model needs 18.2 GiB, 16.0 GiB free: try a smaller one",
    );
    reads(memory(1 << 20, 1 << 10), "the model needs 1.0 MiB, 1.0 KiB free: try a smaller one");
    reads(memory(1023, 0), "the model needs 1023 B, 0 B free: try a smaller one");
}

#[test]
fn the_others_read_as_sentences_without_a_full_stop() {
    reads(
        Error::Load { path: "m/config.json".into(), reason: "missing".into() },
        "m/config.json: missing",
    );
    reads(
        Error::QueueFull { limit: 64 },
        "the queue is full (64 requests are waiting); try again later",
    );
    reads(Error::Cancelled, "cancelled");
    reads(Error::Closed, "the model is closed");
    reads(Error::Engine("decode step 3: out of memory".into()), "decode step 3: out of memory");
}

#[test]
fn an_error_can_cross_threads_and_be_boxed() {
    let boxed: Box<dyn std::error::Error + Send + Sync> = Box::new(Error::Closed);
    assert_eq!(boxed.to_string(), "the model is closed");
}
