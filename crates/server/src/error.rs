//! Errors that a client can cause, independent of any protocol.
//! Each has a kind, the field, a message for a person, and when to try again.

use inference_core::{EncodedPicture, EncodedSound, Error};

/// The result of everything that a client can cause.
pub type Result<T, E = ApiError> = std::result::Result<T, E>;

/// An answer that is an error. The protocol of the request's path writes it.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// The kind of the error.
    pub kind: Kind,
    /// The field of the request that is at fault.
    pub param: Option<String>,
    /// The message for a person.
    pub message: String,
    /// Seconds after which the client may try again.
    pub retry_after: Option<u64>,
}

/// The kind of the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request cannot be read or means nothing.
    BadRequest,
    /// A field has a value that cannot be.
    Value,
    /// This server or this model does not honour a field, or a value of it.
    Unsupported,
    /// No table knows the field.
    UnknownField,
    /// The body is not JSON.
    NotJson,
    /// There is no key, or it is a wrong one.
    Key,
    /// The `Host` is not allowed.
    Host,
    /// The `Origin` is not allowed.
    Origin,
    /// The server does not let itself be ended by a request.
    Shutdown,
    /// The server keeps no files and batches.
    NoBatches,
    /// The path leads nowhere.
    NoPath,
    /// The model is not the served one.
    NoModel,
    /// No stored response has the id.
    NotStored,
    /// The path takes other methods, namely these.
    Method(&'static str),
    /// The body did not come in time.
    BodyTimeout,
    /// The body is beyond the limit.
    TooLarge,
    /// The body is not declared as JSON, or is compressed.
    MediaType,
    /// The server has nothing of the kind.
    NotThere,
    /// Every slot computes, and the request asks that one does not.
    NoSlot,
    /// More requests wait than may.
    QueueFull,
    /// The prompt has so many tokens, and the model's context holds fewer.
    ContextLength {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens of the context.
        limit: usize,
    },
    /// The prompt cannot be computed.
    Prompt,
    /// The request does not fit into memory.
    Memory,
    /// The model is being loaded.
    Loading,
    /// The model cannot be loaded.
    LoadFailed,
    /// The server is ending.
    Draining,
    /// The device had no memory left in the middle of the work.
    OutOfMemory,
    /// The engine has ended.
    Closed,
    /// The engine cannot compute any more.
    Unusable,
    /// The server cancelled the request.
    Cancelled,
    /// A fault of the server's own.
    Internal,
}

impl Kind {
    /// Returns true when the request is at fault and changing a field mends it.
    pub fn is_bad_request(self) -> bool {
        matches!(
            self,
            Kind::BadRequest
                | Kind::Value
                | Kind::Unsupported
                | Kind::UnknownField
                | Kind::NotJson
                | Kind::ContextLength { .. }
                | Kind::Prompt
                | Kind::Memory
        )
    }
}

/// The longest text of an error, in bytes: it may quote the request.
const LONGEST: usize = 4096;

/// `text`, with its end cut off where it is longer than what is told.
fn clipped(mut text: String) -> String {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    text
}

impl ApiError {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        ApiError { kind, param: None, message: clipped(message.into()), retry_after: None }
    }

    /// The reason that a log may have. What templates and tokenizers say may quote a prompt,
    /// which is never logged.
    pub fn loggable(&self) -> &str {
        match self.kind {
            Kind::Prompt => "the prompt cannot be computed",
            _ => &self.message,
        }
    }

    /// This error, about `param` where it is about no field yet and the request is at fault.
    pub fn or_about(self, param: &str) -> Self {
        match self.param {
            None if self.kind.is_bad_request() => self.about(param),
            _ => self,
        }
    }

    /// This error, about the request's field `param`.
    pub fn about(mut self, param: impl Into<String>) -> Self {
        self.param = Some(clipped(param.into()));
        self
    }

    fn after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// A request that cannot be read or means nothing.
    pub fn bad_request(message: impl Into<String>) -> Self {
        ApiError::new(Kind::BadRequest, message)
    }

    /// A field whose value cannot be.
    pub fn value(param: impl Into<String>, message: impl AsRef<str>) -> Self {
        let param = param.into();
        ApiError::new(Kind::Value, format!("`{param}`: {}", message.as_ref())).about(param)
    }

    /// A field, or a value of it, that this server or this model does not honour.
    pub fn unsupported(param: impl Into<String>, reason: impl AsRef<str>) -> Self {
        let param = param.into();
        let message = format!("`{param}` is not supported: {}", reason.as_ref());
        ApiError::new(Kind::Unsupported, message).about(param)
    }

    /// A field that no table knows.
    pub fn unknown_field(param: impl Into<String>) -> Self {
        let param = param.into();
        let message = format!(
            "unknown field `{param}`: it is not ignored, since it could change the answer; take it out"
        );
        ApiError::new(Kind::UnknownField, message).about(param)
    }

    /// Text that is not JSON.
    pub fn not_json(error: &serde_json::Error) -> Self {
        ApiError::new(Kind::NotJson, format!("the body is not JSON: {error}"))
    }

    /// No key, or a wrong one.
    pub fn invalid_key(message: &str) -> Self {
        ApiError::new(Kind::Key, message)
    }

    /// A `Host` that is not allowed.
    pub fn host(message: &str) -> Self {
        ApiError::new(Kind::Host, message)
    }

    /// An `Origin` that is not allowed.
    pub fn origin(message: &str) -> Self {
        ApiError::new(Kind::Origin, message)
    }

    /// A path that leads nowhere, and the one that is nearest to it.
    pub fn not_found(path: &str, nearest: Option<&str>) -> Self {
        let nearest = nearest.map(|nearest| format!("; the nearest path is `{nearest}`"));
        let nearest = nearest.unwrap_or_default();
        ApiError::new(Kind::NoPath, format!("there is nothing at `{path}`{nearest}"))
    }

    /// A model that is not there: `nearest` are some of the `count` that are.
    pub fn model_not_found(asked: &str, nearest: &[&str], count: usize) -> Self {
        let names: Vec<_> = nearest.iter().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        let here = match count - nearest.len() {
            0 if count == 0 => "this server has none".to_owned(),
            0 => format!("this server has {names}"),
            _ => format!("the nearest of {count} are {names}: see /v1/models"),
        };
        ApiError::no_model(format!("the model `{asked}` does not exist; {here}"))
    }

    /// A model that the request cannot have.
    pub fn no_model(message: impl Into<String>) -> Self {
        ApiError::new(Kind::NoModel, message).about("model")
    }

    /// A stored thing that is not there, or not any more.
    pub fn not_stored(id: &str) -> Self {
        ApiError::new(Kind::NotStored, format!("nothing is stored as `{id}`, or not any more"))
    }

    /// Another method than the path takes.
    pub fn method(method: &str, path: &str, allow: &'static str) -> Self {
        ApiError::new(Kind::Method(allow), format!("`{path}` takes {allow}, not {method}"))
    }

    /// A body that did not come in time.
    pub fn timeout(seconds: f64) -> Self {
        ApiError::new(Kind::BodyTimeout, format!("the body was not complete after {seconds} s"))
    }

    /// A body beyond the limit.
    pub fn too_large(limit: usize) -> Self {
        ApiError::new(Kind::TooLarge, format!("the body is larger than {limit} bytes"))
    }

    /// A body that is not declared as JSON, or is compressed.
    pub fn media_type(message: &str) -> Self {
        ApiError::new(Kind::MediaType, message)
    }

    /// More requests wait than may.
    pub fn queue_full(waiting: usize, retry_after: u64) -> Self {
        let message =
            format!("{waiting} requests are waiting, as many as may; try again in {retry_after} s");
        ApiError::new(Kind::QueueFull, message).after(retry_after)
    }

    /// The server does not let itself be ended by a request.
    pub fn no_shutdown() -> Self {
        let message = "a request may not end this server: start it with --allow-shutdown, or send \
                       its process a signal";
        ApiError::new(Kind::Shutdown, message)
    }

    /// A part of llama.cpp's server that this one has not, for this reason.
    pub fn not_there(reason: impl Into<String>) -> Self {
        ApiError::new(Kind::NotThere, reason)
    }

    /// Every slot computes.
    pub fn no_slot() -> Self {
        ApiError::new(Kind::NoSlot, "no slot is free").after(1)
    }

    /// The server keeps no files and batches.
    pub fn no_batches() -> Self {
        let message = "this server keeps no files and batches: start it with --batch-dir DIR";
        ApiError::new(Kind::NoBatches, message)
    }

    /// There is no room for a file or a batch.
    pub fn no_room(message: impl Into<String>) -> Self {
        ApiError::new(Kind::TooLarge, message)
    }

    /// The model is being loaded.
    pub fn loading() -> Self {
        ApiError::new(Kind::Loading, "the model is being loaded").after(2)
    }

    /// A request has waited for its model for as long as it may.
    pub fn loads_too_long(model: &str, seconds: f64) -> Self {
        let message = format!("the model `{model}` was not loaded within {seconds} s");
        ApiError::new(Kind::Loading, message).after(5)
    }

    /// More requests wait for models than may.
    pub fn loads_full(waiting: usize) -> Self {
        let message = format!("{waiting} requests wait for models, as many as may");
        ApiError::new(Kind::QueueFull, message).after(5)
    }

    /// A model that cannot be loaded, for the reason `why`. After so many seconds it is tried
    /// again.
    pub fn load_failed(model: &str, why: &str, again: u64) -> Self {
        let message = format!("the model `{model}` cannot be loaded: {why}");
        ApiError::new(Kind::LoadFailed, message).about("model").after(again)
    }

    /// The server is ending.
    pub fn draining() -> Self {
        ApiError::new(Kind::Draining, "the server is ending").after(5)
    }

    /// A fault of the server's own.
    pub fn internal(message: impl Into<String>) -> Self {
        ApiError::new(Kind::Internal, message)
    }

    /// A request whose handling panicked.
    pub fn panicked() -> Self {
        ApiError::internal("the request failed inside the server")
    }

    /// This error with the request's fields in the place of the contract's options.
    pub fn named(mut self, names: &Names) -> Self {
        let Some(field) = self.param.as_deref().and_then(|option| names.field(option)) else {
            return self;
        };
        if let Some(option) = self.param.replace(field.to_owned()) {
            self.message = self.message.replace(&format!("`{option}`"), &format!("`{field}`"));
        }
        self
    }
}

/// The fields of a protocol's request for options of the contract that have other names there.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<(&'static str, &'static str)>);

impl Names {
    /// Pairs of an option and its field.
    pub fn new(pairs: &[(&'static str, &'static str)]) -> Names {
        Names(pairs.to_vec())
    }

    /// Also calls `option` by the name `field`.
    pub fn add(&mut self, option: &'static str, field: &'static str) {
        self.0.push((option, field));
    }

    /// Calls `option` by no name any more.
    pub fn remove(&mut self, option: &str) {
        self.0.retain(|(name, _)| *name != option);
    }

    /// The field of `option`, where one is known.
    pub fn field(&self, option: &str) -> Option<&'static str> {
        self.0.iter().find(|(name, _)| *name == option).map(|(_, field)| *field)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::InvalidOption { option, reason } => ApiError::value(option, reason),
            Error::Unsupported { what, reason } => ApiError::unsupported(what, reason),
            Error::PromptTooLong { tokens, limit } => {
                ApiError::new(Kind::ContextLength { tokens, limit }, message)
            }
            Error::Prompt(reason) => {
                let error = ApiError::new(Kind::Prompt, message);
                // A picture and a sound are called by their parts of the request.
                let name = EncodedPicture::name_in(&reason);
                match name.or_else(|| EncodedSound::name_in(&reason)) {
                    Some(part) => error.about(part),
                    None => error,
                }
            }
            Error::EmptyPrompt => ApiError::new(Kind::Prompt, message),
            Error::Memory { .. } => ApiError::new(Kind::Memory, message),
            Error::QueueFull { limit } => ApiError::queue_full(limit, 1),
            Error::OutOfMemory { .. } => ApiError::new(Kind::OutOfMemory, message).after(5),
            Error::Closed => ApiError::new(Kind::Closed, message).after(5),
            Error::Unusable(_) => ApiError::new(Kind::Unusable, message),
            Error::Cancelled => {
                ApiError::new(Kind::Cancelled, "the request was cancelled by the server").after(1)
            }
            _ => ApiError::internal(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use inference_core::Error;

    use super::{ApiError, Kind, Names};

    #[test]
    fn an_option_of_the_contract_is_named_by_the_requests_field() {
        let mut names = Names::new(&[("xtc.threshold", "xtc_threshold")]);
        let option = Error::InvalidOption { option: "xtc.threshold", reason: "no".into() };
        let error = ApiError::from(option).named(&names);
        assert_eq!(error.param.as_deref(), Some("xtc_threshold"));
        names.add("constraint", "response_format");
        let what = Error::Unsupported { what: "constraint".into(), reason: "no grammar".into() };
        let error = ApiError::from(what).named(&names);
        assert_eq!(error.param.as_deref(), Some("response_format"));
        assert_eq!(error.message, "`response_format` is not supported: no grammar");
    }

    #[test]
    fn each_failure_of_the_contract_has_its_kind() {
        let kind = |error| ApiError::from(error).kind;
        let too_long = Error::PromptTooLong { tokens: 2, limit: 1 };
        assert_eq!(kind(too_long), Kind::ContextLength { tokens: 2, limit: 1 });
        assert_eq!(kind(Error::EmptyPrompt), Kind::Prompt);
        assert_eq!(kind(Error::QueueFull { limit: 1 }), Kind::QueueFull);
        let (what, reason) = ("decode step 3".to_owned(), "no".to_owned());
        assert_eq!(kind(Error::OutOfMemory { what, reason }), Kind::OutOfMemory);
        assert_eq!(kind(Error::Closed), Kind::Closed);
        assert_eq!(kind(Error::Engine("device lost".into())), Kind::Internal);
    }
}
