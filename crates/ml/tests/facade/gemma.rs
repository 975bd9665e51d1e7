//! System messages: a user's turn for Gemma 1 to 3, untouched for every other model.

use std::sync::Arc;

use fake_model::FakeModel;
use inference_core::{ModelInfo, Role, Value};
use ml::{Backend, GenOpts, Message, MlxBackend};

/// A model of that architecture.
fn of(architecture: &str) -> FakeModel {
    let info = ModelInfo { architecture: architecture.into(), ..ModelInfo::default() };
    FakeModel { info, ..FakeModel::says(&["a"]) }
}

/// One whose template takes roles in turns only.
fn strict(architecture: &str) -> FakeModel {
    FakeModel { strict: true, ..of(architecture) }
}

fn messages() -> Vec<Message> {
    vec![
        Message::system("Be brief."),
        Message::user("Why?"),
        Message::assistant("So."),
        Message::user("How?"),
    ]
}

/// The messages that the model receives for `messages`, as role and text.
fn given(model: FakeModel, messages: &[Message]) -> Vec<(String, String)> {
    let seen = Arc::clone(&model.seen);
    MlxBackend::over(Arc::new(model)).chat(messages, &GenOpts::default()).unwrap();
    seen.last_messages()
}

fn turns(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(role, text)| ((*role).into(), (*text).into())).collect()
}

#[test]
fn gemma_gets_system_messages_as_the_users() {
    for architecture in ["gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n"] {
        let expected = [
            ("user", "[System: Be brief.]"),
            ("user", "Why?"),
            ("assistant", "So."),
            ("user", "How?"),
        ];
        assert_eq!(given(of(architecture), &messages()), turns(&expected));
    }
}

#[test]
fn a_template_that_wants_turns_gets_it_within_the_users_next() {
    let expected =
        [("user", "[System: Be brief.]\n\nWhy?"), ("assistant", "So."), ("user", "How?")];
    assert_eq!(given(strict("gemma2"), &messages()), turns(&expected));
    let late = [Message::user("Why?"), Message::assistant("So."), Message::system("Be brief.")];
    let expected = [("user", "Why?"), ("assistant", "So."), ("user", "[System: Be brief.]")];
    assert_eq!(given(strict("gemma2"), &late), turns(&expected));
}

#[test]
fn other_models_and_other_conversations_keep_their_messages() {
    let expected =
        [("system", "Be brief."), ("user", "Why?"), ("assistant", "So."), ("user", "How?")];
    for architecture in ["qwen3", "gemma4", "gemma4_text"] {
        assert_eq!(given(of(architecture), &messages()), turns(&expected), "{architecture}");
    }
    assert_eq!(given(strict("gemma3"), &messages()[1..]), turns(&expected[1..]));
}

#[test]
fn a_refusal_of_the_template_that_is_no_matter_of_system_messages_stays() {
    let model = Arc::new(strict("gemma3"));
    let twice =
        [Message::system("Be brief."), Message::assistant("So."), Message::assistant("Oh.")];
    let error = MlxBackend::over(model).chat(&twice, &GenOpts::default()).unwrap_err();
    assert!(error.to_string().contains("must alternate"), "{error}");
}

#[test]
fn system_messages_of_parts_are_refused_for_gemma() {
    let model = Arc::new(of("gemma3"));
    let parts = [Message::new(Role::System, Value::Array(Vec::new())), Message::user("Why?")];
    let error = MlxBackend::over(model).chat(&parts, &GenOpts::default()).unwrap_err();
    assert!(error.to_string().contains("system message of parts"), "{error}");
}
