//! Messages between ranks: all that one operation sends and receives, at once.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::link::Links;
use crate::{Error, Result};

/// Bytes before each message: its number on this connection, the kind and the length.
const HEADER: usize = 16;

/// The operation of a message. By it a rank notices that another came to a different operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sum = 1,
    Gather,
    Handed,
    Sent,
}

/// A message to another rank.
pub(super) struct Outgoing<'a> {
    rank: usize,
    kind: Kind,
    header: [u8; HEADER],
    body: &'a [u8],
    done: usize,
}

/// A message from another rank.
pub(super) struct Incoming<'a> {
    rank: usize,
    kind: Kind,
    expected: [u8; HEADER],
    header: [u8; HEADER],
    body: &'a mut [u8],
    done: usize,
}

impl<'a> Outgoing<'a> {
    pub(super) fn of(rank: usize, kind: Kind, body: &'a [u8]) -> Outgoing<'a> {
        Outgoing { rank, kind, header: [0; HEADER], body, done: 0 }
    }

    fn is_done(&self) -> bool {
        self.done == HEADER + self.body.len()
    }

    /// Writes what the socket takes.
    fn write(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while !self.is_done() {
            let rest = match self.done.checked_sub(HEADER) {
                None => &self.header[self.done..],
                Some(written) => &self.body[written..],
            };
            match socket.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.done += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<'a> Incoming<'a> {
    pub(super) fn of(rank: usize, kind: Kind, body: &'a mut [u8]) -> Incoming<'a> {
        Incoming { rank, kind, expected: [0; HEADER], header: [0; HEADER], body, done: 0 }
    }

    fn is_done(&self) -> bool {
        self.done == HEADER + self.body.len()
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// An end; another message than the one that is expected.
    fn read(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while !self.is_done() {
            let rest = match self.done.checked_sub(HEADER) {
                None => &mut self.header[self.done..],
                Some(read) => &mut self.body[read..],
            };
            match socket.read(rest) {
                Ok(0) => return Err(io::Error::other("it has ended, or left the group")),
                Ok(count) => self.done += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if self.done == HEADER && self.header != self.expected {
                let reason = "it computes something else: ranks must do the same in the same order";
                return Err(io::Error::other(reason));
            }
        }
        Ok(())
    }
}

fn header(number: u64, kind: Kind, length: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&((number << 8) | kind as u64).to_le_bytes());
    header[8..].copy_from_slice(&(length as u64).to_le_bytes());
    header
}

impl Links {
    /// Sends and receives everything, each message of at most one to and one from a rank.
    ///
    /// # Errors
    /// A rank that is gone, hangs or computes something else. All later exchanges fail with the
    /// same error then, and all other ranks are told by the end of their connections.
    pub(super) fn exchange(
        &mut self,
        outgoing: &mut [Outgoing<'_>],
        incoming: &mut [Incoming<'_>],
    ) -> Result<()> {
        if let Some(reason) = &self.failed {
            return Err(Error::new(reason.clone()));
        }
        let mut next = |rank: usize, way: usize| {
            let count = self.counts.get_mut(rank).map(|counts| &mut counts[way]);
            count.map_or(0, |count| std::mem::replace(count, *count + 1))
        };
        for message in outgoing.iter_mut() {
            message.header = header(next(message.rank, 0), message.kind, message.body.len());
        }
        for message in incoming.iter_mut() {
            message.expected = header(next(message.rank, 1), message.kind, message.body.len());
        }
        let done = self.until(Instant::now() + self.answer, outgoing, incoming);
        done.map_err(|(rank, error)| {
            let reason = format!("rank {rank} is lost: {error}");
            for socket in self.sockets.iter().flatten() {
                let _ = socket.shutdown(Shutdown::Both);
            }
            self.failed = Some(reason.clone());
            Error::new(reason)
        })
    }

    /// Sends and receives until all is done.
    ///
    /// # Errors
    /// The first rank with which that failed.
    fn until(
        &self,
        deadline: Instant,
        outgoing: &mut [Outgoing<'_>],
        incoming: &mut [Incoming<'_>],
    ) -> std::result::Result<(), (usize, io::Error)> {
        let socket = |rank: usize| {
            let socket = self.sockets.get(rank).and_then(Option::as_ref);
            socket.ok_or_else(|| (rank, io::Error::other("there is no connection to it")))
        };
        loop {
            for message in incoming.iter_mut().filter(|message| !message.is_done()) {
                let (rank, socket) = (message.rank, socket(message.rank)?);
                message.read(socket).map_err(|error| (rank, error))?;
            }
            for message in outgoing.iter_mut().filter(|message| !message.is_done()) {
                let (rank, socket) = (message.rank, socket(message.rank)?);
                message.write(socket).map_err(|error| (rank, error))?;
            }
            let mut waits = Vec::with_capacity(outgoing.len() + incoming.len());
            for message in incoming.iter().filter(|message| !message.is_done()) {
                waits.push((message.rank, socket(message.rank)?, libc::POLLIN));
            }
            for message in outgoing.iter().filter(|message| !message.is_done()) {
                waits.push((message.rank, socket(message.rank)?, libc::POLLOUT));
            }
            let Some((first, _, _)) = waits.first() else { return Ok(()) };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = self.answer.as_secs_f32();
                let reason = format!("it did not answer for {seconds} s");
                return Err((*first, io::Error::other(reason)));
            }
            let sockets: Vec<_> =
                waits.iter().map(|(_, socket, events)| (*socket, *events)).collect();
            wait(&sockets, left).map_err(|error| (*first, error))?;
        }
    }
}

/// Waits until one of the sockets is ready for its events, or the time is over.
fn wait(sockets: &[(&TcpStream, i16)], most: Duration) -> io::Result<()> {
    let descriptor = |(socket, events): &(&TcpStream, i16)| libc::pollfd {
        fd: socket.as_raw_fd(),
        events: *events,
        revents: 0,
    };
    let mut descriptors: Vec<libc::pollfd> = sockets.iter().map(descriptor).collect();
    let most = most.as_millis().clamp(1, 1000) as i32;
    // SAFETY: the call reads and writes as many descriptors as there are, which are open as long as
    // `sockets`.
    let ready =
        unsafe { libc::poll(descriptors.as_mut_ptr(), descriptors.len() as libc::nfds_t, most) };
    match ready {
        0.. => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
    }
}
