//! How a template takes the calls of earlier turns: what stands for a text that is not there, and
//! which ids it wants.

use serde_json::{Map, Value as Json, json};

use crate::TextError;

/// A tool's name that no template has by itself, and one of a call of it.
const TOOL: &str = "look_up_42";
const CALLED: &str = "look_up_43";
/// An id as servers make them.
const LONG: &str = "call_0123456789abcdef01234567";
/// The mark before an id that is a call's header.
const CALL: &str = "<|tool_call_begin|>";
/// Letters of the ids that Mistral's templates want, and how many.
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const NINE: usize = 9;

/// How a template takes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallForm {
    silence: Silence,
    ids: Ids,
}

/// The placeholder for the text of a turn that only calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    Absent,
    Empty,
    Null,
}

/// Which ids calls have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ids {
    /// Those that they were given.
    Any,
    /// Nine letters and digits (Mistral).
    Nine,
    /// `functions.NAME:INDEX`, which is a call's header too (Kimi).
    Named,
}

/// Returns true when an assistant has called.
pub(super) fn has_calls(messages: &[Json]) -> bool {
    messages.iter().any(|message| !calls_of(message).is_empty())
}

/// The calls of a message.
pub(super) fn calls_of(message: &Json) -> &[Json] {
    message.get("tool_calls").and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

/// The tool that conversations of [`CallForm::probe`] offer.
pub(super) fn tool() -> Json {
    let parameters = json!({"type": "object", "properties": {"key": {"type": "string", "description": "a key"}}});
    let function = json!({"name": TOOL, "description": "looks a key up", "parameters": parameters});
    json!({"type": "function", "function": function})
}

impl CallForm {
    /// The form of a template, of which `render` renders conversations with [`tool`]: that in which
    /// it shows the most calls, and the first of several such.
    pub fn probe(render: &dyn Fn(&[Json]) -> Result<String, TextError>) -> CallForm {
        // Templates write calls before and behind the last question, and thoughts beside them, in
        // ways of their own.
        let conversations = [("", false), ("", true), ("Hm.", false), ("Hm.", true)];
        let shown = |id: &str, silence: Silence, (thought, is_earlier): (&str, bool)| {
            let of = arguments().into_iter().filter_map(|arguments| {
                let called = called(id, (silence, thought), &arguments);
                let mut whole = vec![question(), called.clone(), result(id)];
                if is_earlier {
                    whole.extend([json!({"role": "assistant", "content": "There."}), question()]);
                }
                // Some know no results, which counts less. Some show no calls, and may refuse them
                // all the same.
                let all = [(2, &whole[..]), (1, &[question(), called])];
                let texts = all.into_iter().filter_map(|(count, messages)| {
                    let text = render(messages).ok()?;
                    let count = if text.contains(CALLED) { count } else { 0 };
                    Some((count, text.contains(&format!("{CALL}{id}"))))
                });
                texts.max()
            });
            of.max()
        };
        let mut best = ((0, 0), CallForm { silence: Silence::Absent, ids: Ids::Any });
        for silence in [Silence::Absent, Silence::Empty, Silence::Null] {
            for (id, ids) in [(LONG, Ids::Any), ("abcdefghi", Ids::Nine)] {
                let shown = conversations.into_iter().filter_map(|of| shown(id, silence, of));
                let (counts, are_headers): (Vec<u32>, Vec<bool>) = shown.unzip();
                let count = (counts.iter().sum::<u32>(), counts.len());
                if count > best.0 {
                    let ids = if are_headers.contains(&true) { Ids::Named } else { ids };
                    best = (count, CallForm { silence, ids });
                }
            }
        }
        best.1
    }

    /// Gives the calls of a conversation this form.
    pub fn apply(self, messages: &mut [Json]) {
        let mut known = Vec::new();
        let mut index = 0;
        for message in messages.iter_mut().filter_map(Json::as_object_mut) {
            if message.contains_key("tool_calls") && !message.contains_key("content") {
                self.silence.say(message);
            }
            let calls = message.get_mut("tool_calls").and_then(Json::as_array_mut);
            for call in calls.into_iter().flatten() {
                let name =
                    call.pointer("/function/name").and_then(Json::as_str).unwrap_or_default();
                let wanted = |id: &str| self.ids.of(id, name, index);
                let id =
                    call.get("id").and_then(Json::as_str).map(|id| (id.to_owned(), wanted(id)));
                index += 1;
                if let Some((id, wanted)) = id {
                    call["id"] = wanted.as_str().into();
                    known.push((id, wanted));
                }
            }
            if let Some(Json::String(id)) = message.get_mut("tool_call_id") {
                // The last call of that id is the one that was answered.
                if let Some((_, wanted)) = known.iter().rev().find(|(given, _)| given == id) {
                    id.clone_from(wanted);
                }
            }
        }
    }
}

impl Silence {
    fn say(self, message: &mut Map<String, Json>) {
        match self {
            Silence::Absent => {}
            Silence::Empty => drop(message.insert("content".into(), "".into())),
            Silence::Null => drop(message.insert("content".into(), Json::Null)),
        }
    }
}

impl Ids {
    /// The id of the call of a function, the `index`th of a conversation, that has been given
    /// another one.
    fn of(self, id: &str, name: &str, index: usize) -> String {
        match self {
            Ids::Any => id.to_owned(),
            Ids::Named => format!("functions.{name}:{index}"),
            Ids::Nine if id.len() == NINE && id.bytes().all(|c| c.is_ascii_alphanumeric()) => {
                id.to_owned()
            }
            Ids::Nine => nine(id),
        }
    }
}

/// Nine letters and digits that follow from `id` (FNV-1a).
fn nine(id: &str) -> String {
    let (basis, prime) = (0xcbf2_9ce4_8422_2325_u64, 0x0100_0000_01b3);
    let mut hash = id.bytes().fold(basis, |hash, c| (hash ^ u64::from(c)).wrapping_mul(prime));
    let letters = (0..NINE).map(|_| {
        let letter = LETTERS[(hash % 62) as usize];
        hash /= 62;
        char::from(letter)
    });
    letters.collect()
}

/// Some templates take arguments as text.
fn arguments() -> [Json; 2] {
    [json!({"key": "home"}), json!("{\"key\": \"home\"}")]
}

fn question() -> Json {
    json!({"role": "user", "content": "Where?"})
}

fn called(id: &str, (silence, thought): (Silence, &str), arguments: &Json) -> Json {
    let function = json!({"name": CALLED, "arguments": arguments});
    let call = json!({"id": id, "type": "function", "function": function});
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    silence.say(&mut message);
    if !thought.is_empty() {
        message.extend(["thinking", "reasoning_content"].map(|key| (key.into(), thought.into())));
    }
    message.insert("tool_calls".into(), json!([call]));
    Json::Object(message)
}

fn result(id: &str) -> Json {
    json!({"role": "tool", "tool_call_id": id, "name": CALLED, "content": "here"})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChatTemplate;
    use crate::chat::LocalTime;

    /// Renders a conversation with a template that writes `called` of an assistant's turn.
    fn rendered(called: &str, messages: &[Json]) -> Result<String, TextError> {
        let source = format!(
            "{{%- for m in messages %}}{{%- if m.role == 'assistant' %}}{called}{{%- else %}}{{{{ m.content }}}}{{%- endif %}}{{%- endfor %}}"
        );
        let template = ChatTemplate::new(&source).expect("a template");
        let variables = [("messages".to_owned(), Json::Array(messages.to_vec()))];
        template.render(&variables.into_iter().collect(), LocalTime::now_utc())
    }

    fn form(called: &str) -> (Silence, Ids) {
        let CallForm { silence, ids } = CallForm::probe(&|messages| rendered(called, messages));
        (silence, ids)
    }

    const CALLS: &str =
        "{%- for c in m.tool_calls or [] %}<{{ c.id }} {{ c.function.name }}>{%- endfor %}";

    #[test]
    fn a_template_gets_the_silence_that_it_takes() {
        let none = "{%- if m.content is none %}{%- for c in m.tool_calls %}<{{ c.function.name }}>\
                    {%- endfor %}{%- else %}{{ m.content }}{%- endif %}";
        for (called, silence) in [
            (CALLS.to_owned(), Silence::Absent),
            (format!("{{{{ m.content + '' }}}}{CALLS}"), Silence::Empty),
            // Only behind the last question, and only where nothing was thought.
            (
                format!(
                    "{{%- if loop.last or m.thinking %}}{{%- else %}}{{{{ m.content + '' }}}}{{%- endif %}}{CALLS}"
                ),
                Silence::Empty,
            ),
            (none.to_owned(), Silence::Null),
            ("no calls".to_owned(), Silence::Absent),
            ("{{ m.content | tojson }}".to_owned(), Silence::Empty),
            ("{{ raise_exception('no') }}".to_owned(), Silence::Absent),
        ] {
            assert_eq!(form(&called).0, silence, "{called}");
        }
    }

    #[test]
    fn a_template_gets_the_ids_that_it_wants() {
        let nine = "{%- for c in m.tool_calls or [] %}{%- if c.id|length != 9 %}\
                    {{ raise_exception('nine') }}{%- endif %}{%- endfor %}";
        let nine = format!("{nine}{CALLS}");
        let named = "{%- for c in m.tool_calls or [] %}<|tool_call_begin|>{{ c.id }} {{ c.function.name }}{%- endfor %}";
        for (called, ids) in [(CALLS, Ids::Any), (&nine, Ids::Nine), (named, Ids::Named)] {
            assert_eq!(form(called).1, ids, "{called}");
        }
        let call = |id: &str, name: &str| json!({"id": id, "function": {"name": name}});
        let answer = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
        let conversation = || {
            [
                json!({"role": "assistant", "tool_calls": [call("call_1", "a"), call("Abcdef123", "b")]}),
                answer("Abcdef123"),
                answer("call_1"),
                json!({"role": "assistant", "tool_calls": [call("call_1", "c")]}),
                answer("call_1"),
                answer("of nobody"),
            ]
        };
        let ids = |ids: Ids| -> Vec<String> {
            let mut messages = conversation();
            CallForm { silence: Silence::Empty, ids }.apply(&mut messages);
            assert_eq!(messages[0]["content"], "");
            let all = messages.iter().flat_map(|message| {
                let own = message.get("tool_call_id");
                calls_of(message).iter().map(|call| &call["id"]).chain(own)
            });
            all.map(|id| id.as_str().expect("a text").to_owned()).collect()
        };
        let given = ["call_1", "Abcdef123", "Abcdef123", "call_1", "call_1", "call_1", "of nobody"];
        assert_eq!(ids(Ids::Any), given);
        let named = ["functions.a:0", "functions.b:1", "functions.b:1", "functions.a:0"];
        let later = ["functions.c:2", "functions.c:2", "of nobody"];
        assert_eq!(ids(Ids::Named), [&named[..], &later].concat());
        let nine = ids(Ids::Nine);
        assert_eq!((&*nine[1], &*nine[2], &nine[0]), ("Abcdef123", "Abcdef123", &nine[3]));
        let fits = |id: &String| id.len() == NINE && id.bytes().all(|c| c.is_ascii_alphanumeric());
        assert!(nine[..6].iter().all(fits), "{nine:?}");
    }
}
