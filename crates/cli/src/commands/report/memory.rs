//! Memory: what is refused, and what is given back.

use serde::{Deserialize, Serialize};

use crate::bytes;

/// Bytes that are no growth: arrays of a few values that a step leaves.
const SLACK: u64 = 4 << 20;
/// Bytes that a device keeps after the last model: what is held back for a lack of memory.
const KEPT: u64 = 128 << 20;

/// The findings of the part that tries memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// The limit of the load.
    pub limit_bytes: u64,
    /// The refusal of a prompt that cannot fit; `None` where it was taken.
    pub refused: Option<String>,
    /// It was refused for the memory that it needs.
    pub is_of_memory: bool,
    /// A request after the refused one had all its tokens.
    pub answers_afterwards: bool,
    /// In use before the load.
    pub before_bytes: u64,
    /// In use after the load.
    pub loaded_bytes: u64,
    /// In use after some requests.
    pub after_work_bytes: u64,
    /// In use after more of the same.
    pub after_more_work_bytes: u64,
    /// In use once the model was dropped.
    pub unloaded_bytes: u64,
}

impl Memory {
    /// The result in words.
    pub fn told(&self) -> &'static str {
        match self.wrong().is_empty() {
            true => "what does not fit is refused, and what is freed comes back",
            false => "see what is wrong",
        }
    }

    /// The faults in it.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        match &self.refused {
            None => wrong.push("a prompt that needs more than the limit was taken".to_owned()),
            Some(reason) if !self.is_of_memory => {
                wrong.push(format!("a prompt that is too large was refused otherwise: {reason}"));
            }
            Some(_) => {}
        }
        if !self.answers_afterwards {
            wrong.push("no request ended as asked after the refused one".to_owned());
        }
        let grown = |from: u64, to: u64, most: u64, when: &str| {
            let more = to.saturating_sub(from);
            (more > most).then(|| format!("{} more are in use {when}", bytes::human(more)))
        };
        let again = [self.after_work_bytes, self.after_more_work_bytes];
        wrong.extend(grown(again[0], again[1], SLACK, "after the same requests again"));
        let dropped = "after the model was dropped than before its load";
        wrong.extend(grown(self.before_bytes, self.unloaded_bytes, KEPT, dropped));
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;

    fn sound() -> Memory {
        Memory {
            limit_bytes: 1 << 30,
            refused: Some("a prompt needs more".into()),
            is_of_memory: true,
            answers_afterwards: true,
            before_bytes: 0,
            loaded_bytes: 10 << 20,
            after_work_bytes: 12 << 20,
            after_more_work_bytes: 13 << 20,
            unloaded_bytes: 96 << 20,
        }
    }

    #[test]
    fn what_is_refused_and_given_back_is_not_wrong() {
        assert_eq!(sound().wrong(), [""; 0]);
    }

    #[test]
    fn a_prompt_that_is_taken_or_refused_otherwise_is_wrong() {
        let taken = Memory { refused: None, is_of_memory: false, ..sound() };
        assert_eq!(taken.wrong(), ["a prompt that needs more than the limit was taken"]);
        let otherwise =
            Memory { refused: Some("engine: gone".into()), is_of_memory: false, ..sound() };
        assert!(otherwise.wrong()[0].ends_with("refused otherwise: engine: gone"));
        let silent = Memory { answers_afterwards: false, ..sound() };
        assert_eq!(silent.wrong(), ["no request ended as asked after the refused one"]);
    }

    #[test]
    fn memory_that_stays_in_use_is_wrong() {
        let grown = Memory { after_more_work_bytes: 32 << 20, ..sound() };
        assert_eq!(grown.wrong(), ["20.0 MiB more are in use after the same requests again"]);
        let kept = Memory { unloaded_bytes: 1 << 30, ..sound() };
        assert!(kept.wrong()[0].contains("after the model was dropped"));
    }
}
