//! A rank on another host: what `ssh` is told to run there.

use std::ffi::OsStr;
use std::process::Command;

use crate::failure::{Failure, Result};
use crate::ranks::HOST_FILE;

/// A command on another host.
pub struct Remote<'a> {
    /// The folder it runs in.
    pub folder: &'a str,
    /// Its variables.
    pub variables: Vec<(&'a str, String)>,
    /// The program and its arguments.
    pub words: Vec<&'a OsStr>,
    /// It is ended once its stdin ends: `ssh` tells nothing else there when it is ended here.
    pub is_watched: bool,
}

impl Remote<'_> {
    /// `ssh` for `host`, which asks for no password: several at once could not be answered.
    ///
    /// # Errors
    /// Words that are no UTF-8.
    pub fn command(&self, host: &str) -> Result<Command> {
        let mut command = Command::new("ssh");
        let script = format!("exec sh -c {}", quoted(&self.script()?));
        command.args(["-T", "-o", "BatchMode=yes", "--", host]).arg(script);
        Ok(command)
    }

    fn script(&self) -> Result<String> {
        let mut words = Vec::with_capacity(self.words.len());
        for word in &self.words {
            let word = word.to_str().ok_or_else(|| {
                Failure::Usage(format!("`{}` is no UTF-8, which ssh needs", word.display()))
            })?;
            words.push(quoted(word));
        }
        let folder = quoted(self.folder);
        let mut script = format!("cd {folder} || exit 1; unset {HOST_FILE}; export");
        for (name, value) in &self.variables {
            script.push_str(&format!(" {name}={}", quoted(value)));
        }
        let words = words.join(" ");
        let run = if self.is_watched {
            // The watcher has the stdin alone, so that nothing else keeps the connection open.
            format!(
                "; exec 3<&0 </dev/null; {words} 3<&- & p=$!; (cat; kill $p) <&3 >/dev/null 2>&1 & w=$!; \
                 exec 3<&-; wait $p; s=$?; kill $w 2>/dev/null; exit $s"
            )
        } else {
            format!("; exec {words}")
        };
        script.push_str(&run);
        Ok(script)
    }
}

/// A word as shells read it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::Remote;

    const ODD: &str = "it's a \"$HOME\" `x`\n\\ * #";

    fn remote<'a>(words: &[&'a str], is_watched: bool) -> Remote<'a> {
        let variables = vec![("MLX_RANK", ODD.to_owned())];
        let words = words.iter().map(|word| OsStr::new(*word)).collect();
        Remote { folder: "/", variables, words, is_watched }
    }

    #[test]
    fn words_arrive_as_they_are() {
        for is_watched in [false, true] {
            let program = "printf '%s|' \"$@\" \"$MLX_RANK\" \"$PWD\"";
            let remote = remote(&["sh", "-c", program, "sh", ODD, ""], is_watched);
            let mut here = Command::new("sh");
            here.arg("-c").arg(remote.command("h").unwrap().get_args().last().unwrap());
            // The stdin of one that is watched stays open.
            let mut child = here.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let stdin = child.stdin.take();
            let output = child.wait_with_output().unwrap();
            drop(stdin);
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(said, format!("{ODD}||{ODD}|/|"));
        }
    }

    #[test]
    fn one_that_is_watched_ends_with_its_stdin_and_as_it_ended_else() {
        let run = |program: &'static str| {
            let mut here = Command::new("sh");
            let remote = remote(&["sh", "-c", program], true);
            here.arg("-c").arg(remote.command("h").unwrap().get_args().last().unwrap());
            here.stdin(Stdio::piped()).spawn().unwrap()
        };
        let mut failing = run("exit 7");
        let stdin = failing.stdin.take();
        assert_eq!(failing.wait().unwrap().code(), Some(7));
        drop(stdin);
        let mut sleeping = run("exec sleep 60");
        let begun = Instant::now();
        drop(sleeping.stdin.take());
        assert_eq!(sleeping.wait().unwrap().code(), Some(128 + 15));
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
