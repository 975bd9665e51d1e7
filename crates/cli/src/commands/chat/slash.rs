//! Commands typed in a chat: lines that begin with `/`.

use std::path::PathBuf;

/// The text of `/help`.
pub const HELP: &str = "\
/help                 this list
/clear                forget the conversation, keep the system message
/drop [N]             forget the N oldest turns, one unless N says otherwise
/system [TEXT]        show or change the system message; `/system none` removes it
/set [NAME VALUE]     change an option of `ml chat`, such as `/set temperature 0.7`;
                      alone: list the options; `/set reset`: as at the start
/model [NAME]         go on with another model, or tell this one
/mcp                  the servers of --mcp, and their tools
/show                 the model, the context that is used, and what was changed
/retry                answer the last question again
/undo                 forget the last question and its answer
/image [FILE]         show a picture with what is said next, or list those that wait;
                      `/image none` takes them back
/audio [FILE]         play a sound with what is said next, or list those that wait;
                      `/audio none` takes them back
/save FILE            write the conversation as a JSON array of messages
/load FILE            go on with such a conversation
/stats                what the last answer cost, and the conversation's size
/bye                  leave (also Ctrl-D)
//TEXT                say /TEXT to the model
A backslash at the end continues a line; \"\"\" begins and ends a text of several lines.
Tab completes commands, options, models and files.
Ctrl-C stops an answer; what was said so far stays in the conversation.";

/// The commands, for completion.
pub const COMMANDS: [&str; 18] = [
    "/audio", "/bye", "/clear", "/drop", "/exit", "/help", "/image", "/load", "/mcp", "/model",
    "/quit", "/retry", "/save", "/set", "/show", "/stats", "/system", "/undo",
];

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slash {
    Help,
    Clear,
    /// So many of the oldest turns.
    Drop(usize),
    /// With the name or the folder, when it is to change.
    Model(Option<PathBuf>),
    Mcp,
    Show,
    /// With the text, when it is to change; `none` removes it.
    System(Option<String>),
    /// With name and value, when something is to change.
    Set(Option<(String, Option<String>)>),
    Retry,
    Undo,
    /// With the file; `none` takes back those that wait.
    Image(Option<PathBuf>),
    /// With the file; `none` takes back those that wait.
    Audio(Option<PathBuf>),
    Save(PathBuf),
    Load(PathBuf),
    Stats,
    Bye,
}

impl Slash {
    /// The command in `line`; `None` where it is something to say.
    pub fn parse(line: &str) -> Option<Result<Self, String>> {
        let line = line.trim();
        if !line.starts_with('/') || line.starts_with("//") {
            return None;
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Some(Self::read(name, rest.trim()))
    }

    fn read(name: &str, rest: &str) -> Result<Self, String> {
        let alone = |command: Slash| {
            if rest.is_empty() { Ok(command) } else { Err(format!("{name} takes no argument")) }
        };
        let file = || {
            if rest.is_empty() { Err(format!("{name} needs a file")) } else { Ok(expand(rest)) }
        };
        match name {
            "/help" | "/?" => alone(Slash::Help),
            "/clear" => alone(Slash::Clear),
            "/drop" if rest.is_empty() => Ok(Slash::Drop(1)),
            "/drop" => {
                let count = rest.parse().ok().filter(|count| *count > 0);
                count
                    .map(Slash::Drop)
                    .ok_or_else(|| format!("/drop takes how many turns, from 1, and not `{rest}`"))
            }
            "/model" => Ok(Slash::Model((!rest.is_empty()).then(|| expand(rest)))),
            "/mcp" => alone(Slash::Mcp),
            "/show" => alone(Slash::Show),
            "/system" => Ok(Slash::System((!rest.is_empty()).then(|| rest.to_owned()))),
            "/set" => Ok(Slash::Set(setting(rest))),
            "/retry" => alone(Slash::Retry),
            "/undo" => alone(Slash::Undo),
            "/image" => Ok(Slash::Image((!rest.is_empty()).then(|| expand(rest)))),
            "/audio" => Ok(Slash::Audio((!rest.is_empty()).then(|| expand(rest)))),
            "/save" => Ok(Slash::Save(file()?)),
            "/load" => Ok(Slash::Load(file()?)),
            "/stats" => alone(Slash::Stats),
            "/bye" | "/exit" | "/quit" => alone(Slash::Bye),
            _ => Err(format!(
                "unknown command {name}: /help lists them; begin with // to say a text with a slash"
            )),
        }
    }
}

/// Returns the message in `line`, which is no command: `//` at the beginning stands for `/`.
pub fn said(line: &str) -> &str {
    if line.trim_start().starts_with("//") { &line.trim_start()[1..] } else { line }
}

fn setting(rest: &str) -> Option<(String, Option<String>)> {
    let (name, value) = match rest.split_once(char::is_whitespace) {
        Some((name, value)) => (name, Some(value.trim().to_owned())),
        None => (rest, None),
    };
    let name = name.trim_start_matches('-').replace('_', "-");
    (!name.is_empty()).then_some((name, value))
}

/// `~/` stands for the home folder, as in a shell.
pub fn expand(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{COMMANDS, HELP, Slash, said};

    fn parse(line: &str) -> Slash {
        Slash::parse(line).unwrap().unwrap()
    }

    #[test]
    fn commands_are_told_from_what_is_said() {
        assert_eq!(Slash::parse("hello"), None);
        assert_eq!(Slash::parse("//etc is a folder"), None);
        assert_eq!(said("//etc is a folder"), "/etc is a folder");
        assert_eq!(said("1 // 2"), "1 // 2");
        assert_eq!(parse("/help"), Slash::Help);
        assert_eq!(parse("  /bye "), Slash::Bye);
    }

    #[test]
    fn commands_take_their_arguments() {
        assert_eq!(parse("/system"), Slash::System(None));
        assert_eq!(parse("/system  Be brief. "), Slash::System(Some("Be brief.".into())));
        assert_eq!(parse("/save my chat.json"), Slash::Save(PathBuf::from("my chat.json")));
        assert_eq!(parse("/load a.json"), Slash::Load(PathBuf::from("a.json")));
        assert_eq!(parse("/image a fox.png"), Slash::Image(Some(PathBuf::from("a fox.png"))));
        assert_eq!(parse("/image"), Slash::Image(None));
        assert_eq!(parse("/drop"), Slash::Drop(1));
        assert_eq!(parse("/drop 3"), Slash::Drop(3));
        assert_eq!(parse("/model"), Slash::Model(None));
        assert_eq!(parse("/model a/b"), Slash::Model(Some(PathBuf::from("a/b"))));
        assert_eq!(parse("/show"), Slash::Show);
        assert_eq!(parse("/mcp"), Slash::Mcp);
        assert_eq!(parse("/set"), Slash::Set(None));
        let pair = |name: &str, value: Option<&str>| {
            Slash::Set(Some((name.to_owned(), value.map(str::to_owned))))
        };
        assert_eq!(parse("/set top_k 40"), pair("top-k", Some("40")));
        assert_eq!(parse("/set --temperature 0.5"), pair("temperature", Some("0.5")));
        assert_eq!(parse("/set ignore-eos"), pair("ignore-eos", None));
    }

    #[test]
    fn bad_commands_are_refused_with_their_name() {
        let error = |line: &str| Slash::parse(line).unwrap().unwrap_err();
        assert!(error("/frobnicate").starts_with("unknown command /frobnicate"));
        assert_eq!(error("/save"), "/save needs a file");
        assert_eq!(error("/clear all"), "/clear takes no argument");
        assert_eq!(error("/drop 0"), "/drop takes how many turns, from 1, and not `0`");
    }

    #[test]
    fn every_command_is_completed_and_none_else() {
        for command in COMMANDS {
            let unknown = Slash::parse(command).unwrap().err();
            assert!(!unknown.is_some_and(|error| error.contains("unknown")), "{command}");
        }
        let listed = HELP.lines().filter_map(|line| line.split(' ').next());
        for command in listed.filter(|word| word.starts_with('/') && *word != "//TEXT") {
            assert!(COMMANDS.contains(&command), "{command}");
        }
    }
}
