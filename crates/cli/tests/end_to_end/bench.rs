//! The measurements: their form, and that they measure what is asked for.

use crate::{command, json, ml, text};

#[test]
fn each_test_has_its_figures() {
    let report = json(&[
        "bench", "--json", "--quiet", "-p", "16", "-n", "6", "-d", "3", "-r", "2", "-c", "3",
    ]);
    let results = report["results"].as_array().unwrap();
    let names: Vec<_> = results.iter().map(|test| test["test"].as_str().unwrap()).collect();
    assert_eq!(names, ["pp16", "tg6@d3", "c3 pp16+tg6"]);
    for test in results {
        assert!(test["tokens_per_second"].as_f64().unwrap() > 0.0, "{test}");
        assert_eq!(test["samples"].as_array().unwrap().len(), 2);
        assert!(test["peak_memory_bytes"].as_u64() >= report["weight_bytes"].as_u64());
    }
    let first = &results[2]["time_to_first_token_seconds"];
    assert!(first["p50"].as_f64() <= first["p95"].as_f64() && first["p50"].as_f64() > Some(0.0));
    assert_eq!(report["architecture"], "qwen3");
}

#[test]
fn a_step_is_taken_apart_without_a_rest_that_nobody_knows() {
    let report = json(&[
        "bench",
        "--json",
        "-q",
        "-p",
        "8",
        "-n",
        "24",
        "-r",
        "2",
        "-c",
        "2",
        "--breakdown",
    ]);
    let [prompt, decode, together] = &report["results"].as_array().unwrap()[..] else {
        panic!("{report}");
    };
    assert!(prompt.get("steps").is_none(), "{prompt}");
    // Two runs of 25 tokens, of which each takes a pass: the prompt has a single id.
    assert_eq!(decode["steps"], 50);
    assert!(together["steps"].as_u64() >= Some(2 * 23), "{together}");
    for test in [decode, together] {
        let seconds = test["step_seconds"].as_object().unwrap();
        let part = |name: &str| seconds[name].as_f64().unwrap();
        let names = ["build", "encode", "wait", "sample", "detokenize", "rest"];
        let sum: f64 = names.into_iter().map(part).sum();
        assert!((sum / part("total") - 1.0).abs() < 1e-6, "{test}");
        assert!(part("build") > 0.0 && part("encode") > 0.0 && part("detokenize") > 0.0, "{test}");
    }
    let slowest = decode["samples"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap());
    let slowest = 1.0 / slowest.fold(f64::INFINITY, f64::min);
    let step = decode["step_seconds"]["total"].as_f64().unwrap();
    assert!(step < 2.0 * slowest, "a step of {step} s where a token takes {slowest} s");
}

#[test]
fn random_weights_have_the_sizes_of_a_released_model() {
    let arguments = ["--quiet", "-p", "2", "-n", "0", "-r", "1", "--bits", "4"];
    let output = ml(&[&["bench", "--shape", "qwen3-0.6b"], &arguments[..]].concat());
    let (table, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{error}");
    let row = table.lines().nth(2).unwrap();
    // 596,049,920 parameters in 4.5 bits, and norms.
    assert!(row.starts_with("| qwen3-0.6b (random weights) | 4 bits in groups of 64 | 319.8 MiB"));
    assert!(row.contains("pp2") && table.contains("loaded in"), "{table}");
}

#[test]
fn the_config_of_random_weights_can_be_had_alone() {
    let config =
        json(&["bench", "--shape", "qwen3-4b", "--bits", "4", "--layers", "3", "--print-config"]);
    assert_eq!((&config["model_type"], &config["num_hidden_layers"]), (&"qwen3".into(), &3.into()));
    assert_eq!(config["quantization"]["bits"], 4);
    let output = ml(&["bench", "--print-config"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn a_part_of_each_hybrid_and_mixture_runs() {
    for (shape, layers) in [
        ("qwen3.5-0.8b", "4"),
        ("qwen3.5-35b-a3b", "1"),
        ("gemma4-e2b", "5"),
        ("gemma4-26b-a4b", "1"),
        ("glm4.7-flash", "2"),
        ("lfm2-1.2b", "3"),
        ("nemotron3-nano", "2"),
        ("falcon-mamba-7b", "1"),
        ("mamba-codestral-7b", "1"),
    ] {
        let part = ["--shape", shape, "--layers", layers, "--bits", "4", "--json", "-q"];
        let report = json(&[&["bench"], &part[..], &["-p", "3", "-n", "2", "-r", "1"]].concat());
        assert_eq!(report["num_layers"].to_string(), layers, "{shape}: {report}");
        let tests = report["results"].as_array().unwrap();
        assert!(tests.iter().all(|test| test["tokens_per_second"].as_f64() > Some(0.0)), "{shape}");
    }
}

#[test]
fn what_measures_nothing_is_refused() {
    for arguments in [
        &["-p", "0", "-n", "0"][..],
        &["-p", "0", "-c", "2"],
        &["--bits", "4"],
        &["-n", "0", "--breakdown"],
        &["--shape", "qwen3-0.6b", "--layers", "29"],
        &["--shape", "qwen3-0.6b", "--layers", "0"],
        &["--clients", "8", "--threads", "1", "-p", "4", "-n", "2"],
        &["--url", "http://127.0.0.1:1", "--threads", "1"],
    ] {
        let output = ml(&[&["bench"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    let mut at_a_server = command(&["bench", "--url", "http://127.0.0.1:1"]);
    let output = at_a_server.env("ML_THREADS", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let output = ml(&["bench", "-p", "5000", "-r", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("5000"), "{}", text(&output.stderr));
}
