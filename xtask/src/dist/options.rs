//! The options of `cargo xtask dist`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use mlx_build::build_script::variant_from_env;
use mlx_build::location::cache_of_workspace;
use mlx_build::{Platform, Variant};

use crate::repository::root;

/// The options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// The folder for archives.
    pub out: PathBuf,
    /// Which build of MLX is packed.
    pub variant: Variant,
    /// The address that archives will be downloaded from; an installer for it is written.
    pub downloads: Option<String>,
    /// The archive is tried.
    pub checks: bool,
}

impl Options {
    /// Reads them.
    pub fn parse(args: &[String]) -> Result<Options> {
        let mut options = Options {
            out: cache_of_workspace(root())?.with_file_name("dist"),
            variant: variant_from_env(std::env::consts::OS)?,
            downloads: None,
            checks: false,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = |what| args.next().with_context(|| format!("{arg} needs {what}"));
            match arg.as_str() {
                "--out" => options.out = value("a folder")?.into(),
                "--variant" => options.variant = value("a name")?.parse()?,
                "--downloads" => {
                    options.downloads = Some(value("a URL")?.trim_end_matches('/').to_owned());
                }
                "--check" => options.checks = true,
                other => bail!("unknown argument `{other}` of dist"),
            }
        }
        if options.checks && options.variant == Variant::Cuda {
            bail!("--check runs the program, which needs NVIDIA's libraries with --variant cuda");
        }
        Ok(options)
    }
}

/// The name of an archive with the MLX of this wheel, without its end.
pub fn name(version: &str, triple: &str, wheel: &Platform) -> String {
    let kind = match wheel.variant {
        Variant::Cpu => String::new(),
        Variant::Cuda => "-cuda".to_owned(),
        Variant::Metal => format!("-macos{}", wheel.min_os.major),
    };
    format!("ml-{version}-{triple}{kind}")
}

#[cfg(test)]
mod tests {
    use mlx_build::PLATFORMS;

    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Options::parse(&args)
    }

    #[test]
    fn names_tell_the_version_the_machine_and_what_is_not_usual() {
        let names: Vec<String> =
            PLATFORMS.iter().map(|wheel| name("1.2.3", "arm", wheel)).collect();
        for (kind, count) in
            [("", 2), ("-cuda", 2), ("-macos14", 1), ("-macos15", 1), ("-macos26", 1)]
        {
            let found = names.iter().filter(|name| **name == format!("ml-1.2.3-arm{kind}"));
            assert_eq!(found.count(), count, "{kind}: {names:?}");
        }
        let cuda = parse(&["--variant", "cuda", "--out", "x"]).unwrap();
        assert_eq!((cuda.out, cuda.variant), (PathBuf::from("x"), Variant::Cuda));
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (args, name) in [
            (&["--bogus"][..], "--bogus"),
            (&["--out"], "--out needs"),
            (&["--variant", "gpu"], "`gpu`"),
            (&["--check", "--variant", "cuda"], "NVIDIA"),
        ] {
            let text = parse(args).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
    }
}
