//! From states to tokens: by the most likely one of each place (CTC), or by a network that also
//! says how many places a token takes (TDT, <https://arxiv.org/abs/2304.06795>).

use mlx_ffi::{Array, Dtype, Indices, Result, eval_all, ops};

use crate::layers::Linear;

/// A token, and the places that it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Emitted {
    pub id: u32,
    /// The logarithm of its probability, at its first place.
    pub logprob: f32,
    pub first: usize,
    pub places: usize,
}

/// The end of a model.
pub(super) enum Ending {
    Ctc { head: Linear, blank: u32 },
    Tdt(Box<Tdt>),
}

/// A prediction network and what joins it with states.
pub(super) struct Tdt {
    pub projection: Linear,
    /// `[vocab, size]`.
    pub embedding: Array,
    pub lstm: Vec<Lstm>,
    pub out: Linear,
    /// To ids, then to how many places each takes.
    pub head: Linear,
    pub vocab: i32,
    pub blank: u32,
    /// The id that the network sees first.
    pub start: u32,
    /// Ids that are no text.
    pub skipped: Vec<u32>,
    /// Steps for each place, at most.
    pub most_steps: usize,
}

/// A layer of an LSTM: products with its input and its state, to four gates.
pub(super) struct Lstm {
    pub input: Linear,
    pub state: Linear,
}

impl Lstm {
    /// The next hidden state and cell, `[1, size]` each.
    fn step(&self, x: &Array, [hidden, cell]: &[Array; 2]) -> Result<[Array; 2]> {
        let gates = ops::add(&self.input.forward(x)?, &self.state.forward(hidden)?)?;
        let [_, all] = gates.dims()?;
        let size = all / 4;
        let gate = |at: i32| ops::slice_axis(&gates, 1, at * size, (at + 1) * size);
        let (input, forget) = (ops::sigmoid(&gate(0)?)?, ops::sigmoid(&gate(1)?)?);
        let (new, output) = (ops::tanh(&gate(2)?)?, ops::sigmoid(&gate(3)?)?);
        let cell = ops::add(&ops::multiply(&forget, cell)?, &ops::multiply(&input, &new)?)?;
        Ok([ops::multiply(&output, &ops::tanh(&cell)?)?, cell])
    }
}

impl Ending {
    /// The tokens of states, `[1, places, hidden]`, without blanks. `goes_on` is asked now and
    /// then.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn tokens(
        &self,
        states: &Array,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Emitted>>> {
        match self {
            Ending::Ctc { head, blank } => {
                let logits = head.forward(states)?;
                let (best, logprobs) = best(&logits)?;
                Ok(Some(merged(&best, &logprobs, *blank)))
            }
            Ending::Tdt(tdt) => tdt.tokens(states, goes_on),
        }
    }
}

/// The best ids of logits, `[…, vocab]`, and the logarithms of their probabilities.
fn best(logits: &Array) -> Result<(Vec<u32>, Vec<f32>)> {
    let logits = ops::astype(logits, Dtype::F32)?;
    let ids = ops::argmax(&logits, -1, false)?;
    let all = ops::logsumexp(&logits, -1, false)?;
    let logprobs = ops::subtract(&ops::max(&logits, -1, false)?, &all)?;
    eval_all([&*ids, &logprobs])?;
    Ok((ids.to_vec_u32()?, logprobs.to_vec_f32()?))
}

/// Ids that follow each other and are the same are one; blanks are none.
fn merged(ids: &[u32], logprobs: &[f32], blank: u32) -> Vec<Emitted> {
    let mut made: Vec<Emitted> = Vec::new();
    for (place, (id, logprob)) in ids.iter().zip(logprobs).enumerate() {
        match made.last_mut() {
            Some(last) if last.id == *id && last.first + last.places == place => last.places += 1,
            _ => made.push(Emitted { id: *id, logprob: *logprob, first: place, places: 1 }),
        }
    }
    made.retain(|one| one.id != blank);
    made
}

impl Tdt {
    fn tokens(&self, states: &Array, goes_on: &dyn Fn() -> bool) -> Result<Option<Vec<Emitted>>> {
        let states = self.projection.forward(states)?;
        states.eval()?;
        let [_, places, size] = states.dims()?;
        let states = ops::reshape(&states, &[places, size])?;
        let zeros = || -> Result<[Array; 2]> {
            Ok([ops::zeros(&[1, size], states.dtype())?, ops::zeros(&[1, size], states.dtype())?])
        };
        let mut memory = self.lstm.iter().map(|_| zeros()).collect::<Result<Vec<_>>>()?;
        let mut predicted = self.predict(self.start, &mut memory)?;
        let (mut made, mut place, places) = (Vec::new(), 0, places as usize);
        for step in 0..self.most_steps.saturating_mul(places) {
            if place >= places {
                break;
            }
            if step % 64 == 0 && !goes_on() {
                return Ok(None);
            }
            let state = ops::slice_axis(&states, 0, place as i32, place as i32 + 1)?;
            let joint = crate::kernels::Activation::Relu.of(&ops::add(&state, &predicted)?)?;
            let all = self.head.forward(&joint)?;
            let [_, outputs] = all.dims()?;
            let (ids, logprobs) = best(&ops::slice_axis(&all, 1, 0, self.vocab)?)?;
            let (taken, _) = best(&ops::slice_axis(&all, 1, self.vocab, outputs)?)?;
            let (Some(&id), Some(&logprob), Some(&taken)) =
                (ids.first(), logprobs.first(), taken.first())
            else {
                break;
            };
            let taken = taken as usize;
            let taken = if id == self.blank { taken.max(1) } else { taken };
            if id != self.blank {
                if !self.skipped.contains(&id) {
                    made.push(Emitted { id, logprob, first: place, places: taken });
                }
                predicted = self.predict(id, &mut memory)?;
            }
            place += taken;
        }
        Ok(Some(made))
    }

    /// The network's output behind one more id, `[1, size]`.
    fn predict(&self, id: u32, memory: &mut [[Array; 2]]) -> Result<Array> {
        let mut x = ops::take(&self.embedding, &Indices::from_u32(&[id], &[1])?, 0)?;
        for (layer, memory) in self.lstm.iter().zip(memory) {
            *memory = layer.step(&x, memory)?;
            x = memory[0].share()?;
        }
        let predicted = self.out.forward(&x)?;
        predicted.eval()?;
        Ok(predicted)
    }
}

#[cfg(test)]
mod tests {
    use super::{Emitted, merged};

    #[test]
    fn a_blank_parts_two_tokens_that_are_the_same() {
        let one = |id, first, places| Emitted { id, logprob: -1.0, first, places };
        let found = merged(&[9, 4, 4, 9, 4, 5, 5, 5, 9], &[-1.0; 9], 9);
        assert_eq!(found, [one(4, 1, 2), one(4, 4, 1), one(5, 5, 3)]);
        assert_eq!(merged(&[9, 9], &[-1.0; 2], 9), []);
    }
}
