//! The files and commands of systemd and launchd, as data.

use std::path::PathBuf;

/// The mark of a file that `ml service` wrote.
pub const MARK: &str = "Written by `ml service install`";

/// The service's names.
const UNIT: &str = "ml.service";
const LABEL: &str = "ml-on-mlx.serve";

/// Seconds that the server has to end: its own, and some more.
pub const ENDS: u32 = 40;

/// A system that starts services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Linux.
    Systemd,
    /// macOS.
    Launchd,
}

/// A step of a service's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its file is there and is to be used from now on.
    Install,
    /// How it is.
    Status,
    /// It ends, and starts no more.
    Stop,
    /// Its file is gone.
    Forget,
}

/// The place of a user's service.
#[derive(Clone, Debug)]
pub struct Place {
    pub system: System,
    pub home: PathBuf,
    /// The folder of configurations, where it is another than the usual one.
    pub configs: Option<PathBuf>,
}

impl Place {
    /// The service's file.
    pub fn file(&self) -> PathBuf {
        match self.system {
            System::Systemd => {
                let configs = self.configs.clone().unwrap_or_else(|| self.home.join(".config"));
                configs.join("systemd/user").join(UNIT)
            }
            System::Launchd => self.home.join(format!("Library/LaunchAgents/{LABEL}.plist")),
        }
    }

    /// The file's text, for a program with these arguments of `serve`. It runs in `folder`, where
    /// paths may begin.
    pub fn text(&self, program: &str, arguments: &[String], folder: &str) -> String {
        let all = [program, "serve"].into_iter().chain(arguments.iter().map(String::as_str));
        match self.system {
            System::Systemd => {
                let words: Vec<String> = all.map(unit_word).collect();
                format!(
                    "# {MARK}, which replaces it.\n\
                     [Unit]\n\
                     Description=ml serve: language models for this user's clients\n\n\
                     [Service]\n\
                     Type=notify\n\
                     TimeoutStartSec=infinity\n\
                     WorkingDirectory={}\n\
                     ExecStart={}\n\
                     ExecReload=/bin/kill -HUP $MAINPID\n\
                     WatchdogSec=60\n\
                     WatchdogSignal=SIGKILL\n\
                     Restart=on-failure\n\
                     RestartSec=5\n\
                     TimeoutStopSec={ENDS}\n\n\
                     [Install]\n\
                     WantedBy=default.target\n",
                    folder.replace('%', "%%"),
                    words.join(" ")
                )
            }
            System::Launchd => {
                let words: String =
                    all.map(|word| format!("    <string>{}</string>\n", escaped(word))).collect();
                let log = escaped(&self.log().display().to_string());
                format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                     <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
                     \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
                     <!-- {MARK}, which replaces it. -->\n\
                     <plist version=\"1.0\">\n\
                     <dict>\n  \
                     <key>Label</key>\n  <string>{LABEL}</string>\n  \
                     <key>ProgramArguments</key>\n  <array>\n{words}  </array>\n  \
                     <key>WorkingDirectory</key>\n  <string>{}</string>\n  \
                     <key>RunAtLoad</key>\n  <true/>\n  \
                     <key>KeepAlive</key>\n  <dict>\n    \
                     <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n  \
                     <key>ExitTimeOut</key>\n  <integer>{ENDS}</integer>\n  \
                     <key>StandardErrorPath</key>\n  <string>{log}</string>\n\
                     </dict>\n\
                     </plist>\n",
                    escaped(folder)
                )
            }
        }
    }

    /// The commands of a step, for the user of this number.
    pub fn commands(&self, step: Step, uid: u32) -> Vec<Vec<String>> {
        let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let lines = match (self.system, step) {
            (System::Systemd, Step::Install) => vec![
                "systemctl --user daemon-reload".to_owned(),
                format!("systemctl --user enable {UNIT}"),
                format!("systemctl --user restart {UNIT}"),
            ],
            (System::Systemd, Step::Status) => {
                vec![format!("systemctl --user --no-pager status {UNIT}")]
            }
            (System::Systemd, Step::Stop) => {
                vec![format!("systemctl --user disable --now {UNIT}")]
            }
            (System::Systemd, Step::Forget) => vec!["systemctl --user daemon-reload".to_owned()],
            (System::Launchd, Step::Install) => {
                // The path may have spaces.
                let mut load = words(format!("launchctl bootstrap gui/{uid}"));
                load.push(self.file().display().to_string());
                return vec![load];
            }
            (System::Launchd, Step::Status) => vec![format!("launchctl print gui/{uid}/{LABEL}")],
            (System::Launchd, Step::Stop) => vec![format!("launchctl bootout gui/{uid}/{LABEL}")],
            (System::Launchd, Step::Forget) => Vec::new(),
        };
        lines.into_iter().map(words).collect()
    }

    /// A command that succeeds where the system answers for the user of this number. launchd's
    /// agents need a login with a desktop, which a user of ssh may not have.
    pub fn probe(&self, uid: u32) -> Vec<String> {
        let command = match self.system {
            System::Systemd => "systemctl --user show-environment".to_owned(),
            System::Launchd => format!("launchctl print gui/{uid}"),
        };
        command.split(' ').map(str::to_owned).collect()
    }

    /// A line about the log, and what else is to know.
    pub fn advice(&self) -> String {
        match self.system {
            System::Systemd => format!(
                "log: journalctl --user --unit {UNIT}; `loginctl enable-linger` starts it without a login"
            ),
            System::Launchd => format!("log: {}", self.log().display()),
        }
    }

    fn log(&self) -> PathBuf {
        self.home.join("Library/Logs/ml-serve.log")
    }
}

/// A word of systemd's command lines.
fn unit_word(word: &str) -> String {
    let mut text = String::new();
    for c in word.chars() {
        match c {
            '%' => text.push_str("%%"),
            '$' => text.push_str("$$"),
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            c => text.push(c),
        }
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.,:=@+%$".contains(c);
    let stays = !text.is_empty() && text.chars().all(is_plain);
    if stays { text } else { format!("\"{text}\"") }
}

/// Text in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use clap::Parser;

    use super::{MARK, Place, Step, System, unit_word};
    use crate::args::Cli;

    fn place(system: System) -> Place {
        Place { system, home: "/home/ada".into(), configs: None }
    }

    fn arguments() -> Vec<String> {
        ["--model", "/models/a fox", "--model-name", "50% <b>&c"].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_unit_starts_the_server_at_login() {
        let unit = place(System::Systemd);
        assert_eq!(unit.file(), Path::new("/home/ada/.config/systemd/user/ml.service"));
        let configs = Some(PathBuf::from("/etc/ada"));
        let other = Place { configs, ..unit.clone() };
        assert_eq!(other.file(), Path::new("/etc/ada/systemd/user/ml.service"));
        let text = unit.text("/opt/ml/bin/ml", &arguments(), "/home/ada/50%");
        assert!(text.starts_with(&format!("# {MARK}")));
        let start = text.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
        let expected =
            r#"ExecStart=/opt/ml/bin/ml serve --model "/models/a fox" --model-name "50%% <b>&c""#;
        assert_eq!(start, expected);
        for line in [
            "[Unit]",
            "[Service]",
            "WorkingDirectory=/home/ada/50%%",
            "Restart=on-failure",
            "Type=notify",
            "TimeoutStartSec=infinity",
            "WatchdogSec=60",
            "ExecReload=/bin/kill -HUP $MAINPID",
            "WantedBy=default.target",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}");
        }
    }

    #[test]
    fn the_machines_unit_is_held_to_the_same_and_starts_ml_serve() {
        let own = place(System::Systemd).text("/opt/ml", &[], "/");
        let text = include_str!("../../../../../packaging/systemd/ml.service");
        let has = |line: &str| text.lines().any(|other| other == line);
        let keys = ["Type=", "ExecReload=", "Watchdog", "Restart", "Timeout"];
        let shared = own.lines().filter(|line| keys.iter().any(|key| line.starts_with(key)));
        let missing: Vec<&str> = shared.filter(|line| !has(line)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        Cli::try_parse_from(start.split(' ')).unwrap();
        let socket = include_str!("../../../../../packaging/systemd/ml.socket");
        assert!(has("Requires=ml.socket") && socket.contains("\nListenStream=127.0.0.1:8080\n"));
    }

    #[test]
    fn words_of_a_unit_mean_themselves() {
        assert_eq!(unit_word("a-b_c=1"), "a-b_c=1");
        assert_eq!(unit_word(""), "\"\"");
        assert_eq!(unit_word(r#"a "b" \ $c;"#), r#""a \"b\" \\ $$c;""#);
    }

    #[test]
    fn an_agent_starts_the_server_at_login() {
        let agent = place(System::Launchd);
        let path = "/home/ada/Library/LaunchAgents/ml-on-mlx.serve.plist";
        assert_eq!(agent.file(), Path::new(path));
        let text = agent.text("/opt/ml/bin/ml", &arguments(), "/home/ada/50%");
        assert!(text.starts_with("<?xml") && text.contains(MARK));
        let words: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("    <string>")?.strip_suffix("</string>"))
            .collect();
        let expected = [
            "/opt/ml/bin/ml",
            "serve",
            "--model",
            "/models/a fox",
            "--model-name",
            "50% &lt;b&gt;&amp;c",
        ];
        assert_eq!(words, expected);
        for key in ["Label", "WorkingDirectory", "RunAtLoad", "KeepAlive", "StandardErrorPath"] {
            assert!(text.contains(&format!("  <key>{key}</key>\n")), "{key}: {text}");
        }
        assert!(
            text.contains("/home/ada/Library/Logs/ml-serve.log")
                && agent.advice().contains("ml-serve.log")
        );
    }

    #[test]
    fn an_agent_is_a_property_list_that_holds_the_words_as_they_are() {
        let words = ["--model", "/models/a \"fox\"", "it's <b> & ]]> $HOME %h \\"];
        let arguments: Vec<String> = words.map(str::to_owned).to_vec();
        let text = place(System::Launchd).text("/opt/m l/bin/ml", &arguments, "/home/ada/ü");
        // The build needs Python, whose library reads property lists.
        let script = "import json, plistlib, sys; \
                      print(json.dumps(plistlib.loads(sys.stdin.buffer.read())))";
        let mut python = Command::new("python3");
        python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = python.spawn().unwrap();
        python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = python.wait_with_output().unwrap();
        assert!(output.status.success(), "{text}");
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = serde_json::json!({
            "Label": "ml-on-mlx.serve",
            "ProgramArguments": ["/opt/m l/bin/ml", "serve", words[0], words[1], words[2]],
            "WorkingDirectory": "/home/ada/ü",
            "RunAtLoad": true,
            "KeepAlive": { "SuccessfulExit": false },
            "ExitTimeOut": 40,
            "StandardErrorPath": "/home/ada/Library/Logs/ml-serve.log",
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn systems_are_asked_whether_they_answer_for_the_user() {
        let probe = |system| place(system).probe(501).join(" ");
        assert_eq!(probe(System::Systemd), "systemctl --user show-environment");
        assert_eq!(probe(System::Launchd), "launchctl print gui/501");
    }

    #[test]
    fn each_step_has_its_commands() {
        let lines = |system, step| {
            let commands = place(system).commands(step, 501);
            commands.into_iter().map(|command| command.join(" ")).collect::<Vec<_>>()
        };
        let install = lines(System::Systemd, Step::Install);
        assert_eq!(install[0], "systemctl --user daemon-reload");
        assert_eq!(
            install[1..],
            ["systemctl --user enable ml.service", "systemctl --user restart ml.service"]
        );
        assert_eq!(
            lines(System::Systemd, Step::Stop),
            ["systemctl --user disable --now ml.service"]
        );
        let load =
            "launchctl bootstrap gui/501 /home/ada/Library/LaunchAgents/ml-on-mlx.serve.plist";
        assert_eq!(lines(System::Launchd, Step::Install), [load]);
        assert_eq!(
            lines(System::Launchd, Step::Stop),
            ["launchctl bootout gui/501/ml-on-mlx.serve"]
        );
        assert!(lines(System::Launchd, Step::Forget).is_empty());
    }
}
