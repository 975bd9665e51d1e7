//! A model that asks for the weather: `cargo run --release --bin tools -- MODEL`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::error::Error;

use inference_core::{ChatOptions, GenerateOptions, LoadOptions, Message, Value};
use programs::value;

/// As chat templates take it.
const WEATHER: &str = r#"{"type": "function", "function": {"name": "weather",
    "description": "The weather in a city now", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}}, "required": ["city"]}}}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("usage: tools MODEL")?;
    metal_backend::register()?;
    let model = inference_core::load_model(model.as_ref(), &LoadOptions::default())?;
    let chat = ChatOptions { tools: vec![value(WEATHER)], ..Default::default() };
    let options = GenerateOptions { max_tokens: Some(256), ..Default::default() };

    let mut messages = vec![Message::user("What is the weather in Oslo?")];
    // A model may call several times before it answers.
    for _ in 0..4 {
        let mut answering = model.answer(&messages, &chat, &options)?;
        for piece in answering.by_ref() {
            piece?;
        }
        let answer = answering.answer();
        messages.push(answer.to_message(value));
        if answer.tool_calls.is_empty() {
            println!("{}", answer.content);
            return Ok(());
        }
        for (index, call) in answer.tool_calls.iter().enumerate() {
            println!("{}({})", call.name, call.arguments);
            let result = if call.name == "weather" { "3 °C, rain" } else { "no such tool" };
            let mut message = Message::tool(result);
            message.fields.push(("tool_call_id".into(), Value::from(format!("call_{index}"))));
            messages.push(message);
        }
    }
    Err("the model called again and again".into())
}
