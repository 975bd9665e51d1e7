//! Layers of prompts, sent to a CUDA device past MLX where all they do is ours.

use mlx_ffi::distributed::Group;
use mlx_ffi::{Array, Dispatch, Result, async_eval, cuda, on_cuda};

use super::pass;
use crate::cache::Caches;
use crate::kernels::Kernels;
use crate::layers::{Decoder, MOST_CHUNK_KEYS, Pass, PassForm, PromptCaptures};

/// Layers of a short pass that are sent at once: the device computes them while the next ones are
/// prepared.
const LAYERS_AT_ONCE: usize = 4;
/// Positions of a short pass, which the host is hardly ahead of.
const SHORT: i32 = 1024;
/// Layers of a longer pass that are sent first.
/// Then as many are sent as are in flight: the device computes these meanwhile.
const FIRST_LAYERS: usize = 2;

/// Sends the layers of prompts to the device.
#[derive(Debug, Default)]
pub(super) struct Dispatcher {
    /// Knowledge of passes of few rows, and of many: their products differ.
    known: [Known; 2],
    /// For each of these: the last layer has operations that are not ours where only some of its
    /// positions are needed.
    ends_by_mlx: [bool; 2],
    device: Option<mlx_ffi::Dispatcher>,
    /// Passes in which rows decode have operations that are not ours.
    cannot_mix: bool,
    /// Kernels were compiled for what was sent since the last query.
    has_compiled: bool,
    /// The sources of what was last written into caches are still held.
    holds_written: bool,
    /// Bytes of those writes since the last wait, and how many of them may be in flight.
    written: [u64; 2],
    captures: PromptCaptures,
    /// Those of passes that verify drafts.
    verifying: PromptCaptures,
    /// Passes may be filled up, which changes the order of sums.
    fills: bool,
    /// Ranks that sum on GPUs: all send the same layers.
    ranks: Option<Group>,
}

/// Which of the layers' knowledge a pass of so many positions needs: one of few, or one of many.
fn class_of(positions: i32) -> usize {
    usize::from(positions > cuda::MOST_SEVERAL_ROWS)
}

/// Knowledge of a model's layers: which ones can be sent past MLX.
#[derive(Debug)]
enum Known {
    /// So far, these were sent; each is tried by itself.
    Layers(Vec<usize>),
    /// All can be sent, several at once.
    All,
    /// One of them has operations that are not ours.
    Impossible,
}

impl Known {
    /// Takes note of one of `count` layers that was sent.
    fn add(&mut self, layer: usize, count: usize) {
        if let Known::Layers(layers) = self {
            if !layers.contains(&layer) {
                layers.push(layer);
            }
            if layers.len() == count {
                *self = Known::All;
            }
        }
    }
}

impl Default for Known {
    fn default() -> Known {
        Known::Layers(Vec::new())
    }
}

impl Dispatcher {
    /// That of the layers that all of `ranks` compute. It `fills` passes up where that pays.
    pub fn among(ranks: Option<&Group>, fills: bool) -> Dispatcher {
        let sums = ranks.and_then(Group::sums);
        let known = || match sums {
            Some(sums) if !sums.dispatched => Known::Impossible,
            _ => Known::default(),
        };
        let ranks = ranks.filter(|_| sums.is_some()).cloned();
        // What is replayed holds the sums of ranks.
        let fills = fills && sums.is_none_or(|sums| sums.in_replays);
        let captures = PromptCaptures::among(ranks.clone());
        let verifying = PromptCaptures::of_decoding();
        let known = [known(), known()];
        Dispatcher { known, captures, verifying, ranks, fills, ..Dispatcher::default() }
    }

    /// How many positions of each row a pass over all layers is to have, of so many rows with up to
    /// so many positions each, of which some end: where it is captured, or is to be. Those beyond
    /// fill rows up.
    ///
    /// # Errors
    /// A rank that is lost.
    pub fn filled(
        &mut self,
        model: &Decoder,
        caches: &Caches,
        sizes: [usize; 3],
    ) -> Result<Option<usize>> {
        let form = PassForm::filled(model, sizes, caches.rope_factors(), self.ranks.as_ref());
        let Some(form) = form.filter(|form| self.can_capture(model, caches, sizes[1], form)) else {
            return Ok(None);
        };
        Ok(self.captures.note(form)?.then_some(form.columns as usize))
    }

    /// Returns true when a pass of this form, `columns` of whose positions count, is computed by
    /// kernels of ours alone.
    fn can_capture(
        &self,
        model: &Decoder,
        caches: &Caches,
        columns: usize,
        form: &PassForm,
    ) -> bool {
        let is_plain = model.stage.is_none() && model.streams.is_none();
        let class = class_of(form.rows as i32 * form.columns);
        let is_sent = matches!(self.known[class], Known::All) && !self.ends_by_mlx[class];
        let end = caches.positions().into_iter().max().unwrap_or(0) + form.columns;
        self.fills
            && is_plain
            && is_sent
            && end <= MOST_CHUNK_KEYS
            && caches.are_plain()
            && caches.can_truncate()
            && caches.are_as_long([columns as i32, form.columns])
    }

    /// Takes a pass that is [`filled`](Self::filled) up through all layers. `columns` of its
    /// positions are kept.
    ///
    /// # Errors
    /// Those of MLX and of CUDA.
    pub fn advance_filled(
        &mut self,
        model: &Decoder,
        pass: &mut Pass,
        caches: &mut Caches,
        columns: usize,
    ) -> Result<()> {
        let [_, l, _] = pass.h().dims()?;
        if !self.captures.advance(model, pass, caches, columns)? {
            // What is not sent is evaluated with all else.
            self.send(pass, caches, true)?;
            let filling = vec![l - columns as i32; caches.offsets().len()];
            caches.truncate(&filling)?;
        }
        Ok(())
    }

    /// Takes a pass over rows that decode, of several positions each, through all layers. One whose
    /// form recurs, and whose [`Tail`](crate::layers::Tail) is all of its positions, is captured.
    /// Returns true when others like it will be computed as it was.
    ///
    /// # Errors
    /// Those of MLX and of CUDA.
    pub fn verify(
        &mut self,
        model: &Decoder,
        pass: &mut Pass,
        caches: &mut Caches,
    ) -> Result<bool> {
        let [rows, columns, _] = pass.h().dims()?.map(|size| size as usize);
        let sizes = [rows, columns, rows * columns];
        let form = PassForm::exact(sizes, caches.rope_factors());
        let can_capture = self.can_capture(model, caches, columns, &form);
        if can_capture && self.verifying.note(form)? {
            let is_replayed = self.verifying.advance(model, pass, caches, columns)?;
            if !is_replayed {
                self.send(pass, caches, true)?;
            }
            return Ok(is_replayed);
        }
        let class = self.class(model, pass)?;
        while !self.advance(model, pass, caches, (model.layers.len(), true))? {}
        let is_known = class.is_none_or(|class| !matches!(self.known[class], Known::Layers(_)));
        Ok(is_known && (!can_capture || self.verifying.is_impossible(form)))
    }

    /// Takes a pass through its next `count` layers, which are then in flight or still lazy.
    /// Of the last layer, only what caches hold is computed unless `ends` are needed. Returns true
    /// once the pass is through all of them.
    ///
    /// # Errors
    /// Those of MLX and of CUDA.
    pub fn advance(
        &mut self,
        model: &Decoder,
        pass: &mut Pass,
        caches: &mut Caches,
        (count, ends): (usize, bool),
    ) -> Result<bool> {
        let left = model.layers.len() - pass.layer();
        if !pass.has_tail() || count < left {
            return self.advance_whole(model, pass, caches, (count, ends));
        }
        // The layer of which some positions are needed goes by itself: all else stays as it is
        // without them.
        if left > 1 {
            self.advance_whole(model, pass, caches, (left - 1, false))?;
        }
        self.end(model, pass, caches)?;
        Ok(true)
    }

    /// The last layer of a pass of which some positions are needed.
    fn end(&mut self, model: &Decoder, pass: &mut Pass, caches: &mut Caches) -> Result<()> {
        let class = self.class(model, pass)?;
        let Some(class) = class.filter(|class| !self.ends_by_mlx[*class]) else {
            pass::advance(model, pass, caches, 1)?;
            return Ok(());
        };
        let layer = pass.layer();
        model.advance(pass, caches, 1)?;
        let sent = self.send(pass, caches, true)?;
        match sent == Dispatch::Impossible {
            true if pass.has_decode_rows() => self.cannot_mix = true,
            is_impossible => self.ends_by_mlx[class] = is_impossible,
        }
        if sent != Dispatch::NotYet {
            self.known[class].add(layer, model.layers.len());
        }
        Ok(())
    }

    /// Which of the layers' knowledge a pass needs; `None` where MLX computes it.
    fn class(&self, model: &Decoder, pass: &Pass) -> Result<Option<usize>> {
        let [b, l, _] = pass.h().dims()?;
        let class = class_of(b * l);
        let is_possible = model.kernels == Kernels::Cuda
            && pass.is_for_kernels(pass.columns()?)
            && !matches!(self.known[class], Known::Impossible);
        Ok(is_possible.then_some(class))
    }

    fn advance_whole(
        &mut self,
        model: &Decoder,
        pass: &mut Pass,
        caches: &mut Caches,
        (count, ends): (usize, bool),
    ) -> Result<bool> {
        let Some(class) = self.class(model, pass)? else {
            return pass::advance(model, pass, caches, count);
        };
        if pass.layer() == 0 {
            model.make_buffers(pass, caches)?;
        }
        if let Known::All = self.known[class] {
            let [b, l, _] = pass.h().dims()?;
            let on_their_way = pass.layer().max(FIRST_LAYERS);
            let layers = count.min(if b * l <= SHORT { LAYERS_AT_ONCE } else { on_their_way });
            let through = model.advance(pass, caches, layers)?;
            if self.send(pass, caches, ends || !through)? != Dispatch::Sent {
                self.known[class] = Known::default();
            }
            if through || layers == count {
                return Ok(through);
            }
            return self.advance_whole(model, pass, caches, (count - layers, ends));
        }
        for left in (0..count).rev() {
            let layer = pass.layer();
            let through = model.advance(pass, caches, 1)?;
            let sent = self.send(pass, caches, ends || !through)?;
            match (sent, &mut self.known[class]) {
                (Dispatch::Sent, known) => known.add(layer, model.layers.len()),
                (Dispatch::Impossible, known) => {
                    match pass.has_decode_rows() {
                        // Without them it may be possible.
                        true => self.cannot_mix = true,
                        false => *known = Known::Impossible,
                    }
                    return if through || left == 0 {
                        Ok(through)
                    } else {
                        pass::advance(model, pass, caches, left)
                    };
                }
                _ if !through => async_eval(pass.arrays())?,
                _ => {}
            }
            if through {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true when rows should not decode in passes of prompts: MLX would compute them.
    pub fn cannot_mix(&self) -> bool {
        self.cannot_mix
    }

    /// Lets writes into caches stay in flight until they have more than `bytes`.
    /// Then they are waited for. Until then, the sources of these writes are held.
    pub fn hold(&mut self, bytes: u64) {
        self.written = [0, bytes];
    }

    /// Sends what is to be written into caches to the device.
    ///
    /// # Errors
    /// Those of MLX and of CUDA.
    pub fn write(&mut self, written: &[&Array]) -> Result<()> {
        let is_alone = self.ranks.is_none() && on_cuda()?;
        if !is_alone || self.device()?.send(written.iter().copied())? != Dispatch::Sent {
            return async_eval(written.iter().copied());
        }
        let [sent, most] = &mut self.written;
        *sent += written.iter().map(|array| array.nbytes() as u64).sum::<u64>();
        self.holds_written = *sent <= *most;
        match self.holds_written {
            true => Ok(()),
            false => {
                *sent = 0;
                self.device()?.wait()
            }
        }
    }

    fn device(&mut self) -> Result<&mut mlx_ffi::Dispatcher> {
        match &mut self.device {
            Some(device) => Ok(device),
            none => Ok(none.insert(mlx_ffi::Dispatcher::new(self.ranks.clone())?)),
        }
    }

    fn send(&mut self, pass: &Pass, caches: &Caches, ends: bool) -> Result<Dispatch> {
        let ends: Vec<&Array> = if ends { pass.arrays().collect() } else { Vec::new() };
        let sent = self.device()?.send(caches.arrays().chain(pass.of_decode_rows()).chain(ends))?;
        self.has_compiled |= sent == Dispatch::NotYet;
        Ok(sent)
    }

    /// Returns true when kernels were compiled for what was sent since the last call.
    pub fn take_has_compiled(&mut self) -> bool {
        std::mem::take(&mut self.has_compiled)
    }

    /// Waits for all that is in flight.
    ///
    /// # Errors
    /// Those of CUDA.
    pub fn wait(&mut self) -> Result<()> {
        self.captures.wait()?;
        self.verifying.wait()?;
        self.device.as_mut().map_or(Ok(()), mlx_ffi::Dispatcher::wait)
    }

    /// Returns true when all layers of passes of few positions are known to be sent past MLX.
    #[cfg(test)]
    pub fn sends_all(&self) -> bool {
        matches!(self.known[0], Known::All)
    }

    /// Returns true when anything is captured.
    pub fn keeps_any(&self) -> bool {
        self.captures.keeps_any() || self.verifying.keeps_any()
    }

    /// Gives up captures that hold the buffers of a row that decodes, before they are replaced or
    /// free.
    pub fn forget_staying(&mut self) {
        self.verifying.forget_staying();
    }

    /// Gives up all captures.
    pub fn forget(&mut self) {
        self.captures.forget();
        self.verifying.forget();
    }

    /// Gives up the memory that it keeps from one part of a pass to the next, and what caches were
    /// written from.
    pub fn rest(&mut self) {
        self.lets_go_of_written();
        if let Some(device) = &mut self.device {
            device.rest();
        }
    }

    /// Waits for what was written into caches, and gives up what that was taken from. Returns
    /// whether there was anything.
    pub fn lets_go_of_written(&mut self) -> bool {
        let holds_written = std::mem::take(&mut self.holds_written);
        if let Some(device) = self.device.as_mut().filter(|_| holds_written) {
            // Whoever reads what was written is told of an error.
            let _ = device.wait();
        }
        holds_written
    }
}
