//! Which family a model's chat template belongs to.

use inference_core::{ChatOptions, Message, Role, TextModel, Value};

use super::family::Family;

/// A tool's name that no template has by itself.
const TOOL: &str = "look_up_42";

/// A family, and what its templates write of a call or a tool: one of these. The first that is
/// found counts, so that marks that others contain come later.
const SIGNS: &[(Family, &[&str])] = &[
    (Family::Mistral, &["[TOOL_CALLS]", "[AVAILABLE_TOOLS]"]),
    (Family::Gemma4, &["<|tool_call>"]),
    (Family::FunctionGemma, &["<start_function_call>", "<start_function_declaration>"]),
    (Family::Seed, &["<seed:tool_call>"]),
    (Family::MiniMax, &["<minimax:tool_call>"]),
    (Family::Kimi, &["<|tool_calls_section_begin|>", "tool_declare<|im_middle|>"]),
    (Family::DeepSeek, &["function<｜tool▁sep｜>"]),
    (Family::DeepSeek31, &["<｜tool▁call▁begin｜>"]),
    (Family::Cohere, &["<|START_ACTION|>", "<|START_RESPONSE|>"]),
    (Family::Lfm, &["<|tool_call_start|>", "<|tool_list_start|>", "\nList of tools: ["]),
    (Family::Glm, &["<arg_key>"]),
    (Family::Coder, &["<function=", "<parameter="]),
    (Family::Olmo, &["<function_calls>"]),
    (Family::Nemotron, &["<TOOLCALL>", "<AVAILABLE_TOOLS>"]),
    (Family::Apriel, &["[BEGIN FINAL RESPONSE]"]),
    (Family::Hunyuan, &["<tool_calls>"]),
    (Family::Ernie, &["<response>"]),
    (Family::Hermes, &["<tool_call>"]),
    (Family::Granite, &["<|tool_call|>", "<|tool|>"]),
    (
        Family::Llama3,
        &["<|python_tag|>", "<|python_start|>", "\"parameters\": {\"key\"", "[look_up_42("],
    ),
    (Family::Llama3, &["<|start_header_id|>", "<|header_start|>"]),
    (Family::Gemma, &["```tool_code", "<start_of_turn>"]),
];

impl Family {
    /// Renders conversations with a tool and a call of it, and looks for the marks of a family.
    /// [`Family::Plain`] where the template knows no tools and no channels.
    pub fn probe(model: &dyn TextModel) -> Family {
        // A template that refuses a conversation has no marks for it.
        let render = |messages: &[Message], options: &ChatOptions| {
            model.render_chat(messages, options).map(|prompt| prompt.text).unwrap_or_default()
        };
        // Answers come in channels whether or not the template takes tools.
        let answered = render(&[Message::user("Where?")], &ChatOptions::default());
        if let Some(family) = in_messages(&answered) {
            return family;
        }
        if is_gemma4(&answered) {
            return Family::Gemma4;
        }
        let options = ChatOptions { tools: vec![tool()], ..ChatOptions::default() };
        Family::of_template(&|messages| render(messages, &options))
    }

    /// The family of a template that renders conversations with [`tool`].
    fn of_template(rendered: &dyn Fn(&[Message]) -> String) -> Family {
        let question = || Message::user("Where?");
        let offered = rendered(&[question()]);
        if let Some(family) = in_messages(&offered) {
            return family;
        }
        // Some templates take the arguments as text, some want the call's result.
        let as_object = Value::Object(vec![("key".into(), "home".into())]);
        let as_text = Value::from("{\"key\": \"home\"}");
        let conversations = [as_object, as_text].map(|arguments| {
            let called = called(arguments);
            let mut result = Message::tool("here");
            result.fields =
                vec![("tool_call_id".into(), "abcdefghi".into()), ("name".into(), TOOL.into())];
            let said = Message::new(Role::Assistant, "There.");
            [vec![question(), said, question(), called.clone(), result], vec![question(), called]]
        });
        let texts: String =
            conversations.iter().flatten().map(|messages| rendered(messages)).collect();
        let texts = offered + &texts;
        if !texts.contains(TOOL) {
            return Family::Plain;
        }
        let sign = SIGNS.iter().find(|(_, signs)| signs.iter().any(|sign| texts.contains(sign)));
        sign.map_or(Family::Plain, |(family, _)| *family)
    }
}

/// Returns true for a conversation of Gemma 4, rendered up to the answer. It reasons in a channel.
fn is_gemma4(rendered: &str) -> bool {
    rendered.contains("<|turn>model")
}

/// The family whose answers are messages with headers, if a conversation that was rendered up to
/// the answer is one of these.
fn in_messages(rendered: &str) -> Option<Family> {
    let messages = rendered.ends_with("<|start|>assistant");
    let muse = ["<|eom|>", "<|eot|>"].iter().any(|mark| rendered.contains(mark));
    messages.then_some(if muse { Family::Muse } else { Family::Harmony })
}

fn tool() -> Value {
    let object = |fields: Vec<(&str, Value)>| {
        Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    };
    let key = object(vec![("type", "string".into()), ("description", "a key".into())]);
    let parameters = object(vec![
        ("type", "object".into()),
        ("properties", object(vec![("key", key)])),
        ("required", Value::Array(vec!["key".into()])),
    ]);
    let function = object(vec![
        ("name", TOOL.into()),
        ("description", "looks a key up".into()),
        ("parameters", parameters),
    ]);
    object(vec![("type", "function".into()), ("function", function)])
}

fn called(arguments: Value) -> Message {
    let function =
        Value::Object(vec![("name".into(), TOOL.into()), ("arguments".into(), arguments)]);
    let call = Value::Object(vec![
        ("id".into(), "abcdefghi".into()),
        ("type".into(), "function".into()),
        ("function".into(), function),
    ]);
    let mut message = Message::new(Role::Assistant, "");
    message.fields.push(("tool_calls".into(), Value::Array(vec![call])));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A template: what it writes of a tool, and before and after a call's arguments.
    fn family(offer: &str, call: [&str; 2], generation: &str) -> Family {
        Family::of_template(&|messages| {
            let mut text = format!("<s>{offer}");
            for message in messages {
                text += message.content.as_str().unwrap_or_default();
                if !message.fields.is_empty() && message.role == Role::Assistant {
                    text += &call.concat();
                }
            }
            text + generation
        })
    }

    #[test]
    fn gemma_4_is_known_without_tools() {
        assert!(is_gemma4("<bos><|turn>user\nWhere?<turn|>\n<|turn>model\n"));
        assert!(!is_gemma4(
            "<bos><start_of_turn>user\nWhere?<end_of_turn>\n<start_of_turn>model\n"
        ));
    }

    #[test]
    fn a_family_is_known_by_its_marks() {
        let hermes = ["<tool_call>\n{\"name\": \"look_up_42\", \"arguments\": ", "}\n</tool_call>"];
        assert_eq!(family("<tools>", hermes, "<|im_start|>assistant\n"), Family::Hermes);
        let coder = ["<function=look_up_42>", "</function>"];
        assert_eq!(family("look_up_42", coder, ""), Family::Coder);
        let llama =
            ["<|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \"look_up_42\"", "}"];
        assert_eq!(
            family("", llama, "<|start_header_id|>assistant<|end_header_id|>"),
            Family::Llama3
        );
        let mistral = ["[TOOL_CALLS]look_up_42[ARGS]", ""];
        assert_eq!(family("", mistral, ""), Family::Mistral);
        let old = ["look_up_42", ""];
        assert_eq!(
            family("[AVAILABLE_TOOLS]look_up_42[/AVAILABLE_TOOLS]", old, ""),
            Family::Mistral
        );
        let gemma = ["<start_function_call>call:look_up_42{", "}<end_function_call>"];
        assert_eq!(family("", gemma, "<start_of_turn>model\n"), Family::FunctionGemma);
        let gemma4 = ["<|tool_call>call:look_up_42{", "}<tool_call|>"];
        assert_eq!(family("", gemma4, ""), Family::Gemma4);
        let calls = [
            ("<tool_call>look_up_42\n<arg_key>key</arg_key>", Family::Glm),
            ("<seed:tool_call>\n<function=look_up_42>\n<parameter=key>", Family::Seed),
            ("<minimax:tool_call>\n<invoke name=\"look_up_42\">", Family::MiniMax),
            ("<|tool_calls_section_begin|><|tool_call_begin|>functions.look_up_42:0", Family::Kimi),
            (
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look_up_42",
                Family::DeepSeek,
            ),
            (
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look_up_42<｜tool▁sep｜>",
                Family::DeepSeek31,
            ),
            ("<|START_ACTION|>[\n    {\"tool_name\": \"look_up_42\"", Family::Cohere),
            ("<|tool_call_start|>[look_up_42(key=", Family::Lfm),
            ("<function_calls>look_up_42(key=", Family::Olmo),
            ("<TOOLCALL>[{\"name\": \"look_up_42\"", Family::Nemotron),
            ("<tool_calls>[{\"name\": \"look_up_42\"", Family::Hunyuan),
            ("after [BEGIN FINAL RESPONSE].<tool_calls>[{\"name\": \"look_up_42\"", Family::Apriel),
            (
                "<response>\nThere.\n</response>\n<tool_call>\n{\"name\": \"look_up_42\"",
                Family::Ernie,
            ),
            ("<|tool_call|>[{\"name\": \"look_up_42\"", Family::Granite),
        ];
        for (call, expected) in calls {
            assert_eq!(family("", [call, ""], ""), expected, "{call}");
        }
        let kimi = "<|im_system|>tool_declare<|im_middle|>look_up_42<|im_end|>";
        assert_eq!(family(kimi, ["", ""], ""), Family::Kimi);
        let lfm = "<|im_start|>system\nList of tools: [look_up_42]<|im_end|>";
        assert_eq!(family(lfm, ["", ""], ""), Family::Lfm);
        let muse = "<|start|>system<|message|>look_up_42<|eot|>";
        assert_eq!(family(muse, ["", ""], "<|start|>assistant"), Family::Muse);
        let offer = "<|start|>developer<|message|># Tools\nlook_up_42<|end|>";
        assert_eq!(family(offer, ["", ""], "<|start|>assistant"), Family::Harmony);
    }

    #[test]
    fn a_template_without_tools_is_plain() {
        for generation in ["<start_of_turn>model\n", "<|start_header_id|>", "<tool_call>", ""] {
            assert_eq!(family("", ["", ""], generation), Family::Plain);
        }
        assert_eq!(family("look_up_42", ["<|other|>", ""], ""), Family::Plain);
        assert_eq!(Family::of_template(&|_| String::new()), Family::Plain);
    }
}
