//! Requests whose prompts are being computed.

use std::time::{Duration, Instant};

use mlx_ffi::{Array, Indices, async_eval, eval_all, memory, on_cpu};

use super::dispatcher::Dispatcher;
use super::eyes::Eyes;
use super::firsts::Firsts;
use super::ranks::Ranks;
use super::row::Row;
use super::served::Served;
use crate::cache::{Caches, More, RopeFactors, Storage};
use crate::error::Result;
use crate::layers::{Decoder, JoiningRows, LeavingRows, Pass, Tail};
use crate::plan::Waiting;

/// Positions left free behind prompts that were computed together: their rows decode next.
pub(super) const ROOM: i32 = 1;

/// Rows whose prompts are being computed, together. They may rest between two layers, so that
/// others need not wait for a whole chunk.
pub(super) struct Prefill {
    /// One for each row of the caches.
    prompts: Vec<Progress>,
    pub caches: Caches,
    pass: Option<Pass>,
    /// The hidden states of the chunk that was computed last, `[1, l, hidden_size]`, while the
    /// prompt's log probabilities are read from them.
    reading: Option<Array>,
    /// First tokens, in flight, of rows whose prompts are computed.
    firsts: Option<Firsts>,
}

/// The work of a pass that was just sent to the device.
pub(super) enum Sent<'a> {
    /// The layers of rows that decode beside it. Whatever fails for the prompts from now on is
    /// theirs.
    Rows(LeavingRows),
    /// All layers of a chunk.
    Chunk(&'a Prefill),
    /// Everything.
    All,
}

/// Waits for `wanted` and all that the `dispatcher` sent, once it is `sent`.
fn wait_for<'a>(
    wanted: impl Iterator<Item = &'a Array>,
    dispatcher: &mut Dispatcher,
    sent: impl FnOnce(),
) -> mlx_ffi::Result<()> {
    let wanted: Vec<&Array> = wanted.collect();
    async_eval(wanted.iter().copied())?;
    sent();
    eval_all(wanted)?;
    dispatcher.wait()
}

/// How far a row is through its prompt.
struct Progress {
    row: Row,
    /// Ids that the caches hold.
    done: usize,
    /// The most ids of the first chunk.
    first: usize,
    /// Ids to compute before decoding begins.
    end: usize,
    /// The first token is drawn from what the last id leaves. Otherwise that id is the first step
    /// of decoding.
    draws: bool,
    /// Ids after which a chunk ends, so that a snapshot can be taken there; 0: nowhere.
    stop: usize,
    /// Positions that fill the row up, behind its own.
    filling: i32,
    /// How it sees its pictures.
    eyes: Option<Eyes>,
}

impl Progress {
    fn left(&self) -> usize {
        self.end - self.done
    }

    /// Returns true when a chunk of so many of its ids ends with a draw.
    fn ends_with(&self, part: usize) -> bool {
        self.draws && part > 0 && self.left() == part
    }

    /// Ids of the chunk that is computed next, or under way.
    fn chunk(&self, chunk: usize) -> usize {
        // Chunks begin at multiples of their size, wherever a cache let the prefill begin.
        let first = if self.done == 0 { self.first } else { usize::MAX };
        let stop = if self.done < self.stop { self.stop - self.done } else { usize::MAX };
        let ids = (chunk - self.done % chunk).min(self.left()).min(first).min(stop);
        self.eyes.as_ref().map_or(ids, |eyes| {
            eyes.scene().chunk_end(self.done, self.done + ids).min(self.end) - self.done
        })
    }
}

/// Rows whose prompts are computed, with their caches.
pub(super) struct Computed {
    pub rows: Vec<Row>,
    pub caches: Caches,
    /// Their first tokens, where they are drawn already: the caches hold all ids then.
    pub firsts: Option<Firsts>,
}

impl Prefill {
    /// The prefill of `row`, to the end of its chunks where that is known, else to that of its ids.
    /// Of its ids `caches` hold the first ones, with the end of a chunk after `stop` ids, unless
    /// that is 0. It ends with the draw of a token where that `may_draw`.
    pub fn new(mut row: Row, caches: Caches, stop: usize, may_draw: bool) -> Prefill {
        let done = caches.offsets().first().map_or(0, |offset| *offset as usize);
        let draws = may_draw && row.max_tokens > 0 && row.chunked.is_none();
        // Otherwise the last id is the first step of decoding. Without tokens to generate, there is
        // none.
        let all = row.ids.len() - usize::from(row.max_tokens > 0 && !draws);
        // What a row generated before it was preempted never belonged to its first chunk.
        let first = match row.chunked {
            None if !draws => row.first_pass().max(1),
            _ => usize::MAX,
        };
        let end = *row.chunked.get_or_insert(all);
        let eyes = row.scene.clone().map(Eyes::new);
        let prompts = vec![Progress { row, done, first, end, draws, stop, filling: 0, eyes }];
        Prefill { prompts, caches, pass: None, reading: None, firsts: None }
    }

    /// The rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.prompts.iter().map(|prompt| &prompt.row)
    }

    /// The rows, to take note of what happens around them.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut Row> {
        self.prompts.iter_mut().map(|prompt| &mut prompt.row)
    }

    /// The rows, of a prefill that is given up.
    pub fn into_rows(self) -> impl Iterator<Item = Row> {
        self.prompts.into_iter().map(|prompt| prompt.row)
    }

    /// The data by which the plan decides who computes next.
    pub fn waiting(&self, chunk: usize) -> Waiting {
        let of_rows = |count: fn(&Progress) -> usize| self.prompts.iter().map(count).max();
        Waiting {
            rows: self.prompts.len(),
            left: of_rows(Progress::left).unwrap_or(0),
            columns: self.parts(chunk).max().unwrap_or(0),
            counted: self.parts(chunk).sum(),
            tokens: of_rows(|prompt| prompt.row.ids.len()).unwrap_or(0),
            holds_nothing: self.holds_nothing(),
            kind: self.kind(),
        }
    }

    /// Returns true when it has no memory yet but that of its ids.
    pub fn holds_nothing(&self) -> bool {
        let is_plain = |row: &Row| row.prompt_logprobs.is_none() && row.scene.is_none();
        self.is_between_chunks() && self.caches.nbytes() == 0 && self.rows().all(is_plain)
    }

    /// Returns true when hidden states wait to be read.
    pub fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Returns true when all layers hold the same positions, and nothing more is wanted of them.
    pub fn is_between_chunks(&self) -> bool {
        self.pass.is_none() && self.reading.is_none()
    }

    /// Returns true when a chunk has passed some layers, and not all.
    pub fn is_between_layers(&self) -> bool {
        self.pass.is_some()
    }

    /// Ids of each row in the chunk that is computed next, or under way.
    fn parts(&self, chunk: usize) -> impl Iterator<Item = usize> {
        self.prompts.iter().map(move |prompt| prompt.chunk(chunk))
    }

    /// Which prefills' next chunks can be computed together with its own; `None`: none.
    fn kind(&self) -> Option<usize> {
        let is_plain =
            |row: &Row| row.prompt_logprobs.is_none() && !row.was_retried && row.scene.is_none();
        let can_share = self.is_between_chunks()
            && self.prompts.iter().any(|prompt| prompt.left() > 0)
            && self.caches.can_join()
            && self.rows().all(is_plain);
        // What a first chunk sees may be stored otherwise.
        let begins = self.prompts.iter().all(|prompt| prompt.done == 0);
        let is_stretched = self.caches.rope_factors() == RopeFactors::Long;
        can_share.then(|| 2 * usize::from(begins) + usize::from(is_stretched))
    }

    /// Adds the rows of `others`, which are of one kind with its own.
    ///
    /// # Errors
    /// Those of MLX, which end all of them.
    pub fn join(
        &mut self,
        others: Vec<Prefill>,
        dispatcher: &mut Dispatcher,
    ) -> mlx_ffi::Result<()> {
        if others.is_empty() {
            // What it has stays where it is.
            return Ok(());
        }
        // Rows that share buffers may leave them at different places.
        self.caches.will_grow_by(0);
        let mut joining = Vec::with_capacity(others.len());
        for Prefill { prompts, caches, .. } in others {
            self.prompts.extend(prompts);
            joining.push(caches);
        }
        let rows: Vec<usize> = (0..self.caches.slots()).collect();
        // What begins holds nothing yet.
        let write = |written: &[&Array]| match written {
            [] => Ok(()),
            _ => dispatcher.write(written),
        };
        self.caches.rearrange(&rows, joining, More::default(), write)
    }

    /// Takes the rows out that `leave`, where a chunk of others is not under way. All of them leave
    /// a prefill of one row at any time.
    ///
    /// # Errors
    /// Those of MLX, which end the others.
    pub fn remove(&mut self, leave: impl Fn(&Row) -> bool) -> mlx_ffi::Result<Vec<Row>> {
        let leaves = |prompt: &mut Progress| leave(&prompt.row);
        let stay: Vec<usize> =
            (0..self.prompts.len()).filter(|at| !leaves(&mut self.prompts[*at])).collect();
        if stay.len() == self.prompts.len() || !stay.is_empty() && !self.is_between_chunks() {
            return Ok(Vec::new());
        }
        // A row leaves once nothing can fail any more: who takes it ends it.
        if !stay.is_empty() {
            self.caches.keep(&stay)?;
        }
        Ok(self.prompts.extract_if(.., leaves).map(|prompt| prompt.row).collect())
    }

    /// Computes for about `quantum` what the next chunk sees of pictures, before its first layer.
    /// True once all of it is there.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn look(&mut self, served: &Served, quantum: Duration) -> Result<bool> {
        let columns = self.parts(served.chunk).max().unwrap_or(0);
        match (&self.pass, &mut self.prompts[..]) {
            (None, [Progress { row, done, eyes: Some(eyes), .. }]) => {
                let started = Instant::now();
                let is_done = eyes.look(&(*done..*done + columns), served, quantum)?;
                row.looked(started.elapsed());
                Ok(is_done)
            }
            _ => Ok(true),
        }
    }

    /// Computes `layers` more layers of a chunk, and waits for them once all is [`Sent`]: on a GPU
    /// without ranks, behind the last layer of a chunk which nothing more is wanted of, first the
    /// chunk. The chunk must be the same from its first layer to its last. Rows that decode in its
    /// pass are `joining` before its first layer: it goes through all layers then.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn advance(
        &mut self,
        (model, ranks): (&Decoder, &Ranks),
        chunk: usize,
        layers: usize,
        joining: Option<JoiningRows>,
        dispatcher: &mut Dispatcher,
        mut sent: impl FnMut(Sent<'_>),
    ) -> Result<()> {
        let parts: Vec<usize> = self.parts(chunk).collect();
        let columns = parts.iter().copied().max().unwrap_or(0);
        if columns == 0 {
            return Ok(());
        }
        // Where the hidden states themselves are not needed, the last layer's end never runs.
        let is_read = self.rows().any(|row| row.prompt_logprobs.is_some());
        let last = self.last_positions(&parts, columns);
        let draws = !last.is_empty() && !is_read;
        if let (None, [prompt]) = (&self.pass, &self.prompts[..]) {
            self.caches.will_grow_by(prompt.left() as i32);
        }
        let filled = match &self.pass {
            None if draws && joining.is_none() && layers >= model.layers.len() && !self.sees() => {
                dispatcher.filled(model, &self.caches, [parts.len(), columns, last.len()])?
            }
            _ => None,
        };
        let mut pass = match self.pass.take() {
            Some(pass) => pass,
            None => {
                let all = filled.unwrap_or(columns);
                let last = self.last_positions(&parts, all);
                let mut pass = self.begin(model, &parts, all)?;
                let mut ends = if draws { last } else { Vec::new() };
                if let Some(joining) = joining {
                    // They stand behind the prompts.
                    let first = (parts.len() * all) as u32;
                    ends.extend((0..joining.rows() as u32).map(|row| first + row));
                    pass.add_decode_rows(model, joining)?;
                }
                let ends = (!ends.is_empty()).then(|| Tail::new(&ends)).transpose()?;
                pass.with_tail(ends)
            }
        };
        let ends = is_read || pass.has_tail();
        let caches = &mut self.caches;
        let through = match filled {
            Some(_) => {
                dispatcher.advance_filled(model, &mut pass, caches, columns).map(|()| true)?
            }
            None => dispatcher.advance(model, &mut pass, caches, (layers, ends))?,
        };
        if through {
            if let Some(leaving) = pass.take_decode_rows()? {
                sent(Sent::Rows(leaving));
            }
            self.reading = is_read.then(|| pass.h().share()).transpose()?;
            if !last.is_empty() {
                let states =
                    if is_read { Tail::new(&last)?.of(pass.h())? } else { pass.h().share()? };
                let ended = self.prompts.iter_mut().zip(&parts);
                let ended = ended.filter(|(prompt, part)| prompt.left() == **part).enumerate();
                let draw = ended.filter(|(_, (prompt, part))| prompt.ends_with(**part));
                let rows = draw.map(|(index, (prompt, _))| (index, &mut prompt.row));
                self.firsts = Some(Firsts::draw((model, ranks), rows, &states)?);
            }
            for (prompt, part) in self.prompts.iter_mut().zip(&parts) {
                prompt.done += part;
                prompt.filling = (columns - part) as i32;
            }
            let firsts = self.firsts.iter().flat_map(Firsts::arrays);
            let others = self.reading.iter().chain(pass.exchanged()).chain(firsts);
            let is_on_cpu = on_cpu()?;
            // What is queued on a GPU behind the chunk is queued while that is computed. Ranks,
            // whose devices may differ, do it later.
            let is_told = !is_on_cpu && !is_read && !ranks.are_several();
            wait_for(self.caches.arrays().chain(others), dispatcher, || {
                if is_told {
                    sent(Sent::Chunk(self));
                }
                sent(Sent::All);
            })?;
            dispatcher.rest();
            // On a GPU the allocator keeps no more than its limit.
            if is_on_cpu {
                memory::clear_cache()?;
            }
        } else {
            wait_for(self.caches.arrays().chain(pass.arrays()), dispatcher, || sent(Sent::All))?;
            self.pass = Some(pass);
        }
        self.tell_progress(&parts, model.layers.len());
        Ok(())
    }

    /// Tells how far each prompt is. Of a chunk under way, whose `parts` are these, as large a part
    /// counts as that of the layers which it has passed.
    fn tell_progress(&self, parts: &[usize], n_layers: usize) {
        let passed = self.pass.as_ref().map_or(0, Pass::layer);
        for (prompt, part) in self.prompts.iter().zip(parts) {
            prompt.row.tell_progress(prompt.done + part * passed / n_layers.max(1));
        }
    }

    /// Returns true when any of its prompts has pictures.
    fn sees(&self) -> bool {
        self.prompts.iter().any(|prompt| prompt.eyes.is_some())
    }

    /// The positions with which prompts end that draw, of all rows' positions counted one after the
    /// other.
    fn last_positions(&self, parts: &[usize], columns: usize) -> Vec<u32> {
        let prompts = self.prompts.iter().zip(parts).enumerate();
        let ending = prompts.filter(|(_, (prompt, part))| prompt.ends_with(**part));
        ending.map(|(at, (_, part))| (at * columns + part - 1) as u32).collect()
    }

    /// The pass of `columns` ids of each row, of which only its part counts.
    fn begin(&self, model: &Decoder, parts: &[usize], columns: usize) -> Result<Pass> {
        if let [Progress { row, done, eyes: Some(eyes), .. }] = &self.prompts[..] {
            let chunk = *done..*done + columns;
            return Ok(eyes.begin(model, &row.ids[chunk.clone()], chunk, &self.caches)?);
        }
        let of_row = |(prompt, part): (&Progress, &usize)| {
            let ids = &prompt.row.ids[prompt.done..prompt.done + part];
            // What fills a row up is never looked at.
            [ids, &vec![0; columns - part]].concat()
        };
        let ids: Vec<u32> = self.prompts.iter().zip(parts).flat_map(of_row).collect();
        let ids = Indices::from_u32(&ids, &[parts.len() as i32, columns as i32])?;
        let mut pass = model.begin(&ids, &self.caches)?;
        if parts.iter().any(|part| *part < columns) {
            pass.set_lengths(parts.iter().map(|part| *part as i32).collect());
        }
        Ok(pass)
    }

    /// The rows with the ids that the caches hold of each, between two chunks.
    pub fn held(&self) -> impl Iterator<Item = (&Row, usize)> {
        self.prompts.iter().map(|prompt| (&prompt.row, prompt.done))
    }

    /// Ends a chunk: takes the rows out whose prompts are computed, and lets the others end at one
    /// place again.
    ///
    /// # Errors
    /// Those of MLX, which end all of them.
    pub fn end_chunk(&mut self, dispatcher: &mut Dispatcher) -> mlx_ffi::Result<Option<Computed>> {
        let of = |row: usize| (row, self.prompts[row].filling);
        let (ended, others): (Vec<_>, Vec<_>) =
            (0..self.prompts.len()).map(of).partition(|(row, _)| self.prompts[*row].left() == 0);
        let is_even = self.prompts.iter().all(|prompt| prompt.filling == 0);
        self.prompts.iter_mut().for_each(|prompt| prompt.filling = 0);
        let caches = match (others.is_empty(), ended.is_empty()) {
            (true, _) if is_even => {
                let empty = Caches::new(&[], Storage::Plain, 0, 0);
                let caches = std::mem::replace(&mut self.caches, empty);
                return Ok(Some(self.computed(caches)));
            }
            (false, true) if is_even => return Ok(None),
            (_, false) => Some(self.caches.copies(&ended, ROOM)?),
            (_, true) => None,
        };
        if !others.is_empty() {
            self.caches = self.caches.copies(&others, ROOM)?;
        }
        let copied = self.caches.arrays().chain(caches.iter().flat_map(Caches::arrays));
        dispatcher.write(&copied.collect::<Vec<_>>())?;
        Ok(caches.map(|caches| self.computed(caches)))
    }

    /// The rows whose prompts are computed, at the end of what can fail: who takes them ends them.
    fn computed(&mut self, mut caches: Caches) -> Computed {
        caches.will_grow_by(0);
        let is_ended = |prompt: &mut Progress| prompt.left() == 0;
        let rows = self.prompts.extract_if(.., is_ended).map(|prompt| prompt.row).collect();
        Computed { rows, caches, firsts: self.firsts.take() }
    }

    /// Returns true when no row is left.
    pub fn is_empty(&self) -> bool {
        self.prompts.is_empty()
    }

    /// Reads the prompt's log probabilities from hidden states, for about `quantum`. Such a prompt
    /// is computed by itself.
    ///
    /// # Errors
    /// Those of MLX; a model whose logits are no numbers.
    pub fn read(&mut self, served: &Served, quantum: Duration) -> Result<()> {
        let started = Instant::now();
        let (Some(hidden), [prompt]) = (self.reading.take(), &mut self.prompts[..]) else {
            return Ok(());
        };
        let Some(report) = &mut prompt.row.prompt_logprobs else { return Ok(()) };
        let [_, l, _] = hidden.dims()?;
        let first = prompt.done - l as usize;
        while report.read(served, &hidden, first)? {
            if served.ranks.agree("a pause", || started.elapsed() >= quantum)? {
                self.reading = Some(hidden);
                return Ok(());
            }
        }
        Ok(memory::clear_cache()?)
    }
}
