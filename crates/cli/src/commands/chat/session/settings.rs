//! The options of a chat's answers, which change while it goes on.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::args::SamplingArgs;
use crate::failure::{self, Failure, Result};
use crate::nearest::{among, question};

/// The options of answers, and what was changed of them.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The options as they are.
    pub sampling: SamplingArgs,
    /// The options at the start, for `/set reset`.
    first: SamplingArgs,
    /// Options that `/set` changed, as typed.
    changed: Vec<String>,
}

/// The options of a `/set` line, parsed as those of the command line are.
#[derive(Clone, Debug, Parser)]
#[command(name = "/set", no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    sampling: SamplingArgs,
}

impl Settings {
    /// The options that the command line has.
    pub fn new(sampling: SamplingArgs) -> Settings {
        Settings { first: sampling.clone(), sampling, changed: Vec::new() }
    }

    /// Sets the option `name` as the command line's `--name value` would; `reset` undoes all of
    /// these. Returns what was set, for the person.
    ///
    /// # Errors
    /// An unknown name or a bad value; nothing changes then.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<String> {
        if name == "reset" && value.is_none() {
            self.sampling = self.first.clone();
            self.changed.clear();
            return Ok("all options are as at the start".to_owned());
        }
        let argument = match value {
            Some(value) => format!("--{name}={value}"),
            None => format!("--{name}"),
        };
        let mut line = Line { sampling: self.sampling.clone() };
        line.try_update_from([&argument]).map_err(|error| {
            let reason = match error.kind() {
                ErrorKind::UnknownArgument => {
                    let near = among(name, Settings::names().into_iter());
                    format!("there is no option `{name}`{}", question(&near))
                }
                _ => failure::reason_of_arguments(&error),
            };
            Failure::Usage(format!("{reason}: /set alone lists the options"))
        })?;
        line.sampling.options()?;
        self.sampling = line.sampling;
        self.changed.retain(|old| old.split('=').next() != argument.split('=').next());
        self.changed.push(argument);
        Ok(format!("{name} is {}", value.unwrap_or("on")))
    }

    /// Returns the options that [`set`](Self::set) changed, as flags.
    pub fn changed(&self) -> &[String] {
        &self.changed
    }

    /// The names of all options.
    pub fn names() -> Vec<String> {
        let command = Line::command();
        let names = command.get_arguments().filter_map(|option| option.get_long());
        names.map(str::to_owned).collect()
    }

    /// A line for each option: its name, its value, and what it does.
    pub fn lines(&self) -> Vec<String> {
        let values = self.sampling.values();
        let command = Line::command();
        let options = command.get_arguments().filter_map(|option| {
            let (name, help) = (option.get_long()?, option.get_help()?.to_string());
            let value = values.iter().find(|(known, _)| *known == name);
            let value = value.and_then(|(_, value)| value.clone()).unwrap_or_else(|| "-".into());
            // What follows are details for `ml help chat`.
            let help = help.split([';', '[', ',']).next().unwrap_or_default().trim_end();
            Some(format!("{name:<20} {value:<8} {help}"))
        });
        options.collect()
    }
}
