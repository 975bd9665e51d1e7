//! The thread of a model that transcribes: rounds in which each request hears its next window.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use inference_core::{
    CancelToken, Error as Refusal, Transcript, TranscriptionEvent, TranscriptionMetrics,
    TranscriptionSender,
};
use mlx_ffi::{Array, memory, ops};

use super::network::{Best, Network, Remembered};
use super::rules::{Rules, Text, logsumexp};
use super::segments::TIME_STEP;
use super::session::{Heard, Session, Verdict, Vocabulary, Window};
use crate::error::{Result, not_numbers};

/// Steps after which rows that are over make place.
const STEPS_OF_A_LOOK: usize = 8;

/// The features of a sound.
pub(super) struct Features {
    /// Feature by feature, each of so many frames.
    pub values: Vec<f32>,
    pub frames: usize,
    /// Frames before the padding of a short sound.
    pub real_frames: usize,
    /// Seconds of the sound.
    pub seconds: f64,
}

/// A request.
pub(super) struct Request {
    /// Its number among all.
    pub number: u64,
    pub session: Session,
    pub features: Features,
    pub sender: TranscriptionSender,
    pub queued: Instant,
    pub metrics: TranscriptionMetrics,
    /// Until it is dropped with the request.
    pub _present: Present,
}

/// Requests that are there, and the frames of their features.
#[derive(Default)]
pub(super) struct Counts {
    pub requests: AtomicUsize,
    pub frames: AtomicUsize,
}

/// The sign that a request is there: it is counted until this is dropped.
pub(super) struct Present {
    pub counts: Arc<Counts>,
    pub frames: usize,
}

impl Drop for Present {
    fn drop(&mut self) {
        self.counts.frames.fetch_sub(self.frames, Ordering::AcqRel);
        self.counts.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Requests that wait for the thread.
pub(super) type Inbox = Arc<Mutex<VecDeque<Request>>>;

/// The state that the thread owns.
pub(super) struct Transcriber {
    pub network: Network,
    pub vocabulary: Arc<Vocabulary>,
    pub inbox: Inbox,
    /// Requests that are heard at the same time.
    pub parallel: usize,
    /// Bytes that arrays may take.
    pub limit: u64,
    active: Vec<Request>,
}

/// A row of the decoder.
struct Row {
    /// Of the requests of the round.
    request: usize,
    window: Window,
    heard: Heard,
    is_over: bool,
}

impl Transcriber {
    /// A thread's state without requests.
    pub fn new(
        network: Network,
        vocabulary: Arc<Vocabulary>,
        inbox: Inbox,
        [parallel, limit]: [u64; 2],
    ) -> Transcriber {
        let parallel = parallel as usize;
        Transcriber { network, vocabulary, inbox, parallel, limit, active: Vec::new() }
    }

    /// Works until the request `number` is done, and on all that are there meanwhile.
    ///
    /// # Errors
    /// One of the device: it ends all requests.
    pub fn work_until(&mut self, number: u64, closing: &CancelToken) -> Result<()> {
        loop {
            self.admit();
            if closing.is_cancelled() {
                self.end_all(&Refusal::Closed);
                return Ok(());
            }
            self.drop_cancelled();
            if self.is_done(number) {
                return Ok(());
            }
            if let Err(error) = self.round() {
                let told = Refusal::from(error);
                self.end_all(&told);
                return match told {
                    Refusal::Memory { .. } => Ok(()),
                    told => Err(told.into()),
                };
            }
        }
    }

    fn is_done(&self, number: u64) -> bool {
        let waits = || {
            let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.iter().any(|request| request.number == number)
        };
        !self.active.iter().any(|request| request.number == number) && !waits()
    }

    /// Takes requests that wait, as many as there is place for.
    fn admit(&mut self) {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        while self.active.len() < self.parallel
            && let Some(mut request) = inbox.pop_front()
        {
            request.metrics.queue_duration = request.queued.elapsed();
            self.active.push(request);
        }
    }

    fn drop_cancelled(&mut self) {
        let mut at = 0;
        while at < self.active.len() {
            match self.active[at].sender.is_cancelled() {
                true => self.active.remove(at).sender.finish(Err(Refusal::Cancelled)),
                false => at += 1,
            }
        }
    }

    /// Ends every request that is there with `error`.
    pub fn end_all(&mut self, error: &Refusal) {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        for request in self.active.drain(..).chain(inbox.drain(..)) {
            request.sender.finish(Err(error.clone()));
        }
    }

    /// Lets each request hear its next window.
    fn round(&mut self) -> Result<()> {
        let windows: Vec<Option<Window>> =
            self.active.iter().map(|request| request.session.window(&self.vocabulary)).collect();
        let hears: Vec<usize> = (0..windows.len()).filter(|at| windows[*at].is_some()).collect();
        for group in hears.chunks(self.rows_that_fit(hears.len())?) {
            let started = Instant::now();
            let states = self.encode(group, &windows)?;
            states.eval()?;
            let encoded = Instant::now();
            self.find_languages(group, &states)?;
            let heard = self.hear(group, &states)?;
            for (number, (row, at)) in heard.into_iter().zip(group).enumerate() {
                let metrics = &mut self.active[*at].metrics;
                metrics.windows += 1;
                metrics.tokens += row.heard.logprobs.len();
                metrics.encode_duration += encoded - started;
                metrics.decode_duration += encoded.elapsed();
                let number = number as i32;
                self.settle(row, &ops::slice_axis(&states, 0, number, number + 1)?)?;
            }
        }
        self.finish_done();
        Ok(())
    }

    /// Rows whose states and keys fit the memory beside each other, of `wanted` ones.
    fn rows_that_fit(&self, wanted: usize) -> Result<usize> {
        let sizes = &self.network.sizes;
        let of = |value: i32| value as u64;
        let states = of(sizes.places) * of(sizes.hidden);
        // While a block of the encoder works, and what the decoder remembers.
        let block = of(sizes.places) * (8 * of(sizes.hidden) + 2 * of(sizes.inner[0]));
        let remembered =
            2 * of(sizes.layers[1]) * of(sizes.hidden) * of(sizes.places + sizes.ids) + 4 * states;
        let each = block.max(remembered) * self.network.dtype.size() as u64;
        let available = self.limit.saturating_sub(memory::active()? as u64);
        if each > available {
            return Err(Refusal::Memory {
                what: "a window of sound".into(),
                needed: each,
                available,
                remedy: "take a smaller model, or allow more memory".into(),
            }
            .into());
        }
        Ok(wanted.min((available / each.max(1)) as usize).max(1))
    }

    /// The states of the windows of `group`.
    fn encode(&self, group: &[usize], windows: &[Option<Window>]) -> Result<Array> {
        let sizes = &self.network.sizes;
        let (frames, size) = (2 * sizes.places as usize, sizes.features as usize);
        let mut values = vec![0.0; group.len() * frames * size];
        for (at, of_row) in group.iter().zip(values.chunks_exact_mut(frames * size)) {
            let Some(window) = &windows[*at] else { continue };
            let features = &self.active[*at].features;
            for feature in 0..size {
                let row = &features.values[feature * features.frames..][..features.frames];
                let row = &row[window.first..window.first + window.frames];
                for (frame, value) in row.iter().enumerate() {
                    of_row[frame * size + feature] = *value;
                }
            }
        }
        let shape = [group.len() as i32, frames as i32, size as i32];
        self.network.encode(&Array::from_f32(&values, &shape)?)
    }

    /// Finds out which language is spoken, for the requests that nobody told it for.
    fn find_languages(&mut self, group: &[usize], states: &Array) -> Result<()> {
        let marks = &self.vocabulary.marks;
        let lacks = |at: &usize| self.active[*at].session.lacks_language(&self.vocabulary);
        let numbers: Vec<usize> = (0..group.len()).filter(|row| lacks(&group[*row])).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let rows = group.len();
        let mut remembered = self.network.remember(states, vec![0; rows], 1)?;
        let behind = self.network.decode(&vec![marks.start; rows], &mut remembered)?;
        let logits = self.network.logits(&behind)?.to_vec_f32()?;
        let vocab = logits.len() / rows;
        for row in numbers {
            let logits = &logits[row * vocab..(row + 1) * vocab];
            let of = |id: u32| logits.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
            let all: Vec<f32> = marks.languages.iter().map(|(_, id)| of(*id)).collect();
            let best = marks.languages.iter().rev().max_by(|a, b| of(a.1).total_cmp(&of(b.1)));
            let Some((code, id)) = best.cloned() else { continue };
            let probability = (of(id) - logsumexp(&all)).exp();
            let request = &mut self.active[group[row]];
            request.sender.send(TranscriptionEvent::Language(code.clone(), probability));
            request.session.set_language((code, id));
        }
        Ok(())
    }

    /// The tokens of the windows of `group`, whose `states` are there.
    fn hear(&self, group: &[usize], states: &Array) -> Result<Vec<Row>> {
        let window = |at: usize| self.active[at].session.window(&self.vocabulary);
        let rows = group.iter().filter_map(|at| {
            let window = window(*at)?;
            Some(Row { request: *at, window, heard: Heard::default(), is_over: false })
        });
        let mut rows: Vec<Row> = rows.collect();
        let longest = rows.iter().map(|row| row.window.prompt.len()).max().unwrap_or(0);
        let most = rows.iter().map(|row| row.window.most).max().unwrap_or(0);
        let padding = |row: &Row| longest - row.window.prompt.len();
        let starts = rows.iter().map(|row| padding(row) as i32).collect();
        let mut remembered = self.network.remember(states, starts, (longest + most) as i32)?;
        let ids: Vec<u32> = rows
            .iter()
            .flat_map(|row| {
                let before = std::iter::repeat_n(self.vocabulary.marks.end, padding(row));
                before.chain(row.window.prompt.iter().copied())
            })
            .collect();
        let behind = self.network.decode(&ids, &mut remembered)?;
        self.look_for_speech(&mut rows, &behind, longest)?;
        let last = ops::slice_axis(&behind, 1, longest as i32 - 1, longest as i32)?;
        self.say(&mut rows, last, remembered)?;
        Ok(rows)
    }

    /// Notes the probability that nobody speaks, from the logits behind the start of each row.
    fn look_for_speech(&self, rows: &mut [Row], behind: &Array, longest: usize) -> Result<()> {
        let Some(no_speech) = self.vocabulary.marks.no_speech else { return Ok(()) };
        let mut starts = Vec::with_capacity(rows.len());
        for (number, row) in rows.iter().enumerate() {
            let place = (longest - row.window.prompt.len() + row.window.start) as i32;
            let of_row = ops::slice_axis(behind, 0, number as i32, number as i32 + 1)?;
            starts.push(ops::slice_axis(&of_row, 1, place, place + 1)?);
        }
        let states = ops::concatenate(&starts.iter().collect::<Vec<_>>(), 0)?;
        let probabilities = ops::softmax(&self.network.logits(&states)?, -1, true)?;
        let id = no_speech as i32;
        let of_id = ops::contiguous(&ops::slice_axis(&probabilities, 2, id, id + 1)?)?;
        for (row, probability) in rows.iter_mut().zip(of_id.to_vec_f32()?) {
            row.heard.no_speech = probability;
        }
        Ok(())
    }

    /// Draws tokens until every row is over; `states` are those behind the prompts.
    fn say(&self, rows: &mut [Row], mut states: Array, mut remembered: Remembered) -> Result<()> {
        // The rows that are computed, by their numbers.
        let mut computed: Vec<usize> = (0..rows.len()).collect();
        let masks = [self.text_mask(true)?, self.text_mask(false)?];
        for step in 0.. {
            let logits = self.network.logits(&states)?;
            let best = self.network.best(&logits, &masks[usize::from(step > 0)])?;
            let finite = |value: &f32| !value.is_nan() && *value < f32::INFINITY;
            if !best.totals.iter().chain(&best.others).all(finite) {
                return Err(not_numbers());
            }
            let draws = computed.iter().any(|number| rows[*number].window.temperature > 0.0);
            let text = if draws {
                self.text_logits(&logits, &masks[usize::from(step > 0)])?
            } else {
                Vec::new()
            };
            let mut next = self.draw_all(rows, &computed, best, &text);
            let over = computed.iter().filter(|number| rows[**number].is_over).count();
            if over == computed.len() {
                return Ok(());
            }
            if over > 0 && (2 * over >= computed.len() || step % STEPS_OF_A_LOOK == 0) {
                let stays: Vec<u32> = (0..computed.len() as u32)
                    .filter(|at| !rows[computed[*at as usize]].is_over)
                    .collect();
                remembered.keep(&stays)?;
                next = stays.iter().map(|at| next[*at as usize]).collect();
                computed = stays.iter().map(|at| computed[*at as usize]).collect();
            }
            states = self.network.decode(&next, &mut remembered)?;
        }
        Ok(())
    }

    /// The mask of the ids of text, which is the same for all requests.
    fn text_mask(&self, is_first: bool) -> Result<Array> {
        let mask = Rules::new(&self.vocabulary.marks, false).text_mask(is_first);
        Ok(Array::from_f32(&mask, &[1, mask.len() as i32])?)
    }

    /// The masked logits of the ids of text, row by row.
    fn text_logits(&self, logits: &Array, mask: &Array) -> Result<Vec<f32>> {
        let text = ops::slice_axis(logits, 2, 0, mask.size() as i32)?;
        Ok(ops::contiguous(&ops::add(&text, mask)?)?.to_vec_f32()?)
    }

    /// The next tokens of the rows `computed`, some of which may be over with them.
    fn draw_all(
        &self,
        rows: &mut [Row],
        computed: &[usize],
        mut best: Best,
        text: &[f32],
    ) -> Vec<u32> {
        let (marks, size) = (best.others.len() / computed.len(), text.len() / computed.len());
        let mut next = Vec::with_capacity(computed.len());
        for ((at, number), marks) in
            computed.iter().enumerate().zip(best.others.chunks_exact_mut(marks.max(1)))
        {
            let text = Text {
                best: (best.ids[at], best.logits[at]),
                total: best.totals[at],
                all: &text[at * size..(at + 1) * size],
            };
            next.push(self.draw(&mut rows[*number], text, marks));
        }
        next
    }

    /// The next token of a row, which may end it.
    fn draw(&self, row: &mut Row, text: Text<'_>, marks: &mut [f32]) -> u32 {
        let end = self.vocabulary.marks.end;
        if row.is_over {
            return end;
        }
        let request = &self.active[row.request];
        let temperature = row.window.temperature;
        let uniform = match temperature > 0.0 {
            true => uniform(request.session.seed(), row.heard.ids.len() as u64),
            false => 0.0,
        };
        let rules = &request.session.rules;
        let chosen = rules.choose(text, marks, &row.heard.ids, temperature, uniform);
        row.heard.logprobs.push(chosen.logprob);
        if chosen.id == end {
            row.is_over = true;
        } else {
            row.heard.ids.push(chosen.id);
            let is_full = row.heard.ids.len() >= row.window.most;
            row.is_over = is_full || request.sender.is_cancelled();
        }
        chosen.id
    }

    /// Takes what was heard in a window, whose `states` are `[1, places, hidden]`, and tells of it.
    fn settle(&mut self, row: Row, states: &Array) -> Result<()> {
        let Row { request: at, window, heard, .. } = row;
        if self.active[at].sender.is_cancelled() {
            return Ok(());
        }
        let vocabulary = Arc::clone(&self.vocabulary);
        match self.active[at].session.judge(&vocabulary, &window, &heard) {
            Verdict::Again => {
                self.active[at].session.again();
                return Ok(());
            }
            Verdict::Silent => self.active[at].session.pass_over(&window),
            Verdict::Counts => {
                let times = match self.active[at].session.times_words() {
                    true => Some(self.times(states, at, &window, &heard)?),
                    false => None,
                };
                let Request { session, sender, .. } = &mut self.active[at];
                let before = session.take(&vocabulary, &window, &heard, times.as_deref());
                for segment in &session.segments[before..] {
                    sender.send(TranscriptionEvent::Segment(Box::new(segment.clone())));
                }
            }
        }
        let Request { session, sender, .. } = &self.active[at];
        sender.send(TranscriptionEvent::Heard(session.seconds_done()));
        Ok(())
    }

    /// The times at which the tokens of a window end, in seconds from its beginning.
    fn times(&self, states: &Array, at: usize, window: &Window, heard: &Heard) -> Result<Vec<f64>> {
        // The last token has none of its own.
        let Some((_, but_last)) = heard.ids.split_last() else { return Ok(Vec::new()) };
        let is_ended = heard.logprobs.len() > heard.ids.len();
        let followed = if is_ended { heard.ids.as_slice() } else { but_last };
        let real = self.active[at].features.real_frames.saturating_sub(window.first);
        let places = (real / 2).min(self.network.sizes.places as usize);
        if followed.is_empty() || places == 0 {
            return Ok(vec![0.0; heard.ids.len()]);
        }
        let ids = [window.prompt.as_slice(), followed].concat();
        let heads = &self.vocabulary.marks.alignment_heads;
        let followed = self.network.follow(states, &ids, window.prompt.len(), places, heads)?;
        let mut times: Vec<f64> =
            followed.first_places().iter().map(|place| *place as f64 * TIME_STEP).collect();
        let last = times.last().copied().unwrap_or(0.0);
        times.resize(heard.ids.len(), last);
        Ok(times)
    }

    /// Ends the requests that have no window left.
    fn finish_done(&mut self) {
        let mut at = 0;
        while at < self.active.len() {
            if self.active[at].session.window(&self.vocabulary).is_some() {
                at += 1;
                continue;
            }
            let Request { session, features, sender, queued, mut metrics, .. } =
                self.active.remove(at);
            metrics.total_duration = queued.elapsed();
            sender.finish(Ok(Transcript {
                text: session.text(&self.vocabulary),
                language: session.language().to_owned(),
                seconds: features.seconds,
                segments: session.segments,
                metrics,
            }));
        }
    }
}

/// A number from 0 to 1 for the draw `step` with `seed` (SplitMix64).
fn uniform(seed: u64, step: u64) -> f64 {
    let mut x = seed.wrapping_add((step + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}
