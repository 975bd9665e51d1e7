//! Messages to ids: the checkpoint's chat template, or the family's format.
//!
//! Arguments are changed here as transformers changes them before it renders. Keys of a message
//! that are null are dropped, and its reasoning is passed under both names that templates read.
//! Calls of earlier turns have the form that the template takes (see [`CallForm`]). On top, the
//! text of users and tools can never become a control token (see [`Rendered`]).

use super::call_form::{self, CallForm};
use super::clock::LocalTime;
use super::continuing;
use super::conversation::{OF_PROCESSOR, check_depth, message, shows, strings, template_sources};
use super::fallback::Fallback;
use super::results;
use super::template::ChatTemplate;
use crate::files::{Files, Folder};
use crate::marks::{Author, free_marks};
use crate::tokenizer::guarded;
use crate::{TextError, Tokenizer};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;

/// How a checkpoint writes conversations; cheap to clone, shared between threads.
///
/// A template that cannot be read is an error of the conversations that need it.
#[derive(Debug, Clone)]
pub struct ChatFormat {
    tokenizer: Tokenizer,
    format: Format,
    /// How the template takes calls of earlier turns, once that was asked for.
    calls: Arc<OnceLock<CallForm>>,
}

#[derive(Debug, Clone)]
enum Format {
    /// `default` and `tool_use` are the ones in use.
    Templates(Arc<Vec<Named>>),
    Fallback(Fallback),
}

/// A template of a checkpoint.
#[derive(Debug)]
struct Named {
    name: String,
    source: String,
    /// The parsed source; the line and the fault where it is no template.
    template: Result<ChatTemplate, (usize, String)>,
}

impl Named {
    fn new((name, source): (String, String)) -> Named {
        let template = ChatTemplate::new(&source).map_err(|error| match error {
            TextError::Template { line, reason } => (line, reason),
            other => (0, other.to_string()),
        });
        Named { name, source, template }
    }

    /// Returns true when the source has the word `name`.
    fn names(&self, name: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        self.source.split(|c| !is_part(c)).any(|word| word == name)
    }
}

/// A conversation and what goes with it.
#[derive(Debug, Clone)]
pub struct ChatInput<'a> {
    /// OpenAI-shaped messages: objects with `role`, `content`, `tool_calls`, … Results of several
    /// calls may come in any order: they are put into that of the calls, by which templates without
    /// ids know them.
    pub messages: &'a [Json],
    /// OpenAI-shaped tools.
    pub tools: Option<&'a [Json]>,
    /// Documents for retrieval, which some templates print.
    pub documents: Option<&'a [Json]>,
    /// The text ends with the beginning of an assistant's turn.
    pub add_generation_prompt: bool,
    /// The text ends behind that of the last message, which is the assistant's.
    pub continue_final_message: bool,
    /// Further variables for the template; they take precedence over the tokenizer's special
    /// tokens. `enable_thinking` defaults to [`Tokenizer::has_thinking`], as in mlx-lm.
    pub kwargs: Option<&'a Map<String, Json>>,
    /// The date that templates may print.
    pub now: LocalTime,
    /// A text that the template alone may write, and the one that is encoded in its place. Models'
    /// processors do so around pictures. The same in a message stays as it is. [`Rendered::text`]
    /// has the text as it was written.
    pub replaced: Option<(&'a str, &'a str)>,
}

impl<'a> ChatInput<'a> {
    /// A conversation to be answered: a generation prompt, no tools, the current date in UTC.
    pub fn new(messages: &'a [Json]) -> ChatInput<'a> {
        let now = LocalTime::now_utc();
        ChatInput {
            messages,
            tools: None,
            documents: None,
            add_generation_prompt: true,
            continue_final_message: false,
            kwargs: None,
            now,
            replaced: None,
        }
    }
}

/// A rendered conversation.
///
/// `ids` are the ids of `text`, except that a control token in a message, a tool or an argument is
/// the plain text it was there: `<|im_end|>` in a user's message does not end the message. Control
/// tokens are the added tokens that are special, and outside assistants' messages also those of the
/// shape `<|…|>`. Other added tokens (`<think>`, `<tool_call>`) are tokens wherever they stand, as
/// in transformers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text, byte for byte what transformers renders.
    pub text: String,
    /// Its ids.
    pub ids: Vec<u32>,
}

impl ChatFormat {
    /// The format of a model folder: chat_template.jinja and additional_chat_templates/, else
    /// `chat_template` in tokenizer_config.json (one template, or a list of named ones), else
    /// chat_template.json, which goes before where a message has pictures or sounds, else the
    /// format of `model_type` (`gemma4…`, `gemma…`, `llama…`) or
    /// ChatML, whichever has marks that are tokens, else the contents joined by newlines.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn from_dir(
        dir: &Path,
        tokenizer: &Tokenizer,
        model_type: &str,
    ) -> Result<ChatFormat, TextError> {
        ChatFormat::from_files(&Folder(dir), tokenizer, model_type)
    }

    /// The format of files that need not lie in a folder; see [`from_dir`](Self::from_dir).
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn from_files(
        dir: &dyn Files,
        tokenizer: &Tokenizer,
        model_type: &str,
    ) -> Result<ChatFormat, TextError> {
        let sources = template_sources(dir)?;
        let format = if sources.is_empty() {
            Format::Fallback(Fallback::of(model_type, tokenizer))
        } else {
            Format::Templates(Arc::new(sources.into_iter().map(Named::new).collect()))
        };
        Ok(ChatFormat { tokenizer: tokenizer.clone(), format, calls: Arc::default() })
    }

    /// A format from a template's source.
    ///
    /// # Errors
    /// If the template is not valid.
    pub fn from_template(source: &str, tokenizer: &Tokenizer) -> Result<ChatFormat, TextError> {
        let template = Ok(ChatTemplate::new(source)?);
        let (name, source) = ("default".to_owned(), source.to_owned());
        let templates = vec![Named { name, source, template }];
        Ok(ChatFormat {
            tokenizer: tokenizer.clone(),
            format: Format::Templates(Arc::new(templates)),
            calls: Arc::default(),
        })
    }

    /// Returns the origin of the format and its fault, for reports.
    pub fn source(&self) -> String {
        match &self.format {
            Format::Templates(_) => match self.fault() {
                Some(fault) => {
                    format!("the checkpoint's chat template, which cannot be read: {fault}")
                }
                None => "the checkpoint's chat template".to_owned(),
            },
            Format::Fallback(Fallback::Lines) => "none: the messages, one a line".to_owned(),
            Format::Fallback(_) => "the family's format".to_owned(),
        }
    }

    /// Returns the fault of a template of the checkpoint; conversations that need it fail.
    pub fn fault(&self) -> Option<String> {
        let Format::Templates(templates) = &self.format else { return None };
        let fault = |named: &Named| {
            let (line, reason) = named.template.as_ref().err()?;
            Some(format!("`{}`, line {line}: {reason}", named.name))
        };
        templates.iter().find_map(fault)
    }

    /// Returns true when messages are written one a line, for want of a template and of marks.
    pub fn is_lines(&self) -> bool {
        matches!(self.format, Format::Fallback(Fallback::Lines))
    }

    /// Returns true when the checkpoint has a template of its own.
    pub fn has_template(&self) -> bool {
        matches!(self.format, Format::Templates(_))
    }

    /// Returns true when a variable of that name can make a difference; `tools` also chooses the
    /// template. In a template, one that is named but not used may count too.
    pub fn reads(&self, name: &str) -> bool {
        let Format::Templates(templates) = &self.format else { return false };
        templates.iter().any(|template| {
            (name == "tools" && template.name == "tool_use") || template.names(name)
        })
    }

    /// The conversation as text and ids.
    ///
    /// # Errors
    /// [`TextError::Input`] for an empty conversation, a message that is no object, or strings that
    /// hold all 32 noncharacters U+FDD0 to U+FDEF, and for a last message that cannot go on;
    /// [`TextError::Raised`], [`TextError::Template`]
    /// and [`TextError::TemplateBounds`] from the template; [`TextError::InputTooLarge`] and
    /// [`TextError::Encode`] from the tokenizer.
    pub fn render_and_encode(&self, input: &ChatInput) -> Result<Rendered, TextError> {
        let (mut variables, inserted) = self.variables(input)?;
        let (mark, end) = self.mark(&mut variables, &inserted)?;
        let end = end.filter(|_| input.continue_final_message);
        if input.continue_final_message {
            continuing::mark_end(&mut variables, end)?;
        }
        let marked = self
            .render(input, &variables, mark)
            .map_err(|err| without_mark(without_mark(err, mark), end))?;
        let written = match end {
            Some(end) => continuing::cut(marked, end)?,
            None => marked,
        };
        let marked = match input.replaced {
            None => Cow::Borrowed(&written),
            Some((token, by)) => Cow::Owned(written.replace(token, by)),
        };
        self.tokenizer.check(&marked)?;
        let inner = &self.tokenizer.inner;
        let apart = |mark: Option<char>| {
            guarded(|| inner.plain.encode(&inner.tokenizer, &marked, mark))
                .map_err(TextError::Encode)
        };
        let Some(mark) = mark.filter(|mark| marked.contains(*mark)) else {
            let mut ids = self.tokenizer.encode_chat(&marked)?;
            if inner.plain.is_ambiguous(&inner.tokenizer) {
                // A normalizer can make a token of text that is none ("<END>" in lower case).
                let specials = ids.iter().filter(|id| inner.special_ids.contains(id)).count();
                if specials > inner.plain.control_tokens(&marked).count() {
                    ids = apart(None)?;
                }
            }
            return Ok(Rendered { text: written, ids });
        };
        let ids = apart(Some(mark))?;
        let text = written.replace(mark, "");
        Ok(Rendered { text, ids })
    }

    fn render(
        &self,
        input: &ChatInput,
        variables: &Map<String, Json>,
        mark: Option<char>,
    ) -> Result<String, TextError> {
        let templates = match &self.format {
            Format::Templates(templates) => templates,
            Format::Fallback(fallback) => {
                let messages = variables.get("messages").and_then(Json::as_array);
                let bos = self.tokenizer.bos_token().unwrap_or_default();
                return fallback.render(
                    messages.map_or(&[], Vec::as_slice),
                    bos,
                    input.add_generation_prompt,
                );
            }
        };
        let named = |wanted: &str| {
            templates.iter().find(|named| named.name == wanted).map(|named| &named.template)
        };
        let of_processor = templates.iter().find(|named| named.name == OF_PROCESSOR);
        let of_processor = of_processor.filter(|_| shows(input.messages));
        if let Some(own) = of_processor
            && input.tools.is_some_and(|tools| !tools.is_empty())
            && !own.names("tools")
        {
            let reason = "are not written beside pictures and sounds: the template of the \
                          checkpoint's processor knows none; leave out one of both"
                .to_owned();
            return Err(TextError::Input { name: "tools".into(), reason });
        }
        let of_processor = of_processor.map(|named| &named.template);
        let tool_use = input.tools.and_then(|_| named("tool_use"));
        let Some(template) = of_processor.or(tool_use).or_else(|| named("default")) else {
            let names: Vec<&str> = templates.iter().map(|named| named.name.as_str()).collect();
            let reason = format!("none of the templates ({}) is the default one", names.join(", "));
            return Err(TextError::Template { line: 0, reason });
        };
        match template {
            Ok(template) => template.render_marked(variables, input.now, mark),
            Err((line, reason)) => Err(TextError::Template { line: *line, reason: reason.clone() }),
        }
    }

    /// The template's variables, and the names of those that hold text from outside.
    fn variables(&self, input: &ChatInput) -> Result<(Map<String, Json>, Vec<String>), TextError> {
        if input.messages.is_empty() {
            return Err(TextError::Input { name: "messages".into(), reason: "is empty".into() });
        }
        let lists = [
            ("messages", Some(input.messages)),
            ("tools", input.tools),
            ("documents", input.documents),
        ];
        for (name, list) in lists {
            for (i, value) in list.unwrap_or_default().iter().enumerate() {
                check_depth(|| format!("{name}[{i}]"), value)?;
            }
        }
        for (name, value) in input.kwargs.into_iter().flatten() {
            check_depth(|| name.clone(), value)?;
        }
        let messages: Result<Vec<Json>, TextError> =
            input.messages.iter().enumerate().map(message).collect();
        let mut messages = messages?;
        results::in_order(&mut messages);
        if self.has_template() && call_form::has_calls(&messages) {
            self.calls.get_or_init(|| self.call_form()).apply(&mut messages);
        }
        Ok(self.named(input, messages))
    }

    /// The variables of `messages` and of what goes with them, and the names of those that hold
    /// text from outside.
    fn named(&self, input: &ChatInput, messages: Vec<Json>) -> (Map<String, Json>, Vec<String>) {
        let mut variables = Map::new();
        for (name, token) in &self.tokenizer.inner.named {
            variables.insert((*name).to_owned(), Json::from(token.as_str()));
        }
        variables.insert("enable_thinking".into(), self.tokenizer.has_thinking().into());
        let mut inserted = Vec::new();
        for (name, value) in input.kwargs.into_iter().flatten() {
            variables.insert(name.clone(), value.clone());
            inserted.push(name.clone());
        }
        variables.insert("messages".into(), Json::Array(messages));
        for (name, list) in [("tools", input.tools), ("documents", input.documents)] {
            variables
                .insert(name.into(), list.map_or(Json::Null, |list| Json::Array(list.to_vec())));
            inserted.push(name.to_owned());
        }
        variables.insert("add_generation_prompt".into(), input.add_generation_prompt.into());
        (variables, inserted)
    }

    /// Begins to find out, on a thread of its own, how the template takes calls. The first answer
    /// would wait for all of it: conversations with calls tell a model's family.
    pub fn prepare_beside(&self) {
        if self.has_template() {
            let format = self.clone();
            let prepare = move || {
                format.calls.get_or_init(|| format.call_form());
            };
            // Without a thread, the first answer waits.
            let _ = thread::Builder::new().name("chat-template".into()).spawn(prepare);
        }
    }

    /// How the template takes calls, which conversations with a call tell.
    fn call_form(&self) -> CallForm {
        let tools = [call_form::tool()];
        CallForm::probe(&|messages| {
            let input = ChatInput { tools: Some(&tools), ..ChatInput::new(messages) };
            let (variables, _) = self.named(&input, messages.to_vec());
            self.render(&input, &variables, None)
        })
    }

    /// Marks control tokens in what came from outside; `None` if there are none. The second mark
    /// occurs nowhere yet.
    fn mark(
        &self,
        variables: &mut Map<String, Json>,
        inserted: &[String],
    ) -> Result<(Option<char>, Option<char>), TextError> {
        let mut texts = Vec::new();
        variables.values().for_each(|value| strings(value, &mut texts));
        let templates = match &self.format {
            Format::Templates(templates) => templates.as_slice(),
            Format::Fallback(_) => &[],
        };
        let sources = templates.iter().map(|named| named.source.as_str());
        let (Some(mark), end) = free_marks(texts.iter().copied().chain(sources)) else {
            let reason = "all noncharacters from U+FDD0 to U+FDEF occur, none is left for a mark";
            return Err(TextError::Input { name: "messages".into(), reason: reason.into() });
        };
        let control = &self.tokenizer.inner.control;
        let mut any = false;
        for (name, value) in variables.iter_mut() {
            if name == "messages" {
                for message in value.as_array_mut().into_iter().flatten() {
                    any |= control.mark(message, Author::of(message), mark);
                }
            } else if inserted.contains(name) {
                any |= control.mark(value, Author::Other, mark);
            }
        }
        Ok((any.then_some(mark), end))
    }
}

/// A template may quote a message in its complaint.
fn without_mark(err: TextError, mark: Option<char>) -> TextError {
    let clean = |text: String| mark.map_or(text.clone(), |mark| text.replace(mark, ""));
    match err {
        TextError::Raised(message) => TextError::Raised(clean(message)),
        TextError::Template { line, reason } => TextError::Template { line, reason: clean(reason) },
        other => other,
    }
}
