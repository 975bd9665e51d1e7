//! A server as a process has it: its own threads, and signals that end it.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use inference_core::TextModel;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::Config;
use crate::http::connection::Ended;
use crate::notify::Notifier;
use crate::pool::models::Models;
use crate::server::{ServeError, Server, one};
use crate::tls::Tls;

/// Threads that read, write and wait; the engine has its own.
const THREADS: usize = 2;
/// Signals within so much of the first count as one.
const TWICE: Duration = Duration::from_millis(50);

/// How the process may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Every request was answered.
    Drained,
    /// The time for draining was over before; requests were broken off.
    Late,
    /// A second signal came; requests were broken off.
    Forced,
}

/// Serves the model that `load` gives, as [`serve_models`] does.
///
/// # Errors
/// Why the server did not start, or that the model cannot be loaded.
pub fn serve(
    config: Config,
    load: impl FnOnce() -> inference_core::Result<Box<dyn TextModel>> + Send + 'static,
    listening: impl FnOnce(SocketAddr),
) -> Result<Exit, ServeError> {
    let models = one(&config, load);
    serve_models(config, models, listening).map_err(ServeError::of_one)
}

/// Serves until SIGINT, SIGTERM or SIGHUP, and drains then; a second signal ends at once. SIGHUP
/// stays ignored where it [is](hangup_is_ignored), and ends the process at once where that cannot
/// be told. Under a manager of services ([`Config::notifier`]) it lets the certificate be read
/// again. By SIGUSR1 and SIGUSR2, whoever started this process tells of a signal that this
/// process may have got as well; both count as one. `listening` is told the address as soon as
/// connections are taken. After [`Exit::Late`] and [`Exit::Forced`] the engine may still be at
/// work, so the caller should leave the process without destructors.
///
/// # Errors
/// Why the server did not start, or that a model cannot be loaded that is loaded at the start.
pub fn serve_models(
    config: Config,
    models: Models,
    listening: impl FnOnce(SocketAddr),
) -> Result<Exit, ServeError> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("server")
        .enable_all()
        .build()
        .map_err(ServeError::Runtime)?;
    let exit = runtime.block_on(async {
        let reloads = Reloads::of(&config).map_err(ServeError::Runtime)?;
        let mut signals = Signals::install(reloads.is_none()).map_err(ServeError::Runtime)?;
        let (told, shutdown) = tokio::sync::oneshot::channel();
        let server = Server::bind(config).await?;
        listening(server.address());
        let run = server.run_models(models, async {
            // A sender that is gone has told as well.
            let _ = shutdown.await;
        });
        let second = async {
            signals.next().await;
            let _ = told.send(());
            let first = Instant::now();
            // `timeout` and the like tell a process and then its group: both count as one.
            loop {
                signals.next().await;
                if first.elapsed() >= TWICE {
                    break;
                }
            }
        };
        let reloading = async {
            match reloads {
                Some(reloads) => reloads.run().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = ended(run, second) => ended,
            never = reloading => match never {},
        }
    });
    // The thread that loads may be in the middle of it.
    runtime.shutdown_background();
    exit
}

async fn ended(
    run: impl Future<Output = Result<Ended, ServeError>>,
    second: impl Future<Output = ()>,
) -> Result<Exit, ServeError> {
    tokio::select! {
        ended = run => ended.map(|ended| match ended {
            Ended::Drained => Exit::Drained,
            Ended::Late => Exit::Late,
        }),
        () = second => Ok(Exit::Forced),
    }
}

/// Returns true when this process ignores SIGHUP, as under `nohup`: a handler would change that.
/// Only Linux reports it; elsewhere this is false.
pub fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is 1, and 1 is the lowest bit.
    ignored.is_some_and(|mask| mask & 1 != 0)
}

/// The files that SIGHUP lets be read again, under a manager of services.
struct Reloads {
    hangup: Signal,
    notifier: Notifier,
    tls: Option<Tls>,
}

impl Reloads {
    /// `None` where no manager started the process.
    fn of(config: &Config) -> io::Result<Option<Reloads>> {
        let Some(notifier) = config.notifier.clone() else { return Ok(None) };
        let tls = config.tls.clone();
        Ok(Some(Reloads { hangup: signal(SignalKind::hangup())?, notifier, tls }))
    }

    async fn run(mut self) -> Infallible {
        while self.hangup.recv().await.is_some() {
            let is_told = self.notifier.reloading();
            match &self.tls {
                Some(tls) => tls.renew_now().await,
                None => tracing::info!(target: "server", "SIGHUP: no file is to be read again"),
            }
            if is_told {
                self.notifier.ready();
            }
        }
        std::future::pending().await
    }
}

struct Signals {
    /// SIGINT and SIGTERM, and how many came with those of `hangup`.
    own: [Signal; 2],
    /// SIGHUP, where it ends.
    hangup: Option<Signal>,
    came: u64,
    /// SIGUSR1 and SIGUSR2, and how many came.
    others: [Signal; 2],
    told: u64,
}

impl Signals {
    /// With SIGHUP among those that end, where `hangup_ends`.
    fn install(hangup_ends: bool) -> io::Result<Self> {
        Ok(Signals {
            own: [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?],
            hangup: match cfg!(target_os = "linux") && hangup_ends && !hangup_is_ignored() {
                true => Some(signal(SignalKind::hangup())?),
                false => None,
            },
            came: 0,
            others: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
            told: 0,
        })
    }

    async fn next(&mut self) {
        let before = self.came.max(self.told);
        while self.came.max(self.told) == before {
            let ([interrupt, terminate], [first, second]) = (&mut self.own, &mut self.others);
            let hangup = async {
                match &mut self.hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = hangup => self.came += 1,
                _ = interrupt.recv() => self.came += 1,
                _ = terminate.recv() => self.came += 1,
                _ = first.recv() => self.told += 1,
                _ = second.recv() => self.told += 1,
            }
        }
    }
}
