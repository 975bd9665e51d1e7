//! `ml rerank`: documents by how well they fit a query.

use std::time::Instant;

use inference_core::{CancelToken, Error, PairScores, ScoreOptions, TextPair};
use serde::Serialize;

use super::embed::load;
use crate::args::{RerankArgs, lines};
use crate::failure::{Failure, Result};
use crate::interrupt::{Interrupt, Then};
use crate::output::{counted, dim_note, print_json, print_line};

/// The object of `--json`.
#[derive(Serialize)]
struct Ranked<'a> {
    index: usize,
    score: f32,
    document: &'a str,
}

/// Orders the documents that `args` tell.
///
/// # Errors
/// Bad options, an unusable model, a document that is refused, an interruption.
pub fn run(args: &RerankArgs) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let documents = lines(&args.documents, args.file.as_ref(), "document")?;
    let pair =
        |document: &String| TextPair { query: args.query.clone(), document: document.clone() };
    let pairs: Vec<TextPair> = documents.iter().map(pair).collect();
    let cancel = CancelToken::new();
    let options = ScoreOptions {
        instruction: args.instruction.clone(),
        truncate: args.truncate,
        cancel: cancel.clone(),
    };
    let model = load(&args.load, &args.load.options(), args.quiet)?;
    let watch = interrupt.watch(&cancel, Then::Leave);
    let started = Instant::now();
    let made = model.score(&pairs, &options);
    let interrupted = watch.fired();
    drop(watch);
    let made = match made {
        Err(Error::Cancelled) if interrupted => return Err(Failure::Interrupted),
        made => made.map_err(Failure::of_text)?,
    };
    for ranked in ranked(&made, &documents, args) {
        if args.json {
            print_json(&ranked)?;
        } else {
            print_line(format_args!("{:>8.4}  {}", ranked.score, ranked.document))?;
        }
    }
    if !args.quiet && !args.json {
        let tokens: usize = made.tokens.iter().sum();
        let speed = tokens as f64 / started.elapsed().as_secs_f64();
        let count = counted(documents.len(), "document");
        dim_note(format_args!("{count}, {tokens} tokens, {speed:.1} tok/s"));
    }
    Ok(())
}

/// The best documents, the best first; of equals, the earlier one.
fn ranked<'a>(made: &PairScores, documents: &'a [String], args: &RerankArgs) -> Vec<Ranked<'a>> {
    let scores = if args.raw_scores { made.logits.clone() } else { made.relevance() };
    let one = |index: usize| Ranked { index, score: scores[index], document: &documents[index] };
    made.order().into_iter().take(args.top.unwrap_or(usize::MAX)).map(one).collect()
}
