//! Generations as streams of the crate `futures`.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use inference_core::{Generation, Result, Token};

/// A generation as a [`Stream`]. It is a type of its own, since a generation is an iterator, whose
/// `next` and `map` would be taken for the stream's. Dropping it cancels.
#[derive(Debug)]
pub struct GenerationStream(Generation);

impl GenerationStream {
    /// The generation: how far its prompt is, and how it ended.
    pub fn generation(&self) -> &Generation {
        &self.0
    }

    /// The generation itself, from the next token on.
    pub fn into_inner(self) -> Generation {
        self.0
    }
}

impl From<Generation> for GenerationStream {
    fn from(generation: Generation) -> Self {
        GenerationStream(generation)
    }
}

impl Stream for GenerationStream {
    type Item = Result<Token>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use inference_core::{CancelToken, Error};

    use super::*;

    #[test]
    fn a_stream_gives_what_the_generation_gives_and_waits_without_blocking() {
        let (sender, generation) = Generation::channel(Vec::new(), CancelToken::new());
        let mut stream = GenerationStream::from(generation);
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut stream).poll_next(&mut context).is_pending());
        sender.send(Token { text: "fox".into(), ..Token::default() });
        sender.fail(Error::Cancelled);
        let token = Pin::new(&mut stream).poll_next(&mut context);
        assert!(matches!(token, Poll::Ready(Some(Ok(token))) if token.text == "fox"));
        let end = Pin::new(&mut stream).poll_next(&mut context);
        assert!(matches!(end, Poll::Ready(Some(Err(Error::Cancelled)))));
        assert!(matches!(Pin::new(&mut stream).poll_next(&mut context), Poll::Ready(None)));
        assert!(stream.generation().outcome().is_none());
    }
}
