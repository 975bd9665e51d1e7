//! `POST /v1/completions`.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{
    Capabilities, Feature, GenerateOptions, Generation, Prompt, Support, TextModel, Token,
};
use serde_json::{Value as Json, json};

use super::logprobs::{OfCompletion, join};
use super::options::{Asked, asked};
use super::tables;
use crate::answers::{Answer, Chunks, Head, collect};
use crate::body::{self, json_response};
use crate::error::{ApiError, Result};
use crate::fields;
use crate::prompts::prompts;
use crate::reader::Reader;
use crate::run::{Run, clamp};
use crate::state::{State, now};

/// OpenAI's own, where a request sets none.
const MAX_TOKENS: usize = 16;

/// What a request asks for.
struct Completion {
    prompts: Vec<Prompt>,
    asked: Asked,
    /// How many answers are generated to each prompt.
    best_of: usize,
    echo: bool,
    logprobs: bool,
}

impl Completion {
    /// Whether the prompt's own tokens are told with their log probabilities.
    fn tells_prompts(&self) -> bool {
        self.asked.options.prompt_logprobs
    }

    /// Where one token is asked for beside the prompt's, it is told also if it is the model's end:
    /// clients that want the prompt's alone take the last entry off, whatever it is.
    fn tell_the_end(&mut self, capabilities: &Capabilities) {
        let options = &mut self.asked.options;
        if options.prompt_logprobs
            && options.max_tokens == Some(1)
            && options.constraint.is_none()
            && capabilities.support(Feature::Stop) == Support::Yes
        {
            options.ignore_eos = true;
        }
    }
}

/// Continues texts.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    state.loaded()?;
    let (body, size) = body::object(&state, request).await?;
    let limits = &state.config.limits;
    let mut reader = fields::check(&[tables::SAMPLING, tables::COMPLETIONS], limits, body)?;
    let loaded = state.serve(reader.text("model")?.as_deref())?;
    let mut completion = read(&mut reader, &state)?;
    reader.finish()?;
    completion.tell_the_end(loaded.model.capabilities());
    let about = completion.asked.constrained_by;
    let refused =
        |error| ApiError::from(error).rename("constraint", about).rename("prompt_logprobs", "echo");
    let options = &completion.asked.options;
    options
        .validate()
        .and_then(|()| loaded.model.capabilities().check_generate(options))
        .map_err(refused)?;

    let Completion { best_of, logprobs, .. } = completion;
    let permits = state.admission.take(completion.prompts.len() * best_of, "prompt")?;
    let Asked { stream, include_usage, n, .. } = completion.asked;
    let (model, owner) = (Arc::clone(&loaded.model), Arc::clone(&state));
    let work = move || {
        let encoded = encode(model.as_ref(), &completion)?;
        check_prompt_logprobs(&completion, &encoded, owner.config.limits.prompt_logprobs)?;
        let mut started = Vec::new();
        for (ids, echo) in encoded {
            started.extend(generate(model.as_ref(), &Prompt::Ids(ids), &echo, &completion)?);
        }
        let (generations, echoes): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        // Made here, so that it holds its permits and is counted even where the client has left.
        let run = Run::new(&owner, generations, permits, best_of).constrained_by(about);
        Ok((if completion.tells_prompts() { run.with_prompts() } else { run }, echoes))
    };
    let started = state.text_work(size, work).await;
    let started = started.map_err(|error| error.rename("constraint", about).or_about("prompt"));
    let (run, echoes) = started?;

    let answers: Vec<_> = echoes
        .into_iter()
        .map(|echo| CompletionAnswer::new(Arc::clone(&loaded.model), echo, logprobs))
        .collect();
    let head = Head {
        id: state.id("cmpl-"),
        object: "text_completion",
        created: now(),
        model: state.config.model.clone(),
    };
    if stream {
        let chunks = Chunks::new(run, answers, head, include_usage);
        return chunks.respond(state.config.timeouts.keep_alive).await;
    }
    let (answers, usage) = collect(run, answers).await?;
    let choices = best(answers, best_of, n).into_iter().enumerate().map(|(index, answer)| {
        let mut choice = answer.whole();
        choice["index"] = json!(index);
        choice
    });
    let mut object = head.object(choices.collect());
    object["usage"] = usage.to_json();
    Ok(json_response(StatusCode::OK, &object))
}

fn read(reader: &mut Reader, state: &State) -> Result<Completion> {
    let limits = &state.config.limits;
    let mut asked = asked(reader, limits)?;
    let echo = reader.bool("echo")?.unwrap_or(false);
    let top = reader.count("logprobs")?;
    let best_of = reader.count("best_of")?.unwrap_or(asked.n);
    if best_of < asked.n {
        return Err(ApiError::value("best_of", format!("is less than `n`, which is {}", asked.n)));
    }
    if best_of > asked.n && asked.stream {
        return Err(ApiError::value("best_of", "the best is known at the end, not in a stream"));
    }
    let options = &mut asked.options;
    options.max_tokens = Some(reader.count("max_tokens")?.unwrap_or(MAX_TOKENS));
    options.top_logprobs = top.unwrap_or(0);
    options.logprobs = top.is_some() || best_of > asked.n;
    options.prompt_logprobs = echo && top.is_some();
    let prompt = reader.take("prompt").unwrap_or_default();
    let prompts = prompts("prompt", prompt, limits.prompts)?;
    Ok(Completion { prompts, asked, best_of, echo, logprobs: top.is_some() })
}

/// Each prompt's ids, with the text that its answers begin with. Where the prompt's tokens are told,
/// their texts are that text.
fn encode(model: &dyn TextModel, completion: &Completion) -> Result<Vec<(Vec<u32>, String)>> {
    let echo = completion.echo && !completion.tells_prompts();
    let one = |prompt: &Prompt| {
        Ok(match prompt {
            Prompt::Ids(ids) if echo => (ids.clone(), model.decode(ids)?),
            Prompt::Ids(ids) => (ids.clone(), String::new()),
            Prompt::Text(text) if echo => (model.encode(text)?, text.clone()),
            Prompt::Text(text) => (model.encode(text)?, String::new()),
        })
    };
    completion.prompts.iter().map(one).collect()
}

/// Whether one answer can hold what is told of the prompts.
fn check_prompt_logprobs(
    completion: &Completion,
    prompts: &[(Vec<u32>, String)],
    most: usize,
) -> Result<()> {
    if !completion.tells_prompts() {
        return Ok(());
    }
    let tokens = prompts.iter().map(|(ids, _)| ids.len()).sum::<usize>();
    let each = completion.asked.options.top_logprobs.saturating_add(1);
    let count = tokens.saturating_mul(completion.best_of).saturating_mul(each);
    if count <= most {
        return Ok(());
    }
    let reason = format!(
        "asks for {count} log probabilities of prompts, at most {most} are told at once: \
         send fewer prompts, or a smaller `logprobs`"
    );
    Err(ApiError::value("echo", reason))
}

/// The generations from one prompt, each with the text that its answer begins with.
fn generate(
    model: &dyn TextModel,
    prompt: &Prompt,
    echo: &str,
    completion: &Completion,
) -> Result<Vec<(Generation, String)>> {
    let one = |index| {
        let mut options: GenerateOptions = completion.asked.options_of(index);
        if let Prompt::Ids(ids) = prompt {
            clamp(&mut options, model, ids.len());
        }
        Ok((model.generate(prompt, &options)?, echo.to_owned()))
    };
    (0..completion.best_of).map(one).collect()
}

/// Of each prompt's `best_of` answers the `n` that are likeliest, by the mean of their tokens.
fn best(answers: Vec<CompletionAnswer>, best_of: usize, n: usize) -> Vec<CompletionAnswer> {
    if best_of == n {
        return answers;
    }
    let mut kept = Vec::new();
    let mut answers = answers.into_iter().peekable();
    while answers.peek().is_some() {
        let mut group: Vec<_> = answers.by_ref().take(best_of).collect();
        group.sort_by(|one, other| other.likelihood().total_cmp(&one.likelihood()));
        kept.extend(group.into_iter().take(n));
    }
    kept
}

/// One answer as it grows.
struct CompletionAnswer {
    model: Arc<dyn TextModel>,
    /// The prompt, where the answer begins with it.
    echo: String,
    text: String,
    /// Characters of the text.
    length: usize,
    /// All of the log probabilities, where they are reported.
    logprobs: Option<Json>,
    sum: f64,
    tokens: usize,
    reason: &'static str,
}

impl CompletionAnswer {
    fn new(model: Arc<dyn TextModel>, echo: String, logprobs: bool) -> Self {
        CompletionAnswer {
            model,
            echo,
            text: String::new(),
            length: 0,
            logprobs: logprobs.then(|| OfCompletion::default().take()),
            sum: 0.0,
            tokens: 0,
            reason: "",
        }
    }

    fn likelihood(&self) -> f64 {
        if self.tokens == 0 { f64::NEG_INFINITY } else { self.sum / self.tokens as f64 }
    }

    fn say(&mut self, text: &str) {
        self.text.push_str(text);
        self.length += text.chars().count();
    }

    /// Says `tokens`. Their log probabilities, where they are reported.
    fn tell(&mut self, tokens: &[Token]) -> Json {
        let mut lists = OfCompletion::default();
        for token in tokens {
            if self.logprobs.is_some() {
                lists.push(self.model.as_ref(), token, self.length);
            }
            self.say(&token.text);
        }
        let Some(whole) = &mut self.logprobs else { return Json::Null };
        let own = lists.take();
        join(whole, &own);
        own
    }
}

fn chunk(text: &str, logprobs: Json) -> Json {
    json!({"text": text, "logprobs": logprobs, "finish_reason": null})
}

impl Answer for CompletionAnswer {
    fn begin(&mut self) -> Vec<Json> {
        let echo = std::mem::take(&mut self.echo);
        self.say(&echo);
        if echo.is_empty() { Vec::new() } else { vec![chunk(&echo, Json::Null)] }
    }

    fn prompt(&mut self, tokens: Vec<Token>) -> Vec<Json> {
        let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
        let own = self.tell(&tokens);
        vec![chunk(&text, own)]
    }

    fn push(&mut self, token: Token) -> (Vec<Json>, bool) {
        self.tokens += 1;
        self.sum += f64::from(token.logprob.unwrap_or(0.0));
        let own = self.tell(std::slice::from_ref(&token));
        let silent = token.text.is_empty() && own.is_null();
        (if silent { Vec::new() } else { vec![chunk(&token.text, own)] }, true)
    }

    fn finish(&mut self, reason: &'static str) -> Vec<Json> {
        self.reason = reason;
        let mut last = chunk("", Json::Null);
        last["finish_reason"] = json!(reason);
        vec![last]
    }

    fn whole(self) -> Json {
        json!({"text": self.text, "logprobs": self.logprobs, "finish_reason": self.reason})
    }
}
