//! The command line: what is accepted, what is refused, and with which words.

use std::path::PathBuf;
use std::time::Duration;

use clap::CommandFactory;
use inference_core::{Constraint, CpuActivations, Dtype, PenaltyScope, ReasoningMarks, Value, Xtc};

use super::{ChatArgs, Cli, Command, GenerateArgs};

fn parse(arguments: &[&str]) -> Result<Cli, String> {
    Cli::read(["ml"].iter().chain(arguments)).map_err(|error| error.to_string())
}

fn generate(arguments: &[&str]) -> GenerateArgs {
    let arguments: Vec<&str> = ["generate"].iter().chain(arguments).copied().collect();
    match parse(&arguments).unwrap().command {
        Some(Command::Generate(args)) => *args,
        other => panic!("{other:?}"),
    }
}

fn chat(arguments: &[&str]) -> ChatArgs {
    let arguments: Vec<&str> = ["chat"].iter().chain(arguments).copied().collect();
    match parse(&arguments).unwrap().command {
        Some(Command::Chat(args)) => *args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn a_heading_stands_over_its_own_flags_only() {
    let mut cli = Cli::command();
    cli.build();
    let launch = cli.find_subcommand("launch").unwrap();
    let of_hosts = |argument: &&clap::Arg| argument.get_help_heading() == Some("Several hosts");
    let found: Vec<_> =
        launch.get_arguments().filter(of_hosts).map(|a| a.get_id().as_str()).collect();
    assert_eq!(found, ["starting_port", "program", "cwd", "insecure_ranks"]);
}

#[test]
fn no_line_of_a_help_is_cut_by_its_width() {
    for command in Cli::command().get_subcommands() {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let prose = text.split("Examples:").next().unwrap_or_default();
        for line in prose.lines() {
            assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
        }
    }
}

#[test]
fn unset_options_stay_unset() {
    let args = generate(&["hi"]);
    let options = args.sampling.options().unwrap();
    assert_eq!(options.max_tokens, None);
    assert_eq!(options.temperature, None);
    assert_eq!(options.seed, None);
    assert_eq!(args.load.options().unwrap(), Default::default());
}

#[test]
fn every_sampling_option_reaches_the_contract() {
    #[rustfmt::skip]
    let args = generate(&[
        "hi", "-n", "7", "-t", "0.5", "--top-k", "40", "--top-p", "0.9", "--min-p", "0.05",
        "--xtc-probability", "0.5", "--xtc-threshold", "0.2", "--repetition-penalty", "1.1",
        "--presence-penalty", "-0.5", "--frequency-penalty", "0.25", "--penalty-window", "64",
        "--logit-bias", "5=-1", "--logit-bias", r#"{"6": 2}"#, "--seed", "42", "--stop", "A",
        "--stop", "B", "--stop-token-id", "3", "--stop-token-id", "4", "--ignore-eos",
        "--penalty-scope", "generated", "--min-tokens", "5",
        "--typical-p", "0.6", "--top-n-sigma", "1.5", "--dry-multiplier", "0.8", "--dry-base", "2",
        "--dry-allowed-length", "3", "--dry-penalty-last-n", "64", "--dry-sequence-breaker", "none",
    ]);
    let options = args.sampling.options().unwrap();
    assert_eq!(options.max_tokens, Some(7));
    assert_eq!(options.temperature, Some(0.5));
    assert_eq!(options.top_k, Some(40));
    assert_eq!(options.top_p, Some(0.9));
    assert_eq!(options.min_p, Some(0.05));
    assert_eq!(options.xtc, Some(Xtc { probability: 0.5, threshold: 0.2 }));
    assert_eq!(options.repetition_penalty, Some(1.1));
    assert_eq!(options.presence_penalty, Some(-0.5));
    assert_eq!(options.frequency_penalty, Some(0.25));
    assert_eq!(options.penalty_window, Some(64));
    assert_eq!(options.penalty_scope, PenaltyScope::Generated);
    let useless = "--top-k, --top-p, --min-p, --typical-p, --top-n-sigma, --xtc-probability, \
                   --seed changed nothing";
    assert!(args.sampling.greedy_note().unwrap().contains(useless));
    assert_eq!(generate(&["hi", "--top-p", "1"]).sampling.greedy_note(), None);
    assert_eq!(options.logit_bias, [(5, -1.0), (6, 2.0)].into());
    assert_eq!(options.seed, Some(42));
    assert_eq!(options.stop, ["A", "B"]);
    assert_eq!(options.stop_token_ids, [3, 4]);
    assert!(options.ignore_eos);
    assert_eq!(options.min_tokens, 5);
    assert_eq!((options.typical_p, options.top_n_sigma), (Some(0.6), Some(1.5)));
    let dry = options.dry.unwrap();
    assert_eq!((dry.multiplier, dry.base, dry.allowed_length), (0.8, 2.0, 3));
    assert_eq!((dry.penalty_last_n, dry.sequence_breakers.len()), (Some(64), 0));
    let usual = generate(&["hi", "--dry-multiplier", "1"]).sampling.options().unwrap().dry.unwrap();
    assert_eq!(usual.sequence_breakers, ["\n", ":", "\"", "*"]);
}

#[test]
fn every_constraint_reaches_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let constraint = |flag: &str, given: &str| {
        generate(&["hi", flag, given]).sampling.options().unwrap().constraint
    };
    assert_eq!(constraint("--regex", "[a-z]+"), Some(Constraint::Regex("[a-z]+".into())));
    let schema = Value::Object(vec![("type".into(), Value::from("null"))]);
    assert_eq!(
        constraint("--json-schema", &file("schema.json", r#"{"type": "null"}"#)),
        Some(Constraint::JsonSchema(schema))
    );
    let grammar = "start: \"a\"\n";
    assert_eq!(
        constraint("--grammar", &file("a.lark", grammar)),
        Some(Constraint::Lark(grammar.into()))
    );
    let both = generate(&["hi", "--regex", "a", "--ignore-eos"]).sampling.options();
    assert_eq!(
        both.unwrap_err().to_string(),
        "--ignore-eos: a constrained text ends where its constraint does"
    );
    let reasoned = generate(&["hi", "--regex", "a", "--reasoning", "<think>", "</think>"]);
    let marks = ReasoningMarks { open: "<think>".into(), close: "</think>".into() };
    assert_eq!(reasoned.sampling.options().unwrap().reasoning, Some(marks));
    let bounded = generate(&["hi", "--reasoning-budget", "9"]).sampling.options().unwrap();
    let budget = bounded.reasoning_budget.unwrap();
    assert_eq!((budget.tokens, budget.marks.close.as_str()), (9, "</think>"));
    let own = ["hi", "--reasoning-budget", "9", "--reasoning", "[A]", "[B]"];
    let own = generate(&own).sampling.options().unwrap();
    assert_eq!((own.reasoning, own.reasoning_budget.unwrap().marks.close), (None, "[B]".into()));
    let alone = generate(&["hi", "--reasoning", "<think>", "</think>"]).sampling.options();
    assert_eq!(
        alone.unwrap_err().to_string(),
        "--reasoning: says nothing without --json-schema, --regex or --grammar"
    );
}

#[test]
fn every_load_option_reaches_the_contract() {
    #[rustfmt::skip]
    let args = chat(&[
        "--model", "m", "--backend", "cpu", "--dtype", "f32", "--context-length", "512",
        "--prefill-chunk", "64", "--memory-limit", "16GiB", "--cache-limit", "0",
        "--kv-bits", "8", "--adapter", "./a", "--parallel", "2", "--threads", "3", "--timeout", "1.5",
        "--kv-group-size", "32", "--batch-invariant", "--queue-limit", "5", "--prefix-cache", "1MiB",
        "--prefix-cache-dir", "p", "--prefix-cache-disk", "2GiB", "--cpu-activations", "int8",
    ]);
    let options = args.load.options().unwrap();
    assert_eq!(args.load.model, Some(PathBuf::from("m")));
    assert_eq!(options.backend.as_deref(), Some("cpu"));
    assert_eq!(options.queue_limit, Some(5));
    assert_eq!(options.dtype, Some(Dtype::F32));
    assert_eq!(options.context_length, Some(512));
    assert_eq!(options.prefill_chunk, Some(64));
    assert_eq!(options.memory_limit, Some(16 << 30));
    assert_eq!(options.cache_limit, Some(0));
    assert_eq!(options.kv_bits, Some(8));
    assert_eq!(options.kv_group_size, Some(32));
    assert!(options.batch_invariant);
    assert_eq!(args.prefix_cache, Some(1 << 20));
    assert_eq!(args.prefix_cache_dir, Some(PathBuf::from("p")));
    assert_eq!(args.prefix_cache_disk, Some(2 << 30));
    assert_eq!(options.adapter_path, Some(PathBuf::from("./a")));
    assert_eq!(options.parallel_slots, Some(2));
    assert_eq!(options.threads, Some(3));
    assert_eq!(options.cpu_activations, Some(CpuActivations::Int8));
    assert_eq!(args.timeout, Some(Duration::from_millis(1500)));
}

#[test]
fn a_value_that_cannot_be_read_is_told_with_its_flag() {
    for (flag, value, expected) in [
        ("--temperature", "warm", "expected a number"),
        ("--top-k", "-1", "expected a whole number"),
        ("--max-tokens", "99999999999999999999", "expected a whole number"),
        ("--seed", "-5", "expected a whole number"),
        ("--timeout", "-1", "expected seconds"),
        ("--memory-limit", "lots", "expected bytes"),
        ("--dtype", "int8", "expected f32, f16 or bf16"),
        ("--cpu-activations", "int4", "expected int8"),
        ("--logit-bias", "5", "expected ID=BIAS"),
        ("--stop-token-id", "4294967296", "expected a token id"),
        ("--chat-template-kwargs", "[1]", "expected a JSON object"),
    ] {
        let error = parse(&["generate", "hi", flag, value]).unwrap_err();
        assert!(error.contains(flag) && error.contains(expected), "{error}");
    }
}

#[test]
fn a_value_out_of_range_is_told_with_its_flag() {
    for (flag, value) in [
        ("--temperature", "-1"),
        ("--temperature", "NaN"),
        ("--temperature", "-inf"),
        ("--temperature", "1e39"),
        ("--top-p", "-0.1"),
        ("--top-p", "1.5"),
        ("--min-p", "-0.1"),
        ("--xtc-probability", "2"),
        ("--repetition-penalty", "0"),
        ("--presence-penalty", "inf"),
        ("--penalty-window", "0"),
        ("--logit-bias", "5=nan"),
        ("--stop", ""),
    ] {
        let error = generate(&["hi", flag, value]).sampling.options().unwrap_err();
        assert!(error.to_string().starts_with(&format!("{flag}: ")), "{flag} {value}: {error}");
    }
    for (flag, value) in [
        ("--context-length", "0"),
        ("--prefill-chunk", "0"),
        ("--memory-limit", "0"),
        ("--kv-bits", "3"),
        ("--kv-group-size", "7"),
        ("--parallel", "0"),
    ] {
        let error = generate(&["hi", flag, value]).load.options().unwrap_err();
        assert!(error.to_string().starts_with(&format!("{flag}: ")), "{flag} {value}: {error}");
    }
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    for arguments in [
        ["generate", "hi", "--messages", "m.json"].as_slice(),
        &["generate", "--raw", "--system", "s", "hi"],
        &["generate", "--messages", "m.json", "--raw"],
        &["generate", "--messages", "m.json", "--system", "s"],
        &["generate", "hi", "--json-schema", "s.json", "--regex", "a"],
        &["generate", "hi", "--grammar", "g.lark", "--regex", "a"],
        &["generate", "hi", "--top-logprobs", "2"],
        &["generate", "hi", "--prompt-logprobs"],
        &["generate", "hi", "--logprobs", "--json"],
        &["generate", "hi", "--logits"],
        &["generate", "--batch", "b.jsonl"],
        &["generate", "hi", "--batch", "b.jsonl", "--json"],
        &["generate", "hi", "--xtc-threshold", "0.1"],
        &["generate", "hi", "--logits", "--logprobs"],
        &["generate", "hi", "--top-logprobs", "3", "--hide-reasoning"],
        &["bench", "--model", "m", "--bits", "8"],
        &["bench", "--url", "u", "--pipeline"],
        &["rerank", "--pooling", "mean", "a", "b"],
        &["info", "--threads", "2"],
        &["info", "--parallel", "2"],
        &["info", "--queue-limit", "2"],
        &["info", "--prefill-chunk", "2"],
        &["info", "--batch-invariant"],
        &["info", "--cache-limit", "1"],
        &["info", "--memory-limit", "1"],
        &["info", "--cpu-activations", "int8"],
    ] {
        assert!(parse(arguments).is_err(), "{arguments:?}");
    }
}
