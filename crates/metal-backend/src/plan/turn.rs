//! The work of a scheduling step before the batches' steps.

/// The kinds of work that are there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Present {
    pub prefills: bool,
    pub batches: bool,
    pub classifications: bool,
    pub inspections: bool,
    pub on_cpu: bool,
}

/// The work of a scheduling step, in this order, before every batch takes a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The steps that were queued are waited for first.
    pub waits_for_steps: bool,
    /// A part of one prompt, or of several together.
    pub prompts: bool,
    /// A part of a classification.
    pub classifies: bool,
    /// A part of an inspection.
    pub inspects: bool,
}

/// A part of everything that is there: nothing starves beside others.
pub(crate) fn turn(present: Present) -> Turn {
    let Present { prefills, batches, classifications, inspections, on_cpu } = present;
    Turn {
        // On a CPU the time of a part is its own then, and so are its failures. A GPU would have
        // nothing to do meanwhile.
        waits_for_steps: on_cpu && batches && (prefills || classifications || inspections),
        prompts: prefills,
        classifies: classifications,
        inspects: inspections,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_there_gets_a_part() {
        for bits in 0..32_u8 {
            let has = |bit: u8| bits & (1 << bit) != 0;
            let [prefills, batches, classifications, inspections, on_cpu] =
                [0, 1, 2, 3, 4].map(has);
            let present = Present { prefills, batches, classifications, inspections, on_cpu };
            let turn = turn(present);
            let parts = [turn.prompts, turn.classifies, turn.inspects];
            assert_eq!(parts, [prefills, classifications, inspections]);
            let others = parts.contains(&true);
            assert_eq!(turn.waits_for_steps, on_cpu && batches && others, "{present:?}");
        }
    }
}
