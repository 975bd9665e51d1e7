//! `cargo xtask link-costs`: what links between ranks cost a token, on paper. docs/distributed.md
//! has the table.

use std::io::{self, Write};

use anyhow::{Result, bail, ensure};

const USAGE: &str = "usage: cargo xtask link-costs [--latency MICROSECONDS --bandwidth GB/S]";

/// Bytes of memory that a host of the table reads in a second.
const MEMORY: f64 = 100e9;
/// Bytes of a value that ranks send each other, in bf16.
const VALUE: f64 = 2.0;
/// Bytes of a weight: 4 bits, with a scale and a bias in bf16 for 64 of them.
const WEIGHT: f64 = 4.5 / 8.0;

/// A model, as its `config.json` states it.
struct Model {
    name: &'static str,
    layers: f64,
    hidden_size: f64,
    vocab_size: f64,
    parameters: f64,
}

const MODELS: [Model; 2] = [
    Model {
        name: "Llama 3.1 8B",
        layers: 32.0,
        hidden_size: 4096.0,
        vocab_size: 128_256.0,
        parameters: 8.03e9,
    },
    Model {
        name: "Llama 3.1 70B",
        layers: 80.0,
        hidden_size: 8192.0,
        vocab_size: 128_256.0,
        parameters: 70.6e9,
    },
];

/// A link between hosts.
struct Link {
    name: String,
    /// Seconds of a small message one way.
    latency: f64,
    /// Bytes in a second.
    bandwidth: f64,
}

/// Prints the table of usual links, or of the one that is given.
pub fn run(args: &[String]) -> Result<()> {
    let links = match args {
        [] => usual(),
        [flag, latency, other, bandwidth] if flag == "--latency" && other == "--bandwidth" => {
            let number = |text: &String| -> Result<f64> {
                let number: f64 = text.parse()?;
                ensure!(number.is_finite() && number > 0.0, "`{text}` is not above 0\n{USAGE}");
                Ok(number)
            };
            let (latency, bandwidth) = (number(latency)?, number(bandwidth)?);
            let name = format!("{latency} µs, {bandwidth} GB/s");
            vec![Link { name, latency: latency * 1e-6, bandwidth: bandwidth * 1e9 }]
        }
        _ => bail!(USAGE),
    };
    Ok(writeln!(io::stdout(), "{}\n\nIn a pipeline:\n\n{}", table(&links), pipeline_table(&links))?)
}

/// Links as they are sold; the latencies are guesses at what TCP makes of them.
fn usual() -> Vec<Link> {
    let link = |name: &str, latency: f64, bandwidth: f64| Link {
        name: name.to_owned(),
        latency: latency * 1e-6,
        bandwidth: bandwidth * 1e9,
    };
    vec![
        link("40 Gbit/s, 30 µs", 30.0, 5.0),
        link("10 Gbit/s, 50 µs", 50.0, 1.25),
        link("1 Gbit/s, 100 µs", 100.0, 0.125),
    ]
}

/// The times of tokens where each rank has a part of every layer.
fn table(links: &[Link]) -> String {
    table_of(links, |model, link, ranks| {
        let on_link = messages(model, link, ranks);
        [on_link, on_link + weights(model, ranks)]
    })
}

/// The times of tokens where each rank has some of the layers. Of one request, one rank after the
/// other works.
fn pipeline_table(links: &[Link]) -> String {
    table_of(links, |model, link, ranks| {
        let on_link = hand_overs(model, link, ranks);
        [on_link, on_link + weights(model, 1.0)]
    })
}

/// Of each link and number of ranks, the seconds on the link and of a whole token.
fn table_of(links: &[Link], times: impl Fn(&Model, &Link, f64) -> [f64; 2]) -> String {
    let names = MODELS.map(|model| format!("{}: link, ms | tokens/s", model.name));
    let mut lines = vec![
        format!("| link | ranks | {} |", names.join(" | ")),
        "|---|---:|---:|---:|---:|---:|".to_owned(),
        row("none", 1, MODELS.map(|model| [0.0, weights(&model, 1.0)])),
    ];
    for link in links {
        for ranks in [2, 4, 8] {
            let of_model = |model| times(&model, link, f64::from(ranks));
            lines.push(row(&link.name, ranks, MODELS.map(of_model)));
        }
    }
    lines.join("\n")
}

/// The time on the link and the whole time of a token, of each model.
fn row(link: &str, ranks: i32, times: [[f64; 2]; 2]) -> String {
    let of_model = |[link, token]: [f64; 2]| format!("{:.1} | {:.1}", link * 1e3, token.recip());
    format!("| {link} | {ranks} | {} |", times.map(of_model).join(" | "))
}

/// Seconds in which each of `ranks` reads its weights.
fn weights(model: &Model, ranks: f64) -> f64 {
    model.parameters * WEIGHT / ranks / MEMORY
}

/// Seconds that a token waits for messages of `ranks`: two sums of each layer and that of the
/// embeddings, the logits, and the drawn id. Each rank sends to every other over the same link.
fn messages(model: &Model, link: &Link, ranks: f64) -> f64 {
    let message = |bytes: f64| link.latency + (ranks - 1.0) * bytes / link.bandwidth;
    let sums = (2.0 * model.layers + 1.0) * message(model.hidden_size * VALUE);
    sums + message(model.vocab_size / ranks * VALUE) + message(4.0)
}

/// Seconds that a token waits for messages of a pipeline: the hidden values from each rank to the
/// next one, the logits in F32 from the last one to the first, and the drawn id.
fn hand_overs(model: &Model, link: &Link, ranks: f64) -> f64 {
    let message = |bytes: f64| link.latency + bytes / link.bandwidth;
    (ranks - 1.0) * message(model.hidden_size * VALUE)
        + message(model.vocab_size * 4.0)
        + message(4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_documents_is_this_one() {
        let path = crate::repository::root().join("docs/distributed.md");
        let page = std::fs::read_to_string(path).expect("the page is there");
        for table in [table(&usual()), pipeline_table(&usual())] {
            assert!(page.contains(&table), "docs/distributed.md: {table}");
        }
    }

    #[test]
    fn a_link_that_costs_nothing_leaves_the_weights() {
        let link = Link { name: String::new(), latency: 0.0, bandwidth: f64::INFINITY };
        for on_link in [messages, hand_overs] {
            let times = MODELS.map(|model| on_link(&model, &link, 8.0));
            assert!(times.iter().all(|time| time.abs() < 1e-12), "{times:?}");
        }
    }
}
