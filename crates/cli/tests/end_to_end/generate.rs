//! `ml generate` from beginning to end.

use serde_json::Value;

use crate::{FOX, command, copy_parts, finish, generated, json, ml, ml_with_stdin, text};

#[test]
fn the_streamed_text_is_the_text_of_the_report() {
    let streamed = generated(&["generate", "-t", "0", "--quiet", FOX]);
    let report = json(&["generate", "-t", "0", "--json", FOX]);
    assert_eq!(streamed, format!("{}\n", report["text"].as_str().unwrap()));
    assert!(streamed.to_lowercase().contains("fox"), "{streamed}");
    assert_eq!(report["finish_reason"], "stop");
    assert_eq!(report["stop"]["type"], "end_of_sequence");
}

/// Returns the prompt's ids with `more` arguments, for the tokenizer and the weights named.
fn prompt_ids(parts: [&str; 2], more: &[&str]) -> Result<Value, String> {
    let folder = tempfile::tempdir().unwrap();
    copy_parts(parts, folder.path());
    let model = folder.path().to_str().unwrap();
    let arguments = ["generate", "--model", model, "-n", "1", "--json", "hi"];
    let output = ml(&[&arguments, more].concat());
    match output.status.code() {
        Some(0) => {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            Ok(report["prompt_token_ids"].clone())
        }
        Some(2) => Err(text(&output.stderr)),
        other => panic!("{more:?} ends with {other:?}: {}", text(&output.stderr)),
    }
}

#[test]
fn how_much_to_think_reaches_templates_that_know_of_it() {
    const QWEN: [&str; 2] = ["tokenizers/qwen-converted", "models/qwen3-4bit-g64"];
    const GPT_OSS: [&str; 2] = ["tokenizers/harmony", "models/gpt_oss"];
    let effort = |parts, level| prompt_ids(parts, &["--reasoning-effort", level]);
    let kwargs = |parts, json| prompt_ids(parts, &["--chat-template-kwargs", json]).unwrap();
    let off = kwargs(QWEN, r#"{"enable_thinking": false}"#);
    let on = kwargs(QWEN, r#"{"enable_thinking": true}"#);
    assert_ne!(off, on);
    assert_eq!((effort(QWEN, "none"), effort(QWEN, "high")), (Ok(off), Ok(on)));
    let both =
        ["--reasoning-effort", "none", "--chat-template-kwargs", r#"{"enable_thinking": true}"#];
    let refused = prompt_ids(QWEN, &both).unwrap_err();
    assert!(refused.contains("--chat-template-kwargs has another `enable_thinking`"), "{refused}");

    let low = kwargs(GPT_OSS, r#"{"reasoning_effort": "low"}"#);
    assert_eq!(effort(GPT_OSS, "low"), Ok(low.clone()));
    assert_ne!(effort(GPT_OSS, "high"), Ok(low));
    let refused = effort(GPT_OSS, "none").unwrap_err();
    assert!(refused.contains("--reasoning-effort none: the model cannot be told"), "{refused}");
}

#[test]
fn how_much_to_think_is_refused_where_the_template_knows_nothing_of_it() {
    for command in ["generate", "classify", "inspect"] {
        let output = ml(&[command, "--reasoning-effort", "low", FOX]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {error}");
        assert!(error.contains("--reasoning-effort low: the model's chat template"), "{error}");
    }
    let output = ml_with_stdin(&["chat", "--reasoning-effort", "max"], b"hi\n");
    assert!(text(&output.stderr).contains("--reasoning-effort max: the model's chat template"));
    // A model that does not think does as it is told.
    generated(&["generate", "--reasoning-effort", "none", "-n", "1", FOX]);
    let output = ml(&["generate", "--raw", "--reasoning-effort", "none", FOX]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn json_can_be_extracted_from_a_sentence() {
    let prompt = "Extract the name, age and city as JSON: Mara is 31 and lives in Oslo.";
    let answer = generated(&["generate", "-t", "0", "--quiet", prompt]);
    let object: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(object["name"], "Mara");
    assert_eq!(object["age"], 31);
    assert_eq!(object["city"], "Oslo");
}

#[test]
fn the_report_has_every_field() {
    let report = json(&[
        "generate",
        "-t",
        "0",
        "-n",
        "8",
        "--top-logprobs",
        "3",
        "--seed",
        "5",
        "--json",
        FOX,
    ]);
    let tokens = report["token_ids"].as_array().unwrap().len();
    assert_eq!(tokens, 8);
    assert!(!report["prompt_token_ids"].as_array().unwrap().is_empty());
    let logprobs = report["logprobs"].as_array().unwrap();
    assert_eq!(logprobs.len(), tokens);
    let top = report["top_logprobs"].as_array().unwrap();
    assert_eq!(top.len(), tokens);
    for (step, chosen) in top.iter().zip(logprobs) {
        assert!(chosen.as_f64().unwrap() <= 0.0);
        assert_eq!(step.as_array().unwrap().len(), 3);
        assert!(step[0]["id"].is_u64());
        // Greedy: the chosen token is the most likely one.
        assert_eq!(&step[0]["logprob"], chosen);
    }
    assert_eq!(report["finish_reason"], "length");
    assert!(report["stop"].is_null());
    assert_eq!(report["seed"], 5);
    let metrics = &report["metrics"];
    assert_eq!(metrics["generated_tokens"], 8);
    assert_eq!(
        metrics["prompt_tokens"].as_u64().unwrap() as usize,
        report["prompt_token_ids"].as_array().unwrap().len()
    );
    for rate in ["prefill_tokens_per_second", "decode_tokens_per_second", "total_seconds"] {
        assert!(metrics[rate].as_f64().unwrap() > 0.0, "{rate}");
    }
    assert!(metrics["time_to_first_token_seconds"].as_f64().unwrap() > 0.0);
    assert!(metrics["peak_memory_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn a_seed_repeats_a_draw() {
    let draw = |seed| generated(&["generate", "-t", "1", "-n", "24", "-q", "--seed", seed, FOX]);
    assert_eq!(draw("1"), draw("1"));
    assert_ne!(draw("1"), draw("2"));
}

#[test]
fn a_stop_text_ends_the_answer_before_it() {
    let report = json(&["generate", "-t", "0", "--stop", ".", "--json", FOX]);
    assert!(!report["text"].as_str().unwrap().contains('.'));
    assert_eq!(report["stop"], serde_json::json!({"type": "text", "text": "."}));
}

#[test]
fn piped_stdin_is_the_prompt() {
    let argument = generated(&["generate", "-t", "0", "-q", FOX]);
    let piped = ml_with_stdin(&["generate", "-t", "0", "-q"], format!("{FOX}\n").as_bytes());
    assert_eq!(text(&piped.stdout), argument);
    let dash = ml_with_stdin(&["generate", "-t", "0", "-q", "-"], FOX.as_bytes());
    assert_eq!(text(&dash.stdout), argument);
    let messages = format!(r#"[{{"role": "user", "content": "{FOX}"}}]"#);
    let from_messages =
        ml_with_stdin(&["generate", "-t", "0", "-q", "--messages", "-"], messages.as_bytes());
    assert_eq!(text(&from_messages.stdout), argument);
}

#[test]
fn stdin_beside_a_prompt_is_noted() {
    let output = ml_with_stdin(&["generate", "-n", "2", FOX], b"some notes");
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("--prompt-file -"), "{}", text(&output.stderr));
}

#[test]
fn statistics_go_to_stderr_without_escapes() {
    let output = ml(&["generate", "-n", "4", FOX]);
    let error = text(&output.stderr);
    assert_eq!(error.lines().count(), 1, "{error}");
    for part in ["prompt ", "tok/s", "decode 4 tokens", "first token ", "peak memory "] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!error.contains('\x1b'), "{error}");
    assert_eq!(text(&ml(&["generate", "-n", "4", "-q", FOX]).stderr), "");
}

#[test]
fn two_processes_run_at_once() {
    let arguments = ["generate", "-t", "0", "-q", FOX];
    let first = command(&arguments).spawn().unwrap();
    let second = command(&arguments).spawn().unwrap();
    let (first, second) = (finish(first), finish(second));
    assert_eq!(first.0, Some(0), "{}", first.2);
    assert_eq!(first, second);
    assert!(!first.1.is_empty());
}

#[test]
fn a_prompt_beyond_the_context_is_refused_with_both_numbers() {
    let prompt = "fox ".repeat(5000);
    let output = ml(&["generate", "--raw", &prompt]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the context takes 2048"), "{}", text(&output.stderr));
}

#[test]
fn raw_text_is_continued_without_the_template() {
    let raw = json(&["generate", "--raw", "-n", "4", "--json", FOX]);
    let chat = json(&["generate", "-n", "4", "--json", FOX]);
    let length = |report: &Value| report["prompt_token_ids"].as_array().unwrap().len();
    assert!(length(&raw) < length(&chat));
}

#[test]
fn a_system_message_reaches_the_prompt() {
    let with = json(&["generate", "--system", "Be brief.", "-n", "1", "--json", FOX]);
    let without = json(&["generate", "-n", "1", "--json", FOX]);
    assert_ne!(with["prompt_token_ids"], without["prompt_token_ids"]);
}

#[test]
fn a_prompt_is_told_of_without_a_token_that_follows() {
    let all = ["--raw", "-t", "0", "--json", "Once upon a time, there was a fox"];
    let ask = |more: &[&str]| json(&[&["generate"], more, &all].concat());
    let told = ask(&["-n", "0", "--prompt-logprobs", "--top-logprobs", "2"]);
    let list = told["prompt_logprobs"].as_array().unwrap();
    assert_eq!(list.len(), told["prompt_token_ids"].as_array().unwrap().len());
    assert!(list[0].is_null() && list[1..].iter().all(|number| number.as_f64().unwrap() <= 0.0));
    assert_eq!(told["prompt_top_logprobs"][1].as_array().unwrap().len(), 2);
    assert_eq!((&told["text"], &told["finish_reason"]), (&"".into(), &"length".into()));
    assert_eq!(ask(&["-n", "0"]).get("prompt_logprobs"), None);
}

#[test]
fn a_batch_gives_a_line_for_each_prompt_in_their_order() {
    let lines = format!("\"{FOX}\"\n\n{{\"prompt\": \"{FOX}\"}}\n\"{}\"\n", "fox ".repeat(5000));
    let arguments = ["generate", "-t", "0", "-n", "8", "--json", "--batch", "-"];
    let output = ml_with_stdin(&arguments, lines.as_bytes());
    assert_eq!(output.status.code(), Some(1), "one is too long");
    let reports: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let alone = json(&["generate", "-t", "0", "-n", "8", "--json", FOX]);
    for (index, report) in reports[..2].iter().enumerate() {
        assert_eq!(report["index"], index);
        assert_eq!(report["token_ids"], alone["token_ids"]);
    }
    assert_eq!(reports.len(), 3);
    assert!(reports[2]["error"].as_str().unwrap().contains("the context takes 2048"));
    let error = text(&output.stderr);
    assert!(
        error.contains("decode 16 tokens") && error.contains("1 of 3 prompts failed"),
        "{error}"
    );
}

#[test]
fn options_that_would_do_nothing_are_told_or_refused() {
    let greedy = ml(&["generate", "-t", "0", "-n", "2", "--top-p", "0.5", "--seed", "1", FOX]);
    assert!(greedy.status.success());
    let error = text(&greedy.stderr);
    assert!(error.contains("--top-p, --seed changed nothing"), "{error}");
    let drawn = ml(&["generate", "-t", "0.7", "-n", "2", "--top-p", "0.5", FOX]);
    assert!(!text(&drawn.stderr).contains("changed nothing"), "{}", text(&drawn.stderr));
    for flag in [["--penalty-window", "9"], ["--penalty-scope", "generated"]] {
        let alone = ml(&["generate", "-n", "2", flag[0], flag[1], FOX]);
        assert_eq!(alone.status.code(), Some(2));
        let error = text(&alone.stderr);
        assert!(error.contains(flag[0]) && error.contains("without a penalty"), "{error}");
        let with = ml(&["generate", "-n", "2", flag[0], flag[1], "--presence-penalty", "1", FOX]);
        assert!(with.status.success(), "{}", text(&with.stderr));
    }
}

#[test]
fn log_probabilities_come_as_lines_and_logits_in_the_report() {
    let lines = generated(&["generate", "-t", "0", "-n", "4", "-q", "--logprobs", FOX]);
    let report = json(&["generate", "-t", "0", "-n", "4", "--logits", "--json", FOX]);
    let mut said = String::new();
    for (line, logprob) in lines.lines().zip(report["logprobs"].as_array().unwrap()) {
        let (number, token) = line.trim().split_once("  ").unwrap();
        let number: f64 = number.parse().unwrap();
        assert!((number - logprob.as_f64().unwrap()).abs() < 1e-3, "{line} {logprob}");
        said += &serde_json::from_str::<String>(token).unwrap();
    }
    assert_eq!(report["text"], said);
    let logits = report["logits"].as_array().unwrap();
    let best = |row: &Value| {
        let row: Vec<f64> = row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()
    };
    let ids: Vec<usize> = logits.iter().map(best).collect();
    assert_eq!(serde_json::json!(ids), report["token_ids"]);
}
