//! Which flags say nothing without another one, and which exclude it where they are typed.
//!
//! clap's own `requires` asks for nothing where the needed argument conflicts with one that is
//! present, and the flag is then ignored. Its conflicts take a variable of the environment for a
//! flag that was typed. Neither is so here.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, Error, FromArgMatches};

use super::Cli;

/// Arguments that say nothing without the multiplier of DRY.
const OF_DRY: &[&str] =
    &["dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breaker"];

/// A command, an argument of it, and those that say nothing without that one.
const NEEDED: &[(&str, &str, &[&str])] = &[
    ("generate", "json", &["batch", "prompt_logprobs", "top_logprobs", "logits"]),
    ("generate", "xtc_probability", &["xtc_threshold"]),
    ("chat", "xtc_probability", &["xtc_threshold"]),
    ("generate", "dry_multiplier", OF_DRY),
    ("chat", "dry_multiplier", OF_DRY),
    ("chat", "mcp", &["mcp_yes", "mcp_timeout"]),
    ("inspect", "json", &["values"]),
    ("inspect", "svg", &["head"]),
    ("bench", "shape", &["bits", "layers", "print_config"]),
    (
        "bench",
        "url",
        &[
            "clients",
            "rate",
            "api",
            "requests",
            "seconds",
            "warm_up",
            "requests_file",
            "prompt_ids",
            "shared_prefix",
            "spread",
            "ignore_eos",
            "fields",
            "seed",
            "timeout",
        ],
    ),
    ("launch", "hostfile", &["starting_port", "program", "cwd", "insecure_ranks"]),
    ("doctor", "warm", &["model"]),
];

/// A command, an argument of it, and those that it excludes, which the environment may set all the
/// same.
const EXCLUDED: &[(&str, &str, &[&str])] = &[("bench", "url", &["threads"])];

impl Cli {
    /// The command line `arguments`, of which the first one is the program.
    ///
    /// # Errors
    /// Arguments that clap refuses; a flag without the one that it needs. The help and the version
    /// are such an error, too.
    pub fn read<T: Into<OsString> + Clone>(
        arguments: impl IntoIterator<Item = T>,
    ) -> Result<Self, Error> {
        let mut command = Cli::command();
        let matches = command.try_get_matches_from_mut(arguments)?;
        if let Some((name, given)) = matches.subcommand() {
            command.build();
            let command = command.find_subcommand_mut(name);
            command.map_or(Ok(()), |command| check(name, command, given))?;
        }
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// Refuses flags `given` to the command `name` that lack another one, or exclude it.
fn check(name: &str, command: &mut Command, given: &ArgMatches) -> Result<(), Error> {
    let is_typed = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let of = |(owner, other, ids): &(&str, &'static str, &'static [&'static str])| {
        if *owner != name {
            return None;
        }
        let id = ids.iter().find(|id| is_typed(id))?;
        Some((*id, *other))
    };
    let lacking = |(_, needed): &(&str, &str)| !is_typed(needed);
    if let Some((id, needed)) = NEEDED.iter().filter_map(of).find(lacking) {
        let reason =
            format!("{} says nothing without {}", flag(command, id), flag(command, needed));
        return Err(command.error(ErrorKind::MissingRequiredArgument, reason));
    }
    let both = |(_, other): &(&str, &str)| is_typed(other);
    if let Some((id, other)) = EXCLUDED.iter().filter_map(of).find(both) {
        let reason = format!("{} cannot be used with {}", flag(command, id), flag(command, other));
        return Err(command.error(ErrorKind::ArgumentConflict, reason));
    }
    Ok(())
}

/// The argument `id` as it is typed.
fn flag(command: &Command, id: &str) -> String {
    let long = command.get_arguments().find(|argument| argument.get_id() == id);
    format!("--{}", long.and_then(clap::Arg::get_long).unwrap_or(id))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command, CommandFactory};

    use super::{Cli, EXCLUDED, NEEDED, flag};

    fn command(name: &str) -> Command {
        let mut cli = Cli::command();
        cli.build();
        cli.find_subcommand(name).unwrap_or_else(|| panic!("{name}")).clone()
    }

    fn argument(command: &Command, id: &str) -> Arg {
        command.get_arguments().find(|argument| argument.get_id() == id).unwrap().clone()
    }

    /// The argument with a value that it takes.
    fn typed(argument: &Arg) -> Vec<String> {
        let Some(long) = argument.get_long() else { return vec!["1".to_owned()] };
        if !argument.get_action().takes_values() || argument.get_id() == "prompt_ids" {
            return vec![format!("--{long}")];
        }
        let values = argument.get_possible_values();
        let value = values.first().map_or("1", |value| value.get_name()).to_owned();
        let value = match long {
            "fields" => "{}".to_owned(),
            "dtype" => "f32".to_owned(),
            "cpu-activations" => "int8".to_owned(),
            "ranks" | "kv-bits" => "4".to_owned(),
            _ => value,
        };
        let count = argument.get_num_args().map_or(1, |range| range.min_values().max(1));
        let values = std::iter::repeat_n(value, count);
        std::iter::once(format!("--{long}")).chain(values).collect()
    }

    fn refusal(name: &str, given: &[&[String]]) -> String {
        let words = ["ml".to_owned(), name.to_owned()].into_iter();
        let words: Vec<String> = words.chain(given.concat()).collect();
        match Cli::read(&words) {
            Ok(_) => panic!("{words:?} is taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_flag_without_the_one_that_it_needs_is_refused_whatever_stands_beside_it() {
        for (name, needed, ids) in NEEDED {
            let command = command(name);
            let missing = format!("says nothing without {}", flag(&command, needed));
            for id in *ids {
                let alone = typed(&argument(&command, id));
                let told = refusal(name, &[&alone]);
                let expected = format!("{} {missing}", flag(&command, id));
                assert!(told.contains(&expected), "{told}");
                for other in command.get_arguments().filter(|other| other.get_id() != needed) {
                    if other.get_id() != id && !["help", "quiet"].contains(&other.get_id().as_str())
                    {
                        refusal(name, &[&alone, &typed(other)]);
                    }
                }
            }
        }
    }

    #[test]
    fn clap_asks_for_no_argument_by_itself() {
        let mut cli = Cli::command();
        cli.build();
        for command in cli.get_subcommands() {
            for argument in command.get_arguments() {
                let debug = format!("{argument:?}");
                assert!(debug.contains("requires: []"), "{}: {debug}", command.get_name());
            }
        }
    }

    #[test]
    fn a_variable_of_the_environment_is_no_flag_that_was_typed() {
        let mut cli = Cli::command();
        cli.build();
        for command in cli.get_subcommands() {
            for argument in command.get_arguments() {
                for other in command.get_arg_conflicts_with(argument) {
                    let both = format!("{}: {argument} and {other}", command.get_name());
                    assert!(argument.get_env().is_none() && other.get_env().is_none(), "{both}");
                }
            }
        }
        for (name, other, ids) in EXCLUDED {
            let command = command(name);
            let other = typed(&argument(&command, other));
            for id in *ids {
                refusal(name, &[&typed(&argument(&command, id)), &other]);
            }
        }
    }
}
