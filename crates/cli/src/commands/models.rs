//! `ml models`: well-known models, and which of them fit the memory here.

use hub::{Known, known, recommended};
use serde::Serialize;

use crate::args::ModelsArgs;
use crate::bytes;
use crate::failure::Result;
use crate::output::{note, print, print_json};

/// Tokens of the conversation that a model shall have room for.
const CONTEXT: u64 = 8192;
/// The most weights with which each token of a recommended model is computed on a CPU, which reads
/// some tens of GB a second: more of them answer slower than people read.
const MOST_ON_A_CPU: u64 = 5_000_000_000;

/// Prints the table.
///
/// # Errors
/// Stdout's.
pub fn run(args: &ModelsArgs) -> Result<()> {
    // A machine that does not tell its memory gets the table all the same.
    let system = metal_backend::system().ok();
    let memory = system.as_ref().map(|system| system.memory_limit_bytes);
    let is_slow = system.is_none_or(|system| system.device == "cpu");
    let best = recommended_here(memory, is_slow);
    if args.json {
        let rows: Vec<_> = known().iter().map(|known| Row::new(known, memory, best)).collect();
        return print_json(&rows);
    }
    print(&table(memory, best))?;
    note(match memory {
        Some(memory) => format!("{} may be used here (`ml doctor`)", bytes::human(memory)),
        None => "the memory here is not known (`ml doctor`)".to_owned(),
    });
    if let Some(name) = best {
        note(format_args!("* the one to begin with here: `ml run {name}`"));
    }
    note(format_args!(
        "NEEDS is about what {CONTEXT} tokens of context take; `ml pull NAME` fetches one"
    ));
    Ok(())
}

/// The name of the model to begin with, in so much memory.
fn recommended_here(memory: Option<u64>, is_slow: bool) -> Option<&'static str> {
    let most = if is_slow { MOST_ON_A_CPU } else { u64::MAX };
    recommended(memory?, CONTEXT, most).map(|known| known.name)
}

/// One object of `--json`.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    also: &'static [&'static str],
    repository: &'static str,
    architecture: &'static str,
    does: Vec<&'static str>,
    parameters: u64,
    active_parameters: u64,
    weight_bytes: u64,
    kv_bytes_per_token: u64,
    context: u64,
    need_bytes: u64,
    /// `null` where the memory is not known.
    fits: Option<bool>,
    recommended: bool,
}

impl Row {
    fn new(known: &'static Known, memory: Option<u64>, best: Option<&str>) -> Self {
        let need_bytes = known.need_bytes(CONTEXT);
        Row {
            name: known.name,
            also: &known.also,
            repository: known.repository,
            architecture: known.architecture,
            does: known.does.iter().map(|does| does.as_str()).collect(),
            parameters: known.parameters,
            active_parameters: known.active_parameters(),
            weight_bytes: known.weight_bytes,
            kv_bytes_per_token: known.kv_bytes_per_token(),
            context: CONTEXT,
            need_bytes,
            fits: memory.map(|memory| need_bytes <= memory),
            recommended: best == Some(known.name),
        }
    }
}

fn table(memory: Option<u64>, best: Option<&str>) -> String {
    let line = |cells: [&str; 7]| {
        let [name, params, weights, needs, fits, does, repository] = cells;
        format!(
            "{name:<23} {params:>6} {weights:>9} {needs:>11}  {fits:<5} {does:<27} {repository}\n"
        )
    };
    let mut text = line(["NAME", "PARAMS", "WEIGHTS", "NEEDS", "FITS", "DOES", "REPOSITORY"]);
    for row in known().iter().map(|known| Row::new(known, memory, best)) {
        let fits = match row.fits {
            Some(true) if row.recommended => "yes *",
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        let [weights, needs] = [row.weight_bytes, row.need_bytes].map(bytes::human);
        text += &line([
            row.name,
            &bytes::parameters(row.parameters),
            &weights,
            &needs,
            fits,
            &row.does.join(" "),
            row.repository,
        ]);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hub::{Ability, known};

    use super::{recommended_here, table};

    #[test]
    fn what_does_not_fit_is_told_and_the_best_is_marked() {
        let small = table(Some(8 << 30), recommended_here(Some(8 << 30), false));
        let lines: Vec<_> = small.lines().collect();
        assert_eq!(lines.len(), 1 + known().len());
        assert!(lines[0].starts_with("NAME "), "{small}");
        let of = |name: &str| *lines.iter().find(|line| line.starts_with(name)).unwrap();
        assert!(
            of("qwen3-0.6b").contains("319.9 MiB     1.3 GiB  yes   chat tools thinking "),
            "{small}"
        );
        assert!(of("qwen3-32b").contains(" no "), "{small}");
        assert!(of("qwen3.5-9b").contains(" yes * "), "{small}");
        assert_eq!(small.matches(" * ").count(), 1, "{small}");
        assert!(table(None, None).lines().skip(1).all(|line| line.contains(" ?  ")));
    }

    #[test]
    fn a_model_that_a_cpu_computes_slowly_is_not_recommended_for_it() {
        assert_eq!(recommended_here(Some(8 << 30), true), Some("qwen3.5-4b"));
        assert_eq!(recommended_here(Some(8 << 30), false), Some("qwen3.5-9b"));
        assert_eq!(recommended_here(None, false), None);
    }

    #[test]
    fn every_model_of_the_table_can_be_loaded() {
        let ours = metal_backend::architectures();
        let folder = tempfile::tempdir().unwrap();
        for known in known() {
            let (name, architecture) = (known.name, known.architecture);
            let is_loaded = if known.does.contains(&Ability::Transcription) {
                let config = format!("{{\"model_type\": \"{architecture}\"}}");
                fs::write(folder.path().join("config.json"), config).unwrap();
                metal_backend::is_transcription_model(folder.path())
            } else {
                ours.contains(&architecture)
            };
            assert!(is_loaded, "{name}: {architecture}");
        }
    }
}
