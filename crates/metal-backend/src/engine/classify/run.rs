//! Rows of ids that pass through the model.

use std::sync::Arc;
use std::time::Duration;

use mlx_ffi::{Array, Indices, Result, eval_all, ops};

use crate::cache::Caches;
use crate::engine::eyes::Eyes;
use crate::engine::pass;
use crate::engine::served::Served;
use crate::layers::Pass;
use crate::sight::Scene;

/// How long a part of a tower may take before others are served.
const QUANTUM: Duration = Duration::from_millis(20);

/// Rows of ids that are computed together after what their caches hold. It may rest between two
/// layers.
pub(super) struct Run {
    ids: Vec<Vec<u32>>,
    /// How the only row sees its pictures.
    eyes: Option<Eyes>,
    pub caches: Caches,
    wanted: Wanted,
    /// The last column is computed by itself, as a generation does it.
    last_apart: bool,
    chunk: usize,
    /// Columns that are done, of all.
    done: usize,
    end: usize,
    pass: Option<Pass>,
    /// The wanted hidden states of what is done, each `[n, hidden_size]`.
    answers: Vec<Array>,
}

/// After which ids of a row the model's answer is wanted.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// The last one.
    Last,
    /// All from this one on.
    From(usize),
}

impl Run {
    /// The run of `ids`, in as many parts as a chunk asks for where it is one row.
    pub fn new(ids: Vec<Vec<u32>>, caches: Caches, wanted: Wanted, chunk: usize) -> Run {
        let end = ids.iter().map(Vec::len).max().unwrap_or(0);
        let (done, answers) = (0, Vec::new());
        let (eyes, pass) = (None, None);
        Run { ids, eyes, caches, wanted, last_apart: false, chunk, done, end, pass, answers }
    }

    /// The run of one row that sees these pictures.
    pub fn seeing(self, scene: Option<Arc<Scene>>) -> Run {
        Run { eyes: scene.map(Eyes::new), ..self }
    }

    /// The run with its last column computed by itself.
    pub fn last_apart(self) -> Run {
        Run { last_apart: true, ..self }
    }

    /// Columns of the part that is computed next, or under way.
    fn columns(&self) -> usize {
        let columns = match self.end - self.done {
            left @ 2.. if self.last_apart && left <= self.chunk + 1 => (left - 1).min(self.chunk),
            left => left.min(self.chunk),
        };
        self.eyes.as_ref().map_or(columns, |eyes| {
            eyes.scene().chunk_end(self.done, self.done + columns).min(self.end) - self.done
        })
    }

    /// Ids of that part, those included that fill rows up.
    pub fn part(&self) -> usize {
        self.columns() * self.ids.len()
    }

    /// Computes `layers` more layers, and waits for them. At the end, the wanted hidden states,
    /// `[n, hidden_size]`: row by row, each row's ids in order.
    pub fn advance(&mut self, served: &Served, layers: usize) -> Result<Option<Array>> {
        let (model, columns) = (&served.model, self.columns());
        let here = self.done..self.done + columns;
        if let (None, Some(eyes)) = (&self.pass, &mut self.eyes)
            && !eyes.look(&here, served, QUANTUM)?
        {
            return Ok(None);
        }
        let mut pass = match self.pass.take() {
            Some(pass) => pass,
            None => {
                if let Some(eyes) = &self.eyes {
                    eyes.begin(model, &self.ids[0][here.clone()], here, &self.caches)?
                } else {
                    let mut pass = model.begin(&self.columns_of_ids(columns)?, &self.caches)?;
                    pass.set_lengths(self.lengths(columns));
                    pass
                }
            }
        };
        if !pass::advance(model, &mut pass, &mut self.caches, layers)? {
            eval_all(self.caches.arrays().chain(pass.arrays()))?;
            self.pass = Some(pass);
            return Ok(None);
        }
        if let Some(indices) = self.wanted_in(columns)? {
            // [b, l, hidden_size] -> [b * l, hidden_size]
            let [b, l, hidden_size] = pass.h().dims()?;
            let flat = ops::reshape(pass.h(), &[b * l, hidden_size])?;
            self.answers.push(ops::take(&flat, &indices, 0)?);
        }
        eval_all(self.caches.arrays().chain(&self.answers).chain(pass.exchanged()))?;
        self.done += columns;
        if self.done < self.end {
            return Ok(None);
        }
        let parts: Vec<&Array> = self.answers.iter().collect();
        ops::concatenate(&parts, 0).map(Some)
    }

    /// Ids of each row in the next `columns` columns; empty where all rows go on to their end.
    fn lengths(&self, columns: usize) -> Vec<i32> {
        let of_row = |row: &Vec<u32>| row.len().saturating_sub(self.done).min(columns) as i32;
        let lengths: Vec<i32> = self.ids.iter().map(of_row).collect();
        let all = lengths.iter().all(|length| *length == columns as i32);
        if all { Vec::new() } else { lengths }
    }

    /// `[b, columns]`; rows that are over are filled up with what is never looked at.
    fn columns_of_ids(&self, columns: usize) -> Result<Indices> {
        let of_row = |row: &Vec<u32>| -> Vec<u32> {
            let own = row.iter().copied().skip(self.done);
            own.chain(std::iter::repeat(0)).take(columns).collect()
        };
        let ids: Vec<u32> = self.ids.iter().flat_map(of_row).collect();
        Indices::from_u32(&ids, &[self.ids.len() as i32, columns as i32])
    }

    /// The places of the wanted ids in the next `columns` columns, row after row.
    fn wanted_in(&self, columns: usize) -> Result<Option<Indices>> {
        let here = self.done..self.done + columns;
        let mut indices = Vec::new();
        for (row, ids) in self.ids.iter().enumerate() {
            let first = match self.wanted {
                Wanted::Last => ids.len() - 1,
                Wanted::From(first) => first,
            };
            let own = (first..ids.len()).filter(|column| here.contains(column));
            indices.extend(own.map(|column| (row * columns + column - self.done) as u32));
        }
        let count = indices.len() as i32;
        (count > 0).then(|| Indices::from_u32(&indices, &[count])).transpose()
    }
}
