//! The flags that errors name are the program's, for every option of the contract.

use std::fmt::Debug;

use clap::CommandFactory;
use inference_core::{
    ClassifyOptions, EmbedOptions, EmbeddingLoadOptions, Feature, GenerateOptions,
    ImageLoadOptions, ImageRequest, InspectOptions, LoadOptions, PenaltyScope, ReasoningMarks,
    ScoreOptions, SpeakOptions, SpeechLoadOptions, TranscribeOptions, TranscriptionLoadOptions,
};

use super::Cli;
use crate::failure::{Failure, flag_of, with_flags};

/// Returns true when a command has a flag of this name, without its dashes.
fn is_flag(name: &str) -> bool {
    let command = Cli::command();
    let mut commands = vec![&command];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands());
        if command.get_arguments().any(|argument| argument.get_long() == Some(name)) {
            return true;
        }
    }
    false
}

/// The names of a struct's fields.
fn fields(of: &impl Debug) -> Vec<String> {
    let text = format!("{of:#?}");
    let own = text.lines().filter_map(|line| line.strip_prefix("    "));
    let own = own.filter(|line| !line.starts_with([' ', '}', ']', ')']));
    own.filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect()
}

#[test]
fn each_option_of_the_contract_is_told_by_its_flag_or_has_none() {
    // Set by other ways than a flag of that name, or by the program itself.
    let without = [
        "gpu_layers",
        "xtc",
        "dry",
        "cancel",
        "progress",
        "ranks",
        "generate",
        "weights",
        "keep_components",
        "partial_images",
        "images",
        "audio",
    ];
    let all = [
        fields(&LoadOptions::default()),
        fields(&GenerateOptions::default()),
        fields(&ClassifyOptions::default()),
        fields(&InspectOptions::default()),
        fields(&ImageLoadOptions::default()),
        fields(&ImageRequest::default()),
        fields(&EmbeddingLoadOptions::default()),
        fields(&EmbedOptions::default()),
        fields(&ScoreOptions::default()),
        fields(&TranscriptionLoadOptions::default()),
        fields(&TranscribeOptions::default()),
        fields(&SpeechLoadOptions::default()),
        fields(&SpeakOptions::default()),
        Feature::ALL.map(|feature| feature.as_str().to_owned()).to_vec(),
    ];
    let unnamed =
        ["chat", "classify", "batch_generate", "inspect_attention", "sampling", "penalties"];
    assert!(all.iter().all(|fields| !fields.is_empty()), "{all:?}");
    for field in all.iter().flatten().map(String::as_str) {
        let told = with_flags(&format!("says nothing without `{field}`, and so on"));
        match flag_of(field) {
            Some(flag) => assert_eq!(told, format!("says nothing without {flag}, and so on")),
            None => assert!(without.contains(&field) || unnamed.contains(&field), "{field}"),
        }
        for flag in flag_of(field).iter().flat_map(|flags| flags.split([' ', ','])) {
            assert!(flag.strip_prefix("--").is_none_or(is_flag), "{flag}");
        }
    }
}

#[test]
fn what_an_option_needs_is_told_by_its_flag() {
    let load = |change: fn(&mut LoadOptions)| {
        let mut options = LoadOptions::default();
        change(&mut options);
        options.validate()
    };
    let generate = |change: fn(&mut GenerateOptions)| {
        let mut options = GenerateOptions::default();
        change(&mut options);
        options.check_penalties().and_then(|()| options.validate())
    };
    let wrong = [
        load(|o| o.kv_group_size = Some(32)),
        load(|o| o.prefix_cache_disk = Some(1)),
        load(|o| (o.prefix_cache, o.prefix_cache_dir) = (Some(0), Some("d".into()))),
        generate(|o| o.penalty_window = Some(1)),
        generate(|o| o.penalty_scope = PenaltyScope::Generated),
        generate(|o| {
            o.reasoning = Some(ReasoningMarks { open: "a".into(), close: "b".into() });
        }),
    ];
    for error in wrong {
        let told = Failure::from(error.unwrap_err()).to_string();
        assert!(!told.contains(['`', '_']), "{told}");
        for flag in told.split_whitespace().filter_map(|word| word.strip_prefix("--")) {
            assert!(is_flag(flag.trim_end_matches([':', ','])), "{told}");
        }
    }
    let store = load(|o| (o.prefix_cache, o.prefix_cache_dir) = (Some(0), Some("d".into())));
    assert_eq!(
        Failure::from(store.unwrap_err()).to_string(),
        "--prefix-cache-dir: --prefix-cache is 0, so that there is nothing to keep"
    );
}
