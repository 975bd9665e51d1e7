//! `ml models`: well-known models, and which of them fit the memory here.

use hub::{KNOWN, Known};
use serde::Serialize;

use crate::args::ModelsArgs;
use crate::bytes;
use crate::failure::Result;
use crate::output::{note, print, print_json};

/// Tokens of the conversation that a model shall have room for.
const CONTEXT: u64 = 8192;

/// Prints the table.
///
/// # Errors
/// Stdout's.
pub fn run(args: &ModelsArgs) -> Result<()> {
    // A machine that does not tell its memory gets the table all the same.
    let memory = metal_backend::system().ok().map(|system| system.memory_limit_bytes);
    if args.json {
        let rows: Vec<_> = KNOWN.iter().map(|known| Row::new(known, memory)).collect();
        return print_json(&rows);
    }
    print(&table(memory))?;
    note(match memory {
        Some(memory) => format!("{} may be used here (`ml doctor`)", bytes::human(memory)),
        None => "the memory here is not known (`ml doctor`)".to_owned(),
    });
    note(format_args!(
        "sizes are computed from published configs; NEEDS is about what {CONTEXT} tokens of context take\n\
         `ml pull NAME` fetches one"
    ));
    Ok(())
}

/// One object of `--json`.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    repository: &'static str,
    architecture: &'static str,
    parameters: u64,
    weight_bytes: u64,
    kv_bytes_per_token: u64,
    context: u64,
    need_bytes: u64,
    /// `null` where the memory is not known.
    fits: Option<bool>,
}

impl Row {
    fn new(known: &Known, memory: Option<u64>) -> Self {
        let need_bytes = known.need_bytes(CONTEXT);
        Row {
            name: known.alias,
            repository: known.repository,
            architecture: known.architecture,
            parameters: known.parameters(),
            weight_bytes: known.weight_bytes(),
            kv_bytes_per_token: known.kv_bytes_per_token(),
            context: CONTEXT,
            need_bytes,
            fits: memory.map(|memory| need_bytes <= memory),
        }
    }
}

fn table(memory: Option<u64>) -> String {
    let line = |cells: [&str; 6]| {
        let [name, params, weights, needs, fits, repository] = cells;
        format!("{name:<14} {params:>6} {weights:>9} {needs:>9}  {fits:<4}  {repository}\n")
    };
    let mut text = line(["NAME", "PARAMS", "WEIGHTS", "NEEDS", "FITS", "REPOSITORY"]);
    for row in KNOWN.iter().map(|known| Row::new(known, memory)) {
        let fits = match row.fits {
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
            row.repository,
        ]);
    }
    text
}

#[cfg(test)]
mod tests {
    use hub::KNOWN;

    use super::table;

    #[test]
    fn what_does_not_fit_is_told() {
        let small = table(Some(8 << 30));
        let lines: Vec<_> = small.lines().collect();
        assert_eq!(lines.len(), 1 + KNOWN.len());
        assert!(lines[0].starts_with("NAME "), "{small}");
        let of = |name: &str| *lines.iter().find(|line| line.starts_with(name)).unwrap();
        assert!(of("qwen3-0.6b").contains("319.7 MiB   1.3 GiB  yes "), "{small}");
        assert!(of("qwen3-32b").contains(" no "), "{small}");
        assert!(table(None).lines().skip(1).all(|line| line.contains(" ?  ")));
    }

    #[test]
    fn every_model_of_the_table_can_be_loaded() {
        let ours = metal_backend::architectures();
        for known in KNOWN {
            assert!(ours.contains(&known.architecture), "{}: {}", known.alias, known.architecture);
        }
    }
}
