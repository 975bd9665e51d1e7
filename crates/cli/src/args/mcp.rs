//! Servers of tools that a chat's model may use.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values;

/// Servers of tools.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Tools")]
pub struct McpArgs {
    /// Let the model use the tools of the MCP servers that this JSON file names, each call after a
    /// question: {"mcpServers": {"NAME": {"command": …, "args": […]} or {"url": …}}}
    #[arg(long, value_name = "FILE", conflicts_with = "tools")]
    pub mcp: Option<PathBuf>,
    /// Let it call them without a question
    #[arg(long)]
    pub mcp_yes: bool,
    /// Give a server up that does not answer in so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, default_value = "60")]
    pub mcp_timeout: Duration,
}
