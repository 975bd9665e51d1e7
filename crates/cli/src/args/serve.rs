//! How a server listens, whom it answers, and what it bounds.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use inference_server::TraceEndpoint;

use super::{HowArgs, PoolArgs, values};
use crate::bytes;

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
    /// Nothing.
    Off,
}

/// Which models may be given tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ToolFormat {
    /// Those whose chat templates know tools.
    #[default]
    Template,
    /// All: others are told of tools by instructions, and a grammar holds their calls to a form.
    Generic,
}

/// `ml serve`.
#[derive(Args, Debug)]
#[command(after_help = "\
The server listens at once and loads the model in the background; `/health` tells when it is ready.
With several models, or with an option of \"Several models\", a model is loaded when a request names
it, and unloaded where another one needs its memory or --idle-unload says so. A model alone, and
those of --pin and --load, are loaded before the server is ready; where one cannot be, it ends.
SIGTERM, SIGHUP and Ctrl-C let running requests end, for --drain-timeout at most; a second one ends
at once. Under systemd, SIGHUP reads the certificate again.

Examples:
  ml serve
  ml serve --model ~/models/Qwen3-0.6B --port 8000
  ml serve --models-dir ~/models --idle-unload 10m --pin Qwen3-0.6B
  ml serve --model small=~/models/Qwen3-0.6B --model mlx-community/Qwen3-8B-4bit
  ML_SERVE_API_KEY=secret ml serve --host 0.0.0.0 --allowed-host models.example.org
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Tell me a story about a fox\"}]}'")]
pub struct ServeArgs {
    /// Serve the image model in this folder, or ORG/NAME that `ml pull` fetched, beside the text
    /// model
    #[arg(long, value_name = "MODEL", help_heading = "Pictures")]
    pub image_model: Option<PathBuf>,
    /// Pack image models to 4 or 8 bits as their weights are read
    #[arg(long, visible_alias = "image-quantize", value_name = "BITS", value_parser = values::count,
          help_heading = "Pictures")]
    pub image_quantise: Option<usize>,
    /// Keep image models' components in memory between pictures, where they fit
    #[arg(long, help_heading = "Pictures")]
    pub image_keep: bool,
    /// Serve this embedding model or reranker beside the text model: a folder, or ORG/NAME that `ml
    /// pull` fetched; can be given more than once
    #[arg(long, value_name = "MODEL", help_heading = "Embeddings")]
    pub embedding_model: Vec<PathBuf>,
    /// Serve this model that transcribes speech beside the text model: a folder, or ORG/NAME that
    /// `ml pull` fetched; can be given more than once
    #[arg(long, value_name = "MODEL", help_heading = "Speech")]
    pub transcription_model: Vec<PathBuf>,
    /// Serve a model that speaks too: a folder of Kokoro; can be given more than once
    #[arg(long, value_name = "MODEL", help_heading = "Speech")]
    pub speech_model: Vec<PathBuf>,
    /// Model folder in MLX or Hugging Face layout, a .gguf file, or a name that `ml pull` fetched;
    /// more than once for several, each with a name of its own by NAME=MODEL [env: ML_MODEL]
    /// [default: the demo model]
    #[arg(short, long = "model", value_name = "MODEL", help_heading = "Model")]
    pub models: Vec<PathBuf>,
    /// How models are loaded.
    #[command(flatten)]
    pub load: HowArgs,
    /// Keep keys and values of earlier prompts in so many bytes, for each model; 0: none [default:
    /// 1GiB, or less for several models; for one on CUDA an eighth of the memory beside its
    /// weights]
    #[arg(long, env = "ML_SERVE_PREFIX_CACHE", value_name = "BYTES", value_parser = bytes::parse,
          help_heading = "Model")]
    pub prefix_cache: Option<u64>,
    /// Keep them in this folder too, for the next start; it is this user's alone
    #[arg(long, env = "ML_SERVE_PREFIX_CACHE_DIR", value_name = "DIR", help_heading = "Model")]
    pub prefix_cache_dir: Option<PathBuf>,
    /// Let all files in that folder take so many bytes [default: 8GiB, or what they take
    /// already]
    #[arg(long, env = "ML_SERVE_PREFIX_CACHE_DISK", value_name = "BYTES", value_parser = bytes::parse,
          help_heading = "Model")]
    pub prefix_cache_disk: Option<u64>,
    /// The model's name for clients [default: the folder's]
    #[arg(long, env = "ML_SERVE_MODEL_NAME", value_name = "NAME", help_heading = "Model")]
    pub model_name: Option<String>,
    /// Another name for the model; `*` takes any; can be given more than once; of several models,
    /// ALIAS=NAME
    #[arg(
        long,
        env = "ML_SERVE_MODEL_ALIAS",
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Model"
    )]
    pub model_alias: Vec<String>,
    /// Which models requests may give tools to
    #[arg(
        long,
        env = "ML_SERVE_TOOLS",
        value_name = "FORMAT",
        value_enum,
        default_value = "template",
        help_heading = "Model"
    )]
    pub tools: ToolFormat,
    /// Several models.
    #[command(flatten)]
    pub pool: PoolArgs,

    /// Address to listen on; beyond loopback, an API key is required
    #[arg(
        long,
        env = "ML_SERVE_HOST",
        value_name = "ADDRESS",
        default_value = "127.0.0.1",
        value_parser = values::host,
        help_heading = "Access"
    )]
    pub host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(
        long,
        env = "ML_SERVE_PORT",
        value_name = "PORT",
        default_value_t = 8080,
        help_heading = "Access"
    )]
    pub port: u16,
    /// File with API keys, one a line; ML_SERVE_API_KEY holds a single one
    #[arg(long, env = "ML_SERVE_API_KEY_FILE", value_name = "FILE", help_heading = "Access")]
    pub api_key_file: Option<PathBuf>,
    /// Certificate for TLS, in a PEM file that has those of the authorities between behind it; the
    /// file is read again when it changes
    #[arg(long, env = "ML_SERVE_TLS_CERT", value_name = "FILE", help_heading = "Access")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key, in a PEM file
    #[arg(long, env = "ML_SERVE_TLS_KEY", value_name = "FILE", help_heading = "Access")]
    pub tls_key: Option<PathBuf>,
    /// Name that `Host` may have beside localhost and addresses; `*`: any; more than once
    #[arg(
        long,
        env = "ML_SERVE_ALLOWED_HOST",
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Access"
    )]
    pub allowed_host: Vec<String>,
    /// Origin whose web pages may use the server; `*`: all; more than once
    #[arg(
        long,
        env = "ML_SERVE_CORS_ORIGIN",
        value_name = "ORIGIN",
        value_delimiter = ',',
        help_heading = "Access"
    )]
    pub cors_origin: Vec<String>,

    /// Folder whose pictures requests may name by `file://` URLs; without it no files are read
    #[arg(
        long,
        env = "ML_SERVE_ALLOWED_LOCAL_MEDIA_PATH",
        value_name = "FOLDER",
        help_heading = "Access"
    )]
    pub allowed_local_media_path: Option<PathBuf>,

    /// Let a request to /shutdown end the server, as `ml stop --server` does
    #[arg(long, env = "ML_SERVE_ALLOW_SHUTDOWN", help_heading = "Access")]
    pub allow_shutdown: bool,

    /// Refuse fields of requests that change no answer here, such as hints for another server's
    /// engine, in place of telling them in the header `x-ml-ignored`
    #[arg(long, env = "ML_SERVE_STRICT_FIELDS", help_heading = "Access")]
    pub strict_fields: bool,

    /// Files and batches of requests.
    #[command(flatten)]
    pub batches: BatchArgs,
    /// The server's limits.
    #[command(flatten)]
    pub limits: LimitArgs,

    /// How the access log on stderr is written; it never holds prompts
    #[arg(
        long,
        env = "ML_SERVE_LOG",
        value_name = "FORMAT",
        value_enum,
        default_value = "text",
        help_heading = "Output"
    )]
    pub log: LogFormat,
    /// Send a span for each request to the OpenTelemetry collector at this address, as OTLP's JSON
    /// over HTTP, with those of its wait, its prompt and its tokens; none has a prompt
    #[arg(long, env = "ML_SERVE_OTLP_ENDPOINT", value_name = "URL", help_heading = "Output")]
    pub otlp_endpoint: Option<TraceEndpoint>,
    /// The server's name among the services that the collector knows
    #[arg(
        long,
        env = "ML_SERVE_OTLP_SERVICE",
        value_name = "NAME",
        default_value = "ml",
        help_heading = "Output"
    )]
    pub otlp_service: String,
    /// No progress on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// Files and batches of requests.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Batches")]
pub struct BatchArgs {
    /// Keep files and batches of requests in this folder, and answer batches while nothing else
    /// waits; without it there are none
    #[arg(long, env = "ML_SERVE_BATCH_DIR", value_name = "DIR")]
    pub batch_dir: Option<PathBuf>,
    /// Bytes of a file [default: 100MiB]
    #[arg(long, env = "ML_SERVE_MAX_BATCH_FILE", value_name = "BYTES", value_parser = bytes::parse)]
    pub max_batch_file: Option<u64>,
    /// Bytes of all files and batches [default: 1GiB]
    #[arg(long, env = "ML_SERVE_MAX_BATCH_BYTES", value_name = "BYTES",
          value_parser = bytes::parse)]
    pub max_batch_bytes: Option<u64>,
    /// Requests of a batch [default: 50000]
    #[arg(long, env = "ML_SERVE_MAX_BATCH_REQUESTS", value_name = "N",
          value_parser = values::count)]
    pub max_batch_requests: Option<usize>,
}

/// Limits of a server.
#[derive(Args, Debug)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Generations that may wait for a slot; further ones get 429
    #[arg(long, env = "ML_SERVE_QUEUE", value_name = "N", default_value_t = 64)]
    pub queue: usize,
    /// Bytes of a request's body [default: 4MiB, or 32MiB for a model that sees]
    #[arg(long, env = "ML_SERVE_MAX_BODY", value_name = "BYTES", value_parser = bytes::parse)]
    pub max_body: Option<u64>,
    /// Headers of a request
    #[arg(long, env = "ML_SERVE_MAX_HEADERS", value_name = "N", default_value_t = 100)]
    pub max_headers: usize,
    /// Connections at once
    #[arg(long, env = "ML_SERVE_MAX_CONNECTIONS", value_name = "N", default_value_t = 512)]
    pub max_connections: usize,
    /// Answers to one request: `n` and `best_of`
    #[arg(long, env = "ML_SERVE_MAX_N", value_name = "N", default_value_t = 8)]
    pub max_n: usize,
    /// Prompts of one request
    #[arg(long, env = "ML_SERVE_MAX_PROMPTS", value_name = "N", default_value_t = 64)]
    pub max_prompts: usize,
    /// Texts or documents of one request to an embedding model or a reranker
    #[arg(long, env = "ML_SERVE_MAX_INPUTS", value_name = "N", default_value_t = 2048)]
    pub max_inputs: usize,
    /// `top_logprobs`, and `logprobs` of completions
    #[arg(long, env = "ML_SERVE_MAX_LOGPROBS", value_name = "N", default_value_t = 20)]
    pub max_logprobs: usize,
    /// Log probabilities of prompts' own tokens in one answer, likeliest ones counted
    #[arg(long, env = "ML_SERVE_MAX_PROMPT_LOGPROBS", value_name = "N", default_value_t = 1 << 20)]
    pub max_prompt_logprobs: usize,
    /// Strings of `stop`, ids of `stop_token_ids`
    #[arg(long, env = "ML_SERVE_MAX_STOP", value_name = "N", default_value_t = 16)]
    pub max_stop: usize,
    /// Entries of `logit_bias`
    #[arg(long, env = "ML_SERVE_MAX_LOGIT_BIAS", value_name = "N", default_value_t = 1024)]
    pub max_logit_bias: usize,
    /// Bytes of a JSON schema, a regular expression or a grammar
    #[arg(long, env = "ML_SERVE_MAX_SCHEMA", value_name = "BYTES", value_parser = bytes::parse,
          default_value = "256KiB")]
    pub max_schema: u64,
    /// Values in an answer of /v1/inspect
    #[arg(long, env = "ML_SERVE_MAX_INSPECT", value_name = "N", default_value_t = 4_194_304)]
    pub max_inspect: usize,
    /// Responses of /v1/responses that are kept for later requests; 0: none
    #[arg(long, env = "ML_SERVE_MAX_STORED", value_name = "N", default_value_t = 1000)]
    pub max_stored: usize,
    /// Bytes of responses that are kept; the oldest give way
    #[arg(long, env = "ML_SERVE_MAX_STORED_BYTES", value_name = "BYTES",
          value_parser = bytes::parse, default_value = "64MiB")]
    pub max_stored_bytes: u64,
    /// Seconds for a request's headers
    #[arg(long, env = "ML_SERVE_HEADER_TIMEOUT", value_name = "SECONDS",
          value_parser = values::seconds, default_value = "10")]
    pub header_timeout: Duration,
    /// Seconds for a request's body
    #[arg(long, env = "ML_SERVE_BODY_TIMEOUT", value_name = "SECONDS",
          value_parser = values::seconds, default_value = "30")]
    pub body_timeout: Duration,
    /// Seconds for a client to take in what was sent to it
    #[arg(long, env = "ML_SERVE_WRITE_TIMEOUT", value_name = "SECONDS",
          value_parser = values::seconds, default_value = "60")]
    pub write_timeout: Duration,
    /// Seconds between comments that keep a silent stream alive
    #[arg(long, env = "ML_SERVE_KEEP_ALIVE", value_name = "SECONDS",
          value_parser = values::seconds, default_value = "15")]
    pub keep_alive: Duration,
    /// Seconds for running requests to end after SIGTERM
    #[arg(long, env = "ML_SERVE_DRAIN_TIMEOUT", value_name = "SECONDS",
          value_parser = values::seconds, default_value = "30")]
    pub drain_timeout: Duration,
    /// Seconds without a step of the engine after which /health tells that it is stalled
    #[arg(long, env = "ML_SERVE_STALL_TIMEOUT", value_name = "SECONDS",
          value_parser = values::seconds, default_value = "120")]
    pub stall_timeout: Duration,
}
