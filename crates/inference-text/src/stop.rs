//! Stop strings in a stream of text.

use crate::TextError;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The text that a piece releases, and the match that it completes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Text that is certainly before any stop string.
    pub text: String,
    /// The stop string that was met, by its index. It is not part of any released text, nor is what
    /// follows.
    pub matched: Option<usize>,
}

/// Finds the first stop string in text that comes in pieces, and holds back what may begin one.
///
/// The match that **begins** first wins; of several that begin at the same position, the longest;
/// of equal strings, the first in the list. This is what a search in the whole text finds, however
/// it is cut into pieces. Time is linear in the text, for any number of stop strings.
///
/// ```
/// use inference_text::StopMatcher;
/// let mut stops = StopMatcher::new(&["</s>"])?;
/// assert_eq!(stops.push("Hello <").text, "Hello ");
/// let held = stops.push("/s> and more");
/// assert_eq!((held.text.as_str(), held.matched), ("", Some(0)));
/// # Ok::<(), inference_text::TextError>(())
/// ```
#[derive(Debug, Clone)]
pub struct StopMatcher {
    automaton: Arc<Automaton>,
    state: usize,
    /// Text that was pushed and not released.
    held: String,
    /// The best match so far; an earlier or longer one may still come.
    candidate: Option<Candidate>,
    done: bool,
}

/// The effect of a stop string that ends in a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// It is a match.
    Count,
    /// It is text.
    Pass,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    /// Its beginning in `held`, in bytes.
    start: usize,
    index: usize,
}

impl StopMatcher {
    /// A matcher for `stops`; without any, all text is released at once.
    ///
    /// # Errors
    /// [`TextError::EmptyStop`] if one is empty.
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Result<StopMatcher, TextError> {
        if let Some(index) = stops.iter().position(|stop| stop.as_ref().is_empty()) {
            return Err(TextError::EmptyStop { index });
        }
        let automaton = Arc::new(Automaton::new(stops));
        Ok(StopMatcher { automaton, state: 0, held: String::new(), candidate: None, done: false })
    }

    /// Adds a piece of text. After a match nothing is released any more.
    pub fn push(&mut self, piece: &str) -> Held {
        self.take(piece, Ends::Count)
    }

    /// Adds a piece of text in which no stop string ends. One that begins in it may end later.
    pub fn pass(&mut self, piece: &str) -> Held {
        self.take(piece, Ends::Pass)
    }

    fn take(&mut self, piece: &str, ends: Ends) -> Held {
        if self.done {
            return Held::default();
        }
        for (i, byte) in piece.bytes().enumerate() {
            self.state = self.automaton.step(self.state, byte);
            let node = &self.automaton.nodes[self.state];
            let end = self.held.len() + i + 1;
            if let Some((index, len)) = node.longest
                && ends == Ends::Count
            {
                let start = end - len;
                if self.candidate.is_none_or(|best| start <= best.start) {
                    self.candidate = Some(Candidate { start, index });
                }
            }
            if let Some(best) = self.candidate
                && (end - node.depth > best.start || !node.goes_on)
            {
                // What is still open begins later, or nothing is: this is the match.
                self.held.push_str(piece);
                return self.matched(best);
            }
        }
        self.held.push_str(piece);
        // The text's longest end that begins a stop string; a candidate never begins before it
        // here.
        let open = self.held.len() - self.automaton.nodes[self.state].depth;
        if let Some(best) = &mut self.candidate {
            best.start -= open;
        }
        Held { text: self.held.drain(..open).collect(), matched: None }
    }

    /// Returns true while text is held back.
    pub fn is_holding(&self) -> bool {
        !self.done && !self.held.is_empty()
    }

    /// Ends the text: what was held back is released, or is a match after all.
    pub fn finish(&mut self) -> Held {
        match self.candidate {
            Some(best) if !self.done => self.matched(best),
            _ => {
                self.done = true;
                Held { text: std::mem::take(&mut self.held), matched: None }
            }
        }
    }

    fn matched(&mut self, best: Candidate) -> Held {
        self.done = true;
        let mut text = std::mem::take(&mut self.held);
        text.truncate(best.start);
        Held { text, matched: Some(best.index) }
    }
}

/// Aho and Corasick's automaton over bytes. The state's depth is what a library does not tell.
#[derive(Debug)]
struct Automaton {
    nodes: Vec<Node>,
    edges: HashMap<(usize, u8), usize>,
}

#[derive(Debug, Default)]
struct Node {
    /// Length of the longest end of the text that begins a stop string.
    depth: usize,
    /// The node of the next shorter such end.
    shorter: usize,
    /// The longest stop string that ends here, and its length.
    longest: Option<(usize, usize)>,
    /// A longer stop string begins as this one.
    goes_on: bool,
}

impl Automaton {
    fn new<S: AsRef<str>>(stops: &[S]) -> Automaton {
        let mut automaton = Automaton { nodes: vec![Node::default()], edges: HashMap::new() };
        let mut children: Vec<Vec<(u8, usize)>> = vec![Vec::new()];
        for (index, stop) in stops.iter().enumerate() {
            let mut node = 0;
            for byte in stop.as_ref().bytes() {
                let (new, depth) = (automaton.nodes.len(), automaton.nodes[node].depth + 1);
                let child = *automaton.edges.entry((node, byte)).or_insert(new);
                if child == new {
                    automaton.nodes.push(Node { depth, ..Node::default() });
                    children.push(Vec::new());
                    children[node].push((byte, child));
                    automaton.nodes[node].goes_on = true;
                }
                node = child;
            }
            let len = stop.as_ref().len();
            automaton.nodes[node].longest.get_or_insert((index, len));
        }
        let mut queue: VecDeque<usize> = children[0].iter().map(|&(_, child)| child).collect();
        while let Some(node) = queue.pop_front() {
            let shorter = automaton.nodes[node].shorter;
            if automaton.nodes[node].longest.is_none() {
                automaton.nodes[node].longest = automaton.nodes[shorter].longest;
            }
            for &(byte, child) in &children[node] {
                automaton.nodes[child].shorter = automaton.step(shorter, byte);
                queue.push_back(child);
            }
        }
        automaton
    }

    fn step(&self, mut state: usize, byte: u8) -> usize {
        loop {
            match self.edges.get(&(state, byte)) {
                Some(&next) => return next,
                None if state == 0 => return 0,
                None => state = self.nodes[state].shorter,
            }
        }
    }
}
