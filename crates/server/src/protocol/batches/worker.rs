//! Answers batches, the oldest first, while nothing else waits.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Request};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::STAYS;
use super::forms::{Answered, add_tokens, unanswered};
use crate::batches::journal::{self, Journal};
use crate::batches::lines::{Bounds, Line, Lines, count};
use crate::batches::record::{Batch, Fault, FileRecord, Form, Purpose, Status, Stop, Tokens};
use crate::batches::store::{Refused, Store};
use crate::error::{ApiError, Kind};
use crate::http::response::written;
use crate::protocol::error_body;
use crate::run::state::{State, now};
use crate::run::tally::Tally;

/// Between two looks whether there is room, and whether anything has had its time.
const LOOK: Duration = Duration::from_millis(20);
const SWEEP: Duration = Duration::from_secs(60);

/// The most bytes of an answer.
const ANSWER: usize = 64 << 20;

/// After a failure that passes, a request is tried again so much later, and so often where the
/// failure may be its own.
const AGAIN: Duration = Duration::from_secs(1);
const TRIES: usize = 3;

/// Answers batches for as long as it runs.
#[derive(Clone)]
pub struct Worker {
    /// The server's state.
    pub state: Arc<State>,
    /// The folder.
    pub store: Arc<Store>,
    /// Answers requests, whoever they are from.
    pub answers: Router,
}

/// The lines of a batch that have answers.
struct Journals {
    output: Journal,
    /// Errors, where they have lines of their own.
    errors: Option<Journal>,
    completed: usize,
    failed: usize,
}

impl Worker {
    /// Answers batches until the server ends. What has no answer then gets one after the next
    /// start.
    pub async fn run(self) {
        while !self.store.has_ended() {
            let store = Arc::clone(&self.store);
            let _ = tokio::task::spawn_blocking(move || store.sweep(now())).await;
            let Some(batch) = self.store.next() else {
                let _ = tokio::time::timeout(SWEEP, self.store.changed.notified()).await;
                continue;
            };
            let id = batch.id.clone();
            if let Err(refused) = self.work_on(batch).await {
                if matches!(refused, Refused::Ending) {
                    return;
                }
                tracing::error!(target: "batches", id, ?refused, "a batch failed");
                let message = format!("the folder of --batch-dir fails: {refused:?}");
                let fault = Fault { code: "storage".into(), message, line: None, param: None };
                let failed = self.store.change(&id, |batch| {
                    batch.status = Status::Failed;
                    batch.ended = Some(now());
                    batch.faults.push(fault);
                });
                if failed.is_err() {
                    // The disk may come back.
                    tokio::time::sleep(SWEEP).await;
                }
            }
        }
    }

    async fn work_on(&self, mut batch: Batch) -> Result<(), Refused> {
        if batch.status == Status::Validating {
            batch = self.validated(batch).await?;
        }
        if batch.status.is_over() {
            return Ok(());
        }
        let (store, opened) = (Arc::clone(&self.store), batch.clone());
        let journals = blocking(move || Journals::open(&store, &opened)).await?;
        if batch.stop.is_none() {
            self.store.count(&batch.id, journals.completed, journals.failed);
        }
        let (stop, journals) = match batch.status {
            Status::InProgress => self.answer_lines(&batch, journals).await?,
            // Its end came before the server's.
            _ => (batch.stop.unwrap_or(Stop::Cancelled), journals),
        };
        let worker = self.clone();
        blocking(move || worker.finish(&batch.id, stop, journals)).await
    }

    /// Looks at all requests of `batch`.
    async fn validated(&self, batch: Batch) -> Result<Batch, Refused> {
        let path = self.store.requests(&batch);
        let endpoint = batch.endpoint.clone();
        let bounds = Bounds {
            requests: self.store.bounds().requests,
            line_bytes: self.state.config.limits.body_bytes,
        };
        let counted = blocking(move || Ok(count(&path, &endpoint, bounds)?)).await?;
        let store = Arc::clone(&self.store);
        blocking(move || {
            store.change(&batch.id, |batch| match counted {
                // It was cancelled meanwhile.
                _ if batch.status != Status::Validating => {}
                Ok(total) => {
                    batch.status = Status::InProgress;
                    batch.started = Some(now());
                    batch.total = total;
                }
                Err(faults) => {
                    batch.status = Status::Failed;
                    batch.ended = Some(now());
                    batch.faults = faults;
                }
            })
        })
        .await
    }

    /// Answers the requests of `batch` that have no line yet, as many together as leave room for
    /// others.
    async fn answer_lines(
        &self,
        batch: &Batch,
        mut journals: Journals,
    ) -> Result<(Stop, Journals), Refused> {
        let most = (self.state.config.slots * 3 / 4).max(1);
        let mut lines =
            Some(Lines::open(&self.store.requests(batch), self.state.config.limits.body_bytes)?);
        let mut running = JoinSet::new();
        loop {
            match self.store.batch(&batch.id).map(|batch| batch.status) {
                Some(Status::InProgress) => {}
                _ => return Ok((Stop::Cancelled, journals)),
            }
            if self.store.has_ended() {
                return Err(Refused::Ending);
            }
            if lines.is_none() && running.is_empty() {
                return Ok((Stop::Done, journals));
            }
            if now() >= batch.expires {
                return Ok((Stop::Expired, journals));
            }
            if running.len() < most
                && self.has_room(running.len())
                && let Some(open) = lines.take()
            {
                let (open, line) = self.next_line(open, batch, &journals).await?;
                if let Some(line) = line {
                    lines = Some(open);
                    let (worker, endpoint) = (self.clone(), batch.endpoint.clone());
                    running.spawn(async move { worker.answer(&endpoint, line).await });
                }
                // Another one, or the end of all.
                continue;
            }
            tokio::select! {
                Some(answered) = running.join_next() => {
                    match self.note(batch, &mut journals, answered.ok()) {
                        Err(Refused::Full) => return Ok((Stop::Full, journals)),
                        noted => noted?,
                    }
                }
                () = self.store.changed.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Returns true when a request may begin beside `own` ones: nobody waits, and a slot is free.
    fn has_room(&self, own: usize) -> bool {
        let (held, waiting) = self.state.pool.held();
        waiting == 0 && held.max(own) < self.state.config.slots
    }

    /// The next line without an answer.
    async fn next_line(
        &self,
        mut lines: Lines,
        batch: &Batch,
        journals: &Journals,
    ) -> Result<(Lines, Option<Line>), Refused> {
        loop {
            let endpoint = batch.endpoint.clone();
            let (back, line) = blocking(move || {
                let line = lines.next(&endpoint)?;
                Ok((lines, line))
            })
            .await?;
            lines = back;
            match line {
                None => return Ok((lines, None)),
                // The file was looked at before; a disk may have changed it since.
                Some(Err(fault)) => return Err(Refused::Disk(io::Error::other(fault.message))),
                Some(Ok(line)) if journals.has(&line.id) => {}
                Some(Ok(line)) => return Ok((lines, Some(line))),
            }
        }
    }

    /// Writes the line of an answer.
    fn note(
        &self,
        batch: &Batch,
        journals: &mut Journals,
        answered: Option<Answered>,
    ) -> Result<(), Refused> {
        // One that panicked is answered by the guard of panics; it cannot come here.
        let Some(answered) = answered else { return Ok(()) };
        let line = answered.line(batch.form).to_string();
        self.store.reserve(line.len() as u64 + 1)?;
        journals.add(answered.id.clone(), &line, answered.is_error())?;
        self.store.count(&batch.id, journals.completed, journals.failed);
        Ok(())
    }

    /// Answers one request; failures that pass are waited for.
    async fn answer(&self, endpoint: &str, line: Line) -> Answered {
        let request_id = self.state.id("req_");
        let text = Json::Object(line.body).to_string();
        let body_of = error_body(endpoint, &HeaderMap::new());
        let mut tries = 0;
        loop {
            tries += 1;
            let mut response = self.response(endpoint, text.clone()).await;
            let passes = match written(&mut response, body_of).map(|error| error.kind) {
                Some(
                    Kind::QueueFull
                    | Kind::Loading
                    | Kind::Draining
                    | Kind::Cancelled
                    | Kind::Closed,
                ) => true,
                Some(Kind::LoadFailed | Kind::OutOfMemory | Kind::Unusable) => tries < TRIES,
                _ => false,
            };
            if passes {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            let status = response.status().as_u16();
            let body = to_bytes(response.into_body(), ANSWER).await.unwrap_or_default();
            let body = serde_json::from_slice(&body);
            let (status, body) = body.map_or_else(
                |_| (500, json!({"error": {"message": "the answer broke off, or is too long"}})),
                |body| (status, body),
            );
            return Answered { id: line.id, request_id, status, body };
        }
    }

    async fn response(&self, endpoint: &str, text: String) -> Response {
        let request = Request::post(endpoint).header(CONTENT_TYPE, "application/json");
        let Ok(request) = request.body(Body::from(text)) else {
            return ApiError::internal("the endpoint is no path").into_response();
        };
        let answer = Tally::default().scope(self.answers.clone().oneshot(request));
        match AssertUnwindSafe(answer).catch_unwind().await {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => ApiError::panicked().into_response(),
        }
    }

    /// Puts the answers of the batch `id` together, whose requests came to the end `stop`.
    fn finish(&self, id: &str, stop: Stop, mut journals: Journals) -> Result<(), Refused> {
        let store = &self.store;
        let batch = store.change(id, |batch| {
            batch.finalizing.get_or_insert(now());
            batch.status = Status::Finalizing;
            // After a restart, a part of the lines may be a file already.
            if batch.stop.replace(stop).is_none() {
                (batch.completed, batch.failed) = (journals.completed, journals.failed);
            }
            if batch.form == Form::Files {
                batch.output.get_or_insert_with(|| self.state.id("file-"));
                batch.errors.get_or_insert_with(|| self.state.id("file-"));
            }
        })?;
        let mut files = [&batch.output, &batch.errors].into_iter().flatten();
        if !files.any(|file| store.file(file, 0).is_some()) {
            self.write_unanswered(&batch, stop, &mut journals)?;
        }
        drop(journals);
        let tokens = self.tokens(&batch)?;
        let names = [("output", &batch.output), ("errors", &batch.errors)];
        let mut kept = [None, None];
        for (at, (part, file)) in names.into_iter().enumerate() {
            if let Some(file) = file {
                kept[at] = self.adopt(&batch, part, file)?;
            }
        }
        let [output, errors] = kept;
        let ended = store.change(id, |batch| {
            batch.status = match stop {
                Stop::Done => Status::Completed,
                Stop::Cancelled => Status::Cancelled,
                Stop::Expired => Status::Expired,
                Stop::Full => Status::Failed,
            };
            if stop == Stop::Full {
                let message = "there is no room for more answers (--max-batch-bytes)".to_owned();
                let code = "storage_full".to_owned();
                batch.faults.push(Fault { code, message, line: None, param: None });
            }
            batch.ended = Some(now());
            (batch.output, batch.errors) = (output, errors);
            batch.tokens = tokens;
        })?;
        tracing::info!(
            target: "batches",
            id,
            status = ?ended.status,
            completed = ended.completed,
            failed = ended.failed,
            total = ended.total,
            "a batch is over"
        );
        Ok(())
    }

    /// Writes lines for requests without an answer.
    fn write_unanswered(
        &self,
        batch: &Batch,
        stop: Stop,
        journals: &mut Journals,
    ) -> Result<(), Refused> {
        if stop == Stop::Done {
            return Ok(());
        }
        let most = self.state.config.limits.body_bytes;
        let mut lines = Lines::open(&self.store.requests(batch), most)?;
        let mut seen = HashSet::new();
        while let Some(line) = lines.next(&batch.endpoint)? {
            // Of a file with mistakes that is cancelled before it was looked at.
            let Ok(Line { id, .. }) = line else { continue };
            if journals.has(&id) || !seen.insert(id.clone()) {
                continue;
            }
            if let Some(line) = unanswered(batch.form, &id, &self.state.id("req_"), stop) {
                let line = line.to_string();
                self.store.count_bytes(line.len() as u64 + 1);
                journals.mark(id, &line)?;
            }
        }
        Ok(())
    }

    fn tokens(&self, batch: &Batch) -> io::Result<Option<Tokens>> {
        let path = self.store.part(&batch.id, "output");
        if batch.form != Form::Files || !path.exists() {
            return Ok(batch.tokens);
        }
        let mut tokens = Tokens::default();
        journal::lines(&path)?.for_each(|line| add_tokens(&mut tokens, &line));
        Ok(Some(tokens))
    }

    /// Makes a file of the part `part` of `batch`, where that has lines; its id.
    fn adopt(&self, batch: &Batch, part: &str, id: &str) -> Result<Option<String>, Refused> {
        let path = self.store.part(&batch.id, part);
        let bytes = path.metadata().map_or(0, |data| data.len());
        if bytes == 0 {
            // Or it was made before the server was killed.
            let _ = fs::remove_file(path);
            return Ok(self.store.file(id, 0).map(|file| file.id));
        }
        let stays = if batch.output_stays == 0 { STAYS } else { batch.output_stays };
        let record = FileRecord {
            id: id.to_owned(),
            number: 0,
            name: format!("{}_{part}.jsonl", batch.id),
            purpose: Purpose::BatchOutput,
            bytes,
            created: now(),
            expires: now() + stays,
        };
        Ok(Some(self.store.keep(&path, record)?.id))
    }
}

impl Journals {
    fn open(store: &Store, batch: &Batch) -> Result<Journals, Refused> {
        let output = Journal::open(&store.part(&batch.id, "output"))?;
        let errors = match batch.form {
            Form::Files => Some(Journal::open(&store.part(&batch.id, "errors"))?),
            Form::Whole => None,
        };
        let (mut completed, mut failed) = (output.done.len(), 0);
        if let Some(errors) = &errors {
            failed = errors.done.len();
        } else {
            let path = store.part(&batch.id, "output");
            let lines = journal::lines(&path)?;
            let errored = lines.filter(|line| line["result"]["type"] == "errored");
            failed += errored.count();
            completed -= failed;
        }
        Ok(Journals { output, errors, completed, failed })
    }

    fn has(&self, id: &str) -> bool {
        let of_errors = self.errors.as_ref().is_some_and(|errors| errors.done.contains(id));
        of_errors || self.output.done.contains(id)
    }

    fn add(&mut self, id: String, line: &str, is_error: bool) -> io::Result<()> {
        match is_error {
            true => self.failed += 1,
            false => self.completed += 1,
        }
        match &mut self.errors {
            Some(errors) if is_error => errors.add(id, line),
            _ => self.output.add(id, line),
        }
    }

    /// Adds the line of a request that was not answered, which counts for nothing.
    fn mark(&mut self, id: String, line: &str) -> io::Result<()> {
        match &mut self.errors {
            Some(errors) => errors.add(id, line),
            None => self.output.add(id, line),
        }
    }
}

/// The result of `work`, which may wait for the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refused> + Send + 'static,
) -> Result<T, Refused> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.unwrap_or_else(|_| Err(Refused::Disk(io::Error::other("the work panicked"))))
}
