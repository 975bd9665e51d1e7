//! Conversations with a scripted model.

use fake_model::{FakeModel, Line, all_but};
use inference_core::{
    AnswerReader, CancelToken, ChatOptions, EncodedPicture, EncodedSound, Error, Feature,
    FinishReason, Message, ModelInfo, Piece,
};
use inference_text::answer::{AnswerParser, Family};

use super::{Answer, Conversation, Session, Settings};
use crate::failure::Failure;

fn session(model: &FakeModel) -> Session<'_> {
    Session::new(model, ChatOptions::default(), Conversation::default())
}

fn say(session: &mut Session<'_>, text: &str) -> Result<(Answer, String), String> {
    let mut said = String::new();
    let answer = session.say(text, CancelToken::new(), |piece| {
        if let Piece::Content(text) = piece {
            said += text;
        }
        Ok(())
    });
    answer.map(|answer| (answer, said)).map_err(|failure| failure.to_string())
}

#[test]
fn each_turn_carries_the_conversation_so_far() {
    let model = FakeModel::lines([Line::of(&["Hello", " Ada."]), Line::of(&["Ada", "."])]);
    let mut session = session(&model);
    session.set_system(Some("Be brief.".into()));
    let (answer, said) = say(&mut session, "I am Ada.").unwrap();
    assert_eq!((answer, said.as_str()), (Answer::Complete, "Hello Ada."));
    say(&mut session, "Who am I?").unwrap();
    assert_eq!(
        model.seen.messages()[1],
        [
            Message::system("Be brief."),
            Message::user("I am Ada."),
            Message::assistant("Hello Ada."),
            Message::user("Who am I?"),
        ]
    );
    // A token for each character of the prompt, and two of the answer.
    let prompt = "<system>Be brief.<user>I am Ada.<assistant>Hello Ada.<user>Who am I?".len();
    assert_eq!(session.size(), (4, prompt + 2));
    let statistics = session.statistics().unwrap();
    assert!(statistics.starts_with(&format!("prompt {prompt} tokens")), "{statistics}");
}

/// A model whose answers are in channels.
fn in_channels(lines: impl IntoIterator<Item = Line>) -> FakeModel {
    let reader = || -> Box<dyn AnswerReader> {
        Box::new(AnswerParser::new(Family::Harmony, "<|start|>assistant", &["time".to_owned()]))
    };
    FakeModel { reader, ..FakeModel::lines(lines) }
}

const THOUGHT: [&str; 7] =
    ["<|channel|>", "analysis", "<|message|>", "Hm", ".", "<|end|>", "<|start|>"];
const SAID: [&str; 5] = ["assistant", "<|channel|>", "final", "<|message|>", "Blue."];

#[test]
fn the_history_holds_no_marks_of_channels() {
    let whole = Line::of(&[&THOUGHT[..], &SAID].concat());
    let model = in_channels([whole, Line::of(&["<|channel|>final<|message|>Yes."])]);
    let mut session = session(&model);
    let mut pieces = Vec::new();
    let sink = |piece: &Piece| {
        pieces.push(piece.clone());
        Ok(())
    };
    session.say("A colour", CancelToken::new(), sink).unwrap();
    let text =
        |part: fn(&Piece) -> Option<&str>| pieces.iter().filter_map(part).collect::<String>();
    let reasoning = text(|piece| match piece {
        Piece::Reasoning(text) => Some(text),
        _ => None,
    });
    assert_eq!(reasoning, "Hm.");
    assert_eq!(say(&mut session, "Sure?").unwrap().1, "Yes.");
    let mut answer = Message::assistant("Blue.");
    answer.fields.push(("reasoning_content".into(), "Hm.".into()));
    assert_eq!(model.seen.messages()[1][1], answer);
    let saved = session.to_json();
    assert!(!saved.contains("<|") && !saved.contains("analysis"), "{saved}");
}

#[test]
fn a_call_is_a_field_of_the_answer() {
    let call = "<|channel|>commentary to=functions.time<|message|>{\"zone\": 1}";
    let model = in_channels([Line::of(&[call])]);
    let mut session = session(&model);
    say(&mut session, "How late is it?").unwrap();
    let saved: serde_json::Value = serde_json::from_str(&session.to_json()).unwrap();
    assert_eq!(saved[1]["content"], serde_json::Value::Null);
    let function = &saved[1]["tool_calls"][0]["function"];
    assert_eq!(function, &serde_json::json!({"name": "time", "arguments": {"zone": 1}}));
}

#[test]
fn reasoning_alone_is_no_answer() {
    let cancelled = Line { end: Ok(FinishReason::Cancelled), ..Line::of(&THOUGHT) };
    let model = in_channels([cancelled]);
    let mut session = session(&model);
    assert_eq!(say(&mut session, "A colour").unwrap().0, Answer::Cancelled);
    assert_eq!(session.size().0, 0);
}

#[test]
fn a_cancelled_answer_stays_as_what_was_said() {
    let cancelled =
        |tokens: &[&'static str]| Line { end: Ok(FinishReason::Cancelled), ..Line::of(tokens) };
    let model = FakeModel::lines([cancelled(&["Once", " upon"]), cancelled(&[])]);
    let mut session = session(&model);
    assert_eq!(say(&mut session, "A story").unwrap().0, Answer::Cancelled);
    assert_eq!(session.size().0, 2);
    assert!(session.to_json().contains("Once upon"));
    // Cancelled before the first word: as if it had not been asked.
    assert_eq!(say(&mut session, "More").unwrap().0, Answer::Cancelled);
    assert_eq!(session.size().0, 2);
}

#[test]
fn a_question_without_an_answer_is_kept_for_a_retry() {
    let cancelled = Line { end: Ok(FinishReason::Cancelled), ..Line::of(&[]) };
    let lost = Line { tokens: vec![], end: Err(Error::Engine("lost".into())) };
    let model = FakeModel::lines([Line::of(&["Red"]), cancelled, lost, Line::of(&["Blue"])]);
    let mut session = session(&model);
    say(&mut session, "A colour").unwrap();
    assert!(!session.is_unanswered());
    say(&mut session, "Another").unwrap();
    assert!(session.is_unanswered());
    // One that fails again stays, too.
    assert!(session.retry(CancelToken::new(), |_| Ok(())).is_err());
    assert!(session.is_unanswered());
    session.retry(CancelToken::new(), |_| Ok(())).unwrap();
    let seen = model.seen.messages();
    let asked = [Message::user("A colour"), Message::assistant("Red"), Message::user("Another")];
    assert_eq!(seen[1..], [asked.clone(), asked.clone(), asked]);
    assert!(!session.is_unanswered() && session.size().0 == 4);
}

#[test]
fn a_kept_question_can_be_undone() {
    let cancelled = Line { end: Ok(FinishReason::Cancelled), ..Line::of(&[]) };
    let model = FakeModel::lines([Line::of(&["Red"]), cancelled]);
    let mut session = session(&model);
    say(&mut session, "A colour").unwrap();
    say(&mut session, "Another").unwrap();
    session.undo().unwrap();
    assert!(!session.is_unanswered() && session.size().0 == 2);
    session.undo().unwrap();
    assert_eq!(session.size().0, 0);
}

#[test]
fn the_oldest_turns_can_be_dropped() {
    let model = FakeModel::lines(["a", "b", "c"].map(|text| Line::of(&[text])));
    let mut session = session(&model);
    session.set_system(Some("Be brief.".into()));
    ["one", "two", "three"].iter().for_each(|text| drop(say(&mut session, text)));
    for count in [0, 4] {
        let error = session.drop_oldest(count).unwrap_err().to_string();
        assert_eq!(error, "the conversation has 3 turns");
    }
    assert_eq!(session.drop_oldest(2).unwrap(), 4);
    let left = session.to_json();
    assert!(
        left.contains("Be brief.") && left.contains("three") && !left.contains("two"),
        "{left}"
    );
    assert_eq!(session.drop_oldest(1).unwrap(), 2);
    assert_eq!(session.size().0, 0);
}

/// A model whose context takes so many tokens, which are characters.
fn with_context(context_length: usize, lines: impl IntoIterator<Item = Line>) -> FakeModel {
    let model = FakeModel::lines(lines);
    FakeModel { info: ModelInfo { context_length, ..model.info.clone() }, ..model }
}

#[test]
fn a_rolling_context_gives_up_the_oldest_turns() {
    // `<user>` and `<assistant>` stand before each text.
    let lines = || ["aaaa", "bbbb", "cccc"].map(|text| Line::of(&[text]));
    let turn = "<user>1111<assistant>aaaa".len();
    let model = with_context(3 * turn, lines());
    let mut rolling = session(&model).with(true, true);
    // What is rendered to be counted is seen as well.
    let mut asked = |text: &str| {
        say(&mut rolling, text).unwrap();
        model.seen.messages().pop().unwrap()
    };
    asked("1111");
    assert_eq!(asked("2222").len(), 3, "two turns have room");
    let last = [Message::user("2222"), Message::assistant("bbbb"), Message::user("3333")];
    assert_eq!(asked("3333"), last);
    // A question alone is the model's to refuse.
    let model = with_context(4, lines());
    let mut rolling = session(&model).with(true, true);
    drop(say(&mut rolling, "a long question"));
    assert_eq!(model.seen.messages()[0], [Message::user("a long question")]);
}

#[test]
fn an_answer_that_was_cut_off_says_so() {
    let cut = || Line { end: Ok(FinishReason::Length), ..Line::of(&["a", "b"]) };
    let model = FakeModel::lines([cut(), Line::of(&["a"])]);
    let mut session = session(&model);
    session.settings().set("max-tokens", Some("2")).unwrap();
    say(&mut session, "x").unwrap();
    assert!(session.cut_note().unwrap().contains("--max-tokens allows 2 tokens"));
    say(&mut session, "x").unwrap();
    assert_eq!(session.cut_note(), None);
}

#[test]
fn a_conversation_goes_on_with_another_model() {
    let first = FakeModel::lines([Line::of(&["Hello"])]);
    let mut session = session(&first);
    session.set_system(Some("Be brief.".into()));
    session.settings().set("top-k", Some("4")).unwrap();
    say(&mut session, "Hi").unwrap();
    let second = FakeModel::lines([Line::of(&["Yes"])]);
    let conversation = session.into_conversation();
    let mut session = Session::new(&second, ChatOptions::default(), conversation);
    say(&mut session, "Still there?").unwrap();
    let seen = second.seen.messages();
    assert_eq!(seen[0].len(), 4);
    assert_eq!(seen[0][2], Message::assistant("Hello"));
    assert_eq!(session.settings().changed(), ["--top-k=4"]);
    let facts = session.facts("org/second").join("\n");
    assert!(facts.contains("org/second") && facts.contains("4 messages"), "{facts}");
    assert!(facts.contains("Be brief.") && facts.contains("--top-k=4"), "{facts}");
}

#[test]
fn every_option_is_listed_with_its_value() {
    let mut settings = Settings::default();
    let told = settings.set("temperature", Some("0.5")).unwrap();
    assert_eq!(told, "temperature is 0.5");
    assert_eq!(settings.set("ignore-eos", None).unwrap(), "ignore-eos is on");
    let lines = settings.lines();
    let line = |name: &str| lines.iter().find(|line| line.split(' ').next() == Some(name));
    assert!(line("temperature").unwrap().contains(" 0.5 "), "{lines:?}");
    assert!(line("ignore-eos").unwrap().contains(" on "), "{lines:?}");
    assert!(line("top-k").unwrap().contains(" - "), "{lines:?}");
    let values = settings.sampling.values();
    let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, Settings::names());
}

#[test]
fn an_error_leaves_the_conversation_as_it_was() {
    let failing =
        Line { tokens: vec!["Hal"], end: Err(Error::Engine("decode step 1: lost".into())) };
    let model = FakeModel::lines([failing]);
    let mut session = session(&model);
    assert_eq!(say(&mut session, "Hello"), Err("decode step 1: lost".to_owned()));
    assert_eq!(session.size().0, 0);
}

#[test]
fn a_closed_pipe_ends_the_answer() {
    let model = FakeModel::lines([Line::of(&["a", "b"])]);
    let failure =
        session(&model).say("x", CancelToken::new(), |_| Err(Failure::ClosedPipe)).unwrap_err();
    assert!(matches!(failure, Failure::ClosedPipe));
}

#[test]
fn a_question_can_be_answered_again_and_undone() {
    let model = FakeModel::lines([Line::of(&["Red"]), Line::of(&["Blue"])]);
    let mut session = session(&model);
    assert!(session.undo().is_err());
    say(&mut session, "A colour").unwrap();
    session.retry(CancelToken::new(), |_| Ok(())).unwrap();
    assert_eq!(model.seen.messages()[1], [Message::user("A colour")]);
    assert!(session.to_json().contains("Blue"));
    assert!(!session.to_json().contains("Red"));
    session.undo().unwrap();
    assert_eq!(session.size().0, 0);
    assert_eq!(session.to_json(), "[]\n");
}

#[test]
fn a_retry_that_fails_keeps_the_old_answer() {
    let lost = Line { tokens: vec![], end: Err(Error::Engine("lost".into())) };
    let model = FakeModel::lines([Line::of(&["Red"]), lost]);
    let mut session = session(&model);
    say(&mut session, "A colour").unwrap();
    assert!(session.retry(CancelToken::new(), |_| Ok(())).is_err());
    assert!(session.to_json().contains("Red"));
}

#[test]
fn settings_are_checked_like_the_command_line() {
    let model = FakeModel::default();
    let mut session = session(&model);
    session.settings().set("temperature", Some("0.5")).unwrap();
    session.settings().set("top-k", Some("40")).unwrap();
    session.settings().set("temperature", Some("0.7")).unwrap();
    assert_eq!(session.settings().changed(), ["--top-k=40", "--temperature=0.7"]);
    let error = |result: Result<String, Failure>| result.unwrap_err().to_string();
    assert!(
        error(session.settings().set("temperature", Some("-1")))
            .starts_with("--temperature: -1 is not")
    );
    assert!(error(session.settings().set("top-k", Some("x"))).contains("expected a whole number"));
    let unknown = error(session.settings().set("colour", Some("red")));
    assert!(unknown.starts_with("there is no option `colour`: /set"), "{unknown}");
    let near = error(session.settings().set("temp", Some("1")));
    assert!(near.starts_with("there is no option `temp` (is it temperature?)"), "{near}");
    assert_eq!(session.settings().changed(), ["--top-k=40", "--temperature=0.7"]);
    session.settings().set("reset", None).unwrap();
    assert!(session.settings().changed().is_empty());
}

#[test]
fn options_that_change_nothing_are_noted_once_until_they_change() {
    let model = FakeModel::says(&["a"]);
    let mut session = session(&model);
    let mut noted = |setting: Option<(&str, &str)>| {
        if let Some((name, value)) = setting {
            session.settings().set(name, Some(value)).unwrap();
        }
        say(&mut session, "x").unwrap();
        session.greedy_note()
    };
    assert_eq!(noted(None), None);
    assert!(noted(Some(("top-p", "0.5"))).unwrap().contains("--top-p changed nothing"));
    assert_eq!(noted(None), None);
    assert!(noted(Some(("seed", "1"))).unwrap().contains("--top-p, --seed changed nothing"));
    assert_eq!(noted(Some(("temperature", "0.7"))), None);
}

#[test]
fn a_conversation_can_be_saved_and_loaded() {
    let model = FakeModel::lines([Line::of(&["Hello"])]);
    let mut first = session(&model);
    first.set_system(Some("Be brief.".into()));
    say(&mut first, "Hi").unwrap();
    let mut second = session(&model);
    assert_eq!(second.load(&first.to_json(), "chat.json").unwrap(), 3);
    assert_eq!(second.system(), Some("Be brief."));
    assert_eq!(second.to_json(), first.to_json());
    assert!(second.load("{}", "chat.json").is_err());
    assert_eq!(second.to_json(), first.to_json());
    assert_eq!(second.clear(), 2);
    assert_eq!(second.system(), Some("Be brief."));
    assert_eq!(second.size().0, 0);
}

#[test]
fn a_picture_is_shown_with_what_is_said_next_and_stays_until_then() {
    let model = FakeModel::lines([
        Line { tokens: Vec::new(), end: Err(Error::Closed) },
        Line::of(&["A fox."]),
    ]);
    let mut session = session(&model);
    let fox = EncodedPicture::new([1, 2], "fox.png");
    session.show(fox.clone()).unwrap();
    assert_eq!(session.waiting(Feature::Images).collect::<Vec<_>>(), ["fox.png"]);
    say(&mut session, "What?").unwrap_err();
    assert_eq!(session.waiting(Feature::Images).count(), 1);
    say(&mut session, "What?").unwrap();
    assert_eq!(session.waiting(Feature::Images).count(), 0);
    let seen = model.seen.messages();
    assert_eq!(seen[1], [Message::user_with_pictures([fox.clone()], "What?")]);
    assert!(session.to_json().contains("\"path\": \"fox.png\""), "{}", session.to_json());

    session.show(fox).unwrap();
    session.take_back(Feature::Images);
    assert_eq!(session.waiting(Feature::Images).count(), 0);
}

#[test]
fn sounds_wait_beside_pictures_and_are_taken_back_by_themselves() {
    let model = FakeModel::lines([Line::of(&["A song."])]);
    let mut session = session(&model);
    let (fox, talk) = (EncodedPicture::new([1], "fox.png"), EncodedSound::new([2], "talk.wav"));
    session.show(fox.clone()).unwrap();
    session.show(EncodedSound::new([3], "other.wav")).unwrap();
    session.take_back(Feature::Audio);
    assert_eq!(session.waiting(Feature::Audio).count(), 0);
    session.show(talk.clone()).unwrap();
    assert_eq!(session.waiting(Feature::Audio).collect::<Vec<_>>(), ["talk.wav"]);
    assert_eq!(session.waiting(Feature::Images).collect::<Vec<_>>(), ["fox.png"]);
    say(&mut session, "What?").unwrap();
    assert_eq!(session.waiting(Feature::Audio).count(), 0);
    let expected = Message::user_with_parts([fox.into_part(), talk.into_part()], "What?");
    assert_eq!(model.seen.messages()[0], [expected]);
    assert!(session.to_json().contains("\"path\": \"talk.wav\""), "{}", session.to_json());
}

#[test]
fn a_model_that_does_not_hear_is_played_nothing() {
    let model = FakeModel { capabilities: all_but(&[Feature::Audio]), ..FakeModel::default() };
    let mut session = session(&model);
    let error = session.show(EncodedSound::new([1], "talk.wav")).unwrap_err().to_string();
    assert!(error.contains("audio"), "{error}");
    assert_eq!(session.waiting(Feature::Audio).count(), 0);
}

#[test]
fn a_model_that_does_not_see_is_shown_nothing() {
    let blind = all_but(&[Feature::Images]);
    let model = FakeModel { capabilities: blind, ..FakeModel::default() };
    let mut session = session(&model);
    let error = session.show(EncodedPicture::new([1], "fox.png")).unwrap_err().to_string();
    assert!(error.contains("images"), "{error}");
    assert_eq!(session.waiting(Feature::Images).count(), 0);
}
