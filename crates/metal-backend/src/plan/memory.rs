//! Decides what fits into memory, and what has to wait for it.

/// The memory at one time, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// The limit of weights, caches and activations together.
    pub limit: u64,
    /// The part of the limit that others leave now.
    pub left: u64,
    /// In use by weights and by whatever else runs in the process, without the caches.
    pub fixed: u64,
    /// Of that, what was in use while no request ran. The rest goes with those that run.
    pub idle: u64,
    /// Set aside for what runs.
    pub rows: u64,
}

/// The bytes that a request needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// To end, when nothing else runs.
    pub least: u64,
    /// For a while, beside others.
    pub soon: u64,
}

/// Memory that can be freed without taking anything from a request that runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spare {
    /// Prefixes of earlier requests are kept, or captures of their passes.
    pub prefixes: bool,
    /// Batches have slots that rows left.
    pub slots: bool,
}

impl Spare {
    /// The kinds of memory that both can free.
    pub fn of(self, other: Spare) -> Spare {
        let (prefixes, slots) = (self.prefixes && other.prefixes, self.slots && other.slots);
        Spare { prefixes, slots }
    }
}

/// When something fits, if ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It fits now.
    Now,
    /// It fits once others have ended.
    Later,
    /// It fits at no time, or not while others leave so little of the device.
    Never,
}

impl Memory {
    /// Bytes that one request may take when nothing else runs.
    pub fn alone(&self) -> u64 {
        self.left.saturating_sub(self.idle)
    }

    /// Bytes that may be taken beside what is set aside.
    pub fn room(&self) -> u64 {
        self.left.saturating_sub(self.fixed.saturating_add(self.rows))
    }

    /// Returns true when what is in use and what is set aside do not fit together.
    pub fn is_short(&self) -> bool {
        self.fixed.saturating_add(self.rows) > self.left
    }

    /// Decides if a request fits, and when. Beside others it has what it needs for a while.
    /// Should all grow until nothing is left, the youngest makes room and is computed again later.
    pub fn fit(&self, need: Need) -> Fit {
        if need.least > self.alone() {
            Fit::Never
        } else if self.rows > 0 && need.soon > self.room() {
            Fit::Later
        } else {
            Fit::Now
        }
    }

    /// Decides if work fits that takes so many bytes to its end, beside others that run or alone.
    pub fn fit_whole(&self, bytes: u64, others_run: bool) -> Fit {
        match bytes <= self.room() {
            true => Fit::Now,
            false if others_run => Fit::Later,
            false => Fit::Never,
        }
    }

    /// Returns true when a request fits into the limit, however little others leave of that.
    pub fn would_fit(&self, need: Need) -> bool {
        need.least <= self.limit.saturating_sub(self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_alone_waits_for_others_and_what_does_not_is_refused() {
        let memory = |left, fixed, rows| Memory { limit: 100, left, fixed, idle: fixed, rows };
        let cases = [
            // Alone, it may take all that is left, even what it needs no sooner than later.
            (memory(100, 40, 0), (60, 70), Fit::Now),
            (memory(100, 40, 0), (61, 10), Fit::Never),
            // Beside others, it has what it needs soon.
            (memory(100, 40, 30), (60, 30), Fit::Now),
            (memory(100, 40, 30), (60, 31), Fit::Later),
            (memory(100, 40, 30), (61, 1), Fit::Never),
            // Others took some of the device.
            (memory(80, 40, 0), (41, 1), Fit::Never),
            (memory(80, 40, 10), (40, 31), Fit::Later),
            // More is in use than there is.
            (memory(30, 40, 10), (0, 0), Fit::Now),
            (memory(30, 40, 10), (1, 1), Fit::Never),
        ];
        for (memory, (least, soon), expected) in cases {
            assert_eq!(memory.fit(Need { least, soon }), expected, "{memory:?}: {least}, {soon}");
        }
        // What others that run have in use beside caches goes with them.
        let busy = Memory { idle: 25, ..memory(100, 40, 30) };
        let fits = |least, soon| busy.fit(Need { least, soon });
        assert_eq!([fits(75, 31), fits(75, 30), fits(76, 1)], [Fit::Later, Fit::Now, Fit::Never]);
        assert!(memory(80, 40, 0).would_fit(Need { least: 60, soon: 0 }));
        assert!(!memory(80, 40, 0).would_fit(Need { least: 61, soon: 0 }));
    }

    #[test]
    fn what_runs_to_its_end_at_once_waits_only_for_others() {
        let memory = Memory { limit: 100, left: 100, fixed: 40, idle: 40, rows: 30 };
        let fits =
            [30, 31].map(|bytes| [true, false].map(|others| memory.fit_whole(bytes, others)));
        assert_eq!(fits, [[Fit::Now, Fit::Now], [Fit::Later, Fit::Never]]);
    }
}
