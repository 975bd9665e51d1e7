//! Chats of a scripted model with a server of tools.

use std::fs;

use fake_model::{FakeModel, Line};
use inference_core::{AnswerReader, ChatOptions, Message, Role};
use inference_text::answer::{AnswerParser, Family};
use serde_json::json;

use super::{Asked, meant, object};
use crate::args::{ChatArgs, Cli, Command};
use crate::commands::chat::reader::Reader;
use crate::commands::chat::repl::{Question, ROUNDS, Repl};
use crate::commands::chat::session::{Conversation, Session};
use crate::commands::chat::tools::{Missing, Tools};
use crate::failure::Result;
use crate::files::Lines;
use crate::interrupt::Interrupt;
use crate::source::Source;

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../mcp/tests/fake.py");

/// A line that calls these tools.
fn calling(text: &'static str) -> Line {
    Line::of(&[text])
}

const SAID: &str = "<|channel|>final<|message|>Done.";

/// A model whose calls are in channels.
fn model(lines: impl IntoIterator<Item = Line>) -> FakeModel {
    let reader = || -> Box<dyn AnswerReader> {
        let tools = ["echo", "fail", "die", "hang", "none"].map(str::to_owned);
        Box::new(AnswerParser::new(Family::Harmony, "<|start|>assistant", &tools))
    };
    FakeModel { reader, calls: true, ..FakeModel::lines(lines) }
}

fn args(more: &[&str]) -> (tempfile::TempDir, Box<ChatArgs>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp.json");
    let servers = json!({"mcpServers": {"fake": {"command": "python3", "args": [FAKE]}}});
    fs::write(&path, servers.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let all = [&["ml", "chat", "-q", "--mcp", path], more].concat();
    match Cli::read(all).unwrap().command {
        Some(Command::Chat(args)) => (folder, args),
        _ => panic!("a chat"),
    }
}

/// Asks `model` once; the conversation as the model got it last.
fn ask(model: &FakeModel, more: &[&str]) -> (Result<()>, Vec<Message>) {
    let (_folder, args) = args(more);
    let mut tools = Tools::open(&args.mcp, Missing::Fatal, true).unwrap();
    let interrupt = Interrupt::install().unwrap();
    let mut reader = Reader::Pipe(Lines::stdin());
    let source = Source::of(None).unwrap();
    let tools_of = tools.as_ref().unwrap().definitions();
    let chat = ChatOptions { tools: tools_of, ..ChatOptions::default() };
    let session = Session::new(model, chat, Conversation::default());
    let (reader, interrupt) = (&mut reader, &interrupt);
    let mut repl =
        Repl { session, reader, interrupt, args: &args, source: &source, tools: tools.as_mut() };
    let answered = repl.ask(Question::New("Say it."));
    (answered, model.seen.messages().last().unwrap().clone())
}

/// The tools' answers, in order.
fn results(messages: &[Message]) -> Vec<&str> {
    let results = messages.iter().filter(|message| message.role == Role::Tool);
    results.filter_map(|message| message.content.as_str()).collect()
}

#[test]
fn results_go_back_to_the_model_until_it_answers() {
    let model = model([
        calling("<|channel|>commentary to=functions.echo<|message|>{\"text\": \"a fox\"}"),
        calling("<|channel|>commentary to=functions.fail<|message|>{}"),
        calling(SAID),
    ]);
    let (answered, messages) = ask(&model, &["--mcp-yes"]);
    answered.unwrap();
    assert_eq!(results(&messages), ["a fox", "Error: it \x1b[2J failed"]);
    let roles: Vec<_> = messages.iter().map(|message| message.role.as_str().to_owned()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "tool"]);
    let fields: Vec<_> = messages[2].fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(fields, ["tool_call_id", "name"]);
}

#[test]
fn a_server_that_dies_and_a_tool_that_there_is_not_are_told_to_the_model() {
    let model = model([
        calling("<|channel|>commentary to=functions.die<|message|>{}"),
        calling("<|channel|>commentary to=functions.none<|message|>{}"),
        calling("<|channel|>commentary to=functions.hang<|message|>{}"),
        calling(SAID),
    ]);
    let (answered, messages) = ask(&model, &["--mcp-yes", "--mcp-timeout", "6"]);
    answered.unwrap();
    let results = results(&messages);
    let died = "Error: MCP server `fake`: it ended; its last words: something broke";
    assert_eq!(results[0], died);
    assert!(results[1].starts_with("Error: there is no tool `none`, but: echo, fail, die"));
    assert!(results[2].contains("no answer to tools/call in 6 s"), "{}", results[2]);
}

#[test]
fn a_call_is_not_made_where_nobody_can_be_asked() {
    let call = "<|channel|>commentary to=functions.echo<|message|>{}";
    let (answered, _) = ask(&model([calling(call), calling(SAID)]), &[]);
    let error = answered.unwrap_err().to_string();
    assert!(error.contains("wants to call echo of the MCP server fake"), "{error}");
    assert!(error.contains("--mcp-yes"), "{error}");
}

#[test]
fn a_model_that_calls_without_end_is_stopped() {
    let call = || calling("<|channel|>commentary to=functions.echo<|message|>{\"text\": \"x\"}");
    let model = model(std::iter::repeat_with(call).take(ROUNDS + 2));
    let (answered, messages) = ask(&model, &["--mcp-yes"]);
    answered.unwrap();
    assert_eq!(results(&messages).len(), ROUNDS);
}

#[test]
fn arguments_are_an_object_or_none() {
    assert_eq!(object("{\"a\": 1}").unwrap().len(), 1);
    assert!(object(" ").unwrap().is_empty());
    assert_eq!(object("[1]"), None);
    assert_eq!(object("{\"a\": "), None);
}

#[test]
fn only_what_is_meant_clearly_is_an_answer() {
    assert_eq!(meant(" Y \n"), Some(Asked::Yes));
    assert_eq!(meant("no"), Some(Asked::No));
    assert_eq!(meant("always"), Some(Asked::Always));
    assert_eq!(meant(""), None);
    assert_eq!(meant("ye"), None);
}

#[test]
fn what_would_show_nothing_or_turn_the_line_around_is_spelled_out() {
    let text = "{\"path\": \"a\u{202e}txt.\u{200b}b\", \"name\": \"ß 漢\"}";
    let shown = r#"{"path": "a\u{202e}txt.\u{200b}b", "name": "ß 漢"}"#;
    assert_eq!(super::visible(text), shown);
}
