//! A connection whose peer must take in what is written to it, and that may end in two stages.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};

/// A connection that has ended early reads on for so long. Closing it at once would take the answer
/// away from a client that is still writing.
const LINGERS: Duration = Duration::from_secs(10);
/// It ends before where nothing comes for so long.
const PAUSE: Duration = Duration::from_secs(2);

/// How a connection ends.
#[derive(Clone, Debug, Default)]
pub struct Ending(Arc<AtomicBool>);

impl Ending {
    /// Says that the connection ends before all that the client sends is read.
    pub fn ends_early(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A stream that fails when a write waits for longer than `limit`: a client that stops reading
/// would hold its generation's place for ever.
pub struct TimedIo {
    stream: TcpStream,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    ending: Ending,
    cuts: watch::Receiver<bool>,
    lingering: Option<Lingering>,
}

/// The time of a connection whose writing side is closed.
struct Lingering {
    /// It is over, or the server ends.
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    pause: Pin<Box<Sleep>>,
}

impl TimedIo {
    /// `stream`, with a limit for each write. `cuts` tells when the server ends.
    pub fn new(
        stream: TcpStream,
        limit: Duration,
        ending: Ending,
        cuts: watch::Receiver<bool>,
    ) -> Self {
        TimedIo { stream, limit, waiting: None, ending, cuts, lingering: None }
    }

    /// Reads and drops what comes, until the client closes or has had its time.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let lingering = self.lingering.get_or_insert_with(|| {
            let mut cuts = self.cuts.clone();
            let end = async move {
                tokio::select! {
                    () = sleep(LINGERS) => {}
                    _ = cuts.wait_for(|cut| *cut) => {}
                }
            };
            Lingering { end: Box::pin(end), pause: Box::pin(sleep(PAUSE)) }
        });
        let mut bytes = [MaybeUninit::uninit(); 8192];
        loop {
            if lingering.end.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    lingering.pause.as_mut().reset(Instant::now() + PAUSE);
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return lingering.pause.as_mut().poll(context),
            }
        }
    }

    fn timed<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = None;
            return result;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        if waiting.deadline() <= Instant::now() || waiting.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncRead for TimedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for TimedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.timed(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            let result = Pin::new(&mut self.stream).poll_shutdown(context);
            ready!(self.timed(context, result))?;
        }
        if self.ending.0.load(Ordering::Relaxed) {
            ready!(self.poll_linger(context));
        }
        Poll::Ready(Ok(()))
    }
}
