//! How far a pull is: a bar at a terminal, else a line now and then.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hub::{Event, Planned};
use indicatif::{ProgressBar, ProgressStyle};

use crate::bytes::human;
use crate::output::note;

/// How often a line comes where stderr is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
const BAR: &str =
    "{bar:20} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left, {msg}";

/// Tells of a pull on stderr.
pub struct Progress {
    name: String,
    /// `None` where stderr is no terminal.
    bar: Option<ProgressBar>,
    counts: Mutex<Counts>,
}

/// Bytes and files so far.
struct Counts {
    /// Of each file: its size, and what is there of it.
    files: HashMap<String, (u64, u64)>,
    complete: usize,
    /// Bytes when the first one was still to come.
    before: u64,
    began: Instant,
    told: Instant,
}

impl Counts {
    fn total(&self) -> u64 {
        self.files.values().map(|(size, _)| size).sum()
    }

    fn done(&self) -> u64 {
        self.files.values().map(|(_, done)| done).sum()
    }

    /// `1.2 GiB of 2.3 GiB, 45.0 MiB/s, 0:25 left, 3 of 12 files`.
    fn line(&self, now: Instant) -> String {
        let (total, done) = (self.total(), self.done());
        let seconds = (now - self.began).as_secs_f64();
        let rate = done.saturating_sub(self.before) as f64 / seconds.max(1e-3);
        let left = match rate {
            rate if rate > 0.0 => format!("{} left", clock((total - done) as f64 / rate)),
            _ => "time left unknown".to_owned(),
        };
        let (total, done, rate) = (human(total), human(done), human(rate as u64));
        format!(
            "{done} of {total}, {rate}/s, {left}, {} of {} files",
            self.complete,
            self.files.len()
        )
    }
}

impl Progress {
    /// Of the model `name`.
    pub fn new(name: String) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(BAR);
            let bar = ProgressBar::no_length();
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let now = Instant::now();
        let counts =
            Counts { files: HashMap::new(), complete: 0, before: 0, began: now, told: now };
        Progress { name, bar, counts: Mutex::new(counts) }
    }

    /// Takes in what happened, and shows it where it is time.
    pub fn tell(&self, event: &Event<'_>) {
        match event {
            Event::Planned { files } => self.plan(files),
            Event::Bytes { path, done } => {
                let mut counts = self.lock();
                // Before the plan, the index of the weights comes, which is small.
                let Some(file) = counts.files.get_mut(*path) else { return };
                file.1 = *done;
                self.show(&mut counts);
            }
            Event::Done { path } => {
                let mut counts = self.lock();
                counts.complete += 1;
                if let Some(file) = counts.files.get_mut(*path) {
                    file.1 = file.0;
                }
                self.show(&mut counts);
            }
            Event::Waiting { path } => {
                self.say(format!("{path}: another process fetches it, waiting for that"))
            }
            Event::Again { path, reason, wait } => {
                self.say(format!(
                    "{path}: {reason}; trying again in {:.0} s",
                    wait.as_secs_f64().ceil()
                ));
            }
            _ => {}
        }
    }

    /// Ends the bar, and says what there is now.
    pub fn finish(&self, complete: bool) {
        let counts = self.lock();
        match &self.bar {
            // After an error, the bar shows how far it came.
            Some(bar) if !complete && !counts.files.is_empty() => bar.abandon(),
            Some(bar) => bar.finish_and_clear(),
            None => {}
        }
        if complete {
            let (files, size) = (counts.files.len(), human(counts.total()));
            let came = counts.done().saturating_sub(counts.before);
            let came = if came == 0 {
                "all of it was there".into()
            } else {
                format!("{} came now", human(came))
            };
            note(format_args!("{}: {files} files, {size}; {came}", self.name));
        }
    }

    fn plan(&self, files: &[Planned]) {
        let mut counts = self.lock();
        counts.files =
            files.iter().map(|file| (file.path.clone(), (file.size, file.present))).collect();
        counts.before = counts.done();
        counts.began = Instant::now();
        counts.told = counts.began;
        let missing = counts.total() - counts.before;
        if missing == 0 {
            return;
        }
        let (name, count) = (&self.name, files.len());
        let (size, missing) = (human(counts.total()), human(missing));
        self.say(format!("{name}: {count} files, {size}; {missing} to fetch"));
        if let Some(bar) = &self.bar {
            bar.set_length(counts.total());
            bar.set_position(counts.before);
            bar.reset_eta();
        }
    }

    fn show(&self, counts: &mut Counts) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} of {} files", counts.complete, counts.files.len()));
            bar.set_position(counts.done());
        } else if counts.told.elapsed() >= BETWEEN_LINES {
            counts.told = Instant::now();
            note(counts.line(counts.told));
        }
    }

    /// A line that stays, above the bar where there is one.
    fn say(&self, line: String) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => note(line),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `0:25`, `12:03`, `1:02:03`.
fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::{Duration, Instant};

    use super::{Counts, clock};

    #[test]
    fn a_line_tells_bytes_rate_and_time_left() {
        let began = Instant::now();
        let files = HashMap::from([
            ("a".to_owned(), (3 << 20, 3 << 20)),
            ("b".to_owned(), (17 << 20, 7 << 20)),
        ]);
        let counts = Counts { files, complete: 1, before: 5 << 20, began, told: began };
        let line = counts.line(began + Duration::from_secs(5));
        assert_eq!(line, "10.0 MiB of 20.0 MiB, 1.0 MiB/s, 0:10 left, 1 of 2 files");
        let counts = Counts { before: 10 << 20, ..counts };
        assert!(counts.line(began).contains("time left unknown"));
    }

    #[test]
    fn a_clock_has_hours_where_it_needs_them() {
        assert_eq!([25.0, 723.0, 3723.0].map(clock), ["0:25", "12:03", "1:02:03"]);
    }
}
