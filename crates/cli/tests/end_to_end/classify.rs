//! `ml classify` from beginning to end.

use std::fs;

use serde_json::Value;

use crate::{generated, ml, ml_with_stdin, text};

/// Sentences of the demo model's own task, with what they are.
const REVIEWS: [(&str, &str); 4] = [
    ("Classify the sentiment: Couldn't put the book down.", "positive"),
    ("Classify the sentiment: They lost my luggage twice.", "negative"),
    ("Classify the sentiment: Money well spent.", "positive"),
    ("Classify the sentiment: The room smelled of smoke and the shower leaked.", "negative"),
];

fn lines(output: &[u8]) -> Vec<Value> {
    text(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn sentences_get_their_labels_with_scores() {
    let prompts = REVIEWS.map(|(prompt, _)| prompt);
    let arguments = [&["classify", "--json", "--labels", "positive,negative"][..], &prompts];
    let output = ml(&arguments.concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = lines(&output.stdout);
    assert_eq!(found.len(), REVIEWS.len());
    for (index, (object, (prompt, label))) in found.iter().zip(REVIEWS).enumerate() {
        assert_eq!(object["index"], index);
        assert_eq!(object["prompt"], prompt);
        assert_eq!(object["label"], label);
        assert!(object["prompt_tokens"].as_u64().unwrap() > 5);
        let scores = object["labels"].as_array().unwrap();
        assert_eq!(
            (&scores[0]["label"], &scores[1]["label"]),
            (&"positive".into(), &"negative".into())
        );
        let probability = |score: &Value| score["probability"].as_f64().unwrap();
        assert!((scores.iter().map(probability).sum::<f64>() - 1.0).abs() < 1e-9);
        let best = scores.iter().find(|score| score["label"] == label).unwrap();
        assert!(probability(best) > 0.5);
        // What `ml generate` says is the likeliest continuation.
        let answer = generated(&["generate", "-t", "0", "-q", prompt]);
        assert_eq!(answer.trim(), label);
    }
}

#[test]
fn a_table_shows_labels_and_prompts() {
    let folder = tempfile::tempdir().unwrap();
    let (labels, prompts) = (folder.path().join("labels.txt"), folder.path().join("lines.txt"));
    fs::write(&labels, "positive\nnegative\n").unwrap();
    fs::write(&prompts, REVIEWS.map(|(prompt, _)| format!("{prompt}\r\n")).concat()).unwrap();
    let (labels, prompts) = (labels.to_str().unwrap(), prompts.to_str().unwrap());
    let output = ml(&["classify", "--labels-file", labels, "--file", prompts]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows[0], "LABEL     positive  negative  PROMPT");
    assert_eq!(rows.len(), 5, "{table}");
    for (row, (prompt, label)) in rows[1..].iter().zip(REVIEWS) {
        assert!(row.starts_with(label) && row.contains(&prompt[..40]), "{table}");
        assert!(row.contains('%'), "{table}");
    }
    let error = text(&output.stderr);
    assert!(error.contains("4 prompts, ") && error.contains("peak memory"), "{error}");
}

#[test]
fn without_labels_the_next_tokens_are_told() {
    let arguments = ["classify", "--raw", "--top", "3", "--json"];
    let output = ml_with_stdin(&arguments, b"Once upon a\nThere was a little\n");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = lines(&output.stdout);
    assert_eq!(found.len(), 2);
    for (object, prompt) in found.iter().zip(["Once upon a", "There was a little"]) {
        let top = object["top"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        let logprob = |at: usize| top[at]["logprob"].as_f64().unwrap();
        assert!(logprob(0) >= logprob(1) && logprob(1) >= logprob(2));
        let arguments = ["generate", "--raw", "-t", "0", "-n", "1", "--json", prompt];
        let report: Value = serde_json::from_str(&generated(&arguments)).unwrap();
        assert_eq!(top[0]["id"], report["token_ids"][0]);
        assert!((logprob(0) - report["logprobs"][0].as_f64().unwrap()).abs() < 1e-3);
    }
    let table = generated(&["classify", "-q", "--raw", "Once upon a"]);
    assert_eq!(table.lines().count(), 2 + 5, "{table}");
    assert!(table.contains("\" time\""), "{table}");
}

#[test]
fn a_prompt_that_fails_is_told_and_the_others_are_there() {
    let long = "fox ".repeat(5000);
    let input = format!("Sentiment: good\n\n{long}\nSentiment: bad\n");
    let arguments = ["classify", "--json", "--labels", "positive,negative"];
    let output = ml_with_stdin(&arguments, input.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    let found = lines(&output.stdout);
    let failed: Vec<bool> = found.iter().map(|object| object["error"].is_string()).collect();
    assert_eq!(failed, [false, true, true, false]);
    assert_eq!(found[3]["index"], 3);
    assert!(found[2]["error"].as_str().unwrap().contains("the context takes 2048"));
    let error = text(&output.stderr);
    assert!(error.contains("error: prompt 2: the prompt is empty\n"), "{error}");
    assert!(error.contains("error: prompt 3: "), "{error}");
    assert!(error.ends_with("error: 2 of 4 prompts failed\n"), "{error}");
}

#[test]
fn labels_and_prompts_that_mean_nothing_are_refused() {
    let refused = |arguments: &[&str], words: &str| {
        let output = ml_with_stdin(&[&["classify"], arguments].concat(), b"");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    };
    refused(&["--labels", "a,,b", "x"], "label 2 is empty");
    refused(&["--labels", "a,b,a", "x"], "`a` is given twice");
    refused(&["--labels", "a,b"], "no prompt");
    refused(&["--labels-file", "-", "x"], "there are no labels");
    refused(&["--labels-file", "-", "-"], "for the prompts and for the labels");
    refused(&["x", "-"], "give it alone");
    refused(&["--labels", "a", "--top", "2", "x"], "cannot be used with");
    refused(&["--raw", "--system", "s", "x"], "cannot be used with");
}

#[test]
fn a_timeout_keeps_what_is_done() {
    let arguments = ["classify", "--labels", "a,b", "--timeout", "0.000001", "x"];
    let output = ml(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("before all prompts were classified: raise --timeout"), "{error}");
}
