//! The input of `ml generate`: from an argument, a file, stdin or a list of messages.

use std::io::{self, IsTerminal};
use std::path::Path;

use inference_core::{Message, Prompt, Value};

use crate::args::GenerateArgs;
use crate::failure::{Failure, Result};
use crate::files::{self, Lines};
use crate::pictures::Shown;
use crate::{json, pictures};

/// The input that the model continues or answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Text that is continued as it is.
    Raw(Prompt),
    /// A conversation for the chat template.
    Messages(Vec<Message>),
}

impl Input {
    /// Reads what `args` point to.
    ///
    /// # Errors
    /// No prompt, an empty one, or a file that cannot be used.
    pub fn read(args: &GenerateArgs) -> Result<Self> {
        if let Some(path) = &args.messages {
            let name =
                if files::is_stdin(path) { "stdin".into() } else { path.display().to_string() };
            let messages = json::parse_messages(&files::read(path)?, &name)?;
            if messages.is_empty() {
                return Err(Failure::Usage(format!("{name}: there are no messages")));
            }
            return Ok(Input::Messages(messages));
        }
        let text = text(args)?;
        let shown = args.images.read()?;
        Input::of_text(text, &shown, args).ok_or_else(empty)
    }

    /// One prompt, as the other options say; `None` where it is empty.
    fn of_text(text: String, shown: &[Shown], args: &GenerateArgs) -> Option<Input> {
        if args.raw {
            return (!text.is_empty()).then(|| Input::Raw(pictures::prompt(shown, text)));
        }
        let system = args.template.system.clone().map(Message::system);
        let question = pictures::message(shown, text.as_str());
        let messages = system.into_iter().chain([question]).collect();
        (!text.trim().is_empty()).then_some(Input::Messages(messages))
    }
}

/// The prompts of a batch, read from its lines as they are asked for.
pub struct Batch<'a> {
    lines: Lines,
    args: &'a GenerateArgs,
}

impl<'a> Batch<'a> {
    /// The batch in the file at `path`; `-` is stdin.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub fn open(path: &Path, args: &'a GenerateArgs) -> Result<Self> {
        Ok(Batch { lines: Lines::open(path)?, args })
    }

    /// The name of the input, for errors.
    pub fn name(&self) -> &str {
        self.lines.name()
    }

    /// The next prompts, at most `count`; empty lines count for nothing. What is wrong with one
    /// line is the error of its prompt.
    ///
    /// # Errors
    /// An input that cannot be read further.
    pub fn next(&mut self, count: usize) -> Result<Vec<Result<Input>>> {
        let mut inputs = Vec::new();
        while inputs.len() < count
            && let Some(line) = self.lines.next_line()?
        {
            match line {
                Ok(line) if line.trim().is_empty() => {}
                line => {
                    let place = self.lines.place();
                    let read = line.and_then(|line| json::parse(&line, &place));
                    inputs.push(read.and_then(|value| batch_line(value, &place, self.args)));
                }
            }
        }
        Ok(inputs)
    }
}

/// The input of a line of a batch: a text, or an object with one of `prompt` and `messages`.
fn batch_line(value: Value, place: &str, args: &GenerateArgs) -> Result<Input> {
    let wrong = |reason: &str| Err(Failure::Usage(format!("{place}: {reason}")));
    let text = match value {
        Value::String(text) => text,
        Value::Object(mut fields) => match (fields.pop(), fields.first()) {
            (Some((key, Value::String(text))), None) if key == "prompt" => text,
            (Some((key, messages)), None) if key == "messages" => {
                if args.raw || args.template.system.is_some() {
                    return wrong("`messages` excludes --raw and --system");
                }
                let messages = json::messages(messages, place)?;
                return match messages.is_empty() {
                    true => wrong("there are no messages"),
                    false => Ok(Input::Messages(messages)),
                };
            }
            _ => return wrong("expected one field, `prompt` with a text or `messages`"),
        },
        _ => return wrong("expected a text or an object with `prompt` or `messages`"),
    };
    match Input::of_text(text, &[], args) {
        Some(input) => Ok(input),
        None => wrong("the prompt is empty"),
    }
}

fn text(args: &GenerateArgs) -> Result<String> {
    let typed = args.prompt.as_deref().filter(|prompt| *prompt != "-");
    let dash = args.prompt.is_some() && typed.is_none();
    let file = match &args.prompt_file {
        Some(path) if dash && files::is_stdin(path) => {
            return Err(Failure::Usage("stdin is given as the prompt twice".into()));
        }
        Some(path) => Some(files::read(path)?),
        None => None,
    };
    let stdin = match (typed, &file) {
        _ if dash => Some(files::read_stdin()?),
        (None, None) if io::stdin().is_terminal() => {
            return Err(Failure::Usage(
                "no prompt: give one as an argument, with --prompt-file FILE or with \
                 --messages FILE, or pipe it into stdin"
                    .into(),
            ));
        }
        (None, None) => Some(files::read_stdin()?),
        _ => None,
    };
    let read = [stdin, file].into_iter().flatten().map(|text| {
        // The line end that editors and `echo` add is no part of what is asked.
        if args.raw { text } else { without_line_end(text) }
    });
    let parts: Vec<String> = typed.map(str::to_owned).into_iter().chain(read).collect();
    Ok(parts.join("\n\n"))
}

fn empty() -> Failure {
    Failure::Usage("the prompt is empty".into())
}

fn without_line_end(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

/// How many bytes wait in stdin, where it is a pipe or a file.
pub fn bytes_left_in_stdin() -> u64 {
    if io::stdin().is_terminal() {
        return 0;
    }
    rustix::io::ioctl_fionread(io::stdin()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use inference_core::{Message, Prompt};

    use super::{Batch, Input};
    use crate::args::{Cli, Command};

    fn read(arguments: &[&str]) -> Result<Input, String> {
        let cli = Cli::read(["ml", "generate"].iter().chain(arguments)).unwrap();
        let Some(Command::Generate(args)) = cli.command else { panic!("not generate") };
        Input::read(&args).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_prompt_becomes_one_user_message() {
        assert_eq!(read(&["hi\n"]), Ok(Input::Messages(vec![Message::user("hi\n")])));
        assert_eq!(
            read(&["--system", "Be brief.", "hi"]),
            Ok(Input::Messages(vec![Message::system("Be brief."), Message::user("hi")]))
        );
    }

    #[test]
    fn a_file_follows_the_prompt_and_loses_its_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        fs::write(&path, "one\ntwo\r\n").unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(
            read(&["Summarise:", "--prompt-file", path]),
            Ok(Input::Messages(vec![Message::user("Summarise:\n\none\ntwo")]))
        );
        assert_eq!(
            read(&["--raw", "--prompt-file", path]),
            Ok(Input::Raw(Prompt::from("one\ntwo\r\n")))
        );
    }

    #[test]
    fn an_empty_prompt_is_refused() {
        assert_eq!(read(&[""]), Err("the prompt is empty".to_owned()));
        assert_eq!(read(&[" \n"]), Err("the prompt is empty".to_owned()));
        assert_eq!(read(&["--raw", ""]), Err("the prompt is empty".to_owned()));
        assert_eq!(read(&["--raw", " "]), Ok(Input::Raw(Prompt::from(" "))));
    }

    /// The prompts in `text`, each or its error, read two at a time.
    fn batch(text: &str, more: &[&str]) -> Vec<Result<Input, String>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let arguments = ["ml", "generate", "--json", "--batch", "b"];
        let cli = Cli::read(arguments.iter().chain(more)).unwrap();
        let Some(Command::Generate(args)) = cli.command else { panic!("not generate") };
        let mut batch = Batch::open(file.path(), &args).unwrap();
        let groups = std::iter::from_fn(|| {
            let group = batch.next(2).unwrap();
            (!group.is_empty()).then_some(group)
        });
        groups.flatten().map(|input| input.map_err(|failure| failure.to_string())).collect()
    }

    #[test]
    fn a_batch_has_a_prompt_a_line() {
        let three = "\u{feff}\"one\"\n\n{\"prompt\": \"two\"}\r\n\
                     {\"messages\": [{\"role\": \"user\", \"content\": \"three\"}]}\n";
        let asked = |text| Ok(Input::Messages(vec![Message::user(text)]));
        assert_eq!(batch(three, &[]), [asked("one"), asked("two"), asked("three")]);
        assert_eq!(batch("\"a\"", &["--raw"]), [Ok(Input::Raw(Prompt::from("a")))]);
        assert_eq!(batch("\n \n", &[]), []);
    }

    #[test]
    fn what_is_wrong_with_a_line_of_a_batch_is_its_own_error() {
        for (line, more, wrong) in [
            ("b", &[][..], "line 2: not JSON"),
            ("\"\"", &[], "line 2: the prompt is empty"),
            ("{\"prompt\": \" \"}", &[], "line 2: the prompt is empty"),
            ("7", &[], "line 2: expected a text"),
            ("{\"prompt\": \"a\", \"seed\": 1}", &[], "line 2: expected one field"),
            ("{\"messages\": []}", &[], "line 2: there are no messages"),
            ("{\"messages\": [1]}", &[], "line 2: message 0: expected an object"),
            ("{\"messages\": [1]}", &["--raw"], "line 2: `messages` excludes --raw"),
        ] {
            let found = batch(&format!("\"a\"\n{line}\n\"c\"\n"), more);
            assert!(found.len() == 3 && found[0].is_ok() && found[2].is_ok(), "{line}: {found:?}");
            let error = found[1].as_ref().unwrap_err();
            assert!(error.contains(wrong), "{line}: {error}");
        }
    }

    #[test]
    fn messages_come_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.json");
        fs::write(&path, r#"[{"role": "user", "content": "hi"}]"#).unwrap();
        assert_eq!(
            read(&["--messages", path.to_str().unwrap()]),
            Ok(Input::Messages(vec![Message::user("hi")]))
        );
        fs::write(&path, "[]").unwrap();
        let error = read(&["--messages", path.to_str().unwrap()]).unwrap_err();
        assert!(error.ends_with("chat.json: there are no messages"), "{error}");
    }
}
