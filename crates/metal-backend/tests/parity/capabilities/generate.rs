//! The options of a generation, and what each does to one.

use inference_core::{
    CancelToken, Constraint, Dry, Error, Feature, FinishReason, GenerateOptions, LoadOptions,
    PenaltyScope, Prompt, ReasoningBudget, ReasoningMarks, Speculate, TextModel, Token, Xtc,
};

use super::{Walk, prompt};

/// The parts of a generation that a caller sees.
#[derive(Debug, PartialEq)]
struct Seen {
    prompt: Option<Vec<Token>>,
    tokens: Vec<Token>,
    finish_reason: FinishReason,
    seed: u64,
    accepted_draft_tokens: usize,
}

impl Seen {
    fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }

    fn text(&self) -> String {
        self.tokens.iter().map(|token| token.text.as_str()).collect()
    }
}

fn seen(model: &dyn TextModel, ids: &[u32], options: &GenerateOptions) -> Result<Seen, Error> {
    let mut generation = model.generate(&Prompt::Ids(ids.to_vec()), options)?;
    let tokens = generation.by_ref().collect::<Result<_, _>>()?;
    let prompt = generation.take_prompt_logprobs();
    let outcome = generation.outcome().unwrap();
    Ok(Seen {
        prompt,
        tokens,
        finish_reason: outcome.finish_reason.clone(),
        seed: outcome.seed,
        accepted_draft_tokens: outcome.metrics.accepted_draft_tokens,
    })
}

/// Six of the likeliest tokens.
fn likeliest() -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(6),
        temperature: Some(0.0),
        seed: Some(1),
        ignore_eos: true,
        logprobs: true,
        ..GenerateOptions::default()
    }
}

/// Six tokens, any of which is about as likely as another.
fn drawn() -> GenerateOptions {
    GenerateOptions { temperature: Some(20.0), ..likeliest() }
}

/// An id that is the likeliest whatever the model says.
fn forced(id: u32) -> GenerateOptions {
    GenerateOptions { logit_bias: [(id, 1000.0)].into(), ..likeliest() }
}

/// Sets each option to a value that shows.
fn asked(letter: u32, piece: &str, mark: &str) -> GenerateOptions {
    let marks = ReasoningMarks { open: mark.to_owned(), close: format!("{mark}{mark}") };
    let cancel = CancelToken::new();
    cancel.cancel();
    GenerateOptions {
        max_tokens: Some(3),
        temperature: Some(20.0),
        top_k: Some(1),
        top_p: Some(1e-6),
        min_p: Some(1.0),
        typical_p: Some(0.01),
        top_n_sigma: Some(0.01),
        xtc: Some(Xtc { probability: 1.0, threshold: 0.0 }),
        repetition_penalty: Some(3.0),
        presence_penalty: Some(2.0),
        frequency_penalty: Some(2.0),
        dry: Some(Dry { multiplier: 9.0, allowed_length: 0, ..Dry::default() }),
        penalty_window: Some(1),
        penalty_scope: PenaltyScope::Generated,
        logit_bias: [(letter, 1000.0)].into(),
        seed: Some(2),
        stop: vec![piece.to_owned()],
        stop_token_ids: vec![letter],
        ignore_eos: true,
        min_tokens: 3,
        special_tokens: true,
        logprobs: true,
        top_logprobs: 3,
        prompt_logprobs: true,
        logits: true,
        draft_tokens: Some(2),
        constraint: Some(Constraint::Regex("[0-9]{2}".to_owned())),
        reasoning_budget: Some(ReasoningBudget { marks: marks.clone(), tokens: 2 }),
        reasoning: Some(marks),
        cancel,
    }
}

/// Asks for each option alone, beside what it needs to show.
pub fn walk(walk: &mut Walk, model: &dyn TextModel) {
    // A letter of its own is a token of every tokenizer here.
    let letter = *model.encode("a").unwrap().last().unwrap();
    let piece = model.decode(&[letter]).unwrap();
    let eos = model.info().eos_token_ids[0];
    let is_end = |id| model.info().eos_token_ids.contains(&id);
    let mut special = walk.checkpoint.special_tokens().into_iter().filter(|(id, _)| !is_end(*id));
    let (opening, mark) = special.next().unwrap();
    let GenerateOptions {
        max_tokens,
        temperature,
        top_k,
        top_p,
        min_p,
        typical_p,
        top_n_sigma,
        xtc,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
        dry,
        penalty_window,
        penalty_scope,
        logit_bias,
        seed,
        stop,
        stop_token_ids,
        ignore_eos,
        min_tokens,
        special_tokens,
        logprobs,
        top_logprobs,
        prompt_logprobs,
        logits,
        draft_tokens,
        constraint,
        reasoning,
        reasoning_budget,
        cancel,
    } = asked(letter, &piece, &mark);

    let plain = prompt(40);
    let best = seen(model, &plain, &likeliest()).unwrap();
    let vocab_size = model.info().vocab_size;
    // Two tokens may be equally likely.
    let is_best = |with: &Seen| with.tokens[0].logprob == best.tokens[0].logprob;
    // Where rows are computed alone, each draft is verified, whether that pays or not.
    // A layer of its own would not draft what is forced.
    let speculate = Speculate::Ngram;
    let by_itself = LoadOptions { batch_invariant: true, speculate, ..LoadOptions::default() };
    let by_itself = walk.checkpoint.load(by_itself);
    let without =
        seen(&*by_itself, &plain, &GenerateOptions { draft_tokens: Some(0), ..forced(letter) });
    let without = without.unwrap();
    let drafted = GenerateOptions { draft_tokens, ..forced(letter) };
    let drafted = seen(&*by_itself, &plain, &drafted);
    let is_seen = |with: Seen| with.ids() == without.ids() && with.accepted_draft_tokens > 0;
    walk.option("draft_tokens", Some(Feature::DraftTokens), drafted.map(is_seen));
    let mut check = |option: &str,
                     feature,
                     ids: &[u32],
                     pair: [GenerateOptions; 2],
                     shows: &dyn Fn(&Seen, &Seen) -> bool| {
        let [without, with] = pair;
        let without = seen(model, ids, &without).unwrap();
        // Repeatable, so that a difference is the option's.
        let shown = seen(model, ids, &with).map(|with| with != without && shows(&with, &without));
        walk.option(option, feature, shown);
    };
    let any = |_: &Seen, _: &Seen| true;

    check(
        "max_tokens",
        None,
        &plain,
        [likeliest(), GenerateOptions { max_tokens, ..likeliest() }],
        &|with, _| with.ids() == best.ids()[..3] && with.finish_reason == FinishReason::Length,
    );
    let sampling = Some(Feature::Sampling);
    check(
        "temperature",
        sampling,
        &plain,
        [likeliest(), GenerateOptions { temperature, ..likeliest() }],
        &any,
    );
    check(
        "top_k",
        sampling,
        &plain,
        [drawn(), GenerateOptions { top_k, ..drawn() }],
        &|with, _| is_best(with),
    );
    check(
        "top_p",
        sampling,
        &plain,
        [drawn(), GenerateOptions { top_p, ..drawn() }],
        &|with, _| is_best(with),
    );
    check(
        "min_p",
        sampling,
        &plain,
        [drawn(), GenerateOptions { min_p, ..drawn() }],
        &|with, _| is_best(with),
    );
    check("typical_p", sampling, &plain, [drawn(), GenerateOptions { typical_p, ..drawn() }], &any);
    check(
        "top_n_sigma",
        sampling,
        &plain,
        [drawn(), GenerateOptions { top_n_sigma, ..drawn() }],
        &|with, _| is_best(with),
    );
    // All but the least likely token are dropped, and those that are never dropped.
    check("xtc", sampling, &plain, [drawn(), GenerateOptions { xtc, ..drawn() }], &any);
    let repeatable = Some(Feature::Seed);
    check(
        "seed",
        repeatable,
        &plain,
        [drawn(), GenerateOptions { seed, ..drawn() }],
        &|with, _| with.seed == 2,
    );

    let penalties = Some(Feature::Penalties);
    let presence = GenerateOptions { presence_penalty, ..likeliest() };
    let twice = [&plain[..20], &plain[..10], &plain[..10]].concat();
    check(
        "repetition_penalty",
        penalties,
        &plain,
        [likeliest(), GenerateOptions { repetition_penalty, ..likeliest() }],
        &any,
    );
    check("presence_penalty", penalties, &plain, [likeliest(), presence.clone()], &any);
    check(
        "frequency_penalty",
        penalties,
        &plain,
        [likeliest(), GenerateOptions { frequency_penalty, ..likeliest() }],
        &any,
    );
    check("dry", penalties, &plain, [likeliest(), GenerateOptions { dry, ..likeliest() }], &any);
    // What occurs twice counts twice.
    check(
        "frequency_penalty",
        penalties,
        &twice,
        [presence.clone(), GenerateOptions { frequency_penalty, ..likeliest() }],
        &any,
    );
    check(
        "penalty_window",
        Some(Feature::PenaltyWindow),
        &plain,
        [presence.clone(), GenerateOptions { penalty_window, ..presence.clone() }],
        &any,
    );
    check(
        "penalty_scope",
        Some(Feature::PenaltyScope),
        &plain,
        [presence.clone(), GenerateOptions { penalty_scope, ..presence }],
        &any,
    );

    check(
        "logit_bias",
        Some(Feature::LogitBias),
        &plain,
        [likeliest(), GenerateOptions { logit_bias, ..likeliest() }],
        &|with, _| with.ids() == [letter; 6],
    );
    let ends = Some(Feature::Stop);
    check(
        "stop",
        ends,
        &plain,
        [forced(letter), GenerateOptions { stop, ..forced(letter) }],
        &|with, _| {
            with.finish_reason == FinishReason::StopText(piece.clone()) && with.text().is_empty()
        },
    );
    check(
        "stop_token_ids",
        ends,
        &plain,
        [forced(letter), GenerateOptions { stop_token_ids, ..forced(letter) }],
        &|with, _| with.finish_reason == FinishReason::StopToken(letter) && with.tokens.is_empty(),
    );
    check(
        "ignore_eos",
        ends,
        &plain,
        [
            GenerateOptions { ignore_eos: false, ..forced(eos) },
            GenerateOptions { ignore_eos, ..forced(eos) },
        ],
        &|with, without| {
            with.tokens.len() == 6 && without.finish_reason == FinishReason::EndOfSequence(eos)
        },
    );
    check(
        "min_tokens",
        Some(Feature::MinTokens),
        &plain,
        [
            GenerateOptions { ignore_eos: false, ..forced(eos) },
            GenerateOptions { ignore_eos: false, min_tokens, ..forced(eos) },
        ],
        &|with, without| with.tokens.len() == min_tokens && without.tokens.is_empty(),
    );
    check(
        "special_tokens",
        Some(Feature::SpecialTokens),
        &plain,
        [forced(opening), GenerateOptions { special_tokens, ..forced(opening) }],
        &|with, without| with.text().contains(&mark) && !without.text().contains(&mark),
    );

    let quiet = GenerateOptions { logprobs: false, ..likeliest() };
    let reports = Some(Feature::Logprobs);
    check(
        "logprobs",
        reports,
        &plain,
        [quiet.clone(), GenerateOptions { logprobs, ..quiet.clone() }],
        &|with, without| with.tokens[0].logprob.is_some() && without.tokens[0].logprob.is_none(),
    );
    check(
        "top_logprobs",
        reports,
        &plain,
        [quiet.clone(), GenerateOptions { top_logprobs, ..quiet.clone() }],
        &|with, _| with.tokens[0].top_logprobs.len() == 3,
    );
    check(
        "prompt_logprobs",
        Some(Feature::PromptLogprobs),
        &plain,
        [quiet.clone(), GenerateOptions { prompt_logprobs, ..quiet.clone() }],
        &|with, without| {
            let told = with.prompt.iter().flatten().skip(1).filter(|token| token.logprob.is_some());
            told.count() == plain.len() - 1 && without.prompt.is_none()
        },
    );
    check(
        "logits",
        Some(Feature::Logits),
        &plain,
        [quiet.clone(), GenerateOptions { logits, ..quiet }],
        &|with, _| with.tokens[0].logits.as_ref().is_some_and(|logits| logits.len() == vocab_size),
    );

    let held = Some(Feature::Constraint);
    let ending = GenerateOptions { ignore_eos: false, ..likeliest() };
    let constrained = GenerateOptions { constraint, ..ending.clone() };
    let is_number =
        |with: &Seen| with.text().len() == 2 && with.text().bytes().all(|b| b.is_ascii_digit());
    check("constraint", held, &plain, [ending, constrained.clone()], &|with, _| is_number(with));
    // The prompt has opened the reasoning, which is not held to the constraint.
    let opened = [&plain[..], &[opening]].concat();
    check(
        "reasoning",
        held,
        &opened,
        [constrained.clone(), GenerateOptions { reasoning, ..constrained }],
        &|with, without| is_number(without) && !is_number(with),
    );
    // Two tokens of reasoning, none of which closes it, and then its closing mark.
    let open = || GenerateOptions { logit_bias: [(opening, -50.0)].into(), ..likeliest() };
    check(
        "reasoning_budget",
        held,
        &opened,
        [open(), GenerateOptions { reasoning_budget, ..open() }],
        &|with, without| {
            with.ids()[..2] == without.ids()[..2] && with.ids()[2..4] == [opening, opening]
        },
    );
    check(
        "cancel",
        None,
        &plain,
        [likeliest(), GenerateOptions { cancel, ..likeliest() }],
        &|with, _| with.finish_reason == FinishReason::Cancelled && with.tokens.is_empty(),
    );
}
